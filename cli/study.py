"""`python -m study simulate`: lets simulated annotators work on a running studio.

Results go to stdout. A user's mistake ends with one sentence and exit code 2, a failed worker with exit code 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import quantiles

from cli.parsers import parser_of
from core.csv_tables import cells, read_csv
from core.words import count_of
from study.behaviour import Behaviour, read_crew
from study.simulate import Acknowledged, Simulation, WorkerRun, journal_line, run
from study.truth import AnswerKey, read_truth

LARGEST_FILE = 50_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = parser_of(__file__).parse_args(arguments)
    try:
        return simulate(options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def simulate(options: argparse.Namespace) -> int:
    """Run the simulated workers and print their results."""
    text = _bytes(options.codes).decode("utf-8", errors="replace") if options.codes else ""
    codes = [line.strip() for line in text.splitlines() if line.strip()]
    if bool(options.link) == bool(codes):
        raise ValueError("Give the study's link with --link, or a file of personal codes with --codes.")
    known = read_truth(read_csv(_bytes(options.truth), "The file of true answers")) if options.truth else {}
    if not 0 <= options.valid <= 1:
        raise ValueError("The share of valid images, --valid, must be from 0 to 1.")
    crew = _crew(options, len(codes))
    with Path(options.journal).open("a", encoding="utf-8") if options.journal else nullcontext() as journal:

        def on_vote(vote: Acknowledged) -> None:
            if journal is not None:
                journal.write(journal_line(vote) + "\n")
                journal.flush()

        plan = Simulation(
            **cells(options, "url link study minutes patience seed"),
            crew=crew,
            codes=codes,
            truth=AnswerKey(known, options.valid, options.seed),
            on_vote=on_vote,
        )
        runs = run(plan)
    print(told(runs))
    return 1 if any(each.end == "failed" for each in runs) else 0


def told(runs: Sequence[WorkerRun]) -> str:
    """Return the results of the simulated workers, as lines for a terminal."""
    votes = [vote for each in runs for vote in each.votes]
    ends = Counter(each.end for each in runs)
    lines = [
        f"{count_of(len(runs), 'simulated worker')}, {len(votes):,} votes acknowledged; "
        + ", ".join(f"{count} {end}" for end, count in ends.most_common())
    ]
    if len(votes) > 1:
        cut = quantiles([1000 * vote.seconds for vote in votes], n=100, method="inclusive")
        lines.append(f"acknowledged after {cut[49]:.0f} ms (median), 95 % within {cut[94]:.0f} ms")
    again = sum(each.retries for each in runs)
    if again:
        lines.append(f"{again:,} requests were sent again, because the server was away or asked to wait")
    alike: dict[str, list[str]] = {}
    for each in runs:
        if each.end not in ("done", "time over"):
            alike.setdefault(f"{each.end}. {each.text}".rstrip(), []).append(each.worker or "a worker")
    for words, names in alike.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"  {names[0]}{others}: {words}")
    return "\n".join(lines)


def _crew(options: argparse.Namespace, codes: int) -> list[Behaviour]:
    usual = Behaviour(options.accuracy, options.bias, options.seconds, options.lazy)
    crew = [kind for text in options.crew for count, kind in [read_crew(text, usual)] for _ in range(count)]
    more = options.workers if options.workers is not None else 0 if crew else codes or 5
    if not 0 <= more <= 1000:
        raise ValueError("The number of simulated workers must be from 1 to 1,000.")
    return [usual] * more + crew


def _bytes(name: str) -> bytes:
    file = Path(name)
    if file.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{name} is larger than {LARGEST_FILE // 1_000_000} MB: use a smaller file.")
    return file.read_bytes()
