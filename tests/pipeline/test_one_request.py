"""One request for keywords, alternatives and captions: which parts of the reply are used, and who asks for the rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import Cancelled
from core.images import image_sha
from core.settings import AlternativeSettings, CounterfactualSettings, KeywordSettings, Settings
from core.types import Alternatives, Keywords, StageValue, Task, Trace
from pipeline.driver import Driver
from pipeline.freshness import stale_stages
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA
from pipeline.replies import with_json_repaired
from pipeline.request import MemoryStore, Request
from pipeline.stages.asking import BETWEEN
from pipeline.stages.parsing import Unreadable, read_together
from services.studio import Studio
from tests.support.scripted import SUNNY_BIRD, ScriptedLanguageModel, ScriptedModels, answer, studio_in
from tests.ui.explore.test_ui_studio import do, new_run

BIRD = Task("classification", label="bird")
SOURCE = Image.new("RGB", (64, 48), "green")
KEYWORDS = [
    {"keyword": "sunny", "edit_type": "weather", "alternatives": ["snowy", "rainy"]},
    {"keyword": "red", "edit_type": "colour", "alternatives": ["blue"]},
    {"keyword": "bird", "edit_type": "subject", "alternatives": ["cat"]},
]
BLUE, SNOWY = SUNNY_BIRD.replace("red", "blue"), SUNNY_BIRD.replace("sunny", "snowy")
CAPTIONS = [
    {"edits": ["red -> blue"], "caption": BLUE},
    {"edits": ["red -> blue", "sunny -> snowy"], "caption": BLUE.replace("sunny", "snowy")},
]
LATER = DILLEMA.names[2:]


def said(keywords: Any = KEYWORDS, captions: Any = CAPTIONS) -> str:
    return f"Sure, here it is:\n```json\n{json.dumps({'keywords': keywords, 'captions': captions}, indent=1)}\n```"


def is_for_all(prompt: str) -> bool:
    return "JSON" in prompt


class Asked:
    """Driver whose language model answers the one request with `reply`, and single stages with sensible replies."""

    def __init__(self, reply: str | Callable[[str], str], prompts: str = "paper", **captions: Any) -> None:
        self.language = ScriptedLanguageModel(self._say)
        self._reply = reply
        profile = load_profile("demo").model_copy(update={"prompts": prompts})
        self.driver = Driver(profile, ScriptedModels(self.language))
        self.settings = Settings(
            keywords=KeywordSettings(together=True, attempts=2),
            alternatives=AlternativeSettings(attempts=2),
            counterfactuals=CounterfactualSettings(**{"captions": 2, "edits_at_once": 2, "attempts": 2, **captions}),
        )
        self.store = MemoryStore(SOURCE)

    def _say(self, prompt: str) -> str:
        if not is_for_all(prompt):
            return answer(prompt)
        return self._reply if isinstance(self._reply, str) else self._reply(prompt)

    def run(self, **request: Any) -> dict[str, StageValue[Any]]:
        """Forget the recorded prompts and run the stages. Return all values."""
        self.language.prompts.clear()
        given = {"images": (), **request}
        self.driver.run(Request(BIRD, self.settings, **given), self.store, cancelled=request.get("cancelled"))
        return dict(self.store.values())

    @property
    def asked(self) -> list[str]:
        """Return the last line of each prompt sent, or "all" for the request for all stages."""
        return ["all" if is_for_all(each) else each.rstrip().rsplit("\n", 1)[-1] for each in self.language.prompts]

    @property
    def stale(self) -> dict[str, str]:
        made_by = self.driver.producers(DILLEMA, self.driver.prompts(DILLEMA), self.settings)
        return stale_stages(DILLEMA, BIRD, image_sha(SOURCE), self.store.values(), self.settings, made_by)


def words(value: Alternatives) -> dict[str, list[str]]:
    return {item.keyword: [option.text for option in item.options if option.used] for item in value.items}


def test_one_call_fills_three_stages_which_are_fresh_and_say_where_they_come_from() -> None:
    case = Asked(said())
    values = case.run()
    assert case.asked == ["all"] and case.stale == {}
    found = [(item.text, item.edit_type) for item in values["keywords"].value.items]
    assert found == [("red", "attribute"), ("sunny", "weather")], "in caption order, without the label"
    assert words(values["alternatives"].value) == {"red": ["blue"], "sunny": ["snowy", "rainy"]}
    captions = values["counterfactuals"].value.items
    assert [item.text for item in captions] == [each["caption"] for each in CAPTIONS]
    assert [[edit.alternative for edit in item.edits] for item in captions] == [["blue"], ["blue", "snowy"]]
    assert all(item.used for item in captions)
    for name in DILLEMA.names[1:]:
        trace = values[name].trace
        assert (trace.prompt, trace.raw_reply) == (case.language.prompts[0], said())
        assert (trace.notes, trace.attempts, trace.model) == ((), 1, case.language.name)
    assert case.run() == values and case.asked == [], "and all of it is used again"


def test_what_a_person_edits_outdates_what_follows_and_that_is_asked_for_by_its_own_prompts() -> None:
    case = Asked(said())
    held = case.run()["keywords"]
    chosen = Keywords(tuple(item for item in held.value.items if item.text == "red"))
    case.store.held["keywords"] = StageValue(chosen, Trace("person"), held.inputs_key)
    assert set(case.stale) == set(LATER)
    values = case.run()
    assert case.asked == ["Alternatives:", "New caption:", "New caption:"]
    assert words(values["alternatives"].value) == {"red": ["blue", "green", "white"]}


def test_only_what_the_reply_lacks_is_asked_for_and_that_is_said() -> None:
    keywords = [*KEYWORDS, {"keyword": "by day", "edit_type": "time of day", "alternatives": ["By day"]}]
    lost = {"edits": ["sunny -> snowy"], "caption": SNOWY.replace("bird", "cat")}
    unmade = {"edits": ["sunny -> rainy"], "caption": SUNNY_BIRD}
    strange = {"edits": ["red -> purple"], "caption": SUNNY_BIRD.replace("red", "purple")}
    twice = {"edits": ["sunny -> snowy", "sunny -> rainy"], "caption": SNOWY}
    case = Asked(said(keywords, [strange, CAPTIONS[0], lost, twice, unmade]), captions=4)
    values = case.run()
    assert case.asked == ["all", "Alternatives:", *["New caption:"] * 3]
    assert "\nKeywords: by day\n" in case.language.prompts[1], "the others have theirs"
    found = words(values["alternatives"].value)
    assert found == {"red": ["blue"], "sunny": ["snowy", "rainy"], "by day": ["at night", "at sunset"]}
    assert values["alternatives"].trace.notes == (
        "The request for all three stages gave alternatives for 2 of 3 keywords: the others were asked for by "
        "themselves.",
    )
    items = values["counterfactuals"].value.items
    assert [item.text for item in items[:3]] == [BLUE, SNOWY, SUNNY_BIRD.replace("sunny", "rainy")]
    assert len(items) == 4 and all(item.used for item in items) and len({item.edits for item in items}) == 4
    (note,) = values["counterfactuals"].trace.notes
    assert note.startswith("The request for all three stages gave 1 of 4 captions")
    for name in LATER:
        prompts = values[name].trace.prompt.split(BETWEEN)
        assert prompts[0] == case.language.prompts[0] and len(prompts) == (2 if name == "alternatives" else 4)
        assert len(values[name].trace.raw_reply.split(BETWEEN)) == len(prompts)
    assert case.stale == {}


def test_the_edits_that_a_person_chose_stay_and_captions_that_make_them_are_taken() -> None:
    chosen = ((("sunny", "rainy"),), (("red", "blue"),))
    case = Asked(said(), combinations="chosen", chosen=chosen)
    values = case.run()
    assert case.asked == ["all", "New caption:"]
    items = values["counterfactuals"].value.items
    assert [item.text for item in items] == [SUNNY_BIRD.replace("sunny", "rainy"), BLUE]


def test_the_model_s_choice_of_edits_is_in_the_reply_already() -> None:
    case = Asked(said(), combinations="model")
    case.run()
    assert case.asked == ["all"]


@pytest.mark.parametrize("reply", ["I cannot.", said([KEYWORDS[2]]), said()[:200], '{"keywords": "red"}'])
def test_a_reply_that_gives_no_keyword_has_the_stages_asked_one_by_one(reply: str) -> None:
    case = Asked(reply)
    values = case.run()
    assert case.asked == ["all", "all", "Elements:", "Alternatives:", "New caption:", "New caption:"]
    (note,) = values["keywords"].trace.notes
    assert note.startswith("The stages are asked one by one. The language model was asked 2 times for keywords, alt")
    asked, replied = (
        text.split(BETWEEN) for text in (values["keywords"].trace.prompt, values["keywords"].trace.raw_reply)
    )
    assert asked == case.language.prompts[1:3] and replied[0] == reply and replied[1].startswith("red | attribute")
    assert not values["alternatives"].trace.notes and case.stale == {}


def test_prompts_without_the_request_ask_the_stages_one_by_one_and_say_so() -> None:
    case = Asked("", prompts="demo")
    values = case.run()
    assert case.asked.count("all") == 0
    (note,) = values["keywords"].trace.notes
    assert note == (
        "The stages are asked one by one: the settings ask for one request for all three, but this profile has no "
        "prompt for it (together.toml is missing)."
    )
    assert case.stale == {}


def test_who_runs_one_stage_alone_asks_for_that_one() -> None:
    case = Asked(said())
    case.run(stages=("caption", "keywords"))
    assert case.asked == ["Elements:"]
    case.run(stages=("alternatives", "counterfactuals"))
    assert "all" not in case.asked


def test_a_stop_while_the_model_speaks_keeps_nothing_of_it() -> None:
    stop = threading.Event()

    def reply(_prompt: str) -> str:
        stop.set()
        return said()

    case = Asked(reply)
    with pytest.raises(Cancelled):
        case.driver.run(Request(BIRD, case.settings, images=()), case.store, cancelled=stop)
    assert list(case.store.held) == ["caption"] and case.asked == ["all"]


@pytest.mark.parametrize(
    ("reply", "keywords", "captions"),
    [
        ('{"keywords": [{"keyword": "red", "edit_type": "attribute", "alternatives": "blue",},],}', 1, 0),
        (said(captions=[{"edits": "red -> blue", "caption": "A."}, {"caption": 3}, 4]), 3, 1),
        (said(captions={"a": 1}), 3, 0),
        ('{"a": 1} {"keywords": [{"keyword": "red"}, {"keyword": " ", "edit_type": "domain"}]}', 0, 0),
    ],
)
def test_json_is_read_forgivingly(reply: str, keywords: int, captions: int) -> None:
    found = read_together(with_json_repaired(reply, ("keywords", "captions")))
    assert (len(found.keywords), len(found.captions)) == (keywords, captions)


@pytest.mark.parametrize("reply", ["", "{", "[" * 10_000, '["keywords"]', '{"captions": []}', "{" * 5_000])
def test_what_is_no_object_of_keywords_cannot_be_read(reply: str) -> None:
    with pytest.raises(Unreadable, match="no JSON object with “keywords” was found"):
        read_together(reply)


def test_half_a_reply_is_told_as_that() -> None:
    with pytest.raises(Unreadable, match="ends in the middle because the longest reply is too short"):
        read_together(said()[:300])


# On the page


def asked_in(studio: Studio) -> ScriptedLanguageModel:
    """Return the studio's language model, which now also answers the one request."""
    language = studio.driver.models.language
    assert isinstance(language, ScriptedLanguageModel)
    language.replies[:] = [lambda prompt: said() if is_for_all(prompt) else answer(prompt)]
    return language


