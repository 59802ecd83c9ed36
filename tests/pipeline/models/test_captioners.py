"""Captioners of the real classes at small size, loaded by the same code as the large ones, and two real servers.
One enforces reply schemas. `tests/pipeline/models/test_real_classes.py` tests BLIP-2's questions, and
`tests/pipeline/models/test_server.py` a server's faults.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import CannotLoad, UserError
from core.judgements import Judgement
from core.settings import CaptionSettings, LanguageSettings
from core.types import Edit, Task
from pipeline.checks.judge import Case, judge_all
from pipeline.models import load_models
from pipeline.models.captioner import Blip2, Florence2
from pipeline.models.captioner_chat import ChatVisionModel, ServedChatModel
from pipeline.models.server_language import ServedJudge, ServedLanguage
from pipeline.profiles.profile import load_profile
from pipeline.profiles.text_sections import (
    Blip2Captioner,
    ChatCaptioner,
    Florence2Captioner,
    JudgeSettings,
    ServerCaptioner,
    ServerJudge,
    ServerLanguage,
)
from pipeline.seams import BatchCaptioner, Captioner, CaptionRequest, LanguageRequest
from tests.support import tiny, tiny_captioners
from tests.support.server_process import free_port
from tests.support.serving import until

pytestmark = pytest.mark.slow

TASK = Task("classification", label="bird")
LIKELIEST = CaptionSettings(max_new_tokens=8)
WARM = CaptionSettings(max_new_tokens=8, temperature=1.0)
SIZES = ((97, 33), (7, 5), (9, 640))
"""Sizes of an odd, a small and a long picture."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny.save_blip2(folder / "blip-2")
    tiny_captioners.save_florence2(folder / "florence-2")
    tiny_captioners.save_qwen3_vl(folder / "qwen3-vl")
    tiny_captioners.save_idefics3(folder / "idefics3")
    return folder


def photo(seed: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (4, 6, 3), np.uint8)).resize(size, Image.Resampling.NEAREST)


def loaded(folder: Path, section: dict[str, Any]) -> Captioner:
    """Return the captioner of a profile with this section, written to a file and loaded like any profile."""
    text = (Path("pipeline/profiles/demo.toml")).read_text()
    start, end = text.index("[captioner]"), text.index("[language]")
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in section.items())
    (folder / "mine.toml").write_text(f"{text[:start]}[captioner]\n{lines}\n{text[end:]}")
    models = load_models(load_profile(str(folder / "mine.toml")))
    models.check()
    return models.captioner


