"""Simulate searches for combinations of label and alternative (cells) that a model fails on: `python -m
experiments.search_replays RESULTS.jsonl`. The file gets a line for every 50 replays, so that a stopped run can resume.

No image is drawn. The simulated data set has the labels and alternatives of the drawn world, and `IMAGES` images per
cell. In some cells, the weak cells, the model often fails. A replay has one of three arrangements of weak cells: 14
random cells, all cells of two alternatives, or all cells of one label. Each search method chooses `BUDGET` images (5 %
of all) in rounds of `ROUND`, and learns after each round which of them are valid faults. One rule for all methods
detects the weak cells (`evaluation.search.detected`).

Goals, set before the first run and judged by 95 % intervals. On average over all arrangements, our search should
detect at least twice as many weak cells as the command `foretell` detects in a loop. In each arrangement, our search
should detect at least as many weak cells as Thompson sampling does, and as Bayesian optimisation on CLIP's texts does.
At most 5 % of the detected cells should not be weak. Some images of our search are random, to estimate the share of
valid faults in the whole data set. The interval of this share should contain the truth in 93 to 98 % of replays.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from core.figures import Figure, Flags, Floats, Numbers
from demo.scene import GROUNDS, OBJECT_CLASSES, TIMES, TREES, WALLS, WEATHERS
from evaluation.by_source import LEAST, MOST, MeansOfSources
from evaluation.ranking import by_new_faults, chance_wrong
from evaluation.search import EVERY, Cells, detected, next_round
from experiments.resumable import measure_each
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile

EDITS = {"weather": WEATHERS, "time": TIMES, "ground": GROUNDS, "trees": TREES, "walls": WALLS}
IMAGES, BUDGET, ROUND = 22, 300, 10
"""Number of images per cell; number of images that a search may choose; number of images chosen per round."""
WRONG_WEAK, WRONG_OTHER, VALID = 0.5, 0.04, 0.85
"""Share of wrong predictions in a weak cell; share of wrong predictions in other cells; share of valid images."""
TOGETHER = 50
"""Number of replays in a line of the results."""
REPLAYS, FIRST_SEED = 1_000, 10_000
"""Number of replays, and their first seed. Smaller seeds were used to choose the constants of the search."""


@dataclass(frozen=True)
class World:
    """All cells of the simulated data set: each class label with each new word that an edit brings in."""

    cells: Cells
    names: tuple[tuple[str, str, str], ...]
    """Edit type, alternative and label of each cell."""

    def planted(self, planting: str, chance: np.random.Generator) -> Flags:
        """Return True for each cell that is weak. `planting`, a name in `PLANTINGS`, tells which cells are chosen."""
        weak = np.zeros(len(self.cells), bool)
        if planting == "14 single cells":
            weak[chance.choice(len(weak), 14, replace=False)] = True
        elif planting == "2 alternatives, all labels":
            two = chance.choice(int(self.cells.alternative.max()) + 1, 2, replace=False)
            weak[np.isin(self.cells.alternative, two)] = True
        else:
            weak[self.cells.label == chance.integers(len(OBJECT_CLASSES))] = True
        return weak


PLANTINGS = ("14 single cells", "2 alternatives, all labels", "1 label, all edits")


@cache
def world() -> World:
    """Return all cells. A cell is a pair of a label and an alternative."""
    alternatives = [(kind, name) for kind, names in EDITS.items() for name in names]
    kinds = list(EDITS)
    rows = [(number, place) for number in range(len(alternatives)) for place in range(len(OBJECT_CLASSES))]
    cells = Cells(
        label=np.array([label for _, label in rows]),
        alternative=np.array([number for number, _ in rows]),
        edit_type=np.array([kinds.index(alternatives[number][0]) for number, _ in rows]),
    )
    return World(cells, tuple((*alternatives[number], OBJECT_CLASSES[label]) for number, label in rows))


@dataclass
class Replay:
    """State of a search. For each cell: number of images seen, of valid faults among them, and of images left."""

    images: Numbers
    faults: Numbers
    left: Numbers
    chance: np.random.Generator


Method = Callable[[Replay, int], Numbers]
"""Search method: takes the state of a search and a number of images. Returns the cells of the images to review next."""


def ours(replay: Replay, size: int) -> Numbers:
    """Choose images as the studio's search does."""
    budget = BUDGET - int(replay.images.sum())
    return next_round(world().cells, replay.images, replay.faults, replay.left, size, replay.chance, budget=budget).cell


def uniform(replay: Replay, size: int) -> Numbers:
    """Choose images uniformly at random."""
    images: Numbers = replay.chance.permutation(np.repeat(np.arange(len(replay.left)), replay.left))
    return images[:size]


