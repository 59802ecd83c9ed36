"""The four text stages on scripted replies: what they keep, drop, ask again, refuse and record.

The models are stand-ins (`tests/support/scripted.py`). `tests/pipeline/test_pipeline_demo.py` runs the real ones.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from core.check_words import CAPTION_WORDS
from core.errors import Cancelled, UnreadableReply, UserError
from core.progress import Progress
from core.settings import AlternativeSettings, CaptionSettings, CounterfactualSettings, KeywordSettings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    Edit,
    EditType,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageValue,
    Task,
)
from pipeline.checks.texts import counterfactual_checks
from pipeline.models.server import NoServer, ServerFault
from pipeline.prompting import Prompt
from pipeline.recipes import DILLEMA
from pipeline.stages import counterfactuals
from pipeline.stages.asking import BETWEEN
from tests.support.scripted import SUNNY_BIRD, ScriptedBatches, ScriptedCaptioner, ScriptedLanguageModel, answer
from tests.support.stages import run_alternatives, run_caption, run_counterfactuals, run_keywords

PROMPTS = DILLEMA.prompts("paper")
BIRD = Task("classification", label="bird")
ROAD = Task("segmentation", protected=("road", "vehicle", "pedestrian"))
CAPTION = Caption(SUNNY_BIRD)
RED, SUNNY, DAY = Keyword("red", "attribute"), Keyword("sunny", "weather"), Keyword("by day", "time of day")


def alternatives_for(**options: tuple[str, ...]) -> Alternatives:
    """Return alternatives for "red", "sunny" and "day" ("by day"), all ticked."""
    types: dict[str, tuple[str, EditType]] = {
        "red": ("red", "attribute"),
        "sunny": ("sunny", "weather"),
        "day": ("by day", "time of day"),
    }
    return Alternatives(
        tuple(
            KeywordAlternatives(*types[name], tuple(Alternative(text) for text in texts))
            for name, texts in options.items()
        )
    )


# 1 caption


def test_caption_records_how_it_came_about() -> None:
    captioner = ScriptedCaptioner("A red bird.\n It sits. ", prompt="a photo of")
    made = run_caption(Image.new("RGB", (8, 8)), BIRD, captioner, CaptionSettings(max_new_tokens=9), seed=5)
    assert made.value.text == "A red bird. It sits."
    assert made.trace.author == "model"
    assert (made.trace.model, made.trace.prompt, made.trace.seed) == ("scripted captioner", "a photo of", 5)
    assert made.trace.raw_reply == "A red bird.\n It sits. "
    assert made.trace.settings["max_new_tokens"] == 9


def test_a_silent_captioner_and_a_task_without_label_are_refused() -> None:
    with pytest.raises(UnreadableReply, match="said nothing"):
        run_caption(Image.new("RGB", (8, 8)), BIRD, ScriptedCaptioner(" "), CaptionSettings(), 0)
    with pytest.raises(UserError, match="needs a label"):
        run_caption(Image.new("RGB", (8, 8)), Task("classification"), ScriptedCaptioner(), CaptionSettings(), 0)


# 2 keywords


def test_keywords_come_in_caption_order_without_strangers_and_protected_words() -> None:
    reply = (
        "by day | time of day\nbird | subject\ngreen | attribute\nsunny | weather\nthe bird | subject\nRed | attribute"
    )
    model = ScriptedLanguageModel(reply)
    made = run_keywords(CAPTION, BIRD, model, PROMPTS["keywords"], KeywordSettings(), 3)
    assert [(item.text, item.used) for item in made.value.items] == [("Red", True), ("sunny", True), ("by day", True)]
    assert BIRD.describe() in model.prompts[0]
    assert SUNNY_BIRD in model.prompts[0]
    assert (made.trace.prompt, made.trace.raw_reply, made.trace.attempts, made.trace.seed) == (
        model.prompts[0],
        reply,
        1,
        3,
    )


def test_an_unreadable_reply_is_asked_for_again_with_the_next_seed() -> None:
    model = ScriptedLanguageModel("Sure!", "bird | subject", "red | attribute")
    made = run_keywords(CAPTION, BIRD, model, PROMPTS["keywords"], KeywordSettings(attempts=3), 10)
    assert model.seeds == [10, 11, 12]
    assert (made.trace.seed, made.trace.attempts, made.trace.raw_reply) == (12, 3, "red | attribute")


def test_attempts_are_bounded_and_the_last_reply_is_handed_on() -> None:
    model = ScriptedLanguageModel("Sure!", "I cannot.")
    with pytest.raises(UnreadableReply, match="asked 2 times for keywords") as caught:
        run_keywords(CAPTION, BIRD, model, PROMPTS["keywords"], KeywordSettings(attempts=2), 0)
    assert (caught.value.raw_reply, caught.value.attempts, caught.value.prompt) == ("I cannot.", 2, model.prompts[0])


def test_keywords_of_an_empty_caption_are_refused_before_the_model_is_asked() -> None:
    model = ScriptedLanguageModel("red | attribute")
    with pytest.raises(UserError, match="The caption is empty"):
        run_keywords(Caption(" \n"), BIRD, model, PROMPTS["keywords"], KeywordSettings(), 0)
    assert model.prompts == []


# 3 alternatives


def test_alternatives_are_for_used_keywords_and_differ_from_them() -> None:
    model = ScriptedLanguageModel("sunny: snowy, Sunny, foggy, snowy, rainy\nred: blue\nby day: at night\nbird: cat")
    chosen = Keywords((RED, SUNNY, Keyword("by day", "time of day", used=False)))
    made = run_alternatives(
        CAPTION, chosen, BIRD, model, PROMPTS["alternatives"], AlternativeSettings(per_keyword=2), 0
    )
    assert [(item.keyword, [option.text for option in item.options]) for item in made.value.items] == [
        ("red", ["blue"]),
        ("sunny", ["snowy", "foggy"]),
    ]
    assert "Keywords: red, sunny\n" in model.prompts[0]
    assert "Give 2 alternatives" in model.prompts[0]


def test_an_alternative_that_drops_a_protected_word_is_shown_but_not_used() -> None:
    street = Caption("A road with a red car.")
    model = ScriptedLanguageModel("red car: blue car, bicycle")
    chosen = Keywords((Keyword("red car", "attribute"),))
    made = run_alternatives(street, chosen, ROAD, model, PROMPTS["alternatives"], AlternativeSettings(), 0)
    assert made.value.items[0].options == (Alternative("blue car"), Alternative("bicycle", used=False))


def test_a_keyword_left_out_is_asked_for_again_and_the_fullest_reply_is_kept() -> None:
    model = ScriptedLanguageModel("red: blue", "sunny: snowy\nred: green", "red: white")
    made = run_alternatives(
        CAPTION, Keywords((RED, SUNNY)), BIRD, model, PROMPTS["alternatives"], AlternativeSettings(), 0
    )
    assert made.trace.attempts == 2
    assert [len(item.options) for item in made.value.items] == [1, 1]
    model = ScriptedLanguageModel("red: blue", "no idea", "red: blue\nsunny: sunny")
    made = run_alternatives(
        CAPTION, Keywords((RED, SUNNY)), BIRD, model, PROMPTS["alternatives"], AlternativeSettings(attempts=3), 7
    )
    assert (made.trace.seed, made.trace.attempts, made.trace.raw_reply) == (7, 3, "red: blue")
    assert made.value.items[1].options == ()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ((Keyword("red", "attribute", used=False),), "No keyword is chosen"),
        ((), "No keyword is chosen"),
        ((Keyword("purple", "attribute"),), "“purple” is not in the caption"),
        ((Keyword("the bird", "subject"),), "“the bird” is protected by the task"),
        ((RED, Keyword("Red", "attribute")), "“Red” is listed twice"),
    ],
)
def test_keywords_that_cannot_be_used_are_refused(chosen: tuple[Keyword, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_alternatives(
            CAPTION,
            Keywords(chosen),
            BIRD,
            ScriptedLanguageModel(""),
            PROMPTS["alternatives"],
            AlternativeSettings(),
            0,
        )


# 4 counterfactual captions


def test_a_call_for_every_counterfactual_caption() -> None:
    model, seen = ScriptedLanguageModel(answer), list[Progress]()
    options = alternatives_for(red=("blue",), sunny=("snowy",))
    made = run_counterfactuals(
        CAPTION, options, BIRD, model, PROMPTS["counterfactuals"], CounterfactualSettings(), 1, seen.append
    )
    texts = {item.edits[0].alternative: item.text for item in made.value.items}
    assert texts == {"blue": SUNNY_BIRD.replace("red", "blue"), "snowy": SUNNY_BIRD.replace("sunny", "snowy")}
    assert all(item.used for item in made.value.items)
    assert len(model.prompts) == 2
    assert made.trace.prompt == BETWEEN.join(model.prompts)
    assert [(p.done, p.total) for p in seen] == [(0, 2), (1, 2), (2, 2)]
    assert seen[0].seconds_left is None
    assert seen[2].seconds_left == 0
    assert "caption 1 of 2" in seen[0].note


CHOOSING = DILLEMA.prompts("paper")["edits"]
OFFERED = {"red": ("blue", "green"), "sunny": ("snowy",), "day": ("at night",)}


def chosen_by(model: ScriptedLanguageModel, choosing: Prompt | None = CHOOSING, **settings: object) -> StageValue[Any]:
    """Write captions whose edits the model chooses. Its first replies answer the question for the edits."""
    wanted = CounterfactualSettings.model_validate({"combinations": "model", "edits_at_once": 2, **settings})
    options, prompt = alternatives_for(**OFFERED), PROMPTS["counterfactuals"]
    return run_counterfactuals(CAPTION, options, BIRD, model, prompt, wanted, 5, choosing=choosing)


def edits_of(made: StageValue[Any]) -> list[list[str]]:
    return [[edit.alternative for edit in item.edits] for item in made.value.items]


def test_the_model_chooses_the_edits_in_one_call_more() -> None:
    model, seen = ScriptedLanguageModel("by day -> at night; red -> blue\nsunny -> snowy", answer), list[Progress]()
    wanted = CounterfactualSettings(combinations="model", edits_at_once=2, captions=3)
    options = alternatives_for(**OFFERED)
    prompt = PROMPTS["counterfactuals"]
    made = run_counterfactuals(CAPTION, options, BIRD, model, prompt, wanted, 5, seen.append, choosing=CHOOSING)
    assert edits_of(made) == [["blue", "at night"], ["snowy"]] and all(item.used for item in made.value.items)
    assert model.seeds[0] == 5 and len(model.prompts) == 3
    for said in (
        "Task: image classification with the label bird\n",
        f"Caption: {SUNNY_BIRD}\n",
        "Alternatives: red: blue, green; sunny: snowy; by day: at night\n",
        "Captions, at most: 3\nChanges in one caption, at most: 2\n",
    ):
        assert said in model.prompts[0]
    assert made.trace.prompt == BETWEEN.join(model.prompts)
    assert made.trace.raw_reply.startswith(f"by day -> at night; red -> blue\nsunny -> snowy{BETWEEN}A ")
    assert made.trace.notes == () and made.trace.attempts == 1
    assert [(p.done, p.total, p.note) for p in seen] == [
        (0, 4, "choosing the edits"),
        (1, 3, "caption 1 of 2"),
        (2, 3, "caption 2 of 2"),
        (3, 3, "caption 2 of 2"),
    ]


def test_what_the_model_may_not_choose_is_dropped() -> None:
    reply = [
        "red -> blue; red -> green",  # one keyword twice
        "red -> pink; sunny -> snowy",  # not offered
        "red -> blue; sunny -> snowy; by day -> at night",  # too many
        "sunny -> snowy; red -> green",
        "red -> green; sunny -> snowy",  # the same edits as before
        "Those are my captions.",
        "by day -> at night",
        "red -> blue",  # more than requested
    ]
    made = chosen_by(ScriptedLanguageModel("\n".join(reply), answer), captions=2)
    assert edits_of(made) == [["green", "snowy"], ["at night"]] and made.trace.attempts == 1
    made = chosen_by(ScriptedLanguageModel("\n".join(reply), answer), edits_at_once=0)
    assert edits_of(made) == [["blue", "snowy", "at night"], ["green", "snowy"], ["at night"], ["blue"]]


def test_a_choice_that_cannot_be_used_is_asked_for_again() -> None:
    model = ScriptedLanguageModel("I cannot.", "red -> pink", "red -> blue; red -> green", "sunny -> snowy", answer)
    made = chosen_by(model)
    assert edits_of(made) == [["snowy"]] and made.trace.notes == () and made.trace.attempts == 4
    assert model.seeds[:4] == [5, 6, 7, 8] and len(set(model.prompts[:4])) == 1
    assert made.trace.raw_reply.startswith(f"sunny -> snowy{BETWEEN}")


def test_a_choice_that_never_comes_is_an_even_spread_and_said_to_be() -> None:
    model = ScriptedLanguageModel("I cannot.", "No.", answer)
    made = chosen_by(model, attempts=2, captions=3)
    spread = chosen_by(ScriptedLanguageModel(answer), None, captions=3)
    assert edits_of(made) == edits_of(spread) and len(edits_of(made)) == 3
    (note,) = made.trace.notes
    assert note.startswith("The edits were spread evenly. The language model was asked 2 times for the edits that go")
    assert "no line of the form “keyword -> alternative; keyword -> alternative” was found" in note
    assert made.trace.prompt == BETWEEN.join((model.prompts[0], *model.prompts[2:]))
    assert made.trace.raw_reply.startswith(f"No.{BETWEEN}") and made.trace.attempts == 2
    (note,) = spread.trace.notes
    assert "spread evenly" in note and "edits.toml is missing" in note


def test_a_server_that_is_down_is_no_reason_to_spread() -> None:
    def down(_prompt: str) -> str:
        raise ServerFault("The server is down.")

    with pytest.raises(ServerFault, match="is down"):
        chosen_by(ScriptedLanguageModel(down))


def test_all_edits_at_once_are_in_one_caption() -> None:
    options = alternatives_for(red=("blue",), sunny=("snowy",), day=("at night",))
    settings = CounterfactualSettings(edits_at_once=0)
    model = ScriptedLanguageModel(answer)
    made = run_counterfactuals(CAPTION, options, BIRD, model, PROMPTS["counterfactuals"], settings, 0)
    assert [item.text for item in made.value.items] == [
        "A blue bird in snowy weather at night. The bird sits on a twig. The ground is grassy."
    ]
    assert "red -> blue; sunny -> snowy; by day -> at night" in model.prompts[0]


def test_a_caption_that_fails_its_checks_is_asked_for_again() -> None:
    lost = SUNNY_BIRD.replace("red", "blue").replace("bird", "cat")
    good = SUNNY_BIRD.replace("red", "blue")
    model = ScriptedLanguageModel(SUNNY_BIRD, lost, good)
    made = run_counterfactuals(
        CAPTION, alternatives_for(red=("blue",)), BIRD, model, PROMPTS["counterfactuals"], CounterfactualSettings(), 0
    )
    assert made.value.items[0].text == good
    assert made.value.items[0].used
    assert made.trace.attempts == 3
    assert model.seeds == [model.seeds[0], model.seeds[0] + 1, model.seeds[0] + 2]


def test_a_caption_that_never_passes_is_kept_as_it_is_but_not_used() -> None:
    lost = SUNNY_BIRD.replace("red", "blue").replace("bird", "cat")
    model = ScriptedLanguageModel("A dog.", lost, "A dog.")
    settings = CounterfactualSettings(attempts=3)
    made = run_counterfactuals(
        CAPTION, alternatives_for(red=("blue",)), BIRD, model, PROMPTS["counterfactuals"], settings, 0
    )
    assert made.value.items[0].text == lost  # one check failed, while "A dog." fails two
    assert not made.value.items[0].used
    assert len(model.prompts) == 3


def test_a_caption_that_never_comes_ends_the_stage() -> None:
    with pytest.raises(UnreadableReply, match="a counterfactual caption, but no caption was found"):
        run_counterfactuals(
            CAPTION,
            alternatives_for(red=("blue",)),
            BIRD,
            ScriptedLanguageModel("Sure!"),
            PROMPTS["counterfactuals"],
            CounterfactualSettings(),
            0,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Alternatives(()), "No alternative is chosen"),
        (
            Alternatives((KeywordAlternatives("red", "attribute", (Alternative("blue", used=False),)),)),
            "No alternative is chosen",
        ),
        (alternatives_for(red=("Red",)), "“Red” is the same as its keyword"),
        (alternatives_for(red=(" ",)), "An alternative of “red” is empty"),
        (
            Alternatives((KeywordAlternatives("green", "attribute", (Alternative("blue"),)),)),
            "“green” is not in the caption",
        ),
    ],
)
def test_alternatives_that_cannot_be_used_are_refused(options: Alternatives, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_counterfactuals(
            CAPTION, options, BIRD, ScriptedLanguageModel(""), PROMPTS["counterfactuals"], CounterfactualSettings(), 0
        )


def test_counterfactual_captions_can_be_stopped_between_two_calls() -> None:
    stop = threading.Event()

    def reply(prompt: str) -> str:
        stop.set()
        return answer(prompt)

    model = ScriptedLanguageModel(reply)
    options = alternatives_for(red=("blue",), sunny=("snowy",))
    with pytest.raises(Cancelled):
        run_counterfactuals(
            CAPTION, options, BIRD, model, PROMPTS["counterfactuals"], CounterfactualSettings(), 0, None, stop
        )
    assert len(model.prompts) == 1


class Stumbling:
    """Language model like `answer`. For a prompt with "blue", its first caption lacks the bird and its second lacks
    the edit.
    """

    def __init__(self) -> None:
        self.asked = Counter[str]()

    def __call__(self, prompt: str) -> str:
        good = answer(prompt)
        self.asked[good] += 1
        wrong = [good.replace("bird", "cat"), SUNNY_BIRD]
        return wrong[self.asked[good] - 1] if "blue" in good and self.asked[good] <= 2 else good


def test_captions_that_are_written_together_come_out_as_one_by_one() -> None:
    options = alternatives_for(red=("blue", "green"), sunny=("snowy",))
    made, seen = [], list[Progress]()
    batches = ScriptedBatches(Stumbling())
    for model, told in ((ScriptedLanguageModel(Stumbling()), None), (batches, seen.append)):
        made.append(
            run_counterfactuals(
                CAPTION, options, BIRD, model, PROMPTS["counterfactuals"], CounterfactualSettings(), 5, told
            )
        )
    alone, together = made
    assert together.value == alone.value and all(item.used for item in together.value.items)
    assert replace(together.trace, seconds=0) == replace(alone.trace, seconds=0) and together.trace.attempts == 3
    first = batches.batches[0]
    blue = next(n for n, item in enumerate(together.value.items) if "blue" in item.text)
    assert batches.batches == [first, [first[blue] + 1], [first[blue] + 2]], "only what falls short is asked for again"
    assert [(p.done, p.total) for p in seen] == [(0, 3), (1, 3), (2, 3), (2, 3), (3, 3)]


class RefusesSnow:
    """Says `answer`, but refuses to write of snow for a number of requests."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals

    def __call__(self, prompt: str) -> str:
        good = answer(prompt)
        if "snowy" not in good or not self.left:
            return good
        self.left -= 1
        raise ServerFault("The server refused the text.")


