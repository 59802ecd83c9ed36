"""Ranks test cases for review: first those that are likely to show a valid fault that no earlier one shows. The
chances of a test case are learnt from other sources alone (cross-fitted over sources).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from core.csv_tables import facts
from core.evaluation_results import BUDGETS, Order
from core.figures import Flags, Floats, Numbers
from core.types import TaskKind
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG
from evaluation.ranking import by_new_faults, by_score, chance_wrong, combined, judge
from services.evaluation.results import EvaluationResult
from services.evaluation.scoring import Scored, judged_of
from services.evaluation.subjects import Cases, Images, edits_by_row, numbered
from services.evaluation.texts import TEXTS
from storage.curation.case_columns import Outcome

FOLDS = 5
DOUBTS = 20
"""Maximum number of groups of equal size into which images are split by the model's uncertainty."""
IN_A_GROUP = 20
"""Minimum number of images in a group: among fewer, the share of wrong answers would be chance."""
OURS, RANDOM, ENTROPY, GINI = "ours", "random", "entropy", "DeepGini"
Kind = tuple[str, ...]
"""Edit types, alternatives and label of a test case or caption, from general to particular."""
ValidFrom = Literal["votes", "checks", "nothing"]


@dataclass(frozen=True)
class RankedCase:
    """A test case and its rank."""

    entry: int
    """Number of the test case in the catalogue."""
    image: str
    """SHA-256 of the image."""
    label: str
    """Label of the test case; "" for segmentation."""
    said: str
    """The model's answer, or the class that a segmenter loses most of; "" for none or unknown."""
    edits: str
    wrong: float
    """Chance that the model is wrong, 0 to 1."""
    valid: float
    """Chance that people find the image valid, 0 to 1."""
    right: bool | None = None
    """True if the model is right (a segmenter: if it loses no class). None if unknown."""


@dataclass(frozen=True)
class Ranking:
    """A ranking of all test cases of a subject, and its quality compared with other rankings."""

    first: tuple[RankedCase, ...]
    """The first test cases of the ranking, as many as requested."""
    cases: int
    known: int
    """Number of test cases used to compare orders: not judged invalid, and with a known outcome of the model."""
    orders: tuple[Order, ...]
    """Quality of this ranking, of a random order, and of the orders by entropy and DeepGini if possible. Empty if
    `known` is 0."""
    valid_from: ValidFrom
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""
    kind: TaskKind = "classification"
    known_first: bool = True
    """True if all test cases at the start of the ranking, up to the largest budget, are `known` ones."""


def rank(
    found: EvaluationResult,
    entropy: Floats | None,
    gini: Floats | None,
    score: Scored | str,
    passed: Floats,
    votes: Sequence[Outcome],
    most: int,
    seed: int = 0,
) -> Ranking:
    """Rank the test cases. `entropy` and `gini` are the model's uncertainty about each test case: NaN if unknown, None
    for a segmenter that gives none. `score` is the chance that people find images valid, or a sentence on why it is
    unknown. `passed` is each test case's share of passed checks, NaN for a test case without checks. `votes` are
    the outcomes of studies.
    """
    cases, images = found.cases, found.cases.generated
    kinds, kind, edit_of = kinds_of(cases)
    segments = cases.view.kind == "segmentation"
    read = found.read if entropy is None or segments else np.isfinite(entropy)
    wrong = _chance_wrong(found, kinds, kind, entropy, read, seed)
    # The model has read them, but whether it is right cannot be known.
    not_said = (found.right == UNKNOWN) & read
    wrong[not_said] = 0.0
    judged = judged_of(cases, votes)
    valid, valid_from = _chance_valid(cases, score, passed)
    # Votes on an image outrank its predicted validity.
    valid = np.where(judged >= 0, judged, valid)
    invalid = judged == 0
    cells = list(zip(images.label.tolist(), edit_of.tolist(), found.predicted.tolist(), strict=True))
    order = by_new_faults(wrong, valid, cells)
    order = np.concatenate([order[~invalid[order]], order[invalid[order]]])
    # Orders are judged without invalid images: only ours knows the votes, and would win by them.
    known = found.known & ~invalid
    faults: list[Hashable | None] = [
        cell if is_one else None for cell, is_one in zip(cells, (known & (found.right == WRONG)).tolist(), strict=True)
    ]
    shuffled = np.random.default_rng(seed).permutation(len(images))
    others = {RANDOM: shuffled}
    for name, doubt in ((ENTROPY, entropy), (GINI, gini)):
        if doubt is not None:  # images of unknown uncertainty come last
            others[name] = by_score(np.where(np.isfinite(doubt), doubt, -math.inf))
    orders = tuple(
        judge(name, one[known[one]], faults) for name, one in ({OURS: order} | others).items() if known.any()
    )
    looked_at_first = max(orders[0].images.values()) if orders else 0
    has_truth = found.right != UNKNOWN
    unsure = read if entropy is None else read & ~np.isfinite(entropy)
    notes = TEXTS.paragraphs(
        "ranking-notes.txt",
        unread=int((~has_truth & ~read).sum()) if has_truth.any() else 0,
        not_said=int(not_said.sum()),
        segments=segments,
        invalid=int(invalid.sum()),
        known=int(known.sum()),
        valid_from=valid_from,
        score=score,
        judged=bool((judged >= 0).any()),
        task=cases.task,
        unsure=int(unsure.sum()) if segments else 0,
        never_tells=entropy is None,
    )
    return Ranking(
        _cases_of(found, order[:most], wrong, valid),
        len(images),
        int(known.sum()),
        orders,
        valid_from,
        (*notes, *cases.left_out),
        "segmentation" if segments else "classification",
        bool(known[order[:looked_at_first]].all()),
    )


