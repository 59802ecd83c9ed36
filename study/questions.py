"""Check the rules of a study, and a worker's answers to the questions about an item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from core.form_numbers import form_numbers
from core.studies import LONGEST_STUDY_TEXT, QUESTION_KINDS, NewItem, Question, RuleProblem, Rules, asked, wording
from core.words import count_of

MAX_TEXT = 2000
"""Maximum number of characters in an answer in free text."""
MAX_QUESTIONS = 20
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def check_answers(rules: Rules, item: NewItem, answers: Mapping[str, object]) -> dict[str, str]:
    """Check a client's answers about an item. Return the answers to the questions that are asked, with stripped text.

    If an earlier answer was changed, a follow-up question may no longer be asked. Its answer is then left out. Raises
    ValueError with a sentence for the worker if an answer is missing, not offered or too long.
    """
    known = {question.id: question for question in rules.questions}
    given_answers: dict[str, str] = {}
    for key, value in answers.items():
        if key not in known:
            raise ValueError("This answer belongs to no question of this study. Please reload the page.")
        if not isinstance(value, str):
            raise ValueError(f"The answer to “{wording(known[key], item)}” has to be text. Please reload the page.")
        given_answers[key] = value.strip() if known[key].kind == "text" else value
    checked: dict[str, str] = {}
    for question in asked(rules.questions, item, given_answers):
        answer, text = given_answers.get(question.id, ""), wording(question, item)
        if not answer:
            if question.required:
                raise ValueError(f"Please answer “{text}”")
            continue
        if question.kind == "text":
            if len(answer) > MAX_TEXT:
                raise ValueError(f"The answer to “{text}” is too long: at most {MAX_TEXT} characters, please.")
        elif answer not in question.answers():
            raise ValueError(f"Please choose one of the answers offered for “{text}”")
        checked[question.id] = answer
    return checked


def check_rules(rules: Rules) -> None:
    """Raise ValueError with the first problem of the rules, as one sentence."""
    for problem in problems_of(rules):
        raise ValueError(problem.words)


def problems_of(rules: Rules) -> Iterator[RuleProblem]:
    """Yield the problems of the rules. Each names the form field in which it can be fixed."""
    yield from _question_problems(rules.questions)
    for part in (rules, rules.controls, rules.eligibility):
        for name, number in form_numbers(part).items():
            try:
                number.check(getattr(part, name))
            except ValueError as error:
                yield RuleProblem(name, str(error), number.label)
    if not rules.votes < 2 * rules.consensus <= 2 * rules.votes:
        least, of_votes = rules.votes // 2 + 1, f"{rules.votes} of {count_of(rules.votes, 'vote')}"
        possible = of_votes if least == rules.votes else f"{least} to {of_votes}"
        words = f"The consensus has to be more than half of the votes and at most all of them: {possible}."
        yield RuleProblem("consensus", words)
    for name, text in (("instructions", rules.instructions), ("consent", rules.consent)):
        if len(text) > LONGEST_STUDY_TEXT:
            yield too_long(name, text)
    if len(rules.examples) > 12:
        yield RuleProblem("examples", "The instructions can show at most 12 examples.")
    if any(len(example.answer) > 200 or len(example.why) > 500 for example in rules.examples):
        yield RuleProblem("examples", "An example's answer has at most 200 characters and its reason at most 500.")


def too_long(name: str, text: str) -> RuleProblem:
    """Return the problem to report for a text (the instructions or the consent) that has too many characters."""
    words = f"This has {len(text)} characters; at most {LONGEST_STUDY_TEXT:,} fit."
    return RuleProblem(name, words, name.capitalize())


def _question_problems(questions: Sequence[Question]) -> Iterator[RuleProblem]:
    if not questions:
        yield RuleProblem("questions", "A study needs at least one question.")
    sound: dict[str, Question] = {}
    for place, question in enumerate(questions):
        try:
            _check_question(question, sound)
            sound[question.id] = question
        except ValueError as error:
            yield RuleProblem(f"questions.{place}.text", str(error))
    if len(questions) > MAX_QUESTIONS:
        yield RuleProblem("questions", f"A study has at most {MAX_QUESTIONS} questions: please take some out.")
    if questions and len(sound) == len(questions) and all(question.kind == "text" for question in questions):
        yield RuleProblem("questions", "Ask at least one question with fixed answers: free text cannot be counted.")


def _check_question(question: Question, earlier: Mapping[str, Question]) -> None:
    name = f"Question “{question.text or question.id}”"
    if not _ID.fullmatch(question.id):
        raise ValueError(
            f"{name}: its short name has 1 to 40 lower case letters, digits and hyphens, and no hyphen in front."
        )
    if question.id in earlier:
        raise ValueError(f"{name}: the short name “{question.id}” is taken by another question.")
    if not question.text.strip() or len(question.text) > 500:
        raise ValueError(f"The question with the short name “{question.id}” needs a text of 1 to 500 characters.")
    if question.kind not in QUESTION_KINDS:
        raise ValueError(f"{name}: its kind has to be one of {', '.join(QUESTION_KINDS)}.")
    if question.kind == "choice":
        if not 2 <= len(question.options) <= 9:
            raise ValueError(f"{name}: a choice has 2 to 9 answers.")
        if any(not option.strip() or option != option.strip() or len(option) > 100 for option in question.options):
            raise ValueError(f"{name}: an answer has 1 to 100 characters and no space at its ends.")
        if len({option.casefold() for option in question.options}) < len(question.options):
            raise ValueError(f"{name}: two of its answers are the same.")
    elif question.options:
        raise ValueError(f"{name}: only a choice has answers of its own.")
    if len(question.low) > 100 or len(question.high) > 100:
        raise ValueError(f"{name}: the words at the ends of the scale have at most 100 characters.")
    if not set(question.valid) <= set(question.answers()):
        raise ValueError(f"{name}: the answers that mean “valid” have to be among its answers.")
    if question.valid and set(question.valid) == set(question.answers()):
        raise ValueError(f"{name}: if every answer means “valid”, it says nothing. Leave at least one out.")
    if len(question.only_with) > 100:
        raise ValueError(f"{name}: the class that it is asked with has at most 100 characters.")
    if question.follows:
        before = earlier.get(question.follows)
        if before is None:
            raise ValueError(f"{name}: it follows “{question.follows}”, which is no earlier question.")
        if question.follows_answer not in before.answers():
            raise ValueError(f"{name}: it follows the answer “{question.follows_answer}”, which “{before.text}” lacks.")
