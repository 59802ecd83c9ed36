"""Small data sets and plans for batches, and a pool in this process that a test can hold back lot by lot."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from PIL import Image

from core.errors import UserError
from core.settings import CaptionSettings
from core.types import CounterfactualCaption, CounterfactualCaptions, Task, Trace
from services.batches.io_workers import Order
from services.batches.pools import HerePool, Pool, Returned
from services.batches.running import BatchRuns
from services.batches.work import Worker
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.scripted import ScriptedCaptioner, ScriptedModels
from tests.support.serving import until

NO_IDEA = "The captioner has no idea what this shows."


def pictures(root: Path, number: int = 3, broken: bool = False) -> Path:
    """Write a folder of one class with this number of pictures. `broken` adds a file that is no picture."""
    folder = root / "bird"
    folder.mkdir(parents=True)
    for place in range(number):
        Image.new("RGB", (64, 64), (40 * place % 256, 90, 200 - 20 * place)).save(folder / f"{place}.png")
    if broken:
        (folder / "broken.png").write_bytes(b"no picture")
    return root


def plan_text(root: Path, name: str = "Birds", more: str = "", captions: int = 2) -> str:
    """Return a plan for such a folder, with `captions` captions of each picture and an image of each caption."""
    return (
        f'name = "{name}"\n[data]\nroot = "{root}"\nlayout = "imagefolder"\n'
        '[task]\nkind = "classification"\n[make]\nprofile = "demo"\nsettings = { "generation.steps" = 3 }\n'
        f"[edits]\ncaptions_a_source = {captions}\n[images]\ntries = 1\n{more}"
    )


class Doubtful(ScriptedCaptioner):
    """Captioner that fails until the test sets `sure`."""

    sure = False

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        if not self.sure:
            raise UserError(NO_IDEA)
        return super().caption(image, task, settings, seed)


class Gate:
    """Gate that lets some or all lots of a server's batches through. `work_here` installs it."""

    def __init__(self, is_open: bool = True) -> None:
        self._through, self._open = threading.Semaphore(0), threading.Event()
        if is_open:
            self._open.set()

    def shut(self) -> None:
        """Let no lot through until `let` or `open`."""
        self._open.clear()

    def let(self, lots: int = 1) -> None:
        """Let `lots` lots through."""
        self._through.release(lots)

    def open(self) -> None:
        """Let all lots through."""
        self._open.set()
        self._through.release()

    def passes(self, seconds: float) -> bool:
        """Return True if the next lot may go through. Waits at most `seconds`, and never over 0.02 s."""
        return self._open.is_set() or self._through.acquire(timeout=min(seconds, 0.02))


class _GatedPool(HerePool):
    def __init__(self, order: Order, models: ScriptedModels, gate: Gate) -> None:
        super().__init__(order, lambda order: Worker(order, models))
        self._gate = gate

    def wait(self, seconds: float) -> Sequence[Returned]:
        return super().wait(seconds) if self.out() and self._gate.passes(seconds) else ()


def work_here(runs: BatchRuns, models: ScriptedModels | None = None) -> Gate:
    """Run batches in this process with stand-ins for the models. Return the gate, which is open."""
    gate, own = Gate(), models or ScriptedModels()

    def pool(order: Order) -> Pool:
        return _GatedPool(order, own, gate)

    runs.pool = pool
    return gate


def planned(studio: Studio, text: str) -> int:
    """Plan a batch from a plan's text. Return its number."""
    view = studio.commands.send("plan-any-batch", {"plan": text})
    done = studio.batches.planning.wait(view.id, 60)
    assert done.state == "done", done.error
    return int(done.result)


def comes_to(studio: Studio, number: int, state: str) -> None:
    """Wait until a batch has this state."""
    until(lambda: studio.batches.status(number).state == state)


def edited(workspace: Workspace, run: str, change: Callable[[list[CounterfactualCaption]], None]) -> None:
    """Change the captions of a run as a person does in Explore."""
    held = workspace.runs.get(run).values["counterfactuals"].value
    captions = list(held.value.items)
    change(captions)
    value = replace(held, value=CounterfactualCaptions(tuple(captions)), trace=Trace("person"))
    workspace.runs.append_value(run, "counterfactuals", value)


def batch_images(workspace: Workspace, batch: int) -> dict[str, str]:
    """Return the hash of each image that was drawn, by the key of its work."""
    query = """
        SELECT key, image FROM batch_work JOIN test_cases ON test_cases.id = test_case
        WHERE batch_work.batch = ? AND test_case IS NOT NULL
    """
    with closing(sqlite3.connect(workspace.folder / "studio.db")) as database:
        return dict(database.execute(query, [batch]).fetchall())
