"""One result as large as it can be, looked at in one of several ways: beside the source, as edges, as a difference."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.types import Reading
from pipeline.masks import colour
from storage.types import StoredTestCase
from ui.readings import Seen
from ui.run_state import RunState
from ui.views.markup import Child, Html, el
from ui.views.parts import icon
from ui.views.text_stages import caption_text

MODES: dict[str, tuple[str, str]] = {
    "result": ("Result", "The generated image"),
    "slider": ("Slider", "Source and generated image, with a slider between them"),
    "pair": ("Side by side", "Source and generated image side by side"),
    "source": ("Source", "The source image"),
    "edges": ("Control", "The control image that it was drawn on"),
    "overlay": ("Overlay", "The lines of the control image laid over the generated image"),
    "difference": ("Difference", "What changed: black is the same in both"),
    "mask": ("Mask", "The mask laid over the generated image"),
    "seen": (
        "Class map",
        "What the model under test takes every pixel for, in the source and in the generated image",
    ),
}
"""Every way to look at a result: what its tab says, and what it shows. The keys 1 to 9 stand for them in this order."""


@dataclass(frozen=True)
class View:
    """What this page looks at; it lives in the browser."""

    case: int | None = None
    """The test case that was picked; None for the newest."""
    mode: str = "result"


def image_url(sha: str) -> str:
    """Where an image of the workspace is served."""
    return f"images/{sha}.png"


def overlay_url(sha: str) -> str:
    """Where a mask of the workspace is served as colours to lay over its image."""
    return f"masks/{sha}.png"


def edit_words(case: StoredTestCase) -> str:
    """What was changed in a test case, in a few words."""
    return ", ".join(edit.alternative for edit in case.counterfactual.edits) or "by hand"


def usable_mode(mode: str, state: RunState, case: StoredTestCase, seen: Seen) -> str:
    """The mode, or "result" where this test case has nothing to show for it."""
    return mode if mode in _usable(state, case, seen) else "result"


def mode_bar(state: RunState, case: StoredTestCase, seen: Seen, mode: str) -> Html:
    """A tab for each mode, each with its key, and the button for the full window."""
    usable = _usable(state, case, seen)
    tabs = [
        el(
            "button",
            name,
            type="button",
            class_=f"tab{' on' if value == mode else ''}",
            data_view_mode=value,
            data_digit=number,
            id=f"tile-{value}",
            title=f"{words} ({number})",
            aria_pressed="true" if value == mode else "false",
        )
        for number, (value, (name, words)) in enumerate(MODES.items(), 1)
        if value in usable
    ]
    tools = [
        _tool("zoom", "One to one", "Every pixel of the image as one pixel of the screen, or fitted (Z)", "1:1"),
        _tool("full", "Full window", "The picture as large as the window (F)", icon("full")),
    ]
    return el("div", el("div", tabs, class_="tabs"), el("div", tools, class_="tools"), class_="mode-bar")


def source_picture(state: RunState) -> Html:
    """The source image, while there is no result."""
    words = f"Source image: {caption_text(state) or state.run.name}"
    return el(
        "figure",
        el("img", src=image_url(state.run.source_sha), alt=words, id="big-source"),
        el("figcaption", el("span", "source")),
        class_="large",
    )


def large_picture(state: RunState, case: StoredTestCase, seen: Seen, mode: str) -> Html:
    """The picture in one mode."""
    source, result, control = (image_url(sha) for sha in (state.run.source_sha, case.image_sha, case.control_sha))
    label, words = edit_words(case), f"Generated image: {case.counterfactual.text}"
    made = el("img", src=result, alt=words, id=f"big-{mode}")
    match mode:
        case "slider":
            wipe = el(
                "input",
                type="range",
                min=0,
                max=100,
                value=50,
                class_="wipe",
                aria_label="How much of the source is shown",
                data_own=True,
            )
            over = el("img", src=source, alt="Source image", class_="over")
            return _figure(
                mode, el("img", src=result, alt=words), over, wipe, el("i", class_="line"), captions=("source", label)
            )
        case "pair":
            return _figure(mode, el("img", src=source, alt="Source image"), made, captions=("source", label))
        case "source":
            return _figure(mode, el("img", src=source, alt="Source image", id="big-source"), captions=("source",))
        case "edges":
            alt = "Control image: what was kept of the source"
            return _figure(mode, el("img", src=control, alt=alt, id="big-edges"), captions=("control image",))
        case "overlay":
            trace = el("i", class_="trace", style=f"-webkit-mask-image:url('{control}');mask-image:url('{control}')")
            return _figure(mode, made, trace, captions=(f"{label}, with the lines it was drawn on",))
        case "difference":
            over = el("img", src=source, alt="", class_="over")
            return _figure(mode, made, over, captions=("difference",))
        case "mask" if state.run.mask_sha is not None:
            over = el("img", src=overlay_url(state.run.mask_sha), alt="The mask", class_="over")
            return _figure(
                mode, made, over, captions=(f"{label}, with the mask",), below=_legend(state.run.mask_classes)
            )
        case "seen":
            return _maps(case, seen)
    return _figure("result", made, captions=(label,))


def _usable(state: RunState, case: StoredTestCase, seen: Seen) -> tuple[str, ...]:
    found = seen.results.get(case.id)
    mapped = seen.source is not None and bool(seen.source.class_map) and found is not None and bool(found.class_map)
    missing = {"mask"} if state.run.mask_sha is None else set()
    return tuple(mode for mode in MODES if mode not in missing | (set() if mapped else {"seen"}))


def _figure(mode: str, *inside: Child, captions: tuple[str, ...], below: Child = None) -> Html:
    shown = el("figcaption", [el("span", words) for words in captions])
    picture = el("div", inside, shown, class_="canvas")
    return el(
        "figure",
        picture,
        below,
        class_=f"large look-{mode}",
        data_key=f"large-{mode}",
        id=f"big-{mode}" if mode in ("slider", "seen", "pair") else None,
    )


def _maps(case: StoredTestCase, seen: Seen) -> Html:
    before, after = seen.source, seen.results.get(case.id)
    assert before is not None and after is not None
    pictures = [
        el("img", src=f"data:image/png;base64,{found.class_map}", alt=words, class_="pixels")
        for found, words in (
            (before, "The source image as the model under test sees it"),
            (after, "The generated image as the model under test sees it"),
        )
    ]
    captions = ("source, as the model sees it", f"{edit_words(case)}, as the model sees it")
    return _figure("seen", pictures, captions=captions, below=_legend(_classes_in(before, after)))


def _classes_in(*readings: Reading) -> dict[int, str]:
    """The classes that a map may hold; only as many as a legend can name."""
    names = dict(enumerate(readings[0].classes))
    return names if len(names) <= 24 else {}


def _legend(classes: object) -> Child:
    if not isinstance(classes, dict) or not classes:
        return None
    marks = [
        el("span", el("i", style=f"background:rgb{colour(number)}"), name, class_="mark")
        for number, name in sorted(classes.items())
    ]
    return el("div", marks, class_="legend")


def _tool(name: str, label: str, title: str, shown: Child) -> Html:
    return el(
        "button",
        shown,
        type="button",
        class_="btn s q tool",
        id=f"tool-{name}",
        data_tool=name,
        aria_label=label,
        title=title,
    )
