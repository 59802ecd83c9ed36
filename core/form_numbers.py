"""Numbers in a form. Bounds, words and unit are declared once, at the field that keeps the value. The form, its parser
and the check of stored values use this declaration: `votes: Annotated[int, FormNumber(1, 50, "Votes an image")] = 5`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import get_type_hints

_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")


@dataclass(frozen=True)
class FormNumber:
    """A number in a form. A share (unit "%" or "points") is typed as 0 to 100 and stored as 0 to 1."""

    low: float
    high: float
    label: str = ""
    hint: str = ""
    unit: str = ""
    whole: bool = True

    @property
    def is_share(self) -> bool:
        """True if the number is typed as 0 to 100 and stored as 0 to 1."""
        return self.unit in ("%", "points")

    @property
    def range(self) -> str:
        """The accepted numbers in words, such as "a whole number from 1 to 50"."""
        unit = " %" if self.is_share else ""
        return f"a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:,.10g}{unit}"

    def shown(self, value: float) -> float:
        """Convert a stored value to the number that the form shows, such as a share of 0.05 to 5."""
        return round(100 * value, 8) if self.is_share else value

    def check(self, value: float) -> None:
        """Raise ValueError if a stored value is out of bounds. Its message is a sentence for the user."""
        if not self.low <= self.shown(value) <= self.high:
            raise ValueError(f"It has to be {self.range}.")

    def read(self, typed: object) -> float | int:
        """Parse typed text and return the value to store. A comma in a whole number separates thousands, in other
        numbers it is a decimal comma. Raises ValueError if it is no accepted number.
        """
        text = str(typed).strip().rstrip("%").strip() if isinstance(typed, str | int | float) else ""
        thousands = self.whole and _THOUSANDS.fullmatch(text)
        try:
            number = float(text.replace(",", "" if thousands else "."))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (self.whole and number != int(number)):
            raise ValueError(f"Give {self.range}.")
        # 95 % is kept as 0.95 and not as 0.9500000000000001.
        value = int(number) if self.whole else round(number / 100, 10) if self.is_share else number
        self.check(value)
        return value


def form_numbers(holder: object) -> Mapping[str, FormNumber]:
    """Return the FormNumber of each field of a dataclass or its instance, by field name."""
    kind: type = holder if isinstance(holder, type) else type(holder)
    return _form_numbers(kind)


@lru_cache
def _form_numbers(kind: type) -> Mapping[str, FormNumber]:
    hints = get_type_hints(kind, include_extras=True).items()
    extras = ((name, extra) for name, hint in hints for extra in getattr(hint, "__metadata__", ()))
    return {name: extra for name, extra in extras if isinstance(extra, FormNumber)}
