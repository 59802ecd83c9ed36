"""Run all benchmarks with `python -m benchmarks`. Prints tables, and exits with code 1 if a bound is missed."""

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
    """Measure everything, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures what a person waits for.")
    parser.add_argument("--minutes", type=float, default=study.MINUTES, help="of the hundred annotators (10)")
    parser.add_argument(
        "--large", action="store_true", help="the catalogue of a million test cases as well, and a batch of 125,000"
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these parts, such as lots (all)")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE, file=sys.stderr)
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} cores", flush=True)
    parts: dict[str, Callable[[], Iterable[Figure | Comparison]]] = {
        "start": start.measure,
        "page": partial(page.measure, chromium),
        "control": partial(control.measure, chromium),
        "unchanged": unchanged.measure,
        "scripts": scripts.measure,
        "runs": runs.measure,
        "catalogue": partial(catalogue.measure, catalogue.SIZES if options.large else catalogue.SIZES[:1]),
        "meaning": partial(meaning.measure, meaning.SIZES if options.large else meaning.SIZES[:1]),
        "gallery": partial(gallery.measure, chromium),
        "review": partial(review.measure, chromium),
        "thumbnails": thumbnails.measure,
        "exporting": exporting.measure,
        "study": partial(study.measure, options.minutes),
        "evaluating": evaluating.measure,
        "predicting": predicting.measure,
        "retraining": retraining.measure,
        "reference": reference.measure,
        "lots": lots.measure,
        "beside": partial(beside.measure, options.large),
    }
    unknown = [name for name in options.parts if name not in parts]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(parts)}")
    # Each part prints its results at once, so that a later failure loses nothing.
    chosen = [parts[name] for name in options.parts or parts]
    return max(reported([*measure()], f"load {os.getloadavg()[0]:.1f}") for measure in chosen)


if __name__ == "__main__":
    raise SystemExit(main())
