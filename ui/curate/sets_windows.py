"""The windows of the page of a test set: each asks what a command needs, and says what becomes final. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from urllib.parse import urlencode

from core.test_sets import SPLITS, SetVersion, Split
from core.words import count_of
from services.test_sets.drafts import two_tasks
from services.test_sets.exports import FORMAT_TITLES
from services.test_sets.versions import ImageOfSet
from ui.curate.sets_words import FORMATS, REVIEW_WORDS, SHORT, SPLIT_WORDS, ShownVersion, splits_in_words
from ui.explore.parts import Size, acts, button, key, muted, picture, pill
from ui.markup import Child, Html, el, join
from ui.study.fields import area, number_input, select, text_input, tick, wrong
from ui.study.fields import field as labelled
from ui.study.words import image_url

_SMALL = 200
"""Images. A fifth of fewer is too few to tell how good a model is, so all are proposed for the test."""
_SHARES: Mapping[Split, int] = {"train": 80, "validation": 0, "test": 20}
"""Shares of a large set that are proposed, per cent."""
_SMALL_SHARES: Mapping[Split, int] = {"train": 0, "validation": 0, "test": 100}


def windows(shown: ShownVersion) -> Html:
    """All windows of the page, none of them open."""
    version = shown.version
    made: list[Child] = [el("dialog", id="large", class_="window", aria_label="One image", data_own=True)]
    if version.is_draft:
        made += [
            _split_window(shown),
            _release_window(shown),
            _delete_window(shown),
            _relabel_window(shown),
            _selection(),
        ]
    else:
        made += [_export_window(version), _leak_window(shown)]
    return join(*made)


def _window(
    name: str, title: str, *content: Child, submit: str, send: str, bad: bool = False, look: str = "window small"
) -> Html:
    form = el(
        "form",
        el("h2", title),
        join(*content),
        el("p", "", class_="wrong", data_problem="", role="alert"),
        el("div", class_="working", data_own=True, hidden=True),
        acts(
            el("button", submit, type="submit", class_="btn p bad" if bad else "btn p"),
            button("Not now", look="q", data_close_window=True),
        ),
        data_send=send,
        novalidate=True,
    )
    return el("dialog", form, id=name, class_=look)


def _split_window(shown: ShownVersion) -> Html:
    version = shown.version
    has_splits, small = any(version.splits), version.entries < _SMALL
    shares = [
        labelled(name, SPLIT_WORDS[name], number_input(name, share, "%", data_percent=True), {})
        for name, share in _shares(version).items()
    ]
    kept_whole = f"With fewer than {_SMALL} images it is best to keep all of them for the test."
    return _window(
        "split",
        "Split it",
        muted(
            "Images of one source stay together, and so do those of sources that look alike. Each split gets of every "
            "label alike, as far as that allows."
        ),
        muted(kept_whole) if small and not has_splits else None,
        el("div", shares, class_="fields"),
        el("p", "", class_="preview", data_own=True, data_preview=True, role="status"),
        labelled("seed", "Seed", number_input("seed", 0), {}, "Another one draws other splits."),
        tick(
            "keep",
            "Images whose source has a split keep it",
            True,
            "Only the others are parted." if has_splits else "None has one yet.",
        ),
        submit="Split it",
        send="split-test-set",
    )


def _shares(version: SetVersion) -> Mapping[Split, int]:
    """Shares that are proposed, per cent: those that the draft has, else by its size."""
    held = {split: version.splits.get(split, 0) for split in _SHARES}
    if total := sum(held.values()):
        return {split: round(100 * number / total) for split, number in held.items()}
    return _SMALL_SHARES if version.entries < _SMALL else _SHARES


def _release_window(shown: ShownVersion) -> Html:
    version, readiness = shown.version, shown.readiness
    assert readiness is not None
    splits = splits_in_words(version)
    unaccepted = next((one for one in readiness.obstacles if one.kind == "not accepted"), None)
    said = [
        f"Version {version.place} of “{version.set_name}” will hold {count_of(version.entries, 'image')}"
        + (f": {splits}." if splits else ", in no splits."),
        "Nothing in it changes after that: no image, label, split or mask, and neither name, note nor thresholds.",
        "Its id is a hash of all of these. The same release elsewhere gets the same id.",
    ]
    if readiness.tasks:
        said.insert(1, f"It will hold {two_tasks(readiness.tasks)}. Close this window to part them first.")
    return _window(
        "release",
        f"Release version {version.place}",
        el("ul", [el("li", words) for words in said]),
        labelled(
            "note",
            "Note",
            area("note", version.note, 3, maxlength=4000),
            {},
            "What a reader should know of this version.",
        ),
        labelled(
            "thresholds",
            "Thresholds",
            area(
                "thresholds",
                "\n".join(f"{name}={value:g}" for name, value in sorted(version.thresholds.items())),
                2,
                placeholder="label seen=0.25",
            ),
            {},
            "The figures by which its images were chosen: NAME=NUMBER, a line each. Where it has splits, the distance "
            "of near-duplicates is added.",
        ),
        tick(
            "unreviewed",
            f"Unreviewed too: with {count_of(len(unaccepted.images), 'image')} that nobody accepted, or that "
            "were rejected",
            False,
        )
        if unaccepted is not None
        else None,
        submit="Release it for good",
        send="release-test-set",
    )


def _delete_window(shown: ShownVersion) -> Html:
    only = len(shown.held.versions) == 1
    words = "Nothing of it was released, so the test set goes too." if only else "What was released stays."
    said = (
        f"The draft goes with its list of {count_of(shown.version.entries, 'image')}; the images stay in the "
        f"workspace. {words}"
    )
    return _window(
        "delete", "Delete the draft?", el("p", said), submit="Delete it", send="delete-test-set-draft", bad=True
    )


def _relabel_window(shown: ShownVersion) -> Html:
    known = sorted({count.label for count in shown.counts if count.label})
    options = el("datalist", [el("option", value=label) for label in known], id="known-labels")
    return _window(
        "relabel",
        "Another label",
        labelled(
            "label",
            "Label",
            text_input("label", "", maxlength=200, class_="wide", list="known-labels"),
            {},
            "Empty for none.",
        ),
        options,
        submit="Relabel",
        send="relabel-in-test-set",
    )


def _selection() -> Html:
    """What can be done with the images that are picked; shown as long as there are any."""
    splits = [("", "Split …"), *((split or "none", SPLIT_WORDS[split]) for split in SPLITS)]
    return el(
        "div",
        el("b", "", id="picked", role="status"),
        button("All of this filter", look="s q", data_pick_found=True, hidden=True, id="pick-found"),
        select("set-split", splits, "", aria_label="Put them into a split"),
        button(["Label", key("L")], look="s", data_relabel=True),
        button(["Take out", key("Del")], look="s", data_remove=True),
        button("None", look="s q", data_pick_none=True),
        el("span", "", class_="wrong", data_problem="images", role="alert"),
        class_="card selection",
        id="selection",
        hidden=True,
        data_own=True,
    )


def _export_window(version: SetVersion) -> Html:
    choices = [
        el(
            "label",
            el("input", type="radio", name="layout", value=name, checked=number == 0),
            el(
                "span",
                el("b", FORMAT_TITLES[name]),
                el("small", words.loads, class_="mut"),
                el("code", words.line),
            ),
            class_="template",
        )
        for number, (name, words) in enumerate(FORMATS.items())
    ]
    return _window(
        "export",
        f"Export version {version.place}",
        muted(
            "One .zip with a data set card, Croissant, the lineage of every image, and a manifest. The same version "
            "gives the same bytes. SET below is the unpacked folder."
        ),
        el("div", choices, class_="layouts"),
        wrong("layout", {}),
        submit="Make the file",
        send="export",
        look="window",
    )


def _leak_window(shown: ShownVersion) -> Html:
    version = shown.version
    named = version.words if version.words.isprintable() else version.id
    line = f"python -m services.test_sets --workspace {shlex.quote(shown.workspace)} leaks {shlex.quote(named)} FOLDER"
    return el(
        "dialog",
        el("h2", "Was a model trained on it?"),
        muted(
            "This line compares every image below a FOLDER of training images with those of this version and with "
            "their sources: the same pixels, or alike. It is run on the machine of the studio: no page takes a folder."
        ),
        el("pre", line, id="leak-line"),
        acts(button("Copy", look="p", data_copy_from="#leak-line"), button("Close", look="q", data_close_window=True)),
        id="leaks",
        class_="window small",
    )


def large_window(found: ImageOfSet) -> Html:
    """One image beside its source and its mask, with what is known of it."""
    entry, known = found.shown.entry, found.known
    pictures = [_figure(image_url(entry.image), found.sizes.get(entry.image), "image")]
    if entry.source != entry.image:
        pictures.append(_figure(image_url(entry.source), found.sizes.get(entry.source), "source"))
    if entry.mask is not None:
        pictures.append(_figure(f"/masks/{entry.mask}.png", found.sizes.get(entry.mask), "mask"))
    words, tone = REVIEW_WORDS[found.shown.review]
    facts = [("label", entry.label or "none"), ("split", SPLIT_WORDS[entry.split])]
    if known is not None:
        edits = ", ".join(f"{edit.keyword} → {edit.alternative}" for edit in known.edits)
        facts += [("edits", edits), ("test case", str(entry.test_case))]
    if entry.mask_classes:
        facts.append(("classes", ", ".join(entry.mask_classes[number] for number in sorted(entry.mask_classes))))
    facts += [(words, str(entry.origin.get(name, ""))) for name, words in (("import", "import"), ("name", "called"))]
    caption = known.new_caption if known is not None else str(entry.origin.get("new_caption", ""))
    explore = f"/?{urlencode({'run': known.run, 'image': entry.test_case})}" if known is not None else ""
    return el(
        "div",
        el("div", pictures, class_="pair"),
        el(
            "div",
            pill(words, tone) if words else pill("source", "acc") if entry.role == "source" else None,
            [pill([name, " ", el("b", value)]) for name, value in facts if value],
            class_="chips",
        ),
        muted(caption) if caption else None,
        acts(
            button("Before", look="s", data_step="-1"),
            button("Next", look="s", data_step="1"),
            el("a", "Open in Explore", href=explore, class_="btn s") if explore else None,
            el("code", entry.image[:SHORT], class_="mut small", title=entry.image),
            el("span", class_="grow"),
            button("Close", look="s q", data_close_window=True),
        ),
        class_="item-window",
    )


def _figure(address: str, size: Size | None, words: str) -> Html:
    shown = picture(address, size, alt=words) if size is not None else el("img", src=address, alt=words)
    return el("figure", shown, el("figcaption", words))
