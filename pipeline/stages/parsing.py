"""Reads replies of language models. Ignores bullets, numbers, quotes, code fences and chatter; invents nothing. Raises
`Unreadable` for a reply without usable content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.data_files import DataTable
from core.types import EDIT_TYPES, EditType
from pipeline.replies import is_refusal

_QUOTES = "\"'`“”‘’«»*_"
_BULLET = re.compile(r"^\s*(?:[-*•–—]\s+|\(?\d{1,2}[.):]\s+|[a-z][.)]\s+)", re.IGNORECASE)
_CHATTER = re.compile(
    r"^(?:sure|certainly|of course|ok(?:ay)?|absolutely|great(?=[!,.])|yes(?=[!,.])|here(?:'s|’s| is| are)|"
    r"the following|below|based on|given|as requested|i hope|i have|i've|let me know|note|please)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?:the )?(?:new |modified |edited |updated |revised |counterfactual |resulting )*"
    r"(?:caption|answer|output|reply)\s*:\s*",
    re.IGNORECASE,
)
_TYPE_NAMES: Mapping[str, EditType] = DataTable(__file__, EditType, "edit_types")  # type: ignore[arg-type]
"""Edit types by further names that models use for them."""
_EDIT_ARROW = r"\s*(?:-+>|=+>|[→⇒:=]|\bto\b|\bbecomes\b)\s*"
_BETWEEN_EDITS = re.compile(r"(?:[\s;,+&]|\band\b)*", re.IGNORECASE)
_NOTHING = re.compile(r"(?:none|nothing|no edit|n/a)\W*", re.IGNORECASE)
_BEFORE_EDITS = re.compile(
    r"^[\W_]*(?:(?:new |counterfactual )*(?:captions?|changes?|edits?|transformations?|sets?)\s*\d*\s*:?)?[\W_]*",
    re.IGNORECASE,
)


class Unreadable(ValueError):
    """A reply without usable content. The message names the form that was expected, or the fault."""


@dataclass(frozen=True)
class CombinedReply:
    """The parts of one reply for three stages."""

    keywords: tuple[tuple[str, EditType, tuple[str, ...]], ...]
    """Keywords, each with its alternatives, in the order of the reply."""
    captions: tuple[tuple[tuple[str, ...], str], ...]
    """For each caption its edits, as the reply writes them, and its text."""


def read_keywords(reply: str) -> tuple[tuple[str, EditType], ...]:
    """Read lines of `keyword | edit type`, in the order of the reply. Lines without a known edit type are skipped."""
    keywords: dict[str, tuple[str, EditType]] = {}
    for line in _lines(reply):
        for left, right in _splits(_unbullet(line)):
            keyword, edit_type = _clean(left), _edit_type(right)
            if keyword and edit_type:
                keywords.setdefault(keyword.lower(), (keyword, edit_type))
                break
    if not keywords:
        raise Unreadable("no line of the form “keyword | edit type” was found")
    return tuple(keywords.values())


def read_alternatives(reply: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read lines of `keyword: alternative, alternative`. The alternatives may also be a list below their keyword."""
    by_keyword: dict[str, tuple[str, list[str]]] = {}
    open_list: list[str] | None = None
    for line in _lines(reply):
        bulleted, text = bool(_BULLET.match(line)), _unbullet(line).strip("{}[] ,")
        left, separator, right = _split_once(text)
        if not separator:
            if bulleted and open_list is not None:
                open_list += _items(text)
            continue
        keyword, items = _clean(left), _items(right)
        if not keyword or (items and _CHATTER.match(keyword) and len(keyword.split()) > 3):
            continue
        open_list = by_keyword.setdefault(keyword.lower(), (keyword, []))[1]
        open_list += items
    usable = tuple((keyword, tuple(dict.fromkeys(items))) for keyword, items in by_keyword.values() if items)
    if not usable:
        raise Unreadable("no line of the form “keyword: alternative, alternative” was found")
    return usable


