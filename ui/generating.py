"""What the worker does behind the gate: generates the images of a run, one by one, as long as they are wanted."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from pipeline.conditioning import NamedMask
from pipeline.errors import Cancelled, UserError
from pipeline.settings import Settings
from pipeline.stages.generation import PlannedImage
from pipeline.types import CounterfactualCaption, CounterfactualCaptions
from storage.types import JobState, Run
from ui.job_views import Part
from ui.jobs import JobHandle
from ui.studio import Studio, task_problem


def start_generation(studio: Studio, run_id: str) -> None:
    """The yes at the gate: what it showed is made. Raises UserError when the gate is closed."""
    require_task(studio, run_id)
    gate = studio.state(run_id).gate
    if gate.plan is None:
        raise UserError(gate.closed)
    start_images(studio, run_id, gate.plan.images)


def start_images(studio: Studio, run_id: str, images: Sequence[PlannedImage]) -> None:
    """Line up images of a run, with the settings that it has now. Raises UserError when the run is being worked on."""
    run = studio.workspace.run(run_id)
    settings = studio.settings(run)
    seconds = studio.seconds_per_image(run, settings)
    names = [image_name(image.counterfactual, image.seed) for image in images]
    studio.jobs.require_idle(run_id)
    # Recorded before it waits its turn: what a kill of the server takes away is then known to be missing.
    job_id = studio.workspace.start_job(run_id, len(images), _key(studio, run, settings))
    try:
        studio.jobs.submit(
            run_id,
            ("generation",),
            lambda handle: _generate(studio, run_id, job_id, tuple(images), settings, handle),
            names,
            seconds,
            unbegun=lambda: studio.workspace.finish_job(job_id, "cancelled"),
        )
    except UserError:  # another page was quicker
        studio.workspace.finish_job(job_id, "cancelled")
        raise


def image_name(counterfactual: CounterfactualCaption, seed: int) -> str:
    """What an image is called before it is there."""
    return f"{', '.join(edit.alternative for edit in counterfactual.edits) or 'by hand'} · seed {seed}"


def require_task(studio: Studio, run_id: str) -> None:
    """Raises UserError, saying what is missing, when the task of the run is not whole."""
    missing = task_problem(studio.workspace.run(run_id).task)
    if missing:
        raise UserError(missing)


class _Wanted:
    """The images of a job, in the order in which people have put them by now: a `Worklist`."""

    def __init__(self, images: Sequence[PlannedImage], handle: JobHandle) -> None:
        self._images, self._handle = images, handle

    def take(self) -> PlannedImage | None:
        part: Part | None = self._handle.take_part()
        return None if part is None else self._images[part.id]

    def dropped(self) -> bool:
        return self._handle.dropped()

    def waiting(self) -> int:
        return self._handle.parts_waiting()


def _generate(
    studio: Studio,
    run_id: str,
    job_id: int,
    images: tuple[PlannedImage, ...],
    settings: Settings,
    handle: JobHandle,
) -> None:
    handle.at("generation")
    studio.solved(run_id, "generation")
    run = studio.workspace.run(run_id)
    captions = CounterfactualCaptions(tuple(dict.fromkeys(image.counterfactual for image in images)))
    outcome: tuple[JobState, str] = ("failed", "The studio itself failed; the terminal says more.")

    def on_preview(image: Image.Image) -> None:
        handle.preview(studio.previews.put(image))

    try:
        caption = run.values.get("caption")
        cases = studio.runner.generate(
            studio.source(run),
            run.task,
            captions,
            settings,
            progress=handle.progress,
            cancelled=handle.cancelled,
            source_caption=caption.value.value.text if caption else "",
            mask=mask_of(studio, run),
            images=_Wanted(images, handle),
            on_preview=on_preview,
        )
        for case in cases:
            studio.workspace.append_test_case(run_id, job_id, case)
        outcome = ("done", "")
    except Cancelled:
        outcome = ("interrupted", "The studio was stopped.") if handle.closing else ("cancelled", "")
        raise
    except UserError as error:
        outcome = ("failed", str(error))
        studio.failed(run_id, "generation", error)
        raise
    finally:
        studio.workspace.finish_job(job_id, *outcome)


def mask_of(studio: Studio, run: Run) -> NamedMask | None:
    """The mask of a run's source image; None when it has none."""
    if run.mask_sha is None:
        return None
    return NamedMask(studio.workspace.image(run.mask_sha), run.mask_classes)


def _key(studio: Studio, run: Run, settings: Settings) -> str:
    """That of what is generated from; "" when the captions are gone meanwhile."""
    return studio.key("generation", run, settings) if "counterfactuals" in run.values else ""
