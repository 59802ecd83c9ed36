"""Runs an import in a separate process: if a file fills the memory, the import ends but the server continues."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

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
    stopped: Exception | None = None
    try:
        while True:
            message = ours.recv()
            if isinstance(message, Done):
                return message
            if isinstance(message, Exception):
                raise stopped or message
            try:
                if isinstance(message, int):
                    begun(message)
                else:
                    on_progress(*message)
            except Exception as error:  # noqa: BLE001 - raised above, once the process has cleaned up
                stopped = error
            ours.send(stopped is None)
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

    def tell(message: object) -> None:
        connection.send(message)
        if not connection.recv():
            raise Cancelled

    answer: Done | Exception
    try:
        with Workspace(order.workspace) as workspace:
            answer = bring_in(
                workspace,
                order.source,
                order.name,
                order.layout,
                order.classes,
                order.labels,
                lambda progress: tell((progress, len(report.rows))),
                report,
                tell,
                order.at_once,
            )
    except Cancelled as error:
        answer = error
    except UserError as error:
        answer = UserError(str(error), field=error.field)
    except Exception as error:
        if not out_of_memory(error):
            log.exception("an import failed")
            raise
        answer = UserError(_ENDED)
    connection.send(answer)
