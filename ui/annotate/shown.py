"""Data for the annotators' page. The data never reveal an item's kind, an item's origin, or other people's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.csv_tables import facts
from core.stored_studies import Assignment
from core.studies import Feedback, Item, NewItem, Question, Rules, Side, Study, asked, wording
from services.studies.annotation import AnnotationStep, ListedStudy
from services.studies.annotators import PictureTokens
from ui.diff import Piece, word_diff


def shown_state(worker: str, places: tuple[ListedStudy, ...]) -> dict[str, Any]:
    """Return the signed-in worker's name and a list of their studies as plain data."""
    studies = [{**facts(place.study, "id name state"), **facts(place, "done left")} for place in places]
    return {"worker": worker, "studies": studies}


def shown_step(step: AnnotationStep, tokens: PictureTokens) -> dict[str, Any]:
    """Return a worker's next step as plain data. "ahead" lists tokens of pictures that the page may load early."""
    assignment = step.assignment
    return {
        **facts(step, "status text done left undo"),
        "person": [facts(question, "text options") for question in step.person],
        "completion": {"code": step.completion[0], "address": step.completion[1]},
        "study": shown_study(step.study, lambda number: f"/annotate/example/{step.study.id}/{number}"),
        "assignment": None
        if assignment is None
        else {
            "id": assignment.public,
            **shown_item(step.study.rules, assignment.item, *_named(assignment, tokens), assignment.side),
            "answers": dict(assignment.answers),
            "comment": assignment.comment,
            "draft": None if assignment.draft is None else vars(assignment.draft),
        },
        "feedback": None if step.feedback is None else shown_feedback(step.feedback),
        "ahead": [] if assignment is None else _ahead(step, step.ahead, assignment.worker, tokens),
    }


def shown_feedback(result: Feedback) -> dict[str, Any]:
    """Return the feedback on a worker's answers to a training item."""
    return facts(result, "right why answers")


def _named(assignment: Assignment, tokens: PictureTokens) -> tuple[str, str | None]:
    """Return the tokens for an item's image and its source. A token that the browser already has is used again."""
    image = tokens.known(assignment.worker, assignment.item.image_sha) or assignment.image_token
    source = assignment.item.source_sha and tokens.known(assignment.worker, assignment.item.source_sha)
    return image, source or assignment.source_token or None


def _ahead(step: AnnotationStep, item: Item | None, worker: str, tokens: PictureTokens) -> list[str]:
    shas = [] if item is None else [item.image_sha, item.source_sha if step.study.rules.show_source else None]
    return tokens.expect(worker, step.study.id, [sha for sha in shas if sha])


def shown_study(study: Study, example: Callable[[int], str]) -> dict[str, Any]:
    """Return a study's id, name, instructions, consent text and examples. `example` returns the address of an example's
    picture by its zero-based index.
    """
    examples = [facts(shown, "answer why", image=example(number)) for number, shown in enumerate(study.rules.examples)]
    return {**facts(study, "id name"), **facts(study.rules, "instructions consent"), "examples": examples}


def shown_item(rules: Rules, item: NewItem | Item, image: str, source: str | None, side: Side) -> dict[str, Any]:
    """Return an item as plain data, without its id and answers. `image`, `source`: tokens or paths ("/...")."""
    caption, counterfactual = _captions(item) if rules.show_captions else (None, None)
    names = "id kind low high required follows follows_answer"
    return {
        "image": image,
        "source": source if rules.show_source else None,
        "side": side,
        "caption": caption,
        "counterfactual": counterfactual,
        "label": (item.label or None) if rules.show_captions else None,
        "questions": [
            facts(question, names, text=wording(question, item), options=list(question.answers()))
            for question in _may_be_asked(rules, item)
        ],
    }


def _may_be_asked(rules: Rules, item: NewItem) -> list[Question]:
    """Return the questions about an item, with all follow-ups. The page shows follow-ups only after certain answers."""
    chosen: dict[str, Question] = {}
    for question in rules.questions:
        if asked([replace(question, follows="")], item, {}) and (not question.follows or question.follows in chosen):
            chosen[question.id] = question
    return list(chosen.values())


def _captions(item: NewItem) -> tuple[list[list[str]] | None, list[list[str]] | None]:
    """Return both captions as lists of [text, kind]; None for a missing one. The kind is "same", "removed" (only in the
    source's caption) or "added" (only in the counterfactual caption).
    """
    if not item.caption or not item.counterfactual:
        return ([[item.caption, "same"]] if item.caption else None), None
    after = word_diff(item.caption, item.counterfactual)
    before = word_diff(item.counterfactual, item.caption)  # its "added" words are missing in the counterfactual
    return _marked(before, "removed"), _marked(after, "added")


def _marked(pieces: tuple[Piece, ...], kind: str) -> list[list[str]]:
    """Return a text, compared with an earlier one, as lists of [text, kind]: `kind` for added words, else "same"."""
    marked: list[list[str]] = []
    for piece in pieces:
        if piece.kind == "same":
            marked.append([piece.text, "same"])
        elif piece.kind == "added":
            words = piece.text.rstrip()
            marked += [[words, kind], [piece.text[len(words) :], "same"]]
    return [part for part in marked if part[0]]
