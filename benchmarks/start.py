"""CPU seconds to start the studio, relative to a process that only imports the same libraries."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.figures import Comparison
from tests.support.server_process import ServerProcess

TIMES = 3
FIRST, WHOLE = 0.6, 2.0
"""Maximum CPU time until annotators are served, and until all pages are served. 1 is the time of the imports."""
_LIBRARIES = "import gradio, numpy, PIL, pydantic, sqlite_utils"


def measure() -> list[Comparison]:
    """Measure starts of the studio, until annotators are served and until all pages are served."""
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(TIMES):
        libraries = _imports()
        for whole in ratios:
            ratios[whole].append(_start(whole) / libraries)
    words = "CPU seconds of a start until {} are served, by those of importing Gradio, NumPy, Pillow, pydantic"
    return [
        Comparison(words.format("annotators"), tuple(ratios[False]), most=FIRST),
        Comparison(words.format("all pages"), tuple(ratios[True]), most=WHOLE),
    ]


def _imports() -> float:
    code = f"{_LIBRARIES}\nprint(flush=True)\ninput()"
    process = psutil.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    seconds = _seconds(process)
    process.communicate(b"\n")
    return seconds


def _start(whole: bool) -> float:
    with tempfile.TemporaryDirectory() as place:
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start(whole=whole)
        try:
            assert server.process is not None
            return _seconds(psutil.Process(server.process.pid))
        finally:
            server.stop()


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
