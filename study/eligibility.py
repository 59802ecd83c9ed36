"""Rules for who may vote: approval record, a quiz for those with a short record, consent, exclusion, training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from core.figures import chosen_percent
from core.stored_studies import Enrolment
from core.studies import Exclusion, Rules, Worker

StandingKind = Literal["may vote", "training", "quiz", "not eligible", "excluded", "consent"]


@dataclass(frozen=True)
class Standing:
    """Standing of a worker in a study, with a sentence for the worker."""

    kind: StandingKind
    text: str


def quiz_needed(right_share: float, quiz: int) -> int:
    """Return how many answers of a quiz of `quiz` items must be right to reach the share `right_share` (0 to 1)."""
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
        return Standing("not eligible", "The study lead has blocked this worker name. Ask the person who sent it.")
    if enrolment.exclusion is not None:
        return Standing(
            "excluded",
            f"You can no longer vote in this study. {_why(enrolment, enrolment.exclusion, rules)} If you think that "
            "this is wrong, please write to the person who invited you: it can be reversed.",
        )
    short = worker.finished < required.min_finished
    if not short:
        approval = worker.approval
        if required.min_approval > 0 and approval is not None and approval <= required.min_approval:
            return Standing(
                "not eligible",
                f"This study asks that more than {chosen_percent(required.min_approval)} of a worker's decided "
                f"assignments were approved. Of yours it is {worker.approved} of {worker.finished}.",
            )
    elif not required.quiz:
        return Standing(
            "not eligible",
            f"This study asks for at least {required.min_finished} finished assignments that were decided on. You have "
            f"{worker.finished} so far.",
        )
    elif enrolment.quiz_seen >= required.quiz:
        needed = quiz_needed(required.quiz_pass, enrolment.quiz_seen)
        if enrolment.quiz_right < needed:
            return Standing(
                "not eligible",
                f"You had {enrolment.quiz_right} of {enrolment.quiz_seen} quiz questions right; {needed} were needed. "
                "Thank you for your time.",
            )
    if not enrolment.consented:
        return Standing("consent", "Please read what you agree to before the first image.")
    if enrolment.training_seen < rules.training:
        return Standing(
            "training",
            f"A short training comes first: image {enrolment.training_seen + 1} of {rules.training}. After each answer "
            "you are told what is right. Nothing of it counts.",
        )
    if short and enrolment.quiz_seen < required.quiz:
        return Standing(
            "quiz",
            f"A short quiz comes first: question {enrolment.quiz_seen + 1} of {required.quiz}; "
            f"{quiz_needed(required.quiz_pass, required.quiz)} have to be right.",
        )
    return Standing("may vote", "")


def _why(enrolment: Enrolment, exclusion: Exclusion, rules: Rules) -> str:
    """Return why a worker was excluded, in words for the worker, without words that only the lead may know."""
    if exclusion.by != "rule" or not enrolment.controls_seen:
        text = exclusion.reason.strip()
        return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) or not text else ".")
    return (
        "The answers to some of the images are known, to check the votes: you answered "
        f"{enrolment.controls_right} of {enrolment.controls_seen} of these as expected, and at least "
        f"{chosen_percent(rules.controls.min_right)} are needed."
    )
