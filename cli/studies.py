"""`python -m services.studies`: adds images and votes to a study, and exports and restores studies, without a browser.

Folders of this machine can be imported only by this command line, never over HTTP. The server may run at the same time.
A user's mistake ends with one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from cli.common import in_workspace
from cli.parsers import parser_of
from core.errors import UserError
from services.studies.exports import restore_study, zipped
from services.studies.imports import MOST_LIST, ImportFiles, files_of, folder_files, import_items, import_votes
from storage.workspace import Workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    options = parser_of(__file__, list_studies, images, votes, export, restore).parse_args(arguments)

    def act(workspace: Workspace) -> int:
        print(options.act(workspace, options))
        return 0

    return in_workspace(Path(options.workspace), act)


def list_studies(workspace: Workspace, options: argparse.Namespace) -> str:
    studies = workspace.studies.all()
    return "\n".join(f"{study.id}  {study.state:8}  {study.name}" for study in studies) or "No study yet."


def images(workspace: Workspace, options: argparse.Namespace) -> str:
    """Add the images of a folder, a zip, a CSV with images beside it, or a single image."""
    return import_items(workspace, options.study, _files(Path(options.path)))[1]


def votes(workspace: Workspace, options: argparse.Namespace) -> str:
    """Add the votes in a result file of Mechanical Turk."""
    file = Path(options.path)
    if file.stat().st_size > MOST_LIST:
        raise UserError(f"{file} is larger than {MOST_LIST // 1_000_000} MB: split it into several files.")
    return import_votes(workspace, options.study, file.read_bytes(), options.even_so)[1]


def export(workspace: Workspace, options: argparse.Namespace) -> str:
    """Write the whole study as a zip. Until the zip is complete, the file has another name."""
    target = Path(options.path)
    if target.exists():
        raise UserError(f"{target} exists already: choose another file name.")
    half = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        _, parts = zipped(workspace, options.study)
        with half.open("xb") as file:
            for part in parts:
                file.write(part)
        os.rename(half, target)
    finally:
        half.unlink(missing_ok=True)
    return str(target)


def restore(workspace: Workspace, options: argparse.Namespace) -> str:
    """Restore a study from the zip that `export` wrote."""
    return "  ".join(restore_study(workspace, Path(options.path)))


def _files(path: Path) -> ImportFiles:
    if path.is_dir():
        return folder_files(path)
    if path.suffix.lower() == ".csv":
        return folder_files(path.parent, only_list=path.name)
    return files_of(path.name, path)
