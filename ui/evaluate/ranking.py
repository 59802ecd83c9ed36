"""The ranking of test cases, which is asked for after the figures because it takes longer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.evaluation_results import BUDGETS, Order
from core.words import count_of
from services.evaluation.ranking import ENTROPY, GINI, OURS, RANDOM, RankedCase, Ranking
from ui.evaluate.explained import explained
from ui.evaluate.plots import found_plot
from ui.evaluate.words import linked
from ui.explore.parts import box, head_table, heading, problem, small
from ui.markup import Child, Html, el

OPENED = 100
"""Images that are opened together, the first ones."""
PICTURES = 12
"""Images that are shown, the first ones."""
FEW_KNOWN = 10
"""Test cases whose truth is known: of fewer no order is better than another."""
FEW_IMAGES = 5
"""A share of the images that is fewer than so many says little."""
TITLE = "What to look at first"
_WORDS = {OURS: "ours", RANDOM: "at random", ENTROPY: "least sure first (entropy)", GINI: "least sure first (DeepGini)"}
_LOOKS = {OURS: "first", ENTROPY: "second", GINI: "third", RANDOM: "zero"}
"""How the line of an order is drawn, in the order of the legend."""
Listed = Callable[[Sequence[int], int], str | None]
"""The address of a list of entries in Curate, with one of them large (0 for none); None where there is none."""


def most_shown(cases: int) -> int:
    """How many of the first test cases the section needs."""
    return max(OPENED, round(max(BUDGETS) * cases))


def ranking_waited_for() -> Html:
    """The section before the order is known; a script asks for it."""
    words = el("p", "The test cases are being ranked.", class_="working mut", id="ranking-said")
    return box(TITLE, words, id="part-ranking", data_wanted=True)


def ranking_refused(words: str) -> Html:
    """The section where there is no order, with the reason."""
    return box(TITLE, problem(words), id="part-ranking")


def ranking_part(found: Ranking, listed: Listed, picture: Callable[[str], str | None]) -> Html:
    """The section; `picture` gives the address of a thumbnail by its SHA-256."""
    first = found.first[:OPENED]
    entries = [one.entry for one in first]
    link = listed(entries, 0) if entries else None
    open_first = (
        el("a", f"Open the first {len(first):,} in Curate", href=link, class_="btn s", id="open-first")
        if link and len(first) > 1
        else None
    )
    orders = {one.name: one for one in found.orders} if found.known >= FEW_KNOWN else {}
    pictures = [_picture(one, entries, listed, picture, found) for one in first[:PICTURES]]
    notes = [small(note) for note in found.notes]
    return el(
        "section",
        heading(TITLE, open_first, class_="card-head"),
        el("p", _sentence(orders, found), id="ranking-said"),
        el(
            "div",
            _table(found, listed),
            _curves(orders, found.known) if orders[OURS].all_faults else None,
            class_="eval-columns",
        )
        if orders
        else None,
        el("div", pictures, class_="first-ones"),
        el("div", notes) if notes else None,
        class_="card box",
        id="part-ranking",
    )


def _sentence(orders: dict[str, Order], found: Ranking) -> str:
    segments = found.kind == "segmentation"
    if not orders:
        return (
            f"Of fewer than {FEW_KNOWN} test cases that were read no order is shown to be better than another. These "
            f"are the likeliest to {'lose a class and be' if segments else 'be wrong and'} valid."
        )
    ours, chance = orders[OURS], orders[RANDOM]
    if not ours.all_faults:
        return "No valid fault is known among these test cases: no order is better than another."
    budget = next((one for one in BUDGETS[1:] if ours.images[one] >= FEW_IMAGES), BUDGETS[-1])
    images, faults = ours.images[budget], count_of(ours.all_faults, "different fault")
    return (
        f"The first {images:,} of {count_of(found.known, 'test case')} ({_share(budget)}) show "
        f"{ours.faults[budget]:,} of the {faults}; as many at random show {chance.faults[budget]:,}. A fault is "
        f"{'the class that is lost' if segments else 'a class, what is said instead,'} and the edit."
    )


def _table(found: Ranking, listed: Listed) -> Html:
    orders = {one.name: one for one in found.orders}
    images = orders[OURS].images
    heads: list[Child] = [
        el("th", "order", scope="col"),
        el("th", explained("APFD"), scope="col", class_="n"),
    ]
    heads += [
        el("th", f"in {_share(budget)}", el("small", count_of(images[budget], "image")), scope="col", class_="n")
        for budget in BUDGETS
    ]
    rows = []
    for name in _there(orders):
        one = orders[name]
        cells = []
        for budget in BUDGETS:
            number = f"{one.faults[budget]:,}"
            # The order is judged by the images whose truth is known: its first ones are the first of all where those
            # come before all others.
            there = name == OURS and found.known_first and 0 < images[budget] <= len(found.first)
            link = listed([case.entry for case in found.first[: images[budget]]], 0) if there else None
            what = f"in {_share(budget)}"
            cells.append(el("td", linked(number, link), class_="n", data_what=what))
        rows.append(
            el(
                "tr",
                el("th", el("i", class_=_LOOKS[name]), " ", explained(_WORDS[name]), scope="row"),
                el("td", "–" if one.apfd is None else f"{one.apfd:.3f}", class_="n", data_what="APFD"),
                cells,
                class_="ours" if name == OURS else None,
                data_order=name,
            )
        )
    return head_table(heads, rows, class_="orders stacks", id="orders")


def _curves(orders: dict[str, Order], images: int) -> Html:
    there = _there(orders)
    named = [(_LOOKS[name], orders[name]) for name in there]
    words = "; ".join(
        f"{_WORDS[name]}: {orders[name].found(images // 10):,} faults in the first tenth" for name in there
    )
    faults = count_of(named[0][1].all_faults, "different fault")
    ends = f"Across: the {count_of(images, 'test case')}, in order. Up: how many of the {faults} they show."
    return el("figure", found_plot(named, images, words), el("figcaption", ends, class_="mut small"))


def _there(orders: dict[str, Order]) -> list[str]:
    """The orders that there are, in the order of the legend."""
    return [name for name in _LOOKS if name in orders]


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"


def _picture(
    one: RankedCase, entries: Sequence[int], listed: Listed, picture: Callable[[str], str | None], found: Ranking
) -> Html:
    src, link = picture(one.image), listed(entries, one.entry)
    said = one.label
    if found.kind == "segmentation":
        said = f"loses {one.said}" if one.said else "loses no class" if one.right else one.edits or "no edit"
    elif one.said:
        said += ": right" if one.said == one.label else f" → {one.said}"
    elif one.right is not None:
        said += " → none of these"
    wrong = "to lose a class" if found.kind == "segmentation" else "wrong"
    told = f"{one.edits or 'no edit'}; likely {wrong}: {_share(one.wrong)}, likely valid: {_share(one.valid)}"
    inside: list[Child] = [
        el("img", src=src, width=72, height=72, alt="", loading="lazy") if src else None,
        el("small", said),
    ]
    if link is None:
        return el("span", inside, title=told)
    return el("a", inside, href=link, title=told, aria_label=f"{said}: {told}")
