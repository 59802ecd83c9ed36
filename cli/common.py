"""Shared parts of the command lines: exit codes, printed lines, progress, signals to stop, and opening a workspace."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from core.errors import Cancelled, UserError
from core.progress import OnCount, Progress
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
    """Yield a function that shows counts as a progress bar named `what` on a terminal, and nothing elsewhere."""
    from tqdm import tqdm

    with tqdm(desc=what, unit="image", leave=False, disable=None) as bar:

        def on_count(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield on_count


def remaining(seconds: float | None) -> str:
    """Return the time left as text, such as "about 11 s left" or "about 3 min left"; "" if unknown, and at the end."""
    if not seconds:
        return ""
    return f"about {max(1, round(seconds))} s left" if seconds < 90 else f"about {round(seconds / 60)} min left"


class ProgressLine:
    """Shows progress on stderr. On a terminal, one line is rewritten. Elsewhere, each new stage or note is a line."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Show the progress of a stage, with the remaining time if known."""
        parts = [progress.stage, progress.note]
        if self._live:
            counted = f"{progress.done}/{progress.total}" if progress.total > 1 else ""
            line = " · ".join(part for part in (*parts, counted, remaining(progress.seconds_left)) if part)
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif (words := " · ".join(part for part in parts if part)) != self._last:
            self._last = words
            line = " · ".join(part for part in (words, remaining(progress.seconds_left)) if part)
            print(line, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Print a sentence on its own line."""
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the progress line from the terminal."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Terminated(KeyboardInterrupt):
    """Raised if the signal SIGTERM asks the program to end."""


class Stop:
    """Handles the signals that ask to stop long work, from a person (Ctrl-C) or from the machine (SIGTERM)."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        """Event that is set by the first Ctrl-C and by SIGTERM. Long work stops once it is set."""
        self._saving = False
        self._wanted: type[KeyboardInterrupt] | None = None

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Delay the end of the program until the work in this context is saved."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False
        if self._wanted is not None:
            raise self._wanted

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Ask the work to stop. At SIGTERM or a second Ctrl-C, end the program once nothing is being saved."""
        at_once = self.asked.is_set() or number == signal.SIGTERM
        self.asked.set()
        if not at_once:
            sys.stderr.write("\nStopping after this step; once more to stop at once.\n")
            return
        self._wanted = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if not self._saving:
            raise self._wanted


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Handle signals in this context. The first Ctrl-C stops the work after its current step. A second Ctrl-C, and
    SIGTERM, end the program at once, but never during a save.
    """
    stop = Stop()
    before = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    """Call `run` and return its exit code, or the code for the signal or the closed pipe that ended it."""
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
