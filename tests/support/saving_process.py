"""A process that saves until it is killed: `python -m tests.support.saving_process WORKSPACE HOW`."""

from __future__ import annotations

import os
import signal
import sys

from PIL import Image

import pipeline.recipes  # noqa: F401 - says what the value of a stage is
from core.lineage import TestCase
from core.types import Caption, StageValue, Task, Trace
from storage import images
from storage.workspace import Workspace
from tests.support.cases import made_case


def case(number: int) -> TestCase:
    noise = Image.frombytes("RGB", (64, 64), os.urandom(64 * 64 * 3))
    edges = Image.new("L", (64, 64), number % 256)
    return made_case(noise, edges, seed=number)


def victim(folder: str, how: str) -> None:
    """Save without end, and print a line after each saved value."""
    workspace = Workspace(folder).open()
    run_id = workspace.runs.create(Image.new("RGB", (8, 8)), Task("classification", "bird"), "demo", how, {})
    job = workspace.jobs.start(run_id, 10_000)
    print(run_id, flush=True)
    for number in range(10_000):
        case_id = workspace.test_cases.append(run_id, job, case(number))
        value_id = workspace.runs.append_value(
            run_id, "caption", StageValue(Caption(str(number)), Trace("person"), "k")
        )
        print(case_id, value_id, flush=True)
        if number == 2 and how == "in the file":
            os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        if number == 2 and how == "before the row":
            images.sync_folder = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        if how == "waits":
            sys.stdin.read()


if __name__ == "__main__":
    victim(*sys.argv[1:])