@pytest.mark.parametrize(
    ("kind", "name", "made"),
    [
        ("florence-2", "florence-2", Florence2),
        ("chat", "qwen3-vl", ChatVisionModel),
        ("chat", "idefics3", ChatVisionModel),
    ],
)
def test_captions_depend_on_picture_seed_and_temperature(folder: Path, kind: str, name: str, made: type) -> None:
    captioner = loaded(folder, {"kind": kind, "path": str(folder / name)})
    assert isinstance(captioner, made) and captioner.name == str(folder / name)

    def say(picture: int, settings: CaptionSettings, seed: int) -> str:
        return captioner.caption(photo(picture), TASK, settings, seed)[0]

    assert len({say(picture, LIKELIEST, 0) for picture in (1, 2, 3)}) > 1, "it looks at the picture"
    assert say(1, LIKELIEST, 0) == say(1, LIKELIEST, 9), "the likeliest text hangs on no seed"
    texts = [say(1, WARM, seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    for size in SIZES:
        caption, _ = captioner.caption(photo(3, size), TASK, LIKELIEST.model_copy(update={"max_new_tokens": 8}), 0)
        assert caption and caption == caption.strip() and "<pad>" not in caption and "<|im_end|>" not in caption


# Several pictures at once


QUESTIONS = [
    {"prompt": "a photo of", "sentence": "A photo of $answer."},
    {"prompt": "Question: This picture is used for $task. What is it? Answer:"},
]
SEVERAL: list[dict[str, Any]] = [
    {"kind": "blip-2", "path": "blip-2", "questions": QUESTIONS},
    {"kind": "blip-2", "path": "blip-2", "samples": 3, "top_p": 0.9},
    {"kind": "florence-2", "path": "florence-2"},
    {"kind": "chat", "path": "qwen3-vl", "prompt": "This is for $task. What is it?"},
    {"kind": "chat", "path": "idefics3", "prompt": "This is for $task. What is it?"},
]
KINDS: dict[str, Any] = {
    "blip-2": (Blip2, Blip2Captioner),
    "florence-2": (Florence2, Florence2Captioner),
    "chat": (ChatVisionModel, ChatCaptioner),
}


def made(folder: Path, section: dict[str, Any]) -> Any:
    """Return the captioner of a section, which must accept several pictures at once."""
    model, kind = KINDS[section["kind"]]
    captioner = model(kind.model_validate({**section, "path": str(folder / section["path"])}))
    assert isinstance(captioner, BatchCaptioner)
    return captioner


def asked() -> list[CaptionRequest]:
    """Return requests for pictures of several sizes, with prompts of different lengths and different seeds."""
    labels = ["bird", "a very long name of a bird that nobody knows", "boat", "bird", "house"]
    sizes = [(96, 64), (40, 90), (96, 64), (128, 32), (64, 64)]
    return [
        CaptionRequest(photo(number, size), Task("classification", label=label), 10 + number)
        for number, (label, size) in enumerate(zip(labels, sizes, strict=True))
    ]


@pytest.mark.parametrize("section", SEVERAL, ids=lambda section: f"{section['path']}-{len(section)}")
def test_a_picture_is_captioned_among_others_as_it_is_alone(folder: Path, section: dict[str, Any]) -> None:
    captioner, requests = made(folder, section), asked()
    for settings in (LIKELIEST, LIKELIEST.model_copy(update={"beams": 2}), WARM):
        alone = [captioner.caption(one.image, one.task, settings, one.seed) for one in requests]
        passes = calls_of(captioner)
        assert captioner.caption_many(requests, settings) == alone
        assert len(set(alone)) > 2, "they differ"
        assert captioner.caption_many(requests[::-1], settings) == alone[::-1]
        assert passes and max(passes) >= 4, "and it did look at several"
    both = WARM.model_copy(update={"beams": 2})
    alone = [captioner.caption(one.image, one.task, both, one.seed) for one in requests[:2]]
    assert captioner.caption_many(requests[:2], both) == alone


def calls_of(captioner: Any) -> list[int]:
    """Record the number of pictures in each later call of `generate`."""
    sizes, generate = list[int](), type(captioner._model).generate

    def counted(**given: Any) -> Any:
        sizes.append(len(given["input_ids"]))
        return generate(captioner._model, **given)

    captioner._model.generate = counted
    return sizes


@pytest.mark.parametrize("section", SEVERAL[1:4], ids=lambda section: str(section["path"]))
def test_pictures_that_the_memory_does_not_hold_are_halved(folder: Path, section: dict[str, Any]) -> None:
    """A stand-in raises the error above a fixed number of pictures. The memory of a real GPU after it is not tested."""
    captioner, requests = made(folder, section), asked()[:4]
    expected, sizes, generate = captioner.caption_many(requests, WARM), list[int](), type(captioner._model).generate
    limit = 2

    def short_of_memory(**given: Any) -> Any:
        sizes.append(len(given["input_ids"]))
        if len(given["input_ids"]) > limit:
            raise RuntimeError("CUDA out of memory.")
        return generate(captioner._model, **given)

    captioner._model.generate = short_of_memory
    assert captioner.caption_many(requests, WARM) == expected
    assert captioner.caption_many(requests, WARM) == expected
    assert sizes == [4, 2, 2, 2, 2], "half of it, which is remembered"
    limit = 0
    with pytest.raises(RuntimeError, match="out of memory"):
        captioner.caption_many(requests, WARM)


def test_a_picture_that_a_chat_model_does_not_take_leaves_the_others_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captioner, requests = made(folder, SEVERAL[3]), asked()
    alone = [captioner.caption(one.image, one.task, LIKELIEST, one.seed) for one in requests]
    read = type(captioner._processor.image_processor).__call__

    def picky(processor: Any, images: Any, *given: Any, **more: Any) -> Any:
        if any(image.size == requests[3].image.size for own in images for image in own):  # one list per conversation
            raise ValueError("it is too wide")
        return read(processor, images, *given, **more)

    monkeypatch.setattr(type(captioner._processor.image_processor), "__call__", picky)
    said = captioner.caption_many(requests, LIKELIEST)
    assert isinstance(said[3], UserError) and "it is too wide" in str(said[3])
    assert [*said[:3], said[4]] == [*alone[:3], alone[4]]


def test_florence_is_asked_by_the_name_of_its_task(folder: Path) -> None:
    captioner = Florence2(Florence2Captioner(kind="florence-2", path=str(folder / "florence-2")))
    assert captioner.caption(photo(1), TASK, LIKELIEST, 0)[1] == "<MORE_DETAILED_CAPTION>"
    short = Florence2(Florence2Captioner(kind="florence-2", path=str(folder / "florence-2"), task="<CAPTION>"))
    assert short.caption(photo(1), TASK, LIKELIEST, 0)[0] != captioner.caption(photo(1), TASK, LIKELIEST, 0)[0]


# BLIP-2, asked as in the paper's released code


def test_blip2_joins_several_samples(folder: Path) -> None:
    section = Blip2Captioner(kind="blip-2", path=str(folder / "blip-2"), samples=3, top_p=0.9)
    captioner = Blip2(section)
    texts = [captioner.caption(photo(1), TASK, WARM, seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and texts[0][1] == "", "nothing is asked"
    one = Blip2(section.model_copy(update={"samples": 1}))
    assert len(texts[0][0]) > 2 * len(one.caption(photo(1), TASK, WARM, 1)[0])
    caption, _ = captioner.caption(photo(1), TASK, LIKELIEST, 0)
    assert caption == one.caption(photo(1), TASK, LIKELIEST, 0)[0], "the likeliest caption is only one"
    sure = Blip2(section.model_copy(update={"top_p": 1e-6}))
    assert len(sure.caption(photo(1), TASK, WARM, 1)[0]) < 1.5 * len(caption), "what is said thrice stands there once"


def test_blip2_is_asked_or_draws_samples() -> None:
    with pytest.raises(ValueError, match="either questions or samples"):
        Blip2Captioner(kind="blip-2", path="x", samples=2, questions=({"prompt": "What?"},))


# Chat models


def test_a_chat_model_reads_the_template_and_its_instruction(folder: Path) -> None:
    section = ChatCaptioner(kind="chat", path=str(folder / "qwen3-vl"), prompt="This is for $task. What is it?")
    captioner = ChatVisionModel(section)
    caption, prompt = captioner.caption(photo(1), TASK, LIKELIEST, 0)
    assert prompt == "This is for image classification with the label bird. What is it?"
    encoded = captioner.encode([photo(1)], [prompt])
    read = captioner._processor.decode(encoded["input_ids"][0])
    assert (
        read.startswith("<|im_start|>user\n<|vision_start|><|image_pad|>")
        and f"<|vision_end|>{prompt}<|im_end|>" in read
    )
    assert read.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n"), "thinking is switched off"
    thinking = ChatVisionModel(section.model_copy(update={"thinking": True}))
    assert "<think>" not in thinking._processor.decode(thinking.encode([photo(1)], [prompt])["input_ids"][0])
    other = ChatVisionModel(section.model_copy(update={"prompt": "Name the colours."}))
    assert other.caption(photo(1), TASK, LIKELIEST, 0)[0] != caption


def test_a_chat_model_sees_no_more_pixels_than_the_profile_allows(folder: Path) -> None:
    def patches(**section: Any) -> int:
        captioner = ChatVisionModel(ChatCaptioner(kind="chat", path=str(folder / "qwen3-vl"), **section))
        return int(captioner.encode([photo(1, (200, 100))], ["What?"])["pixel_values"].shape[0])

    assert patches(max_pixels=5000) * 64 <= 6000 < patches() * 64
    assert patches(image_options={"size": {"shortest_edge": 1024, "longest_edge": 64 * 64}}) < patches()

    def parts(cut: bool) -> int:
        options = {"do_image_splitting": cut}
        captioner = ChatVisionModel(ChatCaptioner(kind="chat", path=str(folder / "idefics3"), image_options=options))
        return int(captioner.encode([photo(1)], ["What?"])["pixel_values"].shape[1])

    assert parts(cut=False) == 1 < parts(cut=True)


def test_a_chat_model_that_would_not_look_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "qwen3-vl", tmp_path / "blind")
    template = tmp_path / "blind" / "chat_template.jinja"
    template.write_text(re.sub(r"<.vision_start.*?vision_end.>", "", template.read_text()))
    with pytest.raises(CannotLoad, match="has no place for a picture"):
        ChatVisionModel(ChatCaptioner(kind="chat", path=str(tmp_path / "blind")))
    strange = ChatVisionModel(
        ChatCaptioner(kind="chat", path=str(folder / "qwen3-vl"), image_options={"merge_size": "two"})
    )
    with pytest.raises(UserError, match=r"does not take this picture \(.*\): .*image_options"):
        strange.caption(photo(1), TASK, LIKELIEST, 0)
    with pytest.raises(CannotLoad, match="has no chat template"):
        ChatVisionModel(ChatCaptioner(kind="chat", path=str(folder / "blip-2")))
    with pytest.raises(CannotLoad, match="cannot be loaded"):
        ChatVisionModel(ChatCaptioner(kind="chat", path=str(tmp_path)))


SHORT = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "minLength": 1, "maxLength": 12},
        "answer": {"type": "string", "enum": ["yes", "no", "cannot tell"]},
    },
    "required": ["reason", "answer"],
    "additionalProperties": False,
}
"""Schema of a judge's reply with a short reason, which random weights reach the end of."""


