"""The analysis of a study: compute all figures of the result page and of the methods paragraph from the votes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from core.consensus import ItemOutcome, Outcomes, adjudicated, counted, of_images, outcomes_of
from core.stored_studies import Enrolment
from core.studies import Item, Question, StudyData, Vote, Worker, asked, right
from core.study_report import (
    NONE,
    Agreement,
    AnswerShare,
    Conditions,
    Disagreement,
    QuestionResult,
    Remark,
    SecondOpinion,
    Slice,
    Slices,
    StudyReport,
    further_people_words,
)
from core.text_templates import TextTemplates
from core.words import count_of
from study.aggregation import DawidSkene, dawid_skene, majority
from study.agreement import agreement
from study.eligibility import standing
from study.intervals import bootstrap, bootstrap_mean, bounds, wilson
from study.methods import rules_changes
from study.workers import controls_right, worker_figures

Counted = Mapping[int, Sequence[Vote]]
_NOT_ASKED = "it is not asked whether the image is valid"


def analyse(data: StudyData) -> StudyReport:
    """Return all figures of a study as it is now: each question before and after exclusions, agreement, workers, notes.

    Votes of workers who are excluded now do not count. Of an item's other votes, the first `rules.votes` count, in the
    order of `data.votes`. Approval and rejection do not matter. An undefined figure has words instead of a value.
    """
    rules, closed = data.study.rules, data.study.state == "closed"
    items = [item for item in data.items if item.kind == "item"]
    ids = {item.id for item in items}
    cast = [vote for vote in data.votes if vote.kind == "item" and vote.item in ids]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    after, before = counted(cast, rules.votes, excluded), counted(cast, rules.votes)
    outcomes = outcomes_of(items, after, rules, closed)
    outcomes_before = outcomes_of(items, before, rules, closed)
    by_person = adjudicated(outcomes, data.adjudications, rules.questions) if data.adjudications else None
    images = of_images(outcomes, rules.questions)
    telling = any(question.valid for question in rules.questions)
    votes_excluded = sum(vote.worker in excluded for vote in cast)
    votes_counted = sum(map(len, after.values()))
    times = [vote.submitted for vote in cast]
    right, seen = controls_right(data.votes, {item.id: item for item in data.items}, rules)
    changes, announced, conditions = rules_changes(data.history, times), None, _conditions(data, items)
    first = data.history[0][0] if data.history else rules

    def whole(of_items: Outcomes, questions: Sequence[Question] = rules.questions) -> Slice:
        return slice_of("", of_images(of_items, questions).values(), telling)

    if changes and telling:
        by_first = outcomes_of(items, counted(cast, first.votes, excluded), first, closed)
        announced = whole(by_first, first.questions)
    people = 0 if closed else further_people(data, after)
    return StudyReport(
        study=data.study,
        items=len(items),
        complete=sum(len(after.get(item.id, ())) == rules.votes for item in items),
        votes_cast=len(cast),
        votes_imported=sum(vote.imported for vote in cast),
        votes_excluded=votes_excluded,
        votes_surplus=len(cast) - votes_excluded - votes_counted,
        votes_counted=votes_counted,
        further_people=people,
        images=slice_of("", images.values(), telling),
        images_before=whole(outcomes_before),
        images_adjudicated=whole(by_person) if by_person is not None else None,
        image_slices=slices_of(items, images),
        agreement=_pooled(items, after, rules.questions),
        controls=wilson(right, seen, nothing="no control item was answered yet"),
        questions=tuple(
            _question(question, items, after, before, outcomes, outcomes_before, by_person, rules.seed)
            for question in rules.questions
        ),
        disagreements=_disagreements(data, outcomes),
        workers=worker_figures(data, after, outcomes),
        exclusions=data.exclusions,
        comments=tuple(Remark(vote.item, vote.worker, vote.comment.strip()) for vote in cast if vote.comment.strip()),
        first=min(times, default=None),
        last=max(times, default=None),
        changes=changes,
        first_rules=first,
        as_announced=announced,
        conditions=conditions,
        notes=_TEMPLATES.paragraphs(
            "notes.txt",
            study=data.study,
            items=len(items),
            cast=bool(cast),
            workers=len({vote.worker for votes in after.values() for vote in votes}),
            missing=sum(rules.votes - len(after.get(item.id, ())) for item in items),
            people=people,
            unseen=sum(not asked(rules.questions, item, {}) for item in items),
            strange=len({vote.worker for vote in cast} - {worker.id for worker in data.workers} - excluded),
            same_browser=conditions.same_browser,
            changes=changes,
            announced=announced,
            first=first,
        ),
    )


def _conditions(data: StudyData, items: Sequence[Item]) -> Conditions:
    rules = data.study.rules
    here = [vote for vote in data.votes if vote.kind in ("item", "control") and not vote.imported]
    voted = {vote.worker for vote in here if vote.kind == "item"}
    return Conditions(
        with_source=sum(bool(item.source_sha) for item in items) if rules.show_source else 0,
        with_captions=sum(bool(item.caption and item.counterfactual) for item in items) if rules.show_captions else 0,
        controls_shown=sum(vote.kind == "control" for vote in here),
        shown=len(here),
        linked=data.linked,
        panelled=data.panelled,
        same_browser=tuple(
            group for names in data.same_browser if len(group := tuple(name for name in names if name in voted)) > 1
        ),
    )


def _question(
    question: Question,
    items: Sequence[Item],
    after: Counted,
    before: Counted,
    outcomes: Outcomes,
    outcomes_before: Outcomes,
    by_person: Outcomes | None,
    seed: int,
) -> QuestionResult:
    telling, outcome_by_item = bool(question.valid), of_question(outcomes, question.id)
    ratings = _ratings(question, items, after)
    ordered = question.kind == "scale"
    person = of_question(by_person, question.id) if by_person is not None else {}
    changed = any(person[item].status != outcome_by_item[item].status for item in person)
    valid_votes = [(sum(a in question.valid for a in rating), len(rating)) for rating in ratings.values()]
    return QuestionResult(
        question=question,
        after=slice_of("", outcome_by_item.values(), telling),
        before=slice_of("", of_question(outcomes_before, question.id).values(), telling),
        adjudicated=slice_of("", person.values(), telling) if changed else None,
        votes=bootstrap(valid_votes, seed) if telling else wilson(0, 0, nothing=_NOT_ASKED),
        answers=_answers(question, ratings, outcome_by_item),
        mean=bootstrap_mean([sum(map(int, r)) / len(r) for r in ratings.values()], seed) if ordered else None,
        agreement=agreement(list(ratings.values()), question.answers(), ordered),
        agreement_before=agreement(list(_ratings(question, items, before).values()), question.answers(), ordered),
        second=_second(question, outcome_by_item, after),
        slices=slices_of(items, outcome_by_item) if telling else Slices(),
        remarks=tuple(
            Remark(item.id, vote.worker, text)
            for item in items
            for vote in after.get(item.id, ())
            if question.kind == "text" and (text := vote.answers.get(question.id, "").strip())
        ),
    )


def _ratings(question: Question, items: Sequence[Item], votes: Counted) -> dict[int, list[str]]:
    """Return the counted answers to a question by item. Items without an answer are left out. {} for free text."""
    if question.kind == "text":
        return {}
    possible = set(question.answers())
    answers = {
        item.id: [a for vote in votes.get(item.id, ()) if (a := vote.answers.get(question.id, "")) in possible]
        for item in items
    }
    return {item: given_answers for item, given_answers in answers.items() if given_answers}


def _pooled(items: Sequence[Item], votes: Counted, questions: Sequence[Question]) -> Agreement:
    """Return the agreement over the first question on validity and all others that offer the same answers."""
    telling = [question for question in questions if question.valid]
    if not telling:
        return agreement([])
    first = telling[0]
    same = [question for question in telling if question.answers() == first.answers()]
    ratings = [given_answers for question in same for given_answers in _ratings(question, items, votes).values()]
    return agreement(ratings, first.answers(), first.kind == "scale")


def _answers(
    question: Question, ratings: Mapping[int, Sequence[str]], outcomes: Mapping[int, ItemOutcome]
) -> tuple[AnswerShare, ...]:
    agreed = [found.answer for found in outcomes.values() if found.status == "consensus"]
    return tuple(
        AnswerShare(
            answer,
            sum(list(given_answers).count(answer) for given_answers in ratings.values()),
            wilson(agreed.count(answer), len(agreed), nothing="no image has a consensus yet"),
        )
        for answer in question.answers()
    )


def second_opinion(question: Question, outcomes: Mapping[int, ItemOutcome], votes: Counted) -> DawidSkene:
    """Return Dawid and Skene's model of the counted votes, without items that wait for votes. Tasks are item ids."""
    return dawid_skene(
        [
            (str(item), vote.worker, vote.answers[question.id])
            for item, found in outcomes.items()
            if found.status != "waiting"
            for vote in votes.get(item, ())
            if vote.answers.get(question.id)
        ]
    )


