"""Search for cells in which a model is weak: choose the images to draw next, and detect weak cells. Pure.

A cell is a label, an edit type and an alternative. It is weak if more than a given share of its images are valid
faults: images on which the model is wrong and that neither people nor checks find invalid. A cell may be weak for
three reasons: by itself, because its alternative is weak under most labels, or because its label is weak under most
edits. From the images of all cells, the search estimates how likely each reason is.

A weak cell is detected by evidence that remains valid no matter how often or why the search looks: an e-value for each
cell (Grünwald, de Heide and Koolen 2024, Journal of the Royal Statistical Society B 86), and the procedure of Benjamini
and Hochberg for e-values (Wang and Ramdas 2022, Journal of the Royal Statistical Society B 84). On average at most
5 % (`FALSE`) of the detected cells are false alarms. The images of a cell should have different sources, since images
of one source fail together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.figures import Columns, Flags, Floats, Numbers

FALSE = 0.05
"""Maximum expected share of the detected cells that are in fact not weak."""
WEAK = 0.1
"""Share of valid faults above which a cell is weak, if the user gives no other share."""
EVERY = 5
"""One in this many images is drawn uniformly at random, to measure error rates without bias."""
ASKED = 4
"""Among the images not drawn uniformly, one in this many comes from the cells of a user's open question, if any."""
STEPS = 12
"""Number of steps of belief propagation. In simulated searches, more steps changed the estimated
probabilities by 0.002 on average. Changes were much larger only if two causes explained the faults equally well."""
USUAL = 0.05
"""Prior chance that a cell is weak by itself, that an alternative is weak, or that a label is weak."""
SHARED = 0.9
"""Assumed share of weak cells among the cells of a weak alternative or a weak label."""
PSEUDO, PSEUDO_CELLS = 2.0, 20.0
"""Weight of the prior `USUAL`, as a number of cases: `PSEUDO` alternatives or labels; `PSEUDO_CELLS` cells."""
UNSURE = 1.0
"""Safety margin on the evidence needed for a detection, as the logarithm of an e-value. Expected evidence is computed
for a known share of faults. The true share is unknown, so evidence grows more slowly than expected."""
RATE_PRIOR = ((4.0, 4.0), (1.0, 19.0))
"""Parameters (faults, other images) of two beta priors of the share of valid faults: in weak and in other cells."""


@dataclass(frozen=True)
class Cells(Columns):
    """The cells of a search, column by column. A cell is a label, an edit type and an alternative."""

    label: Numbers
    """Number of each cell's label, from 0."""
    alternative: Numbers
    """Number of each cell's alternative, from 0. Equal words of two edit types have two numbers."""
    edit_type: Numbers
    """Number of each cell's edit type, from 0."""


@dataclass(frozen=True)
class Beliefs:
    """Estimates about the cells of a search, from the images drawn so far."""

    weak: Floats
    """Probability that each cell is weak, 0 to 1."""
    rate_weak: float
    """Estimated share of valid faults in weak cells, 0 to 1."""
    rate_other: float


@dataclass(frozen=True)
class Pick:
    """Images to draw in one round, in order; all columns have one length."""

    cell: Numbers
    uniform: Flags
    """True if the image was picked uniformly at random. Only such images measure the error rate without bias."""
    question: Numbers
    """Index of the question that the image shall answer; -1 for none."""


