"""Search for the cells in which a model is weak: which images to draw next, and which cells are told. Pure.

A cell is a label, an edit type and an alternative. It is weak if more than a given share of its images are valid
faults: images that the model gets wrong and that people or checks do not find invalid. Cells that share an alternative
or a label are often weak together, so a cell's chance of being weak comes from its own images and from those of its
alternative and of its label.

A weak cell is told by evidence that remains valid however often and for whatever reason the search looks: an e-value
for each cell (Grünwald, de Heide and Koolen 2024, Journal of the Royal Statistical Society B 86), and the procedure of
Benjamini and Hochberg for e-values (Wang and Ramdas 2022, Journal of the Royal Statistical Society B 84). On average at
most `FALSE` of the told cells are not weak. Each image of a cell should have another source, since images of one source
fail together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.figures import Columns, Flags, Floats, Numbers

FALSE = 0.05
"""Maximum expected share of cells told by mistake among all told cells."""
WEAK = 0.1
"""Share of valid faults above which a cell is weak, unless the user sets another."""
EVERY = 5
"""One of this many images is drawn uniformly at random, so that error rates have no bias."""
ASKED = 4
"""One of this many images answers a person's question while one is open, unless it is uniformly random."""
ROUNDS_OF_EM = 12
"""Number of steps of expectation maximisation. More change the chances by less than 0.01."""
PSEUDO = 2.0
"""Weight of the mean of a group (alternatives of a type, all labels) against the cells of one member, in cells."""
USUAL = 0.1
"""Prior chance that an alternative or a label is weak, with the weight of `PSEUDO` members."""
RATE_PRIOR = ((4.0, 4.0), (1.0, 19.0))
"""Beta priors of the share of valid faults in a weak cell and in another one, in images."""


@dataclass(frozen=True)
class Cells(Columns):
    """The numbers of the cells of a search, from 0, column by column; all columns have one length."""

    label: Numbers
    alternative: Numbers
    """Equal alternatives of two edit types have two numbers."""
    edit_type: Numbers


@dataclass(frozen=True)
class Beliefs:
    """Chance that each cell is weak, and shares of valid faults in weak and in other cells, estimated from images."""

    weak: Floats
    rate_weak: float
    rate_other: float


@dataclass(frozen=True)
class Pick:
    """The images to draw in a round, in order; all columns have one length."""

    cell: Numbers
    uniform: Flags
    """True for an image that was picked uniformly at random. Only these measure the error without bias."""
    question: Numbers
    """Zero-based number of the question that the image is to answer; -1 for none."""


def beliefs(cells: Cells, images: Numbers, faults: Numbers) -> Beliefs:
    """Return the chance that each cell is weak, by expectation maximisation of a mixture of two binomial distributions.
    `images` and `faults` are numbers of each cell so far. A cell's prior chance is the larger of the shares of weak
    cells of its alternative and of its label. Small groups are drawn to the mean of the edit type, or of all labels.
    """
    (high_a, high_b), (low_a, low_b) = RATE_PRIOR
    rate_weak, rate_other = high_a / (high_a + high_b), low_a / (low_a + low_b)
    seen = np.flatnonzero(images)
    n, k = images[seen], faults[seen]
    alternatives, labels, types = (
        int(one.max(initial=-1)) + 1 for one in (cells.alternative, cells.label, cells.edit_type)
    )
    type_of = np.zeros(alternatives, np.int64)
    type_of[cells.alternative] = cells.edit_type
    by_alternative, by_label = np.full(alternatives, USUAL), np.full(labels, USUAL)
    weak = np.full(len(seen), USUAL)
    for _ in range(ROUNDS_OF_EM):
        prior = np.maximum(by_alternative[cells.alternative[seen]], by_label[cells.label[seen]])
        odds = np.log(prior / (1 - prior)) + k * np.log(rate_weak / rate_other)
        odds += (n - k) * np.log((1 - rate_weak) / (1 - rate_other))
        weak = 1 / (1 + np.exp(-odds))
        rate_weak = (high_a + weak @ k) / (high_a + high_b + weak @ n)
        rate_other = (low_a + (1 - weak) @ k) / (low_a + low_b + (1 - weak) @ n)
        rate_other = min(rate_other, rate_weak / 2)
        by_alternative = _shares(weak, cells.alternative[seen], alternatives, type_of, types)
        by_label = _shares(weak, cells.label[seen], labels, np.zeros(labels, np.int64), 1)
    prior = np.maximum(by_alternative[cells.alternative], by_label[cells.label])
    prior[seen] = weak
    return Beliefs(prior, float(rate_weak), float(rate_other))


def _shares(weak: Floats, member: Numbers, members: int, group: Numbers, groups: int) -> Floats:
    """Return the share of weak cells of each member (alternative or label), drawn to the mean of its group."""
    sums = np.bincount(member, weights=weak, minlength=members)
    counts = np.bincount(member, minlength=members).astype(np.float64)
    # A member counts as one in the mean of its group, or as less if it has few cells.
    worth = counts / (counts + PSEUDO)
    total = np.bincount(group, weights=worth * sums / np.maximum(counts, 1), minlength=groups) + PSEUDO * USUAL
    mean = total / (np.bincount(group, weights=worth, minlength=groups) + PSEUDO)
    return np.clip((sums + PSEUDO * mean[group]) / (counts + PSEUDO), 1e-3, 1 - 1e-3)


