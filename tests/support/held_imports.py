"""Imports of uploads that wait in the middle until a test lets them continue."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.curation.imports import ImportService


@dataclass(frozen=True)
class Held:
    """Gate for an import that has a number, and has saved nothing else."""

    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


def hold_imports(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Hold back each import that begins from now on."""
    gate, tell = Held(), ImportService._tell

    def report(self: ImportService, **changes: Any) -> None:
        tell(self, **changes)
        if "number" in changes:
            gate.reached.set()
            assert gate.go_on.wait(300)

    monkeypatch.setattr(ImportService, "_tell", report)
    return gate
