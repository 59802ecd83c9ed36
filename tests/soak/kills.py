"""Kill processes in the middle of their work, a thousand times, and report losses.

`python -m tests.soak.kills --kills 1000 --out docs/kills.md` kills ten kinds of work at random moments. A file counts
the kills, so the same command resumes a stopped program. After the report it begins anew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from core.words import count_of
from storage.damage import damage
from tests.support.killed_work import KINDS, KilledWork, Seen, Thing, child

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / "build" / "kills.json"
LIBRARIES = ("torch", "torchvision", "accelerate", "timm", "safetensors.torch")
"""Libraries that a training imports, which takes most of a process's time."""
PATIENCE = 300.0
"""Maximum number of seconds for a piece of work. Work that takes longer counts as a fault."""


@dataclass
class Counts:
    """Outcomes of the kills of one kind of work."""

    kills: int = 0
    acknowledged: int = 0
    """Number of acknowledgements by processes that were killed, or that finished the work of killed ones."""
    rounds: int = 0
    """Number of times the work was resumed to its end, and compared with the same work without kills."""
    seconds: float = 0.0
    told: dict[str, int] = field(default_factory=dict)
    """Number of times that unfinished work was reported, by the words of the report."""
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """All other faults, in one sentence each."""

    @property
    def faults(self) -> list[str]:
        return [*self.lost, *self.twice, *self.wrong]


@dataclass(frozen=True)
class Tried:
    """Result of a child process."""

    killed: bool
    """True if the child was killed in the middle of its work."""
    acknowledged: Sequence[Thing]
    seconds: float
    problem: str = ""
    """The child's own failure, or ""."""


def tried(kind: KilledWork, folder: Path, moment: float = PATIENCE) -> Tried:
    """Run the work in a child, and kill the child `moment` seconds after it began unless it has ended."""
    # A server process imports the modules once, and each child is a fork of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([child.__module__, *LIBRARIES])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(theirs, kind, folder))
    process.start()
    theirs.close()
    said: list[Any] = []
    began, is_killed = 0.0, False
    try:
        while True:
            now = time.monotonic()
            if began and not is_killed and now >= began + moment:
                process.kill()
                is_killed = True
            # Read on after the kill, up to the end of the child's messages.
            if ours.poll(PATIENCE if is_killed or not began else began + moment - now):
                said.append(ours.recv())
                began = began or time.monotonic()
    except (EOFError, OSError):  # the kill may cut a message
        pass
    process.join()
    ours.close()
    problem = next((one[1] for one in said if isinstance(one, list)), "")
    if not problem and "over" not in said and process.exitcode != -signal.SIGKILL:
        problem = f"The process ended with {process.exitcode}."
    killed = process.exitcode == -signal.SIGKILL and "begun" in said and "over" not in said and not problem
    if killed and moment == PATIENCE:
        problem = f"The work did not end within {PATIENCE:.0f} seconds."
    return Tried(killed, [one for one in said if isinstance(one, tuple)], time.monotonic() - began, problem)


