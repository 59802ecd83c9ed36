"""Folders that belong to a process: those of killed processes are removed, and those of running processes stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
        names = {path.name for path in tmp_path.iterdir() if path.is_dir()}
        assert names == {"mine-notes", mine.name}, "what is not ours stays"


@pytest.mark.parametrize("removed", range(5))
def test_a_kill_at_any_moment_leaves_nothing_that_stays(tmp_path: Path, removed: int) -> None:
    """The process is killed while the folder is made, or after `removed` files are deleted. The next process removes
    the rest.
    """
    code = f"""
import itertools, os, sys
from pathlib import Path
from core.locks import held_folder
real, numbers = os.unlink, itertools.count(1)
def die(*given, **named):
    os.kill(os.getpid(), 9)
def unlink(*given, **named):
    real(*given, **named)
    if next(numbers) == {removed}:
        die()
if {removed} == 0:
    os.mkdir = die
with held_folder(Path(sys.argv[1]), "mine-") as folder:
    for name in "abc":
        (folder / name).write_bytes(b"half")
    os.unlink = unlink
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    with held_folder(tmp_path, "mine-"):
        pass
    assert not any(tmp_path.iterdir())
