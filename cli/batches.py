"""`python -m pipeline batch`: whole data sets without a browser.

A user's mistake ends with one sentence and exit code 2. The exit code is 3 if a part of the work failed, and 4 if
captions wait for approval.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from cli.common import INTERRUPTED, SOME_FAILED, TEMPLATES, WAITS, WRONG, ProgressLine, remaining, stop_on_signals
from cli.parsers import parser_of, whole_number
from core.batches import Pass
from core.errors import UserError
from core.image_filter import ImageFilter
from core.progress import Pace, Progress
from pipeline.models.machine import share_cores
from services.batches.cluster import on_ray
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import BatchPlan, plans_of_methods, read_plan
from services.batches.pools import Pool, ProcessPool, workers_here
from services.batches.service import TITLES, BatchService, BatchStatus
from services.batches.shards import Progress as ShardProgress
from services.batches.shards import hand_out, merge, progress, take_back, work
from services.commands import parts_of
from storage.workspace import Workspace

LISTED = 12
"""Maximum number of captions, and of reasons for failures, that are printed."""
MOST_WORKERS = 256
MOST_SHARDS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    acts = (plan, run, hand_out_lots, merge_shards, take_lots_back, status, sample, approve, stop, retry_failed, report)
    workers = whole_number(1, MOST_WORKERS, f"workers are a whole number from 1 to {MOST_WORKERS}, not {{text}}")
    options = parser_of(__file__, *acts, workers=workers, shard=_shard, methods=parts_of).parse_args(arguments)
    share_cores()
    try:
        if getattr(options, "shard", None) is not None:
            return run_shard(options)
        with Workspace(options.workspace) as workspace:
            return int(options.act(BatchService(workspace), workspace, options))
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG


def plan(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Choose the items of a plan, and record the work on them. No caption or image is made yet. With --methods, record
    a batch for each method, and one for each control set (images drawn without an edit), all with the same items.
    """
    read = read_plan(Path(options.plan))
    if options.methods:
        of_methods, of_controls = _plan_methods(service, read, options.methods)
        numbers = [*of_methods, *of_controls]
        print(f"Run them: python -m pipeline batch run {' '.join(map(str, numbers))}")
        _print_comparison(workspace, of_methods)
        return 0
    number = service.plan(read)
    _print(service.status(number))
    _print_estimate(service, number)
    print(f"Run it: python -m pipeline batch run {number}")
    return 0


def _plan_methods(service: BatchService, read: BatchPlan, methods: Sequence[str]) -> tuple[list[int], list[int]]:
    """Record a batch for each method, and one for each control set. Return the numbers of both groups of batches."""
    made, controls = plans_of_methods(read, methods)
    numbers = [service.plan(one) for one in (*made, *controls)]
    for number in numbers:
        _print(service.status(number), short=True)
        _print_estimate(service, number)
    return numbers[: len(made)], numbers[len(made) :]


def _print_comparison(workspace: Workspace, numbers: Sequence[int]) -> None:
    facets = tuple(workspace.batches.get(number).facet for number in numbers)
    image_filter = shlex.quote(ImageFilter(facets={"batch": facets}).address)
    print(f"Compare them: python -m evaluation compare-methods --filter {image_filter}")


