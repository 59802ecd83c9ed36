"""Tables of a study: counted votes as `task, worker, label`, all answers, outcomes by image, and facts on workers.

The paid work of panel participants and their answers about themselves are in separate tables, without the votes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from core.consensus import counted, of_images, outcomes_of
from core.csv_tables import Row, cells, columns_of, plain
from core.panel import Panel
from core.studies import ITEM_KINDS, WORK, ApprovalVerdict, Item, Rules, StudyData, Vote, asked
from study.results import of_question, second_opinion
from study.workers import controls_right, is_judged

VOTE_COLUMNS = ("task", "worker", "label")
"""Names of the columns that crowd-kit reads."""
ANSWER_COLUMNS = columns_of(
    "item kind question worker answer counted:truth left_out_because expected right:truth assignment:whole "
    "accepted:time submitted:time seconds:number side changes:whole verdict reason comment label classes "
    "edit_types group model model_right:truth"
)
"""Columns of a table with a row for each question that a worker was asked about an item of any kind."""
RESULT_COLUMNS = columns_of(
    "item question status answer valid:truth votes:whole counts disagreement:number image_status "
    "image_valid:truth status_before answer_before counts_before dawid_skene dawid_skene_probability:number "
    "adjudicated adjudicated_because label classes edit_types group model model_right:truth caption "
    "counterfactual image source origin"
)
"""Columns of a table with a row for each image and question with fixed answers."""


def counted_assignments(data: StudyData) -> frozenset[int]:
    """Return the assignments that count: on each item, the first `rules.votes` by workers who are not excluded."""
    ids = {item.id for item in data.items if item.kind == "item"}
    excluded = {exclusion.worker for exclusion in data.exclusions}
    counted_votes = counted((vote for vote in data.votes if vote.item in ids), data.study.rules.votes, excluded)
    return frozenset(vote.assignment for votes in counted_votes.values() for vote in votes)


def vote_rows(data: StudyData) -> list[Row]:
    """Return the counted votes as `task, worker, label`. With several questions a task is "NAME:QUESTION"."""
    questions = {question.id for question in data.study.rules.questions if question.kind != "text"}
    names = {item.id: item.public for item in data.items}
    inside = counted_assignments(data)
    return [
        {
            "task": names[vote.item] if len(questions) == 1 else f"{names[vote.item]}:{question}",
            "worker": vote.worker,
            "label": answer,
        }
        for vote in data.votes
        if vote.assignment in inside
        for question, answer in vote.answers.items()
        if question in questions and answer
    ]


def answer_rows(data: StudyData) -> list[Row]:
    """Return a row for every answer: whether it counts, why not, and facts on item, worker and time.

    `answer` is empty for an optional question that was skipped. `verdict` is empty for training, which nobody approves.
    `right` is True if the known right answer was given.
    """
    items = {item.id: item for item in data.items}
    inside = counted_assignments(data)
    excluded = {exclusion.worker: exclusion.reason for exclusion in data.exclusions}
    rows: list[Row] = []
    for vote in data.votes:
        item = items[vote.item]
        for question in asked(data.study.rules.questions, item, vote.answers):
            expected = item.expected.get(question.id, "")
            answer = vote.answers.get(question.id, "")
            row: Row = {
                "item": item.public,
                "kind": vote.kind,
                "question": question.id,
                "worker": vote.worker,
                "answer": answer,
                "counted": vote.assignment in inside,
                "left_out_because": "" if vote.assignment in inside else _why_not(vote, excluded),
                "expected": expected,
                "right": answer.strip().casefold() == expected.strip().casefold() if expected else None,
                **cells(vote, "assignment accepted submitted seconds side changes reason comment"),
                "verdict": vote.verdict if vote.kind in WORK else "",
            }
            rows.append(row | about_item(item))
    return rows


def _why_not(vote: Vote, excluded: Mapping[str, str]) -> str:
    if vote.kind != "item":
        return f"{vote.kind} item"
    if vote.worker in excluded:
        return f"worker excluded: {excluded[vote.worker]}"
    return "beyond the number of votes of an item"


def result_rows(data: StudyData) -> list[Row]:
    """Return a row for each image and each question with fixed answers that was asked about it.

    Columns such as `status_before` hold the outcome as if nobody had been excluded. Dawid and Skene's answer uses
    the same votes as `status`. This answer is empty for images that wait for votes, or if the method of Dawid and
    Skene gives no result.
    """
    rules, closed = data.study.rules, data.study.state == "closed"
    items = [item for item in data.items if item.kind == "item"]
    ids = {item.id for item in items}
    cast = [vote for vote in data.votes if vote.kind == "item" and vote.item in ids]
    votes = counted(cast, rules.votes, {exclusion.worker for exclusion in data.exclusions})
    outcomes = outcomes_of(items, votes, rules, closed)
    before = outcomes_of(items, counted(cast, rules.votes), rules, closed)
    images = of_images(outcomes, rules.questions)
    models = {q.id: second_opinion(q, of_question(outcomes, q.id), votes) for q in rules.questions}
    decided = {(decision.item, decision.question): decision for decision in data.adjudications}
    rows: list[Row] = []
    for item in items:
        image = images.get(item.id)
        for question, found in outcomes[item.id].items():
            earlier = before[item.id].get(question)
            answer = models[question].labels.get(str(item.id), "")
            decision = decided.get((item.id, question))
            row: Row = {
                "item": item.public,
                "question": question,
                **cells(found, "status answer valid votes disagreement"),
                "counts": _json(found.counts),
                "image_status": image.status if image else "",
                "image_valid": image.valid if image else None,
                "status_before": earlier.status if earlier else "",
                "answer_before": earlier.answer if earlier else "",
                "counts_before": _json(earlier.counts) if earlier else "{}",
                "dawid_skene": answer,
                "dawid_skene_probability": models[question].probabilities[str(item.id)][answer] if answer else None,
                "adjudicated": decision.answer if decision else "",
                "adjudicated_because": decision.reason if decision else "",
                **about_item(item),
                **cells(item, "caption counterfactual"),
                "image": item.image_sha,
                "source": item.source_sha or "",
                "origin": _json(item.origin),
            }
            rows.append(row)
    return rows


def item_columns(rules: Rules) -> list[str]:
    """Return the columns of `item_rows`. `listed_items` can read a CSV with these columns."""
    known = [f"expected.{question.id}" for question in rules.questions if question.kind != "text"]
    fields = ["label", "classes", "edit_types", "group", "model", "model_right", "caption", "counterfactual"]
    return ["item", "kind", "image", "source", *known, "why", *fields, "image_sha", "source_sha", "test_case", "origin"]


def item_rows(data: StudyData, image_of: Mapping[int, str], source_of: Mapping[int, str]) -> list[Row]:
    """Return a row for each item of any kind. `image_of` and `source_of` give the picture files by item id."""
    return [
        {
            **cells(item, "kind why caption counterfactual image_sha source_sha test_case"),
            "item": item.public,
            "image": image_of.get(item.id, ""),
            "source": source_of.get(item.id, ""),
            **{f"expected.{question}": answer for question, answer in item.expected.items()},
            **about_item(item),
            "origin": _json(item.origin),
        }
        for item in data.items
    ]


WORKER_COLUMNS = (
    "worker votes controls controls_right judged excluded excluded_by excluded_because approved rejected pending "
    "blocked same_browser_as"
).split()


def worker_rows(data: StudyData) -> list[Row]:
    """Return a row for each worker: pseudonym, votes, control items right, exclusion, record. No names or addresses."""
    excluded = {exclusion.worker: exclusion for exclusion in data.exclusions}
    items = {item.id: item for item in data.items}
    rows: list[Row] = []
    for worker in data.workers:
        votes = [vote for vote in data.votes if vote.worker == worker.id]
        right, controls = controls_right(votes, items, data.study.rules)
        exclusion = excluded.get(worker.id)
        rows.append(
            {
                "worker": worker.id,
                "votes": sum(vote.kind == "item" for vote in votes),
                "controls": controls,
                "controls_right": right,
                "judged": is_judged(data.study, controls),
                "excluded": exclusion is not None,
                "excluded_by": exclusion.by if exclusion else "",
                "excluded_because": exclusion.reason if exclusion else "",
                **cells(worker, "approved rejected pending blocked"),
                "same_browser_as": "; ".join(
                    name for names in data.same_browser if worker.id in names for name in names if name != worker.id
                ),
            }
        )
    return rows


PAYMENT_COLUMNS = (
    "worker participant items controls quiz training minutes first last approved rejected pending excluded"
).split()


def payment_rows(data: StudyData, participants: Mapping[str, str]) -> list[Row]:
    """Return the number of answered items, the viewing minutes (with training) and the decisions of each worker."""
    excluded = {exclusion.worker for exclusion in data.exclusions}
    rows: list[Row] = []
    for worker in data.workers:
        votes = [vote for vote in data.votes if vote.worker == worker.id]
        if not votes and worker.id not in participants:
            continue
        row: Row = {"worker": worker.id, "participant": participants.get(worker.id, "")}
        columns = zip(("items", "controls", "quiz", "training"), ITEM_KINDS, strict=True)
        row |= {column: sum(vote.kind == kind for vote in votes) for column, kind in columns}
        row |= {
            "minutes": round(sum(vote.seconds for vote in votes) / 60, 1),
            "first": min((vote.accepted for vote in votes), default=None),
            "last": max((vote.submitted for vote in votes), default=None),
            "excluded": worker.id in excluded,
        }
        decided = [vote.verdict for vote in votes if vote.kind in WORK]
        row |= {verdict: decided.count(verdict) for verdict in get_args(ApprovalVerdict)}
        rows.append(row)
    return rows


def people_columns(panel: Panel, answers: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the columns of `people_rows`: the worker, the current questions, and earlier questions with answers."""
    now = [question.text for question in panel.questions]
    return ["worker", *dict.fromkeys([*now, *(text for given_answers in answers.values() for text in given_answers)])]


def people_rows(data: StudyData, columns: Sequence[str], answers: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """Return the workers' answers about themselves, one column for each question. No votes, no panel ids."""
    answers_by_worker = ((worker.id, answers.get(worker.id, {})) for worker in data.workers)
    return [{**{text: of.get(text, "") for text in columns}, "worker": worker} for worker, of in answers_by_worker]


def about_item(item: Item) -> Row:
    """Return the fields of an item by which an analysis may group."""
    joined = {"classes": "; ".join(item.classes), "edit_types": "; ".join(item.edit_types)}
    return {**cells(item, "label group model model_right"), **joined}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(plain(value), ensure_ascii=False)
