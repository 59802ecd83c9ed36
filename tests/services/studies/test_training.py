"""Training with feedback: it comes first, feedback follows each answer and stays until it was read, and nothing
counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from core.csv_tables import read_csv
from core.studies import ControlPolicy, Eligibility, NewItem, Question, Rules
from services.studies.exports import EXPORTS, opened, restore_study, zipped
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace
from study.control_items import pictures_of
from study.listed_items import listed_items
from study.methods import paragraph
from study.power import plan
from study.questions import check_rules
from study.readiness import findings
from study.results import analyse
from study.training import feedback, made_training
from tests.support.annotating import BIRD_RULES, Annotator, browser_of, items_of, keep_image, mounted, picture, running
from tests.support.study_desk import assert_counted, crew, vote
from tests.support.workspaces import workspace_in

RULES = replace(BIRD_RULES, training=2)
WHY = "Its <b>beak</b> & its wings."


def known(workspace: Workspace, kind: Any, count: int, first: int, **more: Any) -> list[NewItem]:
    """Return items with a known answer, each with a different picture."""
    held = {"kind": kind, "expected": {"valid": "no"}, "label": "boat", "why": WHY, **more}
    return [NewItem(keep_image(workspace, picture(first + number)), **held) for number in range(count)]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as held:
        yield held


@pytest.fixture
def app(workspace: Workspace) -> FastAPI:
    return mounted(workspace)


@pytest.fixture
def one(app: FastAPI) -> Iterator[Annotator]:
    with browser_of(app) as annotator:
        yield annotator


def go_on(annotator: Annotator, step: Any, status: int = 200) -> dict[str, Any]:
    return annotator.post("go-on", {"assignment": step["assignment"]["id"]}, status)


def seen(annotator: Annotator, token: str) -> int:
    return annotator.client.get(f"/annotate/image/{token}").status_code


def trained(annotator: Annotator, answer: str = "no") -> dict[str, Any]:
    """Finish the training, and return the step after it."""
    step = annotator.next()
    while step["status"] in ("training", "feedback"):
        told = step["status"] == "feedback"
        step = go_on(annotator, step) if told else annotator.answer(step, answer)["next"]
    return step


# The worker's view


def test_each_answer_is_told_of_once_it_is_saved_and_the_next_comes_when_it_was_read(
    workspace: Workspace, app: FastAPI, one: Annotator
) -> None:
    new = [*items_of(workspace, 2), *known(workspace, "training", 2, 700), *known(workspace, "quiz", 1, 800)]
    eligible = Eligibility(min_finished=50, quiz=1, quiz_pass=0.0)
    study_id, link = running(workspace, new, replace(RULES, eligibility=eligible))
    first = one.join(link).next()
    assert first["status"] == "training" and (first["done"], first["left"]) == (0, 2) and not first["undo"]
    assert "image 1 of 2" in first["text"] and first["feedback"] is None
    assert WHY not in json.dumps(first) and '"no"' not in json.dumps({**first, "assignment": None})
    assert set(first["assignment"]) == {*first["assignment"]} - {"expected", "why", "kind"}
    # Before the answer, the worker gets neither feedback nor the next item.
    assert go_on(one, first)["assignment"]["id"] == first["assignment"]["id"] == one.next()["assignment"]["id"]
    assert go_on(one, first)["feedback"] is None

    told = one.answer(first, "yes", key="a key", comment="hm")["next"]
    assert told["status"] == "feedback" and told["assignment"]["id"] == first["assignment"]["id"]
    assert (told["done"], told["left"], told["undo"]) == (0, 2, False)
    said = told["feedback"]
    assert (said["right"], said["why"]) == (False, WHY)
    assert said["answers"] == [
        {
            "question": first["assignment"]["questions"][0]["text"],
            "given": "yes",
            "expected": "no",
            "right": False,
        }
    ]
    # After a reload, in a second browser, and on a new server the same feedback is shown with its picture, and nothing
    # else.
    image = told["assignment"]["image"]
    with browser_of(mounted(workspace)) as other:
        other.post("sign-in", {"code": one.code})
        other.study = one.study
        for browser in (one, other):
            again = browser.next()
            assert again["feedback"] == said and seen(browser, again["assignment"]["image"]) == 200
        # Sending the same answer again is accepted. Another answer is refused, and no answer can be undone.
        assert one.answer(first, "no", key="a key")["next"]["feedback"] == said
        one.answer(first, "no", 409)
        assert "no answer to take back" in one.post("undo", {"study": one.study}, 409)["error"]
        one.post("draft", {"assignment": first["assignment"]["id"], "answers": {"valid": "no"}})
        one.post("pause", {"study": one.study})
        assert one.next()["feedback"] == said
        second = go_on(one, told)
        assert second["status"] == "training" and (second["done"], second["left"]) == (1, 1)
        assert go_on(other, told)["assignment"]["id"] == second["assignment"]["id"], "gone on once, by either"
        assert seen(one, image) == 404 and seen(other, image) == 404
        # The second browser still shows its feedback. Continuing in the first does not mark that as read.
        told = other.answer(second, "no")["next"]
        assert go_on(one, first)["feedback"] == told["feedback"] and told["feedback"]["right"] is True
        quiz = go_on(one, told)
    assert quiz["status"] == "quiz" and not quiz["undo"]
    go_on(one, quiz, 404)
    item = one.answer(quiz, "yes")["next"]
    assert item["status"] == "item" and (item["done"], item["left"]) == (0, 2) and item["feedback"] is None
    go_on(one, item, 404)
    votes = workspace.studies.data(study_id).votes
    assert [(vote.kind, vote.answers["valid"], vote.comment) for vote in votes] == [
        ("training", "yes", "hm"),
        ("training", "no", ""),
        ("quiz", "yes", ""),
    ]


def test_a_pause_a_closed_study_and_a_session_that_ends_lose_no_answer(workspace: Workspace, one: Annotator) -> None:
    study_id, link = running(workspace, [*items_of(workspace, 1), *known(workspace, "training", 2, 700)], RULES)
    first = one.join(link).next()
    workspace.studies.pause(study_id)
    one.answer(first, "no", 409)
    assert one.next()["status"] == "paused"
    workspace.studies.resume(study_id)
    told = one.answer(first, "no")["next"]
    workspace.studies.pause(study_id)
    assert go_on(one, told)["status"] == "paused", "that it was read is kept all the same"
    workspace.studies.resume(study_id)
    second = one.next()
    assert second["status"] == "training" and second["done"] == 1
    one.post("sign-out", {})
    one.answer(second, "no", 401, key="the same")
    go_on(one, told, 401)
    one.post("sign-in", {"code": one.code})
    assert one.answer(second, "no", key="the same")["next"]["feedback"]["right"]
    workspace.studies.close(study_id)
    assert one.next()["status"] == "closed"
    assert len(workspace.studies.data(study_id).votes) == 2


def test_nobody_gets_feedback_of_what_is_not_theirs(workspace: Workspace, app: FastAPI, one: Annotator) -> None:
    study_id, link = running(workspace, [*items_of(workspace, 1), *known(workspace, "training", 2, 700)], RULES)
    told = one.answer(one.join(link).next(), "yes")["next"]
    with browser_of(app) as other:
        other.join(link)
        refused = go_on(other, told, 404)
        assert "feedback" not in refused and seen(other, told["assignment"]["image"]) == 404
        with browser_of(app) as stranger:
            go_on(stranger, told, 401)
    assert one.next()["status"] == "feedback", "what another one sends is no reading of mine"
    # A picture that the worker may not see any more is refused, before and after the answer.
    image, studies = one.next()["assignment"]["image"], workspace.studies
    assert seen(one, image) == 200
    for take, give in (
        (lambda: studies.workers.block(one.worker, True), lambda: studies.workers.block(one.worker, False)),
        (
            lambda: studies.workers.exclude(study_id, one.worker, "too fast", "person"),
            lambda: studies.workers.readmit(study_id, one.worker, ""),
        ),
        (lambda: studies.close(study_id), lambda: None),
    ):
        take()
        assert seen(one, image) == 404 and one.next()["feedback"] is None
        give()


# Effect on results


def test_training_counts_for_nothing_and_stands_in_the_records(
    workspace: Workspace, one: Annotator, tmp_path: Path
) -> None:
    new = [*items_of(workspace, 2), *known(workspace, "training", 2, 700)]
    study_id, link = running(workspace, new, RULES)
    studies = workspace.studies
    first = one.join(link).next()
    one.answer(first, "yes", seconds=0.0)
    study, before = studies.get(study_id), analyse(studies.data(study_id))
    assert (study.training, study.votes, study.workers) == (2, 0, 0)
    (figures,) = before.workers
    assert not figures.answered and figures.median_seconds is None and figures.too_fast.n == figures.controls.n == 0
    assert (before.votes_cast, before.conditions.shown, before.first) == (0, 0, None)
    one.answer(trained(one), "yes")
    studies.workers.decide(study_id, one.worker, "approved", "")
    record = studies.workers.get(one.worker)
    assert (record.approved, record.pending, record.finished) == (1, 0, 1), "the one image"
    report = analyse(studies.data(study_id))
    assert dict(report.workers[0].decided) == {"approved": 1, "rejected": 0, "pending": 0}
    assert report.votes_cast == report.conditions.shown == 1
    assert "every worker answered 2 training items with a known answer and was told after each" in paragraph(report)

    files = opened(workspace, study_id)
    answers = read_csv(EXPORTS["answers.csv"][1](files), "").rows
    assert [(row["kind"], row["counted"], row["left_out_because"], row["verdict"]) for row in answers] == [
        ("training", "false", "training item", ""),
        ("training", "false", "training item", ""),
        ("item", "true", "", "approved"),
    ]
    assert [row["expected"] for row in answers] == ["no", "no", ""]
    (paid,) = read_csv(EXPORTS["payment.csv"][1](files), "").rows
    assert (paid["training"], paid["items"], paid["approved"], paid["pending"]) == ("2", "1", "1", "0")
    assert [row["Input.kind"] for row in read_csv(EXPORTS["turk.csv"][1](files), "").rows] == ["item"]
    assert json.loads(EXPORTS["results.json"][1](files))["study"]["training"] == 2
    assert {row["kind"] for row in read_csv(EXPORTS["truth.csv"][1](files), "").rows} == {"item", "training"}

    # The restored study knows which feedback was read.
    name, parts = zipped(workspace, study_id)
    (tmp_path / name).write_bytes(b"".join(parts))
    with workspace_in(tmp_path / "another") as there:
        restored, _ = restore_study(there, tmp_path / name)
        data = there.studies.data(restored)
        assert [vote.kind for vote in data.votes] == ["training", "training", "item"]
        assert {item.why for item in data.items if item.kind == "training"} == {WHY}
        assert there.studies.assignments.to_read(restored, one.worker) is None
        assert analyse(data).workers[0].decided == report.workers[0].decided
    for folder in ("workspace", "another"):
        assert_counted(tmp_path / folder)


def test_nobody_is_shown_as_control_or_quiz_what_they_were_told_of(workspace: Workspace) -> None:
    """Images of the same source, and the same picture in another light, are excluded too."""
    source, shown, lit = (keep_image(workspace, picture(number)) for number in (701, 702, 703))
    known_answer: dict[str, Any] = {"expected": {"valid": "yes"}, "label": "bird"}
    told = NewItem(shown, source, "training", **known_answer)
    same = [
        {"image_sha": shown},
        {"image_sha": source},
        {"image_sha": keep_image(workspace, picture(704)), "source_sha": source},
        {"image_sha": lit, "origin": {"picture": shown}},
        {"image_sha": keep_image(workspace, picture(705)), "origin": {"picture": source}},
    ]
    for kind in ("control", "quiz"):
        free = NewItem(keep_image(workspace, picture(706)), kind=kind, **known_answer)  # type: ignore[arg-type]
        new = [told, free, *(NewItem(kind=kind, **known_answer, **fields) for fields in same)]  # type: ignore[arg-type]
        rules = replace(RULES, training=1, controls=ControlPolicy(share=0.5))
        study_id, _ = running(workspace, [*items_of(workspace, 3), *new], rules, f"Of {kind}")
        studies = workspace.studies
        trainee, other = crew(studies, study_id, 2)
        vote(studies, studies.assignments.claim(study_id, trainee, "training"))
        assert kind == "quiz" or studies.assignments.controls_left(study_id, trainee) == 1
        given = []
        while (assignment := studies.assignments.claim(study_id, trainee, kind)) is not None:  # type: ignore[arg-type]
            given.append(vote(studies, assignment).item.image_sha)
        assert given == [free.image_sha]
        assert kind == "quiz" or studies.assignments.controls_left(study_id, other) == 6


# Source of the training items


def made_of(count: int, labels: tuple[str, ...] = ("bird", "boat")) -> list[NewItem]:
    return [NewItem(f"image {n}", f"source {n}", label=labels[n % len(labels)]) for n in range(count)]


@pytest.mark.parametrize("sources, wanted, made", [(40, 5, 5), (12, 5, 5), (6, 5, 5), (4, 5, 4), (2, 5, 2), (1, 5, 0)])
def test_training_is_made_of_at_most_half_of_the_sources(sources: int, wanted: int, made: int) -> None:
    rules = replace(RULES, training=wanted)
    found = made_training(made_of(sources), rules)
    assert len(found) == made and found == made_training(made_of(sources), rules), "the same again"
    assert len(pictures_of(found)) <= max(1, sources // 2)
    answers = [item.expected["valid"] for item in found]
    assert abs(answers.count("yes") - answers.count("no")) <= 1
    for item in found:
        assert item.kind == "training"
        true = "boat" if int((item.source_sha or "").split()[1]) % 2 else "bird"
        if item.expected["valid"] == "yes":
            assert item.why == f"This is an original picture, in which nothing was exchanged: it shows “{true}”."
        else:
            assert item.why == f"This is an original picture of “{true}”, and not of “{item.label}”."
    stops = [note.text for note in findings(rules, [*made_of(sources), *found]) if note.field == "training"]
    assert len(stops) == (made < wanted) and all(f"asks for {wanted} images" in text for text in stops)


def test_given_control_items_are_left_out_of_the_training_and_a_clash_is_told() -> None:
    rules = replace(RULES, training=2)
    given = NewItem("source 1", kind="control", expected={"valid": "yes"}, label="boat")
    for seed in range(6):
        made = made_training(made_of(8), replace(rules, seed=seed), [given])
        assert "source 1" not in pictures_of(made)
    clash = [NewItem("source 1", kind="training", expected={"valid": "yes"}, label="boat")] * 2
    quiz = replace(given, kind="quiz")
    asks = replace(rules, eligibility=Eligibility(quiz=1))
    for of, with_rules, stops in ((given, rules, False), (quiz, asks, True)):
        (note,) = (n for n in findings(with_rules, [*made_of(8), *clash, of]) if n.field == "training")
        assert "a picture of the training" in note.text and note.stops == stops
    (note,) = (n for n in findings(replace(rules, training=0), [*made_of(8), *clash]) if n.field == "training")
    assert "never shown" in note.text and not note.stops


def test_other_scenes_are_told_of_by_the_class_that_they_lack() -> None:
    rules = replace(TEMPLATES["preservation"].rules(), training=4)
    about = [question.only_with for question in rules.questions if question.only_with]
    shown = [(about[0],), (about[1],)]
    items = [NewItem(f"i{n}", f"s{n}", classes=shown[n % 2]) for n in range(16)]
    whys = {item.why for item in made_training(items, rules)}
    assert any(f"which does not show “{about[0]}”" in why or f"does not show “{about[1]}”" in why for why in whys)
    assert any("nothing was exchanged: it shows" in why for why in whys)


def test_a_scene_that_lacks_the_class_is_looked_for_among_all() -> None:
    """Otherwise a training could have only right images, since few scenes lack a class."""
    rules = replace(TEMPLATES["preservation"].rules(), training=4)
    about = tuple(dict.fromkeys(question.only_with for question in rules.questions if question.only_with))
    items = [NewItem(f"i{n}", f"s{n}", classes=about[1:] if n == 0 else about) for n in range(24)]
    for seed in range(4):
        made = made_training(items, replace(rules, seed=seed))
        assert [("no" in item.expected.values()) for item in made].count(True) == 2
        wrong = [item for item in made if "no" in item.expected.values()]
        assert {item.image_sha for item in wrong} == {"s0"} and all(about[0] in item.why for item in wrong)


def test_a_list_may_bring_training_items_with_a_reason() -> None:
    table = read_csv(f'image,kind,expected.valid,why,label\na.png,training,no,"{WHY}",boat\n'.encode(), "")
    (found,), notes = listed_items(table, RULES)
    assert (found.item.kind, found.item.why, dict(found.item.expected)) == ("training", WHY, {"valid": "no"})
    assert not notes
    long = read_csv(f"image,kind,why\na.png,training,{'x' * 1001}\n".encode(), "")
    with pytest.raises(ValueError, match="its why has 1001 characters"):
        listed_items(long, RULES)
    with pytest.raises(ValueError, match="a training item needs a right answer"):
        listed_items(read_csv(b"image,kind\na.png,training\n", ""), RULES)


def test_what_is_told_covers_every_question_that_came_or_should_have() -> None:
    first = Question("shows", "Does it show a {label}?", "yes-no", valid=("yes",))
    more = Question("where", "Where?", "choice", ("left", "right"), follows="shows", follows_answer="yes")
    mood = Question("mood", "How is it?", "scale")
    item = NewItem("i", kind="training", expected={"shows": "yes", "where": "left"}, label="owl")
    said = feedback(item, {"shows": "no", "mood": "3"}, [first, more, mood])
    assert not said.right
    assert [(t.question, t.given, t.expected, t.right) for t in said.answers] == [
        ("Does it show an owl?", "no", "yes", False),
        ("Where?", "", "left", False),
        ("How is it?", "3", "", None),
    ]
    assert feedback(item, {"shows": "yes", "where": "left", "mood": "1"}, [first, more, mood]).right


def test_the_plan_and_the_rules_know_it() -> None:
    rules = replace(RULES, seconds_expected=10.0)
    without, with_it = (plan(100, replace(rules, training=number), minutes=30) for number in (0, 6))
    assert with_it.annotators >= without.annotators
    assert with_it.hours - without.hours == pytest.approx(with_it.annotators * 6 * 2 * 10 / 3600)
    with pytest.raises(ValueError, match="no further than the training"):
        plan(100, replace(rules, training=20), minutes=5)
    for number in (-1, 21):
        with pytest.raises(ValueError, match=r"Training: .* from 0 to 20"):
            check_rules(replace(rules, training=number))
    assert Rules(rules.questions).training == 0
