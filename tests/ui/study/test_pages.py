"""The lead's pages of a started study: figures or the reason for their absence, decisions, and refusals."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.latest import Latest
from core.studies import Adjudication, Eligibility, NewItem, Question, Rules, StudyData
from services.studies import analyses
from services.studies.analyses import LONGEST_SECONDS, Analyses, Analysis
from services.studies.templates import TEMPLATES
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.study_data import ROAD, driving
from tests.support.voted import CREW, MOSTLY, NO, SPLIT, YES, bird_study, birds, cast, picture, study_of
from ui.study import routes
from ui.study.routes import add_study_routes

pytestmark = pytest.mark.slow

TEN = [YES, YES, MOSTLY, YES, NO, YES, YES, SPLIT, MOSTLY, YES]
"""Answers to ten items: eight are valid, one is not, and one has no consensus."""
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def client(studio: Studio) -> Iterator[TestClient]:
    app = FastAPI()
    add_study_routes(app, studio.commands, studio.studies, studio.revisions)
    with TestClient(app) as made:
        yield made


def shown(client: TestClient, path: str) -> str:
    """Return the text of a page without its markup. Fails if it shows None, NaN or infinity."""
    reply = client.get(path)
    assert reply.status_code == 200, reply.text
    body = reply.text[reply.text.index("<main>") :]
    assert not re.search(r">\s*(None|nan|NaN|inf)\s*<|=\"None\"|nan%", body)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def send(client: TestClient, study_id: str, what: str, **data: Any) -> Any:
    return client.post(f"/study/api/{study_id}/{what}", json=data, headers={"x-studio": "1"})


def done(client: TestClient, study_id: str, what: str, **data: Any) -> Any:
    reply = send(client, study_id, what, **data)
    assert reply.status_code == 200, reply.text
    return reply.json()


def tile(client: TestClient, study_id: str, name: str) -> str:
    page = client.get(f"/study/{study_id}/").text
    found = re.search(rf'id="tile-{name}">(.*?)</section>', page)
    assert found
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", found[1])).split())


# ---- Figures


def test_the_tiles_say_rate_interval_discards_and_agreement(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, TEN)
    # 8 of 9; Wilson 95 % of 8/9 by scipy: 0.565 to 0.980. The tenth image could make it 8/10 or 9/10.
    assert tile(client, study_id, "valid") == "Valid images 88.9 % Wilson 95 %: 56.5 to 98.0 · n = 9"
    assert "not errors of the people" in client.get(f"/study/{study_id}/").text
    assert tile(client, study_id, "discarded") == (
        "No consensus 1 valid images: 80.0 % if all of these were invalid, 90.0 % if all were valid"
    )
    assert tile(client, study_id, "agreement").startswith("Agreement AC1 0.80 raw 0.86 · alpha 0.54")
    assert "82.0 % of votes are “yes”: alpha is low by construction" in tile(client, study_id, "agreement")
    assert tile(client, study_id, "excluded").startswith("Excluded by controls 0 of 5 workers: nobody was excluded")
    said = shown(client, f"/study/{study_id}/")
    assert "50 of 50 votes count · 10 of 10 images complete" in said
    assert "drawn-classifier: wrong" in said and "misclassified" in said and "background" in said


def test_the_papers_driving_study_reads_as_in_the_paper(studio: Studio, client: TestClient) -> None:
    told = driving()
    sha = picture(studio.workspace, 1)
    study_id = study_of(studio.workspace, [NewItem(sha, classes=item.classes) for item in told.items], ROAD)
    items = dict(zip((item.id for item in told.items), studio.workspace.studies.items(study_id), strict=True))
    votes = [cast(items[vote.item], vote.worker, vote.answers, number) for number, vote in enumerate(told.votes)]
    studio.workspace.studies.import_votes(study_id, votes)
    studio.workspace.studies.close(study_id)
    page = client.get(f"/study/{study_id}/").text
    table = page[page.index('id="part-questions"') : page.index('id="part-agreement"')]
    rows = re.findall(
        r'<th scope="row"[^>]*>(\w+)</th><td class="n">([\d.]+) %.*?<td class="n">(\d+)</td><td class="n">(\d+)', table
    )
    assert rows == [("road", "98.9", "93", "7"), ("vehicles", "100", "24", "1"), ("pedestrians", "84.6", "13", "2")]


def test_exclusion_changes_the_result_and_the_page_says_both(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [MOSTLY, MOSTLY, NO], {"ed": ["no", "no", "no", "yes"], "ada": ["yes"] * 4})
    assert tile(client, study_id, "valid").startswith("Valid images 66.7 %")
    done(client, study_id, "exclude-worker", worker="imported-ed", reason="answers at random")
    waiting = "Valid images no figure yet no image has all its votes and a consensus yet"
    assert tile(client, study_id, "valid") == waiting, "replacement votes are asked for"
    assert tile(client, study_id, "excluded") == (
        "Excluded 1 of 5 workers · 3 votes left out 0 for wrong answers to control items, 1 by a person "
        "62.5 % of 8 control answers right"
    )
    studio.workspace.studies.close(study_id)
    # Each image has four votes, and five were announced.
    assert tile(client, study_id, "valid") == "Valid images no figure yet no image found a consensus"
    assert "3 images of them with too few votes" in tile(client, study_id, "discarded")
    said = shown(client, f"/study/{study_id}/")
    assert "imported-ed (by the study lead: answers at random; 3 votes)" in said, "the methods paragraph names it"


def test_the_lead_is_told_when_more_annotators_are_needed(studio: Studio, client: TestClient) -> None:
    workers = studio.workspace.studies.workers
    rules = birds(votes=3, consensus=2, eligibility=Eligibility(min_approval=0.0, min_finished=0))
    study_id = study_of(studio.workspace, [NewItem(picture(studio.workspace, 1), label="bird")], rules)
    nobody_twice = "for the missing votes: nobody votes twice on an image, and excluded workers do not vote."
    assert f"At least 3 more annotators are needed {nobody_twice}" in shown(client, f"/study/{study_id}/run")
    crew = [workers.add()[0].id for _ in range(3)]
    for worker in crew:
        workers.enrol(study_id, worker)
    assert "more annotator" not in shown(client, f"/study/{study_id}/run"), "those who were invited can give all votes"
    done(client, study_id, "exclude-worker", worker=crew[0], reason="answers at random")
    assert f"At least 1 more annotator is needed {nobody_twice}" in shown(client, f"/study/{study_id}/run")
    watched = client.get(f"/study/api/{study_id}/progress").json()["parts"]["part-progress"]
    assert "At least 1 more annotator is needed" in watched
    studio.workspace.studies.close(study_id)
    assert "more annotator" not in shown(client, f"/study/{study_id}/run")


def test_the_lead_is_told_of_images_that_are_set_aside(studio: Studio, client: TestClient) -> None:
    studies, sha = studio.workspace.studies, picture(studio.workspace, 1)
    study_id = study_of(studio.workspace, [NewItem(sha, label="bird")], birds(votes=3, consensus=2))
    revision = client.get(f"/study/api/{study_id}/progress").json()["revision"]
    studies.assignments.set_aside(study_id, "nobody", [sha])
    told = client.get(f"/study/api/{study_id}/progress", params={"revision": revision}).json()["parts"]
    assert "1 image set aside: its file, or that of its source, is missing or damaged." in told["part-progress"]
    assert "1 image set aside" in shown(client, f"/study/{study_id}/run")
    assert sha in shown(client, f"/study/{study_id}/log")


def test_a_study_whose_votes_do_not_count_waits_for_no_first_vote(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [("yes",)])
    assert "Votes come in." in shown(client, f"/study/{study_id}/run")
    done(client, study_id, "exclude-worker", worker="imported-ada", reason="in a hurry")
    said = shown(client, f"/study/{study_id}/run")
    assert "No vote counts yet." in said and "first vote" not in said


def test_before_and_after_stand_side_by_side_where_they_differ(studio: Studio, client: TestClient) -> None:
    liar = ("yes", "yes", "yes", "no", "no")
    study_id = bird_study(studio.workspace, [YES, YES, liar])
    done(client, study_id, "exclude-worker", worker="imported-ed", reason="told us so")
    studio.workspace.studies.import_votes(
        study_id,
        [
            cast(item, "flo", {"valid": "yes"}, 9000 + item.id)
            for item in studio.workspace.studies.items(study_id)
            if item.kind == "item"
        ],
    )
    said = tile(client, study_id, "valid")
    assert said.startswith("Valid images 100 %") and "before exclusions 100 %, n = 2" in said
    page = client.get(f"/study/{study_id}/").text
    assert 'class="ring"' in page and "Ring: before exclusions." in page


@pytest.mark.parametrize(
    ("answers", "tiles", "words"),
    [
        ([(), ()], {"valid": "no figure yet", "excluded": "nobody has voted yet"}, "There is no vote yet"),
        ([("yes",), ("yes",)], {"agreement": "No item has two votes yet"}, "All votes that count are by one worker"),
        (
            [YES, YES],
            {"valid": "100 %", "agreement": "AC1 1.00 raw 1.00 · alpha undefined"},
            "there is only one answer",
        ),
        (
            [SPLIT],
            {
                "valid": "no figure yet",
                "discarded": "1 valid images: 0 % if all of these were invalid, 100 % if all were valid",
            },
            "no image found a consensus",
        ),
    ],
)
def test_thin_data_is_said_in_words(
    studio: Studio, client: TestClient, answers: list[tuple[str, ...]], tiles: dict[str, str], words: str
) -> None:
    study_id = bird_study(studio.workspace, answers)
    for name, wanted in tiles.items():
        assert wanted in tile(client, study_id, name)
    assert words in shown(client, f"/study/{study_id}/")
    for page in ("workers", "adjudication", "disagreements", "log"):
        shown(client, f"/study/{study_id}/{page}")


def test_comments_and_answers_in_free_text_lead_to_their_image(studio: Studio, client: TestClient) -> None:
    workspace = studio.workspace
    why = Question("why", "Why?", "text", required=False)
    rules = birds()
    rules = replace(rules, questions=(*rules.questions, why))
    new = [NewItem(picture(workspace, n), label="bird") for n in range(2)]
    study_id = study_of(workspace, new, rules)
    first, second = workspace.studies.items(study_id)
    workspace.studies.import_votes(
        study_id,
        [
            cast(first, "ada", {"valid": "yes", "why": "it has wings"}, 1),
            cast(second, "ed", {"valid": "no"}, 2, comment="I see\na boat"),
        ],
    )
    page = client.get(f"/study/{study_id}/").text
    for text, item, worker in (("it has wings", first, "imported-ada"), ("I see\na boat", second, "imported-ed")):
        [said] = [one for one in re.findall(r"<li>.*?</li>", page, re.DOTALL) if text in one]
        [picture_way] = re.findall(r'<a href="([^"]+)"><img src="[^"]*' + item.image_sha, said)
        assert client.get(picture_way).status_code == 200 and picture_way.endswith(item.public)
        assert f'/workers/{worker}">{worker}</a>' in said
        of_worker = client.get(f"/study/{study_id}/workers/{worker}").text
        assert re.search(rf'<a href="{picture_way}"><img [^>]*alt="The image: bird"', of_worker), "a link has a name"


def test_scales_choices_and_texts_have_their_own_figures(studio: Studio, client: TestClient) -> None:
    workspace = studio.workspace
    rules = replace(TEMPLATES["lance"].rules(), controls=birds().controls)
    new = [NewItem(picture(workspace, n), source_sha=picture(workspace, n + 9), label="bird") for n in range(2)]
    study_id = study_of(workspace, new, rules)
    votes = []
    for place, item in enumerate(workspace.studies.items(study_id)):
        for n, worker in enumerate(CREW):
            answers = {
                "realism": str(3 + n % 2),
                "edit-success": "5",
                "fidelity": "12345"[n],
                "label-consistency": "yes",
                "ethical-concern": "yes" if n == 4 else "no",
            }
            if n == 4:
                answers["concern"] = f"Looks sad {HOSTILE}"
            votes.append(cast(item, worker, answers, 100 * place + n))
    workspace.studies.import_votes(study_id, votes)
    said = shown(client, f"/study/{study_id}/")
    assert "realism 3.40" in said and "fidelity 3.00" in said and "edit-success 5.00" in said
    assert "2 yes, 8 no" in said and "2 answers in free text" in said and f"Looks sad {HOSTILE}" in said
    assert "fidelity: 1 · 2 · 3 · 4 · 5" in said, "ratings that lie apart are a disagreement"
    assert "realism: 3 · 3" not in said, "near misses are none"
    assert "Nothing to adjudicate" in shown(client, f"/study/{study_id}/adjudication"), (
        "the result of a scale is a mean"
    )


def test_a_study_that_does_not_ask_for_validity(studio: Studio, client: TestClient) -> None:
    question = Question("sort", "What is it?", "choice", options=("a bird", "a boat", "neither"))
    new = [NewItem(picture(studio.workspace, 1))]
    study_id = study_of(studio.workspace, new, Rules(questions=(question,), votes=3, consensus=2))
    [item] = studio.workspace.studies.items(study_id)
    votes = [cast(item, worker, {"sort": "a bird"}, n) for n, worker in enumerate(CREW[:3])]
    studio.workspace.studies.import_votes(study_id, votes)
    assert tile(client, study_id, "valid") == "Valid images not asked no question asks whether an image is valid"
    assert "3 a bird" in shown(client, f"/study/{study_id}/")


# ---- Live


def test_only_parts_that_changed_are_new_to_a_page_that_watches(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [YES, SPLIT, ()])
    page = client.get(f"/study/{study_id}/").text
    held = dict(re.findall(r'data-part="([\w-]+)" data-stamp="(\w+)"', page))
    live = client.get(f"/study/api/{study_id}/live").json()
    assert {name: part["stamp"] for name, part in live["parts"].items()} == held and live["state"] == "running"
    last = studio.workspace.studies.items(study_id)[2]
    studio.workspace.studies.import_votes(study_id, [cast(last, "ada", {"valid": "no"}, 60)])
    after = client.get(f"/study/api/{study_id}/live").json()["parts"]
    changed = {name for name, part in after.items() if part["stamp"] != held[name]}
    assert {"progress", "workers", "methods"} <= changed and "divided" not in changed and "comments" not in changed


def test_an_unchanged_study_is_neither_analysed_nor_rendered(
    studio: Studio, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id = bird_study(studio.workspace, [YES, SPLIT, ()])
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)  # no new minute begins before the next request
    analysed: list[str] = []
    find = studio.studies.analyses.of
    monkeypatch.setattr(studio.studies.analyses, "of", lambda one: analysed.append(one) or find(one))  # type: ignore[func-returns-value]

    def ask(what: str, **query: str) -> Any:
        return client.get(f"/study/api/{study_id}/{what}", params=query).json()

    first = ask("live")["parts"]
    held = {what: ask(what)["revision"] for what in ("live", "progress")}
    for what, revision in held.items():
        assert ask(what, revision=revision) == {"same": True}
    assert ask("live", view="workers", revision=held["live"]) == {"same": True} and len(analysed) == 3

    last = studio.workspace.studies.items(study_id)[2]
    studio.workspace.studies.import_votes(study_id, [cast(last, "ada", {"valid": "no"}, 60)])
    voted = ask("live", revision=held["live"])
    assert voted["parts"]["progress"] != first["progress"]
    assert "part-progress" in ask("progress", revision=held["progress"])["parts"] and len(analysed) == 5
    done(client, study_id, "pause-study")
    assert ask("live", revision=voted["revision"])["state"] == "paused", "another tab's doing"
    held["live"] = ask("live")["revision"]
    with Workspace(studio.workspace.folder) as another:
        another.studies.resume(study_id)
    assert ask("live", revision=held["live"])["state"] == "running", "another process's doing"


def test_many_pages_that_look_at_one_state_have_it_drawn_once(
    studio: Studio, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id = bird_study(studio.workspace, [YES, SPLIT, ()])
    drawn = list[str]()

    def counted(name: str) -> Any:
        plain: Any = getattr(routes, name)

        def draw(*given: Any) -> Any:
            drawn.append(name)
            return plain(*given)

        return draw

    for name in ("parts", "workers_parts"):
        monkeypatch.setattr(routes, name, counted(name))
    views = {
        view: [client.get(f"/study/api/{study_id}/live?view={view}").json() for _ in range(3)]
        for view in ("results", "workers")
    }
    assert drawn == ["parts", "workers_parts"] and views["results"][0]["parts"] != views["workers"][0]["parts"]
    assert all(one["parts"] == each[0]["parts"] for each in views.values() for one in each)
    last = studio.workspace.studies.items(study_id)[2]
    studio.workspace.studies.import_votes(study_id, [cast(last, "ada", {"valid": "no"}, 60)])
    assert client.get(f"/study/api/{study_id}/live").json()["parts"] != views["results"][0]["parts"]


def test_a_page_that_is_shown_an_older_state_asks_again(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, TEN)
    kept = studio.studies.analyses
    kept._kept.put(study_id, replace(kept.of(study_id), seconds=100.0))
    assert client.get(f"/study/api/{study_id}/live").json()["revision"]
    studio.workspace.studies.workers.exclude(study_id, "imported-ed", "lazy", "person")
    assert not client.get(f"/study/api/{study_id}/live").json()["revision"], "a slow analysis may be shown late"


def test_analyses_are_kept_until_something_changes(studio: Studio) -> None:
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, TEN)
    loads: list[str] = []

    def load(one: str) -> StudyData:
        loads.append(one)
        return studies.data(one)

    reports = Analyses(load, lambda one: ("running", studies.revision(one)))
    first = reports.of(study_id)
    assert reports.of(study_id) is first and loads == [study_id]
    studies.workers.exclude(study_id, "imported-ed", "lazy", "person")
    assert reports.of(study_id).report.votes_excluded == 10
    reports.changed()
    reports.of(study_id)
    assert len(loads) == 3


@pytest.mark.slow
def test_a_large_study_is_analysed_by_another_process_to_the_same_report(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, TEN)
    reports = Analyses(studies.data, lambda one: ("running", studies.revision(one)))
    here = reports.of(study_id).report
    reports.changed()
    monkeypatch.setattr(analyses, "MANY_VOTES", 5)
    monkeypatch.setattr(analyses, "analyse", lambda _: pytest.fail("it was analysed by the server"))
    assert reports.of(study_id).report == here


def test_a_slow_analysis_is_kept_for_a_while_and_takes_decisions_in(studio: Studio) -> None:
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, TEN)
    reports = Analyses(studies.data, lambda one: (studies.get(one).state, studies.revision(one)))
    slow = replace(reports.of(study_id), seconds=100.0)
    reports._kept.put(study_id, slow)
    studies.workers.exclude(study_id, "imported-ed", "lazy", "person")
    assert reports.of(study_id) is slow
    [case] = [case for case in slow.report.disagreements if case.status == "no consensus"]
    decision = Adjudication(case.item, "valid", "no", "", slow.report.study.created)
    reports.adjudicated(study_id, decision)
    kept = {(one.item, one.question): one.adjudication for one in reports.of(study_id).report.disagreements}
    assert kept[case.item, "valid"] == decision
    studies.pause(study_id)
    assert reports.of(study_id).report.votes_excluded == 10, "whether it runs is never shown late"
    reports._kept.put(study_id, replace(slow, stamp=("paused", 0), at=slow.at - LONGEST_SECONDS))
    assert reports.of(study_id).report.votes_excluded == 10, "nor anything for long"


def test_an_analysis_that_a_change_overtakes_is_not_kept(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(analyses, "SHARE", 1e-12)  # each check is slow, and one result serves all
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, TEN)
    loaded, go_on = threading.Event(), threading.Event()

    def load(one: str) -> StudyData:
        data = studies.data(one)
        loaded.set()
        assert go_on.wait(60)
        return data

    reports = Analyses(load, lambda one: ("running", studies.revision(one)))
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(reports.of, study_id)
        assert loaded.wait(60)
        studies.workers.exclude(study_id, "imported-ed", "lazy", "person")
        reports.changed()
        go_on.set()
        assert early.result(60).report.votes_excluded == 0
    assert reports.of(study_id).report.votes_excluded == 10


def test_what_is_kept_is_touched_by_one_thread_at_a_time(studio: Studio) -> None:
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, TEN)
    reports = Analyses(studies.data, lambda one: ("running", studies.revision(one)))
    used: list[str] = []

    class Watched(Latest[Analysis]):
        """Cache that records each access, and fails if the lock is not held."""

        def get(self, key: object) -> Analysis | None:
            assert reports._lock.locked()
            used.append("get")
            return super().get(key)

        def put(self, key: object, value: Analysis) -> Analysis:
            assert reports._lock.locked()
            used.append("put")
            return super().put(key, value)

    reports._kept = Watched(8)
    found = reports.of(study_id)
    reports.adjudicated(study_id, Adjudication(1, "valid", "no", "", found.report.study.created))
    assert {"get", "put"} <= set(used)
    reports.changed()
    with reports._lock:
        assert reports._kept.get(study_id) is None


# ---- Decisions


def test_approval_rejection_and_their_reversal(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [YES, YES])
    worker = "imported-ada"
    done(client, study_id, "decide-assignments", worker=worker, verdict="approved")
    assert studio.workspace.studies.workers.get(worker).approved == 2
    refused = send(client, study_id, "decide-assignments", worker=worker, verdict="rejected", reason="  ")
    assert refused.status_code == 400 and refused.json() == {
        "error": "Please give the reason in a few words.",
        "field": "reason",
    }
    done(client, study_id, "decide-assignments", worker=worker, verdict="rejected", reason="did not look")
    page = shown(client, f"/study/{study_id}/workers/{worker}")
    assert page.count("rejected did not look") == 2
    done(client, study_id, "decide-assignments", worker=worker, verdict="pending")
    record = studio.workspace.studies.workers.get(worker)
    assert (record.approved, record.rejected, record.pending) == (0, 0, 2)
    assert send(client, study_id, "decide-assignments", worker=worker, verdict="paid").status_code == 400


def test_approve_all_leaves_the_excluded_out(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [YES, YES])
    done(client, study_id, "exclude-worker", worker="imported-ed", reason="lazy")
    assert "Approve 8 pending assignments of 4 workers" in shown(client, f"/study/{study_id}/workers")
    done(client, study_id, "approve-all")
    assert studio.workspace.studies.workers.get("imported-ada").approved == 2
    assert studio.workspace.studies.workers.get("imported-ed").approved == 0
    assert "Approve 8" not in shown(client, f"/study/{study_id}/workers")


def test_approve_all_leaves_what_was_rejected(studio: Studio, client: TestClient) -> None:
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, [YES, YES])
    done(client, study_id, "decide-assignments", worker="imported-ada", verdict="rejected", reason="did not look")
    more = studies.add_items(study_id, [NewItem(picture(studio.workspace, 1), label="bird")])
    item = next(item for item in studies.items(study_id) if item.id == more[0])
    studies.import_votes(study_id, [cast(item, "ada", {"valid": "yes"}, 90)])
    assert "Approve 9 pending assignments of 5 workers" in shown(client, f"/study/{study_id}/workers")
    done(client, study_id, "approve-all")
    record = studies.workers.get("imported-ada")
    assert (record.approved, record.rejected, record.pending) == (1, 2, 0)
    assert [vote.reason for vote in studies.data(study_id).votes if vote.verdict == "rejected"] == ["did not look"] * 2


def test_exclusion_readmission_blocking_and_a_new_code(studio: Studio, client: TestClient) -> None:
    studies = studio.workspace.studies
    study_id = bird_study(studio.workspace, [YES, YES])
    worker = "imported-bo"
    assert send(client, study_id, "exclude-worker", worker=worker, reason="").status_code == 400
    done(client, study_id, "exclude-worker", worker=worker, reason="in a hurry")
    assert "excluded by the study lead: in a hurry; 2 votes left out" in shown(client, f"/study/{study_id}/workers")
    done(client, study_id, "readmit-worker", worker=worker, reason="was a mistake")
    assert not studies.data(study_id).exclusions
    done(client, study_id, "block-worker", worker=worker, blocked="1")
    assert studies.workers.get(worker).blocked and "blocked from voting" in shown(client, f"/study/{study_id}/workers")
    done(client, study_id, "block-worker", worker=worker, blocked="0")
    assert not studies.workers.get(worker).blocked
    token = studies.sessions.open("worker", worker)
    code = done(client, study_id, "renew-code", worker=worker)["code"]
    assert studies.workers.of_code(code) == worker and studies.sessions.get(token) is None
    assert code not in shown(client, f"/study/{study_id}/workers"), "a code is shown once"
    said = shown(client, f"/study/{study_id}/log")
    assert "worker excluded" in said and "was a mistake" in said
    studies.note("refused", f"a path out of the folder {HOSTILE}")
    assert "a path out of" not in shown(client, f"/study/{study_id}/log")
    assert f"refused a path out of the folder {HOSTILE}" in shown(client, f"/study/{study_id}/log?all=1")


@pytest.fixture
def nine_hours_ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set this machine's time zone nine hours ahead."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("nine_hours_ahead")
def test_times_are_of_this_machines_clock_and_the_log_says_that_its_are_not(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [SPLIT])
    [item] = [item for item in studio.workspace.studies.items(study_id) if item.kind == "item"]
    done(client, study_id, "adjudicate", item=item.id, question="valid", answer="yes", reason="")
    data = studio.workspace.studies.data(study_id)
    first = min(data.votes, key=lambda vote: vote.submitted)
    there = first.submitted + timedelta(hours=9)
    moment = f"{there.day} {there:%b %Y, %H:%M}"
    assert f"{moment}:{there:%S}" in shown(client, f"/study/{study_id}/workers/{first.worker}")
    assert f"{moment}:{there:%S}" in shown(client, f"/study/{study_id}/items/{item.public}")
    assert f"{moment} dashed" in shown(client, f"/study/{study_id}/")
    decided = data.adjudications[0].created + timedelta(hours=9)
    page = shown(client, f"/study/{study_id}/adjudication?item={item.id}&question=valid")
    assert f"decided yes, {decided.day} {decided:%b %Y, %H:%M}. Another answer" in page
    assert "time (UTC)" in shown(client, f"/study/{study_id}/log")


def test_adjudication_is_apart_goes_on_and_can_be_taken_back(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [YES, SPLIT, NO, SPLIT])
    items = [item.id for item in studio.workspace.studies.items(study_id) if item.kind == "item"]
    page = shown(client, f"/study/{study_id}/adjudication")
    assert "0 of 2 decided" in page and "Does the image still show a bird?" in page
    reply = done(client, study_id, "adjudicate", item=items[1], question="valid", answer="yes", reason="a beak")
    assert reply["next"] == f"/study/{study_id}/adjudication?item={items[3]}&question=valid"
    assert tile(client, study_id, "valid").startswith("Valid images 50.0 %")
    assert "with your adjudications 66.7 %, n = 3, not part of the result" in tile(client, study_id, "valid")
    reply = done(client, study_id, "adjudicate", item=items[3], question="valid", answer="no", reason="")
    assert reply["next"] == f"/study/{study_id}/adjudication"
    page = shown(client, f"/study/{study_id}/adjudication")
    assert "All decided" in page and "a beak" in page and "Valid images with your decisions: 50.0 %" in page
    assert "decided yes" in shown(client, f"/study/{study_id}/adjudication?item={items[1]}&question=valid")
    done(client, study_id, "adjudicate", item=items[1], question="valid", answer="", reason="")
    assert len(studio.workspace.studies.data(study_id).adjudications) == 1


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"item": 0}, 404),
        ({"item": "2"}, 400),
        ({"question": "nothing"}, 404),
        ({"answer": "perhaps"}, 400),
        ({"answer": ["yes"]}, 400),
        ({"reason": "x" * 501}, 400),
    ],
)
def test_an_adjudication_that_cannot_be_is_refused(
    studio: Studio, client: TestClient, wrong: dict[str, Any], status: int
) -> None:
    study_id = bird_study(studio.workspace, [SPLIT, YES])
    split, agreed = (item.id for item in studio.workspace.studies.items(study_id) if item.kind == "item")
    given = {"item": split, "question": "valid", "answer": "yes", "reason": "", **wrong}
    reply = send(client, study_id, "adjudicate", **given)
    assert reply.status_code == status and reply.json()["error"]
    assert send(client, study_id, "adjudicate", **{**given, "item": agreed}).status_code in (400, 404)
    assert not studio.workspace.studies.data(study_id).adjudications


def test_what_a_stranger_sends_changes_nothing(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [YES])
    before = studio.workspace.studies.revision(study_id)
    worker = {"worker": "imported-ada", "reason": "so"}
    sent: dict[str, dict[str, Any]] = {
        "decide-assignments": {**worker, "verdict": "approved"},
        "exclude-worker": worker,
        "readmit-worker": worker,
        "block-worker": {**worker, "blocked": "1"},
        "renew-code": worker,
        "approve-all": {},
        "adjudicate": {"item": 10**9, "question": "valid", "answer": "yes"},
    }
    for what, body in sent.items():
        path = f"/study/api/{study_id}/{what}"
        assert client.post(path, json=body).status_code == 403, "another site cannot send the header"
        assert client.get(path).status_code == 405
        assert client.post("/study/api/nothing/" + what, json=body, headers={"x-studio": "1"}).status_code in (400, 404)
        assert send(client, study_id, what, **body, unknown="1").status_code == 400
        if what != "approve-all":
            somebody = {"worker": "heron-99"} if "worker" in body else {}
            assert send(client, study_id, what, **{**body, **somebody}).status_code == 404, what
    assert studio.workspace.studies.revision(study_id) == before


# ---- Pages


def test_hostile_texts_are_shown_as_texts(studio: Studio, client: TestClient) -> None:
    workspace = studio.workspace
    question = Question("valid", f"{HOSTILE} {{label}}?", "yes-no", valid=("yes",))
    item = NewItem(
        picture(workspace, 1),
        label=HOSTILE,
        classes=(HOSTILE,),
        edit_types=(HOSTILE,),
        caption=HOSTILE,
        counterfactual=f"{HOSTILE} now",
        group=HOSTILE,
        model=HOSTILE,
        model_right=False,
        origin={HOSTILE: HOSTILE},
    )
    study_id = study_of(workspace, [item], birds(questions=(question,)), name=HOSTILE)
    [known] = workspace.studies.items(study_id)
    names = [f"{HOSTILE}/{n}" for n in range(5)]
    votes = [cast(known, name, {"valid": "yes" if n < 3 else "no"}, n, comment=HOSTILE) for n, name in enumerate(names)]
    workspace.studies.import_votes(study_id, votes)
    done(client, study_id, "exclude-worker", worker=f"imported-{names[0]}", reason=HOSTILE)
    studio.workspace.studies.close(study_id)
    done(client, study_id, "adjudicate", item=known.id, question="valid", answer="yes", reason=HOSTILE)
    page = client.get(f"/study/{study_id}/workers").text
    [address] = {found for found in re.findall(r'href="(/study/[^"]+)"', page) if found.endswith("%2F0")}
    paths = ["", "workers", "adjudication", f"adjudication?item={known.id}&question=valid", "disagreements", "log"]
    for path in (*(f"/study/{study_id}/{path}" for path in (*paths, f"items/{known.public}")), address):
        text = client.get(path)
        assert text.status_code == 200, path
        assert HOSTILE not in text.text and "&lt;script&gt;" in text.text, path
    live = client.get(f"/study/api/{study_id}/live").json()["parts"]
    assert not any(HOSTILE in part["html"] for part in live.values())


def test_one_image_has_pictures_words_origin_and_votes(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [SPLIT])
    item = studio.workspace.studies.items(study_id)[0]
    page = client.get(f"/study/{study_id}/items/{item.public}").text
    assert f"/images/{item.image_sha}.png" in page and f"/images/{item.source_sha}.png" in page
    assert "<del>sunny</del>" in page and "<ins>snowy</ins>" in page
    said = shown(client, f"/study/{study_id}/items/{item.public}")
    assert "prompt a bird, snowy" in said and "drawn-classifier wrong" in said and "3 yes, 2 no" in said
    assert said.count("4.0 s") == 5


def test_disagreements_are_narrowed_down_and_turned_over(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [SPLIT] * 3 + [MOSTLY] * 62 + [YES])
    page = client.get(f"/study/{study_id}/disagreements").text
    assert "65 disagreements" in page and page.count('loading="lazy"') == 60
    assert client.get(f"/study/{study_id}/disagreements?page=2").text.count('loading="lazy"') == 5
    assert client.get(f"/study/{study_id}/disagreements?page=99").text.count('loading="lazy"') == 5
    assert client.get(f"/study/{study_id}/disagreements?status=no+consensus").text.count('loading="lazy"') == 3
    assert (
        "No disagreement matches this filter."
        in client.get(f"/study/{study_id}/disagreements?question=other&page=x").text
    )
    assert "Adjudicate 3" in shown(client, f"/study/{study_id}/")


def test_every_export_of_the_menu_is_there(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, TEN)
    links = re.findall(rf'href="(/study/{study_id}/export/[^"]+)"', client.get(f"/study/{study_id}/").text)
    assert len(links) == 10
    for link in links:
        reply = client.get(link)
        assert reply.status_code == 200 and reply.content, link
        assert "attachment" in reply.headers["content-disposition"], link


def test_a_workers_page_says_what_was_right(studio: Studio, client: TestClient) -> None:
    study_id = bird_study(studio.workspace, [MOSTLY, SPLIT], {"ed": ["no", "yes"]})
    said = shown(client, f"/study/{study_id}/workers/imported-ed")
    assert "4 votes" in said and "control no wrong yes" in said and "control yes right yes" in said
    assert "no consensus" in said and "1 / 2" in said


def test_control_items_that_many_get_wrong_come_first(studio: Studio, client: TestClient) -> None:
    wrong_on_the_second = {worker: ["yes", "no" if place else "yes"] for place, worker in enumerate(CREW)}
    study_id = bird_study(studio.workspace, [YES], wrong_on_the_second)
    said = shown(client, f"/study/{study_id}/workers")
    assert "1 of 2 control items were answered right by everybody." in said
    assert said.index("1 of 5 right · bird: yes") < said.index("5 of 5 right")
    assert "Control items" not in shown(client, f"/study/{bird_study(studio.workspace, [YES])}/workers")


@pytest.mark.parametrize("path", ["workers/heron-1", "items/nothing", "items/..%2f..%2fstudio.db"])
def test_what_is_not_there_is_said_so(studio: Studio, client: TestClient, path: str) -> None:
    study_id = bird_study(studio.workspace, [YES])
    reply = client.get(f"/study/{study_id}/{path}")
    assert reply.status_code == 404 and ("There is no such" in reply.text or "Not Found" in reply.text)
    for page in ("workers", "adjudication", "log"):
        assert client.get(f"/study/nothing/{page}").status_code == 404
    assert client.get("/study/api/nothing/live").status_code == 404


def test_a_draft_has_no_results(studio: Studio, client: TestClient) -> None:
    study_id = studio.workspace.studies.create("Draft", birds())
    for page in ("workers", "adjudication", "log", "disagreements"):
        reply = client.get(f"/study/{study_id}/{page}", follow_redirects=False)
        assert reply.status_code == 303 and reply.headers["location"] == f"/study/{study_id}/"
