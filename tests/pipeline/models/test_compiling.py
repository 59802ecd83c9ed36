"""Compiled generators (torch.compile), with the real classes and the real compiler at small size on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.lineage import DrawnBatch
from core.progress import Progress
from core.settings import GenerationSettings
from core.types import CounterfactualCaption, CounterfactualCaptions, Edit, Task
from experiments.driving import draw
from pipeline.driver import Driver
from pipeline.methods.controlnet import CONTROLNET, ControlNetSettings
from pipeline.models import compiling, load_models
from pipeline.models.compiling import Compiling
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import DILLEMA
from pipeline.request import Event
from pipeline.seams import CaseRequest, DrawnImage, DrawRequest, Source
from tests.support import tiny
from tests.support.scripted import NoiseGenerator, ScriptedModels, models_of

QUICK = GenerationSettings(steps=3, short_side=64, guidance=5.0)
BIRD = Task("classification", label="bird")
NIGHT = CounterfactualCaption("A bird at night.", (Edit("by day", "at night", "time of day"),))


def control(width: int = 96, height: int = 64) -> Image.Image:
    rng = np.random.default_rng(1)
    return Image.fromarray(rng.integers(0, 2, (8, 12), np.uint8) * 255).convert("RGB").resize((width, height))


def drawn(generator: Any, prompt: str = "a bird", size: int = 1, picture: Any = None, **changes: Any) -> DrawnImage:
    settings = QUICK.model_copy(update=changes)
    wanted, told = [DrawRequest(prompt, 5, size - 1)], lambda _done, _total: None
    (result,) = generator.draw(wanted, size, [picture or control()] * len(wanted), settings, told)
    assert result.image is not None
    return result  # type: ignore[no-any-return]


def pixels(one: DrawnImage) -> bytes:
    assert one.image is not None
    return one.image.tobytes()


def likeness(one: DrawnImage, other: DrawnImage) -> float:
    """Return the PSNR of two images in dB."""
    first, second = (np.asarray(drawn.image, np.float64) for drawn in (one, other))
    return float(10 * np.log10(255**2 / max(((first - second) ** 2).mean(), 1e-9)))


def variants() -> int:
    """Return the number of graphs that this process has compiled."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a Stable Diffusion whose blocks compile to one graph, with a compile cache of its own."""
    import torch
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()  # forget what other tests of this process compiled
    clear_caches()
    folder = tmp_path_factory.mktemp("compiled")
    tiny.save_stable_diffusion(folder / "generator", folder / "controlnet", attention=1)
    tiny.save_lora(folder / "lora" / "few-steps.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(compiling.CACHE, str(folder / "cache"))
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # spares compilations that only try what this CPU can
        yield folder


def generator_at(folder: Path, **more: Any) -> Any:
    data = load_profile("demo").model_dump()
    nets = {"canny": {"path": str(folder / "controlnet"), "variant": "fp16"}}
    data["generator"] = {
        "kind": "stable-diffusion-controlnet",
        "path": str(folder / "generator"),
        "variant": "fp16",
        "safety_checker": False,
        "controlnets": nets,
        **more,
    }
    return load_models(Profile.model_validate(data)).generator


@pytest.fixture(scope="module")
def eager(folder: Path) -> Any:
    return generator_at(folder)


@pytest.fixture(scope="module")
def compiled(folder: Path) -> Any:
    """Generator that has compiled its blocks, which takes half a minute, and has drawn the image `first`."""
    generator = generator_at(folder, compile=True)
    assert generator.waits == "the first image takes minutes more, once on this machine"
    assert generator.placing == f"cpu, float32: no GPU was found; compiled, {generator.waits}"
    notes: list[str] = []
    wanted = [DrawRequest("a bird", 5, 0)]
    (generator.first,) = generator.draw(
        wanted, 1, [control()] * len(wanted), QUICK, lambda _done, _of: notes.append(generator.waits)
    )
    assert set(notes) == {""}, "from the first step on nobody waits for it"
    return generator


@pytest.mark.soak
def test_compiled_blocks_draw_the_same_picture_and_it_is_recorded(eager: Any, compiled: Any) -> None:
    first, again = compiled.first, drawn(compiled)
    assert likeness(drawn(eager), first) >= 40
    assert pixels(first) == pixels(again), "the same bits once more"
    assert first.batch == DrawnBatch(size=1, place=0, compiled=True) and drawn(eager).batch == DrawnBatch()
    assert first.compiling > 0 and again.compiling == 0
    assert compiled.placing == "cpu, float32: no GPU was found; compiled" and compiled.runs.endswith("; compiled")
    assert compiled._pipe.controlnet._compiled_call_impl is None, "only blocks are compiled"


@pytest.mark.soak
def test_nothing_is_compiled_anew_for_another_strength_text_size_or_batch(eager: Any, compiled: Any) -> None:
    before = variants()
    for changes in (
        {"control_strength": 0.3},
        {"control_strength": 0.7, "control_until": 0.5},
        {"guidance": 3.0},
        {"prompt": "a house"},
        {"prompt": "a photo of a very long road " * 6},
        {"size": 3},
        {"picture": control(128, 80)},
    ):
        one, other = drawn(compiled, **changes), drawn(eager, **changes)
        assert likeness(one, other) >= 40 and one.compiling == 0, changes
    assert variants() == before


@pytest.mark.soak
def test_a_lora_is_added_before_it_is_compiled(folder: Path, eager: Any, compiled: Any) -> None:
    lora = {"loras": [{"path": str(folder / "lora"), "file": "few-steps.safetensors", "weight": 4}]}
    before = variants()
    with_lora, without = drawn(generator_at(folder, compile=True, **lora)), drawn(eager)
    assert likeness(with_lora, drawn(generator_at(folder, **lora))) >= 40 > likeness(with_lora, without)
    assert variants() == before, "blocks of the same sizes are compiled already"


@pytest.mark.soak
def test_the_wait_for_the_first_image_is_known_from_the_last_time(folder: Path, compiled: Any) -> None:
    cache = folder / "cache"
    assert any(cache.rglob("*.so")), "what was compiled stays on the disk"
    ((key, seconds),) = json.loads((cache / compiling.SECONDS).read_text()).items()
    assert key.startswith(str(folder / "generator")) and "torch" in key and seconds > 0
    known = Compiling(True, "cpu", title=str(folder / "generator"))
    assert known.waits == f"the first image takes about {max(1, round(seconds))} s more"
    assert "minutes" in Compiling(True, "cpu", title="another model").waits
    (cache / compiling.SECONDS).write_text("{")
    assert "minutes" in Compiling(True, "cpu", title=str(folder / "generator")).waits


@pytest.mark.soak
def test_compiled_blocks_go_with_parts_that_are_brought_when_they_are_needed(compiled: Any) -> None:
    """The hooks of `enable_model_cpu_offload` move the parts, here from the CPU to the CPU."""
    from accelerate import cpu_offload_with_hook
    from accelerate.hooks import remove_hook_from_module

    before, parts = variants(), (compiled._pipe.unet, compiled._pipe.controlnet)
    try:
        for part in parts:
            cpu_offload_with_hook(part, "cpu")
        assert pixels(drawn(compiled)) == pixels(compiled.first)
    finally:
        for part in parts:
            remove_hook_from_module(part, recurse=True)
    assert variants() == before


@pytest.mark.slow
def test_without_a_compiler_it_says_so_and_draws(folder: Path, eager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    generator = generator_at(folder, compile=True)
    why = "; not compiled: torch.compile needs a compiler, and there is no /nonexistent, which CXX names"
    assert generator.placing.endswith(why) and generator.runs.endswith(why) and generator.waits == ""
    one, other = drawn(generator), drawn(eager)
    assert pixels(one) == pixels(other) and one.batch == DrawnBatch()


@pytest.mark.soak
def test_what_cannot_be_compiled_is_drawn_all_the_same(
    folder: Path, eager: Any, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "KINDS_OF_BLOCKS", 1)  # without guidance a second graph would be needed
    generator = generator_at(folder, compile=True)
    one, other = drawn(generator, guidance=1.0), drawn(eager, guidance=1.0)
    assert pixels(one) == pixels(other) and not one.batch.compiled
    assert "; not compiled: FailOnRecompileLimitHit" in generator.placing
    assert not drawn(generator).batch.compiled, "nor is it tried again"


# Messages and records, without a model


def test_where_it_cannot_be_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Compiling(True, "cuda", "layers")
    assert not layers.on and layers.words == "; not compiled: the GPU holds one layer of the model at a time"
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert compiling.why_not("cuda") == "torch.compile needs a compiler, and there is no gcc or clang"
    off = Compiling(False, "cpu")
    assert (off.on, off.words, off.waits) == (False, "", "")


def test_its_cache_is_beside_that_of_the_hub_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.models import hub

    monkeypatch.delenv(compiling.CACHE, raising=False)
    assert compiling.cache_folder() == hub.cache_folder().parent / "compiled"
    monkeypatch.setenv(compiling.CACHE, "/elsewhere")
    assert compiling.cache_folder() == Path("/elsewhere")


def test_the_record_says_compiled_and_is_else_as_it_was() -> None:
    plain = ControlNetSettings(generation=QUICK, batch=DrawnBatch(size=4, place=2))
    assert plain.plain()["batch"] == {"size": 4, "place": 2}
    held = ControlNetSettings(generation=QUICK, batch=DrawnBatch(compiled=True))
    assert held.plain()["batch"] == {"size": 1, "place": 0, "compiled": True}
    for settings in (plain, held, ControlNetSettings()):
        assert ControlNetSettings.model_validate(settings.plain()) == settings


class FirstCompiles(NoiseGenerator):
    """Generator whose first image takes longer than the others."""

    waits = "the first image takes about 50 s more"

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        return 2

    def draw(self, wanted: Any, size: int, pictures: Any, settings: Any, on_step: Any) -> list[DrawnImage]:
        found = []
        for one, picture in zip(wanted, pictures, strict=True):
            image = self.generate(one.prompt, picture, settings, one.seed, lambda _done, _of: None)
            found.append(DrawnImage(image, DrawnBatch(size=size, place=one.place), compiling=50.0))
        self.waits = ""
        on_step(1, 1)
        return found


def test_a_person_who_waits_is_told_why() -> None:
    profile, models, said = load_profile("demo"), ScriptedModels(), list[Event]()
    models.generator = FirstCompiles()
    settings = profile.settings.model_copy(update={"generation": QUICK})
    draw(Driver(profile, models), control(), BIRD, CounterfactualCaptions((NIGHT,)), settings, emit=said.append)
    seen = [event for event in said if isinstance(event, Progress)]
    assert seen[0].note == "image 1 of 1 (the first image takes about 50 s more)"
    assert seen[1].note == "image 1 of 1"


def test_what_an_image_takes_is_without_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of later images is estimated from the first one."""
    method = CONTROLNET.with_models(models_of(FirstCompiles()), DILLEMA.prompts("paper"))
    prepared = method.prepare(Source(control(), BIRD), ControlNetSettings(generation=QUICK))
    clock = iter((100.0, 160.0))
    monkeypatch.setattr("pipeline.methods.drawing.time.monotonic", lambda: next(clock))
    planned = [CaseRequest(NIGHT, seed, seed) for seed in (0, 1)]
    finishing = method.make([prepared] * 2, planned, 2, lambda _done, _of: None)
    assert [finish().lineage.seconds for finish in finishing] == [5.0, 5.0]
