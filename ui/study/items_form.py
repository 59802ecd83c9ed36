"""The part of the set-up where images come in: drawn by filter or brought as files, shown, marked and removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from core.image_filter import LONGEST_ADDRESS
from core.studies import LONGEST_WHY, Item, Rules, Study, asked, wording
from services.studies.control_items import MADE
from services.studies.item_filter import model_name
from ui.explore.parts import Size
from ui.markup import Html
from ui.templating import render

SHOWN = 48
"""Items that are shown at once."""

Recipes = Sequence[tuple[str, str]]
"""Names of recipes, with their titles."""


def draw_form(models: Sequence[str], recipes: Recipes, kind: str, button_words: str = "Add them") -> Html:
    """The draw: a sentence with gaps, which write one filter. The number of images that fit is said below it."""
    return render(
        "study/draw.html",
        models=[(key, model_name(key)) for key in models],
        recipes=[(urlencode({"recipe": name}), title) for name, title in recipes],
        task=f"kind={kind}" if kind in ("classification", "segmentation") else "",
        button_words=button_words,
        longest_address=LONGEST_ADDRESS,
    )


def files_form(study: Study | None = None) -> Html:
    """Images that were made elsewhere; for a study that has started, which is named."""
    return render("study/files.html", started=study is not None)


def items_shown(items: Sequence[Item]) -> Html:
    """What is to be judged, by sample, and as pictures."""
    plain = [item for item in items if item.kind == "item"]
    groups: dict[str, list[Item]] = {}
    for item in plain:
        groups.setdefault(item.group, []).append(item)
    samples = [(group, len(found), _classes(found), _model(found)) for group, found in groups.items()]
    return render("study/items.html", items=plain, samples=samples, thumbs=thumbs(plain, 0))


def thumbs(items: Sequence[Item], start: int) -> Html:
    """Pictures from the `start`-th on, and a button for those after them."""
    end = start + SHOWN
    return render("study/thumbs.html", items=items[start:end], end=end, left=len(items) - end)


def _classes(items: Sequence[Item]) -> str:
    """The classes that most of the items have."""
    labels = Counter(
        name for item in items for name in ((item.label,) if item.label else item.classes or ("no label",))
    )
    most = ", ".join(f"{name} {count}" for name, count in labels.most_common(5))
    return most + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def _model(items: Sequence[Item]) -> str:
    """On how many of the items the model under test is wrong."""
    known = sum(item.model_right is not None for item in items)
    return f"wrong on {sum(item.model_right is False for item in items)} of {known}" if known else "not read"


def item_window(item: Item, rules: Rules, draft: bool, sizes: Mapping[str, Size]) -> Html:
    """One item, large, with the answers that may be known and what can be done with it."""
    facts = [
        ("sample", item.group),
        ("label", item.label),
        ("shows", ", ".join(item.classes)),
        ("edits", ", ".join(item.edit_types)),
        ("model under test", "" if item.model_right is None else ("right" if item.model_right else "wrong")),
        ("made of", str(item.origin.get(MADE, ""))),
    ]
    questions = [one for one in asked(rules.questions, item, item.expected) if one.answers()] if draft else []
    return render(
        "study/item_window.html",
        item=item,
        draft=draft,
        sizes=sizes,
        facts=[(name, value) for name, value in facts if value],
        questions=[(question, wording(question, item)) for question in questions],
        longest_why=LONGEST_WHY,
        made=MADE in item.origin,
    )


def given_shown(items: Sequence[Item], kind: str) -> Html:
    """The items of a kind with a known answer that there are."""
    there = [item for item in items if item.kind == kind]
    made = Counter(str(item.origin[MADE]) for item in there if MADE in item.origin)
    given = len(there) - sum(made.values())
    summary = [f"{count} made of the {_MADE_OF.get(what, what)}" for what, count in sorted(made.items())]
    if given:
        summary.append(f"{given} given")
    return render("study/given.html", kind=kind, items=there, summary=", ".join(summary))


_MADE_OF = {
    "source image": "source image as it stands",
    "wrong label": "source image with a wrong label",
    "another scene": "source image beside another scene",
}