def _second(question: Question, outcomes: Mapping[int, ItemOutcome], votes: Counted) -> SecondOpinion:
    """Return the majority and Dawid-Skene results on the same counted votes, without items that wait for votes."""
    if not question.valid:
        nothing = wilson(0, 0, nothing=_NOT_ASKED)
        return SecondOpinion(nothing, 0, nothing, (), nothing.words)
    answered = [item for item, found in outcomes.items() if found.counts]
    ready = [item for item in answered if outcomes[item].status != "waiting"]
    undecided = "no image has all its votes yet" if answered else "no vote counts yet"
    best = [majority([answer for answer, n in outcomes[item].counts.items() for _ in range(n)]) for item in ready]
    decided = [answer for answer in best if answer is not None]
    equal = "every image has as many votes for one answer as for another"
    by_majority = wilson(sum(a in question.valid for a in decided), len(decided), equal if ready else undecided)
    model = second_opinion(question, outcomes, votes)
    if not model.labels:
        why = model.words.removeprefix("undefined: ") if ready else undecided
        words = f"Dawid and Skene's model is undefined: {why}."
        return SecondOpinion(by_majority, len(best) - len(decided), wilson(0, 0, nothing=why), (), words)
    by_model = wilson(sum(a in question.valid for a in model.labels.values()), len(model.labels))
    agreed = {item: outcomes[item].answer for item in ready if outcomes[item].status == "consensus"}
    differ = tuple(item for item, answer in agreed.items() if model.labels[str(item)] != answer)
    apart = count_of(len(differ), "image")
    agrees = f"differs from the consensus on {apart}" if differ else "agrees with every consensus"
    words = (
        f"Dawid and Skene's model, which weighs workers by how reliable they seem, takes {by_model.count} of "
        f"{by_model.n} images for valid and {agrees} ({model.words})."
    )
    return SecondOpinion(by_majority, len(best) - len(decided), by_model, differ, words)


