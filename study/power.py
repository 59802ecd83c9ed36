"""Predict a study's result before anybody votes: items with a consensus, width of the interval, people and minutes."""

from __future__ import annotations

import math

from core.figures import chosen_percent, percent
from core.studies import Rules
from core.study_report import PowerPlan
from core.words import count_of
from study.control_items import controls_wanted
from study.intervals import wilson_ends

LOST = 0.05
"""Share of votes that are lost because their workers fail control items. In the paper it was 120 of 2,500."""


def survival(p_yes: float, votes: int, consensus: int) -> tuple[float, float]:
    """Return the shares of items with a consensus on yes, and on no, if every vote is "yes" with probability `p_yes`.

    They are P(X >= c) and P(X <= K - c) for X ~ Binomial(K, p_yes) and c > K / 2. With p = 0.7 and 4 of 5 votes, 56 %
    of the items have a consensus, and 94 % of these on yes. So leaving out items without a consensus raises the share
    of yes. Raises ValueError for a consensus that is no majority.
    """
    if not votes < 2 * consensus <= 2 * votes:
        raise ValueError("There is no plan without a consensus of more than half of the votes and at most all of them.")
    yes, no = (
        sum(math.comb(votes, k) * p**k * (1 - p) ** (votes - k) for k in range(consensus, votes + 1))
        for p in (p_yes, 1 - p_yes)
    )
    return yes, no


def plan(
    items: int, rules: Rules, valid: float = 0.95, accuracy: float = 0.95, minutes: float = 30.0, lost: float = LOST
) -> PowerPlan:
    """Return the expected result of a study of `items` images under these rules.

    Assumptions: a share `valid` of the images is valid. Each vote is true with probability `accuracy`, independently of
    the others. (Real workers err together on hard images, so more items will be discarded.) A share `lost` of the votes
    is replaced because of control items. An annotator works for `minutes`. The number of images with a consensus
    follows from `survival(accuracy)`. The interval is the Wilson interval of the share of valid images among images
    with a consensus. A vote takes `rules.seconds_expected`. A share `rules.controls.share` of the votes is on control
    items. A training item takes twice the time. All shares are 0 to 1. Raises ValueError for impossible figures.
    """
    if items < 1:
        raise ValueError("Choose at least one image.")
    if not (0 <= valid <= 1 and 0.5 <= accuracy <= 1):
        raise ValueError("The share of valid images lies between 0 and 100 %, the accuracy between 50 and 100 %.")
    if minutes <= 0 or not 0 <= lost < 1:
        raise ValueError("The minutes of an annotator have to be above 0, and the share of lost votes below 100 %.")
    # Votes of "yes" on valid images are right as often as votes of "no" on invalid images.
    right, wrong = survival(accuracy, rules.votes, rules.consensus)
    share = right + wrong
    rate = (valid * right + (1 - valid) * wrong) / share
    low, high = wilson_ends(rate, items * share)
    votes = items * rules.votes
    shown = votes / (1 - lost) / (1 - rules.controls.share)
    quiz, training = rules.eligibility.quiz, rules.training
    seconds = rules.seconds_expected
    first = quiz + 2 * training
    affordable = minutes * 60 / seconds - first
    if affordable < 1:
        part = "the training and the quiz" if quiz and training else "the training" if training else "the quiz"
        raise ValueError(f"In {minutes:g} minutes an annotator gets no further than {part}: allow more time for each.")
    # Nobody votes twice on an item, so nobody can see more than all items and all control items.
    most_items = min(items, rules.most_items or items)
    most = most_items + controls_wanted(most_items, rules.controls.share)
    annotators = max(rules.votes, math.ceil(shown / min(affordable, most) - 1e-9))
    items_each = math.ceil(shown / annotators - 1e-9) + quiz + training
    each, hours = (items_each + training) * seconds / 60, (shown + annotators * first) * seconds / 3600
    left = round(items * share)
    time = f"about {count_of(round(each), 'minute')}" if each >= 1 else "less than a minute"
    words = (
        f"Of {count_of(items, 'image')}, about {left} should find a consensus of {rules.consensus} in "
        f"{rules.votes}. If {chosen_percent(valid)} of the images are valid and a vote is right in "
        f"{chosen_percent(accuracy)} of cases, the result will be about {percent(rate)}, with a 95 % interval of "
        f"{100 * low:.1f} to {100 * high:.1f} % ({100 * (high - low):.1f} points wide). It takes {annotators} "
        f"annotator{'s' if annotators > 1 else ''} with {time} each, {items_each} images a person"
        + (f", {chosen_percent(lost)} of the votes being replaced after failed control items." if lost else ".")
    )
    if annotators == rules.votes:
        words += " Nobody votes twice on an image: invite one or two more, in case somebody is excluded or stops."
    return PowerPlan(items, votes, share, rate, low, high, high - low, annotators, each, items_each, hours, words)


def items_for(width: float, rules: Rules, valid: float = 0.95, accuracy: float = 0.95) -> int:
    """Return the fewest items whose expected 95 % interval has at most this `width`, such as 0.05 for five points.

    Raises ValueError for impossible figures.
    """
    if not 0.001 <= width < 1:
        raise ValueError("The interval can be 0.1 to 100 points wide.")
    low, high = 0, 1
    while plan(high, rules, valid, accuracy).width > width:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if plan(middle, rules, valid, accuracy).width <= width else (middle, high)
    return high
