"""Saves test cases as image files that contain their run, and restores runs from these files. Also saves all accepted
images of some runs as one ZIP file with this content:

images/NAME.png    contains its run, like every saved image
masks/NAME.png     if the run has a mask, at the size of the image: a class number for each pixel
metadata.parquet   one row per image, for Hugging Face `datasets` (not as JSON: `datasets` reads some names as dates)
README.md          describes the files and how to load them; its head tells `datasets` which files are data
edited_values.csv  how many of the values of each stage people changed in these runs, by profile and stage
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from PIL import Image

from core.csv_tables import cells, facts
from core.errors import UserError
from core.images import image_sha, png_of
from core.masks import UNLABELLED, resized
from core.run_record import RunRecord
from core.stored_runs import Run, StoredTestCase
from core.text_templates import TextTemplates
from core.types import ReviewDecision, to_plain
from formats.naming import name_of_file
from pipeline.run_files.embedded import EmbeddedRun, read_run_in, require_run_in, with_run
from pipeline.run_files.provenance import made_with
from services.runs.life_cycle import RunService
from services.runs.predictions import PredictionService, with_mask_checks
from services.runs.words import EDITED, edit_words, edited_csv
from storage.runs.runs import ImportedRun

LONGEST_NAME = 200
METADATA = "metadata.parquet"
CARD = "README.md"
MOST_RUNS = 1000
"""Maximum number of runs in one ZIP file."""


@dataclass(frozen=True)
class Taken:
    """Result of opening an uploaded picture: the run that it contains, or a new run that begins with it."""

    run_id: str
    case_id: int | None = None
    said: str = ""
    """One or two sentences for the person; "" for none."""


class Exchange:
    """Imports and exports image files of one workspace. All methods may be called from any thread."""

    def __init__(self, runs: RunService, predictions: PredictionService) -> None:
        self._workspace, self._runs, self._predictions = runs.workspace, runs, predictions
        self._profile = runs.profile

    def saved_image(self, case_id: int) -> tuple[str, bytes]:
        """Return a test case's image file (name, bytes), which contains the run. Raises UserError for an unknown id."""
        stored = self._workspace.test_cases.get(case_id)
        run = self._workspace.runs.get(stored.run_id)
        mask = self._workspace.images.load(run.mask_sha) if run.mask_sha is not None else None
        mask_checks = self._predictions.mask_checks(run, self._runs.settings(run), stored)
        case = self._workspace.test_cases.load(case_id)
        ours = run.profile == self._profile.name
        with_weights = made_with(self._profile, case.lineage.method, case.lineage.settings) if ours else None
        data = with_run(
            stored.image_path.read_bytes(),
            replace(run_record(run), task=stored.task),
            replace(case, checks=with_mask_checks(case.checks, mask_checks, run.mask_sha is not None)),
            self._runs.source(run),
            mask,
            with_weights,
            ReviewDecision(stored.review.verdict, stored.review.reason) if stored.review is not None else None,
        )
        return f"{file_stem(run, stored)}.png", data

    def saved_with_mask(self, case_id: int) -> tuple[str, bytes]:
        """Return name and bytes of a ZIP file with a test case's image, its mask at the image's size, and the names of
        the mask's classes. Raises UserError for an unknown test case, and for a run without a mask.
        """
        name, data = self.saved_image(case_id)
        stored = self._workspace.test_cases.get(case_id)
        run = self._workspace.runs.get(stored.run_id)
        if run.mask_sha is None:
            raise UserError("This run has no mask: add one in the card of the source image first.")
        stem = name.removesuffix(".png")
        mask = _mask_of(self._workspace.images.load(run.mask_sha), data)
        about = {
            "classes": {str(number): name for number, name in run.mask_classes.items()},
            "protected": list(stored.task.protected),
            "unlabelled": UNLABELLED,
        }
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:  # PNG is compressed already
            archive.writestr(f"{stem}.png", data)
            archive.writestr(f"{stem}.mask.png", mask)
            archive.writestr("classes.json", json.dumps(about, indent=2, ensure_ascii=False))
        return f"{stem}.zip", file.getvalue()

    def saved_accepted(self, run_ids: Sequence[str], file: IO[bytes]) -> str:
        """Write a ZIP file of the runs' accepted images. Return its name. Raises UserError if none is accepted."""
        runs = [self._workspace.runs.get(run_id) for run_id in dict.fromkeys(run_ids)]
        if not any(accepted_of(run) for run in runs):
            which = "This run has" if len(runs) == 1 else "These runs have"
            raise UserError(f"{which} no accepted image to save: accept an image first.", field="runs")
        lines = []
        what = name_of_file(runs[0].name) if len(runs) == 1 else f"{len(runs)}-runs"
        name_of_zip = f"{what}-accepted-{datetime.now(UTC):%Y-%m-%d}.zip"
        with zipfile.ZipFile(file, "w") as archive:  # PNG is compressed already
            for run in runs:
                mask = self._workspace.images.load(run.mask_sha) if run.mask_sha is not None else None
                for case in accepted_of(run):
                    name, data = self.saved_image(case.id)
                    archive.writestr(f"images/{name}", data)
                    if mask is not None:
                        archive.writestr(f"masks/{name}", _mask_of(mask, data))
                    lines.append(_about(run, case, name))
            archive.writestr(METADATA, _table(lines), zipfile.ZIP_DEFLATED)
            # The head of the card tells Hugging Face `datasets` which files to load.
            card = _TEXTS.lines("accepted.md", metadata=METADATA, edited=EDITED, name=name_of_zip, rows=lines)
            archive.writestr(CARD, card, zipfile.ZIP_DEFLATED)
            archive.writestr(EDITED, edited_csv(self._workspace, [run.id for run in runs]), zipfile.ZIP_DEFLATED)
        return name_of_zip

    def take_picture(self, data: bytes, file_name: str, label: str = "") -> Taken:
        """Open or restore the run inside a picture. If it has none, begin a run with the picture. Raises UserError."""
        embedded = read_run_in(data)
        return Taken(self._runs.from_upload(data, file_name, label)) if embedded is None else self.restore(embedded)

    def take_run(self, data: bytes) -> Taken:
        """Open or restore the run inside a picture. Raises UserError if the picture contains no run."""
        return self.restore(require_run_in(data))

    def restore(self, embedded: EmbeddedRun) -> Taken:
        """Return the run of a file, and save it if it is not in the workspace. Raises UserError if it has no source."""
        workspace, run_id = self._workspace, embedded.run.id
        stored = workspace.runs.get(run_id) if workspace.runs.exists(run_id) else None
        if stored is not None and self._runs.pixels(stored.source_sha) == embedded.source_sha:
            message = embedded.lost
            if stored.removed:
                workspace.runs.restore(run_id)
                message = f"The run had been deleted and was restored. {message}".strip()
            return Taken(run_id, self._case_in(run_id, embedded), message)
        if embedded.source is None:
            raise UserError(
                "The file does not contain its source image, which was too large: open the file in the workspace in "
                "which it was made."
            )
        name = " ".join(embedded.run.name.split())[:LONGEST_NAME] or "restored run"
        case, record = [embedded.case] if embedded.case is not None else [], replace(embedded.run, name=name)
        imported = ImportedRun(record, embedded.source, embedded.mask, case, [embedded.review] if case else [])
        (run_id,) = workspace.runs.import_runs([imported])
        cases = workspace.runs.get(run_id).test_cases
        message = f"The run “{name}” was restored from the file. {embedded.lost}".strip()
        return Taken(run_id, cases[0].id if cases else None, message)

    def _case_in(self, run_id: str, embedded: EmbeddedRun) -> int | None:
        """Return the id of a file's test case in an existing run. A missing test case is added with its review."""
        case = embedded.case
        if case is None:
            return None
        sha = image_sha(case.image)
        for stored in self._workspace.runs.get(run_id).test_cases:
            if stored.lineage.seed == case.lineage.seed and self._runs.pixels(stored.image_sha) == sha:
                return stored.id
        return self._workspace.test_cases.extend(run_id, None, [case], [embedded.review])[0]


