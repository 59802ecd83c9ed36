"""The run that an image file carries inside it: written when the file leaves, read when it comes back anywhere.

The record is JSON under the keyword `dillema-studio`; the pictures that the run needs (source, control, mask) lie
beside it as PNG in base64. Everything that comes back is untrusted: sizes are bounded, every field is validated, and
pictures are checked against the hashes in the record. Knows no workspace.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import UserError
from pipeline.freshness import image_sha
from pipeline.images import MAX_SIDE, opened
from pipeline.masks import UNLABELLED, numbers_in
from pipeline.png import XMP_KEYWORD, read_texts, with_texts
from pipeline.provenance import PARAMETERS_KEYWORD, MadeWith, parameters, xmp
from pipeline.settings import ConditioningSettings, GenerationSettings
from pipeline.types import (
    LONGEST_REASON,
    VALUE_TYPES,
    Check,
    CounterfactualCaption,
    Decision,
    StageName,
    StageValue,
    Task,
    TestCase,
    from_plain,
    to_plain,
)
from pipeline.version import version

KEYWORD = "dillema-studio"
FORMAT = 1
LARGEST_PICTURE = 4_000_000
"""Bytes of a picture's PNG that still travels inside another one."""
LARGEST_RECORD = 1_000_000
"""Characters of the JSON; real ones have some thousands."""
_NO_RUN = "There is no run in this file."
_CHANGED = "The run in this file is damaged or was changed by hand: it cannot be restored."
_PICTURES = ("source", "control", "mask")


@dataclass(frozen=True)
class RunRecord:
    """A run as it was when the file was saved."""

    id: str
    name: str
    profile: str
    task: Task
    settings: Mapping[str, Any]
    values: Mapping[StageName, StageValue[Any]]
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """The templates that a person edited for this run."""
    sample: str = ""
    notes: tuple[str, ...] = ()
    mask_classes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Carried:
    """What a file holds."""

    run: RunRecord
    source_sha: str
    """`image_sha` of the source image, also where the picture itself is not in the file."""
    source: Image.Image | None
    """RGB; None when it was too large to travel."""
    mask: Image.Image | None
    """Mode L, the source's size."""
    case: TestCase | None
    """The image with its lineage; None, for the reason `lost`, when it cannot be taken."""
    lost: str = ""
    review: Decision | None = None
    """What a person decided about the image; None too where the image cannot be taken."""


def carrying(
    image: bytes,
    run: RunRecord,
    case: TestCase,
    source: Image.Image,
    mask: Image.Image | None = None,
    made_with: MadeWith | None = None,
    review: Decision | None = None,
) -> bytes:
    """The PNG `image` of a test case with all that is known of it inside: the record with its pictures, the
    `parameters` text and the XMP packet. Its pixels are not touched. The same arguments give the same bytes.
    """
    made_by = f"DILLEMA Studio {version()}"
    pictures = {"source": _packed(source), "control": _packed(case.control), "mask": _packed(mask) if mask else b""}
    fits = {name: data for name, data in pictures.items() if 0 < len(data) <= LARGEST_PICTURE}
    plain = {
        "format": FORMAT,
        "made_by": made_by,
        "run": {
            **{name: getattr(run, name) for name in ("id", "name", "profile", "sample")},
            "notes": list(run.notes),
            "task": to_plain(run.task),
            "settings": to_plain(dict(run.settings)),
            "prompts": dict(run.prompts),
            "values": {stage: to_plain(value) for stage, value in run.values.items()},
            "mask_classes": {str(number): name for number, name in run.mask_classes.items()} if mask else {},
        },
        "image": {
            "sha256": image_sha(case.image),
            "counterfactual": to_plain(case.counterfactual),
            **{name: getattr(case, name) for name in ("seed", "method", "model", "prompt", "negative_prompt")},
            "settings": to_plain(dict(case.settings)),
            "seconds": case.seconds,
            "checks": [to_plain(check) for check in case.checks],
            **({"review": to_plain(review)} if review else {}),
        },
        "pictures": {
            "source": {"sha256": image_sha(source), "carried": "source" in fits},
            "control": {"sha256": image_sha(case.control), "carried": "control" in fits},
            **({"mask": {"sha256": image_sha(mask), "carried": "mask" in fits}} if mask else {}),
        },
    }
    about = parameters(
        case.prompt, case.negative_prompt, case.seed, case.model, case.settings, case.image.size, made_with, made_by
    )
    texts = {PARAMETERS_KEYWORD: about, KEYWORD: json.dumps(plain, allow_nan=False)}
    texts |= {_keyword(name): base64.b64encode(data).decode("ascii") for name, data in fits.items()}
    return with_texts(image, {**texts, XMP_KEYWORD: xmp(case.method, made_by)})