def _disagreements(data: StudyData, outcomes: Outcomes) -> tuple[Disagreement, ...]:
    """Return the questions, by item, with different answers or no consensus. Those without consensus come first."""
    decided = {(decision.item, decision.question): decision for decision in data.adjudications}
    disagreements = [
        Disagreement(
            item,
            question,
            part.counts,
            part.status,
            part.disagreement,
            decided.get((item, question)),
            ", ".join(f"{n} {answer}" for answer, n in part.counts.items()) or "no vote",
        )
        for item, of_item in outcomes.items()
        for question, part in of_item.items()
        if len(part.counts) > 1 or part.status in ("no consensus", "too few votes")
    ]
    order = {"no consensus": 0, "too few votes": 1, "waiting": 2, "consensus": 3}
    return tuple(sorted(disagreements, key=lambda d: (order[d.status], -d.disagreement, d.item)))


def of_question(outcomes: Outcomes, question: str) -> dict[int, ItemOutcome]:
    """Return the outcomes of one question by item id."""
    return {item: of_item[question] for item, of_item in outcomes.items() if question in of_item}


def slice_of(name: str, outcomes: Iterable[ItemOutcome], telling: bool = True) -> Slice:
    """Return the share of valid outcomes among those with a consensus. It is undefined if `telling` is False: the
    outcomes do not tell whether an image is valid.
    """
    outcomes = list(outcomes)
    decided = [found for found in outcomes if found.status == "consensus"]
    discarded, short, waiting = (
        sum(found.status == status for found in outcomes) for status in ("no consensus", "too few votes", "waiting")
    )
    if not telling:
        nothing = _NOT_ASKED
    elif not outcomes:
        nothing = "no image was asked this"
    else:
        nothing = "no image has all its votes and a consensus yet" if waiting else "no image found a consensus"
    valid = sum(found.valid is True for found in decided)
    return Slice(
        name,
        len(outcomes),
        wilson(valid, len(decided) if telling else 0, nothing=nothing),
        discarded,
        short,
        waiting,
        bounds(valid, len(decided), discarded + short) if telling else bounds(0, 0, 0),
    )


