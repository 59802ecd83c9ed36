"""A measurement that can resume: it stores a JSON line for each measured thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

Thing = TypeVar("Thing")


def measure_each(
    things: Mapping[tuple[Any, ...], Thing],
    measure: Callable[[Thing], dict[str, Any]],
    results: Path | None,
    key: tuple[str, ...] = ("number",),
) -> list[dict[str, Any]]:
    """Measure each thing that has no line in the file `results`, and append a line for it. Return all lines.

    `key` names the fields of a line that make up the thing's key in `things`. Without a file, nothing is stored.
    """
    written = results.read_text(encoding="utf-8").splitlines() if results is not None and results.exists() else []
    lines = [json.loads(line) for line in written]
    measured = {tuple(line[field] for field in key) for line in lines}
    for own, thing in tqdm([item for item in things.items() if item[0] not in measured], mininterval=10):
        line = measure(thing)
        assert tuple(line[field] for field in key) == own
        lines.append(line)
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    return lines