@pytest.mark.parametrize("kind", [ScriptedLanguageModel, ScriptedBatches])
def test_a_refused_caption_takes_no_other_along_and_is_asked_for_alone(kind: type[ScriptedLanguageModel]) -> None:
    options = alternatives_for(red=("blue", "green"), sunny=("snowy",))
    settings, prompt = CounterfactualSettings(attempts=2), PROMPTS["counterfactuals"]
    made = run_counterfactuals(CAPTION, options, BIRD, kind(RefusesSnow(99)), prompt, settings, 5)
    (missing,) = (item for item in made.value.items if not item.used)
    assert len(made.value.items) == 3 and missing.text == "" and missing.edits[0].alternative == "snowy"
    (check,) = counterfactual_checks(SUNNY_BIRD, missing, BIRD)
    assert check.note == "The caption with “sunny” → “snowy” is missing. The server refused the text."
    assert check.name in CAPTION_WORDS and made.trace.attempts == 2

    model = kind(answer)
    again = run_counterfactuals(CAPTION, options, BIRD, model, prompt, settings, 6, before=made.value)
    assert len(model.prompts) == 1 and "sunny -> snowy" in model.prompts[0]
    others = [item for item in made.value.items if item.used]
    assert [item for item in again.value.items if item in others] == others, "in their order, as they were"
    assert all(item.used and item.text for item in again.value.items) and len(again.value.items) == 3
    assert again.trace.notes == ("2 of 3 captions were written before: only the missing were asked for.",)

    complete = kind(answer)
    run_counterfactuals(CAPTION, options, BIRD, complete, prompt, settings, 7, before=again.value)
    assert len(complete.prompts) == 3, "nothing is missing, so all are written anew"


