"""The set-up, preview and life cycle of a study through the routes of its pages, on a real workspace."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.errors import UserError
from core.predictions import Prediction, encode_map
from core.studies import Item, Question, Rules
from demo.scene import SEMANTIC_CLASSES
from services.pictures import StoredPictures
from services.studies import draft_form as drafts
from services.studies.control_items import MADE
from services.studies.draft_saves import form_state
from services.studies.drafts import StudyCommand
from services.studies.templates import TEMPLATES
from services.studio import Studio
from storage.studies.studies import Studies
from study.control_items import pictures_of
from study.questions import problems_of
from tests.services.runs.test_predictions import Bright
from tests.support.scripted import studio_in
from tests.support.serving import until
from tests.support.study_cases import MODEL, object_runs, road_runs
from tests.support.workspaces import workspace_in
from ui.routes import add_routes
from ui.study.routes import add_study_routes

pytestmark = pytest.mark.slow

HOSTILE = '<img src=x onerror=alert(1)> "quoted" & {label}'


class Lead:
    """Sends the requests of the lead's pages."""

    def __init__(self, studio: Studio, client: TestClient) -> None:
        self.studio, self.client = studio, client

    @property
    def studies(self) -> Studies:
        return self.studio.workspace.studies

    def post(self, path: str, data: dict[str, Any] | None = None, status: int = 200) -> dict[str, Any]:
        reply = self.client.post(f"/study/api/{path}", json=data or {}, headers={"x-studio": "1"})
        assert reply.status_code == status, reply.text
        return dict(reply.json())

    def get(self, path: str, status: int = 200) -> str:
        reply = self.client.get(path, follow_redirects=False)
        assert reply.status_code == status, reply.text
        return reply.text

    def create(self, template: str = "classification", name: str = "Birds") -> str:
        """Create a draft. Return its id."""
        return str(self.post("create-study", {"title": name, "template": template})["go"].split("/")[2])

    def draft(self, count: int = 20, template: str = "classification") -> str:
        """Create a draft with images drawn at random. Return its id."""
        study = self.create(template)
        self.post(f"{study}/draw-items", self.choice(count=str(count)))
        return study

    def choice(self, **changes: Any) -> dict[str, Any]:
        return {"filter": "", "how": "random", "count": "20", "group": "", **changes}

    def save(self, study: str, status: int = 200, **form: Any) -> dict[str, Any]:
        return self.post(f"{study}/save-draft", {"form": form}, status)

    def act(self, study: str, name: str, status: int = 200, /, **data: Any) -> dict[str, Any]:
        told = self.post(f"{study}/before/{name}", data, status)
        return self.post(f"{study}/{name}", data, status) if status == 200 else told

    def fetch(self, path: str, status: int = 200, **query: object) -> dict[str, Any]:
        """Return the data that a page fetches to update itself."""
        reply = self.client.get(f"/study/api/{path}", params={name: str(value) for name, value in query.items()})
        assert reply.status_code == status, reply.text
        return dict(reply.json())

    def rules(self, study: str) -> Rules:
        return self.studies.get(study).rules


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace with 48 test cases, 16 of them misclassified. Tests work on copies."""
    folder = tmp_path_factory.mktemp("drawn") / "workspace"
    with workspace_in(folder) as workspace:
        object_runs(workspace, 12, wrong=range(0, 48, 3))
    return folder


@pytest.fixture
def lead(drawn: Path, tmp_path: Path) -> Iterator[Lead]:
    shutil.copytree(drawn, tmp_path / "workspace")
    with studio_in(tmp_path) as studio:
        app = FastAPI()
        workspace = studio.workspace
        add_routes(app, StoredPictures(workspace), studio.runs.samples, studio.exchange)
        add_study_routes(app, studio.commands, studio.studies, studio.revisions)
        with TestClient(app) as client:
            yield Lead(studio, client)


# The form as data


@pytest.mark.parametrize(
    ("typed", "held"),
    [("5", 5), (" 7 ", 7), ("12", 12), (9, 9), ("3.0", 3)],
    ids=["text", "spaces", "two", "int", "dot"],
)
def test_a_whole_number_is_read_as_typed(typed: object, held: int) -> None:
    _, rules, trouble = drafts.read_draft({"votes": typed}, "", TEMPLATES["classification"].rules())
    assert rules.votes == held and not trouble


@pytest.mark.parametrize(
    ("typed", "held"), [("1,000", 1000), ("100,000", 100_000), (" 1,234 ", 1234), ("3,0", 3), ("50", 50)]
)
def test_a_whole_number_may_have_commas_between_thousands(typed: str, held: int) -> None:
    _, rules, trouble = drafts.read_draft({"min_finished": typed}, "", TEMPLATES["classification"].rules())
    assert rules.eligibility.min_finished == held and not trouble


@pytest.mark.parametrize("typed", ["1,5", "1,00,000", "1,0001", "1,000,000", ",500"])
def test_commas_that_part_no_thousands_are_told(typed: str) -> None:
    held = TEMPLATES["classification"].rules()
    _, rules, trouble = drafts.read_draft({"min_finished": typed}, "", held)
    assert [entry.field for entry in trouble] == ["min_finished"] and rules.eligibility == held.eligibility


@pytest.mark.parametrize("typed", ["", "five", "0", "51", "2.5", "nan", "inf", None, [], {}, True, "5" * 400])
def test_what_is_no_number_is_told_and_the_rest_counts(typed: object) -> None:
    held = TEMPLATES["classification"].rules()
    _, rules, trouble = drafts.read_draft({"votes": typed, "consensus": "5", "share": "12,5 %"}, "", held)
    assert [entry.field for entry in trouble] == ["votes"] and trouble[0].words.startswith("Votes an image: ")
    assert (rules.votes, rules.consensus, rules.controls.share) == (5, 5, 0.125)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"votes": 3, "consensus": 1}, "consensus"),
        ({"questions": ()}, "questions"),
        ({"questions": (Question("a", "A?", "text"),)}, "questions"),
        ({"questions": (Question("a", "A?", "yes-no"), Question("b", "", "yes-no"))}, "questions.1.text"),
        ({"questions": (Question("A b", "A?", "yes-no"),)}, "questions.0.text"),
        ({"questions": (Question("a", "A?", "choice", options=("x",)),)}, "questions.0.text"),
        ({"questions": (Question("a", "A?", "yes-no", valid=("yes", "no")),)}, "questions.0.text"),
    ],
)
def test_what_does_not_go_together_is_told_where_it_is_put_right(change: dict[str, Any], field: str) -> None:
    assert [entry.field for entry in problems_of(replace(TEMPLATES["classification"].rules(), **change))] == [field]


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "own"])
def test_every_template_is_sound(name: str) -> None:
    assert not list(problems_of(TEMPLATES[name].rules()))


def test_short_names_come_of_the_words_and_are_unique() -> None:
    assert drafts.short_name("Does the image still show a {label}?", []) == "image-show-label"
    assert drafts.short_name("Is it <b>real</b>?", ["b-real-b"]) == "b-real-b-2"
    assert drafts.short_name("¿?", ["question", "question-2"]) == "question-3"


def test_a_question_that_loses_the_one_it_follows_is_asked_always() -> None:
    questions = TEMPLATES["lance"].questions
    assert questions[5].follows == "ethical-concern"
    for after in (drafts.moved(questions, "remove", 4), drafts.moved(questions, "up", 5)):
        assert not any(question.follows for question in after)
    assert drafts.moved(questions, "up", 0) == drafts.moved(questions, "down", 5) == questions
    assert drafts.moved(questions, "remove", 99) == questions
    added = drafts.moved(questions, "add", -1)[-1]
    assert (added.id, added.kind, added.text) == ("question", "yes-no", "")


# Drafts


def test_a_new_study_needs_a_name_and_says_so_at_its_field(lead: Lead) -> None:
    assert lead.post("create-study", {"title": "  ", "template": "classification"}, 400)["field"] == "title"
    assert lead.post("create-study", {"title": "x" * 121, "template": "classification"}, 400)["field"] == "title"
    assert lead.post("create-study", {"title": "Birds", "template": "of-another-kind"}, 400)["field"] == "template"
    assert lead.studies.all() == ()
    assert "There is no study yet" in lead.get("/study/")


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_a_draft_begins_with_its_template(lead: Lead, template: str) -> None:
    study = lead.create(template)
    rules = lead.rules(study)
    assert rules.questions == TEMPLATES[template].questions and rules.version == 0
    assert (rules.votes, rules.consensus, rules.eligibility.min_finished, rules.eligibility.quiz) == (5, 4, 50, 5)
    page = lead.get(f"/study/{study}/")
    assert all(html.escape(question.text, quote=False) in page for question in rules.questions)


def test_a_draft_can_have_the_rules_of_another_study(lead: Lead) -> None:
    first = lead.draft(10)
    lead.save(first, votes="7", consensus="5", consent="Yes.")
    lead.act(first, "start-study")
    again = str(lead.post(f"{first}/copy-rules")["go"].split("/")[2])
    held, rules = lead.studies.get(again), lead.rules(first)
    assert (held.name, held.state, held.items) == ("Birds, again", "draft", 0)
    assert replace(held.rules, seed=rules.seed, version=1) == rules
    lead.post("nothing/copy-rules", {}, 400)
    copy = str(lead.post(f"{first}/copy-rules", {"images": True})["go"].split("/")[2])

    def judged(study: str) -> list[Any]:
        found = lead.studies.items(study)
        return [(item.kind, item.image_sha, item.source_sha, item.label, dict(item.expected)) for item in found]

    assert lead.studies.get(copy).name == "Birds, copy" and judged(copy) == judged(first)
    lead.save(copy, votes="3", consensus="2")
    assert lead.studies.get(copy).items == 10 and not lead.studies.data(copy).votes


def test_what_is_typed_is_there_after_a_reload(lead: Lead) -> None:
    study = lead.create("lance")
    said = lead.save(study, name="Boats", votes="3", consensus="2", instructions="Look\nclosely", show_captions=False)
    assert said["unread"] == 0 and lead.rules(study).votes == 3
    page = lead.get(f"/study/{study}/")
    assert 'value="Boats"' in page and "Look\nclosely" in page and not lead.rules(study).show_captions
    assert lead.studies.get(study).name == "Boats"


def test_a_field_that_is_wrong_loses_nothing_of_the_others(lead: Lead) -> None:
    study = lead.create()
    said = lead.save(study, name="", votes="many", consensus="9", quiz="3", consent="I agree")
    assert said["unread"] == 2
    assert {"name", "votes", "consensus", "items"} <= set(said["problems"])
    rules = lead.rules(study)
    assert (rules.votes, rules.consensus, rules.eligibility.quiz, rules.consent) == (5, 9, 3, "I agree")
    assert "disabled" in re.findall(r"<button[^>]*id=\"start\"[^>]*>", said["parts"]["part-missing"])[0]


def test_half_a_letter_in_the_form_spoils_nothing(lead: Lead) -> None:
    study = lead.draft(10)
    form = {"instructions": "Look well \ud83d", "questions": [{"text": "Is it \ud83d?", "kind": "yes-no"}]}
    headers = {"x-studio": "1", "content-type": "application/json"}
    for name, sent in (("save-draft", {"form": form}), ("draw-items", lead.choice(group="good \ud83d"))):
        reply = lead.client.post(f"/study/api/{study}/{name}", content=json.dumps(sent), headers=headers)
        assert reply.status_code == 200, reply.text
    rules = lead.rules(study)
    assert rules.instructions == "Look well ?" and rules.questions[0].text == "Is it ??"
    assert {item.group for item in lead.studies.items(study) if item.kind == "item"} == {"random", "good ?"}
    lead.get(f"/study/{study}/")


def test_questions_are_added_changed_moved_and_removed(lead: Lead) -> None:
    study = lead.create()
    said = lead.post(f"{study}/edit-questions", {"form": {}, "do": "add", "place": -1})
    assert 'name="questions.1.text"' in said["parts"]["part-questions"]
    asked = [
        {"id": "valid", "text": "Does it show a {label}?", "kind": "yes-no", "valid": ["yes"], "required": True},
        {
            "id": "",
            "text": "What is the weather?",
            "kind": "choice",
            "options": "sun\n\nrain \n",
            "valid": ["sun", "x"],
        },
        {"id": "", "text": "Why?", "kind": "text", "follows": "1", "follows_answer": "rain", "required": False},
    ]
    lead.save(study, questions=asked)
    first, second, third = lead.rules(study).questions
    assert (first.text, first.valid) == ("Does it show a {label}?", ("yes",))
    assert (second.id, second.options, second.valid) == ("weather", ("sun", "rain"), ("sun",))
    assert (third.follows, third.follows_answer, third.required) == ("weather", "rain", False)
    lead.post(f"{study}/edit-questions", {"form": {}, "do": "up", "place": 1})
    assert [question.id for question in lead.rules(study).questions] == ["weather", "valid", "why"]
    lead.post(f"{study}/edit-questions", {"form": {}, "do": "remove", "place": 0})
    assert [(question.id, question.follows) for question in lead.rules(study).questions] == [("valid", ""), ("why", "")]


def test_another_template_replaces_questions_and_texts_only(lead: Lead) -> None:
    study = lead.create()
    lead.save(study, votes="7")
    said = lead.post(f"{study}/take-template", {"form": {"votes": "7"}, "template": "lance"})
    rules, lance = lead.rules(study), TEMPLATES["lance"]
    assert (rules.questions, rules.instructions, rules.show_source) == (lance.questions, lance.instructions, True)
    assert rules.votes == 7 and {"part-questions", "part-texts"} <= set(said["parts"])
    assert "no such template" in lead.post(f"{study}/take-template", {"template": "x"}, 400)["error"]


def test_another_window_does_not_overwrite_what_was_saved(lead: Lead) -> None:
    study = lead.create()
    based = form_state(lead.studies.get(study))
    first = lead.post(f"{study}/save-draft", {"form": {"votes": "7"}, "based": based})
    refused = lead.post(f"{study}/save-draft", {"form": {"votes": "3"}, "based": based}, 400)
    assert "another window" in refused["error"] and lead.rules(study).votes == 7
    lead.post(f"{study}/save-draft", {"form": {"votes": "9"}, "based": first["state"]})
    assert lead.rules(study).votes == 9


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 2, 2), (2, 1, 2)])
def test_a_page_does_not_stand_in_its_own_way(lead: Lead, order: tuple[int, ...]) -> None:
    """On leaving, a page sends the state from before its own unfinished save. That is no conflict of two pages."""
    study = lead.create()
    based = form_state(lead.studies.get(study))
    for number in order:
        form = {"votes": str(6 + number)}
        lead.post(f"{study}/save-draft", {"form": form, "based": based, "tab": "one", "number": number})
    assert lead.rules(study).votes == 8, "neither what comes late nor what comes twice changes anything"


def test_what_comes_late_does_not_overwrite_another_window(lead: Lead) -> None:
    study = lead.create()
    based = form_state(lead.studies.get(study))
    lead.post(f"{study}/save-draft", {"form": {"votes": "7"}, "based": based, "tab": "one", "number": 1})
    other = lead.post(f"{study}/save-draft", {"form": {"votes": "8"}, "tab": "two", "number": 1})
    late = {"form": {"votes": "9"}, "based": based, "tab": "one", "number": 2}
    assert "another window" in lead.post(f"{study}/save-draft", late, 400)["error"]
    again = lead.post(f"{study}/save-draft", {"form": {"votes": "7"}, "based": based, "tab": "one", "number": 1})
    assert again["state"] == other["state"] and lead.rules(study).votes == 8, "taken already, and changed since"


def test_a_form_without_the_question_that_was_just_added_does_not_remove_it(lead: Lead) -> None:
    study = lead.create()
    page = {"based": form_state(lead.studies.get(study)), "tab": "one", "form": {"questions": []}}
    lead.post(f"{study}/edit-questions", {**page, "number": 1, "do": "add"})
    lead.post(f"{study}/save-draft", {**page, "number": 2}, 400)
    assert len(lead.rules(study).questions) == 1


def test_images_that_come_twice_are_drawn_once(lead: Lead) -> None:
    study = lead.create()
    sent = {**lead.choice(count="10"), "tab": "one", "number": 1}
    for _ in range(2):
        lead.post(f"{study}/draw-items", sent)
    assert lead.studies.get(study).items == 10


def test_images_of_two_windows_stand_beside_each_other(lead: Lead) -> None:
    study = lead.create()
    based = form_state(lead.studies.get(study))
    for tab in ("one", "two"):
        lead.post(f"{study}/draw-items", {**lead.choice(count="10"), "based": based, "tab": tab, "number": 1})
    assert lead.studies.get(study).items == 20


def test_files_do_not_make_a_window_forget_what_another_one_saved(lead: Lead) -> None:
    study = lead.create()
    based = form_state(lead.studies.get(study))
    lead.save(study, votes="7")
    assert "another window" in lead.post(f"{study}/refresh-draft", {"form": {}, "based": based}, 400)["error"]


@pytest.mark.parametrize(
    "form",
    [
        {"questions": "all"},
        {"questions": [None, 3, {"text": 5, "kind": [], "options": 7, "valid": "yes", "follows": "²"}]},
        {"examples": [{"sha": "../../etc/passwd", "answer": "x", "why": "y"}, "z"]},
        {"show_source": "yes", "instructions": {"a": 1}, "votes": {"a": 1}},
        {"instructions": "x" * 20_000},
        {"name": ["a"], "seed": -1, "unknown": "field"},
    ],
)
def test_a_form_that_no_page_sends_does_no_harm(lead: Lead, form: dict[str, Any]) -> None:
    study = lead.create()
    before = lead.rules(study)
    lead.save(study, **form)
    after = lead.rules(study)
    assert after.examples == () and after.show_source is False and after.votes == before.votes
    assert len(after.instructions) < 10_001
    lead.get(f"/study/{study}/")


def test_texts_are_shown_as_texts(lead: Lead) -> None:
    study = lead.create(name=HOSTILE)
    question = {"id": "", "text": HOSTILE, "kind": "choice", "options": f"{HOSTILE}\nno", "valid": [HOSTILE]}
    lead.save(study, instructions=HOSTILE, consent=HOSTILE, questions=[question])
    lead.post(f"{study}/draw-items", lead.choice(group=HOSTILE))
    for path in (f"/study/{study}/", "/study/"):
        page = lead.get(path)
        assert "<img src=x" not in page and "&lt;img src=x" in page


# Images


def test_drawn_images_bring_control_and_quiz_items_with_them(lead: Lead) -> None:
    study = lead.create()
    said = lead.post(f"{study}/draw-items", lead.choice(count="20"))
    assert said["said"].startswith("20 images drawn at random, from 48 that fitted, seed ")
    held = lead.studies.get(study)
    assert (held.items, held.controls, held.quiz) == (20, 3, 5)
    assert not said["problems"] and "points" in said["parts"]["part-plan"]
    assert [entry.event for entry in lead.studies.log(study)].count("items drawn") == 1
    more = lead.post(
        f"{study}/draw-items", lead.choice(filter=f"model={MODEL}:newly wrong&model={MODEL}:wrong", count="40")
    )
    assert "(40 were asked for)" in more["said"]
    assert lead.post(f"{study}/describe-filter", lead.choice())["free"] == 48 - lead.studies.get(study).items


def test_images_of_scenes_are_asked_about_what_they_show(lead: Lead) -> None:
    road_runs(lead.studio.workspace, 6)
    study = lead.create("preservation")
    lead.post(f"{study}/draw-items", lead.choice(filter="kind=segmentation", count="12"))
    said = lead.post(f"{study}/refresh-draft")
    held = lead.studies.get(study)
    assert held.items == 12 and held.controls and held.quiz == 5 and not said["problems"]


@pytest.mark.slow
def test_the_model_under_test_is_asked_about_what_it_has_not_read(lead: Lead) -> None:
    road_runs(lead.studio.workspace, 2)
    workspace = lead.studio.workspace
    masks: dict[bytes, Image.Image] = {}
    for held in lead.studio.workspace.test_cases.candidates():
        run = workspace.runs.get(held.run_id)
        if run.mask_sha is not None:
            masks[workspace.images.load(held.source_sha).tobytes()] = workspace.images.load(run.mask_sha)

    class Finding(Bright):
        """Segmenter that finds all of a source image, and only sky in any other."""

        def predict(self, image: Image.Image) -> Prediction:
            numbers = masks.get(image.tobytes(), Image.new("L", image.size))
            return Prediction("segmentation", "m", classes=tuple(SEMANTIC_CLASSES), class_map=encode_map(numbers))

    lead.studio.predictions.load = lambda wanted: Finding("segmentation", wanted.title)
    study = lead.create("preservation")
    choice = lead.choice(filter="kind=segmentation&model=:newly wrong&model=:wrong", count="4")
    said = lead.post(f"{study}/describe-filter", choice)
    assert (said["free"], said["unread"]) == (0, 4)
    other = lead.post(f"{study}/ask-model", {**choice, "filter": f"model={MODEL}:wrong"}, 400)
    assert other["field"] == "filter" and "another model under test" in other["error"]
    assert lead.post(f"{study}/ask-model", choice)["asked"] == 2
    until(lambda: not lead.post(f"{study}/describe-filter", choice)["unread"])
    lead.post(f"{study}/draw-items", choice)
    drawn = [item for item in lead.studies.items(study) if item.kind == "item"]
    assert len(drawn) == 4 and all(item.model_right is False for item in drawn)
    assert {item.model for item in drawn} == {"segmenter.safetensors"}


def test_images_can_be_removed_by_one_and_by_sample(lead: Lead) -> None:
    study = lead.draft(10)
    item = lead.studies.items(study)[0]
    lead.post(f"{study}/delete-item", {"item": item.id})
    assert lead.studies.get(study).items == 9
    lead.post(f"{study}/delete-item", {"item": 10**9})
    said = lead.post(f"{study}/delete-sample", {"sample": "random"})
    held = lead.studies.get(study)
    assert (held.items, held.controls, held.quiz) == (0, 0, 0) and "items" in said["problems"]


def test_an_image_whose_answer_is_known_becomes_a_control_item_and_back(lead: Lead) -> None:
    study = lead.draft(20)
    item = next(item for item in lead.studies.items(study) if item.kind == "item")
    shown = lead.fetch(f"{study}/item", item=item.id)["html"]
    assert "Use as control item" in shown and item.image_sha in shown
    refused = lead.post(
        f"{study}/mark-item", {"item": item.id, "kind": "control", "expected": {"valid": "perhaps"}}, 400
    )
    assert refused["field"] == "expected"
    lead.post(f"{study}/mark-item", {"item": item.id, "kind": "control", "expected": {"valid": "yes"}})
    given = [one for one in lead.studies.items(study) if one.image_sha == item.image_sha]
    assert [(one.kind, dict(one.expected)) for one in given] == [("control", {"valid": "yes"})]
    lead.post(f"{study}/mark-item", {"item": given[0].id, "kind": "item"})
    assert lead.studies.get(study).items == 20
    assert "not in the study" in lead.post(f"{study}/mark-item", {"item": item.id, "kind": "item"}, 404)["error"]


def made_items(lead: Lead, study: str) -> list[Item]:
    return [item for item in lead.studies.items(study) if MADE in item.origin]


@pytest.mark.parametrize("kind", ["control", "quiz"])
@pytest.mark.parametrize("template", ["classification", "lance"])
def test_a_made_item_that_is_removed_stays_away_and_another_one_is_made(lead: Lead, template: str, kind: str) -> None:
    study = lead.draft(20, template)
    before = made_items(lead, study)
    gone = next(item for item in before if item.kind == kind)
    state = form_state(lead.studies.get(study))
    assert "does not make this item again" in lead.fetch(f"{study}/item", item=gone.id)["html"]
    lead.post(f"{study}/delete-item", {"item": gone.id, "based": state, "tab": "a", "number": 1})
    after = made_items(lead, study)
    assert (gone.image_sha, gone.label) not in {(item.image_sha, item.label) for item in after}
    assert Counter(item.kind for item in after) == Counter(item.kind for item in before)
    # Another page can still use its form. A change of the rules does not bring the removed item back.
    lead.post(f"{study}/save-draft", {"form": {"share": "20"}, "based": state, "tab": "b", "number": 1})
    lead.save(study, show_source=template == "classification")
    sources = {(item.source_sha, item.label) for item in made_items(lead, study) if item.kind == kind}
    assert len(made_items(lead, study)) > len(before) and (gone.source_sha, gone.label) not in sources
    again = lead.post(f"{study}/copy-rules")["go"].split("/")[2]
    assert lead.rules(study).left_out and not lead.rules(again).left_out


@pytest.mark.parametrize("kind", ["control", "quiz"])
@pytest.mark.parametrize("template", ["classification", "lance"])
def test_a_made_item_whose_answer_is_corrected_is_there_with_that_answer_only(
    lead: Lead, template: str, kind: str
) -> None:
    study = lead.draft(20, template)
    item = next(item for item in made_items(lead, study) if item.kind == "control")
    answers = {name: "no" if answer == "yes" else "yes" for name, answer in item.expected.items()}
    lead.post(f"{study}/mark-item", {"item": item.id, "kind": kind, "expected": answers})
    lead.post(f"{study}/refresh-draft")
    known = [held for held in lead.studies.items(study) if held.kind != "item"]
    there = [held for held in known if (held.source_sha, held.label) == (item.source_sha, item.label)]
    assert [(held.kind, dict(held.expected)) for held in there] == [(kind, answers)]
    (given,) = there
    lead.post(f"{study}/delete-item", {"item": given.id})
    assert (item.source_sha, item.label) not in {(one.source_sha, one.label) for one in made_items(lead, study)}


def test_examples_are_pictures_of_the_workspace_with_an_answer(lead: Lead) -> None:
    study = lead.draft(20)
    shas = re.findall(r'data-example-add="(\w+)"', lead.fetch(f"{study}/examples")["html"])
    assert shas and not set(shas) & {item.image_sha for item in lead.studies.items(study) if item.kind == "item"}
    lead.post(f"{study}/add-example", {"sha": shas[0]})
    for sha in ("0" * 64, "../studio.db", ""):
        lead.post(f"{study}/add-example", {"sha": sha}, 400)
    lead.save(study, examples=[{"sha": shas[0], "answer": "yes", "why": "it has wings"}])
    assert [(one.sha, one.answer, one.why) for one in lead.rules(study).examples] == [(shas[0], "yes", "it has wings")]
    lead.post(f"{study}/delete-example", {"place": 0})
    assert lead.rules(study).examples == ()


def test_the_plan_follows_what_is_expected(lead: Lead) -> None:
    study = lead.draft(40)
    wide = lead.fetch(f"{study}/plan", valid="60")["parts"]["part-plan"]
    narrow = lead.fetch(f"{study}/plan", valid="99")["parts"]["part-plan"]

    def width(part: str) -> float:
        return float(re.findall(r"([\d.]+) points</b>", part)[0])

    assert width(wide) > width(narrow)
    assert lead.fetch(f"{study}/plan", 400, accuracy="20")["field"] == "plan.accuracy"


# Preview


def test_the_preview_shows_consent_quiz_images_and_records_nothing(lead: Lead) -> None:
    study = lead.draft(10)
    lead.save(study, quiz="2")
    before = lead.studies.log(study)
    page = lead.get(f"/study/{study}/preview")
    assert f'data-preview="{study}"' in page
    steps = [lead.post(f"{study}/preview-step", {"number": number}) for number in range(1, 18)]
    held = lead.studies.get(study)
    assert [step["status"] for step in steps[:3]] == ["consent", "quiz", "quiz"]
    shown = [step for step in steps if step["status"] == "item"]
    # Ten images, with the control items that an annotator would see among them.
    assert 10 < len(shown) <= 10 + held.controls and steps[-1]["status"] == "done"
    assert len({step["assignment"]["image"] for step in shown}) >= 10
    first = shown[0]["assignment"]
    assert set(first) == {"id", "image", "source", "side", "caption", "counterfactual", "label", "questions", "answers",
                          "comment"}  # fmt: skip
    assert first["answers"] == {} and "kind" not in json.dumps({**first, "questions": []})
    assert lead.client.get(first["image"]).status_code == 200
    assert lead.studies.log(study) == before and lead.studies.get(study).votes == 0


def test_training_items_are_made_apart_from_the_others_and_can_be_given(lead: Lead) -> None:
    study = lead.draft(20)
    assert lead.studies.get(study).training == 0
    parts = lead.save(study, training="3", quiz="2")["parts"]
    assert "3 training items" in parts["part-training"] and "in the training" not in parts["part-missing"]
    held = lead.studies.get(study)
    assert (held.items, held.controls, held.quiz, held.training) == (20, 3, 2, 3)
    items = lead.studies.items(study)
    told = [item for item in items if item.kind == "training"]
    others = pictures_of(item for item in items if item.kind in ("control", "quiz"))
    assert not others & pictures_of(told), "nobody is asked again what they were told"
    assert all(item.why.startswith("This is an original picture") for item in told)
    assert lead.save(study, training="3")["parts"] == parts and lead.studies.items(study) == items, "made once"
    # The preview gives feedback too, and saves nothing.
    shown = [lead.post(f"{study}/preview-step", {"number": n, "answers": {"valid": "yes"}}) for n in range(1, 11)]
    statuses = [step["status"] for step in shown]
    assert statuses == ["consent", *["training", "feedback"] * 3, "quiz", "quiz", "item"]
    assert shown[1]["feedback"] is None and shown[1]["assignment"]["image"] == shown[2]["assignment"]["image"]
    said = shown[2]["feedback"]
    assert said["right"] == (said["answers"][0]["expected"] == "yes") and said["why"]
    assert [step["undo"] for step in shown[1:9]] == [False] * 7 + [True]
    # A marked image needs a reason. The item made from its source is removed, and no other kind of item replaces it.
    given = next(item for item in items if item.kind == "item")
    mark = {"item": given.id, "kind": "training", "expected": {"valid": "no"}, "why": " It has <b>no</b>  wings. "}
    lead.post(f"{study}/mark-item", mark)
    (marked,) = (item for item in lead.studies.items(study) if item.image_sha == given.image_sha)
    assert (marked.kind, marked.why, dict(marked.expected)) == ("training", "It has <b>no</b> wings.", {"valid": "no"})
    assert html.escape(marked.why) in lead.fetch(f"{study}/item", item=marked.id)["html"]
    assert (
        "1001 characters"
        in lead.post(f"{study}/mark-item", {**mark, "item": marked.id, "why": "x" * 1001}, 400)["error"]
    )
    # Too few images are reported before the start. With a training of 0 images, none are made.
    many = lead.save(study, training="20")
    assert "The training asks for 20 images" in many["parts"]["part-missing"] and "training" in many["problems"]
    assert "The training asks for 20 images" in lead.act(study, "start-study", 400)["error"]
    assert "from 0 to 20" in lead.save(study, training="21")["problems"]["training"]
    assert "1 training item is never shown" in lead.save(study, training="0")["parts"]["part-missing"]
    assert lead.studies.get(study).training == 1, "the given one"
    lead.save(study, training="1")
    told_first = lead.post(f"{study}/before/start-study")["words"]
    assert any("Everybody answers 1 training image first" in words for words in told_first)
    lead.post(f"{study}/start-study")
    assert "1 image with feedback, for everybody, before the first vote" in lead.get(f"/study/{study}/run")


@pytest.mark.parametrize("number", [0, -1, "1", None, True, 1.5, 10**9])
def test_a_step_that_the_preview_does_not_have_is_refused(lead: Lead, number: object) -> None:
    assert "no such step" in lead.post(f"{lead.create()}/preview-step", {"number": number}, 400)["error"]


def test_an_empty_draft_has_a_preview_too(lead: Lead) -> None:
    study = lead.create("own")
    assert lead.post(f"{study}/preview-step", {"number": 1})["status"] == "closed"
    study = lead.create()
    assert [lead.post(f"{study}/preview-step", {"number": n})["status"] for n in (1, 2)] == ["consent", "done"]


# Life cycle


def test_a_study_starts_is_paused_goes_on_and_is_closed(lead: Lead) -> None:
    study = lead.draft(10)
    told = lead.post(f"{study}/before/start-study")
    assert any("50 votes" in words for words in told["words"]) and lead.studies.get(study).state == "draft"
    assert lead.act(study, "start-study")["go"] == f"/study/{study}/run"
    assert (lead.studies.get(study).state, lead.rules(study).version) == ("running", 1)
    assert "frozen" in lead.save(study, 400, votes="7")["error"]
    assert "by now" in lead.act(study, "start-study", 400)["error"]
    for act, state in (("pause-study", "paused"), ("resume-study", "running"), ("close-study", "closed")):
        lead.act(study, act)
        assert lead.studies.get(study).state == state
        lead.get(f"/study/{study}/run")
    for act in ("pause-study", "resume-study", "close-study", "start-study", "open-invitation"):
        lead.act(study, act, 400)
    lead.act(study, "make-codes", 400, codes="2")
    lead.act(study, "ask-for-votes", 400, votes="9", consensus="7")
    lead.act(study, "add-items", 400, **lead.choice())
    assert lead.studies.get(study).state == "closed"


def test_a_lead_reads_no_braces_and_no_sums_of_the_program(lead: Lead) -> None:
    new = lead.get("/study/new")
    assert "Does the image still show a [class]?" in new and "{label}" not in new
    study = lead.draft(10)
    said = lead.save(study, votes="2", consensus="3", min_seen="50")
    assert said["problems"]["consensus"].endswith("at most all of them: 2 of 2 votes.")
    assert "a chance lies" not in said["parts"]["part-plan"]
    before = lead.save(study, votes="3", consensus="2")["parts"]["part-missing"]
    assert re.search(r"after 50 control items, and there (is|are) only \d+: nobody would ever be excluded", before)


def test_a_study_that_lacks_something_does_not_start(lead: Lead) -> None:
    study = lead.create()
    assert "no image" in lead.act(study, "start-study", 400)["error"]
    lead.post(f"{study}/draw-items", lead.choice())
    lead.save(study, consensus="2")
    assert "more than half" in lead.act(study, "start-study", 400)["error"]
    assert lead.studies.get(study).state == "draft"
    lead.get(f"/study/{study}/run", 303)


def test_a_study_that_has_started_can_be_put_away_and_taken_out_again(lead: Lead) -> None:
    study, other = lead.draft(10), lead.create()

    assert "is draft by now" in lead.act(study, "archive-study", 400)["error"]
    lead.act(study, "start-study")
    assert "The study is paused" in " ".join(lead.post(f"{study}/before/archive-study")["words"])
    lead.act(study, "archive-study")
    held = lead.studies.get(study)
    assert held.archived and held.state == "paused" and not lead.studies.get(other).archived
    page = lead.get("/study/")
    assert page.index(other) < page.index("Archive (1)") < page.index(study)
    assert "archived" in lead.get(f"/study/{study}/") and "archived" in lead.get(f"/study/{study}/run")
    assert "take it out first" in lead.act(study, "resume-study", 400)["error"]
    lead.act(study, "unarchive-study")
    lead.act(study, "resume-study")
    assert not lead.studies.get(study).archived and "Archive (" not in lead.get("/study/")
    assert [entry.event for entry in lead.studies.log(study)][1:3] == ["taken out of the archive", "archived"]


def test_the_settings_of_a_panel_are_checked_and_kept(lead: Lead) -> None:
    study = lead.draft(10)
    assert "is draft by now" in lead.act(study, "set-panel", 400)["error"]
    lead.act(study, "start-study")
    for field, wrong in (
        ("parameter", "a b"),
        ("code", "<b>"),
        ("address", "javascript:alert(1)"),
        ("questions", "Old? | yes"),
        ("questions", "worker"),  # the column with the workers' names
    ):
        assert lead.act(study, "set-panel", 400, **{field: wrong})["field"] == field
    typed = {"parameter": "PROLIFIC_PID", "code": "C1", "address": "https://x.example/?p={participant}"}
    lead.act(study, "set-panel", **typed, questions="How <old>? | young | old\n\nWhere?")
    assert len(lead.studies.panels.get(study).questions) == 2
    page = lead.get(f"/study/{study}/run")
    assert "How &lt;old&gt;? | young | old\nWhere?" in page and 'value="PROLIFIC_PID"' in page
    assert lead.studies.log(study)[0].event == "panel changed"


def test_more_votes_are_a_new_version_of_the_rules(lead: Lead) -> None:
    study = lead.draft(10)
    lead.act(study, "start-study")
    for votes, consensus, field in (("4", "4", "votes"), ("5", "4", "votes"), ("7", "3", "consensus"),
                                    ("x", "4", "votes")):  # fmt: skip
        more: dict[str, Any] = {"votes": votes, "consensus": consensus}
        refused = lead.act(study, "ask-for-votes", 400, **more)
        assert refused["field"] == field
    told = " ".join(lead.post(f"{study}/before/ask-for-votes", {"votes": "7", "consensus": "4"})["words"])
    assert "the consensus stayed 4 equal answers, which was 4 of 5 (80.0 %) and is 4 of 7 (57.1 %)" in told
    assert "6 of 7 would be as strict as 4 of 5" in told
    lead.act(study, "ask-for-votes", votes="7", consensus="5")
    rules = lead.rules(study)
    assert (rules.votes, rules.consensus, rules.version) == (7, 5, 2)
    page = lead.get(f"/study/{study}/run")
    assert "version 2" in page and "still show a [class]?" in page and "{label}" not in page
    assert "the votes per image went from 5 to 7" in lead.get(f"/study/{study}/")


def test_more_images_come_with_their_control_items(lead: Lead) -> None:
    study = lead.draft(10)
    lead.act(study, "start-study")
    before = lead.studies.get(study)
    told = lead.post(f"{study}/before/add-items", lead.choice(count="12"))
    assert told["title"] == "Add 12 images?" and lead.studies.get(study).items == 10
    lead.act(study, "add-items", **lead.choice(count="12"))
    after = lead.studies.get(study)
    assert after.items == 22 and after.controls > before.controls
    controls = [(item.image_sha, item.label) for item in lead.studies.items(study) if item.kind == "control"]
    assert len(set(controls)) == len(controls)


def test_more_images_that_would_be_asked_nothing_are_refused(lead: Lead) -> None:
    road_runs(lead.studio.workspace, 2)
    study = lead.create("preservation")
    scenes = lead.choice(count="3", filter="kind=segmentation")
    lead.post(f"{study}/draw-items", scenes)
    lead.save(study, quiz="0", min_finished="0")
    lead.act(study, "start-study")
    refused = lead.act(study, "add-items", 400, **lead.choice(count="2", filter="kind=classification"))
    assert refused["error"].startswith("2 images would be asked nothing") and "leave such" in refused["error"]
    lead.act(study, "add-items", **scenes)
    assert lead.studies.get(study).items == 4


def test_the_invitation_is_opened_and_ended(lead: Lead) -> None:
    study = lead.draft(10)
    lead.act(study, "open-invitation", 400)
    lead.act(study, "start-study")
    lead.act(study, "open-invitation")
    link = lead.studies.get(study).link
    assert f"#join={link}" in lead.get(f"/study/{study}/run")
    lead.act(study, "end-invitation")
    assert lead.studies.get(study).link == "" and link not in lead.get(f"/study/{study}/run")


def test_personal_codes_are_shown_once_and_open_the_study(lead: Lead) -> None:
    study = lead.draft(10)
    lead.act(study, "start-study")
    part = lead.act(study, "make-codes", codes="4")["parts"]["part-codes"]
    codes = re.findall(r"<code>([\w-]+)</code>", part)
    assert "4 personal codes" in lead.get(f"/study/{study}/log"), "who was invited stands in the log"
    workers = [lead.studies.workers.of_code(code) for code in codes]
    assert len(set(codes)) == len(set(workers)) == 4
    assert {worker.id for worker in lead.studies.workers.of_study(study)} == set(workers)
    assert not any(code in lead.get(f"/study/{study}/run") for code in codes)
    for number in ("0", "201", "some", ""):
        assert lead.act(study, "make-codes", 400, codes=number)["field"] == "codes"


def test_workers_of_other_studies_can_be_added(lead: Lead) -> None:
    first, second = lead.draft(10), lead.draft(10)
    for study in (first, second):
        lead.act(study, "start-study")
    lead.act(first, "make-codes", codes="3")
    one, two, blocked = (worker.id for worker in lead.studies.workers.of_study(first))
    lead.studies.workers.block(blocked, True)
    page = lead.get(f"/study/{second}/run")
    assert one in page and two in page and blocked not in page and one not in lead.get(f"/study/{first}/run")
    assert lead.act(second, "enrol-workers", 400, workers=[])["field"] == "workers"
    lead.act(second, "enrol-workers", 400, workers=["nobody-99"])
    lead.act(second, "enrol-workers", workers=[one, one])
    assert [worker.id for worker in lead.studies.workers.of_study(second)] == [one]


# Requests that no page sends


def test_only_the_studio_s_own_pages_are_listened_to(lead: Lead) -> None:
    study = lead.create()
    path = f"/study/api/{study}/save-draft"
    assert lead.client.post(path, json={"form": {"votes": "9"}}).status_code == 403
    ours = {"x-studio": "1"}
    assert lead.client.post(path, data={"form": "1"}, headers=ours).status_code == 400
    for body in (b"{", b"[1]", b'"x"', b"[" * 100_000, b"\xff\xfe", b"1" * 500_000):
        reply = lead.client.post(path, content=body, headers={**ours, "content-type": "application/json"})
        assert reply.status_code == 400 and reply.json()["error"]
    assert lead.rules(study).votes == 5


def test_an_unknown_study_is_refused_in_words(lead: Lead) -> None:
    sent: dict[str, dict[str, Any]] = {
        "save-draft": {"form": {}},
        "draw-items": lead.choice(),
        "describe-filter": lead.choice(),
        "delete-item": {"item": 1},
        "mark-item": {"item": 1, "kind": "item"},
        "refresh-draft": {},
        "start-study": {},
        "before/start-study": {},
        "preview-step": {"number": 1},
    }
    for name, data in sent.items():
        assert "study" in lead.post(f"nothing/{name}", data, 400)["error"], name
    for path, query in (("item", {"item": 1}), ("thumbs", {"start": 0}), ("plan", {}), ("examples", {}), ("live", {})):
        assert "study" in lead.fetch(f"nothing/{path}", 404, **query)["error"], path


def test_every_command_of_a_study_is_bounded_and_described(lead: Lead) -> None:
    """Each command has a description, and refuses unknown fields."""
    commands = lead.studio.commands
    of_studies = {name: kind for name, kind in commands.known().items() if issubclass(kind, StudyCommand)}
    assert {"save-draft", "start-study", "adjudicate", "preview-step"} <= set(of_studies)
    for name, kind in of_studies.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name) and kind.__doc__ and kind.__doc__.endswith(".")
        with pytest.raises(UserError):
            commands.parse(name, {"study": "x" * 81, "unknown": 1})


def test_another_window_keeps_what_it_saved_while_files_came_in(lead: Lead) -> None:
    study = lead.create()
    lead.save(study, votes="7")
    said = lead.post(f"{study}/refresh-draft", {"form": {"votes": "3", "consensus": "many"}})
    assert lead.rules(study).votes == 7 and said["unread"] == 1 and "consensus" in said["problems"]


@pytest.mark.parametrize("path", ["/study/nothing/", "/study/nothing/run", "/study/nothing/preview", "/study/nothing"])
def test_the_page_of_an_unknown_study_says_so(lead: Lead, path: str) -> None:
    assert "All studies" in lead.get(path, 404)


def test_an_act_that_there_is_none_is_refused(lead: Lead) -> None:
    study = lead.create()
    for act in ("erase", "__init__", "before", "5", "delete-run"):
        lead.post(f"{study}/{act}", {}, 404)
        lead.post(f"{study}/before/{act}", {}, 404)
    lead.post(f"{study}/before/save-draft", {}, 404)
    assert lead.post(f"{study}/start-study", {"now": True}, 400)["field"] == "now"