def slices_of(items: Sequence[Item], outcomes: Mapping[int, ItemOutcome]) -> Slices:
    """Return the shares by class, edit type, sample and model under test, each in alphabetical order.

    Images without a value come last, as `NONE`, so the groups hold all images that the question was asked about.
    """

    def by(names: Callable[[Item], Iterable[str]]) -> tuple[Slice, ...]:
        parts: dict[str, list[ItemOutcome]] = {}
        for item in items:
            if item.id in outcomes:
                for name in dict.fromkeys(name for name in names(item) if name) or (NONE,):
                    parts.setdefault(name, []).append(outcomes[item.id])
        if set(parts) <= {NONE}:
            return ()
        return tuple(slice_of(name, parts[name]) for name in sorted(parts, key=lambda name: (name == NONE, name)))

    return Slices(
        by_class=by(lambda item: (item.label,) if item.label else item.classes),
        by_edit_type=by(lambda item: item.edit_types),
        by_group=by(lambda item: (item.group,)),
        by_model=by(_model),
    )


def _model(item: Item) -> tuple[str, ...]:
    if item.model_right is None:
        return ()
    return (f"{item.model or 'model under test'}: {'right' if item.model_right else 'wrong'}",)


def further_people(data: StudyData, counted: Mapping[int, Sequence[Vote]]) -> int:
    """Return the minimum number of people who must join so that every image can get all its votes; 0 for none.

    `counted` has the counted votes by item. Nobody votes twice on an image. Excluded workers, blocked workers and
    workers who failed the quiz give no more votes. All other workers in the study are assumed to vote.
    """
    rules = data.study.rules
    able = _able(data)
    voters: dict[int, set[str]] = {}
    for vote in data.votes:
        if vote.kind == "item" and vote.worker in able:
            voters.setdefault(vote.item, set()).add(vote.worker)
    missing = {item.id: rules.votes - len(counted.get(item.id, ())) for item in data.items if item.kind == "item"}
    missing = {item: votes for item, votes in missing.items() if votes > 0}
    people = max((votes - len(able - voters.get(item, set())) for item, votes in missing.items()), default=0)
    if rules.most_items:
        items_judged = Counter(worker for workers in voters.values() for worker in workers)
        unseen = {worker: sum(worker not in voters.get(item, ()) for item in missing) for worker in able}
        room = sum(min(unseen[worker], max(0, rules.most_items - items_judged[worker])) for worker in able)
        people = max(people, math.ceil((sum(missing.values()) - room) / rules.most_items))
    return max(0, people)


def _able(data: StudyData) -> set[str]:
    """Return the workers who may vote, or who will be allowed to after consent, training and quiz."""
    rules, known = data.study.rules, {item.id: item for item in data.items if item.expected}
    excluded = {exclusion.worker: exclusion for exclusion in data.exclusions}
    quizzes: dict[str, list[bool]] = {worker.id: [] for worker in data.workers}
    for vote in data.votes:
        if vote.kind == "quiz" and vote.worker in quizzes and vote.item in known:
            quizzes[vote.worker].append(right(known[vote.item], vote.answers, rules.questions))
    # Workers from an imported file do not vote here.
    elsewhere = {vote.worker for vote in data.votes if vote.imported}

    def may_vote(worker: Worker) -> bool:
        quiz, exclusion = quizzes[worker.id], excluded.get(worker.id)
        # Workers without consent or training may still get both.
        later = Enrolment(data.study.id, worker.id, True, sum(quiz), len(quiz), rules.training, exclusion=exclusion)
        return standing(worker, later, rules).kind not in ("not eligible", "excluded")

    return {worker.id for worker in data.workers if worker.id not in elsewhere and may_vote(worker)}


_TEMPLATES = TextTemplates(
    Path(__file__).with_name("templates"), count_of=count_of, further_people_words=further_people_words
)