def run_record(run: Run) -> RunRecord:
    """Return the record of a run, as stored inside its image files."""
    values = {stage: stored.value for stage, stored in run.values.items()}
    names = "id name profile recipe task settings prompts sample notes mask_classes"
    return RunRecord(**cells(run, names), values=values)


def file_stem(run: Run, case: StoredTestCase) -> str:
    """Return a file name without suffix for a test case, such as street-snowy-12. The name is valid on every system."""
    return f"{name_of_file(f'{run.name}-{edit_words(case)}')}-{case.id}"


def accepted_of(run: Run) -> tuple[StoredTestCase, ...]:
    """Return the accepted test cases of a run, oldest first."""
    return tuple(case for case in run.test_cases if case.review is not None and case.review.verdict == "accepted")


def _table(lines: Sequence[dict[str, Any]]) -> bytes:
    """Return a Parquet file of these rows, with null for missing fields."""
    import pyarrow
    import pyarrow.parquet

    fields = dict.fromkeys(field for line in lines for field in line)
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({field: [line.get(field) for line in lines] for field in fields}), file)
    return file.getvalue()


def _mask_of(mask: Image.Image, image: bytes) -> bytes:
    """Return a mask as a PNG file, scaled to the size of `image`, which is an image file's bytes."""
    with Image.open(io.BytesIO(image)) as shown:
        size = shown.size
    return png_of(resized(mask, size))


def _about(run: Run, case: StoredTestCase, name: str) -> dict[str, Any]:
    lineage, task = case.lineage, case.task
    caption = run.values.get("caption")
    about: dict[str, Any] = {"file_name": f"images/{name}"}
    if run.mask_sha is not None:
        # A list of records, not a mapping: then runs with different mask classes have one column type.
        classes = [{"number": number, "name": classes} for number, classes in sorted(run.mask_classes.items())]
        about |= {"mask_file_name": f"masks/{name}", "classes": classes, "unlabelled": UNLABELLED}
    return about | {
        **facts(task, "label protected"),
        "task": task.kind,
        "caption": lineage.counterfactual.text,
        "source_caption": getattr(caption.value.value, "text", "") if caption is not None else "",
        "edits": [to_plain(edit) for edit in lineage.counterfactual.edits],
        "run": run.id,
        "run_name": run.name,
        "case": case.id,
        **facts(lineage, "recipe method model seed"),
        "accepted": case.review.created.isoformat() if case.review is not None else "",
    }


_TEXTS = TextTemplates(Path(__file__).with_name("templates"))
