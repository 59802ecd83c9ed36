"""A filter that selects images. Web addresses, test sets, studies, evaluations and scripts write the filter with the
names and values of `PARTS`. `storage.curation.selection` and `storage.test_sets.test_sets` apply the filter.
"""

from __future__ import annotations

import math
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

import numpy as np

from core.data_files import DataTable
from core.errors import UserError
from core.model_identity import without_hashes
from core.settings import Start
from core.types import EDIT_TYPES

Standing = Literal["right", "newly wrong", "wrong", "cannot tell", "not measured"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)
"""Results of a model under test on an image that it has predicted. "newly wrong": wrong, but right on the source.
"wrong": also wrong on the source, or unknown there. "not measured": its class maps are not compared yet."""
UNREAD = "unread"
"""Value in place of a model's result if the model has no prediction for the image."""
CHECK_OUTCOMES = ("passed", "failed", "cannot tell")
Facet = Literal[
    "kind", "class", "edit type", "edits", "profile", "recipe", "method", "start", "review", "weather", "time of day",
    "study", "tag", "import", "split", "batch",
]  # fmt: skip
FACETS: tuple[Facet, ...] = get_args(Facet)

NONE, SCORE = "none", "score"
PARTS: Mapping[str, str] = {
    name: words.format(edit_types=", ".join(EDIT_TYPES), standings=f"{', '.join(STANDINGS)} or {UNREAD}")
    for name, words in DataTable(__file__, str).items()
}
"""Parts of a filter by name, with a description of their values. If a part is given several times, an image needs one
of its values. “-NAME” excludes images with the value (facets only)."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": ("classification", "segmentation"),
    "edit type": EDIT_TYPES,
    "start": get_args(Start),
    "review": ("accepted", "rejected", "open"),
    "study": ("valid", "invalid", "no consensus", "too few votes", "undecided"),
    "split": ("train", "validation", "test"),
    "check": CHECK_OUTCOMES,
    "model": (*STANDINGS, UNREAD),
    "role": ("generated", "source"),
}
"""Allowed values by part, for parts with a fixed list."""
FIELD = "filter"
"""Name of the command's field to which errors about a filter belong."""
LONGEST_ADDRESS = 16_000
"""Maximum number of characters in an address. Browsers and servers accept this many."""
MOST_PARTS = 200
LONGEST_VALUE = 1200
LOWEST, HIGHEST = -1000.0, 1000.0
"""Lowest and highest possible figure of a check. They replace a missing end of a range."""
_LARGEST_SET = 2_000_000
"""Maximum size in bytes of an unpacked list of entries, enough for 16 million entries."""
_TEXTS = ("run", "source", "text", "edited", "role", "not_in_study")
"""Parts of a filter that hold one text. If given several times, the last one counts."""


@dataclass(frozen=True)
class Between:
    """A range of the figure of a check, both ends included. It excludes images without a figure."""

    check: str
    low: float = LOWEST
    high: float = HIGHEST

    @property
    def part(self) -> str:
        """The range as it is written in an address. Inverse of `read`."""
        return f"{self.check}:{self.low:g}:{self.high:g}"

    @staticmethod
    def read(value: str) -> Between:
        """Parse the text that `part` returns. Raises UserError if it is invalid."""
        check, low, high = (*value.rsplit(":", 2), "", "")[:3]
        ends = _number(low), _number(high)
        if not check or ends[0] is None or ends[1] is None:
            raise unreadable("range", value)
        return Between(check, ends[0], ends[1])


@dataclass(frozen=True)
class ScoreBand:
    """A range of the validity score, from `low` up to but not including `high`. It excludes images without a score."""

    low: float | None = None
    """Lower end, or None if the range has no lower end."""
    high: float | None = None

    @property
    def part(self) -> str:
        """The range as it is written in an address, such as "0.5:" for all scores from 0.5."""
        return ":".join("" if end is None else f"{end:g}" for end in (self.low, self.high))

    @property
    def words(self) -> str:
        """The range in words: “from 0.5”, “below 0.7”, the two joined by a space, or “any”."""
        ends = [f"from {self.low:g}"] if self.low is not None else []
        ends += [f"below {self.high:g}"] if self.high is not None else []
        return " ".join(ends) or "any"

    @staticmethod
    def read(value: str) -> ScoreBand:
        """Parse the text that `part` returns. Raises UserError if it is invalid."""
        low, colon, high = value.partition(":")
        ends = [_number(end) for end in (low, high)]
        if not colon or any(end is None and text for end, text in zip(ends, (low, high), strict=True)):
            raise unreadable(SCORE, value)
        return ScoreBand(*ends)


