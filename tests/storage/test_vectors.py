"""Vectors in files: they survive kills, are shared by processes, and are kept apart by embedder."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.model_sections import ClipEmbedder
from core.types import Task
from pipeline.models.nearest import AT_ONCE, close_pairs, largest, nearest, products
from pipeline.models.weight_hashes import embedder_key
from storage.backup import backup, restore
from storage.curation.vectors import Vectors
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.workspaces import workspace_in

ONE, OTHER = "one embedder@1", "another embedder@1"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def drawn(count: int, dimensions: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def held(vectors: Vectors, embedder: str = ONE) -> dict[int, list[float]]:
    table = vectors.of(embedder)
    return {int(entry): row for entry, row in zip(table.entries, table.rows.astype(float).tolist(), strict=True)}


def test_what_was_saved_comes_back_with_length_one(workspace: Workspace) -> None:
    vectors = drawn(5)
    assert workspace.vectors.of(ONE).entries.tolist() == []
    assert workspace.vectors.add(ONE, [7, 3, 9], 12 * vectors[:3]) == 3
    assert workspace.vectors.add(ONE, [3, 11, 4], vectors[2:]) == 2, "one that is there stays"
    table = workspace.vectors.of(ONE)
    assert table.entries.tolist() == [3, 7, 9, 4, 11]
    wanted = unit(vectors)[[1, 0, 2, 4, 3]]
    assert np.allclose(np.asarray(table.rows, np.float32), wanted, atol=1e-3)
    assert [table.row_of(entry) for entry in (9, 11, 5)] == [2, 4, None]


def test_a_table_that_is_held_does_not_change(workspace: Workspace) -> None:
    workspace.vectors.add(ONE, [1, 2], drawn(2))
    before = workspace.vectors.of(ONE)
    rows = before.rows.copy()
    workspace.vectors.add(ONE, [3], drawn(1, seed=1))
    assert len(workspace.vectors.of(ONE).entries) == 3
    assert before.entries.tolist() == [1, 2] and (before.rows == rows).all()


def test_two_embedders_stay_apart(workspace: Workspace) -> None:
    workspace.vectors.add(ONE, [1, 2], drawn(2, 8))
    workspace.vectors.add(OTHER, [2, 3], drawn(2, 4, seed=1))
    assert set(held(workspace.vectors)) == {1, 2} and set(held(workspace.vectors, OTHER)) == {2, 3}
    assert workspace.vectors.of(OTHER).rows.shape == (2, 4)
    with pytest.raises(ValueError, match="8 dimensions"):
        workspace.vectors.add(ONE, [9], drawn(1, 4))
    assert set(held(workspace.vectors)) == {1, 2}


def test_weights_that_changed_are_another_embedder(tmp_path: Path) -> None:
    section = ClipEmbedder(kind="clip", path=str(tmp_path))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"as trained")
    first = embedder_key(section)
    weights.write_bytes(b"trained again")
    assert embedder_key(section) != first
    hub = ClipEmbedder(kind="clip", hub="openai/clip-vit-base-patch32", revision="a" * 40)
    assert embedder_key(hub) == "openai/clip-vit-base-patch32@" + "a" * 40


@pytest.mark.parametrize("vector", [[0, 0], [np.nan, 1], [np.inf, 1]])
def test_what_has_no_direction_is_refused(workspace: Workspace, vector: list[float]) -> None:
    with pytest.raises(ValueError, match="no direction"):
        workspace.vectors.add(ONE, [1, 2], np.array([[1, 0], vector]))
    assert held(workspace.vectors) == {}


def test_what_a_killed_write_left_behind_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    with workspace_in(folder) as workspace:
        workspace.vectors.add(ONE, [1, 2], drawn(2))
        before = held(workspace.vectors)
    # Killed after the files were written, whole or in part, and before the commit.
    with open(folder / "vectors" / "1.rows", "ab") as file:
        file.write(b"\x01" * 40)
    with open(folder / "vectors" / "1.entries", "ab") as file:
        file.write(b"\x05" * 11)
    with Workspace(folder) as workspace:
        assert held(workspace.vectors) == before
        workspace.vectors.add(ONE, [3], drawn(1, seed=1))
        after = held(workspace.vectors)
        assert {entry: after[entry] for entry in (1, 2)} == before and set(after) == {1, 2, 3}
        assert np.allclose(after[3], unit(drawn(1, seed=1))[0], atol=1e-3)
        assert (folder / "vectors" / "1.rows").stat().st_size == 3 * 8 * 2


def _add_until_killed(folder: Path, first: int, ready: object) -> None:
    with Workspace(folder) as workspace:
        ready.release()  # type: ignore[attr-defined]
        for entry in range(first, first + 1_000_000, 3):
            workspace.vectors.add(ONE, [entry, entry + 1, entry + 2], np.full((3, 8), 1.0) + np.eye(8)[:3] * entry)


@pytest.mark.slow
def test_two_processes_add_and_are_killed(tmp_path: Path) -> None:
    """Every row that counts is complete and belongs to its entry, and each process sees the rows of both."""
    folder = tmp_path / "workspace"
    with Workspace(folder) as workspace:
        spawn = multiprocessing.get_context("spawn")
        ready = spawn.Semaphore(0)
        processes = [spawn.Process(target=_add_until_killed, args=(folder, first, ready)) for first in (1, 2_000_000)]
        for process in processes:
            process.start()
        for _ in processes:
            ready.acquire()
        while min(np.count_nonzero(half) for half in _halves(workspace)) < 30:
            pass
        for process in processes:
            process.kill()
            process.join()
        assert workspace.vectors.add(ONE, [5_000_000], np.ones((1, 8))) == 1
        table = workspace.vectors.of(ONE)
        assert len(set(table.entries.tolist())) == len(table.entries) > 60
        for entry, row in zip(table.entries.tolist(), np.asarray(table.rows, np.float32), strict=True):
            first = 1 if entry < 2_000_000 else 2_000_000
            wanted = np.ones(8)
            if entry != 5_000_000:
                wanted[(entry - first) % 3] += entry - (entry - first) % 3
            assert np.allclose(row, unit(wanted[None])[0], atol=1e-3), entry


def _halves(workspace: Workspace) -> tuple[np.ndarray, np.ndarray]:
    entries = workspace.vectors.of(ONE).entries
    return entries < 2_000_000, entries >= 2_000_000


def test_files_that_are_gone_are_worked_out_anew(tmp_path: Path) -> None:
    """A backup leaves the vectors out, since they can be computed again."""
    folder, again = tmp_path / "workspace", tmp_path / "again"
    with Workspace(folder) as workspace:
        image = Image.new("RGB", (8, 8))
        run = workspace.runs.create(image, Task("classification", "bird"), "demo", "A bird", {})
        workspace.test_cases.append(run, None, made_case(image))
        workspace.vectors.add(ONE, workspace.catalogue.ids(), drawn(1))
        backup(folder, tmp_path / "backup.zip")
    restore(tmp_path / "backup.zip", again)
    with Workspace(again) as workspace:
        assert held(workspace.vectors) == {}
        assert workspace.vectors.add(ONE, workspace.catalogue.ids(), drawn(1, seed=3)) == 1
        assert np.allclose(held(workspace.vectors)[1], unit(drawn(1, seed=3))[0], atol=1e-3)


def test_a_folder_that_cannot_be_written_is_told(workspace: Workspace) -> None:
    workspace.vectors.folder.write_text("in the way")
    with pytest.raises(UserError, match="not saved"):
        workspace.vectors.add(ONE, [1], drawn(1))
    workspace.vectors.folder.unlink()
    assert workspace.vectors.add(ONE, [1], drawn(1)) == 1


@pytest.mark.slow  # torch is loaded
def test_products_are_those_of_wide_numbers() -> None:
    rows = unit(drawn(2 * AT_ONCE + 7, 16)).astype(np.float16)
    directions = unit(drawn(3, 16, seed=1))
    exact = rows.astype(np.float32) @ directions.T
    assert np.allclose(products(rows, directions), exact, atol=1e-6)
    assert np.allclose(products(rows, directions[:1])[:, 0], exact[:, 0], atol=1e-6)
    places = np.array([5, 2050, 3, 3], np.int64)
    assert np.allclose(products(rows, directions[1:2], places)[:, 0], exact[places, 1], atol=1e-6)
    assert products(rows[:0], directions).shape == (0, 3)


def test_close_pairs_are_those_that_a_look_at_all_finds() -> None:
    rows = unit(drawn(60, 2))
    rows[7] = rows[40]
    wanted = [
        (one, other) for one in range(60) for other in range(one + 1, 60) if float(rows[one] @ rows[other]) > 0.99
    ]
    found = close_pairs(rows, 0.99, 10_000)
    assert [(one, other) for one, other, _ in found] == wanted and len(wanted) > 20
    assert close_pairs(rows, 0.99, 9) == found[:9] and close_pairs(rows, 0.99, len(found)) == found


@pytest.mark.slow
def test_pairs_of_many_equal_vectors_do_not_fill_the_memory() -> None:
    rows = np.ones((3000, 1), np.float32)
    tracemalloc.start()
    found = close_pairs(rows, 0.5, 200_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 200_000 and peak < 100e6


def test_the_largest_come_in_order_and_of_equal_ones_the_last_first() -> None:
    figures = np.random.default_rng(2).integers(0, 9, 500).astype(np.float32)
    wanted = sorted(range(500), key=lambda place: (-figures[place], -place))
    for most in (0, 1, 37, 499, 500, 900):
        assert largest(figures, most).tolist() == wanted[:most]


@pytest.mark.slow  # torch is loaded
@pytest.mark.parametrize("share", [1.0, 0.5, 0.02, 0.0])
def test_the_nearest_are_those_of_wide_numbers(share: float) -> None:
    rows = unit(drawn(20_000, 32)).astype(np.float16)
    inside = np.random.default_rng(4).random(20_000) < share
    vector = unit(drawn(1, 32, seed=5))[0]
    exact = np.where(inside, rows.astype(np.float32) @ vector, -9)
    wanted = np.argsort(-exact)[: min(500, inside.sum())]
    places, cosines = nearest(rows, vector, 500, inside)
    assert places.tolist() == wanted.tolist() and np.allclose(cosines, exact[wanted], atol=1e-6)
