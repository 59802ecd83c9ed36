"""Make training items and quiz items. A worker answers training items before all others, and gets feedback on each.

Both kinds are made from source images, like control items. Pictures of training items are in no control or quiz item,
since workers know the answers after the training. Answers in the training do not count.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from core.studies import Answers, Feedback, NewItem, Question, QuestionFeedback, Rules, asked, right, wording
from study.control_items import IsLeftOut, made_controls, pictures_of


def feedback(item: NewItem, answers: Answers, questions: Sequence[Question]) -> Feedback:
    """Return feedback on a worker's answers to a training item, which has known right answers."""
    # Questions that the worker's answers lead to, and questions that the right answers lead to.
    came = {q.id for known in (answers, {**answers, **item.expected}) for q in asked(questions, item, known)}
    question_feedback = []
    for question in questions:
        if question.id in came:
            answer, expected = answers.get(question.id, "").strip(), item.expected.get(question.id, "")
            is_right = answer.casefold() == expected.strip().casefold() if expected else None
            question_feedback.append(QuestionFeedback(wording(question, item), answer, expected, is_right))
    return Feedback(right(item, answers, questions), tuple(question_feedback), item.why)


def made_training(
    items: Sequence[NewItem], rules: Rules, known: Sequence[NewItem] = (), left_out: IsLeftOut = lambda item: False
) -> tuple[NewItem, ...]:
    """Make as many training items as the rules require from the source images of `items`, with explanations.

    If possible, half of the training items are right, and half are wrong. One source may make two items. Training
    uses at most half of the sources, because control and quiz items may show no picture of the training. If the used
    sources make no wrong item, wrong items may show other sources. Pictures of the `known` items (control or quiz items
    made by a person) are not used. Fewer or no items are returned if material is missing. A `left_out` item is
    replaced. The seed of the rules decides the draw.
    """
    number = rules.training
    labels: dict[str, str] = {}
    for item in items:
        if item.kind == "item" and item.source_sha:
            labels.setdefault(item.source_sha, item.label)
    known_pictures = pictures_of(known)
    sources = sorted(labels.keys() - known_pictures)
    random.Random(f"training {rules.seed}").shuffle(sources)
    most = min(len(sources) // 2, max(math.ceil(number / 2), min(number, len(sources) // 4)))
    ours = sources[:most]
    apart = (frozenset(labels) | known_pictures) - frozenset(ours)
    could_be = all_made(items, rules, rules.seed + 2, apart)
    if not any("no" in item.expected.values() for item in could_be):
        # These sources all show the same classes, so scenes without a class come from all sources.
        of_ours = [item for item in items if item.source_sha in ours]
        could_be = all_made(of_ours, rules, rules.seed + 2, known_pictures, items)
    made = [replace(item, kind="training", why=_why(item, labels, rules)) for item in could_be]
    return chosen_of([item for item in made if not left_out(item)], number, f"training {rules.seed}")


def _why(item: NewItem, labels: dict[str, str], rules: Rules) -> str:
    # The picture must differ from its source beside it, so its light is changed.
    light = " Only its light is another one." if rules.show_source else ""
    class_names = [q.only_with for q in rules.questions if q.id in item.expected and q.only_with]
    names = " and ".join(f"“{name}”" for name in dict.fromkeys(class_names))
    made = item.origin.get("made")
    if made == "wrong label":
        true = labels[item.source_sha or ""]
        return f"This is an original picture of “{_short(true)}”, and not of “{_short(item.label)}”.{light}"
    if made == "another scene":
        return f"This is a picture of another scene, which does not show {names}.{light}"
    shows = names or f"“{_short(item.label)}”"
    return f"This is an original picture, in which nothing was exchanged: it shows {shows}.{light}"


def _short(label: str) -> str:
    """Return the first name of a label with several names. Questions show this name."""
    return label.split(",")[0].replace("_", " ").strip()


def made_quiz(
    items: Sequence[NewItem],
    rules: Rules,
    controls: Sequence[NewItem] = (),
    left_out: IsLeftOut = lambda item: False,
    apart: frozenset[str] = frozenset(),
) -> tuple[NewItem, ...]:
    """Make as many quiz items as the rules require from the source images of `items`, as in `made_controls`.

    If possible, half of the quiz items are right, and half are wrong. Images of the existing `controls` are used last,
    because the quiz would reveal the answers to `controls`. Fewer or no items are returned if material is missing. A
    `left_out` item is replaced, and no item shows a picture in `apart`. The seed of the rules decides the draw.
    """
    used = {item.image_sha for item in controls}
    could_be = (replace(item, kind="quiz") for item in all_made(items, rules, rules.seed + 1, apart))
    made = sorted((item for item in could_be if not left_out(item)), key=lambda item: item.image_sha in used)
    return chosen_of(made, rules.eligibility.quiz, f"quiz {rules.seed}")


def all_made(
    items: Sequence[NewItem],
    rules: Rules,
    seed: int,
    apart: frozenset[str] = frozenset(),
    there: Sequence[NewItem] = (),
) -> tuple[NewItem, ...]:
    """Make, for each source image not in `apart`, a right and, if possible, a wrong control item."""
    number = sum(item.kind == "item" for item in items)
    if not number:
        return ()
    # More than twice the number of sources, so each gives a right and a wrong item.
    most = 2 * number + 2
    everything = replace(rules, seed=seed, controls=replace(rules.controls, share=most / (number + most)))
    return made_controls(items, everything, there=there, apart=apart)


def chosen_of(made: Sequence[NewItem], number: int, words: str) -> tuple[NewItem, ...]:
    """Choose up to `number` items, if possible half with the known answer "no". Shuffle them with the seed `words`."""
    right_ones = [item for item in made if "no" not in item.expected.values()]
    wrong_ones = [item for item in made if "no" in item.expected.values()]
    chosen: list[NewItem] = []
    shown: set[str] = set()
    while len(chosen) < number and (right_ones or wrong_ones):
        turn = right_ones if right_ones and (len(chosen) % 2 == 0 or not wrong_ones) else wrong_ones
        # An image that was chosen with the other answer is taken only if nothing else is left.
        fresh = next((item for item in turn if item.image_sha not in shown), turn[0])
        turn.remove(fresh)
        shown.add(fresh.image_sha)
        chosen.append(fresh)
    random.Random(words).shuffle(chosen)
    return tuple(chosen)