@pytest.mark.parametrize("kind", [ScriptedLanguageModel, ScriptedBatches])
def test_a_server_that_goes_down_within_a_stage_costs_no_caption_that_was_written(
    kind: type[ScriptedLanguageModel],
) -> None:
    options, prompt = alternatives_for(red=("blue", "green"), sunny=("snowy", "rainy")), PROMPTS["counterfactuals"]
    settings = CounterfactualSettings(captions=4, attempts=3)

    def goes_down(prompt: str) -> str:
        if len(model.prompts) > 2:
            raise NoServer("The server is down.")
        return answer(prompt)

    model = kind(goes_down)
    made = run_counterfactuals(CAPTION, options, BIRD, model, prompt, settings, 5)
    assert [bool(item.text) for item in made.value.items] == [True, True, False, False]
    assert all(item.checks[0].note.endswith("is missing. The server is down.") for item in made.value.items[2:])
    assert len(model.prompts) == (3 if kind is ScriptedLanguageModel else 4), "no request is made again"
    complete = kind(answer)
    again = run_counterfactuals(CAPTION, options, BIRD, complete, prompt, settings, 6, before=made.value)
    assert len(complete.prompts) == 2 and all(item.used for item in again.value.items)

    def refuses_and_goes_down(_prompt: str) -> str:
        raise (NoServer if len(refusing.prompts) > 1 else ServerFault)("No.")

    refusing = kind(refuses_and_goes_down)
    with pytest.raises(NoServer):
        run_counterfactuals(CAPTION, options, BIRD, refusing, prompt, settings.model_copy(update={"attempts": 1}), 5)