def run(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Work on batches, one after the other, from their current state to their end. Before images of a batch are drawn,
    it stops until you approve the captions. With --methods, plan and run a batch for each method and each control set.
    """
    numbers: Iterable[int] = (number_of(service, named) for named in options.batches)
    if options.methods:
        if len(options.batches) > 1 or options.batches[0].isdecimal():
            raise UserError("--methods needs the file of one plan, not numbers of batches.")
        of_methods, of_controls = _plan_methods(service, read_plan(Path(options.batches[0])), options.methods)
        numbers = [*of_methods, *of_controls]
    codes = list[int]()
    for number in numbers:
        codes.append(_run(service, workspace, options, number))
        if codes[-1] == INTERRUPTED:
            return INTERRUPTED
    if options.methods:
        _print_comparison(workspace, of_methods)
    return max(codes)


def _run(service: BatchService, workspace: Workspace, options: argparse.Namespace, number: int) -> int:
    order, line = service.order(number), ProgressLine()
    if options.yes and service.status(number).batch.approved is None:
        workspace.batches.approve(number, ahead=True)
    workers = options.workers or order.plan.run.workers

    paces: dict[Pass, tuple[Pace, int]] = {}

    def tell(stage: Pass, _done: int) -> None:
        status = next(one for one in service.passes(number) if one.stage == stage)
        done, total, failed = status.total - status.left, status.total, status.number("failed")
        pace, before = paces.setdefault(stage, (Pace(status.left), done))
        note = f"{done:,} of {total:,}{f', {failed:,} failed' if failed else ''}"
        line(Progress(status.title, 0, 0, pace.seconds_left(done - before), note))

    with stop_on_signals() as stop, pools(options, workers) as pool:
        outcome = Engine(workspace, number, order, pool, stop.asked, tell).run()
    line.clear()
    status = service.status(number)
    _print(status)
    if outcome == "approval":
        _print_sample(service, number)
        _print_estimate(service, number)
        print(f"Approve them: python -m pipeline batch approve {number}, then: python -m pipeline batch run {number}")
        return WAITS
    if stop.asked.is_set():
        return INTERRUPTED
    return SOME_FAILED if status.failed else 0


def run_shard(options: argparse.Namespace) -> int:
    """Do one shard, which is a share of the handed-out lots (groups of items). Uses no database of the workspace."""
    (named, *others) = options.batches
    if others or not named.isdecimal() or options.methods:
        raise UserError("A shard needs the number of one batch: give the number that `batch hand-out` prints.")
    shard, of = options.shard
    workspace, line, pace = Path(options.workspace).expanduser().absolute(), ProgressLine(), list[tuple[Pace, int]]()

    def tell(found: ShardProgress) -> None:
        if not pace:
            pace.append((Pace(found.left + 1), found.answered - 1))
        pace_left, before = pace[0]
        note = f"{found.answered:,} of {found.lots:,} lots"
        line(Progress(f"Shard {shard} of {of}", 0, 0, pace_left.seconds_left(found.answered - before), note))

    with stop_on_signals() as stop, pools(options, options.workers) as pool:
        found = work(workspace, int(named), shard, of, pool, stop.asked, tell)
    line.clear()
    print(f"Shard {shard} of {of}: {found.answered:,} of {found.lots:,} lots are done.")
    return INTERRUPTED if found.left else 0


def hand_out_lots(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Write the open work of a batch into the workspace, as lots (groups of items). `run --shard` does some of them."""
    return _handed_out(service, workspace, number_of(service, options.batch))


def merge_shards(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Record the results of shards. Once all shards have ended, write the next lots (groups of items)."""
    number = number_of(service, options.batch)
    merged = merge(workspace, number, service.order(number))
    print(f"{merged.answered:,} of {merged.lots:,} lots of the shards are merged.")
    if merged.left:
        print("Run the shards again that did not end, then merge again.")
        return SOME_FAILED
    return _handed_out(service, workspace, number)


def take_lots_back(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Discard the lots (groups of items) of `hand-out`, and results that are not merged. Then `run` can continue."""
    number = number_of(service, options.batch)
    print("The lots are taken back." if take_back(workspace, number) else "No lots are handed out.")
    return 0


def _handed_out(service: BatchService, workspace: Workspace, number: int) -> int:
    outcome = hand_out(workspace, number, service.order(number))
    status = service.status(number)
    _print(status)
    if outcome == "approval":
        _print_sample(service, number)
        print(
            f"Approve them: python -m pipeline batch approve {number}, then: python -m pipeline batch hand-out {number}"
        )
        return WAITS
    if outcome == "shards":
        shared = progress(workspace.folder, number)
        left = shared.left if shared is not None else 0
        print(
            f"{left:,} lots wait for shards: python -m pipeline batch run {number} --shard 1/N, to N/N, and then: "
            f"python -m pipeline batch merge {number}"
        )
        return 0
    return SOME_FAILED if status.failed else 0


def status(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Show the progress of one batch, or of all batches."""
    if options.batch is not None:
        number = number_of(service, options.batch)
        _print(service.status(number))
        if (shared := progress(workspace.folder, number)) is not None:
            print(f"  With shards: {shared.answered:,} of {shared.lots:,} lots are done, and not merged yet")
        return 0
    batches = [service.status(batch.id) for batch in workspace.batches.all()]
    for one in batches:
        _print(one, short=True)
    if not batches:
        print("No batch yet: python -m pipeline batch plan PLAN.toml")
    return 0


def sample(service: BatchService, _workspace: Workspace, options: argparse.Namespace) -> int:
    """Show some of the captions that wait for approval."""
    _print_sample(service, number_of(service, options.batch))
    return 0


def approve(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Approve the captions of a batch. The next `run` draws their images."""
    workspace.batches.approve(number_of(service, options.batch))
    return 0


def stop(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Pause a batch in the process that runs it, once the items in progress are done. `run` resumes the batch."""
    workspace.batches.set_wish(number_of(service, options.batch), "pause")
    return 0


def retry_failed(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Plan failed work again. The next `run` tries it again."""
    again = workspace.batches.retry_failed(number_of(service, options.batch), options.reason)
    print(f"{again:,} planned again." if again else "Nothing has failed.")
    return 0


def report(service: BatchService, workspace: Workspace, options: argparse.Namespace) -> int:
    """Show the results and the cost of a batch, and its failures by reason."""
    number = number_of(service, options.batch)
    failures = workspace.batches.failures(number)[:LISTED]
    _print(service.status(number), "batch-report.txt", failures=failures)
    return 0


def _print(status: BatchStatus, template: str = "batch.txt", short: bool = False, **values: object) -> None:
    values |= {"status": status, "short": short, "titles": TITLES, "remaining": remaining}
    print(TEMPLATES.lines(template, **values), end="")


def _print_estimate(service: BatchService, number: int) -> None:
    for sentence in service.estimate(service.status(number)).words():
        print(f"  {sentence}")


def _print_sample(service: BatchService, number: int) -> None:
    for one in service.sample(number, LISTED):
        print(f"  {one.key}\n    {one.caption}\n    {one.edits}\n    {one.new_caption}")


def number_of(service: BatchService, named: str) -> int:
    """Return the number of a batch. `named` is its number or its plan file. A new plan is recorded as a batch first."""
    return int(named) if named.isdecimal() else service.plan(read_plan(Path(named)))


def pools(options: argparse.Namespace, workers: int | None) -> AbstractContextManager[Callable[[Order], Pool]]:
    """Return a context whose value is a function that starts workers, here or on the Ray cluster of `--ray`."""
    if options.ray is not None:
        return on_ray(workers, options.ray)
    return nullcontext(partial(ProcessPool, workers=workers or workers_here()))


def _shard(text: str) -> tuple[int, int]:
    shard, _, of = text.partition("/")
    if not (shard.isdecimal() and of.isdecimal() and 0 < int(shard) <= int(of) <= MOST_SHARDS):
        raise argparse.ArgumentTypeError(
            f"a shard is a number and the number of all shards, such as 3/16, not {text!r}"
        )
    return int(shard), int(of)