@pytest.mark.parametrize("name", ["qwen3-vl", "idefics3"])
def test_the_captioner_judges_two_pictures_in_the_form_of_the_schema(folder: Path, name: str) -> None:
    judge = ChatVisionModel(ChatCaptioner(kind="chat", path=str(folder / name)))
    settings = LanguageSettings(temperature=1.0, max_new_tokens=100)

    def reply(seed: int, *pictures: Image.Image, prompt: str = "Is it whole?") -> str:
        return judge.complete(LanguageRequest(prompt, seed, schema=SHORT, pictures=pictures), settings)

    replies = [reply(seed, photo(1), photo(2)) for seed in range(4)]
    assert all(json.loads(one)["answer"] in ("yes", "no", "cannot tell") for one in replies)
    assert len(set(replies)) > 1 and replies[3] == reply(3, photo(1), photo(2)), "each reply by its own seed"
    assert replies[3] != reply(3, photo(1), photo(5)) or replies[0] != reply(0, photo(1), photo(5)), "it sees both"
    before = judge.tokens
    reply(3, photo(1))
    one = judge.tokens - before
    reply(3, photo(1), photo(2))
    assert judge.tokens - before - one > 0 < one, "tokens of pictures, prompt and reply are counted"
    free = judge.complete(LanguageRequest("Is it whole?", 0, pictures=(photo(1),)), settings)
    assert free and not free.startswith("{"), "without a schema it says what it likes"


