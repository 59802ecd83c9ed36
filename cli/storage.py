"""`python -m storage backup WORKSPACE FILE.zip`, `... restore FILE.zip FOLDER` and `... check WORKSPACE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from core.errors import UserError
from core.words import count_of, few_names
from storage.backup import backup, restore
from storage.damage import damage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return 0, 1 if something is damaged, or 2 after one sentence on standard error."""
    parser = argparse.ArgumentParser(prog="python -m storage", description="Keep a workspace safe.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("backup", help="write a workspace, also one in use, into one zip file")
    command.add_argument("workspace", type=Path, metavar="WORKSPACE", help="the workspace's folder")
    command.add_argument("file", type=Path, metavar="FILE.zip", help="the file to write; it must not exist")
    command = commands.add_parser("restore", help="make a workspace from such a zip file")
    command.add_argument("file", type=Path, metavar="FILE.zip", help="a backup")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to make; it must not hold anything")
    command = commands.add_parser("check", help="read all of a workspace, also one in use, and say what is damaged")
    command.add_argument("workspace", type=Path, metavar="WORKSPACE", help="the workspace's folder")
    options = parser.parse_args(arguments)
    try:
        if options.command == "check":
            return _check(options.workspace)
        if options.command == "backup":
            manifest, place = backup(options.workspace, options.file), options.file
        else:
            manifest, place = restore(options.file, options.folder), options.folder
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    counts = (
        count_of(manifest.runs, "run"),
        count_of(manifest.test_cases, "test case"),
        count_of(len(manifest.images), "image"),
    )
    print(f"{place}: {', '.join(counts)}, all checked")
    if not manifest.left_out:
        return 0
    number = len(manifest.left_out)
    files = "file is" if number == 1 else "files are"
    print(
        f"{place} lacks {count_of(number, 'image')} that its database names, whose {files} missing or damaged: "
        f"{few_names(manifest.left_out)}",
        file=sys.stderr,
    )
    return 1


def _check(workspace: Path) -> int:
    faults = damage(workspace)
    print("\n".join(faults) if faults else f"{workspace}: the database, the catalogue and all images are right")
    return 1 if faults else 0
