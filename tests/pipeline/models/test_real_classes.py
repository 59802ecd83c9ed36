"""The paper's profile with the real classes at small size, through the same code as the demo."""

from __future__ import annotations

import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import Cancelled, UserError
from core.settings import CaptionSettings, ConditioningSettings, GenerationSettings, LanguageSettings
from core.types import CounterfactualCaption, Edit, Task
from pipeline.conditioning import condition
from pipeline.methods.controlnet import CONTROL_IMAGE, CONTROLNET, ControlNetSettings
from pipeline.models import Models, load_models
from pipeline.profiles.profile import PROFILES, Profile
from pipeline.recipes import DILLEMA
from pipeline.seams import BatchEmbedder, LanguageRequest, Source
from tests.support import tiny
from tests.support.made_once import MadeOnce
from tests.support.scripted import one_case, one_image

pytestmark = pytest.mark.slow

TASK = Task("classification", label="bird")
QUICK = GenerationSettings(steps=4, short_side=64, guidance=5.0)
REPLY = LanguageSettings(max_new_tokens=24, temperature=0.8)


def paper_at(folder: Path, **changes: Any) -> Profile:
    """Return the paper's profile with local paths instead of hub ids, and `changes` to its sections.

    The language model uses one thread, since several would wait for each other on a busy machine.
    """
    data = tomllib.loads((PROFILES / "paper.toml").read_text())
    sections = {name: data[name] for name in ("captioner", "language", "generator", "embedder")}
    nets = data["generator"]["controlnets"]
    # `tests/pipeline/test_detectors.py` tests the detectors.
    data["generator"]["controlnets"] = nets = {kind: net for kind, net in nets.items() if "detector" not in net}
    data["settings"]["conditioning"]["kind"] = "canny"
    for section in nets.values():
        del section["hub"]
        section["path"] = str(folder / "controlnet")
    for name, section in sections.items():
        del section["hub"]
        section["path"] = str(folder / name)
    data["language"]["threads"] = 1
    for section, values in changes.items():
        data[section] |= values
    return Profile.model_validate(data)


@pytest.fixture(scope="module")
def folder(made_once: MadeOnce) -> Path:
    return tiny.paper_models(made_once)


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    found = load_models(paper_at(folder))
    found.check()
    return found


def photo(seed: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (4, 6, 3), np.uint8)).resize(size, Image.Resampling.NEAREST)


def control(seed: int = 0) -> Image.Image:
    return condition(photo(seed), ConditioningSettings())


def nothing(_done: int, _total: int) -> None:
    pass


# BLIP-2


def test_blip2_captions_depend_on_the_picture(models: Models) -> None:
    settings = CaptionSettings(max_new_tokens=12)
    (a, prompts), (b, _) = (models.captioner.caption(photo(i), TASK, settings, 0) for i in (1, 2))
    assert a and a != b
    assert models.captioner.caption(photo(1), TASK, settings, 0)[0] == a
    assert "image classification with the label bird" in prompts and len(prompts.splitlines()) == 5


def test_blip2_sentences_come_from_the_profile_and_hold_no_prompt(models: Models) -> None:
    caption, _ = models.captioner.caption(photo(3), TASK, CaptionSettings(max_new_tokens=8), 0)
    assert caption.startswith("A photo of ") and "The weather is " in caption and caption.endswith(".")
    assert "Question:" not in caption and "<image>" not in caption


