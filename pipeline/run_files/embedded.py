"""The run inside an image file: embedded when the file is saved, and read when a studio anywhere opens it.

The record is JSON under the keyword `dillema-studio`. The pictures that the run needs (its source, its mask, the
artifacts of the image) are stored next to it as PNG in base64. A file is untrusted: sizes are bounded, every field is
validated, and pictures are checked against the hashes in the record. Knows no workspace.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image
from pydantic import ValidationError

from core.errors import NoRun, UserError
from core.images import MAX_SIDE, image_sha, opened, png_of
from core.lineage import TestCase, UnreadSettings
from core.masks import UNLABELLED, numbers_in
from core.png import XMP_KEYWORD, read_texts, with_texts
from core.run_record import ImageRecord, RunRecord, image_record
from core.types import LONGEST_REASON, Check, ReviewDecision, Task, from_plain, read_json, to_plain
from core.version import version
from pipeline.methods import method_of, read_lineage
from pipeline.recipes import known_recipes, recipe_of, values_from_plain
from pipeline.run_files.provenance import PARAMETERS_KEYWORD, parameters, xmp
from pipeline.run_files.webui import MadeWith

KEYWORD = "dillema-studio"
LARGEST_PICTURE = 4_000_000
"""Maximum bytes of a PNG that is embedded in an image file."""
LARGEST_RECORD = 1_000_000
"""Maximum number of characters of an embedded JSON record. Usual records have some thousands."""
MOST_ARTIFACTS = 8
"""Maximum number of artifacts that are embedded in an image, each under a keyword with its number."""
LONGEST_NAME = 60
"""Maximum characters in the name of an artifact."""
_NO_RUN = "There is no run in this file."
_CHANGED = "The run in this file is damaged or was changed by hand: it cannot be restored."
FORMAT = 2
MOST_ATTEMPTS = 2**63 - 1
"""Maximum number of attempts in a record, which is the largest number that a column of the database holds."""


@dataclass(frozen=True)
class EmbeddedRun:
    """The run that was read from an image file, with its pictures."""

    run: RunRecord
    source_sha: str
    """Hash of the source image's pixels (`image_sha`), present even if the picture is not in the file."""
    source: Image.Image | None
    """The source image, RGB, or None if it was too large to embed."""
    mask: Image.Image | None
    """The mask, mode L and of the source's size, or None."""
    case: TestCase | None
    """The image with its lineage, or None if it cannot be restored. `lost` then has the reason."""
    lost: str = ""
    review: ReviewDecision | None = None
    """A person's decision about the image, or None. Also None if the image cannot be restored."""


def with_run(
    image: bytes,
    run: RunRecord,
    case: TestCase,
    source: Image.Image,
    mask: Image.Image | None = None,
    made_with: MadeWith | None = None,
    review: ReviewDecision | None = None,
) -> bytes:
    """Return the PNG `image` of a test case with its run embedded: the record with its pictures, the `parameters` text
    and the XMP packet. Its pixels stay, and equal arguments give equal bytes. Raises ValueError for more than
    `MOST_ARTIFACTS` artifacts.
    """
    if len(case.artifacts) > MOST_ARTIFACTS:
        raise ValueError(f"{len(case.artifacts)} artifacts do not fit into an image file: at most {MOST_ARTIFACTS} do")
    made_by, lineage, texts = f"DILLEMA Studio {version()}", case.lineage, dict[str, str]()

    def travelling(keyword: str, picture: Image.Image) -> dict[str, Any]:
        data = png_of(picture)
        carried = len(data) <= LARGEST_PICTURE
        if carried:
            texts[_keyword(keyword)] = base64.b64encode(data).decode("ascii")
        return {"sha256": image_sha(picture), "carried": carried}

    pictures: dict[str, Any] = {"source": travelling("source", source)}
    if mask is not None:
        pictures["mask"] = travelling("mask", mask)
    pictures["artifacts"] = {
        name: travelling(f"artifact-{place}", picture) for place, (name, picture) in enumerate(case.artifacts.items())
    }
    plain = {
        "format": FORMAT,
        "made_by": made_by,
        "run": {**run.plain(), **({} if mask is not None else {"mask_classes": {}})},
        "image": {**image_record(case).plain(), **({"review": to_plain(review)} if review else {})},
        "pictures": pictures,
    }
    about = parameters(lineage, case.image.size, made_with, made_by)
    first = {PARAMETERS_KEYWORD: about, KEYWORD: json.dumps(plain, allow_nan=False)}
    return with_texts(image, {**first, **texts, XMP_KEYWORD: xmp(lineage.method, made_by)})


def read_run_in(data: bytes) -> EmbeddedRun | None:
    """Return the run in a file's bytes, or None if the file has none. Raises UserError for a record that is damaged,
    too large or of another version.
    """
    pictures = ("source", "mask", *(f"artifact-{place}" for place in range(MOST_ARTIFACTS)))
    texts = read_texts(data, [KEYWORD, *map(_keyword, pictures)])
    if KEYWORD not in texts:
        return None
    if len(texts[KEYWORD]) > LARGEST_RECORD:
        raise UserError("The run in this file is far larger than any that this program writes: it is not restored.")
    try:
        plain = read_json(texts[KEYWORD])
        if int(plain["format"]) > FORMAT:
            raise UserError("The run in this file was saved by a newer version of the studio: update this studio.")
        if int(plain["format"]) < FORMAT:
            raise UserError(
                "The run in this file was saved by a version that was never released: it cannot be restored."
            )
        return _embedded(plain, texts, data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError, OverflowError) as error:
        raise UserError(_CHANGED) from error


