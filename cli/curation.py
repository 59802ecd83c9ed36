"""`python -m services.curation`: imports images into a workspace without a browser.

Only this command line takes folders of this machine, never HTTP. The server may be running at the same time. A person's
mistake ends with one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli.common import add_workspace_option, counting, in_workspace, printable
from core.imports import Import, ImportRow
from formats.layouts import LAYOUTS
from services.curation import import_source, imports
from storage.workspace import Workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    options = _parser().parse_args(arguments)

    def act(workspace: Workspace) -> int:
        for line in options.command(workspace, options):
            print(printable(line))
        return 0

    return in_workspace(Path(options.workspace), act)


def bring_in(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """Import a folder, a zip or a tar, and put it into a test set if requested."""
    labels = options.labels.split(",") if options.labels else ()
    with counting("import") as on_count:
        done = import_source.bring_in(
            workspace,
            Path(options.source),
            options.name,
            options.format,
            options.classes,
            labels,
            lambda at: on_count(at.done, at.total),
        )
    if not done.already:
        yield from _report(workspace, done.imported.id)
    yield done.words
    if options.into_set is not None:
        yield imports.into_set(workspace, done.imported.id, options.into_set).words


def list_imports(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    known = workspace.imports.all()
    yield from map(_line, known)
    if not known:
        yield "Nothing was imported yet."


def show(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    yield _line(workspace.imports.get(options.number))
    yield from _report(workspace, options.number)


def into_set(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """Put a finished import into the draft of a test set."""
    yield imports.into_set(workspace, options.number, options.test_set).words


def _line(row: Import) -> str:
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(row.rows.items()))
    suffix = f" ({counts})" if counts else ""
    return f"{row.id:5}  {row.state:10}  {row.images:7} images  {row.layout or '-':11}  {row.name}{suffix}"


def _report(workspace: Workspace, number: int) -> Iterator[str]:
    after = 0
    while page := workspace.imports.rows(number, after):
        yield from (_told(row) for _, row in page)
        after = page[-1][0]


def _told(row: ImportRow) -> str:
    return f"{row.kind:7}  {row.file}: {row.reason}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.curation", description="Images into a workspace.")
    add_workspace_option(parser)
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
