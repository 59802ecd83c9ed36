"""Measures of agreement of votes: raw agreement, Krippendorff's alpha, Gwet's AC1 and Fleiss' kappa.

If a value is undefined, words say why. All functions take one sequence of answers for each item. It does not matter who
gave an answer. Items may have different numbers of answers. An item with fewer than two answers says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from core.figures import percent
from core.study_report import Agreement, Measure
from core.text_templates import TextTemplates

Ratings = Sequence[Sequence[str]]
NO_PAIRS = "undefined: no item has two votes to compare"
ALL_AGREE = "undefined: all votes agree"


def raw(ratings: Ratings) -> Measure:
    """Return the raw agreement: the share of equal pairs among the pairs of votes on an item, averaged over items.

    p_o = mean over items with n_i >= 2 of Σ_c n_ic (n_ic - 1) / (n_i (n_i - 1)) (Fleiss 1971, Psychological Bulletin
    76, equation 2; Gwet calls it p_a). 0 to 1.
    """
    return _measure(ratings, _observed)


def alpha(ratings: Ratings, order: Sequence[str] = ()) -> Measure:
    """Return Krippendorff's alpha. It is nominal, or ordinal if `order` gives the order of the answers.

    alpha = 1 - D_o / D_e = 1 - (n - 1) Σ_c Σ_k o_ck δ²_ck / Σ_c Σ_k n_c n_k δ²_ck, with the coincidences o_ck = Σ_items
    (pairs of answers c, k) / (n_i - 1), their margins n_c and total n. The nominal δ² is 1; the ordinal δ² is
    (n_c / 2 + Σ_{c<g<k} n_g + n_k / 2)². (Krippendorff 2011, Computing Krippendorff's Alpha-Reliability.) Undefined if
    all votes are the same answer, since D_e is 0. Raises ValueError for an answer that is not in `order`.
    """

    def figure(paired: list[Counter[str]]) -> float | str:
        margins: Counter[str] = Counter()
        for counts in paired:
            margins.update(counts)
        if len(margins) < 2:
            return ALL_AGREE
        if order and not set(margins) <= set(order):
            raise ValueError("Every answer has to be in the order of the scale.")
        answers = [answer for answer in order if answer in margins] if order else list(margins)
        distance = _ordinal(answers, margins) if order else dict.fromkeys(permutations(answers, 2), 1.0)
        observed = sum(
            counts[c] * counts[k] * distance[c, k] / (counts.total() - 1)
            for counts in paired
            for c, k in permutations(counts, 2)
        )
        expected = sum(margins[c] * margins[k] * apart for (c, k), apart in distance.items())
        return 1.0 - (margins.total() - 1) * observed / expected

    return _measure(ratings, figure)


def ac1(ratings: Ratings, answers: Sequence[str] = ()) -> Measure:
    """Return Gwet's AC1, which stays high if one answer is very frequent.

    (p_o - p_e) / (1 - p_e) with p_e = Σ_c π_c (1 - π_c) / (q - 1). π_c is the mean over items of n_ic / n_i, including
    items with a single vote. q is the number of possible `answers` (by default those that occur). (Gwet 2008, British
    Journal of Mathematical and Statistical Psychology 61; with missing votes: Gwet 2014, Handbook of Inter-Rater
    Reliability.) It is 1 if all votes agree and at least two answers were possible. It is undefined if only one answer
    was possible.
    """

    def figure(paired: list[Counter[str]]) -> float | str:
        shares = _margins(ratings)
        possible = len(set(answers) | set(shares))
        if possible < 2:
            return ALL_AGREE
        chance = sum(share * (1 - share) for share in shares.values()) / (possible - 1)
        return (_observed(paired) - chance) / (1 - chance)

    return _measure(ratings, figure)


def fleiss(ratings: Ratings) -> Measure:
    """Return Fleiss' kappa.

    (p_o - p_e) / (1 - p_e) with p_e = Σ_c π_c². π_c is the mean over items of n_ic / n_i. (Fleiss 1971, Psychological
    Bulletin 76; for items with different numbers of votes: Gwet 2014, Handbook of Inter-Rater Reliability.) It is
    undefined if all votes are the same answer.
    """

    def figure(paired: list[Counter[str]]) -> float | str:
        shares = _margins(ratings)
        if len(shares) < 2:
            return ALL_AGREE
        chance = sum(share**2 for share in shares.values())
        return (_observed(paired) - chance) / (1 - chance)

    return _measure(ratings, figure)


def agreement(ratings: Ratings, answers: Sequence[str] = (), ordered: bool = False) -> Agreement:
    """Return all measures of agreement, explained in words. `answers` lists possible answers, in order if `ordered`."""
    figures = raw(ratings), alpha(ratings), ac1(ratings, answers), fleiss(ratings)
    ordinal = alpha(ratings, answers) if ordered and answers else None
    counts = Counter(answer for item in ratings for answer in item)
    frequent, votes = counts.most_common(1)[0] if counts else ("", 0)
    result = Agreement(*figures, ordinal, votes / counts.total() if counts else None, frequent, "")
    return replace(result, words=_TEMPLATES.paragraph("agreement.txt", found=result))


def level(value: float) -> str:
    """Return a word for a value of agreement beyond chance, on the scale of Landis and Koch (1977, Biometrics 33)."""
    if value < 0:
        return "worse than chance"
    for limit, word in ((0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial")):
        if value <= limit:
            return word
    return "nearly perfect"


def _measure(ratings: Ratings, figure: Callable[[list[Counter[str]]], float | str]) -> Measure:
    paired = [Counter(item) for item in ratings if len(item) >= 2]
    if not paired:
        return Measure(None, NO_PAIRS, 0, 0.0)
    raters = sum(counts.total() for counts in paired) / len(paired)
    value = figure(paired)
    if isinstance(value, str):
        return Measure(None, value, len(paired), raters)
    return Measure(value, f"{value:.2f}", len(paired), raters)


def _observed(paired: Sequence[Counter[str]]) -> float:
    """Return p_o, the raw agreement, of items with two or more votes."""
    agreeing = (sum(n * (n - 1) for n in c.values()) / (c.total() * (c.total() - 1)) for c in paired)
    return sum(agreeing) / len(paired)


def _margins(ratings: Ratings) -> dict[str, float]:
    """Return π: for each answer that occurs, its mean share of the votes over items with a vote."""
    voted = [Counter(item) for item in ratings if item]
    shares: dict[str, float] = {}
    for counts in voted:
        for answer, votes in counts.items():
            shares[answer] = shares.get(answer, 0.0) + votes / counts.total() / len(voted)
    return shares


def _ordinal(answers: Sequence[str], margins: Counter[str]) -> dict[tuple[str, str], float]:
    """Return δ² by pair of answers (c, k). δ = number of votes between c and k + half of the votes for c and k."""
    distances = {}
    for (i, c), (j, k) in permutations(enumerate(answers), 2):
        between = sum(margins[g] for g in answers[min(i, j) : max(i, j) + 1])
        distances[c, k] = float((between - (margins[c] + margins[k]) / 2) ** 2)
    return distances


_TEMPLATES = TextTemplates(Path(__file__).with_name("templates"), level=level, percent=percent)
