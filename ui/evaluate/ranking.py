"""The ranking of test cases, likely faults first. It is fetched after the figures because it takes longer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from core.evaluation_results import BUDGETS, Order
from core.text_templates import TextTemplates
from core.words import count_of
from services.evaluation.ranking import ENTROPY, GINI, OURS, RANDOM, RankedCase, Ranking
from ui.evaluate.plots import found_points
from ui.evaluate.render import render
from ui.markup import Html

OPENED = 100
"""Maximum number of top-ranked images that one link opens."""
PICTURES = 12
"""Maximum number of top-ranked images that the section shows."""
FEW_KNOWN = 10
"""Minimum number of test cases with a known truth. With fewer, orders are not compared."""
FEW_IMAGES = 5
"""Number of images below which a share means little."""
_WORDS = {OURS: "ours", RANDOM: "at random", ENTROPY: "least sure first (entropy)", GINI: "least sure first (DeepGini)"}
_LOOKS = {OURS: "first", ENTROPY: "second", GINI: "third", RANDOM: "zero"}
"""Line style for each order of images. The legend lists them in this order."""
Listed = Callable[[Sequence[int], int], str | None]
"""Function from (entries of images, entry to enlarge or 0) to a gallery address, or to None if that is too long."""


def most_shown(cases: int) -> int:
    """Return how many top-ranked test cases the section needs. `cases` is the total number of test cases."""
    return max(OPENED, round(max(BUDGETS) * cases))


def ranking_part(found: Ranking, listed: Listed, picture: Callable[[str], str | None]) -> Html:
    """Return the section with the ranking. `picture` returns a thumbnail's address from the SHA-256 of an image."""
    entries = [one.entry for one in found.first[:OPENED]]
    by_name = {one.name: one for one in found.orders} if found.known >= FEW_KNOWN else {}
    orders = [by_name[name] for name in _LOOKS if name in by_name]
    shown = {budget: by_name[OURS].images[budget] for budget in BUDGETS} if orders else {}
    return render(
        "ranking",
        found=found,
        first=len(entries),
        open_first=listed(entries, 0) if len(entries) > 1 else None,
        sentence=_sentence(by_name, found),
        orders=orders,
        opened={budget: _opens(found, images, listed) for budget, images in shown.items()},
        plot=_curves(orders, found.known) if orders and by_name[OURS].all_faults else None,
        pictures=[
            (picture(one.image), listed(entries, one.entry), *_said_of(one, found)) for one in found.first[:PICTURES]
        ],
        share=_share,
        words=_WORDS,
        looks=_LOOKS,
        ours=OURS,
    )


def _opens(found: Ranking, images: int, listed: Listed) -> str | None:
    """Return the address of the first `images` test cases; None if the ranking's figures count other test cases."""
    # An order is judged by the images of known truth only. They head the list only if they come before all others.
    judged_by_these = found.known_first and 0 < images <= len(found.first)
    return listed([one.entry for one in found.first[:images]], 0) if judged_by_these else None


def _sentence(orders: dict[str, Order], found: Ranking) -> str:
    ours = orders.get(OURS)
    budget = next((one for one in BUDGETS[1:] if ours and ours.images[one] >= FEW_IMAGES), BUDGETS[-1])
    values = {"found": found, "ours": ours, "chance": orders.get(RANDOM), "budget": budget, "few_known": FEW_KNOWN}
    return _TEXTS.paragraph("ranking.txt", **values)


def _curves(orders: Sequence[Order], images: int) -> tuple[list[tuple[str, str]], str]:
    """Return (line style, points) of each order's curve, and a text that describes all curves."""
    most = max(one.all_faults for one in orders)
    words = "; ".join(f"{_WORDS[one.name]}: {one.found(images // 10):,} faults in the first tenth" for one in orders)
    return [(_LOOKS[one.name], found_points(one, images, most)) for one in orders], words


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"


def _said_of(one: RankedCase, found: Ranking) -> tuple[str, str]:
    """Return the text below a test case's picture, and the text to add to the picture's title."""
    text = one.label
    if found.kind == "segmentation":
        text = f"loses {one.said}" if one.said else "loses no class" if one.right else one.edits or "no edit"
    elif one.said:
        text += ": right" if one.said == one.label else f" → {one.said}"
    elif one.right is not None:
        text += " → none of these"
    wrong = "to lose a class" if found.kind == "segmentation" else "wrong"
    return text, f"{one.edits or 'no edit'}; likely {wrong}: {_share(one.wrong)}, likely valid: {_share(one.valid)}"


_TEXTS = TextTemplates(Path(__file__).with_name("texts"), count_of=count_of, share=_share)
