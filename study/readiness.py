"""Find problems of a study that is about to start, apart from invalid rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.data_files import DataTable
from core.studies import ITEM_KINDS, Finding, NewItem, Rules, Worker, asked
from core.words import count_of
from study.control_items import controls_wanted, pictures_of, what_it_shows

_FINDINGS = DataTable(__file__, Finding)


def findings(rules: Rules, items: Sequence[NewItem], workers: Sequence[Worker] = ()) -> tuple[Finding, ...]:
    """Return findings on valid rules, items and workers. Findings that prevent the start of the study come first."""
    plain, controls, quiz, training = ([item for item in items if item.kind == kind] for kind in ITEM_KINDS)
    all_findings: list[Finding] = []
    if not plain:
        all_findings.append(_finding("no_images"))
    else:
        all_findings += _of_items(rules, plain)
        all_findings += _of_controls(rules, plain, controls)
        all_findings += _of_quiz(rules, quiz)
        all_findings += _of_training(rules, training, controls, quiz)
        if rules.controls.share:
            all_findings += _of_telling(rules, plain, controls, quiz)
    if rules.most_items and rules.most_items < len(plain):
        people = math.ceil(len(plain) * rules.votes / rules.most_items)
        all_findings.append(_finding("limited", each=count_of(rules.most_items, "image"), people=people))
    all_findings += _of_workers(rules, workers)
    return tuple(sorted(all_findings, key=lambda finding: not finding.stops))


def check_more(rules: Rules, items: Sequence[NewItem]) -> None:
    """Raise ValueError with a sentence if these items cannot be added to a study that has started."""
    if words := _silent(rules, items):
        raise ValueError(f"{words}: leave such images out, as questions cannot be added to a study that has started.")


def _silent(rules: Rules, items: Sequence[NewItem]) -> str:
    silent = sum(item.kind == "item" and not asked(rules.questions, item, {}) for item in items)
    why = "would be asked nothing, because every question is only for images that show something else"
    return f"{count_of(silent, 'image')} {why}" if silent else ""


def _of_items(rules: Rules, items: Sequence[NewItem]) -> Iterator[Finding]:
    if words := _silent(rules, items):
        yield _finding("silent", silent=words)
    nameless = sum(not item.label for item in items)
    if nameless and any("{label}" in question.text for question in rules.questions):
        yield _finding("nameless", images=count_of(nameless, "image"))
    sourceless = sum(not item.source_sha for item in items)
    if sourceless and rules.show_source:
        yield _finding("sourceless", images=count_of(sourceless, "image"))
    untold = sum(not (item.caption and item.counterfactual) for item in items)
    if untold and rules.show_captions:
        yield _finding("uncaptioned", images=count_of(untold, "image"))


def _of_controls(rules: Rules, items: Sequence[NewItem], controls: Sequence[NewItem]) -> Iterator[Finding]:
    yield from _without_answer(rules, controls, "share", "control item")
    share, number = rules.controls.share, controls_wanted(len(items), rules.controls.share)
    if share and not controls:
        yield _finding("no_controls")
    elif share and len(controls) < number:
        yield _finding("few_controls", controls=len(controls), wanted=number, percent=100 * share)
    if share and controls and len(controls) < rules.controls.min_seen:
        seen, are = count_of(rules.controls.min_seen, "control item"), "is" if len(controls) == 1 else "are"
        yield _finding("late_judgement", seen=seen, are=are, controls=len(controls))
    if controls and not share:
        yield _finding("unshown_controls", controls=len(controls))


def _of_telling(
    rules: Rules, items: Sequence[NewItem], controls: Sequence[NewItem], quiz: Sequence[NewItem]
) -> Iterator[Finding]:
    known = [*controls, *(quiz if rules.eligibility.quiz else [])]
    of_source = Counter(item.source_sha for item in items)
    shown = Counter(what_it_shows(item).image_sha for item in known)
    often = sum(times > max(1, of_source[picture]) for picture, times in shown.items())
    if often:
        sources = count_of(len([sha for sha in of_source if sha]), "source image")
        yield _finding("few_sources", sources=sources, often=often, returns="returns" if often == 1 else "return")
    again = len(known) - len({item.image_sha for item in known})
    if again:
        yield _finding("shown_again", items=count_of(again, "control or quiz item", "shows"))


def _of_quiz(rules: Rules, quiz: Sequence[NewItem]) -> Iterator[Finding]:
    yield from _without_answer(rules, quiz, "quiz", "quiz item")
    number = rules.eligibility.quiz
    if len(quiz) < number:
        are, available = "is" if len(quiz) < 2 else "are", f"only {len(quiz)}" if quiz else "none"
        yield _finding("few_quiz_items", wanted=number, are=are, available=available)


def _of_training(
    rules: Rules, training: Sequence[NewItem], controls: Sequence[NewItem], quiz: Sequence[NewItem]
) -> Iterator[Finding]:
    number = rules.training
    if not number:
        if training:
            yield _finding("unshown_training", items=count_of(len(training), "training item", "is"))
        return
    yield from _without_answer(rules, training, "training", "training item")
    if len(training) < number:
        are, were = ("is", "was") if len(training) < 2 else ("are", "were")
        available = f"only {len(training)}" if training else "none"
        yield _finding("few_training_items", wanted=count_of(number, "image"), are=are, available=available, were=were)
    of_training = pictures_of(training)
    told_controls, told_quiz = ([item for item in of if pictures_of([item]) & of_training] for of in (controls, quiz))
    if told_quiz and len(quiz) - len(told_quiz) < rules.eligibility.quiz:
        yield _finding("told_quiz", items=count_of(len(told_quiz), "quiz item", "shows"))
    elif told_controls or told_quiz:
        clashing = len(told_controls) + len(told_quiz)
        yield _finding("told_items", items=count_of(clashing, "control or quiz item", "shows"))


def _without_answer(rules: Rules, items: Sequence[NewItem], field: str, name: str) -> Iterator[Finding]:
    wrong = sum(not any(q.id in item.expected for q in asked(rules.questions, item, item.expected)) for item in items)
    if wrong:
        yield replace(_finding("unanswered", items=count_of(wrong, name, "has")), field=field)


def _of_workers(rules: Rules, workers: Sequence[Worker]) -> Iterator[Finding]:
    required = rules.eligibility
    if not required.min_finished or required.quiz:
        return
    fit = sum(
        not worker.blocked
        and worker.finished >= required.min_finished
        and (worker.approval or 0) > required.min_approval
        for worker in workers
    )
    if fit < rules.votes:
        who = "Nobody has" if not fit else f"Only {fit} of your workers {'has' if fit == 1 else 'have'}"
        yield _finding("few_workers", who=who)


def _finding(name: str, **values: str | float) -> Finding:
    finding = _FINDINGS[name]
    return replace(finding, text=finding.text.format(**values))
