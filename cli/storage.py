"""`python -m storage`: backs up a workspace into a zip, restores it, and checks it for damage."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cli.parsers import parser_of
from core.errors import UserError
from core.words import count_of, few_names
from storage.backup import backup, restore
from storage.damage import damage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return 0, or 1 if something is damaged. For an error print one sentence to stderr and return 2."""
    options = parser_of(__file__).parse_args(arguments)
    try:
        if options.command == "check":
            faults = damage(options.workspace)
            right = f"{options.workspace}: the database, the catalogue and all images are right"
            print("\n".join(faults) if faults else right)
            return 1 if faults else 0
        if options.command == "backup":
            manifest, place = backup(options.workspace, options.file), options.file
        else:
            manifest, place = restore(options.file, options.folder), options.folder
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    parts = {"run": manifest.runs, "test case": manifest.test_cases, "image": len(manifest.images)}
    print(f"{place}: {', '.join(count_of(number, noun) for noun, number in parts.items())}, all checked")
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
