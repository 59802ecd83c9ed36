"""A judge that sees, on a scripted server: from images to checks on their pages, figures against votes, and features of
the validity score. Odd replies and faults of the server cost no other answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import UserError
from core.image_filter import ImageFilter
from core.images import image_sha
from core.types import Check, CounterfactualCaption, Task
from pipeline.models import load_models, server
from services.curation.views import View
from services.studio import Studio
from storage.damage import catalogue_faults
from storage.workspace import DATABASE
from tests.services.evaluation.test_results import judged
from tests.services.evaluation.test_scoring import drawn
from tests.support.cases import made_case
from tests.support.judging import GOOD, answers_with, profile_with_judge, says
from tests.support.misbehaving import Misbehaving
from tests.support.scripted import studio_in
from tests.support.serving import until
from tests.support.set_cases import picture, run_of
from tests.support.workspaces import workspace_in
from ui.curate.detail import detail_panel, origin_part
from ui.curate.filters import filter_column

LABEL, EDIT, REST, WHOLE = (
    f"judge: {name}" for name in ("label kept", "edit shows", "nothing else changed", "picture whole")
)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Misbehaving]:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.01)
    made = Misbehaving()
    yield made
    made.close()


@pytest.fixture
def studio(tmp_path: Path, peer: Misbehaving) -> Iterator[Studio]:
    """Studio with a judge on the server. Afterwards the catalogue must agree with its sources."""
    profile = profile_with_judge(peer)
    with workspace_in(tmp_path / "workspace") as workspace:
        made = Studio(profile, load_models(profile), workspace)
        yield made
        made.close()
        assert catalogue_faults(workspace.folder / DATABASE) == ()


def judge(studio: Studio, **fields: Any) -> dict[str, Any]:
    """Judge images and return the state afterwards."""
    studio.commands.send("judge-images", fields)
    until(lambda: not studio.judging.show()["working"])
    return studio.judging.show()


def checks_of(studio: Studio, case: int) -> dict[str, Check]:
    return {check.name: check for check in studio.workspace.test_cases.get(case).checks}


def good(name: str, _pictures: list[str]) -> dict[str, str]:
    return says(GOOD[name])


@pytest.mark.slow
def test_from_images_to_checks_figures_against_votes_and_the_validity_score(studio: Studio, peer: Misbehaving) -> None:
    workspace = studio.workspace
    cases, _, valid = drawn(workspace, 25)
    sha_of = {case: image_sha(workspace.test_cases.load(case).image) for case in cases}
    is_valid = {sha_of[case]: bool(ok) for case, ok in zip(cases, valid, strict=True)}
    judged(workspace, {case: "yes" if ok else "no" for case, ok in zip(cases, valid, strict=True)})
    before = studio.commands.send("score-images", {})["scores"][0]["auc"]

    # This judge sees every lost label, and blames every tenth good image too. It tells nothing of the rest.
    wrongly = {sha for number, sha in enumerate(sorted(sha for sha, ok in is_valid.items() if ok)) if number % 10 == 0}

    def answers(name: str, pictures: list[str]) -> dict[str, str]:
        if name == "label":
            return says("yes" if is_valid[pictures[-1]] and pictures[-1] not in wrongly else "no", "A blur.")
        return says("cannot tell") if name == "rest" else good(name, pictures)

    answers_with(peer, answers)
    state = studio.judging.show()
    assert (state["judge"], state["unjudged"], state["seconds_each"]) == ("a-model-that-sees", 75, None)
    state = judge(studio)
    assert state["judged"] == 75 and state["unjudged"] == state["failed"] == 0 and state["problem"] == ""
    assert state["seconds_each"] > 0 and state["tokens_each"] == 4 * 820, "the cost is told"

    blamed = [case for case in cases if not is_valid[sha_of[case]] or sha_of[case] in wrongly]
    count = workspace.catalogue.count(ImageFilter(checks={LABEL: ("failed",)})).number
    assert count == len(blamed) and workspace.catalogue.checks()[REST] == {"cannot tell": 75}
    lost = checks_of(studio, blamed[0])
    assert lost[LABEL] == Check(LABEL, False, 0.0, "A blur.")
    assert lost[EDIT].passed is True and lost[REST].passed is None and lost[REST].value is None
    entry = next(one for one in workspace.catalogue.page(limit=200).entries if one.test_case == blamed[0])
    page = str(detail_panel(studio.gallery.detail(entry.id)))
    assert "label right, says the judge" in page and "A blur." in page
    assert "call by this name" in str(origin_part({}, studio.gallery.judge_replies(entry.id)))

    run = workspace.test_cases.get(blamed[0]).run_id
    told = studio.commands.send("show-image", {"run": run, "case": blamed[0]})["checks"]
    assert [one["outcome"] for one in told if one["name"].startswith("judge")] == [
        "failed",
        "passed",
        "cannot tell",
        "passed",
    ]

    (figures,) = [one for one in studio.commands.send("check-agreement", {})["checks"] if one["check"] == LABEL]
    assert figures["recall"]["value"] == 1 and figures["recall"]["n"] == (~valid).sum() and figures["judged"] == 75
    assert figures["precision"]["value"] == pytest.approx((~valid).sum() / len(blamed))
    assert figures["precision"]["low"] < figures["precision"]["value"] < figures["precision"]["high"] <= 1
    totals = studio.gallery.totals(View(), (LABEL,))
    column = str(filter_column(View(), totals))
    assert f"of the {len(blamed)} images that fail here, people find" in column and "3,280 tokens" in column

    (score,) = studio.commands.send("score-images", {})["scores"]
    assert LABEL in score["checks"] and EDIT in score["checks"] and REST not in score["checks"]
    assert score["auc"] > max(before, 0.9), "its answers are features of the score"


ODD: dict[str, tuple[Any, bool | None, str]] = {
    "in a fence": ('```json\n{"reason": "Sharp.", "answer": "yes"}\n```', True, "Sharp."),
    "after thoughts": ('<think>Is it no?</think>{"reason": "Sharp.", "answer": "Yes"}', True, "Sharp."),
    "a bare word": ("Yes, it does.", True, ""),
    "JSON with a trailing comma": ('{"reason": "Gone.", "answer": "no",}', False, "Gone."),
    "cannot tell": (says("cannot tell", "Too dark."), None, "Too dark."),
    "another answer": (says("maybe"), None, "it has no answer “yes”, “no” or “cannot tell”: “{"),
    "words that begin like an answer": ("No idea.", None, "“No idea.”"),
    "no answer": ("A bird on a twig.", None, "“A bird on a twig.”"),
    "half a reply": ('{"reason": "It sho', None, '“{"reason": "It sho”'),
    "a refusal": ("I'm sorry, but I cannot judge people.", None, "it refused"),
    "an error of the server": ((500, "out of memory"), None, "out of memory"),
    "a content filter": ((400, "flagged by the content filter"), None, "content filter"),
}


def test_an_odd_reply_concerns_its_own_factor_only(studio: Studio, peer: Misbehaving) -> None:
    """Each odd reply answers the first question about one image. The other three questions get good replies."""
    cases = run_of(studio.workspace, 1, range(10, 10 + len(ODD)))
    replies = {image_sha(picture(10 + number)): odd[0] for number, odd in enumerate(ODD.values())}
    asked: list[str] = []

    def answers(name: str, pictures: list[str]) -> Any:
        asked.extend(pictures[-1:] if name == "label" else [])
        return replies[pictures[-1]] if name == "label" else good(name, pictures)

    answers_with(peer, answers)
    state = judge(studio)
    assert state["judged"] == len(ODD) and state["failed"] == 0
    for case, (name, (_, passed, words)) in zip(cases, ODD.items(), strict=True):
        checks = checks_of(studio, case)
        assert checks[LABEL].passed is passed and words in checks[LABEL].note, (name, checks[LABEL])
        assert (checks[LABEL].value is None) is (passed is None), name
        assert [checks[one].passed for one in (EDIT, REST, WHOLE)] == [True] * 3, name
    unreadable = image_sha(picture(10 + list(ODD).index("no answer")))
    assert asked.count(unreadable) == 2, "it is asked again as often as the settings say"
    case = cases[list(ODD).index("no answer")]
    entry = next(one for one in studio.workspace.catalogue.page().entries if one.test_case == case)
    (reply,) = [
        one for one in studio.commands.send("show-judgement", {"entry": entry.id})["replies"] if one["check"] == LABEL
    ]
    assert (
        reply["reply"] == "A bird on a twig." and reply["attempts"] == 2 and "Does this picture show" in reply["prompt"]
    )


def test_the_model_sees_the_source_where_a_question_compares(studio: Studio, peer: Misbehaving) -> None:
    run_of(studio.workspace, 1, [10])
    shown: dict[str, list[str]] = {}

    def answers(name: str, pictures: list[str]) -> dict[str, str]:
        shown[name] = pictures
        return good(name, pictures)

    answers_with(peer, answers)
    judge(studio)
    source, image = image_sha(picture(1)), image_sha(picture(10))
    assert shown == {"label": [image], "whole": [image], "edit": [source, image], "rest": [source, image]}
    (edit,) = [one for one in peer.asked if "see this change" in str(one["messages"])]
    texts = [part["text"] for part in edit["messages"][-1]["content"] if part["type"] == "text"]
    assert texts[:2] == ["Picture 1:", "Picture 2:"]
    assert "“red” becomes “blue”" in texts[2] and "image classification with the label bird" in texts[2]
    assert edit["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"][0] == "yes"


REFUSALS: dict[str, tuple[int, str]] = {
    "vLLM": (400, "llama is not a multimodal model"),
    "llama-server": (500, "image input is not supported - hint: you may need to provide the mmproj"),
    "OpenRouter": (404, "No endpoints found that support image input"),
    "OpenAI": (400, "Invalid content type. image_url is only supported by certain models."),
    "LM Studio": (400, "Model does not support images. Please use a model that does."),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_server_that_refuses_pictures_is_told_in_one_true_sentence(
    studio: Studio, peer: Misbehaving, name: str
) -> None:
    run_of(studio.workspace, 1, range(10, 16))
    answers_with(peer, lambda _name, _pictures: REFUSALS[name])
    state = judge(studio)
    assert state["problem"] == (
        f"The server at {peer.address} does not take pictures with the model 'a-model-that-sees' "
        f"({REFUSALS[name][0]}: {REFUSALS[name][1].rstrip('.')}): name a model that sees pictures in the profile, or "
        "start the server with its vision part."
    )
    assert state["judged"] == 0 and state["unjudged"] == 6 and not state["waiting"]
    assert len(peer.asked) <= 1 + 2 * 4, "it is not asked about every image"


def test_a_server_that_goes_down_keeps_what_is_judged_and_goes_on_later(studio: Studio, peer: Misbehaving) -> None:
    cases = run_of(studio.workspace, 1, range(10, 16))
    down = {image_sha(picture(number)) for number in (10, 11, 12)}  # the newest images are judged first
    gone = True

    def answers(name: str, pictures: list[str]) -> Any:
        return (401, "no such key") if gone and pictures[-1] in down else good(name, pictures)

    answers_with(peer, answers)
    state = judge(studio)
    assert state["judged"] == 3 and state["unjudged"] == 3 and "denies access" in state["problem"]
    gone = False
    before = len(peer.asked)
    state = judge(studio)
    assert (state["judged"], state["unjudged"], state["problem"]) == (3, 0, "")
    assert len(peer.asked) == before + 3 * 4, "nothing is asked twice"
    assert all(checks_of(studio, case)[WHOLE].passed for case in cases)


def test_a_person_stops_within_a_reply_and_nothing_is_lost(studio: Studio, peer: Misbehaving) -> None:
    run_of(studio.workspace, 1, range(10, 14))
    held: list[str] = []

    def answers(name: str, pictures: list[str]) -> Any:
        if pictures[-1] != image_sha(picture(13)):  # the newest image comes first and is answered
            held.append(name)
            peer.let.wait()
        return good(name, pictures)

    answers_with(peer, answers)
    studio.commands.send("judge-images", {})
    until(lambda: bool(held))
    studio.commands.send("stop-judging", {})
    until(lambda: studio.jobs.waiting_for() == "another run")  # the worker thread is free again
    state = studio.judging.show()
    assert (state["judged"], state["unjudged"], state["waiting"], state["working"]) == (1, 3, 0, False)


def test_an_image_that_is_judged_again_has_the_new_checks_alone(studio: Studio, peer: Misbehaving) -> None:
    (case,) = run_of(studio.workspace, 1, [10])
    answers_with(peer, good)
    judge(studio)
    assert checks_of(studio, case)[LABEL].passed is True
    answers_with(peer, lambda name, pictures: says("no"))
    assert judge(studio)["judged"] == 0, "it is not judged twice unless a person asks for it"
    assert judge(studio, again=True)["judged"] == 1
    assert [check.passed for check in checks_of(studio, case).values()] == [False, False, True, True]
    counts = studio.workspace.catalogue.checks()
    assert counts[LABEL] == {"failed": 1, "passed": 0} or counts[LABEL] == {"failed": 1}


def test_a_reconstruction_is_not_asked_for_its_edit(studio: Studio, peer: Misbehaving) -> None:
    bird = Task("classification", "bird")
    run = studio.workspace.runs.create(picture(1), bird, "demo", "A run", {})
    made = made_case(picture(10), counterfactual=CounterfactualCaption("A red bird.", ()), task=bird)
    (case,) = studio.workspace.test_cases.extend(run, None, [made])
    answers_with(peer, good)
    judge(studio)
    assert list(checks_of(studio, case)) == [LABEL, REST, WHOLE]


def test_a_profile_without_a_judge_says_so(tmp_path: Path) -> None:
    with studio_in(tmp_path) as studio:
        with pytest.raises(UserError) as refused:
            studio.commands.send("judge-images", {})
        told = str(refused.value)
        assert told.startswith("The profile demo has no model that judges images: take the profile ")
        assert told.endswith("or give it a table [judge].")
        assert told in str(filter_column(View(), studio.gallery.totals(View())))
