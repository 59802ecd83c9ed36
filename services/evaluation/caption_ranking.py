"""Ranks captions by the chance that their images will show a valid fault, so that the most promising ones can be drawn
first. It learns from past test cases: their edits, their labels, and whether they showed a valid fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.csv_tables import facts
from core.evaluation_results import Order
from core.figures import Floats, Numbers
from core.stored_runs import Run
from core.types import CounterfactualCaption, CounterfactualCaptions, TaskKind
from evaluation.effectiveness import WRONG
from evaluation.ranking import by_new_faults, chance_wrong, judge
from services.evaluation.ranking import FOLDS, RANDOM, Kind, edits_name, kinds_of, orders_facts, past_faults
from services.evaluation.results import EvaluationResult
from services.evaluation.scoring import judged_of
from services.evaluation.texts import TEXTS
from storage.curation.case_columns import Outcome

BEFORE = "ours, before an image is made"
FEWEST_SOURCES = 2
"""Minimum number of sources: one to learn from and one to test on."""


@dataclass(frozen=True)
class RankedCaption:
    """A caption and its rank."""

    run: str
    place: int
    """Zero-based position among the counterfactual captions of the run."""
    text: str
    label: str
    """Label of the source image; "" for segmentation."""
    edits: str
    chance: float
    """Chance that its image shows a valid fault, 0 to 1."""
    alike: int
    """Number of past test cases with the same edits and label. They weigh most in `chance`."""


@dataclass(frozen=True)
class CaptionRanking:
    """Ranked captions, and the quality of the same ranking on past test cases."""

    captions: tuple[RankedCaption, ...]
    """All captions, in the order in which to draw them."""
    learnt: int
    """Number of test cases that the ranking learnt from."""
    orders: tuple[Order, ...]
    """Quality of this ranking and of a random order, measured on past test cases. Each test case is ranked by data from
    other sources only. Empty if there are too few sources."""
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""


def rank_captions(
    found: EvaluationResult, votes: Sequence[Outcome], runs: Sequence[Run], seed: int = 0
) -> CaptionRanking:
    """Rank the captions that are ticked in these runs and not drawn yet. Learn from the test cases in `found`."""
    kinds, kind, _ = kinds_of(found.cases)
    names = [*found.cases.labels, ""]
    named_kinds = [(*one[:-1], names[int(one[-1])]) for one in kinds]
    known = found.known
    fault = known & (found.right == WRONG) & (judged_of(found.cases, votes) != 0)
    past = past_faults(named_kinds, kind, known, fault)
    task: TaskKind = found.cases.view.kind or "classification"
    waiting, notes = _waiting(runs, task, {row.label for row in found.evaluated.mapping.unmapped})
    own_kinds = [
        (*edits_name([(edit.edit_type, edit.alternative) for edit in caption.edits]), label)
        for _, _, caption, label in waiting
    ]
    chance = chance_wrong(past, own_kinds)
    order = by_new_faults(chance, np.ones(len(own_kinds)), own_kinds)
    captions = []
    for at in order.tolist():
        run, place, caption, label = waiting[at]
        edits = ", ".join(edit.alternative for edit in caption.edits)
        alike = past.get(own_kinds[at], (0, 0))[1]
        captions.append(RankedCaption(run, place, caption.text, label, edits, float(chance[at]), alike))
    unseen = sum(one.alike == 0 for one in captions)
    notes += TEXTS.paragraphs("caption-notes.txt", task=task, unseen=unseen, captions=len(captions))
    notes += found.cases.left_out
    return CaptionRanking(
        tuple(captions), int(known.sum()), _orders(found, named_kinds, kind, known, fault, seed), tuple(notes)
    )


def _waiting(
    runs: Sequence[Run], task: TaskKind, unmapped: Collection[str]
) -> tuple[list[tuple[str, int, CounterfactualCaption, str]], list[str]]:
    """Return (run id, position, caption, label) of each caption to rank. Also return notes on captions left out."""
    captions_to_rank: list[tuple[str, int, CounterfactualCaption, str]] = []
    left_out: Counter[str] = Counter()
    for run in runs:
        values = [one.value.value for one in run.values.values()]
        captions = next((one for one in values if isinstance(one, CounterfactualCaptions)), None)
        if run.task.kind != task:
            left_out[f"run is of a {run.task.kind}: these test cases can only rank captions of a {task}"] += 1
            continue
        if captions is None:
            left_out["run has no counterfactual captions yet"] += 1
            continue
        drawn = {case.lineage.counterfactual.text for case in run.test_cases}
        for place, caption in enumerate(captions.items):
            if not caption.used:
                left_out["caption is not ticked"] += 1
            elif caption.text in drawn:
                left_out["caption is drawn already"] += 1
            elif task == "classification" and run.task.label in unmapped:
                left_out["caption is of a label that the model has no class for"] += 1
            else:
                captions_to_rank.append((run.id, place, caption, run.task.label if task == "classification" else ""))
    return captions_to_rank, [f"Left out: {number:,} × {what}." for what, number in left_out.items()]


def _orders(
    found: EvaluationResult, kinds: Sequence[Kind], kind: Numbers, known: Any, fault: Any, seed: int
) -> tuple[Order, ...]:
    """Measure this ranking and a random order on past test cases, each ranked by data of other sources only."""
    images = found.cases.generated
    if len(np.unique(images.source[known])) < FEWEST_SOURCES:
        return ()
    fate = np.random.default_rng(seed)
    fold = (fate.permutation(len(found.cases.originals)) % FOLDS)[images.source]
    chance: Floats = np.full(len(kind), 0.5)
    for number in range(FOLDS):
        in_fold = fold == number
        if in_fold.any():
            chance[in_fold] = chance_wrong(past_faults(kinds, kind, known & ~in_fold, fault), kinds)[kind[in_fold]]
    rows = np.flatnonzero(known)
    cells = [kinds[number] for number in kind[rows].tolist()]
    # A fault must not be defined by what the model says, which is unknown before drawing.
    shown: list[Hashable | None] = [
        cell if is_one else None for cell, is_one in zip(cells, fault[rows].tolist(), strict=True)
    ]
    ours = by_new_faults(chance[rows], np.ones(len(rows)), cells)
    return judge(BEFORE, ours, shown), judge(RANDOM, fate.permutation(len(rows)), shown)


def caption_ranking_facts(found: CaptionRanking) -> dict[str, Any]:
    """Return the whole ranking, JSON-ready."""
    captions = [facts(one, "run place text label edits alike", chance_fault=one.chance) for one in found.captions]
    return facts(found, "notes", learnt_from=found.learnt, orders=orders_facts(found.orders), captions=captions)