def test_blip2_temperature_and_seed(models: Models) -> None:
    settings = CaptionSettings(max_new_tokens=12, temperature=1.5)
    texts = [models.captioner.caption(photo(1), TASK, settings, seed)[0] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_blip2_that_marks_no_place_for_the_picture_is_refused(tmp_path: Path, folder: Path) -> None:
    tiny.save_blip2(tmp_path / "old", places=0)
    old = load_models(paper_at(folder, captioner={"path": str(tmp_path / "old")}))
    with pytest.raises(UserError, match="does not mark where the picture goes"):
        old.captioner.caption(photo(1), TASK, CaptionSettings(), 0)


# LLaMA in GGUF


def test_llama_is_repeatable_by_seed(models: Models) -> None:
    replies = [
        models.language.complete(LanguageRequest("Name the colours of the bird.", seed), REPLY) for seed in (7, 7, 8)
    ]
    assert replies[0] == replies[1] != replies[2]
    cold = REPLY.model_copy(update={"temperature": 0.0})
    assert models.language.complete(LanguageRequest("a bird", 1), cold) == models.language.complete(
        LanguageRequest("a bird", 2), cold
    )


def test_llama_reads_the_chat_template(folder: Path) -> None:
    cold = REPLY.model_copy(update={"temperature": 0.0})
    replies = {
        load_models(paper_at(folder, language=change)).language.complete(LanguageRequest("a bird", 0), cold)
        for change in ({}, {"chat_template": "$prompt"}, {"system": "You reply in one line."})
    }
    assert len(replies) == 3


def test_llama_stops_where_it_is_told(models: Models) -> None:
    free = models.language.complete(LanguageRequest("a bird", 3), REPLY)
    stop = re.findall("[a-zA-Z]{2}", free)[1]
    assert (
        models.language.complete(LanguageRequest("a bird", 3, stop=(stop,)), REPLY) == free[: free.index(stop)].strip()
    )


def test_llama_refuses_what_does_not_fit_and_goes_on(models: Models) -> None:
    with pytest.raises(UserError, match=r"\d+ tokens long.*at most 4096 tokens"):
        models.language.complete(LanguageRequest("bird " * 5000, 0), REPLY)
    assert models.language.complete(LanguageRequest("a bird", 0), REPLY)


def test_llama_takes_any_letters(models: Models) -> None:
    # One letter may need four tokens, more than the library's own buffer holds.
    for text in ("🦜" * 300, "鳥" * 300, "a\0b", ""):
        assert isinstance(models.language.complete(LanguageRequest(text, 0), REPLY), str)


def test_llama_survives_four_callers_at_once(models: Models) -> None:
    def ask(seed: int) -> str:
        return models.language.complete(LanguageRequest("Name the colours of the bird.", seed % 3), REPLY)

    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(ask, range(12)))
    assert replies == [ask(seed) for seed in range(12)]


# Stable Diffusion with a ControlNet


def test_same_seed_same_pixels_and_other_seed_others(models: Models) -> None:
    images = [np.asarray(one_image(models.generator, "a bird", control(), QUICK, seed, nothing)) for seed in (5, 5, 6)]
    assert images[0].shape == (64, 96, 3)
    assert np.array_equal(images[0], images[1]) and not np.array_equal(images[0], images[2])


def test_prompt_and_edges_reach_the_image(models: Models) -> None:
    def draw(prompt: str, edges: Image.Image, **changes: object) -> np.ndarray:
        return np.asarray(one_image(models.generator, prompt, edges, QUICK.model_copy(update=changes), 5, nothing))

    first = draw("a bird", control())
    assert not np.array_equal(first, draw("a house", control()))
    assert not np.array_equal(first, draw("a bird", control(1)))
    assert not np.array_equal(first, draw("a bird", control(), control_strength=0.2))
    assert not np.array_equal(first, draw("a bird", control(), negative_prompt="blurred"))


def test_the_end_of_a_long_prompt_counts(models: Models) -> None:
    long = "a photo of a very long road " * 6
    bird, house = (one_image(models.generator, long + end, control(), QUICK, 5, nothing) for end in ("bird", "house"))
    assert not np.array_equal(np.asarray(bird), np.asarray(house))


def test_a_short_prompt_is_read_as_the_stock_pipeline_reads_it(models: Models) -> None:
    generator: Any = models.generator
    wanted, unwanted = generator.embeddings("a bird", "blurred")
    stock = generator._pipe.encode_prompt("a bird", generator._device, 1, True, "blurred")
    assert wanted.equal(stock[0]) and unwanted.equal(stock[1])


def test_the_scheduler_comes_from_the_profile(models: Models, folder: Path) -> None:
    generator: Any = models.generator
    assert type(generator._pipe.scheduler).__name__ == "UniPCMultistepScheduler"
    wrong = load_models(paper_at(folder, generator={"scheduler": {"name": "MagicScheduler"}}))
    with pytest.raises(UserError, match="MagicScheduler"):
        _ = wrong.generator


@pytest.mark.parametrize("at", [1, 3, 4])
def test_cancel_stops_at_the_step_and_the_next_image_is_whole(models: Models, at: int) -> None:
    before = np.asarray(one_image(models.generator, "a bird", control(), QUICK, 5, nothing))
    seen = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done == at:
            raise Cancelled

    with pytest.raises(Cancelled):
        one_image(models.generator, "a bird", control(), QUICK, 5, stop)
    assert seen == [(step, 4) for step in range(1, at + 1)]
    assert np.array_equal(before, np.asarray(one_image(models.generator, "a bird", control(), QUICK, 5, nothing)))


def test_what_the_safety_checker_flags_is_refused(tmp_path: Path, folder: Path) -> None:
    tiny.save_stable_diffusion(tmp_path / "sd", tmp_path / "control", safety_checker=True)
    paths = {"path": str(tmp_path / "sd")}
    with pytest.raises(UserError, match="safety checker"):
        one_image(load_models(paper_at(folder, generator=paths)).generator, "a bird", control(), QUICK, 5, nothing)
    free = load_models(paper_at(folder, generator={**paths, "safety_checker": False}))
    assert one_image(free.generator, "a bird", control(), QUICK, 5, nothing).size == (96, 64)