def part_of(found: EvaluationResult, places: Numbers) -> EvaluationResult:
    """Return the evaluation with only the test cases at `places`, so that nothing is learnt from the others."""
    generated = found.cases.generated
    images = Images(
        *(generated.row[places], generated.source[places], generated.label[places], generated.number[places]),
        [generated.shas[place] for place in places.tolist()],
        generated.masks.of(places) if generated.masks else generated.masks,
    )
    cases = replace(found.cases, generated=images, way=found.cases.way[places])
    columns = {name: getattr(found, name)[places] for name in ("right", "predicted", "read", "change", "after")}
    return replace(found, cases=cases, pixels=None, **columns)


def kinds_of(cases: Cases) -> tuple[Sequence[Kind], Numbers, Numbers]:
    """Return all kinds (edit types, alternatives, label), each test case's kind index, and a number for its edits."""
    edits_of_case = edits_by_row(cases.table, cases.generated.row)
    edits = [edits_name([(kind, alternative) for kind, _, alternative in own]) for own in edits_of_case]
    labels = cases.generated.label.tolist()
    kinds, numbers = numbered((*edit, str(label)) for edit, label in zip(edits, labels, strict=True))
    return kinds, numbers, numbered(edits)[1]


def edits_name(edits: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the types and the alternatives of the edits of a caption, each joined in a fixed order."""
    ordered = sorted(edits)
    return " + ".join(name for name, _ in ordered), " + ".join(name for _, name in ordered)


def past_faults(kinds: Sequence[Kind], kind: Numbers, known: Flags, fault: Flags) -> dict[Kind, tuple[int, int]]:
    """Return the number of faults and of known test cases for each kind that has a known test case."""
    of, bad = (np.bincount(kind[one], minlength=len(kinds)).tolist() for one in (known, known & fault))
    return {name: (faults, images) for name, faults, images in zip(kinds, bad, of, strict=True) if images}


def _chance_wrong(
    found: EvaluationResult, kinds: Sequence[Kind], kind: Numbers, entropy: Floats | None, read: Flags, seed: int
) -> Floats:
    """Return the chance of a wrong answer on each test case, learnt from similar test cases of other sources."""
    source = found.cases.generated.source
    known, wrong = found.right != UNKNOWN, found.right == WRONG
    fold = (np.random.default_rng(seed).permutation(len(found.cases.originals)) % FOLDS)[source]
    chance = np.full(len(kind), 0.5)
    groups = min(DOUBTS, max(1, int(known.sum()) // IN_A_GROUP))
    doubt = None
    if entropy is not None:  # the uncertainty group of each image; the number after the last if unknown
        doubt, known_entropy = np.full(len(entropy), groups), np.isfinite(entropy)
        if known_entropy.any():
            ends = np.quantile(entropy[known_entropy], np.arange(1, groups) / groups)
            doubt[known_entropy] = np.searchsorted(ends, entropy[known_entropy], side="right")
    for number in range(FOLDS):
        others, in_fold = known & (fold != number), fold == number
        if not in_fold.any():
            continue
        foretold = chance_wrong(past_faults(kinds, kind, others, wrong), kinds)[kind[in_fold]]
        chance[in_fold] = foretold
        if doubt is None or not others.any():
            continue
        share = float((wrong[others].sum() + 1) / (others.sum() + 2))
        n = np.bincount(doubt[others], minlength=groups + 1)
        bad = np.bincount(doubt[others], weights=wrong[others], minlength=groups + 1)
        doubtful = (bad + share) / (n + 1)
        doubtful[groups] = share  # for unknown uncertainty
        chance[in_fold] = combined(foretold, doubtful[doubt[in_fold]], share)
    return chance


def _chance_valid(cases: Cases, score: Scored | str, passed: Floats) -> tuple[Floats, ValidFrom]:
    """Return the chance that people find each test case valid, and where these chances come from."""
    if not isinstance(score, str):
        return score.chance[cases.generated.row], "votes"
    has_checks = np.isfinite(passed)
    if has_checks.any():
        return np.where(has_checks, passed, 1.0), "checks"
    return np.ones(len(passed)), "nothing"


def _cases_of(found: EvaluationResult, order: Numbers, wrong: Floats, valid: Floats) -> tuple[RankedCase, ...]:
    cases, table = found.cases, found.cases.table
    images = cases.generated
    rows, labels, names = images.row[order], [*cases.labels, ""], [*found.names, ""]
    return tuple(
        RankedCase(
            int(table.entry[row]),
            images.shas[place],
            labels[images.label[place]],
            names[found.predicted[place]],
            ", ".join(alternative for *_, alternative in edits),
            float(wrong[place]),
            float(valid[place]),
            None if found.right[place] == UNKNOWN else bool(found.right[place] == RIGHT),
        )
        for place, row, edits in zip(order.tolist(), rows.tolist(), edits_by_row(table, rows), strict=True)
    )


def orders_facts(orders: Sequence[Order]) -> list[dict[str, Any]]:
    """Return the quality of orders, JSON-ready."""

    def first(one: Order) -> list[dict[str, Any]]:
        return [{"share": budget, "images": one.images[budget], "faults": one.faults[budget]} for budget in BUDGETS]

    return [facts(one, "name apfd all_faults", first=first(one)) for one in orders]


def ranking_facts(found: Ranking) -> dict[str, Any]:
    """Return a ranking, JSON-ready."""
    names = "entry image label said right edits"
    first = [facts(one, names, chance_wrong=one.wrong, chance_valid=one.valid) for one in found.first]
    orders = orders_facts(found.orders)
    return facts(found, "known valid_from notes", test_cases=found.cases, orders=orders, first=first)
