"""Rules for who may vote: approval record, a quiz for those with a short record, consent, exclusion, training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from core.data_files import DataTable
from core.figures import chosen_percent
from core.stored_studies import Enrolment
from core.studies import Exclusion, Rules, Worker

_TEXTS = DataTable(__file__, str)
"""Sentences for the worker, by reason."""
StandingKind = Literal["may vote", "training", "quiz", "not eligible", "excluded", "consent"]


@dataclass(frozen=True)
class Standing:
    """State of a worker in a study, such as "may vote" or "quiz", with a sentence for the worker."""

    kind: StandingKind
    text: str


def quiz_needed(right_share: float, quiz: int) -> int:
    """Return the minimum number of right answers in a quiz of `quiz` items for the share `right_share` (0 to 1)."""
    return math.ceil(right_share * quiz - 1e-9)


def standing(worker: Worker, enrolment: Enrolment, rules: Rules) -> Standing:
    """Return whether a worker may vote in a study, and if not, why and what can be done.

    The record is approved / (approved + rejected); undecided assignments do not count. It must be above `min_approval`
    (0 disables this) as soon as `min_finished` assignments are decided. Before that, a quiz replaces the record if the
    study has a quiz. The paper asked for over 95 % and at least 50 finished on Mechanical Turk. The rules are checked
    in this order: blocked, excluded, record or failed quiz, consent, training, quiz. Everybody gets the training, even
    workers whose long record spares them the quiz. A record shows careful work, but no knowledge of this study's
    questions. And votes are comparable only if all workers had the same instruction.
    """
    required = rules.eligibility
    if worker.blocked:
        return Standing("not eligible", _TEXTS["blocked"])
    if enrolment.exclusion is not None:
        return Standing("excluded", _TEXTS["excluded"].format(_why(enrolment, enrolment.exclusion, rules)))
    short = worker.finished < required.min_finished
    if not short:
        approval = worker.approval
        if required.min_approval > 0 and approval is not None and approval <= required.min_approval:
            least = chosen_percent(required.min_approval)
            return Standing("not eligible", _TEXTS["approval"].format(least, worker.approved, worker.finished))
    elif not required.quiz:
        return Standing("not eligible", _TEXTS["finished"].format(required.min_finished, worker.finished))
    elif enrolment.quiz_seen >= required.quiz:
        seen, needed = enrolment.quiz_seen, quiz_needed(required.quiz_pass, enrolment.quiz_seen)
        if enrolment.quiz_right < needed:
            return Standing("not eligible", _TEXTS["failed quiz"].format(enrolment.quiz_right, seen, needed))
    if not enrolment.consented:
        return Standing("consent", _TEXTS["consent"])
    if enrolment.training_seen < rules.training:
        return Standing("training", _TEXTS["training"].format(enrolment.training_seen + 1, rules.training))
    if short and enrolment.quiz_seen < required.quiz:
        needed = quiz_needed(required.quiz_pass, required.quiz)
        return Standing("quiz", _TEXTS["quiz"].format(enrolment.quiz_seen + 1, required.quiz, needed))
    return Standing("may vote", "")


def _why(enrolment: Enrolment, exclusion: Exclusion, rules: Rules) -> str:
    """Return the reason why a worker was excluded, as a sentence for the worker."""
    if exclusion.by != "rule" or not enrolment.controls_seen:
        text = exclusion.reason.strip()
        return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) or not text else ".")
    least = chosen_percent(rules.controls.min_right)
    return _TEXTS["controls"].format(enrolment.controls_right, enrolment.controls_seen, least)
