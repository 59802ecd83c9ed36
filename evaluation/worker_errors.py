"""Estimate the true state of judged images from single votes and from each worker's errors. Pure.

A consensus takes every vote for the truth: two workers who always say yes make invalid images valid, or leave them
without a consensus. Control items have a known answer. They show how often each worker is right on valid images, and on
invalid ones. The model is by Dawid and Skene (1979, Applied Statistics 28), with control items as known images, fitted
by Gibbs sampling, so that every draw includes the uncertainty of the rates. Workers are drawn from a population
(partial pooling), since each sees only a few control items.

A third state beside valid and invalid is "hard": people vote as if they tossed a coin, so their votes say nothing.
Without it, three honest votes against two would be taken for near certainty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.figures import Columns, Flags, Floats, Numbers

INVALID, VALID, HARD = 0, 1, 2
"""True states of a judged image. Nobody can decide whether a hard image is valid."""
CHAINS, WARM_UP, KEPT = 40, 30, 25
"""Number of parallel chains, number of first steps that each chain discards, number of steps that it keeps."""
MOST_CELLS = 40_000
"""Maximum product of chains and images, to limit memory. With more images, fewer chains run."""
FEWEST_CHAINS = 10
"""Minimum number of chains, however many images there are."""
VOTES_THAT_SHOW_HARD = 3
"""Minimum number of votes of an image for a disagreement to suggest a hard image."""
_PRIOR = np.array([0.5, 0.5, 0.1])
"""Dirichlet prior: shares of invalid, valid and hard images. 0.5 is Jeffreys's prior. 0.1 expects few hard images."""
_MEANS, _SIZES = np.linspace(0.525, 0.995, 20), np.array([1.0, 4.0, 20.0, 100.0])
"""Grid of the workers' distribution: mean rate of right answers, and similarity (sum of the beta parameters)."""
_LEAST = 1e-3
"""Minimum distance of a worker's rate of right answers from 0 and 1, so that no answer is impossible."""


@dataclass(frozen=True)
class Ballots(Columns):
    """Votes of single workers, column by column; all columns have one length."""

    image: Numbers
    """Index of the judged image; -1 for a control item."""
    worker: Numbers
    valid: Flags
    """True if the worker voted "valid"."""
    known: Numbers
    """Known answer of a control item: 1 valid, 0 invalid. -1 for an image to be judged."""

    @property
    def controls(self) -> int:
        return int((self.known >= 0).sum())

    @property
    def votes_of_an_image(self) -> float:
        """Median number of votes per judged image; 0 without judged images."""
        counts = np.bincount(self.image[self.known < 0])
        return float(np.median(counts[counts > 0])) if counts.any() else 0.0

    @property
    def telling(self) -> bool:
        """True if workers' errors can be estimated: from control items, or from several votes per image."""
        return self.controls > 0 or self.votes_of_an_image >= VOTES_THAT_SHOW_HARD


