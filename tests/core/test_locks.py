"""Folders that belong to a process: what a killed one left goes, what another one uses stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from core.locks import held_folder

WAITS = """
import sys
from pathlib import Path
from core.locks import held_folder
with held_folder(Path(sys.argv[1]), "mine-") as folder:
    (folder / "half.zip").write_bytes(b"half")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    (tmp_path / "mine-notes").mkdir()
    command = [sys.executable, "-c", WAITS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        used = Path(other.stdout.readline().strip())
        with held_folder(tmp_path, "mine-") as mine:
            assert mine != used and (used / "half.zip").is_file()
        assert not mine.exists()
        other.kill()
    assert used.is_dir()
    with held_folder(tmp_path, "mine-") as mine:
        assert {path.name for path in tmp_path.iterdir()} == {"mine-notes", mine.name}, "what is not ours stays"
