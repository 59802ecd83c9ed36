"""Runs an import in a separate process: if a file fills the memory, the import ends but the server continues."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from core.errors import Cancelled, UserError, out_of_memory
from core.progress import Progress
from formats.types import Report
from services.curation.import_source import Done, bring_in
from services.own_processes import end_with_parent, own_processes
from storage.workspace import Workspace

log = logging.getLogger(__name__)
_ENDED = (
    "The import ended early, perhaps since memory ran out. Images imported so far stay. Free some memory or leave out "
    "very large files, then start the same import again."
)


@dataclass(frozen=True)
class ImportOrder:
    """The arguments of `bring_in`, to send to the process. `workspace` is the folder of the workspace."""

    workspace: Path
    source: Path
    name: str = ""
    layout: str = ""
    classes: str = ""
    labels: tuple[str, ...] = ()
    at_once: int | None = None


def bring_in_apart(
    order: ImportOrder, on_progress: Callable[[Progress, int], object], begun: Callable[[int], object]
) -> Done:
    """Run `bring_in` in another process. `on_progress` gets the progress and the number of rows in the report. An
    exception of a callback stops the import and is raised again. Raises UserError if the import fails.
    """
    context = own_processes()
    ours, theirs = context.Pipe()
    process = context.Process(target=_bring_in, args=(theirs, order), name="import", daemon=True)
    process.start()
    theirs.close()
    tell: dict[str, Callable[..., object]] = {"progress": on_progress, "begun": begun}
    stopped: Exception | None = None
    try:
        while True:
            kind, *values = ours.recv()
            if kind in tell:
                try:
                    tell[kind](*values)
                except Exception as error:  # noqa: BLE001 - raised below, once the process has cleaned up
                    stopped = error
                ours.send(stopped is None)
            elif kind == "done":
                done: Done = values[0]
                return done
            elif kind == "stopped" and stopped is not None:
                raise stopped
            else:
                raise UserError(values[0], field=values[1])
    except (EOFError, OSError) as error:
        raise UserError(_ENDED) from error
    finally:
        ours.close()
        process.join()


def _bring_in(connection: Connection, order: ImportOrder) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with suppress(OSError):  # on Linux: if memory runs out, the kernel kills this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    report = Report()

    def tell(*message: object) -> None:
        connection.send(message)
        if not connection.recv():
            raise Cancelled

    answer: tuple[Any, ...]
    try:
        with Workspace(order.workspace) as workspace:
            answer = (
                "done",
                bring_in(
                    workspace,
                    order.source,
                    order.name,
                    order.layout,
                    order.classes,
                    order.labels,
                    lambda progress: tell("progress", progress, len(report.rows)),
                    report,
                    lambda number: tell("begun", number),
                    order.at_once,
                ),
            )
    except Cancelled:
        answer = ("stopped",)
    except UserError as error:
        answer = ("refused", str(error), error.field)
    except Exception as error:
        if not out_of_memory(error):
            log.exception("an import failed")
            raise
        answer = ("refused", _ENDED, "")
    connection.send(answer)
