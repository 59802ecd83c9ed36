"""An hour of use of all pages: checks that the studio's memory does not grow, and measures how busy the idle studio is.

The real studio serves the example workspace. Simulated people use every page at a human pace over HTTP, in Chromium, by
scripts and by MCP, and annotators vote. `python -m benchmarks.hour` runs this; `--minutes` shortens it for a trial.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from playwright.sync_api import Error as PlaywrightError

from benchmarks.figures import Comparison, reported
from benchmarks.people import PEOPLE, SECONDS, Person, Site, addresses, visitor
from benchmarks.study import prepared
from tests.support.browser import chromium_running, page_in
from tests.support.chromium import ADVICE, find_chromium
from tests.support.server_process import ROOT, ServerProcess

MINUTES = 60.0
FLAT = 1.1
"""Maximum memory in the last sixth of the time, relative to that in the second sixth."""
ALONE, OPEN = 0.5, 1.0
"""Maximum processor time of the idle studio in per cent of a core: with no page open, and with every page open."""
PAUSE = (1.0, 6.0)
"""Shortest and longest pause in seconds between two acts of a person."""
SAMPLE_SECONDS, QUIET_SECONDS, IDLE_SECONDS = 10.0, 30.0, 60.0
"""Seconds between two samples of the memory, seconds without use until the studio counts as idle, and seconds during
which the idle studio is measured."""
ITEMS, ANNOTATORS, VOTE_SECONDS = 600, 3, 10.0
"""Number of items and of annotators in the study that runs at the same time, and seconds that a vote takes."""
FAILURES = (httpx.HTTPError, PlaywrightError, ExceptionGroup, ValueError, LookupError, AssertionError)
"""Errors that occur if the studio refuses an act of a simulated person, or shows something unexpected."""
_MB = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """Memory and other resources of the studio at one moment."""

    minute: float
    tree: float
    """MB of the process and its children. Shared memory is divided among the processes that share it (PSS)."""
    own: float
    """MB that only the process itself uses (USS)."""
    threads: int
    files: int


@dataclass
class Use:
    """Acts of all simulated people: how often each was done, and the failures."""

    over: threading.Event = field(default_factory=threading.Event)
    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def act(self, who: str, round_of_acts: Iterator[str]) -> None:
        """Do one round of the person `who`, with pauses between acts. Stop early if the measurement ends."""
        try:
            for act in round_of_acts:
                self.done[act] += 1
                if self.over.wait(random.uniform(*PAUSE)):
                    return
        except FAILURES as error:  # reported at the end; the hour continues
            self.failed.append(f"{who}: {type(error).__name__}: {error}"[:500])
            print(self.failed[-1], flush=True)
            self.over.wait(PAUSE[1])

    def again_and_again(self, person: Person, site: Site) -> None:
        """Repeat the actions of one simulated person until the measurement ends."""
        while not self.over.is_set():
            self.act(person.__name__, person(site))


def measure(chromium: str, minutes: float = MINUTES, example: Path | None = None) -> list[Comparison]:
    """Measure one server and return the figures. `example` is a workspace with the example. If None, one is made."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as ends:
        folder = Path(place)
        workspace = folder / "workspace"
        if example is None:
            subprocess.run(
                [sys.executable, "-m", "experiments.example", "--workspace", workspace], cwd=ROOT, check=True
            )
        else:
            shutil.copytree(example, workspace)
        study, link = prepared(workspace, ITEMS)
        server = ServerProcess(workspace, folder / "log", arguments=("--mcp",)).start()
        ends.callback(server.stop)
        os.nice(9)  # people and their browser must not slow down the studio
        assert server.process is not None
        process, use = psutil.Process(server.process.pid), Use()
        samples = _used(chromium, process, server.url, (study, link), minutes, use)
        figures = [_flat(samples, minutes)]
        time.sleep(QUIET_SECONDS)
        figures += _idle(process, workspace, "nobody there", ALONE)
        with chromium_running(chromium) as browser, page_in(browser) as first:
            opened = addresses(Site(server.url, study))
            for address in opened:
                first.context.new_page().goto(address)
            time.sleep(QUIET_SECONDS)
            figures += _idle(process, workspace, f"{len(opened)} pages open, all in sight", OPEN)
    acts = ", ".join(f"{act} {count}" for act, count in use.done.most_common())
    print(f"{use.done.total():,} acts: {acts}", flush=True)
    refused = Comparison("acts that failed", (float(len(use.failed)),), most=0.0, words="; ".join(use.failed[:3]))
    return [*figures, refused]


