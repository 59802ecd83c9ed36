"""Chat models of transformers with random weights, saved as on the hub and named in a profile like the large ones."""

from __future__ import annotations

import json
import shutil
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from core.errors import Cancelled, CannotLoad, UnreadableReply, UserError
from core.progress import stoppable
from core.settings import AlternativeSettings, CounterfactualSettings, KeywordSettings, LanguageSettings
from core.types import Alternative, Alternatives, Caption, Edit, KeywordAlternatives, Task
from pipeline.models import load_models
from pipeline.models.language_chat import ChatLanguageModel
from pipeline.profiles.profile import PROFILES, Profile
from pipeline.prompting import Prompt
from pipeline.replies import read_reply
from pipeline.seams import BatchLanguageModel, LanguageRequest, ScoringLanguageModel
from pipeline.stages.counterfactuals import edit_pools
from pipeline.stages.parsing import read_alternatives, read_caption, read_edits, read_keywords
from pipeline.stages.reply_schema import Schema, alternatives_schema, caption_schema, edits_schema, keywords_schema
from tests.support import tiny
from tests.support.scripted import SUNNY_BIRD
from tests.support.stages import chosen_by_model, run_alternatives, run_counterfactuals, run_together

pytestmark = pytest.mark.slow

REPLY = LanguageSettings(max_new_tokens=12, temperature=0.8)
COLD = REPLY.model_copy(update={"temperature": 0.0})
OFFERED = [("red", "blue"), ("red", "green"), ("sunny", "snowy"), ("by day", "at night")]
WANTED: list[tuple[Schema | None, Callable[[str], object]]] = [
    (keywords_schema(SUNNY_BIRD, Task("classification", label="bird")), read_keywords),
    (alternatives_schema(["red", "by day"], 2), read_alternatives),
    (caption_schema(SUNNY_BIRD), read_caption),
    (edits_schema(OFFERED, 3, 2), lambda reply: read_edits(reply, OFFERED)),
]


