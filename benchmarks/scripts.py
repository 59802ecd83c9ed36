"""Time that a script waits for the reply of a fast endpoint, compared with the shortest possible time.

For the shortest possible time, `gradio_client` calls a function that does nothing in an empty Gradio application.
`python -m benchmarks.scripts` runs only this benchmark.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from gradio_client import Client

from benchmarks.figures import Figure, reported
from tests.support.server_process import ServerProcess

TIMES = 40
OVER_FLOOR = 1.2
"""Maximum time of `gradio_client` to call the studio, relative to its time to call a function that does nothing."""
PLAIN = 10
"""Maximum milliseconds of a plain HTTP request to the endpoint."""

_BARE = """
import sys, gradio as gr, uvicorn
from fastapi import FastAPI

app = FastAPI()

@app.get("/healthz")
def healthz() -> dict[str, str]:
    return {"status": "ok"}

def nothing(find: str = "") -> dict:
    return {"runs": [], "next": ""}

with gr.Blocks() as page:
    gr.api(nothing, queue=False, concurrency_limit=None)
port = int(sys.argv[sys.argv.index("--port") + 1])
uvicorn.run(gr.mount_gradio_app(app, page, path="/"), port=port, log_level="warning")
"""


def measure() -> list[Figure]:
    """Measure a call by `gradio_client` and a plain HTTP request, and return their figures."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        studio = ServerProcess(folder / "workspace", folder / "log").start()
        bare = ServerProcess(folder / "none", folder / "bare log", code=_BARE).start()
        try:
            return [_by_client(studio.url, bare.url), _by_plain_http(studio.url, bare.url)]
        finally:
            bare.stop()
            studio.stop()


def _by_client(studio: str, bare: str) -> Figure:
    ours, floor = Client(studio, verbose=False), Client(bare, verbose=False)
    times, floors = _in_turns(
        lambda: ours.predict(find="nothing", api_name="/list_runs"),
        lambda: floor.predict(find="nothing", api_name="/nothing"),
    )
    words = f"a call of a cheap endpoint by gradio_client: at most {OVER_FLOOR:g} times the client's own floor"
    return Figure(words, times, OVER_FLOOR * statistics.median(floors), floor=floors)


def _by_plain_http(studio: str, bare: str) -> Figure:
    with httpx.Client(timeout=60) as client:
        times, floors = _in_turns(
            lambda: client.post(f"{studio}gradio_api/run/list_runs", json={"data": ["x"]}).raise_for_status(),
            lambda: client.post(f"{bare}gradio_api/run/nothing", json={"data": ["x"]}).raise_for_status(),
        )
    return Figure("the same call by plain HTTP", times, PLAIN, floor=floors)


def _in_turns(asking: Callable[[], object], other: Callable[[], object]) -> tuple[tuple[float, ...], ...]:
    """Return the times in milliseconds of two functions, which are called alternately after a warm-up."""
    asking()
    other()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TIMES):
        for ask, taken in zip((asking, other), times, strict=True):
            start = time.perf_counter()
            ask()
            taken.append(1000 * (time.perf_counter() - start))
    return tuple(tuple(taken) for taken in times)


if __name__ == "__main__":
    raise SystemExit(reported(measure()))