def _used(
    chromium: str, process: psutil.Process, url: str, study: tuple[str, str], minutes: float, use: Use
) -> list[Sample]:
    """Let all simulated people use the studio for `minutes`. Return samples of its memory in this time."""
    study_id, link = study
    voting = [sys.executable, "-m", "study", "simulate", "--url", url, "--link", link, "--minutes", str(minutes)]
    voting += ["--workers", str(ANNOTATORS), "--seconds", str(VOTE_SECONDS)]
    samples = list[Sample]()
    threads = [
        threading.Thread(target=use.again_and_again, args=(person, Site(url, study_id)), name=person.__name__)
        for person in PEOPLE
    ]
    threads.append(threading.Thread(target=_watched, args=(process, minutes, use, samples)))
    annotators = subprocess.Popen(voting, cwd=ROOT)
    try:
        for thread in threads:
            thread.start()
        with chromium_running(chromium) as browser, page_in(browser) as page:
            site = Site(url, study_id)
            while not use.over.is_set():
                use.act(visitor.__name__, visitor(page, site))
        for thread in threads:
            thread.join()
        if annotators.wait(SECONDS):
            use.failed.append("an annotator failed")
    finally:
        use.over.set()
        annotators.kill()
    return samples


def _watched(process: psutil.Process, minutes: float, use: Use, samples: list[Sample]) -> None:
    """Append memory samples for `minutes`, and print one per minute. Then tell all simulated people to stop."""
    began, next_report = time.monotonic(), 0.0
    while (minute := (time.monotonic() - began) / 60) < minutes and not use.over.wait(SAMPLE_SECONDS):
        samples.append(one := sampled(process, minute))
        if minute >= next_report:
            next_report = int(minute) + 1
            print(
                f"minute {minute:.0f}: {one.tree:.0f} MB, {one.own:.0f} MB of its own, {one.threads} threads, "
                f"{one.files} files; {use.done.total():,} acts, {len(use.failed)} failed",
                flush=True,
            )
    use.over.set()


def sampled(process: psutil.Process, minute: float) -> Sample:
    """Return the resources of a process and its children."""
    memory, tree = process.memory_full_info(), 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it may have ended in the meantime
            tree += one.memory_full_info().pss
    return Sample(minute, tree / _MB, memory.uss / _MB, process.num_threads(), process.num_fds())


def _flat(samples: Sequence[Sample], minutes: float) -> Comparison:
    """Return the memory in the last sixth of the time relative to that in the second sixth."""
    sixth = minutes / 6
    early = [one for one in samples if sixth <= one.minute < 2 * sixth]
    late = [one for one in samples if one.minute >= minutes - sixth]

    def mean(some: Sequence[Sample], name: str) -> float:
        return statistics.fmean(getattr(one, name) for one in some)

    words = "; ".join(
        f"{what} {mean(early, name):.0f}, then {mean(late, name):.0f}"
        for what, name in (
            ("MB of all its processes", "tree"),
            ("MB of its own", "own"),
            ("threads", "threads"),
            ("open files", "files"),
        )
    )
    what = f"memory, minutes {minutes - sixth:.0f} to {minutes:.0f} by minutes {sixth:.0f} to {2 * sixth:.0f}"
    return Comparison(what, (mean(late, "tree") / mean(early, "tree"),), most=FLAT, words=words)


def _idle(process: psutil.Process, workspace: Path, what: str, most: float) -> list[Comparison]:
    """Measure how much of a core an idle studio takes, and how many files it writes into its workspace."""
    files, seconds, began = _files(workspace), _cpu_seconds(process), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = 100 * (_cpu_seconds(process) - seconds) / (time.monotonic() - began)
    written = sorted(path for path, _ in set(_files(workspace).items()) - set(files.items()))
    return [
        Comparison(f"idle, {what}: hundredths of a core", (share,), most=most),
        Comparison(f"idle, {what}: files written", (float(len(written)),), most=0.0, words=", ".join(written[:9])),
    ]


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of all files below a folder, by path."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # it may be gone by now
            if path.is_file():
                found[str(path.relative_to(folder))] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of a process and its children, including those that ended."""
    times = [process.cpu_times(), *(one.cpu_times() for one in process.children(recursive=True))]
    ended = times[0].children_user + times[0].children_system
    return float(sum(one.user + one.system for one in times) + ended)


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hour", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"of use ({MINUTES:.0f})")
    parser.add_argument("--example", type=Path, help="a workspace with the example; it is copied, not made again")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE, file=sys.stderr)
        return 2
    figures = measure(chromium, options.minutes, options.example)
    return reported(figures, f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    raise SystemExit(main())