def named(path: Path, **section: Any) -> ChatLanguageModel:
    """Return the language model of a profile that names this folder."""
    data = tomllib.loads((PROFILES / "demo.toml").read_text())
    data["language"] = {"kind": "transformers", "path": str(path), **section}
    return cast(ChatLanguageModel, load_models(Profile.model_validate(data)).language)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a Qwen 3, whose template thinks by default, and of a Llama, whose template has no system message."""
    folder = tmp_path_factory.mktemp("chat")
    tiny.save_chat(folder / "qwen3", "qwen3", tiny.THINKING)
    tiny.save_chat(folder / "llama", "llama", tiny.NO_SYSTEM)
    return folder


@pytest.fixture(scope="module")
def qwen(folder: Path) -> ChatLanguageModel:
    return named(folder / "qwen3", system="You reply in one line.")


@pytest.fixture(scope="module")
def llama(folder: Path) -> ChatLanguageModel:
    return named(folder / "llama", system="You reply in one line.")


@pytest.fixture(params=["qwen", "llama"])
def model(request: pytest.FixtureRequest) -> ChatLanguageModel:
    return cast(ChatLanguageModel, request.getfixturevalue(request.param))


def test_replies_hang_on_prompt_and_seed(model: ChatLanguageModel) -> None:
    replies = [model.complete(LanguageRequest("Name the colours of the bird.", seed), REPLY) for seed in (7, 7, 8)]
    assert replies[0] == replies[1] != replies[2]
    assert model.complete(LanguageRequest("a bird", 1), COLD) == model.complete(LanguageRequest("a bird", 2), COLD)
    assert model.complete(LanguageRequest("a bird", 1), COLD) != model.complete(LanguageRequest("a house", 1), COLD)


def test_the_prompt_stands_in_the_models_own_template(qwen: ChatLanguageModel, llama: ChatLanguageModel) -> None:
    head = "<|im_start|>system\nYou reply in one line.<|im_end|>\n<|im_start|>user\na bird<|im_end|>\n"
    assert qwen.chat("a bird") == f"{head}<|im_start|>assistant\n<think>\n\n</think>\n\n", "it is told not to think"
    assert llama.chat("a bird") == "<s>[INST] You reply in one line.\n\na bird [/INST]", "it refuses a system message"


def test_a_reply_ends_at_a_stop_and_holds_none(model: ChatLanguageModel) -> None:
    free = model.complete(LanguageRequest("a bird", 3), REPLY)
    stop = free[len(free) // 2 :][:2]
    assert model.complete(LanguageRequest("a bird", 3, stop=(stop,)), REPLY) == free[: free.index(stop)].strip()


def test_a_prompt_that_does_not_fit_is_refused(model: ChatLanguageModel) -> None:
    with pytest.raises(UserError, match=r"\d+ tokens long.*at most 1024 tokens"):
        model.complete(LanguageRequest("bird " * 1000, 0), REPLY)


def test_replies_of_random_weights_can_be_read_when_they_are_held(model: ChatLanguageModel) -> None:
    for (schema, read), longest in zip(WANTED, (60, 300, 30, 120), strict=True):
        assert read(
            model.complete(
                LanguageRequest("a bird", 3, schema=schema), LanguageSettings(max_new_tokens=longest, temperature=1)
            )
        )


def test_random_weights_choose_edits_among_those_that_are_offered_and_nothing_else(model: ChatLanguageModel) -> None:
    ticked = [("red", ("blue", "green")), ("sunny", ("snowy", "rainy")), ("by day", ("at night",))]
    asked = Alternatives(
        tuple(KeywordAlternatives(key, "attribute", tuple(map(Alternative, options))) for key, options in ticked)
    )
    bird, task = Caption(SUNNY_BIRD), Task("classification", label="bird")
    prompt = Prompt("x", "$task: $caption $alternatives", ("\nTask:",))
    settings = CounterfactualSettings(combinations="model", edits_at_once=2, temperature=1.0, max_new_tokens=160)
    pools, at_once = edit_pools(bird, asked, settings)
    offered, choices = {edit for pool in pools for edit in pool}, set[tuple[tuple[Edit, ...], ...]]()
    for seed in (0, 0, 10):
        choice = chosen_by_model(bird, pools, at_once, task, model, prompt, settings, seed)
        assert not choice.note and 1 <= len(choice.edits) <= settings.captions
        assert all(1 <= len(edits) <= 2 and set(edits) <= offered for edits in choice.edits)
        said = choice.sent[0].raw_reply.splitlines()
        assert all(" -> " in part for line in said[:-1] for part in line.split(";")), "nothing but edits in whole lines"
        choices.add(choice.edits)
    assert len(choices) <= 2, "the same seed gives the same choice"


def test_thoughts_are_bounded_counted_and_taken_off(folder: Path) -> None:
    model = named(folder / "qwen3", thinking=12)
    assert model.chat("a bird").endswith("<|im_start|>assistant\n")
    for schema, read in WANTED[::2]:
        before = model.thought
        reply = model.complete(
            LanguageRequest("a bird", 1, schema=schema), LanguageSettings(max_new_tokens=60, temperature=1)
        )
        said = read_reply(reply)
        assert read(said.answer) and said.thoughts and before < model.thought <= before + 12
        assert reply.startswith("<think>") and "think>" not in said.answer, "the trace keeps what it thought"
    with pytest.raises(UserError, match="at most 1024 tokens"):
        named(folder / "qwen3", thinking=1000).complete(LanguageRequest("a bird", 0), REPLY)


def test_random_weights_that_are_held_reply_to_the_one_request_in_json(qwen: ChatLanguageModel) -> None:
    caption, bird = Caption("A red bird in sunny weather."), Task("classification", label="bird")
    prompt, freely = Prompt("short", "$task $caption"), {"temperature": 1, "attempts": 1, "max_new_tokens": 300}
    wanted = AlternativeSettings(**freely, per_keyword=2)
    captions = CounterfactualSettings(**freely, captions=1)
    made = run_together(caption, bird, qwen, prompt, KeywordSettings(**freely), (wanted, captions))
    found = made.value.value
    assert found.items and all(item.text in caption.text and item.text != "bird" for item in found.items)
    some = run_alternatives(
        caption, found, bird, qwen, prompt, wanted, 0, early_reply=made.early_replies["alternatives"]
    )
    assert {item.keyword for item in some.value.items} == {item.text for item in found.items}
    assert any(option.text for item in some.value.items for option in item.options)
    new = run_counterfactuals(
        caption, some.value, bird, qwen, prompt, captions, 0, early_reply=made.early_replies["counterfactuals"]
    )
    assert new.value.items and new.trace.prompt.startswith(made.value.trace.prompt)
    assert "gave 0 of" in new.trace.notes[0], "its edits are noise, so the captions are asked for by themselves"


def several() -> list[LanguageRequest]:
    """Return requests of different lengths: three with a schema, two that differ only in their seed, one with a stop
    text.
    """
    asked = [LanguageRequest("a bird " * (1 + 7 * n % 5), seed=n, schema=WANTED[n % 3][0]) for n in range(3)]
    free = [LanguageRequest("Name the colours of the bird.", seed) for seed in (7, 8)]
    return [*asked, *free, LanguageRequest("a red bird in the snow", 3, stop=("e",))]


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_reply_is_the_same_whatever_is_asked_beside_it(folder: Path, kind: str, penalty: float) -> None:
    alone = named(folder / kind, repetition_penalty=penalty)
    settings = LanguageSettings(max_new_tokens=24, temperature=0.9)
    expected = [alone.complete(r, settings) for r in several()]
    assert len(set(expected)) == len(expected)
    for at_once in (6, 4):
        model = named(folder / kind, repetition_penalty=penalty, batch=at_once)
        assert isinstance(model, BatchLanguageModel)
        told = list[int]()
        assert list(model.complete_many(several(), settings, told.append)) == expected
        assert told == sorted(told) and told[-1] == len(expected)
    assert list(alone.complete_many(several()[::-1], COLD)) == [alone.complete(r, COLD) for r in several()[::-1]]


def test_thoughts_before_replies_that_are_written_together(folder: Path) -> None:
    alone, together = named(folder / "qwen3", thinking=12), named(folder / "qwen3", thinking=12)
    expected = [alone.complete(r, REPLY) for r in several()]
    assert list(together.complete_many(several(), REPLY)) == expected and together.thought == alone.thought > 0


def test_one_that_does_not_fit_is_no_harm_to_the_others(model: ChatLanguageModel) -> None:
    asked = several()[:2]
    long = LanguageRequest("bird " * 1000, 0)
    first, refused, second = model.complete_many([asked[0], long, asked[1]], REPLY)
    assert [first, second] == list(model.complete_many(asked, REPLY))
    assert isinstance(refused, UserError) and "at most 1024 tokens" in str(refused)


def test_too_many_for_the_memory_are_halved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = named(folder / "qwen3", batch=6)
    expected, sizes, generate = model.complete_many(several(), REPLY), list[int](), model._model.generate

    def short_of_memory(ids: Any, **more: Any) -> Any:
        sizes.append(len(ids))
        if len(ids) > limit:
            raise RuntimeError("CUDA out of memory.")
        return generate(ids, **more)

    monkeypatch.setattr(model._model, "generate", short_of_memory)
    limit = 2
    assert model.complete_many(several(), REPLY) == expected
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1], "6, half of it, half of that; and it is remembered"
    limit = 0
    with pytest.raises(RuntimeError, match="out of memory"):
        model.complete_many(several(), REPLY)


def test_replies_can_be_stopped_in_their_midst(model: ChatLanguageModel) -> None:
    stop, endless = threading.Event(), LanguageSettings(max_new_tokens=900, temperature=1)
    short = LanguageRequest("a bird", 0, schema=WANTED[2][0])
    with stoppable(stop), pytest.raises(Cancelled):
        stop.set()
        model.complete_many([short, LanguageRequest("a house", 1)], endless)
    assert model.complete(LanguageRequest("a bird", 7), REPLY), "and it goes on"


def test_thoughts_that_nobody_asked_for_are_taken_off_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    model = named(folder / "qwen3")

    def says(text: str) -> None:
        tokens = model._encode(text)

        def weigh(row: Any, scores: Any) -> None:
            scores.fill_(-torch.inf)
            scores[tokens[len(row.written)] if len(row.written) < len(tokens) else model._ends[0]] = 0

        monkeypatch.setattr(model, "_weigh", weigh)

    says("<think>the bird</think>red, blue")
    said = read_reply(model.complete(LanguageRequest("a bird", 0), LanguageSettings(max_new_tokens=60)))
    assert (said.answer, said.thoughts) == ("red, blue", "the bird") and model.thought > 0
    spent = model.thought
    says("<think>the bird is red and sits on a twig in sunny weather")
    with pytest.raises(UnreadableReply, match=r"longest reply \(12 tokens\) on thoughts and said nothing") as caught:
        model.complete(LanguageRequest("a bird", 0), REPLY)
    assert model.thought == spent + 12 and caught.value.raw_reply.startswith("<think>the bird")


def test_code_that_comes_with_weights_is_neither_run_nor_asked_for(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "llama", tmp_path / "own")
    (tmp_path / "own" / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    own = {"AutoConfig": "code.Own", "AutoModelForCausalLM": "code.Own", "AutoModelForImageTextToText": "code.Own"}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": own}))
    with pytest.raises(CannotLoad, match=r"brings code of its own, which the studio does not run"):
        named(tmp_path / "own")
    assert not (tmp_path / "ran").exists()


def test_a_model_that_was_not_made_to_chat_is_refused(folder: Path, tmp_path: Path) -> None:
    tiny.save_chat(tmp_path / "base", "llama", "")
    with pytest.raises(CannotLoad, match=r"has no chat template.*often called Instruct"):
        named(tmp_path / "base")
    with pytest.raises(CannotLoad, match=r"cannot be loaded .*get them again, or correct the profile"):
        (tmp_path / "base" / "config.json").write_text('{"model_type": "none-such"}')
        named(tmp_path / "base")


def test_a_text_is_as_likely_as_its_tokens(model: ChatLanguageModel) -> None:
    import torch

    tokens = model._tokenizer(SUNNY_BIRD, return_tensors="pt").input_ids
    with torch.inference_mode():
        said = torch.log_softmax(model._model(input_ids=tokens).logits[0].float(), -1)
    wanted = -said[:-1].gather(1, tokens[0, 1:, None]).mean()
    assert isinstance(model, ScoringLanguageModel) and model.score(SUNNY_BIRD) == pytest.approx(float(wanted), rel=1e-4)
    assert model.score("") == 0.0
