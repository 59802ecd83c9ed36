"""A batch whose processes are killed at random, and what is left of it in the end.

`python -m tests.support.batch_kills --images 200 --kills 40` is the long one; a test does it shortly.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from PIL import Image

from demo.render import render
from demo.scene import random_scene
from storage.workspace import Workspace
from tests.support.batch_cases import batch_images

PATIENCE = 300.0
"""Seconds until a batch that does not move is given up."""


@dataclass(frozen=True)
class Made:
    """What a batch has made."""

    images: dict[str, str]
    """The hash of each image by the key of its work."""
    test_cases: int
    """All that there are in the workspace."""
    states: dict[str, int]
    """How much work is in each state."""


def drawn_data(root: Path, sources: int, pixels: int = 64) -> None:
    """An image folder of drawn things, a folder a class."""
    for number in range(sources):
        scene = random_scene(777_000 + number, "object")
        folder = root / "test" / scene.label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, pixels)[0]).save(folder / f"{number:05d}.png")


def plan_file(folder: Path, data: Path, captions: int = 2, steps: int = 4, more: str = "") -> Path:
    """A plan for it."""
    file = folder / "plan.toml"
    file.write_text(
        f'name = "Drawn things"\n[data]\nroot = "{data}"\nlayout = "imagefolder"\nsplit = "test"\n'
        '[task]\nkind = "classification"\n'
        f'[make]\nprofile = "demo"\nsettings = {{ "generation.steps" = {steps} }}\n'
        f"[edits]\ncaptions_a_source = {captions}\n{more}",
        encoding="utf-8",
    )
    return file


def command(workspace: Path, *arguments: object) -> list[str]:
    """One command of the command line."""
    given = ["-m", "pipeline", "batch", "--workspace", str(workspace), *map(str, arguments)]
    return [sys.executable, *given]


def run(workspace: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The same, waited for."""
    return subprocess.run(command(workspace, *arguments), capture_output=True, text=True, check=False)


def made(workspace: Path) -> Made:
    """What is there now."""
    with Workspace(workspace) as held:
        counts = held.batches.counts(1)
        states = Counter[str]()
        for one in counts.values():
            states.update({state: counted.number for state, counted in one.items()})
        cases = sum(len(held.runs.get(run.id).test_cases) for run in held.runs.search(10_000))
        return Made(dict(batch_images(held, 1)), cases, dict(states))


def with_kills(workspace: Path, plan: Path, kills: int, workers: int = 2, seed: int = 1) -> Iterator[str]:
    """Run a plan to its end, with workers, the process that drives them, or all of them killed at random so often.
    Yields what was done.
    """
    fate, left = random.Random(seed), kills
    while True:
        with open(workspace.parent / "run.log", "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command(workspace, "run", plan, "--yes", "--workers", workers), stdout=log, stderr=log
            )
        moved = _progress(workspace)
        while process.poll() is None:
            further = fate.choice((0, 1, 1, 3)) if left else sys.maxsize
            moved = _moved(workspace, process, moved, further)
            if process.poll() is not None or not left:
                continue
            left -= 1
            yield _kill(process, fate)
        if process.returncode == 3:
            again = run(workspace, "retry-failed", plan)
            yield f"tried again: {again.stdout.strip()}"
        elif process.returncode == 0:
            return
        elif process.returncode > 0:
            raise AssertionError((workspace.parent / "run.log").read_text(encoding="utf-8")[-4000:])


def _kill(process: subprocess.Popen[bytes], fate: random.Random) -> str:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return "nobody: it had just ended"
    workers = [child for child in children if "resource_tracker" not in " ".join(_words(child))]
    what = fate.choice(("a worker", "a worker", "the driver", "all"))
    victims = {"a worker": workers and [fate.choice(workers)], "the driver": [], "all": workers}[what]
    for victim in victims or ():
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            continue
    if what != "a worker":
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return what


def _words(child: psutil.Process) -> list[str]:
    try:
        return list(child.cmdline())
    except psutil.Error:
        return []


def _progress(workspace: Path) -> int:
    if not (workspace / "studio.db").exists():
        return 0
    with Workspace(workspace) as held:
        if not held.batches.all():
            return 0
        counts = held.batches.counts(1)
    return sum(one.number for states in counts.values() for state, one in states.items() if state == "done")


def _moved(workspace: Path, process: subprocess.Popen[bytes], before: int, further: int) -> int:
    """Wait until so much more is done, or it has ended; what is done then."""
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        now = _progress(workspace)
        if now >= before + further:
            return now
        assert time.monotonic() - began < PATIENCE or further == sys.maxsize, "the batch does not move"
    return _progress(workspace)


def main() -> int:
    """Compare a batch that was killed with one that was not."""
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
            with_kills(folder / "killed" / "workspace", plan, options.kills, seed=options.seed), 1
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