def read_edits(reply: str, offered: Sequence[tuple[str, str]]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Read lines of `keyword -> alternative; keyword -> alternative`, in reply order. A line is dropped unless all its
    pairs are `offered`.
    """
    longest_first = sorted(offered, key=lambda edit: (len(edit[0]), len(edit[1])), reverse=True)
    ways = "|".join(f"({_plain(keyword)}{_EDIT_ARROW}{_plain(other)})" for keyword, other in longest_first)
    edit = re.compile(rf"(?:{ways})(?!\w)", re.IGNORECASE)
    captions: list[tuple[tuple[str, str], ...]] = []
    for line in _lines(re.sub(r"\]\s*,\s*\[", "\n", reply)):
        text = _unquoted(_unbullet(line))
        label = _BEFORE_EDITS.match(text)
        starts = dict.fromkeys((0, label.end() if label else 0))  # a keyword may look like a label
        edits = next((complete for start in starts if (complete := _edits_from(text, start, edit, longest_first))), ())
        if edits:
            captions.append(edits)
    if not captions:
        raise Unreadable("no line of the form “keyword -> alternative; keyword -> alternative” was found")
    return tuple(captions)


def _edits_from(
    text: str, start: int, edit: re.Pattern[str], offered: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    edits: list[tuple[str, str]] = []
    while (match := edit.match(text, start)) is not None and match.lastindex is not None:
        edits.append(offered[match.lastindex - 1])
        between = _BETWEEN_EDITS.match(text, match.end())
        start = between.end() if between else match.end()
    return tuple(edits) if not re.search(r"\w", text[start:]) else ()


def _plain(text: str) -> str:
    return r"\s+".join(re.escape(word) for word in _unquoted(text).split())


def _unquoted(text: str) -> str:
    return "".join(letter for letter in text if letter not in _QUOTES)


def read_together(reply: str) -> CombinedReply:
    """Read keywords, alternatives and captions from the first JSON object of a reply, ignoring text around it."""
    data = _keywords_object(reply)
    keywords: dict[str, tuple[str, EditType, tuple[str, ...]]] = {}
    for item in _dicts(data.get("keywords")):
        keyword, edit_type = _clean(str(item.get("keyword", ""))), _edit_type(str(item.get("edit_type", "")))
        if keyword and edit_type:
            options = (" ".join(_clean(text).split()) for text in _texts(item.get("alternatives")))
            keywords.setdefault(keyword.lower(), (keyword, edit_type, tuple(dict.fromkeys(filter(None, options)))))
    captions = [
        (tuple(_texts(item.get("edits"))), text)
        for item in _dicts(data.get("captions"))
        if isinstance(text := item.get("caption"), str)
    ]
    return CombinedReply(tuple(keywords.values()), tuple(captions))


def object_with(reply: str, name: str) -> dict[str, Any] | None:
    """Return the first JSON object in a reply that has this property; None if none exists."""
    start = reply.find("{")
    while start >= 0:
        try:
            data, _end = json.JSONDecoder().raw_decode(reply, start)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict) and name in data:
            return data
        start = reply.find("{", start + 1)
    return None


def _keywords_object(reply: str) -> dict[str, Any]:
    data = object_with(reply, "keywords")
    if data is not None:
        return data
    if re.search(r"\{\s*[\"']keywords", reply):
        raise Unreadable("its JSON is broken, or ends in the middle because the longest reply is too short")
    raise Unreadable("no JSON object with “keywords” was found")


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    listed = [value] if isinstance(value, str) else value
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []


def read_caption(reply: str) -> str:
    """Return the caption, which is one line of the reply, without the chatter around it."""
    for line in _lines(reply):
        text = _unbullet(line).replace("**", "")
        if is_refusal(text):
            break
        if _CHATTER.match(text):
            # "Sure, here is the caption: A road ..." has the caption after the colon. "Sure! Here it is:" has none.
            text = text.partition(":")[2]
        text = _LABEL.sub("", text.strip())
        quoted = re.match(r'^["“](.+?)["”](?=\s|$)', text)
        text = " ".join(_LABEL.sub("", _clean(quoted[1] if quoted else text)).split())
        if len(re.findall(r"[^\W\d_]+", text)) >= 2:
            return text
    raise Unreadable("no caption was found")


def read_perturbation(reply: str) -> str:
    """Read the caption of `old words -> new words | caption`, or a caption alone; "" if the reply says "none"."""
    lines = _lines(reply)
    for line in lines:
        *before, text = (part.strip() for part in _unbullet(line).split("|"))
        if _NOTHING.fullmatch(before[-1] if before else _clean(text)):
            return ""
        if before and text:
            return read_caption(text)
    return read_caption("\n".join(line for line in lines if not re.search(r"-+>|→", line)))


def _lines(reply: str) -> list[str]:
    lines = [line.strip() for line in reply.replace("\r", "\n").split("\n")]
    lines = [line[1:-1].strip() if line[:1] == line[-1:] == "|" else line for line in lines]  # rows of Markdown tables
    return [line for line in lines if line and not line.startswith("```") and line not in ("{", "}", "[", "]")]


def _unbullet(line: str) -> str:
    return _BULLET.sub("", line, count=1).strip()


def _clean(text: str) -> str:
    """Strip quotes, stars and other wrapping from both ends. An apostrophe inside stays."""
    return text.strip().strip(_QUOTES).strip().rstrip(",;").strip(_QUOTES).strip()


def _splits(line: str) -> list[tuple[str, str]]:
    """Return the ways to split a line into keyword and edit type, likeliest first."""
    ways = [line.rsplit(separator, 1) for separator in ("|", "->", "→", ":", " - ", " – ") if separator in line]
    bracketed = re.match(r"^(.*?)\s*[(\[]([^()\[\]]+)[)\]]\W*$", line)
    return [(way[0], way[1]) for way in ways] + ([(bracketed[1], bracketed[2])] if bracketed else [])


def _edit_type(text: str) -> EditType | None:
    name = re.sub(r"[\s_-]+", " ", _clean(text).strip(".()[]").lower()).strip()
    return next((known for known in EDIT_TYPES if known == name), _TYPE_NAMES.get(name))


def _split_once(text: str) -> tuple[str, str, str]:
    for separator in (":", "|", "->", "→", " = "):
        left, found, right = text.partition(separator)
        if found:
            return left, found, right
    return text, "", ""


def _items(text: str) -> list[str]:
    parts = re.split(r"[,;|]", text.strip().strip("[](){}. "))
    cleaned = [re.sub(r"^(?:or|and)\s+", "", _clean(part.strip("[](){}. ")), flags=re.IGNORECASE) for part in parts]
    return [_clean(part) for part in cleaned if _clean(part) and part.lower() not in ("etc", "none", "n/a")]