def test_a_request_that_fails_in_a_batch_is_made_again_without_the_others() -> None:
    options = alternatives_for(red=("blue", "green"), sunny=("snowy",))
    model, prompt = ScriptedBatches(RefusesSnow(1)), PROMPTS["counterfactuals"]
    made = run_counterfactuals(CAPTION, options, BIRD, model, prompt, CounterfactualSettings(attempts=2), 5)
    assert [len(batch) for batch in model.batches] == [3, 1]
    assert all(item.used for item in made.value.items)


def test_captions_that_are_written_together_can_be_stopped_and_fail_as_one_by_one() -> None:
    stop = threading.Event()
    options = alternatives_for(red=("blue", "green"), sunny=("snowy",))

    def reply(prompt: str) -> str:
        stop.set()
        return answer(prompt)

    def tried(model: ScriptedLanguageModel, cancelled: threading.Event | None = None, attempts: int = 2) -> None:
        settings = CounterfactualSettings(attempts=attempts)
        prompt = PROMPTS["counterfactuals"]
        run_counterfactuals(CAPTION, options, BIRD, model, prompt, settings, 0, None, cancelled)

    model = ScriptedBatches(reply)
    with pytest.raises(Cancelled):
        tried(model, stop)
    assert len(model.prompts) == 1
    errors = []
    for unread in (ScriptedLanguageModel, ScriptedBatches):
        with pytest.raises(UnreadableReply, match="asked 2 times for a counterfactual caption") as caught:
            tried(unread("Sure!"))
        errors.append((str(caught.value), caught.value.prompt, caught.value.raw_reply, caught.value.attempts))
    assert errors[0] == errors[1]


