"""Reading what a browser sent: every piece is text or a number of a known kind, or it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from pipeline.errors import UserError
from pipeline.types import StageName
from ui.studio import Studio

Data = Mapping[str, Any]
Action = Callable[[Studio, str, Data], str | None]
"""Takes the studio, the run that is shown and the data; gives the run to show, if it is another one."""
LONGEST_TEXT = 4000
"""Characters in anything that is typed; the longest caption is far shorter."""
LONGEST_TAB = 40
"""Characters in the name that a page gives itself."""
LONGEST_NUMBER = 18
"""Digits: more do not fit into a column of the database."""


def stage_of(data: Data) -> StageName:
    for known in get_args(StageName):
        if data.get("stage") == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"there is no stage {data.get('stage')!r}")


def text_of(data: Data, name: str) -> str:
    text = str(data.get(name) or "")
    if len(text) > LONGEST_TEXT:
        raise UserError(f"The text is too long: at most {LONGEST_TEXT} characters are taken.")
    return text


def tab_of(data: Data) -> str:
    """Which page it is, by the name that it gave itself."""
    return text_of(data, "tab")[:LONGEST_TAB]


def state_of(data: Data) -> int:
    """The state of the run that the page showed when its person began to edit; 0 when it does not say."""
    return number_of(text_of(data, "showed"))


def number_of(said: str) -> int:
    """A number that a row may have; 0 for any other text."""
    return int(said) if said.isascii() and said.isdigit() and len(said) <= LONGEST_NUMBER else 0


def place_of(data: Data) -> int:
    return int(data.get("place") or 0)
