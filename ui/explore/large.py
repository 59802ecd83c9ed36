"""One result as large as possible. A mode shows it beside the source, as edges, or as a difference, for example."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.data_files import DataTable
from core.lineage import Artifact
from core.masks import colour
from core.predictions import coloured_map
from core.stored_runs import StoredTestCase
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from services.runs.words import artifacts_of, edit_words
from ui.addresses import in_browser
from ui.explore.parts import image_url, mask_url, picture
from ui.markup import Html, el
from ui.templating import render


@dataclass(frozen=True)
class Mode:
    """Way to show a result in the large picture, such as the difference from its source."""

    title: str
    words: str
    artifact: str = ""
    """Name of the artifact (a picture stored with the result) that the mode shows, or ""."""


FIRST, LAST = DataTable(__file__, Mode, "first"), DataTable(__file__, Mode, "last")


def modes(artifacts: Iterable[Artifact]) -> dict[str, Mode]:
    """Return the modes for a result with these artifacts, in the order of their tabs and number keys."""
    of_artifacts: dict[str, Mode] = {}
    for artifact in artifacts:
        value = re.sub(r"\W+", "-", artifact.name)
        of_artifacts[f"made-{value}"] = Mode(artifact.title, artifact.words, artifact.name)
        if artifact.lines:
            words = f"The lines of the {artifact.name} laid over the generated image"
            of_artifacts[f"over-{value}"] = Mode("Overlay", words, artifact.name)
    return {**FIRST, **of_artifacts, **LAST}


@dataclass(frozen=True)
class View:
    """State of a page that the browser keeps: selected test case, mode, and open parts."""

    case: int | None = None
    """Id of the selected test case, or None for the newest."""
    mode: str = "result"
    only: str = ""
    follow: bool = False
    """True to show the image being drawn, if there is one, instead of the selected test case."""
    edited: bool = False
    """True while the list of runs shows how many values people changed."""


def usable_mode(mode: str, state: RunState, case: StoredTestCase, comparison: ModelComparison) -> str:
    """Return `mode`, or "result" if this test case has nothing to show in that mode."""
    return mode if mode in _usable(state, case, comparison) else "result"


def mode_bar(state: RunState, case: StoredTestCase, comparison: ModelComparison, mode: str) -> Html:
    """Return a tab for each mode, with its key, and buttons for the source, the size and the full window."""
    usable = _usable(state, case, comparison)
    return render("explore/modes.html", modes=modes(artifacts_of(case)), usable=usable, mode=mode)


def source_picture(state: RunState) -> Html:
    """Return the source image, as large as the window allows. It is shown until there is a result."""
    width, height = state.source_size
    words = f"Source image: {state.caption or state.run.name}"
    return render("explore/source_picture.html", state=state, words=words, aspect=f"{width / height:.4f}")


def large_picture(state: RunState, case: StoredTestCase, comparison: ModelComparison, mode: str) -> Html:
    """Return the result in one mode, beside its source. Both keep their places in every mode."""
    run, result = state.run, image_url(case.image_sha)
    label, words = edit_words(case), f"Generated image: {case.lineage.counterfactual.text}"
    # The key makes the page replace the picture. Otherwise the last picture would remain until this one has loaded.
    drawn = picture(result, case.image_size, alt=words, id=f"big-{mode}", data_key=f"big-{case.image_sha}")
    source, size = image_url(run.source_sha), state.source_size
    match mode:
        case "slider":
            over = picture(source, size, alt="Source image", class_="over")
            below = picture(result, case.image_size, alt=words, data_key=f"big-{case.image_sha}")
            return beside_source(state, mode, (below, over, render("explore/wipe.html")), ("source", label))
        case "source":
            shown = picture(source, size, alt="Source image", id="big-source")
            return beside_source(state, mode, (shown,), ("source",))
        case "difference":
            return beside_source(state, mode, (drawn, picture(source, size, alt="", class_="over")), ("difference",))
        case "mask" if run.mask_sha is not None:
            mask = mask_url(run.mask_sha)
            over = picture(mask, size, alt="The mask", class_="over")
            both = (picture(source, size, alt=""), picture(mask, size, alt="", class_="over"))
            words = f"{label}, with the mask"
            return beside_source(state, mode, (drawn, over), (words,), run.mask_classes, both, "source, with the mask")
        case "seen":
            return _maps(state, case, comparison)
    known = modes(artifacts_of(case)).get(mode, Mode("", ""))
    if known.artifact in case.artifacts:
        artifact = image_url(case.artifacts[known.artifact].sha)
        if mode.startswith("made-"):
            shown = picture(artifact, case.image_size, alt=known.words, id=f"big-{mode}", data_key=artifact)
            return beside_source(state, mode, (shown,), (known.artifact,))
        url = f"url('{in_browser(artifact)}')"
        trace = el("i", class_="trace", style=f"-webkit-mask-image:{url};mask-image:{url}")
        return beside_source(state, mode, (drawn, trace), (f"{label}, with the lines it was drawn on",))
    return beside_source(state, "result", (drawn,), (label,))


def _usable(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> tuple[str, ...]:
    predictions = (comparison.source, comparison.results.get(case.id))
    mapped = all(prediction is not None and prediction.class_map for prediction in predictions)
    missing = ({"mask"} if state.run.mask_sha is None else set()) | (set() if mapped else {"seen"})
    return tuple(
        mode
        for mode, known in modes(artifacts_of(case)).items()
        if mode not in missing and (not known.artifact or known.artifact in case.artifacts)
    )


def beside_source(
    state: RunState,
    mode: str,
    shown: tuple[Html, ...],
    captions: tuple[str, ...],
    classes: Mapping[int, str] | None = None,
    before: tuple[Html, ...] = (),
    before_words: str = "source",
    looks: str = "",
) -> Html:
    """Return two panes of the same size: the source (or `before` instead) and `shown`."""
    return render(
        "explore/large.html",
        mode=mode,
        state=state,
        before=before,
        before_words=before_words,
        shown=shown,
        captions=captions,
        looks=looks,
        legend=[(name, str(colour(number))) for number, name in sorted((classes or {}).items())],
    )


def _maps(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    before, after = comparison.source, comparison.results.get(case.id)
    assert before is not None and after is not None
    left = _coloured(before.class_map, "The source image as the model under test sees it")
    right = _coloured(after.class_map, "The generated image as the model under test sees it")
    captions = (f"{edit_words(case)}, as the model sees it",)
    # A legend has no room for more than a few dozen classes.
    classes = dict(enumerate(before.classes)) if len(before.classes) <= 24 else {}
    return beside_source(state, "seen", (right,), captions, classes, (left,), "source, as the model sees it")


def _coloured(class_map: bytes, words: str) -> Html:
    src = f"data:image/png;base64,{b64encode(coloured_map(class_map)).decode()}"
    return el("img", src=src, alt=words, class_="pixels")
