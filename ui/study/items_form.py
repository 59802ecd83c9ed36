"""The part of the set-up where images come in: drawn by filter or brought as files, shown, marked and removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from core.image_filter import LONGEST_ADDRESS
from core.studies import LONGEST_WHY, Item, Question, Rules, Study, asked, wording
from core.words import count_of
from services.studies.control_items import MADE
from services.studies.item_filter import model_name
from ui.explore.parts import Size, acts, button, captioned, head_table, more_line, muted, pill, press, small
from ui.markup import Child, Html, el
from ui.study.fields import Problems, card, number_input, select, text_input, wrong
from ui.study.words import image_url

SHOWN = 48
"""Items that are shown at once."""
HOWS = (
    ("random", "at random"),
    ("label", "equally many of each class"),
    ("edit type", "equally many of each edit type"),
)
REVIEWED = (
    ("", "all test cases"),
    ("review=accepted", "accepted ones only"),
    ("-review=rejected", "all but the rejected"),
)
KINDS = (("", "any task"), ("kind=classification", "classification"), ("kind=segmentation", "segmentation"))
VERDICTS = (
    ("", "whatever it says"),
    ("newly wrong,wrong", "got wrong"),
    ("newly wrong", "got wrong, but the source image right"),
)
"""Standings of the model under test."""
MOST_READ = "the one that has read most of them"
ANY_RECIPE = "any, but no reconstructions"

MADE_ONCE = (
    "The studio made this item of a source image. Once you remove it or say how it is used, it is not made again in "
    "this study; another one takes its place, if there is one."
)
BROUGHT = (
    "A zip of images, with a CSV in it if you like: one line an image, with the column image, and, where known, "
    "source, label, classes, edit_types, caption, counterfactual, kind (item, control, quiz or training), group, one "
    "column expected.NAME for the right answer to the question NAME, and why: the reason that training items tell."
)


Recipes = Sequence[tuple[str, str]]
"""Names of recipes, with their titles."""


def items_card(
    study: Study, items: Sequence[Item], models: Sequence[str], recipes: Recipes, kind: str, problems: Problems
) -> Html:
    """Drawing by filter, files, and what is in the study already."""
    return card(
        2,
        "Images",
        draw_form(models, recipes, kind),
        files_form(),
        wrong("items", problems),
        small("", id="items-said", role="status"),
        items_shown(items),
        lead="Every image is judged on its own. Draw them by a rule, not by hand: then the result speaks for all that "
        "the rule could have drawn.",
    )


def draw_form(models: Sequence[str], recipes: Recipes, kind: str, button_words: str = "Add them") -> Html:
    """The draw: a sentence with gaps, which write one filter. The number of images that fit is said below it."""
    own: dict[str, str | int | bool | None] = {"data_no_save": True, "data_draw": True}
    count = number_input("draw.count", 100, "", aria_label="How many", **own)
    model = select(
        "draw.model", [("", MOST_READ), *((key, model_name(key)) for key in models)], "", aria_label="Model", **own
    )
    recipe = select(
        "draw.recipe",
        [("", ANY_RECIPE), *((urlencode({"recipe": name}), title) for name, title in recipes)],
        "",
        aria_label="Recipe",
        **own,
    )
    group = text_input(
        "draw.group",
        "",
        placeholder="named for you",
        maxlength=60,
        aria_label="Name of the sample",
        **own,
    )
    others = text_input(
        "draw.filter",
        "",
        placeholder="an address of the gallery",
        maxlength=LONGEST_ADDRESS,
        aria_label="Filter of the gallery",
        **own,
    )
    task = f"kind={kind}" if kind in ("classification", "segmentation") else ""
    gaps: tuple[tuple[Child, ...], ...] = (
        ("Draw ", count, " images"),
        (select("draw.how", HOWS, "random", aria_label="How they are drawn", **own),),
        ("from ", select("draw.reviewed", REVIEWED, "", aria_label="Reviewed", **own)),
        ("of ", select("draw.kind", KINDS, task, aria_label="Task", **own)),
        ("made by the recipe ", recipe) if recipes else (),
        ("that the model under test ", select("draw.verdict", VERDICTS, "", aria_label="Verdict of the model", **own)),
        ("which is ", model) if models else (),
        ("and that fit the filter ", others),
        ("as the sample ", group),
    )
    return el(
        "div",
        el("div", [el("span", gap, class_="gap") for gap in gaps if gap], class_="sentence"),
        el(
            "div",
            button(button_words, look="p s", data_draw_now=True, id="draw-now"),
            el("span", "", class_="mut", id="draw-note", role="status"),
            class_="line-end",
        ),
        el("p", "", class_="wrong", data_problem="draw", role="alert"),
        class_="draw",
        id="draw",
    )


def files_form(study: Study | None = None) -> Html:
    """Images that were made elsewhere; for a study that has started, which is named."""
    return el(
        "details",
        el("summary", "Or bring images that were made elsewhere"),
        small(BROUGHT, " They come in at once, and cannot be taken out again." if study is not None else None),
        el(
            "input",
            type="file",
            id="bring",
            accept=".zip,.csv,.png,.jpg,.jpeg,.webp",
            data_no_save=True,
            aria_label="File with images",
        ),
        el("p", "", class_="wrong", data_problem="bring", role="alert"),
        muted("", id="bring-note", role="status"),
        el("div", button("Add them", look="p s", id="bring-go"), class_="field", id="bring-ready", hidden=True)
        if study is not None
        else None,
        data_keep="files",
        class_="more-line files",
    )


def items_shown(items: Sequence[Item]) -> Html:
    """What is to be judged, by sample, and as pictures."""
    plain = [item for item in items if item.kind == "item"]
    if not plain:
        return el("div", el("p", "No image yet.", class_="empty"), id="part-items", data_items=0)
    groups = Counter(item.group for item in plain)
    lines = [_group(group, [item for item in plain if item.group == group]) for group in groups]
    head = ("sample", "images", "classes", "model under test", "")
    return el(
        "div",
        el("div", head_table(head, lines, class_="samples-table"), class_="scroll"),
        thumbs(plain, 0),
        id="part-items",
        data_items=len(plain),
    )


def thumbs(items: Sequence[Item], start: int) -> Html:
    """Pictures from the `start`-th on, and a button for those after them."""
    shown = items[start : start + SHOWN]
    left = len(items) - start - len(shown)
    more = button(f"Show more ({left:,})", look="s", data_more_items=start + len(shown)) if left > 0 else None
    return el("div", [thumb(item) for item in shown], more, class_="item-grid")


def thumb(item: Item) -> Html:
    """A picture that opens with what can be done with it."""
    under: Child = item.label or ", ".join(item.edit_types) or f"image {item.id}"
    if item.kind != "item":
        under = ", ".join(item.expected.values()) + (f" · {item.label}" if item.label else "")
    return press(
        el("img", src=image_url(item.image_sha), alt="", loading="lazy"),
        el("span", under),
        class_="item-thumb",
        data_item=item.id,
        title=item.counterfactual or item.caption or item.group,
    )


def _group(group: str, items: Sequence[Item]) -> Html:
    labels = Counter(
        name for item in items for name in ((item.label,) if item.label else item.classes or ("no label",))
    )
    most = [f"{name} {count}" for name, count in labels.most_common(5)]
    summary = ", ".join(most) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
    wrong_ones = sum(item.model_right is False for item in items)
    known = sum(item.model_right is not None for item in items)
    model = f"wrong on {wrong_ones} of {known}" if known else "not read"
    return el(
        "tr",
        el("td", el("b", group or "without a name")),
        el("td", f"{len(items):,}"),
        el("td", summary),
        el("td", model, class_="mut"),
        el("td", button("Remove", look="s q", data_remove_group=group)),
    )


def item_window(item: Item, rules: Rules, draft: bool, sizes: Mapping[str, Size]) -> Html:
    """One item, large, with the answers that may be known and what can be done with it."""
    expected = item.expected
    questions = asked(rules.questions, item, expected)
    fields = [_known(question, item, expected) for question in questions if question.answers()]
    facts = [
        ("sample", item.group),
        ("label", item.label),
        ("shows", ", ".join(item.classes)),
        ("edits", ", ".join(item.edit_types)),
        ("model under test", "" if item.model_right is None else ("right" if item.model_right else "wrong")),
        ("made of", str(item.origin.get(MADE, ""))),
    ]
    known: Child = None
    if draft and fields:
        known = el(
            "div",
            el("h3", "If you know the right answer, it can be a control, a quiz or a training item"),
            fields,
            el(
                "label",
                el("span", "Why it is right, told after the answer in the training"),
                text_input("why", item.why, maxlength=LONGEST_WHY, data_no_save=True),
                class_="known-line",
            ),
            wrong("expected", {}),
            acts(
                button("Use as control item", look="s", data_known="control", data_of=item.id),
                button("Use as quiz item", look="s", data_known="quiz", data_of=item.id),
                button("Use as training item", look="s", data_known="training", data_of=item.id),
                button("Judge it like the others", look="s", data_known="item", data_of=item.id)
                if item.kind != "item"
                else None,
            ),
            class_="known",
        )
    pictures = [captioned(image_url(item.image_sha), sizes[item.image_sha], "image", "The image")]
    if item.source_sha and item.source_sha != item.image_sha:
        pictures.append(captioned(image_url(item.source_sha), sizes[item.source_sha], "source", "The source image"))
    return el(
        "div",
        el("div", pictures, class_="pair"),
        el("div", [pill([name, " ", el("b", value)]) for name, value in facts if value], class_="chips"),
        muted(item.counterfactual or item.caption) if item.counterfactual or item.caption else None,
        known,
        small(MADE_ONCE) if draft and MADE in item.origin else None,
        acts(button("Remove from the study", look="s", data_remove_item=item.id)) if draft else None,
        class_="item-window",
    )


def _known(question: Question, item: Item, expected: Mapping[str, str]) -> Html:
    options = [("", "not known"), *((answer, answer) for answer in question.answers())]
    return el(
        "label",
        el("span", wording(question, item)),
        select(f"expected.{question.id}", options, expected.get(question.id, ""), data_no_save=True),
        class_="known-line",
    )


def training_shown(rules: Rules, items: Sequence[Item]) -> Html:
    """The training items there are; nothing where none are asked for."""
    return given_shown(items, "training", "training") if rules.training else el("div", id="part-training")


def given_shown(items: Sequence[Item], kind: str, name: str) -> Html:
    """The items of a kind with a known answer that there are."""
    there = [item for item in items if item.kind == kind]
    if not there:
        return el("div", el("p", f"No {name} item yet.", class_="empty"), id=f"part-{kind}")
    made = Counter(str(item.origin[MADE]) for item in there if MADE in item.origin)
    given = len(there) - sum(made.values())
    summary = [f"{count} made of the {_MADE_OF.get(what, what)}" for what, count in sorted(made.items())]
    if given:
        summary.append(f"{given} given")
    count = count_of(len(there), f"{name} item")
    return el(
        "div",
        el("p", el("b", count), ": ", ", ".join(summary), "."),
        more_line(
            "Show them", el("div", [thumb(item) for item in there], class_="item-grid"), data_keep=f"{kind}-shown"
        ),
        id=f"part-{kind}",
    )


_MADE_OF = {
    "source image": "source image as it stands",
    "wrong label": "source image with a wrong label",
    "another scene": "source image beside another scene",
}
