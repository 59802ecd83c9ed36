"""How a mask is shown: its colours over the picture, what each colour is, and how to give another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.masks import classes_text, colour
from services.runs.samples import Sample, known_classes, sample_of
from services.runs.state import RunState
from ui.explore.large import image_url, overlay_url
from ui.explore.parts import button, icon, notice, picture, press
from ui.markup import Child, Html, el


def legend(classes: Mapping[int, str], protected: Sequence[str] = ()) -> Html:
    """What each colour of a mask is; protected classes are told apart by a lock."""
    kept = {name.casefold() for name in protected}
    items = [
        el(
            "span",
            el("i", style="background:rgb({},{},{})".format(*colour(number)), class_="swatch"),
            name,
            icon("lock") if name.casefold() in kept else None,
            class_=f"class{' kept' if name.casefold() in kept else ''}",
            title=f"class {number}{', protected' if name.casefold() in kept else ''}",
        )
        for number, name in sorted(classes.items())
    ]
    return el("span", items, class_="legend")


def mask_row(state: RunState, samples: tuple[Sample, ...]) -> Html:
    """The mask in the card of the source; how to give one where there is none."""
    run = state.run
    sample = sample_of(samples, run)
    offer = None
    if run.mask_sha is None and sample is not None and sample.mask is not None:
        offer = button("Take the sample's mask", "mask-sample", "s", id="mask-sample")
    parts: list[Child] = [el("span", "mask", class_="mut")]
    if run.mask_sha is not None:
        parts += [
            press(
                picture(image_url(run.source_sha), state.source_size, alt=""),
                el("img", src=overlay_url(run.mask_sha), alt="The mask over the source image", class_="over"),
                class_="overlay",
                data_key="mask-overlay",
                data_larger=True,
                title="The mask over the source image: larger or smaller",
            ),
            el("span", legend(run.mask_classes, run.task.protected), class_="wide"),
        ]
    else:
        parts.append(el("span", "None yet: results are then not judged by their masks.", class_="mut small wide"))
    parts.append(
        el(
            "span",
            offer,
            _choose("Replace" if run.mask_sha is not None else "Give a mask"),
            button("Take away", "delete-mask", "s q", id="delete-mask") if run.mask_sha is not None else None,
            class_="acts",
        )
    )
    shown = run.mask_classes if run.mask_sha is not None else known_classes(samples)
    parts.append(_classes(shown, held=run.mask_sha is not None))
    parts.append(el("div", id="mask-problem", data_own=True, role="alert"))
    missing = _missing(run.mask_classes, run.task.protected) if run.mask_sha is not None else ()
    if missing:
        named = ", ".join(f"“{name}”" for name in missing)
        words = f"The mask has no class {named}: use the names of its classes in the task, or name them anew."
        parts.append(notice(words, "mask-missing"))
    return el("div", parts, class_="mask", data_mask_of=run.id, role="group", aria_label="Mask")


def _choose(word: str) -> Html:
    picker = el(
        "input", type="file", accept="image/png", data_file="mask", id="mask-file", aria_label="A mask, as PNG file"
    )
    return el("label", word, picker, class_="btn s file")


def _classes(classes: Mapping[int, str], held: bool) -> Html:
    field = el(
        "textarea",
        classes_text(classes),
        rows=1,
        id="mask-classes",
        name="classes",
        data_do="mask-classes" if held else None,
        placeholder="0 sky, 1 road, 2 car",
        maxlength=4000,
        autocomplete="off",
        aria_label="The number and the name of each class, with commas",
    )
    hint = "The number and the name of each class. A mask is a PNG whose pixels are these numbers, grey or palette."
    return el(
        "details",
        el("summary", "Classes"),
        field,
        el("small", hint, class_="mut"),
        class_="classes",
        data_key="mask-class-names",
    )


def _missing(classes: Mapping[int, str], protected: Sequence[str]) -> tuple[str, ...]:
    there = {name.casefold() for name in classes.values()}
    return tuple(name for name in protected if name.casefold() not in there)