def test_a_profile_may_take_its_captioner_as_the_judge(folder: Path, tmp_path: Path) -> None:
    text = Path("pipeline/profiles/demo.toml").read_text()
    start, end = text.index("[captioner]"), text.index("[language]")
    chat = f'[captioner]\nkind = "chat"\npath = "{folder / "qwen3-vl"}"\n\n'
    judge = '[judge]\nkind = "captioner"\nsettings = { max_new_tokens = 8, attempts = 2 }\n\n'
    (tmp_path / "mine.toml").write_text(text[:start] + chat + judge + text[end:])
    models = load_models(load_profile(str(tmp_path / "mine.toml")))
    section = models.profile.judge
    assert section is not None and models.profile.judge_title == str(folder / "qwen3-vl")
    case = Case(photo(1), photo(2), TASK, (Edit("red", "blue", "attribute"),))
    (judged,) = judge_all(models.judge, [case], section.settings)
    assert isinstance(judged, Judgement) and models.loaded == ("captioner",), "it is loaded once"
    assert [check.passed for check in judged.checks] == [None] * 4, "eight tokens are too few for an answer"
    assert all("cannot be read" in check.note for check in judged.checks)
    assert all(reply.attempts == 2 and reply.reply.startswith("{") for reply in judged.replies.values())
    assert judged.seconds > 0 and judged.tokens is not None and judged.tokens > 100
    (tmp_path / "blind.toml").write_text(text.replace("[language]", '[judge]\nkind = "captioner"\n\n[language]'))
    with pytest.raises(UserError, match="takes a captioner of the kind 'chat'"):
        load_profile(str(tmp_path / "blind.toml"))


