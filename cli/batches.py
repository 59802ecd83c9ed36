"""`python -m pipeline batch`: whole data sets without a browser.

A person's mistake ends with one sentence and exit code 2; work that failed in part with 3; captions that wait for a
yes with 4.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from services.batches.worker_start import recruited

MOST_WORKERS = 256
MOST_SHARDS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives the exit code."""
    options = _parser().parse_args(arguments)
    if options.command in ("run", "resume") and options.ray is None:
        options.recruits.append(recruited())  # before anything else, as it takes longest
    try:
        from cli.batch_commands import done

        return done(options)
    finally:
        for one in options.recruits:
            one.close()


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"workers are a whole number from 1 to {MOST_WORKERS}, not {text!r}")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    shard, _, of = text.partition("/")
    if not (shard.isdecimal() and of.isdecimal() and 0 < int(shard) <= int(of) <= MOST_SHARDS):
        raise argparse.ArgumentTypeError(f"a shard is its number and how many there are, such as 3/16, not {text!r}")
    return int(shard), int(of)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipeline batch", description=__doc__)
    parser.add_argument(
        "--workspace", default=os.environ.get("WORKSPACE") or "workspace", help="its folder (WORKSPACE, or workspace)"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str, named: str = "its number, or the file of its plan") -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=what.split(".")[0].lower(), description=what)
        one.add_argument("--workspace", default=argparse.SUPPRESS, help="as above")
        one.set_defaults(command=name, recruits=[])
        if named:
            one.add_argument("plan" if name == "plan" else "batch", help=named)
        return one

    command(
        "plan", "Choose the items of a plan, and write down what is to be made of them. Nothing is made yet.",
        "a plan.toml",
    )  # fmt: skip
    for name in ("run", "resume"):
        running = command(
            name,
            "Work on a batch, from where it stands to its end. The captions wait for a yes before images are drawn.",
        )
        running.add_argument(
            "--workers", type=_positive, help="processes (default: one a core; one where there is a GPU)"
        )
        running.add_argument(
            "--ray",
            nargs="?",
            const="",
            metavar="ADDRESS",
            help="work on the Ray cluster at this address, or auto for the one of this machine; without one, start it",
        )
        running.add_argument(
            "--shard",
            type=_shard,
            metavar="I/N",
            help="do only this share of the lots that `hand-out` wrote down; `merge` records them later",
        )
        running.add_argument("--yes", action="store_true", help="approve the captions without a look at them")
    command("hand-out", "Write the lots of a pass into the workspace. `run --shard` does them, in any job.")
    command("merge", "Record what shards have done, and hand out what is next when all of them have ended.")
    command("take-back", "Forget what was handed out, with what shards did and nobody merged: `run` can go on then.")
    command("status", "Tell how far a batch is, or all of them.", "").add_argument(
        "batch", nargs="?", help="its number, or the file of its plan"
    )
    command("sample", "Show some of the captions that wait to be drawn.")
    command("approve", "Say yes to the captions. The images are drawn from now on.")
    command("stop", "Have whoever works on a batch stop at the end of the lots that are out. `run` goes on.")
    command("retry-failed", "Plan what failed again. `run` then tries it.").add_argument(
        "--reason", help="only what failed for this reason, word for word"
    )
    command("report", "Tell what was made, what it took, and all that failed, by reason.")
    return parser
