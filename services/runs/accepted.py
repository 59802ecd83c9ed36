"""The accepted images of runs as one ZIP file: each as it is saved alone, with its label, its mask and its story.

images/NAME.png    carries its run, like any saved image
masks/NAME.png     where the run has a mask, at the size of the image: a class number a pixel
metadata.parquet   a row an image, as Hugging Face `datasets` reads it; in JSON it would take names for dates
README.md          what is in here and how it is loaded; its head tells `datasets` which of the files are data
edited_values.csv  how many of the values of each stage people changed in these runs, by profile and stage
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from PIL import Image

from core.csv_tables import facts
from core.errors import UserError
from core.images import png_of
from core.masks import UNLABELLED, resized
from core.stored_runs import Run, StoredTestCase
from core.text_templates import TextTemplates
from core.types import to_plain
from formats.naming import name_of_file
from services.runs.edited_share import FILE as EDITED
from services.runs.edited_share import edited_csv
from storage.workspace import Workspace

METADATA = "metadata.parquet"
CARD = "README.md"
MOST_RUNS = 1000
"""In one file."""


def accepted_of(run: Run) -> tuple[StoredTestCase, ...]:
    """The accepted test cases of a run, oldest first."""
    return tuple(case for case in run.test_cases if case.review is not None and case.review.verdict == "accepted")


def write_accepted(
    workspace: Workspace, saved_image: Callable[[int], tuple[str, bytes]], run_ids: Sequence[str], file: IO[bytes]
) -> str:
    """Write the ZIP of these runs and return its name. Raises UserError, with nothing written, if there are none."""
    runs = [workspace.runs.get(run_id) for run_id in dict.fromkeys(run_ids)]
    if not any(accepted_of(run) for run in runs):
        which = "This run has" if len(runs) == 1 else "These runs have"
        raise UserError(f"{which} no accepted image yet: accept those that count, then save them.", field="runs")
    lines = []
    what = name_of_file(runs[0].name) if len(runs) == 1 else f"{len(runs)}-runs"
    name_of_zip = f"{what}-accepted-{datetime.now(UTC):%Y-%m-%d}.zip"
    with zipfile.ZipFile(file, "w") as archive:  # PNG is compressed already
        for run in runs:
            mask = workspace.images.load(run.mask_sha) if run.mask_sha is not None else None
            for case in accepted_of(run):
                name, data = saved_image(case.id)
                archive.writestr(f"images/{name}", data)
                if mask is not None:
                    archive.writestr(f"masks/{name}", _mask_of(mask, data))
                lines.append(_about(run, case, name))
        archive.writestr(METADATA, _table(lines), zipfile.ZIP_DEFLATED)
        archive.writestr(CARD, _card(lines, name_of_zip), zipfile.ZIP_DEFLATED)
        archive.writestr(EDITED, edited_csv(workspace, [run.id for run in runs]), zipfile.ZIP_DEFLATED)
    return name_of_zip


def _table(lines: Sequence[dict[str, Any]]) -> bytes:
    """Return a Parquet file with these rows. A row without a field of another one has null there."""
    import pyarrow
    import pyarrow.parquet

    fields = dict.fromkeys(field for line in lines for field in line)
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({field: [line.get(field) for line in lines] for field in fields}), file)
    return file.getvalue()


def _card(lines: Sequence[dict[str, Any]], name: str) -> str:
    """Return the README. `datasets` reads its head, and takes the folder for images because of it."""
    return _TEXTS.lines(
        "accepted.md",
        metadata=METADATA,
        edited=EDITED,
        name=name,
        images=len(lines),
        runs=len({line["run"] for line in lines}),
        masks=any("mask_file_name" in line for line in lines),
    )


def _mask_of(mask: Image.Image, image: bytes) -> bytes:
    with Image.open(io.BytesIO(image)) as shown:
        size = shown.size
    return png_of(resized(mask, size))


def _about(run: Run, case: StoredTestCase, name: str) -> dict[str, Any]:
    lineage, task = case.lineage, case.task
    caption = run.values.get("caption")
    about: dict[str, Any] = {"file_name": f"images/{name}"}
    if run.mask_sha is not None:
        # A list: runs whose masks have other classes still have one type of column.
        named = [{"number": number, "name": named} for number, named in sorted(run.mask_classes.items())]
        about |= {"mask_file_name": f"masks/{name}", "classes": named, "unlabelled": UNLABELLED}
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