FULL = alternatives_for(
    red=("blue", "green", "white"), sunny=("snowy", "rainy", "foggy"), day=("at night", "at sunset")
)


@pytest.mark.parametrize("at_once", [1, 2, 3, 0])
@pytest.mark.parametrize("seed", range(4))
def test_edits_are_spread_evenly(at_once: int, seed: int) -> None:
    settings = CounterfactualSettings(edits_at_once=at_once, captions=6)
    chosen = counterfactuals.choose_edits(CAPTION, FULL, settings, seed)
    assert len(chosen) == 6
    assert len(set(map(frozenset, chosen))) == 6
    for edits in chosen:
        assert len(edits) == (at_once or 3)
        assert len({edit.keyword for edit in edits}) == len(edits)
        assert [SUNNY_BIRD.index(edit.keyword) for edit in edits] == sorted(SUNNY_BIRD.index(e.keyword) for e in edits)
    turns = Counter(edit.keyword for edits in chosen for edit in edits)
    assert max(turns.values()) - min(turns.values()) <= 1
    for keyword in ("red", "sunny"):
        options = Counter(edit.alternative for edits in chosen for edit in edits if edit.keyword == keyword)
        assert max(options.values()) - min(options.get(item, 0) for item in options) <= 1


def test_edits_follow_the_seed() -> None:
    settings = CounterfactualSettings(captions=5)
    same = [counterfactuals.choose_edits(CAPTION, FULL, settings, 3) for _ in range(2)]
    assert same[0] == same[1]
    assert len({counterfactuals.choose_edits(CAPTION, FULL, settings, seed) for seed in range(8)}) > 1


def test_no_more_captions_than_there_are_ways() -> None:
    everything = CounterfactualSettings(captions=32)
    assert len(counterfactuals.choose_edits(CAPTION, FULL, everything, 0)) == 8
    pairs = counterfactuals.choose_edits(CAPTION, FULL, CounterfactualSettings(captions=32, edits_at_once=2), 0)
    assert len(pairs) == 3 * 3 + 3 * 2 + 3 * 2
    assert (
        len(counterfactuals.choose_edits(CAPTION, FULL, CounterfactualSettings(captions=32, edits_at_once=0), 0)) == 18
    )
    one = counterfactuals.choose_edits(
        CAPTION, alternatives_for(red=("blue",)), CounterfactualSettings(edits_at_once=5), 0
    )
    assert one == ((Edit("red", "blue", "attribute"),),)
