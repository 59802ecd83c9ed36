"""Read small files that expand without end, in a process of its own: `python -m tests.support.bombs FOLDER`.

The process may use four gigabytes of address space and a minute of CPU time, and ends if it needs more. For each file
it prints the number of images and the messages.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image

from core.errors import UserError
from formats.columns import MOST_ROWS
from formats.reading import read

MEMORY, SECONDS = 4 << 30, 60
IMAGE = "images/train/b.png"


def _aliases() -> str:
    """Return YAML text whose last name expands to 9^10 others."""
    lines = [f"a: &a [{', '.join(['x'] * 9)}]"]
    for before, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


def _entities() -> bytes:
    """Return XML text whose last entity expands to 10^9 letters."""
    more = "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    return f'<!DOCTYPE l [<!ENTITY a "x">{more}]><annotation><filename>&j;</filename></annotation>'.encode()


def _equal_rows() -> bytes:
    import pyarrow
    import pyarrow.parquet

    rows, file = MOST_ROWS + 1, io.BytesIO()
    table = {
        name: pyarrow.repeat(pyarrow.scalar(text), rows)
        for name, text in (("file_name", "images/train/b.png"), ("label", "x"))
    }
    pyarrow.parquet.write_table(pyarrow.table(table), file)
    return file.getvalue()


BOMBS: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "aliases of YAML": ("data.yaml", lambda: f"{_aliases()}\nnames: *j\n".encode()),
    "aliases of YAML as names": ("data.yaml", lambda: f"{_aliases()}\nnames: {{0: *j}}\n".encode()),
    "depth of YAML": ("data.yaml", lambda: b"names: " + b"[" * 5_000 + b"]" * 5_000),
    "depth of JSON": ("labels.json", lambda: b"[" * 200_000 + b"]" * 200_000),
    "digits of JSON": ("metadata.jsonl", lambda: b'{"label": ' + b"9" * 1_000_000 + b"}\n"),
    "cells of CSV": ("metadata.csv", lambda: b"file_name,label\n" + b"a," * 500_000 + b"\n"),
    "a cell of CSV": ("metadata.csv", lambda: b"file_name,label\n" + IMAGE.encode() + b"," + b"x" * 20_000_000 + b"\n"),
    "entities of XML": ("Annotations/a.xml", _entities),
    "rows of Parquet": ("metadata.parquet", _equal_rows),
}
"""Name and content of each hostile file, by the part that it has too much of."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    folder, picture = Path(sys.argv[1]), io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(picture, "PNG")
    for name, (file, made) in BOMBS.items():
        packed = folder / f"{name}.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(file, made())
            archive.writestr(IMAGE, picture.getvalue())
            archive.writestr("labels/train/b.txt", "0 0.5 0.5 0.2 0.2\n")
        try:
            found = read(packed, folder / name, "yolo" if "YAML" in name else "")
            images, messages = len(found.examples), [row.reason for row in found.rows]
        except UserError as error:
            images, messages = 0, [str(error)]
        print(json.dumps([name, images, messages[:3]]), flush=True)


if __name__ == "__main__":
    main()