def beliefs(cells: Cells, images: Numbers, faults: Numbers) -> Beliefs:
    """Estimate how likely each cell is weak, by belief propagation between cells, alternatives and labels (Pearl 1988,
    Probabilistic Reasoning in Intelligent Systems). `images` and `faults` are each cell's numbers of images and of
    valid faults so far.

    Faults make a cell's alternative and its label suspect. If the label explains the faults, the alternative is less
    suspect, and vice versa. The search also learns from the images the share of faults in weak cells, the share in
    other cells, and how common weak cells, labels and alternatives are.
    """
    from scipy.special import expit, logit

    (high_a, high_b), (low_a, low_b) = RATE_PRIOR
    rate_weak, rate_other, lone = high_a / (high_a + high_b), low_a / (low_a + low_b), USUAL
    seen = np.flatnonzero(images)
    n, k = images[seen], faults[seen]
    type_of = np.zeros(int(cells.alternative.max(initial=-1)) + 1, np.int64)
    type_of[cells.alternative] = cells.edit_type
    # The two sides: alternatives, whose groups are the edit types, and labels, which are one group.
    of_cell, groups = (cells.alternative, cells.label), (type_of, np.zeros(cells.label.max(initial=-1) + 1, np.int64))
    member = [one[seen] for one in of_cell]
    # Logarithms of the odds that a member is weak: from each of its cells alone, and from all of them together.
    messages = [np.zeros(len(seen)) for _ in member]
    odds = [np.full(len(group), logit(USUAL)) for group in groups]
    weak = np.full(len(seen), USUAL)
    for _ in range(STEPS):
        likelihood = k * np.log(rate_weak / rate_other) + (n - k) * np.log((1 - rate_weak) / (1 - rate_other))
        more = np.expm1(np.clip(likelihood, -300, 300))
        # Chance that the member of each cell is weak, from the member's other cells.
        others = [expit(total[of] - own) for total, of, own in zip(odds, member, messages, strict=True)]
        for side, other in enumerate(reversed(others)):
            ratio = np.log1p(SHARED * more) - np.log1p((other * SHARED + (1 - other) * lone) * more)
            messages[side] = (messages[side] + ratio) / 2  # half the way, so that the steps do not oscillate
        shared = 1 - (1 - others[0]) * (1 - others[1])
        prior = shared * SHARED + (1 - shared) * lone
        weak = prior * (1 + more) / (1 + prior * more)
        rate_weak = (high_a + weak @ k) / (high_a + high_b + weak @ n)
        rate_other = (low_a + (1 - weak) @ k) / (low_a + low_b + (1 - weak) @ n)
        rate_other = min(rate_other, rate_weak / 2)
        single = (1 - shared) / (1 + prior * more)  # of cells whose alternative and label are not weak
        lone = (PSEUDO_CELLS * USUAL + single @ (lone * (1 + more))) / (PSEUDO_CELLS + single @ (1 + lone * more))
        for side, group in enumerate(groups):
            known = np.bincount(member[side], minlength=len(group))
            usual = _usual(expit(odds[side]), known, group)
            odds[side] = logit(usual) + np.bincount(member[side], messages[side], len(group))
    shared = 1 - (1 - expit(odds[0][cells.alternative])) * (1 - expit(odds[1][cells.label]))
    chance = shared * SHARED + (1 - shared) * lone
    chance[seen] = weak
    return Beliefs(chance, float(rate_weak), float(rate_other))


def _usual(weak: Floats, cells: Numbers, group: Numbers) -> Floats:
    """Return the usual chance that each member (alternative or label) is weak: the mean chance of its group. Members
    with few seen cells count less.
    """
    worth = cells / (cells + PSEUDO)
    total = np.bincount(group, weights=worth * weak) + PSEUDO * USUAL
    mean: Floats = total / (np.bincount(group, weights=worth) + PSEUDO)
    return np.clip(mean, 1e-3, 0.9)[group]


def log_evidence(images: Numbers, faults: Numbers, weak: float = WEAK) -> Floats:
    """Return each cell's evidence of being weak: the natural logarithm of its e-value. A cell is weak if its share of
    valid faults is above `weak`.

    The e-value is the likelihood of the outcomes under a uniform prior from `weak` to 1, divided by their likelihood at
    `weak`. If a cell is not weak, its e-value is at most 1 on average, however the search proceeds.
    """
    from scipy import special

    k, rest = faults.astype(np.float64), (images - faults).astype(np.float64)
    above = special.betaincc(k + 1, rest + 1, weak)
    with np.errstate(divide="ignore"):
        mixed = special.betaln(k + 1, rest + 1) + np.log(above) - np.log1p(-weak)
    at: Floats = mixed - k * np.log(weak) - rest * np.log1p(-weak)
    return at


def detected(images: Numbers, faults: Numbers, weak: float = WEAK) -> Flags:
    """Return True for each cell detected as weak. The expected share of false detections is at most `FALSE`."""
    evidence = log_evidence(images, faults, weak)
    order = np.sort(evidence)[::-1]
    enough = order >= np.log(len(order) / (FALSE * np.arange(1, len(order) + 1)))
    return np.asarray(evidence >= order[enough].min(initial=np.inf))


