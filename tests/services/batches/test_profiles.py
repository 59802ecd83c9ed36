"""A whole batch by the profile `paper` with its model classes at small size. `make soak` also makes one by `fast`, and
compares its images with those of two worker processes.

The captioners are random, except that they are taught captions of a few drawn things. The language model is the demo's:
for `paper` the GGUF file, for `fast` a chat model of transformers. The generator and the embedder are random.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.model_sections import ROOT
from demo.language import caption
from demo.render import render
from demo.scene import random_scene
from pipeline.models.captioner import Blip2
from pipeline.models.captioner_chat import ChatVisionModel
from pipeline.profiles.profile import PROFILES, Profile
from pipeline.profiles.text_sections import Blip2Captioner, ChatCaptioner
from services.batches import planning
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import read_plan
from services.batches.pools import HerePool, Pool, ProcessPool
from services.batches.service import BatchService
from tests.support import tiny, tiny_captioners
from tests.support.batch_cases import batch_images
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

SOURCES, CAPTIONS = 3, 2
ASKED = "a photo of"
"""Prompt that the captioners are trained with."""
SURE = 0.8
"""Training ends when each word of the captions has a higher probability than this."""
LLAMA = ROOT / "demo" / "weights" / "llama"
SETTINGS = (
    '"generation.steps" = 2, "generation.short_side" = 64, "generation.batch" = 4, "conditioning.kind" = "canny", '
    '"caption.max_new_tokens" = 120, "keywords.max_new_tokens" = 120, "alternatives.max_new_tokens" = 120, '
    '"alternatives.temperature" = 0.8, "counterfactuals.max_new_tokens" = 80, "counterfactuals.edits_at_once" = 1'
)
"""The demo's language model has a context of 512 tokens, and works best with one edit at a time."""


@dataclass(frozen=True)
class Hub:
    """Folder of small weights, and the pictures whose captions the captioners learn."""

    folder: Path
    captions: Mapping[str, str]
    """Caption of each picture by its key in the data set."""
    pictures: tuple[Image.Image, ...]

    @property
    def data(self) -> Path:
        return self.folder / "data"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    folder, pictures, captions = tmp_path_factory.mktemp("hub"), list[Image.Image](), dict[str, str]()
    for number in range(SOURCES):
        scene = random_scene(777_000 + number, "object")
        key = f"test/{scene.label}/{number}.png"
        (folder / "data" / key).parent.mkdir(parents=True, exist_ok=True)
        pictures.append(Image.fromarray(render(scene, 64)[0]))
        pictures[-1].save(folder / "data" / key)
        captions[key] = caption(scene)
    tiny.save_stable_diffusion(folder / "generator", folder / "controlnet")
    tiny.save_clip(folder / "embedder")
    return Hub(folder, captions, tuple(pictures))


def save_what_writes(name: str, hub: Hub) -> None:
    """Save the captioner of a profile, and for `fast` its language model. `paper` uses the demo's language model."""
    captioner: Blip2 | ChatVisionModel
    if name == "paper":
        folder = hub.folder / "blip-2"
        tiny.save_blip2(folder)
        captioner = Blip2(Blip2Captioner(kind="blip-2", path=str(folder)))
    else:
        folder = hub.folder / "qwen3-vl"
        tiny_captioners.save_qwen3_vl(folder)
        captioner = ChatVisionModel(ChatCaptioner(kind="chat", path=str(folder)))
        save_chat_llama(hub.folder / "llama")
    teach(captioner, hub.pictures, list(hub.captions.values()), folder)


def teach(captioner: Any, pictures: Sequence[Image.Image], texts: Sequence[str], folder: Path) -> None:
    """Train a small captioner to give each picture its text, and save it."""
    import torch

    model, tokenizer = captioner._model, captioner._processor.tokenizer
    encoded = captioner.encode(pictures, [ASKED] * len(pictures))
    said = [[*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id] for text in texts]
    longest = max(map(len, said))
    replies = torch.tensor([row + [tokenizer.eos_token_id] * (longest - len(row)) for row in said])
    wanted = torch.tensor([row + [-100] * (longest - len(row)) for row in said])
    given = {
        **encoded,
        "input_ids": torch.cat([encoded["input_ids"], replies], 1),
        "attention_mask": torch.cat([encoded["attention_mask"], torch.ones_like(replies)], 1),
        "labels": torch.cat([torch.full_like(encoded["input_ids"], -100), wanted], 1),
    }
    if "mm_token_type_ids" in encoded:
        given["mm_token_type_ids"] = torch.cat([encoded["mm_token_type_ids"], torch.zeros_like(replies)], 1)
    torch.manual_seed(0)
    steps = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0)
    model.train()
    rows, places = (wanted >= 0).nonzero(as_tuple=True)
    before = encoded["input_ids"].shape[1] - 1  # position whose logits predict the first word of a reply
    for _ in range(1000):
        found = model(**given)
        shares = found.logits[rows, before + places].softmax(-1)
        if shares[torch.arange(len(rows)), wanted[rows, places]].min() > SURE:
            break
        steps.zero_grad()
        found.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
    else:
        raise AssertionError(f"it has not learned the captions: {float(found.loss)}")
    model.eval().save_pretrained(folder)