def foretell(replay: Replay, size: int) -> Numbers:
    """Choose the first images in the order of the command `foretell`, which learns from all earlier rounds."""
    names, left = world().names, replay.left
    pairs = zip(names, replay.faults.tolist(), replay.images.tolist(), strict=True)
    chances = chance_wrong({name: (k, n) for name, k, n in pairs if n}, names)
    places = np.repeat(np.arange(len(left)), np.minimum(left, size))
    places = places[replay.chance.permutation(len(places))]
    order = by_new_faults(chances[places], np.ones(len(places)), [names[one] for one in places])
    found: Numbers = places[order[:size]]
    return found


def thompson(replay: Replay, size: int) -> Numbers:
    """Choose images by Thompson sampling, with a uniform prior for each cell. Detected cells get no more images."""
    open_left, picks = np.where(detected(replay.images, replay.faults), 0, replay.left), list[int]()
    for draws in replay.chance.beta(1 + replay.faults, 1 + replay.images - replay.faults, (size, len(open_left))):
        picks.append(int(np.argmax(np.where(open_left > 0, draws, -1.0))))
        open_left[picks[-1]] -= 1
    return np.array(picks)


def bayesian(replay: Replay, size: int) -> Numbers:
    """Choose images by Bayesian optimisation, after Le Coz et al.: a Gaussian process with upper confidence bounds, on
    CLIP's vectors of "a LABEL, ALTERNATIVE". Images picked earlier in a round count with their expected result.
    Detected cells get no more images.
    """
    kernel = _kernel()
    open_left = np.where(detected(replay.images, replay.faults), 0, replay.left)
    seen, picks = np.flatnonzero(replay.images), list[int]()
    images, faults = replay.images.astype(np.float64), replay.faults.astype(np.float64)
    base = (faults.sum() + 0.1) / (images.sum() + 2)
    factor = np.linalg.solve(kernel[np.ix_(seen, seen)] + np.diag(0.1 / images[seen]), kernel[seen])
    mean = base + (faults[seen] / images[seen] - base) @ factor
    covariance = kernel - kernel[:, seen] @ factor
    for _ in range(size):
        bound = mean + 2 * np.sqrt(np.maximum(np.diag(covariance), 0.0)) + 1e-6 * replay.chance.random(len(mean))
        pick = int(np.argmax(np.where(open_left > 0, bound, -np.inf)))
        picks.append(pick)
        open_left[pick] -= 1
        # Add an image with the expected result by a rank-one update, so that the process is solved once a round.
        gain = covariance[pick] / (covariance[pick, pick] + 0.1)
        mean = mean + gain * (float(np.clip(mean[pick], 0.0, 1.0)) - mean[pick])
        covariance = covariance - np.outer(gain, covariance[pick])
    return np.array(picks)


METHODS: Mapping[str, Method] = {
    "ours": ours,
    "foretell in a loop": foretell,
    "Thompson sampling": thompson,
    "Bayesian optimisation": bayesian,
    "uniform": uniform,
}


@cache
def _kernel() -> Floats:
    """Return the similarity of each pair of cells: a squared exponential kernel over CLIP's vectors."""
    clip = load_models(load_profile("demo")).embedder
    vectors = np.array([clip.text(f"a {label}, {alternative}") for _, alternative, label in world().names])
    distance = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=-1)
    return 0.04 * np.exp(-distance / np.median(distance[distance > 0]))


