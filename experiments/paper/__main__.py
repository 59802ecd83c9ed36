"""Answer the paper's three research questions on drawn scenes, and write a report: `python -m experiments.paper`.

`--small` shows in a minute or two that every part works. The work folder keeps all results, so that a stopped run can
resume. It also keeps a copy of `goals.toml`, which states the results that the studio should reach.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

from core.errors import UserError
from experiments.paper import making, report, world
from experiments.paper.breaking import breaking
from experiments.paper.goals import GOALS, Results, Stated, commit_of, stated
from experiments.paper.prioritising import prioritising
from experiments.paper.reading import Read, read
from experiments.paper.retraining import Parts, Retraining, retraining
from experiments.paper.size import FAMILIES, FULL, SMALL, Family, Size
from experiments.paper.under_test import under_test
from experiments.paper.validity import validity

ROOT = Path(__file__).resolve().parent.parent.parent
REPORT = ROOT / "docs" / "paper-demo.md"
SHOWN = 4
"""Number of sources per task that the report shows, each with its first test cases."""
WRONG, INTERRUPTED = 2, 130
_SIZE, _MINUTES, _COMMIT = "size.json", "minutes.json", "goals-commit.txt"
T = TypeVar("T")


class Work:
    """The folder of a run: results and times of its stages, which a resumed run reuses."""

    def __init__(self, folder: Path, size: Size) -> None:
        """Open or create the folder. Raises UserError if it holds a run of another size."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, about = folder, folder / _SIZE
        plain = json.dumps(asdict(size), indent=2) + "\n"
        if about.exists() and about.read_text(encoding="utf-8") != plain:
            raise UserError(f"{folder} holds a run of another size: remove it, or choose another folder with --work.")
        if not about.exists():
            (folder / _COMMIT).write_text(commit_of(GOALS), encoding="utf-8")
            (folder / GOALS.name).write_bytes(GOALS.read_bytes())
            about.write_text(plain, encoding="utf-8")

    @property
    def goals(self) -> Stated:
        """Goals of the run, as they were in the repository when it began."""
        text = (self.folder / GOALS.name).read_text(encoding="utf-8")
        return stated(text, (self.folder / _COMMIT).read_text(encoding="utf-8"))

    def kept(self, stage: str, name: str, do: Callable[[], T]) -> T:
        """Return the stored result of the step `name`. Without one, compute it with `do` and store it."""
        file = self.folder / f"{name}.pickle"
        if not file.exists():
            print(f"{stage}: {name}", flush=True)
            with self._timed(stage):
                half = file.with_suffix(".half")
                half.write_bytes(pickle.dumps(do()))
                half.replace(file)
        result: T = pickle.loads(file.read_bytes())
        return result

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:  # the time of a stopped step counts too
            took = self.minutes
            took[stage] = took.get(stage, 0.0) + (time.monotonic() - began) / 60
            (self.folder / _MINUTES).write_text(json.dumps(took, indent=2) + "\n", encoding="utf-8")

    @property
    def minutes(self) -> dict[str, float]:
        """Minutes spent so far, by stage."""
        file = self.folder / _MINUTES
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def results(work: Work, size: Size) -> tuple[Results, dict[Family, Read]]:
    """Compute all results. Also return, by task (family), the predictions and the true validity of the images."""
    data = {family: work.folder / "data" / family for family in FAMILIES}

    def made_of(family: Family) -> tuple[making.Made, ...]:
        world.write_data(work.folder / "data", family, size)
        return making.make(family, data[family], work.folder, size)

    made = {one: work.kept("making", f"{one}-made", partial(made_of, one)) for one in FAMILIES}
    weights = {
        one: work.kept(
            "training", f"{one}-under-test", partial(under_test, one, work.folder / "under-test" / one, size)
        )
        for one in FAMILIES
    }
    found = {
        one: work.kept("reading", f"{one}-read", partial(read, one, weights[one], data[one], made[one], size.workers))
        for one in FAMILIES
    }
    valid = {one: work.kept("figures", f"{one}-validity", partial(validity, found[one], size)) for one in FAMILIES}
    broken = {one: work.kept("figures", f"{one}-breaking", partial(breaking, found[one])) for one in FAMILIES}
    ranked = work.kept("figures", "prioritising", partial(prioritising, found["object"], size))

    def retrained(family: Family) -> Retraining:
        parts = Parts(found[family], data[family], world.write_shift(work.folder / "data", family, size))
        return retraining(parts, size, work.folder / "retraining", size.workers)

    trained = {one: work.kept("retraining", f"{one}-retraining", partial(retrained, one)) for one in FAMILIES}
    counts = {one: Counter(Counter(case.source for case in found[one].cases).values()) for one in FAMILIES}
    return Results(size, valid, broken, ranked, trained, counts, work.minutes), found


def examples(found: dict[Family, Read], data: Path) -> Iterator[tuple[Path, Path, str]]:
    """Yield (source file, test case file, edit in words) for the first test cases of the first sources."""
    for family, own in found.items():
        for number in range(min(SHOWN, len(own.sources))):
            cases = [one for one in own.cases if one.source == number][:SHOWN]
            for one in cases:
                edit = one.counterfactual.edits[0]
                words = f"{edit.keyword} -> {edit.alternative}"
                yield data / family / own.sources[number].key, Path(one.image), words


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the questions. Return the exit code: 1 if a goal is missed. A small run misses no goal."""
    parser = argparse.ArgumentParser(prog="python -m experiments.paper", description="Answer the paper's questions.")
    parser.add_argument("--small", action="store_true", help="few sources and seeds: shows that every part works")
    parser.add_argument("--work", type=Path, help="where stages keep what they found (default: build/paper-demo)")
    parser.add_argument(
        "--out", type=Path, help="the report (default: docs/paper-demo.md, of --small in the work folder)"
    )
    options = parser.parse_args(arguments)
    size = SMALL if options.small else FULL
    folder = (options.work or ROOT / "build" / "paper-demo" / size.name).absolute()
    out = options.out or (folder / "paper-demo.md" if options.small else REPORT)
    try:
        work = Work(folder, size)
        measured, found = results(work, size)
        reached = report.write(measured, work.goals, out, list(examples(found, folder / "data")))
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("Stopped: the same command continues from here.", file=sys.stderr)
        return INTERRUPTED
    for goal in reached:
        print(f"{goal.words}: {goal.rule.question}, {goal.what}: {goal.measured} (wanted {goal.rule.wanted})")
    print(f"The report is in {out}")
    return 1 if not options.small and not all(goal.reached for goal in reached) else 0


if __name__ == "__main__":
    sys.exit(main())
