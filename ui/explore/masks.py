"""How a mask is shown: its colours over the picture, what each colour is, and how to give another one."""

from __future__ import annotations

from core.masks import classes_text, colour
from services.runs.samples import Sample, known_classes, sample_of
from services.runs.state import RunState
from ui.explore.large import image_url, overlay_url
from ui.markup import Html
from ui.templating import render


def mask_row(state: RunState, samples: tuple[Sample, ...]) -> Html:
    """The mask in the card of the source; how to give one where there is none."""
    run, sample = state.run, sample_of(samples, state.run)
    masked, there = run.mask_sha is not None, {name.casefold() for name in run.mask_classes.values()}
    kept = {name.casefold() for name in run.task.protected}
    return render(
        "explore/mask.html",
        state=state,
        source=image_url(run.source_sha),
        over=overlay_url(run.mask_sha) if run.mask_sha is not None else None,
        legend=[(number, name, name.casefold() in kept) for number, name in sorted(run.mask_classes.items())],
        colour=colour,
        classes=classes_text(run.mask_classes if masked else known_classes(samples)),
        offered=not masked and sample is not None and sample.mask is not None,
        missing=[f"“{name}”" for name in run.task.protected if masked and name.casefold() not in there],
    )
