"""Files that leave the studio and come back: an image with its run inside, the same with its mask, a run restored."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import dataclass, replace

from PIL import Image

from pipeline.carried import Carried, RunRecord, carrying, read_carried, require_carried
from pipeline.errors import UserError
from pipeline.freshness import image_sha
from pipeline.masks import UNLABELLED, carried
from pipeline.provenance import made_with
from pipeline.types import Decision
from storage.types import Run, StoredTestCase
from ui.mask_checks import with_mask_check
from ui.studio import Studio

LONGEST_NAME = 200


@dataclass(frozen=True)
class Taken:
    """What became of a picture that was given."""

    run_id: str
    case_id: int | None = None
    """The image to look at."""
    said: str = ""
    """What a person should know, in a sentence or two."""


def saved_image(studio: Studio, case_id: int) -> tuple[str, bytes]:
    """The name and the bytes of a test case's image file, its run inside. Raises UserError for an unknown one."""
    stored = studio.workspace.stored_test_case(case_id)
    run = studio.workspace.run(stored.run_id)
    mask = studio.workspace.image(run.mask_sha) if run.mask_sha is not None else None
    kept = studio.readings.mask_check(run, studio.settings(run), stored)
    case = studio.workspace.test_case(case_id)
    data = carrying(
        stored.image_path.read_bytes(),
        run_record(run),
        replace(case, checks=with_mask_check(case.checks, kept, run.mask_sha is not None)),
        studio.source(run),
        mask,
        made_with(studio.profile, _kind(stored)) if run.profile == studio.profile.name else None,
        Decision(stored.review.verdict, stored.review.reason) if stored.review is not None else None,
    )
    return f"{file_stem(run, stored)}.png", data


def _kind(case: StoredTestCase) -> str:
    """The kind of control image that a test case was drawn on."""
    conditioning = case.settings.get("conditioning")
    return str(conditioning.get("kind", "canny")) if isinstance(conditioning, dict) else "canny"


def saved_with_mask(studio: Studio, case_id: int) -> tuple[str, bytes]:
    """The name and the bytes of a ZIP file: the image, its mask at the image's size, and the names of the classes.

    Raises UserError for an unknown test case, and where the run has no mask.
    """
    name, data = saved_image(studio, case_id)
    run = studio.workspace.run(studio.workspace.stored_test_case(case_id).run_id)
    if run.mask_sha is None:
        raise UserError("This run has no mask: give one in the card of the source image first.")
    stem = name.removesuffix(".png")
    mask = carried(studio.workspace.image(run.mask_sha), Image.open(io.BytesIO(data)).size)
    encoded = io.BytesIO()
    mask.save(encoded, "PNG")
    about = {
        "classes": {str(number): name for number, name in run.mask_classes.items()},
        "protected": list(run.task.protected),
        "unlabelled": UNLABELLED,
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:  # PNG is compressed already
        archive.writestr(f"{stem}.png", data)
        archive.writestr(f"{stem}.mask.png", encoded.getvalue())
        archive.writestr("classes.json", json.dumps(about, indent=2, ensure_ascii=False))
    return f"{stem}.zip", file.getvalue()


def run_record(run: Run) -> RunRecord:
    """What of a run goes into its files."""
    return RunRecord(
        id=run.id,
        name=run.name,
        profile=run.profile,
        task=run.task,
        settings=run.settings,
        values={stage: stored.value for stage, stored in run.values.items()},
        prompts=run.prompts,
        sample=run.sample,
        notes=run.notes,
        mask_classes=run.mask_classes,
    )


def file_stem(run: Run, case: StoredTestCase) -> str:
    """What the files of a test case are called, such as street-snowy-12: a name that every system takes."""
    edits = ", ".join(edit.alternative for edit in case.counterfactual.edits) or "by hand"
    words = re.sub(r"[^\w.-]+", "-", f"{run.name}-{edits}").strip("-.")
    return f"{words[:120] or 'image'}-{case.id}"


def take_picture(studio: Studio, data: bytes, file_name: str) -> Taken:
    """The run that a picture carries, opened or restored, or a new one from a picture that carries none.

    Raises UserError for what is no usable picture, and for a run that is damaged; nothing is changed then.
    """
    held = read_carried(data)
    return Taken(studio.run_from_upload(data, file_name)) if held is None else restore(studio, held)


def take_run(studio: Studio, data: bytes) -> Taken:
    """The run that a picture carries, opened or restored. Raises UserError when it carries none."""
    return restore(studio, require_carried(data))


def restore(studio: Studio, held: Carried) -> Taken:
    """Open the run of a file where this workspace has it, else save it as a run of the same id; with its image.

    Raises UserError when the run is not here and its source image is not in the file.
    """
    workspace, run_id = studio.workspace, held.run.id
    if workspace.has_run(run_id) and studio.pixels(workspace.run(run_id).source_sha) == held.source_sha:
        said = held.lost
        if workspace.run(run_id).removed:
            workspace.restore_run(run_id)
            said = f"The run had been deleted: it was put back. {said}".strip()
        return Taken(run_id, _case_in(studio, run_id, held), said)
    if held.source is None:
        raise UserError(
            "The file does not carry its source image, which is too large to travel: open it in the workspace in "
            "which it was made."
        )
    name = " ".join(held.run.name.split())[:LONGEST_NAME] or "restored run"
    run_id = workspace.import_run(replace(held.run, name=name), held.source, held.mask, held.case, held.review)
    cases = workspace.run(run_id).test_cases
    said = f"The run “{name}” was restored from the file. {held.lost}".strip()
    return Taken(run_id, cases[0].id if cases else None, said)


def _case_in(studio: Studio, run_id: str, held: Carried) -> int | None:
    """The id of the file's image in a run that is here; it is added, as it was reviewed, where it is missing. What was
    decided here of an image that is here stays as it is.
    """
    case = held.case
    if case is None:
        return None
    sha = image_sha(case.image)
    for stored in studio.workspace.run(run_id).test_cases:
        if stored.seed == case.seed and studio.pixels(stored.image_sha) == sha:
            return stored.id
    number = studio.workspace.append_test_case(run_id, None, case)
    if held.review is not None:
        studio.workspace.append_review(number, held.review.verdict, held.review.reason)
    return number
