"""The two thresholds of a check. Below `failed_below` it fails. From `passed_from` on it passes. Else it is unsure."""

from __future__ import annotations

from pydantic import model_validator

from core.types import Check, Data


class Band(Data):
    """The two thresholds of one check. They depend on the model that measures, so each profile has its own."""

    failed_below: float
    passed_from: float

    @model_validator(mode="after")
    def _ordered(self) -> Band:
        if self.failed_below > self.passed_from:
            raise ValueError("failed_below is above passed_from")
        return self

    def judge(self, name: str, value: float, failure: str) -> Check:
        """Return the check with this figure, judged by the thresholds. `failure` is the note of a failed check."""
        if value >= self.passed_from:
            return Check(name, True, value, threshold=self.passed_from)
        if value < self.failed_below:
            return Check(name, False, value, failure, self.passed_from)
        note = f"Below {self.failed_below:.2f} it fails, from {self.passed_from:.2f} on it passes: here images differ."
        return Check(name, None, value, note, self.passed_from)
