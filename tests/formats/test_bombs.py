"""Small files that expand without end are read or refused within limits of memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.bombs import BOMBS

ROOT = Path(__file__).resolve().parents[2]
REFUSED = {
    "digits of JSON": "The line cannot be read",
    "cells of CSV": "It has 500001 cells for 2 columns",
    "a cell of CSV": "would unpack to far more",
    "rows of Parquet": "The table has more than 2,000,000 rows",
}


def test_every_small_file_is_read_or_refused_within_bounds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.bombs", str(tmp_path)]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread takes address space of its own
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **threads}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = {name: (images, reasons) for name, images, reasons in map(json.loads, done.stdout.splitlines())}
    assert told.keys() == BOMBS.keys()
    for name, (images, reasons) in told.items():
        assert images or reasons, name
        assert any(REFUSED.get(name, "") in reason for reason in reasons or [""]), (name, reasons)
