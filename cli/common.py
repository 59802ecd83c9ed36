"""Shared parts of the command lines: exit codes, printable lines, a progress bar, and opening a workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli.terminal import Terminated
from core.errors import Cancelled, UserError
from core.progress import OnCount
from core.text_templates import TextTemplates
from storage.workspace import DATABASE, Workspace

DIFFERENT, WRONG, SOME_FAILED, WAITS, INTERRUPTED, PIPE_CLOSED, TERMINATED = 1, 2, 3, 4, 130, 141, 143
"""Exit codes. The code 0 means success."""
TEMPLATES = TextTemplates(Path(__file__).with_name("templates"))
"""Templates of printed texts that have several lines."""


def printable(line: str) -> str:
    """Return a line with its control characters escaped, since a file name may contain commands for the terminal."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in line)


@contextmanager
def counting(what: str) -> Iterator[OnCount]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    from tqdm import tqdm

    with tqdm(desc=what, unit="image", leave=False, disable=None) as bar:

        def on_count(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield on_count


def in_workspace(folder: Path, act: Callable[[Workspace], int]) -> int:
    """Run `act` on the workspace in `folder` and return its exit code. For an error print one sentence and return 2."""
    try:
        if not (folder / DATABASE).is_file():
            raise UserError(f"{folder} contains no workspace: name the workspace's folder with --workspace.")
        with Workspace(folder) as workspace:
            return act(workspace)
    except UserError as error:
        print(printable(str(error)), file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(printable(f"{error.filename or folder}: {error.strerror or error}"), file=sys.stderr)
    return WRONG


def exit_code(run: Callable[[], int]) -> int:
    """Return the exit code of `run`, also if a signal ends it, or if the reader of its output stops, such as `head`."""
    try:
        try:
            return run()
        except Terminated:
            return TERMINATED
        except (Cancelled, KeyboardInterrupt):
            return INTERRUPTED
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):  # else Python would write the buffer again when it exits
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return PIPE_CLOSED
