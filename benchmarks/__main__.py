"""`python -m benchmarks` measures, prints a table, and exits with code 1 if a bound is missed."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterable
from functools import partial

from benchmarks import (
    beside,
    catalogue,
    control,
    evaluating,
    exporting,
    gallery,
    lots,
    meaning,
    page,
    predicting,
    reference,
    retraining,
    review,
    runs,
    scripts,
    start,
    study,
    thumbnails,
    unchanged,
)
from benchmarks.figures import Comparison, Figure, reported
from tests.support.chromium import ADVICE, find_chromium


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures what a person waits for.")
    parser.add_argument("--minutes", type=float, default=study.MINUTES, help="of the hundred annotators (10)")
    parser.add_argument(
        "--large", action="store_true", help="the catalogue of a million test cases as well, and a batch of 125,000"
    )
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE, file=sys.stderr)
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} cores", flush=True)
    parts: list[Callable[[], Iterable[Figure | Comparison]]] = [
        start.measure,
        partial(page.measure, chromium),
        partial(control.measure, chromium),
        unchanged.measure,
        scripts.measure,
        runs.measure,
        partial(catalogue.measure, catalogue.SIZES if options.large else catalogue.SIZES[:1]),
        partial(meaning.measure, meaning.SIZES if options.large else meaning.SIZES[:1]),
        partial(gallery.measure, chromium),
        partial(review.measure, chromium),
        thumbnails.measure,
        exporting.measure,
        partial(study.measure, options.minutes),
        evaluating.measure,
        predicting.measure,
        retraining.measure,
        reference.measure,
        lots.measure,
        partial(beside.measure, options.large),
    ]
    # Each part prints its results at once, so that a later failure loses nothing.
    return max(reported([*measure()], f"load {os.getloadavg()[0]:.1f}") for measure in parts)


if __name__ == "__main__":
    raise SystemExit(main())
