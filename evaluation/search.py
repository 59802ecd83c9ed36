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

from dataclasses import dataclass

import numpy as np

from core.figures import Flags, Floats, Numbers

FALSE = 0.05
"""Maximum expected share of cells told by mistake among all told cells."""
WEAK = 0.1
"""Share of valid faults above which a cell is weak, unless the user sets another."""
EVERY = 5
"""One of this many images is drawn uniformly at random, so that error rates have no bias."""
ROUNDS_OF_EM = 12
"""Number of steps of expectation maximisation. More change the chances by less than 0.01."""
PSEUDO = 2.0
"""Weight of the mean of a group (alternatives of a type, all labels) against the cells of one member, in cells."""
USUAL = 0.1
"""Prior chance that an alternative or a label is weak, with the weight of `PSEUDO` members."""
RATE_PRIOR = ((4.0, 4.0), (1.0, 19.0))
"""Beta priors of the share of valid faults in a weak cell and in another one, in images."""


@dataclass(frozen=True)
class Cells:
    """The cells of a search, column by column; all columns have one length."""

    label: Numbers
    """The number of each cell's label, from 0."""
    alternative: Numbers
    """The number of each cell's alternative, from 0. Equal alternatives of two edit types have two numbers."""
    edit_type: Numbers
    """The number of each cell's edit type, from 0."""

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Beliefs:
    """What the images so far say about the cells."""

    weak: Floats
    """Chance that each cell is weak, 0 to 1."""
    rate_weak: float
    """Share of valid faults in weak cells, 0 to 1."""
    rate_other: float


@dataclass(frozen=True)
class Pick:
    """The images to draw in a round, in order; all columns have one length."""

    cell: Numbers
    uniform: Flags
    """True for an image that was picked uniformly at random. Only these measure the error without bias."""


def beliefs(cells: Cells, images: Numbers, faults: Numbers) -> Beliefs:
    """Return the chance that each cell is weak, by expectation maximisation of a mixture of two binomial distributions.
    `images` and `faults` are the numbers of images and of valid faults of each cell so far.

    The prior chance of a cell is the larger of the shares of weak cells among those of its alternative and of its
    label. Small groups are drawn to the mean of the alternatives of the edit type, or of all labels.
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
    """Return the natural logarithm of each cell's e-value against "at most a share `weak` are valid faults".

    It is the likelihood of the outcomes under a uniform prior of the share between `weak` and 1, divided by that at
    `weak`. If the cell is not weak, its expectation is at most 1 at any moment of any search.
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


def next_round(
    cells: Cells,
    images: Numbers,
    faults: Numbers,
    left: Numbers,
    size: int,
    chance: np.random.Generator,
    valid: Floats | None = None,
    weak: float = WEAK,
) -> Pick:
    """Choose the images of the next round. `left` is the number of images that each cell can still have, `valid` the
    chance that an image of each cell is valid (None if it is the same everywhere).

    One of `EVERY` images is of a random cell, in proportion to all images of the cells. Each other image is of the cell
    that is worth most: its chance of being weak, times that of a valid image, lowered for each image of the cell in
    this round by the chance of a fault. A told cell gets no more.
    """
    belief, left = beliefs(cells, images, faults), left.copy()
    worth = belief.weak * (1.0 if valid is None else valid)
    worth = np.where(told(images, faults, weak), 0.0, worth)
    worth += 1e-6 * chance.random(len(worth))  # cells of equal worth take turns in random order
    # Images of a cell are exchangeable, so a new one stands for any of its images, also for those that it has already.
    picked, uniform = list[int](), list[bool]()
    for place in range(min(size, int(left.sum()))):
        is_uniform = (int(images.sum()) + place) % EVERY == EVERY - 1
        if is_uniform:
            all_images = np.where(left > 0, images + left, 0)
            cell = int(chance.choice(len(left), p=all_images / all_images.sum()))
        else:
            cell = int(np.argmax(np.where(left > 0, worth, -1.0)))
            fault = belief.rate_other + belief.weak[cell] * (belief.rate_weak - belief.rate_other)
            worth[cell] *= (1 - fault) ** 2  # squared: it told most weak cells in the replays of `experiments`
        left[cell] -= 1
        picked.append(cell)
        uniform.append(is_uniform)
    return Pick(np.array(picked, np.int64), np.array(uniform, bool))