# Real servers


@pytest.fixture(scope="module")
def transformers_serve(folder: Path) -> Iterator[str]:
    """Address of the pinned transformers' server with the tiny chat model that sees pictures. It ignores schemas."""
    from transformers.cli.serve import Serve

    port, told = free_port(), logging.getLogger("transformers").level
    serve = Serve(
        str(folder / "qwen3-vl"), host="127.0.0.1", port=port, device="cpu", log_level="error", non_blocking=True
    )
    try:
        until(lambda: serve.server.started)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        serve.kill_server()
        logging.getLogger("transformers").setLevel(told)


def test_a_server_says_what_the_same_weights_say_here(folder: Path, transformers_serve: str) -> None:
    name = str(folder / "qwen3-vl")
    served = ServedChatModel(ServerCaptioner(kind="openai", address=transformers_serve, model=name))
    here = ChatVisionModel(ChatCaptioner(kind="chat", path=name))
    for picture in (photo(1), photo(3, (97, 33))):
        assert served.caption(picture, TASK, LIKELIEST, 0) == here.caption(picture, TASK, LIKELIEST, 0)
    warm = [served.caption(photo(1), TASK, WARM, seed)[0] for seed in (1, 1, 2)]
    assert warm[0] == warm[1] != warm[2]


def test_a_server_that_ignores_schemas_is_seen_through(folder: Path, transformers_serve: str) -> None:
    section = ServerLanguage(kind="openai", address=transformers_serve, model=str(folder / "qwen3-vl"))
    model = ServedLanguage(section)
    assert model.holds == "none" and model.name.endswith(", schema none")
    settings = LanguageSettings(temperature=0, max_new_tokens=8)
    reply = model.complete(LanguageRequest("a red bird", 0, schema={"type": "object"}), settings)
    assert (
        reply
        == model.complete(LanguageRequest("a red bird", 0), settings)
        != model.complete(LanguageRequest("a house", 0), settings)
    )
    asked = ["a house", "a red bird", "a twig"]
    alone = [model.complete(LanguageRequest(text, 0), settings) for text in asked]
    assert list(model.complete_many([LanguageRequest(text, 0) for text in asked], settings)) == alone