@dataclass(frozen=True)
class ImageFilter:
    """Conditions on images. A selected image meets all conditions. For a facet, a check or a model, the image needs one
    of the listed values, and none of the values in `without`. The facet value "" means that an image has no value.
    """

    facets: Mapping[Facet, tuple[str, ...]] = field(default_factory=dict)
    without: Mapping[Facet, tuple[str, ...]] = field(default_factory=dict)
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Outcomes (`CHECK_OUTCOMES`) by the name of a check."""
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Results (`STANDINGS` or `UNREAD`) by model under test. The key "" means the model with most predictions.
    Only predictions on images that match the rest of the filter are counted for this."""
    between: tuple[Between, ...] = ()
    scores: tuple[ScoreBand | None, ...] = ()
    """Ranges of the validity score. An image must be in one of them; None matches images without a score."""
    run: str = ""
    source: str = ""
    images: tuple[str, ...] | None = None
    """SHA-256 of the selected images; None if the filter lists no images."""
    text: str = ""
    """Words that the captions and edits must contain; case, endings and accents are ignored."""
    edited: str = ""
    """Words that the edits must contain; case, endings and accents are ignored."""
    entries: tuple[int, ...] | None = None
    """Catalogue numbers of the selected images, or None if the filter lists none."""
    role: str = ""
    """"generated", or "source" for originals, which are in test sets but not in the catalogue; "" for both."""
    test_cases: bool = False
    """True to select only test cases made in this workspace, without imported images."""
    not_in_study: str = ""

    @staticmethod
    def read(address: str) -> ImageFilter:
        """Parse the text that `address` returns. Raises UserError if it is invalid."""
        return ImageFilter.of(pairs_of(address))

    @staticmethod
    def of(pairs: Iterable[tuple[str, str]]) -> ImageFilter:
        """Return the filter with these names and values (see `PARTS`). Raises UserError for a wrong part."""
        # The values of each part, in order and each once.
        facets, without, checks, models = (defaultdict[Any, dict[str, None]](dict) for _ in range(4))
        between, scores, images = list[Between](), dict[ScoreBand | None, None](), dict[str, None]()
        once: dict[str, Any] = {}
        for name, value in pairs:
            if not value or (len(value) > LONGEST_VALUE and name != "entries"):
                raise unreadable(name, value)
            facet = name.removeprefix("-")
            if facet in FACETS:
                (without if name != facet else facets)[facet][chosen(facet, value, CHOICES.get(facet, (value,)))] = None
            elif name == NONE and value == SCORE:
                scores[None] = None
            elif name in (NONE, f"-{NONE}"):
                (facets if name == NONE else without)[chosen(NONE, value, (*FACETS, SCORE))][""] = None
            elif name in ("check", "model"):
                subject, _, outcome = value.rpartition(":")
                if (not subject and name == "check") or ":" not in value:
                    raise unreadable(name, value)
                (checks if name == "check" else models)[subject][chosen(name, outcome, CHOICES[name])] = None
            elif name == "range":
                between.append(Between.read(value))
            elif name == SCORE:
                scores[ScoreBand.read(value)] = None
            elif name == "image":
                images[value] = None
            else:
                once[chosen("", name, PARTS)] = value
        chosen("role", once.get("role", ""), ("", *CHOICES["role"]))
        parts = {"facets": facets, "without": without, "checks": checks, "models": models}
        named: dict[str, Any] = {part: {name: tuple(own[name]) for name in own} for part, own in parts.items()}
        return ImageFilter(
            between=tuple(between),
            scores=tuple(scores),
            images=tuple(images) or None,
            entries=_unpacked(once["entries"]) if "entries" in once else None,
            test_cases="test_cases" in once,
            **named,
            **{name: once[name] for name in _TEXTS if name in once},
        )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The filter as pairs of name and value, which `of` reads. Equal filters give equal pairs."""
        pairs = [(str(name), value) if value else (NONE, name) for name, value in _each(self.facets)]
        pairs += [(f"-{name}", value) if value else (f"-{NONE}", name) for name, value in _each(self.without)]
        pairs += [("check", f"{name}:{value}") for name, value in _each(self.checks)]
        pairs += [("model", f"{name}:{value}") for name, value in _each(self.models)]
        pairs += [("range", one.part) for one in self.between]
        pairs += [(SCORE, one.part) if one is not None else (NONE, SCORE) for one in self.scores]
        pairs += [("image", sha) for sha in self.images or ()]
        pairs += [(name, getattr(self, name)) for name in _TEXTS if getattr(self, name)]
        pairs += [("test_cases", "1")] if self.test_cases else []
        return pairs + ([("entries", packed(self.entries))] if self.entries is not None else [])

    @property
    def address(self) -> str:
        """The filter as the query of a web address; it is stored in the same form. "" for all images."""
        return urlencode(self.pairs)

    @property
    def words(self) -> str:
        """The filter in words, such as “class: bird or dog; not tag: odd; edges kept: failed”; "" for all images."""
        named = [*self.facets.items(), *((f"not {name}", values) for name, values in self.without.items())]
        models = ((without_hashes(name) or "most-read model", values) for name, values in self.models.items())
        named += [*self.checks.items(), *models]
        parts = [f"{name}: {' or '.join(value or 'none' for value in values)}" for name, values in named]
        parts += [f"{one.check}: {one.low:g} to {one.high:g}" for one in self.between]
        bands = [f"validity score {one.words if one is not None else 'none'}" for one in self.scores]
        parts += [" or ".join(bands)] if bands else []
        texts = {"run": self.run, "source": self.source[:8], "captions": self.text, "edits": self.edited}
        parts += [f"{name}: {value}" for name, value in {**texts, "role": self.role}.items() if value]
        for listed in (self.images, self.entries):
            parts += [f"{len(listed):,} images of a list"] if listed is not None else []
        parts += ["not in a study"] if self.not_in_study else []
        parts += ["test cases alone"] if self.test_cases else []
        return "; ".join(parts)

    def among(self, entries: Sequence[int]) -> ImageFilter:
        """Return the same filter, restricted to these entries of the catalogue."""
        return replace(self, entries=tuple(entries))


def pairs_of(address: str) -> list[tuple[str, str]]:
    """Parse the query of an address into names and values. Raises UserError if it is too long."""
    if len(address) > LONGEST_ADDRESS:
        raise UserError(f"This filter is too long: at most {LONGEST_ADDRESS} characters are allowed.", field=FIELD)
    try:
        return parse_qsl(address.removeprefix("?"), max_num_fields=MOST_PARTS)
    except ValueError as error:
        raise UserError(f"This filter has too many parts: at most {MOST_PARTS} are allowed.", field=FIELD) from error


def chosen(name: str, value: str, choices: Iterable[str], field: str = FIELD) -> Any:
    """Return `value`. Raises UserError if `choices` lacks `value`. `name` is "" if `value` is the name of a part."""
    known = tuple(choices)
    if value not in known:
        part = f"value “{value[:80]}” of “{name[:40]}”" if name else f"part “{value[:40]}”"
        raise UserError(f"Unknown filter {part}. Choose one of: {', '.join(known)}.", field=field)
    return value


def unreadable(name: str, value: str) -> UserError:
    """Return the error for a value that the filter part `name` does not accept, or for an unknown part."""
    if name not in PARTS and name.removeprefix("-") not in FACETS:
        return UserError(f"Unknown filter part “{name[:40]}”. Choose one of: {', '.join(PARTS)}.", field=FIELD)
    form = PARTS.get(name, "a value")
    return UserError(f"The filter value “{value[:80]}” of “{name[:40]}” cannot be read. Write {form}.", field=FIELD)


def packed(entries: Sequence[int]) -> str:
    """Encode catalogue numbers as letters and digits. Each number is one bit, and the bits are compressed."""
    if not entries:
        return "0"
    bits = np.zeros(max(entries) + 1, bool)
    bits[list(entries)] = True
    return urlsafe_b64encode(zlib.compress(np.packbits(bits, bitorder="little").tobytes(), 9)).decode().rstrip("=")


def _unpacked(text: str) -> tuple[int, ...]:
    if text == "0":
        return ()
    try:
        compressed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        bits = zlib.decompressobj().decompress(compressed, _LARGEST_SET)
    except (ValueError, zlib.error):
        raise unreadable("entries", text) from None
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")).tolist())


def _number(text: str) -> float | None:
    """Parse a finite number. Return None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _each(named: Mapping[Any, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in named.items() for value in values]