def save_chat_llama(folder: Path) -> None:
    """Save the demo's language model as a chat model of transformers. Its chat template is the plain prompt."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(LLAMA, gguf_file="model.gguf")
    tokenizer.chat_template = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    read = AutoModelForCausalLM.from_pretrained(LLAMA, gguf_file="model.gguf")
    del read.config.quantization_config  # save it unquantised, like other models of transformers
    model = LlamaForCausalLM(read.config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def small(name: str, hub: Hub) -> Profile:
    """Return the profile with small weights instead of the hub's, and with the prompts of the demo's language model."""
    data = tomllib.loads((PROFILES / f"{name}.toml").read_text())
    path = {"captioner": "qwen3-vl", "language": "llama", "generator": "generator", "embedder": "embedder"}
    if name == "paper":
        path["captioner"] = "blip-2"
        data["captioner"]["questions"] = [{"prompt": ASKED}]
        data["language"] |= {"chat_template": "$prompt", "threads": 1, "file": ""}
    else:
        data["captioner"]["prompt"] = ASKED
    data["prompts"] = "demo"
    data["language"] |= {"system": "", "context_length": 512, "repetition_penalty": 1.0}
    data["generator"]["safety_checker"] = False
    data["generator"]["controlnets"] = {"canny": data["generator"]["controlnets"]["canny"]}
    for role, where in path.items():
        del data[role]["hub"]
        data[role]["path"] = str(hub.folder / where)
    if name == "paper":
        data["language"]["path"] = str(LLAMA / "model.gguf")
    canny = data["generator"]["controlnets"]["canny"]
    del canny["hub"]
    canny["path"] = str(hub.folder / "controlnet")
    data["settings"]["conditioning"]["kind"] = "canny"
    return Profile.model_validate(data)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute with one thread, like worker processes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


HERE: Mapping[str, Callable[[Order], Pool]] = {"here": HerePool}
AND_IN_TWO_PROCESSES = {**HERE, "two": partial(ProcessPool, workers=2)}


@pytest.mark.demo
@pytest.mark.parametrize("name", ["paper", pytest.param("fast", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "pools", [HERE, pytest.param(AND_IN_TWO_PROCESSES, marks=pytest.mark.soak)], ids=["here", "and in two processes"]
)
def test_a_batch_makes_its_images_and_the_same_in_any_process(
    name: str,
    pools: Mapping[str, Callable[[Order], Pool]],
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
) -> None:
    save_what_writes(name, hub)
    monkeypatch.setattr(planning, "SOURCES_OF_A_LOT", 2)  # gives two workers something to do
    file = tmp_path / "plan.toml"
    file.write_text(
        f'name = "Drawn things"\n[data]\nroot = "{hub.data}"\nlayout = "imagefolder"\nsplit = "test"\n'
        f'[task]\nkind = "classification"\n[make]\nprofile = "{name}"\nsettings = {{ {SETTINGS} }}\n'
        f"[edits]\ncaptions_a_source = {CAPTIONS}\n",
        encoding="utf-8",
    )
    images = []
    for where, pool in pools.items():
        with workspace_in(tmp_path / where) as workspace:
            service = BatchService(workspace)
            number = service.plan(read_plan(file))
            workspace.batches.approve(number, ahead=True)
            order = replace(service.order(number), profile=small(name, hub))
            assert Engine(workspace, number, order, pool).run() == "done", workspace.batches.failures(number)
            status = service.status(number)
            read, written, drawn = (one.number("done") for one in status.passes)
            assert status.state == "done" and read == written == SOURCES < drawn
            for source in workspace.batches.sources(number):
                run = workspace.runs.get(source.run or "")
                assert run.values["caption"].value.value.text == hub.captions[source.item.key], "each its own"
                assert 1 <= len(run.test_cases) <= CAPTIONS
                for case in run.test_cases:
                    drawn_in = case.lineage.settings.drawn_in
                    assert drawn_in is not None and drawn_in.size == 4
                    assert {"edges kept", "edit shows", "label seen"} <= {check.name for check in case.checks}
            images.append(batch_images(workspace, number))
    assert len(images[0]) == len(set(images[0].values())) > SOURCES
    assert all(others == images[0] for others in images)