def replayed(method: str, planting: str, seed: int) -> tuple[float, int, int, int, bool | None]:
    """Simulate one search. Return the share of weak cells detected, and the numbers of detected cells, of detected
    cells that are not weak, and of valid faults seen. Last, for our search, return True if the interval of the error
    rate contains the truth; None for other methods.
    """
    fate = np.random.default_rng([FIRST_SEED + seed, PLANTINGS.index(planting)])
    weak = world().planted(planting, fate)
    faulty = fate.random((len(weak), IMAGES)) < VALID * np.where(weak, WRONG_WEAK, WRONG_OTHER)[:, None]
    images, faults = np.zeros(len(weak), np.int64), np.zeros(len(weak), np.int64)
    replay = Replay(images, faults, np.full(len(weak), IMAGES), fate)
    marked = list[bool]()
    for _ in range(BUDGET // ROUND):
        for cell in METHODS[method](replay, ROUND).tolist():
            fault = bool(faulty[cell, replay.images[cell]])
            if (int(replay.images.sum()) + 1) % EVERY == 0:
                marked.append(fault)
            replay.images[cell] += 1
            replay.left[cell] -= 1
            replay.faults[cell] += fault
    found = detected(replay.images, replay.faults)
    covers = None
    if method == "ours":
        error = MeansOfSources(np.array(marked, float)[:, None]).figure(lambda of: of[..., 0], len(marked))
        truth = VALID * float(np.where(weak, WRONG_WEAK, WRONG_OTHER).mean())
        covers = error.low is not None and error.high is not None and error.low <= truth <= error.high
    return (
        float((found & weak).sum() / weak.sum()),
        int(found.sum()),
        int((found & ~weak).sum()),
        int(replay.faults.sum()),
        covers,
    )


def main() -> None:
    """Simulate all methods in all arrangements of weak cells, and print the report as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search_replays", description=__doc__)
    parser.add_argument("results", type=Path, help="file that gets the results, a line for some replays")
    parser.add_argument(
        "--replays", type=int, default=REPLAYS, help=f"replays of each method and planting ({REPLAYS:,})"
    )
    options = parser.parse_args()
    replays: int = options.replays
    _kernel()
    some = {
        (planting, method, first, min(TOGETHER, replays - first)): (planting, method, first)
        for planting in PLANTINGS
        for method in METHODS
        for first in range(0, replays, TOGETHER)
    }
    with ProcessPoolExecutor() as pool:

        def measure(one: tuple[str, str, int]) -> dict[str, Any]:
            planting, method, first = one
            seeds = range(first, min(first + TOGETHER, replays))
            rows = list(pool.map(partial(replayed, method, planting), seeds, chunksize=5))
            return {"planting": planting, "method": method, "first": first, "replays": len(seeds), "rows": rows}

        lines = measure_each(some, measure, options.results, ("planting", "method", "first", "replays"))
    rows: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for line in lines:
        if (line["planting"], line["method"], line["first"], line["replays"]) in some:
            rows[line["planting"], line["method"]] += line["rows"]
    # The None of a method without random images becomes NaN.
    results = {name: np.array(found, dtype=np.float64) for name, found in rows.items()}
    print("\n".join(report(results, replays)))


def report(results: Mapping[tuple[str, str], Floats], replays: int) -> list[str]:
    """Return Markdown tables of all results, and a table that says which goals are reached."""
    head = [*METHODS]
    lines = [
        f"Share of the weak cells that are detected, % (95 % interval over {replays:,} replays):",
        "",
        f"| planted | {' | '.join(head)} |",
        f"| --- |{' ---: |' * len(head)}",
    ]
    for planting in PLANTINGS:
        shares = [_mean(results[planting, method][:, 0]) for method in head]
        lines.append(f"| {planting} | {' | '.join(_words(one) for one in shares)} |")
    lines += ["", "Valid faults among the images chosen, mean:", "", f"| planted | {' | '.join(head)} |"]
    lines.append(f"| --- |{' ---: |' * len(head)}")
    for planting in PLANTINGS:
        faults = " | ".join(f"{results[planting, method][:, 3].mean():.1f}" for method in head)
        lines.append(f"| {planting} | {faults} |")
    lines += ["", "| goal | reached | |", "| --- | --- | --- |"]
    over_all = {method: np.stack([results[one, method][:, 0] for one in PLANTINGS]).mean(axis=0) for method in head}
    twice = over_all["ours"] - 2 * over_all["foretell in a loop"]
    lines.append(
        _goal(
            "twice `foretell` over all plantings",
            twice,
            f"{over_all['ours'].mean() / over_all['foretell in a loop'].mean():.2f} times",
        )
    )
    for method in ("Thompson sampling", "Bayesian optimisation"):
        for planting in PLANTINGS:
            more = results[planting, "ours"][:, 0] - results[planting, method][:, 0]
            lines.append(_goal(f"at least {method}: {planting}", more, f"{_words(_mean(more))} points more"))
    ours_all = np.concatenate([results[one, "ours"] for one in PLANTINGS])
    false = ours_all[:, 2].sum() / max(ours_all[:, 1].sum(), 1)
    lines.append(f"| at most 5 % of the detected cells are not weak | {100 * false:.2f} % | {_mark(false <= 0.05)} |")
    covers = float(np.nanmean(ours_all[:, 4]))
    reached = LEAST <= covers <= MOST
    lines.append(f"| the error by the uniform images covers in 93 to 98 % | {100 * covers:.1f} % | {_mark(reached)} |")
    return lines


def _mean(values: Floats) -> Figure:
    reach = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values))
    middle = float(values.mean())
    return Figure(middle, middle - reach, middle + reach, len(values))


def _words(figure: Figure) -> str:
    assert figure.value is not None and figure.low is not None and figure.high is not None
    return f"{100 * figure.value:.1f} ({100 * figure.low:.1f} to {100 * figure.high:.1f})"


def _goal(name: str, more: Floats, words: str) -> str:
    low = _mean(more).low
    assert low is not None
    return f"| {name} | {words} | {_mark(low >= 0)} |"


def _mark(reached: bool) -> str:
    return "reached" if reached else "**missed**"


if __name__ == "__main__":
    main()