def drawn_states(ballots: Ballots, images: Numbers, group: Numbers, fixed: Numbers) -> NDArray[np.int8]:
    """Return an array (draws, images): random draws of the true state of each image, given all votes. `images` are
    ascending indices as in `Ballots.image`. `group` is each image's group, such as its stratum. The shares of invalid,
    valid and hard images may differ between groups. `fixed` is each image's state if known without votes, else -1.
    """
    rng = np.random.default_rng(0)
    control = ballots.known >= 0
    own = ~control & np.isin(ballots.image, images)
    workers = int(ballots.worker.max(initial=0)) + 1
    chains = int(np.clip(MOST_CELLS // max(len(images), 1), FEWEST_CHAINS, CHAINS))
    states = 3 if ballots.votes_of_an_image >= VOTES_THAT_SHOW_HARD else 2

    place, worker, says_valid = np.searchsorted(images, ballots.image[own]), ballots.worker[own], ballots.valid[own]
    yes, no = np.zeros((len(images), workers)), np.zeros((len(images), workers))
    np.add.at(yes, (place[says_valid], worker[says_valid]), 1.0)
    np.add.at(no, (place[~says_valid], worker[~says_valid]), 1.0)
    # By truth (invalid, valid): right and wrong answers to control items.
    good, bad = np.zeros((2, workers)), np.zeros((2, workers))
    right = ballots.valid[control] == (ballots.known[control] == 1)
    np.add.at(good, (ballots.known[control][right], ballots.worker[control][right]), 1.0)
    np.add.at(bad, (ballots.known[control][~right], ballots.worker[control][~right]), 1.0)

    voted = (yes + no).sum(axis=1)
    share = np.divide(yes.sum(axis=1), voted, out=np.full(len(images), 0.5), where=voted > 0)
    now = (rng.random((chains, len(images))) < share).astype(np.int8)
    now[:, fixed >= 0] = fixed[fixed >= 0]
    of_group = (group[:, None] == np.arange(int(group.max(initial=0)) + 1)).astype(np.float64)
    population = np.stack([np.full((chains, 2), 0.8), np.full((chains, 2), 3.0)])  # mean and size, by truth
    rates = np.full((chains, 2, workers), 0.8)
    draws = []
    for step in range(WARM_UP + KEPT):
        # Rates of right answers, (chains, 2, workers). For a vote on a hard image, the right answer is drawn.
        of_state = [(now == one).astype(np.float64) for one in (INVALID, VALID, HARD)]
        said_yes, said_no = ([one @ votes for one in of_state] for votes in (yes, no))
        hit, miss = rates[:, VALID], 1 - rates[:, VALID]
        yes_valid = rng.binomial(said_yes[HARD].astype(np.int64), hit / (hit + (1 - rates[:, INVALID])))
        no_valid = rng.binomial(said_no[HARD].astype(np.int64), miss / (miss + rates[:, INVALID]))
        hits = np.stack([said_no[INVALID] + said_no[HARD] - no_valid, said_yes[VALID] + yes_valid])
        misses = np.stack([said_yes[INVALID] + said_yes[HARD] - yes_valid, said_no[VALID] + no_valid])
        if not step and ballots.controls:  # otherwise the first rates would treat all votes as right
            hits = misses = np.zeros((2, chains, workers))
        for truth in (INVALID, VALID):
            mean, size = population[:, :, truth, None]
            a, b = hits[truth] + good[truth] + mean * size, misses[truth] + bad[truth] + (1 - mean) * size
            rates[:, truth] = np.clip(rng.beta(a, b), _LEAST, 1 - _LEAST)
        population = _population(rates, rng)
        # Shares of the states by group.
        counts = np.stack([one @ of_group for one in of_state[:states]])
        shares = np.maximum(rng.gamma(counts + _PRIOR[:states, None, None]), 1e-300)
        # States of the images.
        says_yes = [1 - rates[:, INVALID], rates[:, VALID]]
        says_yes += [(says_yes[INVALID] + says_yes[VALID]) / 2] * (states > HARD)
        fit = np.stack([np.log(one) @ yes.T + np.log1p(-one) @ no.T for one in says_yes]) + np.log(shares)[:, :, group]
        chance = np.exp(fit - fit.max(axis=0)).cumsum(axis=0)
        now = (rng.random(now.shape) * chance[-1] > chance[:-1]).sum(axis=0).astype(np.int8)
        now[:, fixed >= 0] = fixed[fixed >= 0]
        if step >= WARM_UP:
            draws.append(now)
    return np.concatenate(draws)


def _population(rates: Floats, rng: np.random.Generator) -> Floats:
    """Draw, for each chain and true state, a beta distribution that fits the workers' `rates` of right answers. The
    mean and the sum of the two parameters come from a grid. Return these means and sums, (2, chains, 2).
    """
    from scipy.special import gammaln

    mean, size = (one.ravel() for one in np.meshgrid(_MEANS, _SIZES, indexing="ij"))
    a, b = mean * size, (1 - mean) * size
    constant = rates.shape[-1] * (gammaln(size) - gammaln(a) - gammaln(b))
    fit = constant + np.log(rates).sum(axis=-1)[..., None] * a + np.log1p(-rates).sum(axis=-1)[..., None] * b
    drawn = (fit + rng.gumbel(size=fit.shape)).argmax(axis=-1)
    return np.stack([mean[drawn], size[drawn]])
