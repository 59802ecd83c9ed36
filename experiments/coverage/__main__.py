"""Simulate evaluations whose truth is known, and print how often intervals and other results are right."""

from __future__ import annotations

import argparse

from cli.common import INTERRUPTED, ProgressLine
from cli.parsers import whole_number
from core.progress import Pace, Progress
from experiments.coverage import intervals

MOST_REPETITIONS = 100_000


def main(arguments: list[str] | None = None) -> int:
    """Run all simulations, print the report and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.coverage", description=__doc__)
    parser.add_argument(
        "--repetitions",
        type=whole_number(1, MOST_REPETITIONS),
        default=intervals.REPETITIONS,
        help=f"repetitions of each simulation (default: {intervals.REPETITIONS:,}, some thirty minutes)",
    )
    options, line, pace = parser.parse_args(arguments), ProgressLine(), Pace(1)

    def on_count(done: int, total: int) -> None:
        nonlocal pace
        pace = pace if pace.total == total else Pace(total)
        line(Progress("worlds", done, total, pace.seconds_left(done)))

    try:
        report = intervals.report(options.repetitions, on_count)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        line.clear()
    print(report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
