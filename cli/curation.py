"""`python -m services.curation`: images into a workspace without a browser.

Folders of this machine are taken here only, never over HTTP. The server may be running meanwhile. A person's mistake
ends with one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.errors import UserError
from core.progress import OnProgress, Progress
from formats.exporting import LAYOUTS
from services.curation import import_source, imports
from storage.curation.imports import Import, ImportRow
from storage.workspace import DATABASE, Workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives the exit code."""
    options = _parser().parse_args(arguments)
    folder = Path(options.workspace)
    try:
        if not (folder / DATABASE).is_file():
            raise UserError(f"{folder} holds no workspace; name its folder with --workspace.")
        with Workspace(folder) as workspace:
            for line in options.command(workspace, options):
                print(_shown(line))
        return 0
    except UserError as error:
        print(_shown(str(error)), file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or options.command.__name__}: {error.strerror or error}", file=sys.stderr)
        return 2


def bring_in(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """Brings in a folder, a zip or a tar, and puts it into a test set where that is asked for."""
    labels = options.labels.split(",") if options.labels else ()
    with _counting() as on_progress:
        done = import_source.bring_in(
            workspace, Path(options.source), options.name, options.format, options.classes, labels, on_progress
        )
    if not done.already:
        yield from _report(workspace, done.imported.id)
    yield done.words
    if options.into_set is not None:
        yield imports.into_set(workspace, done.imported.id, options.into_set).words


def list_imports(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """An import a line."""
    found = workspace.imports.all()
    yield from map(_line, found)
    if not found:
        yield "Nothing was imported yet."


def show(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """An import with its report."""
    yield _line(workspace.imports.get(options.number))
    yield from _report(workspace, options.number)


def into_set(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """Puts a finished import into the draft of a test set."""
    yield imports.into_set(workspace, options.number, options.test_set).words


def _line(held: Import) -> str:
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(held.rows.items()))
    told = f" ({counts})" if counts else ""
    return f"{held.id:5}  {held.state:10}  {held.images:7} images  {held.layout or '-':11}  {held.name}{told}"


def _report(workspace: Workspace, number: int) -> Iterator[str]:
    after = 0
    while page := workspace.imports.rows(number, after):
        yield from (_told(row) for _, row in page)
        after = page[-1][0]


def _told(row: ImportRow) -> str:
    return f"{row.kind:7}  {row.file}: {row.reason}"


def _shown(line: str) -> str:
    """A line without what a terminal would obey: a name of a file may hold anything."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in line)


@contextmanager
def _counting() -> Iterator[OnProgress]:
    """A bar for whoever waits; none where nobody sits at a terminal."""
    from tqdm import tqdm

    with tqdm(desc="import", unit="image", leave=False, disable=None) as bar:

        def on_progress(at: Progress) -> None:
            bar.total = at.total
            bar.update(at.done - bar.n)

        yield on_progress


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.curation", description="Images into a workspace.")
    usual = os.environ.get("WORKSPACE") or "workspace"
    parser.add_argument("--workspace", default=usual, help="folder of the workspace (workspace)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    words = "bring in the images of a folder, a zip or a tar; the same again goes on with what was stopped"
    sub = commands.add_parser("import", help=words, description=words)
    sub.add_argument("source", metavar="SOURCE", help="the folder or archive")
    sub.add_argument("--name", default="", help="what the import is called (the name of the source)")
    sub.add_argument(
        "--format",
        "--layout",
        dest="format",
        choices=list(LAYOUTS),
        default="",
        help="how it is written (found out); docs/formats.md",
    )
    sub.add_argument(
        "--classes", default="", help="the numbers of masks, such as “0 sky, 1 road”, where no file says them"
    )
    sub.add_argument("--labels", default="", help="the labels that are known, with commas between (any)")
    sub.add_argument(
        "--into-set",
        nargs="?",
        const="",
        default=None,
        metavar="NAME",
        help="put it into the draft of this test set too; without NAME, of the one that was exported",
    )
    sub.set_defaults(command=bring_in)

    sub = commands.add_parser("imports", help="what was imported", description="What was imported, the latest first.")
    sub.set_defaults(command=list_imports)

    sub = commands.add_parser("show-import", help="an import with its report", description="An import with its report.")
    sub.add_argument("number", metavar="NUMBER", type=int, help="as `imports` gives it")
    sub.set_defaults(command=show)

    words = "put a finished import into the draft of a test set"
    sub = commands.add_parser("into-set", help=words, description=words)
    sub.add_argument("number", metavar="NUMBER", type=int, help="as `imports` gives it")
    sub.add_argument("test_set", metavar="NAME", nargs="?", default="", help="the set (the one that was exported)")
    sub.set_defaults(command=into_set)
    return parser