def log_evidence(images: Numbers, faults: Numbers, weak: float = WEAK) -> Floats:
    """Return the natural logarithm of each cell's e-value against "at most a share `weak` are valid faults". It is the
    likelihood of the outcomes under a uniform prior of the share between `weak` and 1, divided by that at `weak`. If
    the cell is not weak, its expectation is at most 1 at any moment of any search.
    """
    from scipy import special

    k, rest = faults.astype(np.float64), (images - faults).astype(np.float64)
    above = special.betaincc(k + 1, rest + 1, weak)
    with np.errstate(divide="ignore"):
        mixed = special.betaln(k + 1, rest + 1) + np.log(above) - np.log1p(-weak)
    at: Floats = mixed - k * np.log(weak) - rest * np.log1p(-weak)
    return at


def told(images: Numbers, faults: Numbers, weak: float = WEAK) -> Flags:
    """Return True for each cell that is told to be weak. On average at most `FALSE` of the told cells are not."""
    evidence = log_evidence(images, faults, weak)
    order = np.sort(evidence)[::-1]
    enough = order >= np.log(len(order) / (FALSE * np.arange(1, len(order) + 1)))
    if not enough.any():
        return np.zeros(len(evidence), bool)
    found: Flags = evidence >= order[np.flatnonzero(enough)[-1]]
    return found


def anytime_interval(images: int, faults: int, level: float = FALSE) -> tuple[float, float]:
    """Return the ends of an interval of a share that misses it at some time with a chance of at most `level`, however
    often one looks. `faults` of `images` independent images have the property.

    It holds each share whose likelihood is more than `level` times the mean likelihood under a uniform prior (Robbins
    1970, Annals of Mathematical Statistics 41, by Ville's inequality).
    """
    from scipy import optimize, special

    if not images:
        return 0.0, 1.0
    mean = special.betaln(faults + 1, images - faults + 1)

    def excess(share: float) -> float:
        return float(mean - special.xlogy(faults, share) - special.xlog1py(images - faults, -share) + np.log(level))

    middle, tiny = faults / images, 1e-12
    low = optimize.brentq(excess, tiny, middle) if faults and excess(tiny) > 0 else 0.0
    high = optimize.brentq(excess, middle, 1 - tiny) if faults < images and excess(1 - tiny) > 0 else 1.0
    return float(low), float(high)


def next_round(
    cells: Cells,
    images: Numbers,
    faults: Numbers,
    left: Numbers,
    size: int,
    chance: np.random.Generator,
    valid: Floats | None = None,
    weak: float = WEAK,
    questions: Sequence[Numbers] = (),
) -> Pick:
    """Choose the images of the next round. `left` is the number of images that each cell can still have, `valid` the
    chance that an image of each cell is valid (None if it is the same everywhere), `questions` the cells of each open
    question of a person.

    One of `EVERY` images is of a random cell, in proportion to all images of the cells. Of the others, one of `ASKED`
    is of a random cell of a question, by turns, in the same proportion. Each other image is of the cell
    that is worth most: its chance of being weak, times that of a valid image, lowered for each image of the cell in
    this round by the chance of a fault. A told cell gets no more.
    """
    belief, left = beliefs(cells, images, faults), left.copy()
    worth = belief.weak * (1.0 if valid is None else valid)
    worth = np.where(told(images, faults, weak), 0.0, worth)
    worth += 1e-6 * chance.random(len(worth))  # cells of equal worth take turns in random order
    picked = list[tuple[int, bool, int]]()

    def at_random(among: Numbers) -> int:
        # Images of a cell are exchangeable, so a new one stands for any of its images, also for those that it has.
        all_images = np.where(left[among] > 0, images[among] + left[among], 0)
        return int(among[chance.choice(len(among), p=all_images / all_images.sum())])

    for place in range(min(size, int(left.sum()))):
        is_uniform = (int(images.sum()) + place) % EVERY == EVERY - 1
        open_ones = [number for number, cells_of in enumerate(questions) if left[cells_of].any()]
        asks = bool(open_ones) and not is_uniform and place % ASKED == 0
        asked = open_ones[(place // ASKED) % len(open_ones)] if asks else -1
        if is_uniform:
            cell = at_random(np.arange(len(left)))
        else:
            cell = at_random(questions[asked]) if asks else int(np.argmax(np.where(left > 0, worth, -1.0)))
            fault = belief.rate_other + belief.weak[cell] * (belief.rate_weak - belief.rate_other)
            worth[cell] *= (1 - fault) ** 2  # squared: it told most weak cells in the replays of `experiments`
        left[cell] -= 1
        picked.append((cell, is_uniform, asked))
    cells_of_round, uniform, question = np.array(picked, np.int64).reshape(-1, 3).T
    return Pick(cells_of_round, uniform.astype(bool), question)
