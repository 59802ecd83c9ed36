"""The stage that describes backgrounds: places and times, words to avoid, a bank, and the user's own pictures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from core.errors import UserError
from core.settings import BackgroundsSettings
from core.types import CounterfactualCaption, Edit, StageValue, Task
from pipeline.checks.texts import counterfactual_checks
from pipeline.prompting import Prompt
from pipeline.recipes import AGA
from pipeline.stages.backgrounds import own_picture, run
from pipeline.stages.base import StageInputs
from tests.support.scripted import ScriptedLanguageModel

BIRD = Task("classification", label="bird")
PROMPT = AGA.prompts("paper")["backgrounds"]
SETTINGS = BackgroundsSettings(
    captions=3, instructions="a photo of", places="a beach, a forest", times="at dawn, at night"
)


def said(prompt: str) -> str:
    """Return the requested place and time, and a little more."""
    lines = [line.partition(": ")[2] for line in prompt.splitlines() if line.startswith(("Inst", "Place", "Time"))]
    return f"{' '.join(lines[-3:])}, with a pale sky."


def described(
    settings: BackgroundsSettings, language: Any = None, seed: int = 0, prompt: Prompt = PROMPT
) -> StageValue[Any]:
    models: Any = SimpleNamespace(language=language or ScriptedLanguageModel(said))
    return run(StageInputs(Image.new("RGB", (64, 64)), BIRD, {}, settings, models, prompt, seed))


def texts(value: StageValue[Any]) -> list[str]:
    return [item.text for item in value.value.items]


def test_each_place_and_time_is_asked_for_once_with_what_to_avoid() -> None:
    language = ScriptedLanguageModel(said)
    value = described(SETTINGS.model_copy(update={"avoid": "boat, kite"}), language)
    assert len(set(texts(value))) == 3 and all(item.used for item in value.value.items)
    assert all("Words to avoid: bird, boat, kite\n" in prompt for prompt in language.prompts)
    first = value.value.items[0]
    place, when = (edit.alternative for edit in first.edits)
    assert first.text == f"a photo of {place} {when}, with a pale sky."
    assert [edit.edit_type for edit in first.edits] == ["background", "time of day"]
    assert texts(described(SETTINGS)) == texts(described(SETTINGS)) != texts(described(SETTINGS, seed=1))
    assert len(texts(described(SETTINGS.model_copy(update={"captions": 9})))) == 4, "all that there are"


def test_a_description_that_names_the_subject_is_asked_for_again_and_then_not_used() -> None:
    at_first = ScriptedLanguageModel(lambda prompt: said(prompt) + " Birds fly.", said)
    assert described(SETTINGS, at_first).trace.attempts == 2
    value = described(SETTINGS, ScriptedLanguageModel(lambda prompt: said(prompt) + " A boat drifts by and a bird."))
    assert not any(item.used for item in value.value.items) and value.trace.attempts == SETTINGS.attempts
    notes = [check.note for check in counterfactual_checks("", value.value.items[0], BIRD) if check.passed is False]
    assert notes == ["The background names “bird”, which only the subject may show."]
    avoiding = SETTINGS.model_copy(update={"avoid": "boat"})
    value = described(avoiding, ScriptedLanguageModel(lambda prompt: said(prompt) + " Two boats drift by."))
    assert not any(item.used for item in value.value.items)
    lost = CounterfactualCaption("A field.", (Edit("place", "a beach", "background"),))
    assert "“a beach” is not in the caption" in counterfactual_checks("", lost, BIRD)[0].note


def test_the_prompt_itself_can_be_the_description() -> None:
    prompt = AGA.prompts("demo")["backgrounds"]
    plain = SETTINGS.model_copy(update={"written": False, "captions": 4, "places": "woods", "times": "fog, rain"})
    assert texts(described(plain, prompt=prompt)) == [
        f"a photo of in {time}. Behind it rise woods." for time in ("rain", "fog")
    ]


def test_descriptions_of_a_bank_are_the_same_for_all_sources() -> None:
    banked = SETTINGS.model_copy(update={"bank": 3, "captions": 2})
    by_seed = [described(banked, seed=seed) for seed in range(6)]
    assert len({text for value in by_seed for text in texts(value)}) == 3
    assert len({tuple(texts(value)) for value in by_seed}) > 1
    language = ScriptedLanguageModel(said)
    described(banked, language, seed=0)
    described(banked, language, seed=1)
    described(banked, language, seed=2)
    asked = dict(zip(language.prompts, language.seeds, strict=True))
    assert all(asked[prompt] == seed for prompt, seed in zip(language.prompts, language.seeds, strict=True))


def test_an_empty_list_is_told() -> None:
    with pytest.raises(UserError, match="name at least one of each"):
        described(SETTINGS.model_copy(update={"places": " , "}))


def test_pictures_of_a_folder_are_taken_and_broken_ones_are_told(tmp_path: Path) -> None:
    own = SETTINGS.model_copy(update={"folder": str(tmp_path), "captions": 8})
    with pytest.raises(UserError, match=r"There is no usable picture in the folder .*: put PNG or JPEG files there\."):
        described(own)
    Image.new("RGB", (300, 40), (0, 0, 200)).crop((0, 0, 100, 40)).save(tmp_path / "sea.png")
    Image.new("CMYK", (40, 90), (90, 0, 0, 0)).save(tmp_path / "print.JPG", "JPEG")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (tmp_path / "notes.txt").write_text("no picture")
    value = described(own)
    assert sorted(texts(value)) == ["print.JPG", "sea.png"] and value.trace.author == "model"
    (note,) = value.trace.notes
    assert note.startswith("This picture of the folder is left out. broken.jpg: The image is damaged")
    (tmp_path / "sea.png").unlink()
    (tmp_path / "print.JPG").unlink()
    with pytest.raises(UserError, match=r"There is no usable picture .* broken\.jpg: The image is damaged"):
        described(own)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        described(own.model_copy(update={"folder": str(tmp_path / "gone")}))
    with pytest.raises(UserError, match=r"There is no picture “\.\./broken\.jpg” in the folder"):
        own_picture(str(tmp_path / "sub"), "../broken.jpg")
