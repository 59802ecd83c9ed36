"""Time until a vote is acknowledged while a hundred annotators vote. The time is measured again while seven open pages
of the study lead are also updated. No vote may be lost or stored twice.

The simulated annotators use a server over HTTP, on the same machine. Each annotator looks at a picture of 512 pixels
for about four seconds, votes, and gets another picture. `python -m benchmarks.study` runs only this benchmark.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from benchmarks.figures import Figure, reported
from core.studies import ControlPolicy, Eligibility, NewItem
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace
from tests.support.server_process import ROOT, ServerProcess

ANNOTATORS, SECONDS, MINUTES = 100, 4.0, 10.0
BOUND, WATCHED_BOUND = 250.0, 100.0
"""Maximum milliseconds until a vote is acknowledged, for 95 % of the votes: with annotators alone, and with the lead's
pages open too."""
WATCHED_MINUTES = 1.0
PAGES = (*("live?view=results",) * 3, *("live?view=workers",) * 2, *("progress?",) * 2)
"""Addresses that the lead's open pages request every `PAGE_SECONDS`."""
PAGE_SECONDS = 4.0
PICTURES, SIDE = 400, 512


def measure(minutes: float = MINUTES, annotators: int = ANNOTATORS) -> list[Figure]:
    """Measure both studies, and return two figures. Raises AssertionError if a vote is lost or stored twice."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # A fifth more than they can judge, so that nobody finishes before the time is over.
        items = int(1.2 * annotators * 60 * (minutes + WATCHED_MINUTES) / SECONDS / 5) + 10 * annotators
        study_id, link = prepared(folder / "workspace", items)
        server = ServerProcess(folder / "workspace", folder / "log").start()
        journals = [folder / "votes.jsonl", folder / "watched.jsonl"]
        try:
            seconds_alone = annotated(server.url, link, journals[0], minutes, annotators)
            with pages_open(server.url, study_id) as looks:
                watched = annotated(server.url, link, journals[1], WATCHED_MINUTES, annotators)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{server.said()[-4000:]}") from error
        finally:
            server.stop()
        look_at(folder / "workspace", study_id, [vote for journal in journals for vote in votes_in(journal)])
    words = (
        f"a vote acknowledged, {annotators} annotators at once for {minutes:g} minutes, {len(seconds_alone):,} votes "
        f"({len(seconds_alone) / 60 / minutes:.0f} a second), none lost, none doubled"
    )
    more = f"the same with {len(PAGES)} pages of the study open, {sum(looks)} looks, {len(watched):,} votes"
    return [
        Figure(words, tuple(1000 * each for each in seconds_alone), BOUND, share=0.95),
        Figure(more, tuple(1000 * each for each in watched), WATCHED_BOUND, share=0.95),
    ]


@contextmanager
def pages_open(url: str, study_id: str) -> Iterator[list[int]]:
    """Request updates as a study lead's open pages do, until the context ends. Yield each page's number of requests."""
    over, looks = threading.Event(), [0] * len(PAGES)

    def follow(number: int, path: str) -> None:
        revision = ""
        with httpx.Client(base_url=f"{url}study/api/{study_id}/", timeout=60) as client:
            while not over.wait(PAGE_SECONDS):
                reply = client.get(f"{path}&revision={revision}").raise_for_status().json()
                revision = reply.get("revision", revision)
                looks[number] += 1

    with ThreadPoolExecutor(len(PAGES)) as pages:
        following = [pages.submit(follow, *one) for one in enumerate(PAGES)]
        try:
            yield looks
        finally:
            over.set()
    for one in following:
        one.result()


def prepared(folder: Path, items: int) -> tuple[str, str]:
    """Make a running study with an open invitation, and return the study's id and the invitation's token."""
    with Workspace(folder) as workspace:
        studies = workspace.studies
        rules = replace(
            TEMPLATES["classification"].rules(),
            eligibility=Eligibility(0.0, 0),
            controls=ControlPolicy(0.1, 100, 0.0),
        )
        study_id = studies.create("Load", rules)
        shas = [workspace.images.add(picture(number)) for number in range(PICTURES)]
        new = [NewItem(shas[number % PICTURES], label="bird") for number in range(items)]
        controls = [NewItem(sha, kind="control", label="bird", expected={"valid": "yes"}) for sha in shas]
        studies.add_items(study_id, [*new, *controls])
        studies.start(study_id)
        return study_id, studies.set_link(study_id, True)


def picture(number: int) -> Image.Image:
    """Return a picture with smooth and rough parts, so that its PNG file is about as large as a photograph's."""
    drawn = random.Random(number)
    coarse = Image.frombytes("RGB", (48, 48), drawn.randbytes(48 * 48 * 3))
    smooth = coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return Image.blend(smooth, Image.effect_noise((SIDE, SIDE), 30).convert("RGB"), 0.1)


def annotated(url: str, link: str, journal: Path, minutes: float, annotators: int) -> list[float]:
    """Run the simulated annotators. Return the seconds until each vote was acknowledged."""
    command = [sys.executable, "-m", "study", "simulate", "--url", url, "--link", link, "--workers", str(annotators)]
    command += ["--seconds", str(SECONDS), "--minutes", str(minutes), "--journal", str(journal)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 * minutes + 300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [float(vote["seconds"]) for vote in votes_in(journal)]


def votes_in(journal: Path) -> list[dict[str, Any]]:
    """Return the acknowledged votes in the annotators' journal."""
    return [json.loads(line) for line in io.StringIO(journal.read_text(encoding="utf-8"))]


def look_at(folder: Path, study_id: str, acknowledged: Sequence[Mapping[str, Any]]) -> None:
    """Raise AssertionError unless every acknowledged vote is stored exactly once."""
    with Workspace(folder) as workspace:
        data = workspace.studies.data(study_id)
        for vote in acknowledged:
            stored = workspace.studies.assignments.get(str(vote["assignment"]))
            assert stored is not None and stored.state == "submitted", "a vote is lost"
            assert dict(stored.answers) == vote["answers"], "a vote is another one"
    assert len({vote["assignment"] for vote in acknowledged}) == len(acknowledged), "a vote was acknowledged twice"
    assert len({(vote.item, vote.worker) for vote in data.votes}) == len(data.votes), "a worker voted twice on an item"
    # Votes that were on their way at the end may be saved without a reply.
    assert len(acknowledged) <= len(data.votes) <= len(acknowledged) + 2 * ANNOTATORS
    votes = Counter(vote.item for vote in data.votes if vote.kind == "item")
    assert max(votes.values()) <= data.study.rules.votes, "an item has too many votes"


def main() -> int:
    """Measure and print the figures. Return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--annotators", type=int, default=ANNOTATORS)
    options = parser.parse_args()
    began = time.monotonic()
    figures = measure(options.minutes, options.annotators)
    took = f"{time.monotonic() - began:.0f} s in all"
    return reported(figures, f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, {took}")


if __name__ == "__main__":
    raise SystemExit(main())
