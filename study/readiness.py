"""Problems of a study that is about to start, besides invalid rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from core.studies import Finding, NewItem, Rules, Worker, asked
from core.words import count_of
from study.control_items import controls_wanted, pictures_of, what_it_shows


def findings(rules: Rules, items: Sequence[NewItem], workers: Sequence[Worker] = ()) -> tuple[Finding, ...]:
    """Return all findings on valid rules with these items and workers, those that stop the start first."""
    plain = [item for item in items if item.kind == "item"]
    all_findings: list[Finding] = []
    if not plain:
        all_findings.append(Finding("items", "There is no image to judge yet.", True))
    else:
        all_findings += _of_items(rules, plain)
        kinds = ("control", "quiz", "training")
        controls, quiz, training = ([item for item in items if item.kind == kind] for kind in kinds)
        all_findings += _of_controls(rules, plain, controls)
        all_findings += _of_quiz(rules, quiz)
        all_findings += _of_training(rules, training, controls, quiz)
        if rules.controls.share:
            all_findings += _of_telling(rules, plain, controls, quiz)
    all_findings += _of_limit(rules, len(plain))
    all_findings += _of_workers(rules, workers)
    return tuple(sorted(all_findings, key=lambda finding: not finding.stops))


def check_more(rules: Rules, items: Sequence[NewItem]) -> None:
    """Raise ValueError with a sentence if a started study cannot take these items."""
    if words := _silent(rules, items):
        raise ValueError(f"{words}: leave such images out, as questions cannot be added to a study that has started.")


def _silent(rules: Rules, items: Sequence[NewItem]) -> str:
    silent = sum(item.kind == "item" and not asked(rules.questions, item, {}) for item in items)
    why = "would be asked nothing, because every question is only for images that show something else"
    return f"{count_of(silent, 'image')} {why}" if silent else ""


def _of_items(rules: Rules, items: Sequence[NewItem]) -> Iterator[Finding]:
    if words := _silent(rules, items):
        yield Finding("items", f"{words}: remove them, or add a question for all.", True)
    nameless = sum(not item.label for item in items)
    if nameless and any("{label}" in question.text for question in rules.questions):
        text = f"{count_of(nameless, 'image')} without a label: their questions say “its subject”."
        yield Finding("items", text, False)
    sourceless = sum(not item.source_sha for item in items)
    if sourceless and rules.show_source:
        text = f"{count_of(sourceless, 'image')} without a source image will be shown alone."
        yield Finding("show_source", text, False)
    untold = sum(not (item.caption and item.counterfactual) for item in items)
    if untold and rules.show_captions:
        text = f"{count_of(untold, 'image')} without captions will be shown without."
        yield Finding("show_captions", text, False)


def _of_controls(rules: Rules, items: Sequence[NewItem], controls: Sequence[NewItem]) -> Iterator[Finding]:
    yield from _without_answer(rules, controls, "share", "control item")
    share, number = rules.controls.share, controls_wanted(len(items), rules.controls.share)
    if share and not controls:
        text = (
            "There are no control items, and none can be made: that takes source images and a yes-no question "
            "about the label or about a class. Mark images whose answer you know, or set the share to 0."
        )
        yield Finding("share", text, True)
    elif share and len(controls) < number:
        text = (
            f"There are {len(controls)} control items; somebody who judges all images would need {number} for "
            f"{100 * share:.4g} %. After the last one such a worker gets no more of them."
        )
        yield Finding("share", text, False)
    if share and controls and len(controls) < rules.controls.min_seen:
        text = (
            f"A worker is judged after {count_of(rules.controls.min_seen, 'control item')}, and there "
            f"{'is' if len(controls) == 1 else 'are'} only {len(controls)}: nobody would ever be excluded. Raise the "
            "share of control items, or judge after fewer."
        )
        yield Finding("min_seen", text, False)
    if controls and not share:
        yield Finding("share", f"{len(controls)} control items are never shown: their share is 0.", False)


def _of_telling(
    rules: Rules, items: Sequence[NewItem], controls: Sequence[NewItem], quiz: Sequence[NewItem]
) -> Iterator[Finding]:
    known = [*controls, *(quiz if rules.eligibility.quiz else [])]
    of_source = Counter(item.source_sha for item in items)
    shown = Counter(what_it_shows(item).image_sha for item in known)
    often = sum(times > max(1, of_source[picture]) for picture, times in shown.items())
    if often:
        text = (
            f"Control items can be told from others here: the images come from "
            f"{count_of(len([sha for sha in of_source if sha]), 'source image')} only, and {often} of these pictures "
            f"return{'s' if often == 1 else ''} in control and quiz items (each time in another light) more "
            "often than in images. Draw images of more sources, ask for fewer control items or quiz questions, or "
            "mark images whose answer you know."
        )
        yield Finding("share", text, False)
    again = len(known) - len({item.image_sha for item in known})
    if again:
        text = (
            f"{count_of(again, 'control or quiz item', 'shows')} a picture that another one shows "
            "too. Nobody gets such a control item after the other one, as it could be told by it."
        )
        yield Finding("share", text, False)


def _of_quiz(rules: Rules, quiz: Sequence[NewItem]) -> Iterator[Finding]:
    yield from _without_answer(rules, quiz, "quiz", "quiz item")
    number = rules.eligibility.quiz
    if len(quiz) < number:
        available = f"only {len(quiz)}" if quiz else "none"
        text = (
            f"The quiz asks {number} questions, and there {'is' if len(quiz) < 2 else 'are'} {available} that could be "
            "made or was given: mark images whose answer you know, or ask fewer."
        )
        yield Finding("quiz", text, True)


def _of_training(
    rules: Rules, training: Sequence[NewItem], controls: Sequence[NewItem], quiz: Sequence[NewItem]
) -> Iterator[Finding]:
    number = rules.training
    if not number:
        if training:
            words = count_of(len(training), "training item", "is")
            yield Finding("training", f"{words} never shown: no training is asked for.", False)
        return
    yield from _without_answer(rules, training, "training", "training item")
    if len(training) < number:
        available = f"only {len(training)}" if training else "none"
        one = len(training) < 2
        text = (
            f"The training asks for {count_of(number, 'image')}, and there {'is' if one else 'are'} {available} that "
            f"could be made or {'was' if one else 'were'} given: draw images of more sources, mark "
            "images whose answer you know, or ask for fewer."
        )
        yield Finding("training", text, True)
    of_training = pictures_of(training)
    told_controls, told_quiz = ([item for item in of if pictures_of([item]) & of_training] for of in (controls, quiz))
    if told_quiz and len(quiz) - len(told_quiz) < rules.eligibility.quiz:
        text = (
            f"{count_of(len(told_quiz), 'quiz item', 'shows')} what is told of in the "
            "training, and too few are left for the quiz: use other images for one of the two."
        )
        yield Finding("training", text, True)
    elif told_controls or told_quiz:
        clashing = len(told_controls) + len(told_quiz)
        text = (
            f"{count_of(clashing, 'control or quiz item', 'shows')} what is told of in the training. "
            "Nobody gets such an item who was told of it."
        )
        yield Finding("training", text, False)


def _without_answer(rules: Rules, items: Sequence[NewItem], field: str, name: str) -> Iterator[Finding]:
    wrong = sum(
        not any(question.id in item.expected for question in asked(rules.questions, item, item.expected))
        for item in items
    )
    if wrong:
        text = (
            f"{count_of(wrong, name, 'has')} no right answer to any question as it is now: mark it anew, or remove it."
        )
        yield Finding(field, text, True)


def _of_limit(rules: Rules, items: int) -> Iterator[Finding]:
    if rules.most_items and rules.most_items < items:
        people = math.ceil(items * rules.votes / rules.most_items)
        each = count_of(rules.most_items, "image")
        text = (
            f"With at most {each} a person, {people:,} people have to take part before every image has its votes, and "
            "more if somebody is excluded or stops."
        )
        yield Finding("most_items", text, False)


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
        text = (
            f"{who} the record that is asked for, and without a quiz nobody else may vote: add a quiz, or ask for 0 "
            "finished assignments."
        )
        yield Finding("min_finished", text, False)
