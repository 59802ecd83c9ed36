"""Run a batch whose processes are killed at random, and compare its results with an undisturbed batch.

`python -m tests.support.batch_kills --images 200 --kills 40` is the long form. A test runs a short one.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
from PIL import Image

from cli.pipeline import main as main_of_pipeline
from demo.render import render
from demo.scene import random_scene
from storage.workspace import Workspace
from tests.support.batch_cases import batch_images

PATIENCE = 300.0
"""Maximum number of seconds without progress before a batch counts as stuck."""
Victim = Literal["a worker", "the driver", "all"]


@dataclass(frozen=True)
class Kill:
    """A kill of some of a batch's processes."""

    victim: Victim
    after: int
    """Number of work items to finish after the kill before."""


@dataclass(frozen=True)
class Made:
    """Results of a batch."""

    images: dict[str, str]
    """Hash of each image by the key of its work."""
    test_cases: int
    """Number of test cases in the workspace."""
    states: dict[str, int]
    """Number of work items in each state."""


def drawn_data(root: Path, sources: int, pixels: int = 64) -> None:
    """Write an image folder of drawn objects, with a folder for each class."""
    for number in range(sources):
        scene = random_scene(777_000 + number, "object")
        folder = root / "test" / scene.label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, pixels)[0]).save(folder / f"{number:05d}.png")


def plan_file(
    folder: Path, data: Path, captions: int = 2, steps: int = 4, more: str = "", together: int | None = None
) -> Path:
    """Write a plan for the data. `together` sets the number of images drawn in one call of the generator."""
    file = folder / "plan.toml"
    settings = f'"generation.steps" = {steps}' + (f', "generation.batch" = {together}' if together else "")
    file.write_text(
        f'name = "Drawn things"\n[data]\nroot = "{data}"\nlayout = "imagefolder"\nsplit = "test"\n'
        '[task]\nkind = "classification"\n'
        f'[make]\nprofile = "demo"\nsettings = {{ {settings} }}\n'
        f"[edits]\ncaptions_a_source = {captions}\n{more}",
        encoding="utf-8",
    )
    return file


def command(workspace: Path, *arguments: object) -> list[str]:
    """Return the arguments that run a command of the command line."""
    parts = ["-m", "pipeline", "batch", "--workspace", str(workspace), *map(str, arguments)]
    return [sys.executable, *parts]


def run(workspace: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the command line, and wait until it ends."""
    return subprocess.run(command(workspace, *arguments), capture_output=True, text=True, check=False)


def run_here(workspace: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command within this process. Workers are still processes, unless a test replaces their pool."""
    command_line = ["batch", "--workspace", str(workspace), *map(str, arguments)]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main_of_pipeline(command_line)
    return subprocess.CompletedProcess(command_line, code, out.getvalue(), err.getvalue())


def made(workspace: Path) -> Made:
    """Return the present results of the batch in a workspace."""
    with Workspace(workspace) as opened:
        counts = opened.batches.counts(1)
        states = Counter[str]()
        for one in counts.values():
            states.update({state: counted.number for state, counted in one.items()})
        cases = sum(len(opened.runs.get(run.id).test_cases) for run in opened.runs.search(10_000))
        return Made(dict(batch_images(opened, 1)), cases, dict(states))


def random_kills(number: int, seed: int = 1) -> list[Kill]:
    """Return random kills of a worker, the driver or all processes. Most are of a worker."""
    fate = random.Random(seed)
    victims: tuple[Victim, ...] = ("a worker", "a worker", "the driver", "all")
    return [Kill(fate.choice(victims), fate.choice((0, 1, 1, 3))) for _ in range(number)]


def with_kills(workspace: Path, plan: Path, kills: Iterable[Kill], workers: int = 2) -> Iterator[str]:
    """Run a plan to its end, and kill some of its processes on the way. Yield a description of each step."""
    fate, left = random.Random(1), list(kills)
    while True:
        moved = _progress(workspace)
        with open(workspace.parent / "run.log", "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command(workspace, "run", plan, "--yes", "--workers", workers), stdout=log, stderr=log
            )
        while left and process.poll() is None:
            moved = wait_for_pieces(workspace, process, moved + left[0].after)
            if process.poll() is None:
                yield _kill(process, left.pop(0).victim, fate)
        process.wait()
        if process.returncode == 3:
            again = run(workspace, "retry-failed", plan)
            yield f"tried again: {again.stdout.strip()}"
        elif process.returncode == 0:
            return
        elif process.returncode > 0:
            raise AssertionError((workspace.parent / "run.log").read_text(encoding="utf-8")[-4000:])


def _kill(process: subprocess.Popen[bytes], victim: Victim, fate: random.Random) -> str:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return "nobody: it had just ended"
    workers = [child for child in children if "resource_tracker" not in " ".join(_words(child))]
    chosen = {"a worker": workers and [fate.choice(workers)], "the driver": [], "all": workers}[victim]
    for one in chosen or ():
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    if victim != "a worker":
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return victim


def _words(child: psutil.Process) -> list[str]:
    try:
        return list(child.cmdline())
    except psutil.Error:
        return []


def _progress(workspace: Path) -> int:
    """Return the number of finished work items."""
    if not (workspace / "studio.db").exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{workspace / 'studio.db'}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM batch_work WHERE state = 'done'").fetchone()[0])
    except sqlite3.OperationalError:  # the tables are being created, or another process writes
        return 0


def wait_for_pieces(workspace: Path, process: subprocess.Popen[bytes], until: int) -> int:
    """Wait until the process has ended, or `least` work items are done. Return the number done."""
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(0.03)
        if (now := _progress(workspace)) >= until:
            return now
        assert time.monotonic() - began < PATIENCE, "the batch does not move"
    return _progress(workspace)


def main() -> int:
    """Compare a batch with kills to one without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drawn_data(folder / "data", options.images // 2)
        plan = plan_file(folder, folder / "data")
        (folder / "calm").mkdir()
        (folder / "killed").mkdir()
        whole = run(folder / "calm" / "workspace", "run", plan, "--yes", "--workers", 1)
        assert whole.returncode == 0, whole.stderr
        for number, what in enumerate(
            with_kills(folder / "killed" / "workspace", plan, random_kills(options.kills, options.seed)), 1
        ):
            print(f"{number}: {what}", flush=True)
        calm, killed = made(folder / "calm" / "workspace"), made(folder / "killed" / "workspace")
    print(f"{len(calm.images)} images without a kill, {len(killed.images)} with; test cases {killed.test_cases}")
    print(f"states {killed.states}")
    same = sum(killed.images.get(key) == sha for key, sha in calm.images.items())
    print(f"{same} have the same pixels")
    return 0 if calm.images == killed.images and killed.test_cases == len(calm.images) else 1


if __name__ == "__main__":
    raise SystemExit(main())