def test_running_the_keywords_alone_fills_what_is_empty_or_stale_and_nothing_that_a_person_wrote(
    tmp_path: Path,
) -> None:
    with studio_in(tmp_path, "paper") as studio:
        language, run_id = asked_in(studio), new_run(studio)
        do(studio, run_id, "run", stage="caption")
        for name, value in (("keywords.together", True), ("counterfactuals.captions", 2)):
            assert do(studio, run_id, "setting", setting=name, value=value).problem == ""
        do(studio, run_id, "run", stage="keywords")
        state = studio.states.of(run_id)
        assert [is_for_all(prompt) for prompt in language.prompts] == [True] and not state.stale
        assert set(state.run.values) == set(DILLEMA.names)

        do(studio, run_id, "undo")
        assert set(studio.states.of(run_id).run.values) == {"caption"}, "it came together and goes together"
        do(studio, run_id, "redo")

        # A person's edit of the last stage stays when the stages before it run again.
        item = state.run.values["counterfactuals"].value.value.items[0]
        edit = {"place": 0, "text": item.text, "new": item.text + " It is quiet."}
        assert do(studio, run_id, "counterfactual-write", **edit).problem == ""
        language.prompts.clear()
        do(studio, run_id, "run", stage="keywords")
        held = studio.states.of(run_id).run.values["counterfactuals"]
        assert held.author == "person" and "quiet" in held.value.value.items[0].text
        assert [is_for_all(prompt) for prompt in language.prompts] == [False], "the keywords alone were asked for"