def test_a_judge_on_a_real_server_sees_the_pictures(folder: Path, transformers_serve: str) -> None:
    """Random weights give hardly an answer. Then a factor cannot tell, and nothing fails."""
    section = ServerJudge(kind="openai", address=transformers_serve, model=str(folder / "qwen3-vl"))
    judge, settings = ServedJudge(section), JudgeSettings(max_new_tokens=8, attempts=2, temperature=0)
    edits = (Edit("red", "blue", "attribute"),)
    (one,), (other,) = (judge_all(judge, [Case(photo(1), photo(seed), TASK, edits)], settings) for seed in (2, 5))
    assert isinstance(one, Judgement) and isinstance(other, Judgement)
    assert len(one.checks) == 4 and any("cannot be read" in check.note for check in one.checks)
    assert [reply.reply for reply in one.replies.values()] != [reply.reply for reply in other.replies.values()]
    assert one.tokens is not None and one.tokens > 100, "this server reports its tokens"


@pytest.fixture(scope="module")
def holding_server(folder: Path) -> Iterator[str]:
    """Address of a server with a tiny chat LLaMA, whose replies always fit the schema of choices."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny_captioners.save_chat_llama(folder / "llama")
    tokenizer = AutoTokenizer.from_pretrained(folder / "llama")
    model = AutoModelForCausalLM.from_pretrained(folder / "llama").eval()
    pieces = {number: tokenizer.decode([number]) for number in range(len(tokenizer))}
    application = FastAPI()

    def held(schema: dict[str, Any], start: int) -> Any:
        """Return a function that allows only tokens that continue one of the possible replies."""
        choices = [part.get("enum", [False, True]) for part in schema["properties"].values()]
        names = list(schema["properties"])
        texts = [json.dumps(dict(zip(names, values, strict=True))) for values in itertools.product(*choices)]

        def allowed(_row: int, ids: torch.Tensor) -> list[int]:
            said = tokenizer.decode(ids[start:])
            if said in texts:
                return [tokenizer.eos_token_id]
            return [
                number for number, piece in pieces.items() if piece and any(t.startswith(said + piece) for t in texts)
            ]

        return allowed

    @application.post("/v1/chat/completions")
    def chat(body: dict[str, Any]) -> dict[str, Any]:
        given = tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        start = given["input_ids"].shape[1]
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        torch.manual_seed(body["seed"])
        with torch.inference_mode():
            ids = model.generate(
                **given,
                max_new_tokens=body["max_tokens"],
                do_sample=body["temperature"] > 0,
                prefix_allowed_tokens_fn=held(schema, start) if schema else None,
            )[0, start:]
        message = {"role": "assistant", "content": tokenizer.decode(ids, skip_special_tokens=True)}
        cut = len(ids) == body["max_tokens"] and ids[-1] != tokenizer.eos_token_id
        return {"choices": [{"message": message, "finish_reason": "length" if cut else "stop"}]}

    port = free_port()
    running = uvicorn.Server(uvicorn.Config(application, port=port, log_level="error"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    until(lambda: running.started)
    yield f"http://127.0.0.1:{port}/v1"
    running.should_exit = True
    thread.join()


def test_a_server_that_holds_schemas_always_gives_what_fits(holding_server: str) -> None:
    model = ServedLanguage(ServerLanguage(kind="openai", address=holding_server, model="llama"))
    assert model.holds == "held" and model.name == "llama by a server, schema held"
    schema = {"properties": {"weather": {"enum": ["sunny", "snowy", "at night"]}, "kept": {"type": "boolean"}}}
    settings = LanguageSettings(temperature=1.0, max_new_tokens=60)
    replies = [
        json.loads(model.complete(LanguageRequest("a red bird", seed, ("sunny",), schema), settings))
        for seed in range(6)
    ]
    assert all(set(reply) == {"weather", "kept"} for reply in replies)
    assert len({reply["weather"] for reply in replies}) > 1, "it chooses among what fits"
    again = json.loads(model.complete(LanguageRequest("a red bird", 5, ("sunny",), schema), settings))
    assert again == replies[5]
    asked = [LanguageRequest("a red bird", seed, ("sunny",), schema) for seed in range(4)]
    together = model.complete_many(asked, settings)
    assert all(json.loads(str(reply)).keys() == {"weather", "kept"} for reply in together), "several at once"