def anytime_interval(images: int, faults: int, level: float = FALSE) -> tuple[float, float]:
    """Return both ends of an interval for the share of faults, given `faults` among `images` independent images. It may
    be looked at after each image: the chance that it ever misses the true share is at most `level`.

    The interval contains each share whose likelihood exceeds `level` times the mean likelihood under a uniform prior
    (Robbins 1970, Annals of Mathematical Statistics 41, by Ville's inequality).
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


def _bar(evidence: Floats, belief: Beliefs, already: int, images: int, weak: float) -> float:
    """Return the log e-value that will be enough, at the end of the search, to detect a cell. `already` is the number
    of cells detected so far, and `images` the number of images left.

    The more cells are detected, the less evidence each cell needs. So the search aims at the number of cells that can
    probably be detected with the images left.
    """
    growth, _ = _steps(belief, weak)
    for cells in range(already + 1, len(evidence) + 1):
        bar = np.log(len(evidence) / (FALSE * cells))
        missing = np.where(evidence < bar, bar + UNSURE - evidence, 0.0) / growth / np.maximum(belief.weak, 1e-9)
        if cells > already + 1 and np.sort(missing)[:cells].sum() > images:
            return float(np.log(len(evidence) / (FALSE * (cells - 1))))
    return float(np.log(1 / FALSE))


def _steps(belief: Beliefs, weak: float) -> tuple[float, float]:
    """Return mean and standard deviation of the evidence that one image adds to a weak cell."""
    # At a rate hardly above the limit, no cell could be detected. But a single weak cell may have a higher rate.
    share = max(belief.rate_weak, 2 * weak / (1 + weak))
    fault, other = np.log(share / weak), np.log((1 - share) / (1 - weak))
    return float(share * fault + (1 - share) * other), float(np.sqrt(share * (1 - share)) * (fault - other))


def _worth(chance: Floats, evidence: Floats, left: Numbers, bar: float, steps: tuple[float, float]) -> Floats:
    """Return the expected number of newly detected cells for one more image of each cell: a x b / c. Here a is the
    chance that the cell is weak, b is the chance that `left` images are enough to detect a weak cell, and c is the
    likely number of images until detection.

    A cell with at least the evidence `bar` is worth nothing. All arrays have one value per cell.
    """
    from scipy.special import ndtr

    growth, spread = steps
    need, most = np.maximum((bar + UNSURE - evidence) / growth, 1.0), np.maximum(left, 1)
    enough = np.where(left > 0, ndtr((most - need) * growth / (spread * np.sqrt(most))), 0.0)
    # Chances below 0.001 count as 0.001, so that likely weak cells come first even if none can be detected.
    return np.where(evidence < bar, chance * np.maximum(enough, 1e-3) / need, 0.0)


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
    budget: int | None = None,
) -> Pick:
    """Choose the `size` images of the next round. `left` is the number of images that each cell can still have. `valid`
    is each cell's chance that an image is valid, None if the chances are equal. `questions` has the cells of each open
    question of a person. `budget` is the number of images that the search may still choose, None for all that are left.

    One in `EVERY` images comes from a random cell, in proportion to the cells' numbers of images. One in `ASKED` of the
    other images comes from a random cell of an open question; questions take turns. The remaining images come from the
    cell that is not yet detected and has the largest worth (`_worth`) times `valid`.

    Results of images in the same round are not known yet. So the worth of a cell's next image is a mean over all
    possible results of the cell's images in this round. In this mean, no result raises the worth above its value at
    the start of the round: after a promising result, the next round can choose more images of the cell.
    """
    from scipy import special

    belief, left = beliefs(cells, images, faults), left.copy()
    evidence, is_detected = log_evidence(images, faults, weak), detected(images, faults, weak)
    aimed = int(left.sum()) if budget is None else budget
    aimed -= aimed // EVERY
    bar, steps = _bar(evidence, belief, int(is_detected.sum()), aimed, weak), _steps(belief, weak)
    share = np.ones(len(left)) if valid is None else valid
    at_first = ~is_detected * share * _worth(belief.weak, evidence, np.minimum(left, aimed), bar, steps)
    worth = at_first + 1e-9 * chance.random(len(left))  # cells of equal worth take turns in random order
    new = np.zeros(len(left), np.int64)
    picked, uniform, question = list[int](), list[bool](), list[int]()

    def at_random(among: Numbers) -> int:
        # Images of a cell are exchangeable, so a new one may be any of its images, also one that it has.
        all_images = np.where(left[among] > 0, images[among] + left[among], 0)
        return int(among[chance.choice(len(among), p=all_images / all_images.sum())])

    def worth_after(cell: int) -> float:
        """Return the worth of another image of a cell, after the images that the cell gets in this round (`new`)."""
        more, found, chance_of = int(new[cell]), np.arange(new[cell] + 1), belief.weak[cell]
        of_weak, of_other = (
            special.binom(more, found) * rate**found * (1 - rate) ** (more - found)
            for rate in (belief.rate_weak, belief.rate_other)
        )
        either = chance_of * of_weak + (1 - chance_of) * of_other
        shown = log_evidence(np.full(more + 1, images[cell] + more), faults[cell] + found, weak)
        rest = np.full(more + 1, min(int(left[cell]), aimed - more))
        after = share[cell] * _worth(chance_of * of_weak / either, shown, rest, bar, steps)
        return float(either @ np.minimum(after, at_first[cell]))

    for place in range(min(size, int(left.sum()))):
        is_uniform = (int(images.sum()) + place) % EVERY == EVERY - 1
        open_ones = [number for number, cells_of in enumerate(questions) if left[cells_of].any()]
        asks = bool(open_ones) and not is_uniform and place % ASKED == 0
        chosen_question = open_ones[(place // ASKED) % len(open_ones)] if asks else -1
        if is_uniform:
            cell = at_random(np.arange(len(left)))
        else:
            cell = at_random(questions[chosen_question]) if asks else int(np.argmax(np.where(left > 0, worth, -1.0)))
        left[cell] -= 1
        new[cell] += 1
        worth[cell] = worth_after(cell)
        picked.append(cell)
        uniform.append(is_uniform)
        question.append(chosen_question)
    return Pick(np.array(picked, np.int64), np.array(uniform, bool), np.array(question, np.int64))