def require_run_in(data: bytes) -> EmbeddedRun:
    """Return the run in an image file's bytes. Raises NoRun if it has none, UserError if it is damaged or no image."""
    run = read_run_in(data)
    if run is None:
        opened(data)
        raise NoRun(f"{_NO_RUN} Images saved by this studio contain their run, unless another program removed it.")
    return run


def _embedded(plain: Any, texts: Mapping[str, str], data: bytes) -> EmbeddedRun:
    run, pictures = read_run(plain["run"]), plain["pictures"]
    source, mask = (_unpacked(texts, name, pictures.get(name)) for name in ("source", "mask"))
    if mask is not None:
        if mask.mode != "L" or source is None or mask.size != source.size:
            raise ValueError("the mask does not have the size of the source, or is no mask")
        if set(numbers_in(mask)) - {*run.mask_classes, UNLABELLED}:
            raise ValueError("the mask has classes without a name")
    case, lost = _case(plain["image"], _artifacts(pictures, texts), data, run.task)
    source_sha = pictures["source"]["sha256"]
    if not isinstance(source_sha, str):
        raise TypeError("the hash of the source is no text")
    review = None
    if case is not None and (stored := plain["image"].get("review")) is not None:
        review = from_plain(ReviewDecision, stored)
        if len(review.reason) > LONGEST_REASON:
            raise ValueError("the reason of the review is too long")
    return EmbeddedRun(run, source_sha, source.convert("RGB") if source is not None else None, mask, case, lost, review)


def _artifacts(pictures: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Image.Image | None]:
    """Return the artifacts that the record names, by name. None in place of an artifact that is not embedded."""
    declared = pictures["artifacts"]
    if len(declared) > MOST_ARTIFACTS or any(not 0 < len(name) <= LONGEST_NAME for name in declared):
        raise ValueError("there are too many artifacts, or one has a wrong name")
    return {name: _unpacked(texts, f"artifact-{place}", entry) for place, (name, entry) in enumerate(declared.items())}


def _case(
    plain: Any, artifacts: Mapping[str, Image.Image | None], data: bytes, task: Task
) -> tuple[TestCase | None, str]:
    """Return the test case in the file and "". If it cannot be restored, return None and the reason."""
    image = _decoded(data).convert("RGB")
    if image_sha(image) != plain["sha256"]:
        return None, "The picture was changed after it was saved, so the run was restored without it."
    record = read_image(plain, {}, task)
    method = method_of(record.lineage.method)
    pictures: dict[str, Image.Image] = {}
    for name in dict.fromkeys([*(artifact.name for artifact in method.artifacts), *artifacts]):
        picture = artifacts.get(name)
        if picture is None or picture.size != image.size:
            return None, f"The file does not carry the picture's {name}, so the run was restored without the picture."
        pictures[name] = picture.convert("L") if picture.mode == "L" else picture.convert("RGB")
    if method.known and isinstance(record.lineage.settings, UnreadSettings):
        return None, "The picture was made with settings that are not known here: the run was restored without it."
    return record.with_pictures(image, pictures), ""


def _keyword(picture: str) -> str:
    return f"{KEYWORD}-{picture}"


def _unpacked(texts: Mapping[str, str], name: str, declared: Any) -> Image.Image | None:
    """Return an embedded picture, or None if it is missing. Raises ValueError if it is not the `declared` one."""
    text = texts.get(_keyword(name))
    if text is None or declared is None:
        return None
    try:
        image = _decoded(base64.b64decode(text, validate=True))
    except (binascii.Error, UserError) as error:
        raise ValueError("a picture cannot be read") from error
    if image_sha(image) != declared["sha256"]:
        raise ValueError("a picture is not the one that the record names")
    return image


def _decoded(data: bytes) -> Image.Image:
    """Return the image of a PNG. Raises UserError for anything else, or for one larger than this program makes."""
    image = opened(data)
    if image.format != "PNG" or max(image.size) > MAX_SIDE:
        raise UserError(_CHANGED)
    try:
        image.load()
    except Exception as error:  # a decoder fed with a damaged file may raise anything
        raise UserError("The image is damaged or cut short: save or download it again.") from error
    image.info = {}
    return image


def read_run(plain: Mapping[str, Any]) -> RunRecord:
    """Read a run from plain data. Raises UnknownRecipe. Raises KeyError, TypeError or ValueError for other data."""
    values = values_from_plain(plain["values"])
    record: RunRecord = from_plain(RunRecord, {**plain, "values": {}})
    recipe_of(record.recipe)
    if record.prompts.keys() - {slot.name for recipe in known_recipes() for slot in recipe.prompt_slots}:
        raise ValueError("a prompt of the run is unknown")
    if any(not 0 <= number <= 255 for number in record.mask_classes):
        raise ValueError("a class number is out of range")
    if any(not 0 <= value.trace.attempts <= MOST_ATTEMPTS for value in values.values()):
        raise ValueError("a number of attempts is out of range")
    return RunRecord(**{**vars(record), "values": values})


def read_image(plain: Mapping[str, Any], artifacts: Mapping[str, str], task: Task) -> ImageRecord:
    """Read an image's record. `artifacts` has the hashes of the image's artifacts. If the record has no task, it gets
    `task`, the task of the run. Raises the same errors as `read_run`.
    """
    lineage = read_lineage(plain["lineage"])
    if lineage.task is None:
        lineage = replace(lineage, task=task)
    sha, checks = plain["sha256"], from_plain(tuple[Check, ...], plain["checks"])
    if not all(isinstance(one, str) for one in (sha, *artifacts.values())):
        raise TypeError("a hash is no text")
    return ImageRecord(sha, lineage, dict(artifacts), checks)
