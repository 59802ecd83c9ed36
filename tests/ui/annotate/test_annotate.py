"""The annotators' page over HTTP: signing in, one item after another, and how it ends. No reply reveals known
answers.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastapi import FastAPI
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from core.panel import Panel, PersonQuestion
from core.studies import ControlPolicy, Eligibility, InstructionExample, Question
from services.limits import Limiter, TooMany
from services.studies.annotators import AnnotatorSessions, Join, NotSignedIn, Pictures, PictureTokens, SignIn
from services.studies.exports import EXPORTS, opened, zipped
from services.studio import Studio
from study.methods import paragraph
from study.readiness import findings
from study.results import analyse
from study.tables import worker_rows
from tests.support.annotating import (
    BIRD_RULES,
    LANCE_RULES,
    Annotator,
    browser_of,
    controls_of,
    items_of,
    keep_image,
    mounted,
    picture,
    running,
)
from tests.support.voted import cast
from ui.annotate.application import COOKIE, SERVED, annotate_page

pytestmark = pytest.mark.slow

MISSING = "There is no such thing, or it is not yours. Please reload the page."


@pytest.fixture
def app(studio: Studio) -> FastAPI:
    return mounted(studio)


@pytest.fixture
def one(app: FastAPI) -> Iterator[Annotator]:
    with browser_of(app) as annotator:
        yield annotator


@pytest.fixture
def other(app: FastAPI) -> Iterator[Annotator]:
    with browser_of(app) as annotator:
        yield annotator


def finish(annotator: Annotator, answer: str = "yes") -> dict[str, object]:
    """Answer all items. Return the step after the last one."""
    step = annotator.next()
    while step["assignment"]:
        step = annotator.answer(step, answer)["next"]
    return step


def refusals(studio: Studio) -> list[str]:
    return [entry.detail for entry in studio.workspace.studies.log() if entry.event == "refused"]


# From the invitation to the last item


def test_two_annotators_finish_a_study(studio: Studio, one: Annotator, other: Annotator) -> None:
    study_id, link = running(studio.workspace, 3)
    for annotator in (one, other):
        annotator.join(link)
        assert finish(annotator)["status"] == "done"
    data = studio.workspace.studies.data(study_id)
    assert len(data.votes) == 6 and data.study.votes == data.study.needed == 6
    assert len({(vote.item, vote.worker) for vote in data.votes}) == 6
    assert one.worker != other.worker


def lose(file: Path, how: str) -> None:
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:40])


@pytest.mark.parametrize(("how", "which"), [("missing", "image"), ("damaged", "source")])
def test_an_item_that_has_lost_a_picture_is_set_aside_until_it_is_there_again(
    studio: Studio, one: Annotator, other: Annotator, how: str, which: str
) -> None:
    items, studies = items_of(studio.workspace, 3), studio.workspace.studies
    study_id, link = running(studio.workspace, items)
    file = studio.workspace.images.path(items[1].image_sha if which == "image" else str(items[1].source_sha))
    whole = file.read_bytes()
    lose(file, how)
    for annotator in (one, other):
        step = finish(annotator.join(link))
        assert (step["status"], annotator.next()["status"]) == ("waiting", "waiting")
        assert "pictures of the last images cannot be shown right now" in str(step["text"])
    assert len(studies.data(study_id).votes) == 4
    (told,) = [entry.detail for entry in studies.log(study_id) if entry.event == "picture lost"]
    assert file.stem in told and studies.assignments.without_picture(study_id) == 1

    file.write_bytes(whole)
    for annotator in (one, other):
        assert finish(annotator)["status"] == "done"
    assert len(studies.data(study_id).votes) == 6 and studies.assignments.without_picture(study_id) == 0


def test_no_vote_is_taken_on_a_picture_that_never_came(studio: Studio, one: Annotator) -> None:
    items = items_of(studio.workspace, 2)
    study_id, link = running(studio.workspace, items)
    step = one.join(link).next()
    given = studio.workspace.studies.assignments.get(step["assignment"]["id"])
    assert given is not None
    lose(studio.workspace.images.path(given.item.image_sha), "damaged")
    with browser_of(mounted(studio)) as later:  # the server has started again since then
        later.client.cookies = one.client.cookies
        assert later.client.get(f"/annotate/image/{step['assignment']['image']}").status_code == 409
        said = later.answer(step, status=409)
        assert said["kind"] == "full" and "can no longer be shown" in said["error"]
        later.study = one.study
        assert later.next()["assignment"]["id"] != step["assignment"]["id"], "and the worker goes on"
    assert not studio.workspace.studies.data(study_id).votes


def test_consent_comes_before_the_first_item(studio: Studio, one: Annotator) -> None:
    example = InstructionExample(keep_image(studio.workspace, picture(9)), "Yes", "It has wings & a <beak>.")
    _, link = running(studio.workspace, 2, replace(BIRD_RULES, examples=(example,), instructions="Look <b>well</b>."))
    one.join(link, agree=False)
    step = one.next()
    assert step["status"] == "consent" and step["assignment"] is None
    assert step["study"]["instructions"] == "Look <b>well</b>." and step["study"]["consent"].startswith("Taking part")
    assert step["study"]["examples"][0]["why"] == "It has wings & a <beak>."
    shown = one.client.get(step["study"]["examples"][0]["image"])
    assert shown.status_code == 200 and shown.headers["content-type"] == "image/png"
    assert one.post("consent", {"study": one.study})["status"] == "item"


def test_progress_counts_on_and_says_saved_after_the_commit(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 3)
    step = one.join(link).next()
    assert (step["done"], step["left"]) == (0, 3)
    reply = one.answer(step, "no", seconds=4.25, comment="  a\x00 boat\n")
    assert reply["saved"] is True and (reply["next"]["done"], reply["next"]["left"]) == (1, 2)
    (vote,) = studio.workspace.studies.data(study_id).votes
    assert vote.answers == {"valid": "no"} and vote.comment == "a boat"
    assert 0 <= vote.seconds <= 4.25, "no longer than since the item was given out"


def test_an_item_stays_the_same_until_it_is_answered(studio: Studio, one: Annotator) -> None:
    _, link = running(studio.workspace, 5)
    step = one.join(link).next()
    assert one.next()["assignment"]["id"] == step["assignment"]["id"]
    one.post("pause", {"study": one.study})
    assert one.next()["assignment"]["id"] == step["assignment"]["id"], "a pause keeps the place"


def test_nothing_is_preselected_and_nothing_tells_what_an_item_is(studio: Studio, one: Annotator) -> None:
    judged = [replace(item, group="wrong, weather, LANCE") for item in items_of(studio.workspace, 4)]
    items = [*judged, *controls_of(studio.workspace, 4)]
    rules = replace(BIRD_RULES, controls=ControlPolicy(share=0.5, min_seen=3))
    _, link = running(studio.workspace, items, rules)
    step, shapes, totals = one.join(link).next(), set(), set()
    while step["assignment"]:
        given = step["assignment"]
        assert "LANCE" not in json.dumps(step), "the stratum tells the method, and whether the model is right"
        assert given["answers"] == {} and given["comment"] == ""
        shapes.add(json.dumps({key: type(value).__name__ for key, value in given.items()}))
        totals.add(step["done"] + step["left"])
        step = one.answer(step)["next"]
    assert len(shapes) == 1, "a control item looks like any other"
    assert totals == {8} and step["done"] == 8, "the count gives none away"
    text = json.dumps(step)
    assert "control" not in text and "expected" not in text


def test_the_questions_come_worded_for_the_item(studio: Studio, one: Annotator) -> None:
    items = items_of(studio.workspace, 1, label="owl", caption="A red owl in the sun.", counterfactual="A blue owl.")
    _, link = running(studio.workspace, items, LANCE_RULES)
    given = one.join(link).next()["assignment"]
    assert [question["id"] for question in given["questions"]][-1] == "concern"
    assert given["questions"][-1]["follows"] == "ethical-concern"
    assert given["questions"][3]["text"] == "Does the edited image still show an owl?"
    assert given["questions"][0]["options"] == ["1", "2", "3", "4", "5"] and given["questions"][0]["low"]
    assert given["source"] and given["side"] in ("left", "right") and given["label"] == "owl"
    assert given["caption"] == [["A ", "same"], ["red", "removed"], [" ", "same"], ["owl ", "same"],
                                ["in the sun", "removed"], [".", "same"]]  # fmt: skip
    assert given["counterfactual"] == [["A ", "same"], ["blue", "added"], [" ", "same"], ["owl", "same"], [".", "same"]]


def test_an_answer_that_does_not_fit_is_said_in_a_sentence(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 2)
    step = one.join(link).next()
    wrong: list[tuple[Any, str]] = [
        ({}, "Please answer “Does the image still show a bird?”"),
        ({"valid": "perhaps"}, "Please choose one of the answers offered for “Does the image still show a bird?”"),
        ({"valid": 1}, "The answer to “Does the image still show a bird?” has to be text. Please reload the page."),
        ({"other": "yes"}, "This answer belongs to no question of this study. Please reload the page."),
    ]
    for answers, sentence in wrong:
        assert one.answer(step, answers, status=400)["error"] == sentence
    assert "2001 characters" in one.answer(step, "yes", status=400, comment="x" * 2001)["error"]
    for seconds in (-1, "3", True, None):
        one.answer(step, "yes", status=400, seconds=seconds)
    assert not studio.workspace.studies.data(study_id).votes


# Undo


def test_the_same_key_counts_once_and_another_one_is_refused(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 3)
    step = one.join(link).next()
    first = one.answer(step, key="k1")
    assert one.answer(step, "no", key="k1") == first, "a retry after a lost reply gets the same"
    assert "answered this image already" in one.answer(step, "no", status=409, key="k2")["error"]
    refused = one.answer(step, "no", status=400, key="k" * 150)["error"]
    assert refused == "“key” has to be a text of 1 to 100 characters."
    (vote,) = studio.workspace.studies.data(study_id).votes
    assert vote.answers == {"valid": "yes"}


def test_undo_takes_the_last_answer_back_and_no_other(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 3)
    first = one.join(link).next()
    assert not first["undo"]
    second = one.answer(first, "yes", comment="hm")["next"]
    third = one.answer(second, "no", comment="hm")["next"]
    assert third["undo"]
    back = one.post("undo", {"study": study_id})
    assert back["assignment"]["id"] == second["assignment"]["id"] and back["assignment"]["answers"] == {"valid": "no"}
    assert (back["done"], back["left"], back["undo"]) == (1, 2, False) and back["assignment"]["comment"] == "hm"
    assert "only the last answer" in one.post("undo", {"study": study_id}, 409)["error"]
    assert one.next()["assignment"]["id"] == second["assignment"]["id"]
    again = one.answer(back, "yes")["next"]
    assert again["assignment"]["id"] == third["assignment"]["id"] and again["undo"]
    earlier, changed = studio.workspace.studies.data(study_id).votes
    assert earlier.changes == 0 and changed.changes == 1 and changed.answers == {"valid": "yes"}


def test_an_item_that_others_have_finished_is_taken_no_more(studio: Studio, one: Annotator, other: Annotator) -> None:
    _, link = running(studio.workspace, 1, replace(BIRD_RULES, votes=1, consensus=1))
    step = one.join(link).next()
    waiting = other.join(link).next()
    assert waiting["status"] == "waiting" and "looks again by itself" in waiting["text"]
    one.post("pause", {"study": one.study})
    finish(other)
    assert "has all its votes" in one.answer(step, status=409)["error"]
    over = one.next()
    assert over["status"] == "done" and over["text"].startswith("Every image has all the answers")


# Permission to vote


def test_a_quiz_stands_in_for_the_record(studio: Studio, one: Annotator, other: Annotator) -> None:
    items = [*items_of(studio.workspace, 2), *controls_of(studio.workspace, 3, "quiz")]
    rules = replace(BIRD_RULES, eligibility=Eligibility(quiz=3, quiz_pass=0.6))
    study_id, link = running(studio.workspace, items, rules)
    step = one.join(link).next()
    assert step["status"] == "quiz" and (step["done"], step["left"]) == (0, 3)
    assert step["text"] == "A short quiz comes first: question 1 of 3; 2 have to be right."
    for _ in range(3):
        step = one.answer(step)["next"]
    assert step["status"] == "item" and (step["done"], step["left"]) == (0, 2)
    assert step["text"] == "You have passed the quiz: from here on your answers count."
    assert one.next()["text"] == step["text"], "also after a reload"

    step = other.join(link).next()
    for _ in range(3):
        step = other.answer(step, "no")["next"]
    assert step["status"] == "not eligible" and "You had 0 of 3 quiz questions right" in step["text"]
    assert "quiz questions right" in other.post("undo", {"study": study_id}, 403)["error"], "or anybody would pass"
    assert not [vote for vote in studio.workspace.studies.data(study_id).votes if vote.kind == "item"]
    assert one.answer(one.next())["next"]["text"] == "", "told once"


def test_the_quiz_comes_at_once_when_a_record_was_taken_back(studio: Studio, one: Annotator) -> None:
    studies = studio.workspace.studies
    first, link = running(studio.workspace, 1)
    finish(one.join(link))
    studies.workers.decide(first, one.worker, "approved", "")
    items = [*items_of(studio.workspace, 2), *controls_of(studio.workspace, 1, "quiz")]
    rules = replace(BIRD_RULES, eligibility=Eligibility(0.5, 1, quiz=1))
    _, link = running(studio.workspace, items, rules)
    held = one.join(link).next()
    assert held["status"] == "item"
    studies.workers.decide(first, one.worker, "pending", "was too early")
    step = one.next()
    assert step["status"] == "quiz" and step["text"].startswith("A short quiz comes first: question 1 of 1")
    again = one.answer(step)["next"]
    assert again["assignment"]["id"] == held["assignment"]["id"], "what was given back is the first to come"


def test_without_record_and_quiz_the_page_says_why(studio: Studio, one: Annotator) -> None:
    _, link = running(studio.workspace, 2, replace(BIRD_RULES, eligibility=Eligibility()))
    step = one.join(link, agree=False).next()
    assert step["status"] == "not eligible" and "at least 50 finished assignments" in step["text"]


def test_failed_controls_exclude_and_their_votes_are_replaced(studio: Studio, one: Annotator, other: Annotator) -> None:
    items = [*items_of(studio.workspace, 6), *controls_of(studio.workspace, 6)]
    rules = replace(BIRD_RULES, votes=1, consensus=1, controls=ControlPolicy(share=0.5, min_seen=2, min_right=0.75))
    study_id, link = running(studio.workspace, items, rules)
    step = one.join(link).next()
    while step["assignment"]:
        held, step = step, one.answer(step, "no")["next"]
    assert step["status"] == "excluded"
    assert "you answered 0 of 2 of these as expected, and at least 75 % are needed." in step["text"]
    assert "control item" not in step["text"], "a word of the lead"
    assert studio.workspace.studies.get(study_id).votes == 0
    one.post("undo", {"study": study_id}, 403)
    one.answer(held, "yes", status=403)
    assert finish(other.join(link))["status"] == "done"
    assert studio.workspace.studies.get(study_id).votes == 6

    studio.workspace.studies.workers.readmit(study_id, one.worker, "a mistake of ours")
    assert one.next()["status"] in ("item", "done"), "a rule does not undo what a person decided"


def test_a_vote_of_somebody_who_was_excluded_meanwhile_is_refused(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 2)
    step = one.join(link).next()
    studio.workspace.studies.workers.exclude(study_id, one.worker, "sent the same answer always", "person")
    assert "You can no longer vote" in one.answer(step, status=403)["error"]
    assert "Sent the same answer always." in one.next()["text"]
    studio.workspace.studies.workers.block(one.worker, True)
    assert one.next()["status"] == "not eligible"


@pytest.mark.parametrize("state", ["draft", "paused", "closed"])
def test_a_study_that_does_not_run_says_so(studio: Studio, one: Annotator, state: str) -> None:
    studies = studio.workspace.studies
    study_id, link = running(studio.workspace, 2)
    step = one.join(link).next()
    if state == "draft":
        study_id = one.study = studies.create("Later", BIRD_RULES)
        studies.workers.enrol(study_id, one.worker)
        assert one.next()["status"] == "paused" and "not started yet" in one.next()["text"]
        return
    studies.pause(study_id) if state == "paused" else studies.close(study_id)
    assert one.next()["status"] == state and one.next()["assignment"] is None
    assert state in one.answer(step, status=409 if state == "paused" else 410)["error"]
    one.post("undo", {"study": study_id}, 409 if state == "paused" else 410)
    assert not studies.data(study_id).votes


def test_a_reply_that_was_lost_as_the_study_closed_is_given_again(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 2)
    step = one.join(link).next()
    one.answer(step, key="k")
    studio.workspace.studies.close(study_id)
    assert one.answer(step, key="k")["next"]["status"] == "closed"


# Signing in


def test_a_code_opens_the_same_place_elsewhere(studio: Studio, one: Annotator, other: Annotator) -> None:
    study_id, link = running(studio.workspace, 3)
    step = one.join(link).next()
    one.answer(step)
    said = other.post("sign-in", {"code": one.code.lower().replace("-", " ")})
    place = {"id": study_id, "name": "Birds, November", "state": "running", "done": 1, "left": 2}
    assert said == {"worker": one.worker, "studies": [place]}
    assert other.client.get("/annotate/api/state").json() == {**said, "code": ""}
    other.post("sign-out", {})
    assert other.client.get("/annotate/api/state").status_code == 401
    assert one.client.get("/annotate/api/state").status_code == 200


def test_who_is_signed_in_takes_part_under_the_same_name(studio: Studio, one: Annotator) -> None:
    _, link = running(studio.workspace, 2)
    _, second = running(studio.workspace, 2, name="Boats")
    worker, code = one.join(link).worker, one.code
    said = one.post("join", {"link": second})
    assert said["worker"] == worker and said["code"] == "" and len(said["studies"]) == 2 and code
    assert one.post("join", {"link": second})["studies"] == said["studies"], "again changes nothing"
    assert one.post("join", {"link": "nothing"}, 401)["error"].startswith("This invitation is not open")


def test_people_of_a_panel_are_one_worker_each_and_get_the_way_back(studio: Studio, app: FastAPI) -> None:
    studies = studio.workspace.studies
    study_id, link = running(studio.workspace, 2)
    asked = (PersonQuestion("How old are you?", ("under 30", "over 30")), PersonQuestion("Where?"))
    back = "https://panel.example/done?cc=C1&who={participant}"
    studies.panels.set(study_id, Panel("PROLIFIC_PID", "C1", back, asked))

    def came(browser: Annotator, participant: str) -> str:
        said = browser.post("join", {"link": link, "parameters": {"PROLIFIC_PID": participant, "STUDY_ID": "s"}})
        browser.study, browser.worker = said["study"], said["worker"]
        assert said["code"] == ""
        return browser.worker

    with browser_of(app) as one, browser_of(app) as two:
        nobody = one.post("join", {"link": link}, 401)["error"]
        assert nobody.startswith("Please open the study from the site that sent you") and "PROLIFIC_PID" in nobody
        first = came(one, "5f00 a/b")
        assert studies.data(study_id).panelled and not studies.data(study_id).linked, "nobody could join unnamed"
        assert came(two, "5f00 a/b") == first, "from another browser too"
        assert came(two, "5f01") != first, "and whoever was signed in before"
        one.post("consent", {"study": study_id})
        step = one.next()
        assert step["status"] == "person" and [each["text"] for each in step["person"]] == [
            "How old are you?",
            "Where?",
        ]
        wrong = {"study": study_id, "answers": {"How old are you?": "40"}}
        assert "one of the answers offered" in one.post("person", wrong, 400)["error"]
        step = one.post("person", {"study": study_id, "answers": {"How old are you?": "over 30", "x": "y"}})
        assert step["status"] == "item" and step["completion"] == {"code": "", "address": ""}
        end = finish(one)
        assert end["completion"] == {"code": "C1", "address": "https://panel.example/done?cc=C1&who=5f00%20a%2Fb"}
        two.post("consent", {"study": study_id})
        assert two.post("person", {"study": study_id, "answers": {}})["status"] == "item", "all may be left open"
    held = opened(studio.workspace, study_id)
    tables = {
        name: pd.read_csv(io.BytesIO(EXPORTS[name][1](held)), keep_default_na=False)
        for name in EXPORTS
        if "csv" in name
    }
    paid, people = tables["payment.csv"].iloc[0], tables["people.csv"].set_index("worker")
    assert (paid["worker"], paid["participant"], paid["items"], paid["pending"]) == (first, "5f00 a/b", 2, 2)
    assert people.loc[first, "How old are you?"] == "over 30" and people.loc[first, "Where?"] == ""
    studies.panels.set(study_id, Panel("PROLIFIC_PID", questions=(PersonQuestion("Which languages?"),)))
    people = pd.read_csv(io.BytesIO(EXPORTS["people.csv"][1](held))).set_index("worker")
    assert people.loc[first, "How old are you?"] == "over 30", "what was said stays, also if others are asked since"
    assert "Which languages?" in people
    whole = zipfile.ZipFile(io.BytesIO(b"".join(zipped(studio.workspace, study_id)[1])))
    told = b"".join(whole.read(name) for name in whole.namelist())
    assert b"5f00 a/b" not in told and b"over 30" not in told, "apart from what is passed on"


def test_a_script_cannot_make_any_number_of_participants(
    studio: Studio, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = studio.workspace.studies
    study_id, link = running(studio.workspace, 1)
    studies.panels.set(study_id, Panel("PID"))
    sessions = AnnotatorSessions(studies)
    monkeypatch.setattr(sessions, "_joins", Limiter(attempts=3, seconds=3600))
    for number in range(3):
        sessions.join(Join(link=link, parameters={"PID": f"p{number}"}), "", "203.0.113.7")
    with pytest.raises(TooMany):
        sessions.join(Join(link=link, parameters={"PID": "p3"}), "", "203.0.113.7")
    assert len(studies.workers.of_study(study_id)) == 3


def test_wrong_codes_from_other_addresses_lock_out_no_address_that_signed_in(studio: Studio) -> None:
    studies = studio.workspace.studies
    _, link = running(studio.workspace, 1)
    sessions = AnnotatorSessions(studies)
    code = sessions.join(Join(link=link), "", "203.0.113.7").code
    sessions.sign_in(SignIn(code=code), "203.0.113.7")
    for number in range(5_000):
        with pytest.raises(NotSignedIn):
            sessions.sign_in(SignIn(code=f"WRONG-{number}"), f"198.51.100.{number // 200}")
    with pytest.raises(TooMany):
        sessions.sign_in(SignIn(code=code), "192.0.2.1")
    sessions.sign_in(SignIn(code=code), "203.0.113.7")


def test_a_link_that_is_off_lets_nobody_in(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 2)
    studio.workspace.studies.set_link(study_id, False)
    assert one.post("join", {"link": link}, 401)["error"].startswith("This invitation is not open")
    assert not studio.workspace.studies.workers.of_study(study_id)


@pytest.mark.parametrize(("name", "field"), [("sign-in", "code"), ("join", "link")])
def test_codes_and_links_cannot_be_tried_for_long(studio: Studio, one: Annotator, name: str, field: str) -> None:
    _, link = running(studio.workspace, 1)
    code = one.join(link).code
    one.post("sign-out", {})

    def tried(given: str) -> int:
        return one.client.post(f"/annotate/api/{name}", json={field: given}, headers=one.headers).status_code

    assert [tried("0000-0000") for _ in range(14)] == [401] * 10 + [429] * 4, "the same one, again and again"
    reply = one.client.post(f"/annotate/api/{name}", json={field: "0000-0000"}, headers=one.headers)
    assert int(reply.headers["retry-after"]) > 200 and "Too many tries" in reply.json()["error"]
    assert any(f"{name} (401)" in detail for detail in refusals(studio))
    assert {tried(f"CODE-{n:04}") for n in range(40)} == {401}, "a class behind one address makes mistakes"
    right = {"code": code, "link": link}[field]
    assert tried(right) == 200, "and is not locked out"


def test_the_cookie_is_for_this_path_and_no_script(studio: Studio, app: FastAPI) -> None:
    from fastapi.testclient import TestClient

    _, link = running(studio.workspace, 1)
    for base, secure in (("http://127.0.0.1", False), ("https://study.example", True)):
        with TestClient(app, base_url=base) as client:
            reply = client.post("/annotate/api/join", json={"link": link}, headers={"x-studio": "1"})
            cookie = reply.headers["set-cookie"].lower()
            assert cookie.startswith(f"{COOKIE}=") and "httponly" in cookie and "samesite=lax" in cookie
            assert "path=/annotate;" in cookie and ("secure" in cookie) is secure


# Refusals


def test_another_workers_things_are_as_if_they_did_not_exist(studio: Studio, one: Annotator, other: Annotator) -> None:
    study_id, link = running(studio.workspace, 2)
    private, _ = running(studio.workspace, 1, name="Secret")
    step = one.join(link).next()
    other.join(link)
    image = f"/annotate/image/{step['assignment']['image']}"
    assert one.client.get(image).status_code == 200
    theirs, none = other.client.get(image), other.client.get("/annotate/image/AAAAAAAAAAAAAAAAAAAAAA")
    assert theirs.status_code == none.status_code == 404 and theirs.json() == none.json() == {"error": MISSING}
    assert other.answer(step, status=404) == {"error": MISSING}
    assert other.post("next", {"study": private}, 404) == other.post("next", {"study": "0" * 16}, 404)
    for name in ("consent", "undo", "pause"):
        other.post(name, {"study": private}, 404)
    assert other.client.get(f"/annotate/example/{private}/0").status_code == 404
    assert any(image in detail for detail in refusals(studio))
    with_worker = [entry for entry in studio.workspace.studies.log() if entry.worker == other.worker]
    assert with_worker and study_id


def test_without_a_session_there_is_the_page_and_nothing_else(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, 1)
    with browser_of(mounted(studio)) as known:
        token = known.join(link).next()["assignment"]["image"]
    assert one.client.get("/annotate/").status_code == 200
    for path in ("api/state", f"image/{token}", f"example/{study_id}/0"):
        assert one.client.get(f"/annotate/{path}").status_code == 401
    for name in ("next", "consent", "submit", "undo", "pause"):
        one.post(name, {"study": study_id}, 401)
    for path in ("docs", "openapi.json", "assets/studio.js", "assets/../studio.py", "assets/%2e%2e/studio.py", "x"):
        assert one.client.get(f"/annotate/{path}").status_code == 404
    assert one.client.get("/annotate/api/next").status_code == 404


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({}, b'{"study": "x"}', 403),
        ({"x-studio": "1", "origin": "http://evil.example"}, b'{"study": "x"}', 403),
        ({"x-studio": "1", "origin": "null"}, b'{"study": "x"}', 403),
        ({"x-studio": "1", "sec-fetch-site": "cross-site"}, b'{"study": "x"}', 403),
        ({"x-studio": "1", "content-type": "text/plain"}, b'{"study": "x"}', 400),
        ({"x-studio": "1"}, b"", 400),
        ({"x-studio": "1"}, b"[1]", 400),
        ({"x-studio": "1"}, b"\xff\xfe", 400),
        ({"x-studio": "1"}, b"[" * 9000, 400),
        ({"x-studio": "1"}, b'{"study": "' + b"x" * 20_000 + b'"}', 400),
        ({"x-studio": "1"}, b'{"study": 7}', 400),
        ({"x-studio": "1"}, b'{"study": ""}', 400),
        ({"x-studio": "1"}, b'{"study": "a\\u0000b"}', 400),
        ({"x-studio": "1"}, b'{"study": "' + b"x" * 300 + b'"}', 400),
        ({"x-studio": "1"}, b'{"study": "\\ud800"}', 400),
        ({"x-studio": "1", "origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}, b'{"study": "x"}', 404),
    ],
)
def test_only_our_own_page_is_listened_to(
    studio: Studio, one: Annotator, headers: dict[str, str], content: bytes, status: int
) -> None:
    _, link = running(studio.workspace, 1)
    one.join(link)
    sent = {"content-type": "application/json", **headers}
    reply = one.client.post("/annotate/api/next", content=content, headers=sent)
    assert reply.status_code == status and reply.json()["error"].endswith(".")


# Pictures and page


def test_a_picture_has_its_pixels_and_nothing_else(studio: Studio, one: Annotator) -> None:
    noisy = Image.fromarray(np.random.default_rng(3).integers(0, 255, (40, 60, 3), dtype=np.uint8))
    sha = keep_image(studio.workspace, noisy)
    items = [replace(items_of(studio.workspace, 1)[0], image_sha=sha)]
    _, link = running(studio.workspace, items)
    token = one.join(link).next()["assignment"]["image"]
    reply = one.client.get(f"/annotate/image/{token}")
    seen = Image.open(io.BytesIO(reply.content))
    assert np.array_equal(np.asarray(seen), np.asarray(noisy)) and not seen.info
    chunks = {reply.content[at : at + 4] for at in range(len(reply.content)) if reply.content[at : at + 4].isalpha()}
    assert not chunks & {b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tIME", b"iCCP", b"pHYs"}
    told = " ".join(f"{name}: {value}" for name, value in reply.headers.items())
    assert sha not in told and "etag" not in reply.headers and "content-disposition" not in reply.headers
    assert reply.headers["cache-control"].startswith("private") and sha not in token


def test_a_stored_file_goes_out_with_the_chunks_of_its_pixels_only() -> None:
    image, file, text = Image.effect_noise((40, 30), 50).convert("RGB"), io.BytesIO(), PngInfo()
    text.add_text("parameters", "a secret prompt")
    image.save(file, "PNG", pnginfo=text, dpi=(72, 72))
    stored = file.getvalue()
    sha = hashlib.sha256(stored).hexdigest()
    for data, name in ((stored, sha), (stored, "0" * 64), (stored[:-20], hashlib.sha256(stored[:-20]).hexdigest())):
        given = Pictures(lambda _: image, read=lambda _, data=data: data).png(name)  # type: ignore[misc]
        assert not any(word in given for word in (b"tEXt", b"pHYs", b"secret"))
        assert Image.open(io.BytesIO(given)).tobytes() == image.tobytes()


def test_the_next_picture_can_come_before_its_item(studio: Studio, one: Annotator, other: Annotator) -> None:
    workspace = studio.workspace
    items = [*items_of(workspace, 6), *controls_of(workspace, 3)]
    rules = replace(BIRD_RULES, controls=ControlPolicy(share=0.3, min_seen=3))
    _, link = running(workspace, items, rules)
    other.join(link)
    step = one.join(link).next()
    promised = ""
    while step["assignment"]:
        assert promised in ("", step["assignment"]["image"]), "under the same address"
        assert len(step["ahead"]) == (0 if step["left"] == 1 else 1)
        if step["ahead"]:
            (promised,) = step["ahead"]
            address = f"/annotate/image/{promised}"
            assert one.client.get(address).status_code == 200
            assert other.client.get(address).status_code == 404, "a token is one worker's"
        before, step = step, one.answer(step)["next"]
    back = one.post("undo", {"study": one.study})
    assert back["assignment"]["image"] == before["assignment"]["image"] == promised

    with browser_of(mounted(studio)) as restarted:  # a new process does not know the tokens given in advance
        restarted.post("sign-in", {"code": one.code})
        restarted.study = one.study
        again = restarted.next()["assignment"]
        assert again["id"] == back["assignment"]["id"] and again["image"] != promised
        assert restarted.client.get(f"/annotate/image/{again['image']}").status_code == 200
        assert restarted.client.get(f"/annotate/image/{promised}").status_code == 404


def test_an_undone_answer_comes_before_what_was_there_already(studio: Studio, one: Annotator) -> None:
    _, link = running(studio.workspace, 4, replace(LANCE_RULES, questions=BIRD_RULES.questions))
    first = one.join(link).next()
    assert len(first["ahead"]) == 2, "image and source"
    second = one.answer(first)["next"]
    assert sorted(first["ahead"]) == sorted([second["assignment"]["image"], second["assignment"]["source"]])
    back = one.post("undo", {"study": one.study})
    assert back["ahead"] == [second["assignment"]["image"], second["assignment"]["source"]]
    assert one.answer(back)["next"]["assignment"]["id"] == second["assignment"]["id"]


def test_a_picture_is_given_only_while_it_is_the_workers_to_judge(
    studio: Studio, one: Annotator, other: Annotator
) -> None:
    study_id, link = running(studio.workspace, 4, replace(LANCE_RULES, questions=BIRD_RULES.questions))
    first = one.join(link).next()

    def given(step: dict[str, Any], of: Annotator = one) -> set[int]:
        shown = [step["assignment"]["image"], step["assignment"]["source"]]
        return {of.client.get(f"/annotate/image/{token}").status_code for token in shown}

    assert given(first) == {200}
    second = one.answer(first)["next"]
    assert given(second) == {200} and given(first) == {404}, "an answered one is theirs no more"
    back = one.post("undo", {"study": study_id})
    assert given(back) == {200}, "until it is taken back"
    third = one.answer(back)["next"]
    one.post("pause", {"study": study_id})
    assert given(third) == {404}
    ahead = {one.client.get(f"/annotate/image/{token}").status_code for token in third["ahead"]}
    assert ahead == {404}, "nor what would have come next"
    third = one.next()
    assert given(third) == {200}
    studio.workspace.studies.workers.exclude(study_id, one.worker, "too fast", "person")
    assert given(third) == {404}


def test_tokens_are_known_up_to_a_bound() -> None:
    tokens = PictureTokens(most=2)
    first = tokens.give("heron-1", "a")
    assert tokens.give("heron-1", "a") == first == tokens.known("heron-1", "a") and tokens.known("heron-2", "a") == ""
    assert len({first, tokens.give("heron-1", "b"), PictureTokens().give("heron-1", "a")}) == 3
    assert tokens.image(first, "heron-1") == "a" and tokens.image(first, "heron-2") is None
    second = tokens.known("heron-1", "b")
    tokens.give("heron-1", "c")
    assert tokens.image(first, "heron-1") is None, "the one that was not used for longest"
    assert tokens.image(second, "heron-1") == "b"


def test_pictures_are_kept_up_to_a_bound() -> None:
    loaded: list[str] = []

    def load(sha: str) -> Image.Image:
        loaded.append(sha)
        return Image.effect_noise((64, 64), 90)

    one_file = len(Pictures(load).png("x"))
    pictures = Pictures(load, most=int(2.5 * one_file))
    for sha in ("a", "b", "a", "c", "a", "b"):
        pictures.png(sha)
    assert loaded == ["x", "a", "b", "c", "b"], "the one that was not asked for longest goes"


def test_the_page_is_one_for_all_and_runs_its_own_scripts_only(one: Annotator) -> None:
    reply = one.client.get("/annotate/")
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert "<script>" not in reply.text and " style=" not in reply.text and "data-preview" not in reply.text
    for name in SERVED:
        assert one.client.get(f"/annotate/assets/{name}").status_code == 200
        assert f"/annotate/assets/{name}?v=" in reply.text
    assert 'data-preview="a&quot;b"' in annotate_page('a"b')


def test_a_question_that_may_be_left_open_can_be(studio: Studio, one: Annotator) -> None:
    question = Question("mood", "How does it look?", "choice", ("calm", "wild"), required=False)
    study_id, link = running(studio.workspace, 2, replace(BIRD_RULES, questions=(*BIRD_RULES.questions, question)))
    step = one.join(link).next()
    assert [asked["required"] for asked in step["assignment"]["questions"]] == [True, False]
    step = one.answer(step, {"valid": "yes"})["next"]
    one.answer(step, {"valid": "yes", "mood": "wild"})
    first, second = studio.workspace.studies.data(study_id).votes
    assert first.answers == {"valid": "yes"} and second.answers == {"valid": "yes", "mood": "wild"}


def test_what_is_filled_in_comes_back_with_its_item_until_it_is_sent(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace, items_of(studio.workspace, 2), LANCE_RULES)
    item = one.join(link).next()["assignment"]
    filled = {"realism": "4", "edit-success": "2", "no-such-question": "x"}
    body = {"assignment": item["id"], "answers": filled, "comment": "odd", "seconds": 7.5, "at": 5.0}
    assert item["draft"] is None and one.post("draft", body) == {"kept": True}
    kept = {"answers": {"realism": "4", "edit-success": "2"}, "comment": "odd", "seconds": 7.5, "at": 5.0}
    assert one.next()["assignment"]["draft"] == kept
    assert not studio.workspace.studies.data(study_id).votes, "it is no vote"
    one.post("pause", {"study": study_id})
    assert one.next()["assignment"]["draft"] == kept, "after a pause of the annotator"
    studio.workspace.studies.pause(study_id)
    assert one.post("draft", {**body, "comment": "very odd"}) == {"kept": True}, "while the lead has paused it"
    refused = one.answer(
        {"assignment": item},
        {"realism": "4", **dict.fromkeys(("edit-success", "fidelity"), "3")}
        | {"label-consistency": "yes", "ethical-concern": "no"},
        409,
    )
    assert refused["kind"] == "not running"
    studio.workspace.studies.resume(study_id)
    assert one.next()["assignment"]["draft"]["comment"] == "very odd"
    one.post("draft", {**body, "answers": {"realism": "5" * 2001}}, 400)
    one.post("draft", {**body, "assignment": "nobody's"}, 404)
    one.answer(
        one.next(),
        {"realism": "4", "edit-success": "2", "fidelity": "3"} | {"label-consistency": "yes", "ethical-concern": "no"},
    )
    assert one.post("draft", body) == {"kept": False}, "it was sent"
    assert one.post("undo", {"study": study_id})["assignment"]["draft"] is None
    assert one.post("draft", {**body, "answers": {}, "comment": ""}) == {"kept": True}
    assert one.next()["assignment"]["draft"] is None, "nothing is filled in"


def test_a_pause_by_the_lead_costs_nobody_the_item_they_were_at(
    studio: Studio, one: Annotator, other: Annotator
) -> None:
    study_id, link = running(studio.workspace, 1, replace(BIRD_RULES, votes=1, consensus=1, lease_minutes=1.0))
    studies = studio.workspace.studies
    item = one.join(link).next()["assignment"]["id"]
    other.join(link)
    studies.pause(study_id)
    hour_ago = "2026-01-01T00:00:00.000000+00:00"  # as if the pause had outlasted the lease
    change = "UPDATE assignments SET expires = ?"
    studio.workspace._database.write(lambda db: db.execute(change, [hour_ago]))
    studies.resume(study_id)
    assert other.next()["status"] == "waiting"
    assert one.next()["assignment"]["id"] == item


def test_a_double_click_a_reload_and_a_second_tab_make_one_worker(studio: Studio, one: Annotator) -> None:
    studies = studio.workspace.studies
    study_id, link = running(studio.workspace, 3)
    one.client.get("/annotate/")  # opening the page gives the browser a cookie, and creates no worker
    assert not studies.data(study_id).workers
    first = one.post("join", {"link": link})
    one.client.cookies.delete(COOKIE)  # as in a tab with a page from before, or after a lost reply
    again = one.post("join", {"link": link})
    assert (again["worker"], again["code"], again["earlier"]) == (first["worker"], first["code"], False)
    assert one.client.get("/annotate/api/state").json()["code"] == first["code"], "a page loaded again shows it again"
    assert [worker.id for worker in studies.data(study_id).workers] == [first["worker"]]
    assert studies.get(study_id).workers == 0, "who has joined and answered nothing is no annotator yet"
    one.join(link)
    one.answer(one.next())
    assert one.client.get("/annotate/api/state").json()["code"] == ""
    assert studies.get(study_id).workers == 1
    one.post("sign-in", {"code": first["code"]})


def test_who_signs_out_and_joins_again_in_one_browser_is_told_to_the_lead(
    studio: Studio, one: Annotator, other: Annotator
) -> None:
    study_id, link = running(studio.workspace, 4)
    for annotator in (one, other):
        annotator.client.get("/annotate/")
        annotator.join(link)
        annotator.answer(annotator.next())
    first = one.worker
    assert not analyse(studio.workspace.studies.data(study_id)).conditions.same_browser
    one.post("sign-out", {})
    assert one.post("join", {"link": link})["earlier"], "the page says so too"
    one.join(link).answer(one.next())
    assert one.worker != first
    data = studio.workspace.studies.data(study_id)
    report = analyse(data)
    assert report.conditions.same_browser == ((first, one.worker),)
    assert any(f"{first} and {one.worker} voted from the same browser" in note for note in report.notes)
    assert f"These workers voted from the same browser: {first} and {one.worker}." in paragraph(report)
    beside = {worker.worker: worker.same_browser for worker in report.workers}
    assert beside == {first: (one.worker,), one.worker: (first,), other.worker: ()}
    assert {row["worker"]: row["same_browser_as"] for row in worker_rows(data)}[first] == one.worker


def test_nobody_judges_more_images_than_the_rules_let_one_person(studio: Studio, one: Annotator) -> None:
    rules = replace(BIRD_RULES, most_items=2)
    study_id, link = running(studio.workspace, 3, rules)
    step = one.join(link).next()
    assert (step["done"], step["left"]) == (0, 2)
    one.answer(step)
    step = one.next()
    assert step["ahead"] == [], "no picture is fetched that would not come"
    assert one.answer(step)["next"]["status"] == "done"
    assert "nobody judges more in this study" in one.next()["text"]
    assert studio.workspace.studies.assignments.claim(study_id, one.worker, "item") is None
    assert one.post("undo", {"study": study_id})["status"] == "item", "an answer that is taken back is to be given"
    [finding] = [found for found in findings(rules, studio.workspace.studies.items(study_id)) if not found.stops]
    assert finding.field == "most_items" and "3 people have to take part" in finding.text
    data = studio.workspace.studies.data(study_id)
    assert "Nobody was given more than 2 images to judge." in paragraph(analyse(data))


def test_an_image_of_before_does_not_come_on_top_of_as_many_as_one_person_judges(
    studio: Studio, one: Annotator
) -> None:
    """The image was given back and got others' votes. One of these workers was excluded after this worker had judged
    enough.
    """
    studies = studio.workspace.studies
    study_id, link = running(studio.workspace, 3, replace(BIRD_RULES, most_items=2))
    before = one.join(link).next()
    one.post("pause", {"study": study_id})
    given = studies.assignments.get(before["assignment"]["id"])
    assert given is not None
    studies.import_votes(study_id, [cast(given.item, name, {"valid": "yes"}, 5) for name in ("x", "y")])
    for _ in range(2):
        step = one.answer(one.next())["next"]
    assert step["status"] == "done"
    studies.workers.exclude(study_id, "imported-x", "asleep", "person")
    assert "as many images as one person" in one.answer(before, status=409)["error"]
    assert len([vote for vote in studies.data(study_id).votes if vote.worker == one.worker]) == 2


def test_a_text_about_oneself_that_is_too_long_is_told_so(studio: Studio, one: Annotator) -> None:
    study_id, link = running(studio.workspace)
    studio.workspace.studies.panels.set(study_id, Panel(questions=(PersonQuestion("Where?"),)))
    one.join(link)
    refused = one.post("person", {"study": study_id, "answers": {"Where?": "x" * 201}}, 400)
    assert "at most 200 characters" in refused["error"]
