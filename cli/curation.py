"""`python -m services.curation`: imports images into a workspace without a browser.

Folders of this machine can be imported only by this command line, never over HTTP. The server may run at the same time.
A user's mistake ends with one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli.common import counting, in_workspace, printable
from cli.parsers import parser_of
from core.imports import Import
from formats.layouts import LAYOUTS
from services.curation import import_source, imports
from storage.workspace import Workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    options = parser_of(__file__, bring_in, list_imports, show, into_set, layouts=list(LAYOUTS)).parse_args(arguments)

    def act(workspace: Workspace) -> int:
        for line in options.act(workspace, options):
            print(printable(line))
        return 0

    return in_workspace(Path(options.workspace), act)


def bring_in(workspace: Workspace, options: argparse.Namespace) -> Iterator[str]:
    """Import the images of a folder, a zip or a tar, and put them into a test set if requested."""
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
    """Put the images of a finished import into the draft of a test set."""
    yield imports.into_set(workspace, options.number, options.test_set).words


def _line(row: Import) -> str:
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(row.rows.items()))
    suffix = f" ({counts})" if counts else ""
    return f"{row.id:5}  {row.state:10}  {row.images:7} images  {row.layout or '-':11}  {row.name}{suffix}"


def _report(workspace: Workspace, number: int) -> Iterator[str]:
    after = 0
    while page := workspace.imports.rows(number, after):
        yield from (f"{row.kind:7}  {row.file}: {row.reason}" for _, row in page)
        after = page[-1][0]
