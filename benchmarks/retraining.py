"""Time to plan a retraining (data splits, trainings and test sets) of 125,000 test cases whose hashes are known.

`python -m benchmarks.retraining` runs only this benchmark. It needs a minute of preparation and 1 GB of disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.catalogue import CLASSES, made_apart, prepared
from benchmarks.figures import Figure, reported
from core.image_filter import ImageFilter
from core.perceptual_hashes import BITS
from core.settings import UnderTestSettings
from core.test_sets import ImageHashes
from evaluation.class_mapping import ClassMap, map_classes
from services.evaluation.retraining.training import DataSplit, Examples, RetrainingQuestion, ValidCases, part, plan
from services.evaluation.subjects import Cases, read_cases
from services.evaluation.types import EvaluationQuestion, Subject
from services.test_sets.hashes import hashes_of
from storage.images import file_name
from storage.workspace import Workspace

SIZE = 125_000
PLANNED = 20_000.0
"""Maximum milliseconds to plan a retraining whose image hashes are known, since a person waits for the plan."""
TIMES = 3
EVERYTHING = Subject(None, ImageFilter())
ALIKE_SCENES, FRAMES = 0.5, 0.02
"""Weight of the look that all pictures share (a bright sky, a dark street), and the share of sources that are almost
equal to the source before, like frames of a film."""
T = TypeVar("T")


def measure(size: int = SIZE) -> list[Figure]:
    """Measure a new workspace of `size` test cases, and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        made_apart(made, Path(folder), size)
        with Workspace(Path(folder)) as workspace:
            return _measured(workspace, size)


def made(folder: Path, size: int) -> None:
    """Make a workspace of `size` test cases, with a hash for each picture."""
    prepared(folder, size, apart=True)
    with Workspace(folder) as workspace:
        cases = read_cases(workspace, EVERYTHING)
        hashes = zip(cases.pictures, looks_of(cases, np.random.default_rng(size)), strict=True)
        workspace.test_sets.keep_hashes({sha: ImageHashes(sha, look) for sha, look in hashes})
        for sha in cases.pictures:  # planning checks that the files exist, but does not open them
            (workspace.images.folder / file_name(sha)).touch()


def looks_of(cases: Cases, chance: np.random.Generator) -> list[int]:
    """Return random perceptual hashes of all pictures. They are computed as `perceptual_hash` does, but from random low
    frequencies. All scenes have some of these frequencies in common, and an image shares most of them with its source.
    """
    common = chance.normal(size=BITS)

    def hashes(spectra: NDArray[np.float64]) -> NDArray[np.bool_]:
        return spectra > np.median(spectra, axis=1, keepdims=True)

    sources = ALIKE_SCENES * common + chance.normal(size=(len(cases.originals), BITS))
    frames = np.flatnonzero(chance.random(len(sources)) < FRAMES)
    frames = frames[frames > 0]
    sources[frames] = sources[frames - 1] + chance.normal(scale=0.02, size=(len(frames), BITS))
    found = [hashes(sources)]
    for images, scale in ((cases.generated, 0.5), (cases.controls, 0.2)):
        found.append(hashes(sources[images.source] + chance.normal(scale=scale, size=(len(images), BITS))))
    shas = [*cases.originals.shas, *cases.generated.shas, *cases.controls.shas]
    packed = (int.from_bytes(row.tobytes(), "big") for row in np.packbits(np.concatenate(found), axis=1))
    known = dict(zip(shas, packed, strict=True))
    return [known[sha] for sha in cases.pictures]


def _measured(workspace: Workspace, size: int) -> list[Figure]:
    name = f", {size:,} test cases"
    cases = read_cases(workspace, EVERYTHING)
    mapping = map_classes(cases.labels, [f"class {number}" for number in range(CLASSES)], "classification", None)
    question = RetrainingQuestion(
        EvaluationQuestion(EVERYTHING, UnderTestSettings(source="timm", name="a model under test"))
    )
    whole, parting, planning = list[float](), list[float](), list[float]()
    for _ in range(TIMES):
        read, stored = _timed(lambda: hashes_of(workspace, cases.pictures))
        looks = {sha: one.perceptual for sha, one in stored.items()}
        parted_in, parted = _timed(lambda looks=looks: part(cases, mapping, looks, question))  # type: ignore[misc]
        planned_in, planned = _timed(lambda parted=parted: _plan(workspace, cases, mapping, parted, question))  # type: ignore[misc]
        assert planned > len(cases.generated) / 2, "there is next to nothing to learn from"
        whole.append(read + parted_in + planned_in)
        parting.append(parted_in)
        planning.append(planned_in)
    return [
        Figure(f"the plan of a retraining{name}", tuple(whole), PLANNED),
        Figure(f"of it, the sides of all images{name}", tuple(parting), PLANNED),
        Figure(f"of it, the arms and sets{name}", tuple(planning), PLANNED),
    ]


def _plan(
    workspace: Workspace, cases: Cases, mapping: ClassMap, parted: DataSplit, question: RetrainingQuestion
) -> int:
    """Plan a retraining with these data splits. Return the largest number of images that one training learns from."""
    nobody = ValidCases(np.full(len(cases.generated), -1), None, "Nobody judged.")
    examples = Examples(mapping, workspace.images.path, lambda _: None)
    planned = plan(cases, parted, question, examples, nobody, lambda places: places)
    return max(len(one.examples) for one in planned.arms)


def _timed(act: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    found = act()
    return 1000 * (time.perf_counter() - began), found


def main(sizes: Sequence[int] = (SIZE,)) -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    figures = [figure for size in sizes for figure in measure(size)]
    return reported(figures, f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    raise SystemExit(main())