def read_carried(data: bytes) -> Carried | None:
    """The run in a file's bytes, or None when it carries none.

    Raises UserError for a record that is damaged, changed by hand, too large or of a newer version.
    """
    texts = read_texts(data, [KEYWORD, *map(_keyword, _PICTURES)])
    if KEYWORD not in texts:
        return None
    if len(texts[KEYWORD]) > LARGEST_RECORD:
        raise UserError("The run in this file is far larger than any that this program writes: it is not restored.")
    try:
        plain = json.loads(texts[KEYWORD])
        # What UTF-8 or JSON do not have (half characters, infinity) gets through json.loads, and would break later.
        json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
        if int(plain["format"]) > FORMAT:
            raise UserError("The run in this file was saved by a newer version of the studio: update this one.")
        return _carried(plain, texts, data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError, OverflowError) as error:
        raise UserError(_CHANGED) from error


def require_carried(data: bytes) -> Carried:
    """The same for a person who wants a run back: a file without one is refused too."""
    held = read_carried(data)
    if held is None:
        raise UserError(f"{_NO_RUN} Images that this studio saved carry theirs, unless another program took it out.")
    return held


def _carried(plain: Any, texts: Mapping[str, str], data: bytes) -> Carried:
    run, declared = _run(plain["run"]), plain["pictures"]
    pictures = {name: _unpacked(texts.get(_keyword(name)), declared.get(name)) for name in _PICTURES}
    source = pictures["source"]
    mask = pictures["mask"]
    if mask is not None:
        if mask.mode != "L" or source is None or mask.size != source.size:
            raise ValueError("the mask is none, or not the source's")
        if set(numbers_in(mask)) - {*run.mask_classes, UNLABELLED}:
            raise ValueError("the mask has classes without a name")
    case, lost = _case(plain["image"], pictures["control"], data)
    source_sha = declared["source"]["sha256"]
    if not isinstance(source_sha, str):
        raise TypeError("the hash of the source is no text")
    review = _review(plain["image"].get("review")) if case is not None else None
    return Carried(run, source_sha, source.convert("RGB") if source is not None else None, mask, case, lost, review)


def _run(plain: Any) -> RunRecord:
    unknown = plain["values"].keys() - set(VALUE_TYPES)
    if unknown:
        raise ValueError(f"there is no stage {min(unknown)!r}")
    values = {
        stage: TypeAdapter(StageValue[kind]).validate_python(plain["values"][stage])  # type: ignore[valid-type]
        for stage, kind in VALUE_TYPES.items()
        if stage in plain["values"]
    }
    record: RunRecord = from_plain(RunRecord, {**plain, "values": {}})
    if any(not 0 <= number <= 255 for number in record.mask_classes):
        raise ValueError("a class number is out of range")
    return RunRecord(**{**vars(record), "values": values})


def _case(plain: Any, control: Image.Image | None, data: bytes) -> tuple[TestCase | None, str]:
    """The image of the file, or why it cannot be taken; the run can be restored without it."""
    image = _decoded(data).convert("RGB")
    if image_sha(image) != plain["sha256"]:
        return None, "The picture was changed after it was saved, so the run was restored without it."
    if control is None or control.size != image.size:
        return None, "The file does not carry the picture's control image, so the run was restored without the picture."
    if not _known_settings(plain["settings"]):
        return None, "The picture was made with settings that are not known here: the run was restored without it."
    seed = plain["seed"]
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError("this is no seed")
    texts = {name: plain[name] for name in ("method", "model", "prompt", "negative_prompt")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("a text is none")
    case = TestCase(
        image=image,
        control=control.convert("L") if control.mode == "L" else control.convert("RGB"),
        counterfactual=from_plain(CounterfactualCaption, plain["counterfactual"]),
        seed=seed,
        settings=plain["settings"],
        seconds=from_plain(float, plain["seconds"]),
        checks=from_plain(tuple[Check, ...], plain["checks"]),
        **texts,
    )
    return case, ""


def _review(plain: Any) -> Decision | None:
    if plain is None:
        return None
    review: Decision = from_plain(Decision, plain)
    if len(review.reason) > LONGEST_REASON:
        raise ValueError("no reason is that long")
    return review


def _known_settings(plain: Any) -> bool:
    """Whether these are settings that `pipeline.methods.plain_settings` gives."""
    try:
        generation = {name: value for name, value in plain.items() if name != "conditioning"}
        GenerationSettings.model_validate(generation)
        ConditioningSettings.model_validate(plain["conditioning"])
    except ValidationError:
        return False
    return True


def _keyword(picture: str) -> str:
    return f"{KEYWORD}-{picture}"


def _packed(image: Image.Image) -> bytes:
    clean = image.copy()
    clean.info = {}
    file = io.BytesIO()
    clean.save(file, "PNG")
    return file.getvalue()


def _unpacked(text: str | None, declared: Any) -> Image.Image | None:
    """One of the pictures beside the record. Raises ValueError when it is not the one that the record names."""
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
    """The pixels of a PNG. Raises UserError for anything else, or one that is larger than this program makes them."""
    image = opened(data)
    if image.format != "PNG" or max(image.size) > MAX_SIDE:
        raise UserError(_CHANGED)
    try:
        image.load()
    except Exception as error:  # a decoder fed with a damaged file may raise anything
        raise UserError("The image is damaged or cut short: save or download it again.") from error
    image.info = {}
    return image