# CLIP, and all models together


def test_clip_gives_unit_vectors(models: Models) -> None:
    vectors = [models.embedder.image(photo(1)), models.embedder.text("a bird"), models.embedder.text("a bird " * 100)]
    assert [len(vector) for vector in vectors] == [16] * 3
    for vector in vectors:
        assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-5)
    assert vectors[0] != pytest.approx(models.embedder.image(photo(2)))
    model: Any = models.embedder

    def computed(*_: object) -> None:
        pytest.fail("what was asked before is remembered")

    for part in (model._model.vision_model, model._model.text_model):
        with part.register_forward_pre_hook(computed):
            assert [model.image(photo(1)), model.text("a bird")] == vectors[:2]


def test_clip_reads_several_texts_at_once_as_it_reads_each_alone(folder: Path) -> None:
    texts = ["a bird", "a house", "", *(f"a bird sits on twig {n} in sunny weather" for n in range(9)), "a bird " * 100]
    one, several = (load_models(paper_at(folder)).embedder for _ in range(2))
    assert isinstance(several, BatchEmbedder)
    alone = [one.text(text) for text in texts]
    passes = list[tuple[int, ...]]()
    model: Any = several
    with model._model.text_model.register_forward_pre_hook(
        lambda _part, _given, named: passes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    ):
        together = several.texts(texts)
        assert passes == [(8, 16), (8, 32), (8, 32), (8, 77)], "by length, each filled up to the same size"
        assert several.texts([*texts[::-1], "a bird"]) == [*together[::-1], together[0]] and len(passes) == 4
    for vector, expected in zip(together, alone, strict=True):
        assert vector == pytest.approx(expected, abs=1e-6)
    pictures, seen = [photo(seed, size) for seed, size in enumerate([(96, 64), (40, 90), (64, 64)] * 2)], list[int]()
    with model._model.vision_model.register_forward_pre_hook(
        lambda _part, _given, named: seen.append(len(named["pixel_values"])), with_kwargs=True
    ):
        vectors = several.images(pictures)
    assert seen == [4, 4]
    for vector, picture in zip(vectors, pictures, strict=True):
        assert vector == pytest.approx(one.image(picture), abs=1e-6)


def test_the_method_brings_the_image_back_to_the_source(models: Models) -> None:
    method = CONTROLNET.with_models(models, DILLEMA.prompts("paper"))
    counterfactual = CounterfactualCaption("A bird at night.", (Edit("by day", "at night", "time of day"),))
    source = photo(4, (130, 90))
    prepared = method.prepare(Source(source, TASK), ControlNetSettings(generation=QUICK))
    case = one_case(method, prepared, counterfactual, 11, nothing)
    assert case.image.size == case.artifacts[CONTROL_IMAGE].size == source.size
    assert "A bird at night." in case.lineage.prompt and "bird" in case.lineage.prompt
    assert case.lineage.settings == ControlNetSettings(generation=QUICK) and QUICK.steps == 4
    assert case.lineage.seconds > 0 and {"edges kept", "edit shows"} <= {check.name for check in case.checks}
    again = one_case(method, prepared, counterfactual, 11, nothing)
    assert np.array_equal(np.asarray(case.image), np.asarray(again.image))


def test_damaged_weights_are_a_clear_word(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "captioner").mkdir()
    (tmp_path / "captioner" / "config.json").write_text("{}")
    (tmp_path / "model.gguf").write_bytes(b"GGUF not really")
    broken = load_models(
        paper_at(
            folder,
            captioner={"path": str(tmp_path / "captioner")},
            language={"path": str(tmp_path / "model.gguf"), "file": ""},
        )
    )
    with pytest.raises(UserError, match=r"captioner at .* cannot be loaded"):
        _ = broken.captioner
    with pytest.raises(UserError, match=r"language model at .* cannot be loaded"):
        _ = broken.language


@pytest.mark.parametrize("role", ["captioner", "embedder"])
def test_weights_go_from_the_files_to_where_they_stay(role: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device "meta" represents a GPU: no part of the model was on the CPU before."""
    import torch
    from transformers import PreTrainedModel

    moved = list[set[str]]()
    move = PreTrainedModel.to

    def watched(model: Any, *given: Any, **more: Any) -> Any:
        moved.append({weights.device.type for weights in model.parameters()})
        return move(model, *given, **more)

    monkeypatch.setattr(PreTrainedModel, "to", watched)
    monkeypatch.setattr(f"pipeline.models.{role}.pick_device", lambda: "meta")
    monkeypatch.setattr(f"pipeline.models.{role}.pick_dtype", lambda *_: torch.float16)
    assert getattr(load_models(paper_at(folder)), role) and moved == [{"meta"}]