class Kills:
    """Kills one kind of work until the number of kills is reached."""

    def __init__(self, kind: KilledWork, folder: Path, counts: Counts) -> None:
        self._kind, self._folder, self._counts = kind, folder, counts
        self._acknowledged: list[Thing] = []
        """Things that were acknowledged in the current round."""
        self._template, self._place = folder / "prepared", folder / "work"
        self._template.mkdir()
        kind.prepare(self._template)
        self._begin_anew()
        calm = tried(kind, self._place)
        if calm.problem:
            raise RuntimeError(f"{kind.name}, without a kill: {calm.problem}")
        self._seconds = calm.seconds
        self._result = kind.result(self._place)
        self._look(calm.acknowledged)
        self._begin_anew()

    def kill(self) -> None:
        """Run the work until a kill interrupts it. Work that finishes begins again."""
        fate = random.Random(f"{self._kind.name} {self._counts.kills}")
        while not self._go_on(fate.uniform(0, self._seconds)).killed:
            pass
        self._counts.kills += 1
        seen = self._look(self._acknowledged)
        self._counts.told[seen.told] = self._counts.told.get(seen.told, 0) + 1

    def finish(self) -> None:
        """Let the work run to its end."""
        self._go_on()

    def _go_on(self, moment: float = PATIENCE) -> Tried:
        done = tried(self._kind, self._place, moment)
        self._acknowledged += done.acknowledged
        self._counts.acknowledged += len(done.acknowledged)
        if done.problem:
            self._counts.wrong.append(done.problem)
        if done.problem or not done.killed:
            if not done.problem:
                self._look(self._acknowledged)
                if self._kind.result(self._place) != self._result:
                    self._counts.wrong.append("What came of it in the end is not what comes of it without a kill.")
                self._counts.rounds += 1
            self._begin_anew()
        return done

    def _look(self, acknowledged: Sequence[Thing]) -> Seen:
        try:
            seen = self._kind.look(self._place, acknowledged)
        except Exception:  # noqa: BLE001 - what cannot even be looked at stands in the report
            seen = Seen(acknowledged, wrong=[traceback.format_exc()], told="cannot be looked at")
        there = set(seen.things)
        self._counts.lost += [" ".join(thing) for thing in dict.fromkeys(acknowledged) if thing not in there]
        self._counts.twice += seen.twice
        self._counts.wrong += [*seen.wrong, *damage(self._place / "workspace")]
        return seen

    def _begin_anew(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(self._template, self._place)
        self._acknowledged = []


def report(found: dict[str, Counts], commit: str) -> str:
    """Return the report as Markdown."""
    kills, faults = sum(one.kills for one in found.values()), sum(len(one.faults) for one in found.values())
    lost, twice = (sum(len(getattr(one, name)) for one in found.values()) for name in ("lost", "twice"))
    seconds = sum(one.seconds for one in found.values())
    ending = f"{count_of(faults, 'fault')} in all, told below." if faults else "All else was as it should be."
    lines = [
        "# A thousand kills" if kills >= 1000 else "# Kills",
        "",
        f"Written by `python -m tests.soak.kills --kills {kills} --out docs/kills.md` on {date.today():%d %B %Y}, at "
        f"the commit {commit}, in {seconds / 60:.0f} minutes.",
        "",
        f"**{kills:,} processes were killed in the middle of their work. Of what was acknowledged, {lost or 'nothing'} "
        f"was lost and {twice or 'nothing'} is there twice.** {ending}",
        "",
        "Each process opens the workspace and works from where it stands. It says what the studio has acknowledged, "
        "and is killed (SIGKILL) at a random moment. Then the workspace is opened again: everything acknowledged has "
        "to be there once, unchanged; the database has to be whole; and unfinished work has to be reported. The next "
        "process continues. Finished work is compared with the same work without a kill, and begins again. A kill "
        "counts until the process has said that its work is over. Acknowledgements that a later process repeats are "
        "counted again.",
        "",
        "| work | kills | acknowledged | lost | twice | done and compared | after a kill | minutes |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for kind in KINDS:
        one = found[kind.name]
        told = ", ".join(f"{words}: {number}" for words, number in sorted(one.told.items()))
        cells = [kind.name, f"{one.kills:,}", f"{one.acknowledged:,}", len(one.lost), len(one.twice), one.rounds, told]
        lines.append("| " + " | ".join(map(str, [*cells, f"{one.seconds / 60:.1f}"])) + " |")
    lines += ["", "What the work is, and how the studio tells what is unfinished:", ""]
    lines += [f"- **{kind.name}**: {_sentence(kind)}" for kind in KINDS]
    lines += ["", "A kill ends a process, not the machine: this says nothing of a power failure.", ""]
    if faults:
        lines += ["## Faults", ""]
        lines += [f"- {name}: {' '.join(text.split())}" for name, one in found.items() for text in one.faults]
        lines.append("")
    return "\n".join(lines)


def _sentence(kind: KilledWork) -> str:
    return f"{(kind.__doc__ or '').strip()} Unfinished: {kind.told}."


def _commit() -> str:
    asked = ["git", "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _read(state: Path) -> dict[str, Counts]:
    held = json.loads(state.read_text(encoding="utf-8")) if state.exists() else {}
    return {kind.name: Counts(**held.get(kind.name, {})) for kind in KINDS}


def _write(state: Path, found: dict[str, Counts]) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    half = state.with_suffix(".half")
    half.write_text(json.dumps({name: asdict(one) for name, one in found.items()}, indent=1), encoding="utf-8")
    half.replace(state)


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, and write the report. Return 1 if anything was lost, duplicated or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="in all; each kind of work has its share (1000)")
    parser.add_argument("--out", type=Path, required=True, help="file for the report")
    parser.add_argument("--state", type=Path, default=STATE, help="file with the counts so far (build/kills.json)")
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    found = _read(options.state)
    for kind in KINDS:
        counts, wanted = found[kind.name], max(1, round(kind.share * options.kills))
        if counts.kills >= wanted:
            continue
        began, before = time.monotonic(), counts.seconds
        with tempfile.TemporaryDirectory() as folder:
            kills = Kills(kind, Path(folder), counts)
            while counts.kills < wanted:
                kills.kill()
                counts.seconds = before + time.monotonic() - began
                _write(options.state, found)
            kills.finish()
            counts.seconds = before + time.monotonic() - began
            _write(options.state, found)
        print(f"{kind.name}: {counts.kills} kills, {len(counts.faults)} faults", flush=True)
    options.out.write_text(report(found, _commit()), encoding="utf-8")
    options.state.unlink(missing_ok=True)  # the next run begins again
    return 1 if any(one.faults for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
