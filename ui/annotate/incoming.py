"""What a request to the annotators' page may be: from our own page, JSON, small, and of the shape that is asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fastapi import Request

from pipeline.errors import UserError
from ui.guard import is_foreign
from ui.routes import FROM_PAGE

MOST_BYTES = 16 * 1024
LONGEST_NAME = 200
"""Characters of a code, a link, an id or a key: all of ours are far shorter."""
MOST_ANSWERS = 40


class BadRequest(UserError):
    """A request that no page of ours sends. `status` is that of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def posted(request: Request) -> Mapping[str, Any]:
    """The JSON object that our page has sent. Raises BadRequest for anything else; never holds more than MOST_BYTES."""
    if FROM_PAGE not in request.headers or is_foreign(request):
        raise BadRequest(403, "This is taken from the annotators' own page only.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest(400, "This has to be sent as JSON.")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise BadRequest(400, f"This is too large: at most {MOST_BYTES // 1024} KB are taken.")
        parts.append(part)
    try:
        data = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise BadRequest(400, "This is no JSON that could be read.")
    return data


def name_in(data: Mapping[str, Any], field: str) -> str:
    """A code, link, id or key. Raises BadRequest where there is none."""
    value = data.get(field)
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_NAME or not value.isprintable():
        raise BadRequest(400, f"“{field}” has to be a text of 1 to {LONGEST_NAME} characters.")
    return value.strip()


def answers_in(data: Mapping[str, Any]) -> Mapping[str, object]:
    """Question id to answer, not looked at any closer. Raises BadRequest."""
    value = data.get("answers")
    if not isinstance(value, dict) or len(value) > MOST_ANSWERS:
        raise BadRequest(400, "“answers” has to hold an answer by question.")
    return {key: without_signs(answer) if isinstance(answer, str) else answer for key, answer in value.items()}


def text_in(data: Mapping[str, Any], field: str) -> str:
    """A free text, "" where there is none. Raises BadRequest where it is no text."""
    value = data.get(field) or ""
    if not isinstance(value, str):
        raise BadRequest(400, f"“{field}” has to be text.")
    return without_signs(value).strip()


def seconds_in(data: Mapping[str, Any]) -> float:
    """How long somebody looked, >= 0. Raises BadRequest where it is no number of seconds."""
    value = data.get("seconds", 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadRequest(400, "“seconds” has to be a number from 0 on.")
    return float(min(value, 86_400))


def without_signs(text: str) -> str:
    """The text without what no keyboard writes: control characters but line ends and tabs, and halves of letters."""
    kept = "".join(letter for letter in text if (letter >= " " and letter != "\x7f") or letter in "\n\t")
    return kept.encode("utf-8", "ignore").decode("utf-8")
