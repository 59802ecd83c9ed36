"""Models are freed on release, and loaded models are released to make room. The memory figures are given by the
tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

import pytest

from core.errors import CannotLoad, UserError
from core.model_sections import ROOT, Weights
from pipeline.models import CLASSES, Models
from pipeline.models.machine import Machine, model_fits, profile_fits, without_gpu
from pipeline.models.model_memory import WORK, _within_limit, to_release
from pipeline.profiles.profile import Profile, load_profile, profile_names
from pipeline.profiles.text_sections import GgufLanguage, Server

GB = 1_000_000_000
GUIDE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


class Loaded:
    """Stand-in for a loaded model."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of loaded models, in order. Nothing real is loaded."""
    order = list[str]()

    def load(_models: Models, role: str) -> Loaded:
        order.append(role)
        return Loaded()

    monkeypatch.setattr(Models, "load", load)
    monkeypatch.setattr("pipeline.models.pick_device", lambda: "cpu")
    return order


@pytest.mark.slow
def test_a_released_model_is_loaded_again_when_it_is_next_asked_for(made: list[str]) -> None:
    models: Any = Models(load_profile("demo"))
    first = models.captioner
    assert models.captioner is first and made == ["captioner"] and models.loaded == ("captioner",)
    models.release("captioner")
    assert first.closed == 1 and models.loaded == ()
    assert models.captioner is not first and made == ["captioner"] * 2
    _ = models.language, models.generator, models.detector("canny"), models.embedder, models.sentences
    assert set(models.loaded) == {
        *("captioner", "language model", "image generator", "detector of canny", "embedder", "sentence model")
    }
    assert set(models.loaded) - set(load_profile("demo").weights()) == {"detector of canny"}, (
        "called as the profile does"
    )
    models.release_all()
    models.release("captioner")
    assert models.loaded == ()
    with pytest.raises(KeyError):
        models.release("hamster")


@pytest.mark.slow
def test_what_was_not_used_for_longest_makes_room_for_the_next(made: list[str]) -> None:
    free = {"cpu": 60 * GB}

    class Counted(Models):
        """Models that use as much memory as the profile says."""

        def release(self, role: str) -> None:
            free["cpu"] += self._needed(role, self.profile.weights())[1]
            super().release(role)

    models: Any = Counted(load_profile("paper"), free.__getitem__)
    _ = models.captioner
    free["cpu"] -= 31 * GB
    _ = models.language
    assert models.loaded == ("captioner", "language model"), "29 GB are free, and 12.6 are needed"
    free["cpu"] -= int(12.6 * GB)
    _ = models.sentences, models.captioner
    assert models.loaded[-1] == "captioner", "16.4 GB free: the sentence model needs nothing that is known"
    free["cpu"] = 5 * GB
    _ = models.generator
    assert models.loaded == ("sentence model", "captioner", "image generator"), "the language model was used before"
    free["cpu"] = 10 * GB
    _ = models.language
    assert models.loaded == ("sentence model", "image generator", "language model")


@pytest.mark.slow
def test_models_fit_together_until_one_has_to_make_room(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paper = load_profile("paper")
    all_of_them = 31.0 + 12.6 + (5.484 + 1.445) + 1.711 + (0.029444406 + 0.0344 + 0.493)  # with one ControlNet
    for spare, fit in ((0.01, True), (-0.01, False)):
        free = {"cpu": int((all_of_them + spare) * GB) + WORK}
        models: Any = Models(paper, free.__getitem__)
        assert models.fit_together is fit and not made, "nothing is loaded to know that"
    free = {"cpu": int(all_of_them * GB) + 2 * WORK}
    models = Models(paper, free.__getitem__)
    _ = models.captioner
    free["cpu"] -= 31 * GB
    assert models.fit_together, "the one that is loaded has its room"
    free["cpu"] = 10 * GB  # another program began
    assert not models.fit_together
    _ = models.language
    assert models.loaded == ("language model",)
    free["cpu"] = 100 * GB
    assert not models.fit_together, "one had to make room for another"

    def lacking(_models: Models, role: str) -> Loaded:
        if role == "image generator":
            raise MemoryError
        return Loaded()

    monkeypatch.setattr(Models, "load", lacking)
    models = Models(load_profile("demo"), lambda _place: 0)
    _ = models.captioner
    models.release_all()
    assert models.fit_together, "sizes that are not known count as small, and nothing made room"
    _ = models.captioner
    with pytest.raises(UserError):
        _ = models.generator
    assert not models.fit_together


def test_the_rule_frees_no_more_than_it_needs() -> None:
    loaded = {"captioner": 16 * GB, "sentence model": 0, "embedder": 1 * GB, "language model": 9 * GB}
    assert to_release(4 * GB, 6 * GB, loaded) == []
    assert to_release(4 * GB, 4 * GB + WORK - 1, loaded) == ["captioner"], "with what it works in it would not go in"
    assert to_release(20 * GB, 5 * GB, loaded) == ["captioner", "embedder"]
    assert to_release(90 * GB, 5 * GB, loaded) == ["captioner", "embedder", "language model"], "worth a try"


@pytest.mark.slow
def test_a_lack_of_memory_frees_the_others_and_is_tried_once_more(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, halves = [], list[Any]()

    def too_large(models: Models, role: str) -> Loaded:
        half = Loaded()
        assert not [one for one in halves if one()], "what was loaded until it failed takes no room any more"
        halves.append(weakref.ref(half))
        tries.extend([models.loaded] if role == "image generator" else [])
        if models.loaded:
            raise CannotLoad("said by the loader") from RuntimeError("CUDA out of memory")
        return Loaded()

    monkeypatch.setattr(Models, "load", too_large)
    models: Any = Models(load_profile("demo"))
    _ = models.captioner
    assert models.generator and tries == [("captioner",), ()]
    assert models.loaded == ("image generator",)

    def never(_models: Models, role: str) -> Loaded:
        if role == "captioner":
            return Loaded()
        tries.append(())
        raise MemoryError

    monkeypatch.setattr(Models, "load", never)
    tries.clear()
    models = Models(load_profile("demo"))
    _ = models.captioner
    with pytest.raises(UserError, match="not enough memory to load the embedder"):
        _ = models.embedder
    assert len(tries) == 2 and models.loaded == ()
    with pytest.raises(UserError, match="not enough memory"):
        _ = models.embedder
    assert len(tries) == 3, "with nothing else loaded there is nothing to try again for"


def test_two_that_are_loaded_at_once_wait_for_neither(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)

    def slow(models: Models, _role: str) -> Loaded:
        both.wait()
        models.release_others("")  # each load does this when memory is short, while the other load still runs
        both.wait()
        return Loaded()

    monkeypatch.setattr(Models, "load", slow)
    models: Any = Models(load_profile("demo"))
    other = threading.Thread(target=lambda: models.captioner, daemon=True)
    other.start()
    assert models.embedder
    other.join(20)
    assert not other.is_alive() and set(models.loaded) == {"captioner", "embedder"}


MEASURED = """
import json, os, sys, threading, time
from pipeline.models import CLASSES, Models
from pipeline.profiles.profile import Profile
import psutil, torch
from pipeline.models.machine import memory_in_use

def anonymous():  # what the process has of its own; files that are read stand beside it
    return int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1]) * 1024

def peak_of(load):
    most, done = [anonymous()], threading.Event()
    def watch():
        while not done.wait(0.002):
            most[0] = max(most[0], anonymous())
    thread = threading.Thread(target=watch); thread.start()
    load(); done.set(); thread.join()
    return most[0]

told, large = {}, Models(Profile.model_validate(json.loads(sys.argv[1])))
ways = {"embedder": lambda: large.embedder.text("a bird"), "language model": lambda: large.language.score("a bird")}
for role, load in ways.items():
    load(); large.release(role)  # once for the libraries
    before, (resident, _) = anonymous(), memory_in_use()
    most = peak_of(load)
    loaded, _ = memory_in_use()
    large.release(role)
    told[role] = {"took": loaded - resident, "kept": memory_in_use()[0] - resident, "peak": most - before}
print(json.dumps(told))
"""


@pytest.mark.soak
def test_memory_comes_back_and_no_second_copy_is_made(tmp_path: Path) -> None:
    """Load the real classes in a process of its own, with weights large enough to show in its memory."""
    from tests.support import tiny

    size = tiny.save_clip(tmp_path / "clip", width=768, layers=12)
    tiny.save_llama(tmp_path / "model.gguf", width=1024, layers=6)
    data = load_profile("demo").model_dump(mode="json")
    data["embedder"]["path"], data["language"]["path"] = str(tmp_path / "clip"), str(tmp_path / "model.gguf")
    command = [sys.executable, "-c", MEASURED, json.dumps(data)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for role, figures in told.items():
        assert figures["took"] > 100_000_000, (role, figures)
        assert figures["kept"] < 0.05 * figures["took"], (role, figures)
    assert told["embedder"]["peak"] < 1.25 * size, told


# Whether models fit into memory


def machine(memory: int, gpu: int = 0, free: int | None = None) -> Machine:
    there = free if free is not None else max(gpu, memory)
    return Machine(memory * GB, there * GB, 100 * GB, "cache", "A10G" if gpu else "", gpu * GB, min(there, gpu) * GB)


def test_a_model_fits_or_it_is_said_what_is_missing() -> None:
    large = Weights(hub="a/b", memory_half=16 * GB, memory_full=31 * GB)
    small = Weights(hub="a/b", memory_half=GB // 2, memory_full=GB)
    quantised = GgufLanguage(kind="llama-gguf", hub="a/b", file="c", memory_half=13 * GB, memory_full=13 * GB)
    assert model_fits(large, machine(24)) == "does not fit: needs 31 GB, there are 24"
    assert model_fits(large, machine(64)) == "fits on the CPU, slowly"
    assert model_fits(large, machine(64, free=20)) == (
        "fits on the CPU, slowly once other programs leave room: 20 GB are free now"
    )
    assert model_fits(large, machine(64, gpu=24)) == "fits"
    assert model_fits(large, machine(64, gpu=12)).startswith(
        "does not fit the GPU: needs 16 GB, there are 12; on the CPU"
    )
    assert model_fits(large, machine(16, gpu=12)) == "does not fit the GPU: needs 16 GB, there are 12"
    assert model_fits(small, machine(8)) == "fits on the CPU"
    assert model_fits(quantised, machine(64, gpu=24)) == "fits on the CPU, slowly", "it is not told to use the GPU"
    on_gpu = quantised.model_copy(update={"gpu_layers": 100})
    assert model_fits(on_gpu, machine(64, gpu=24)) == "fits"
    assert model_fits(Weights(hub="a/b"), machine(64)).startswith("not known")
    assert model_fits(Weights(hub="a/b"), machine(64), on_disk=GB) == "fits on the CPU", "its files are a measure"


def test_a_profile_fits_at_once_or_stage_by_stage() -> None:
    paper = load_profile("paper")
    language = paper.language.model_copy(update={"gpu_layers": 100})
    on_gpu = paper.model_copy(update={"language": language})
    said = {n: profile_fits(on_gpu, machine(64, gpu=n), {}) for n in (12, 24, 48)}
    assert said[48] == "fits"
    assert said[24] == "fits, one stage at a time: what the last stage needed is freed for the next"
    assert said[12] == "does not fit: one stage needs 16 GB of GPU memory, there are 12"
    assert profile_fits(paper, machine(24), {}) == "does not fit: one stage needs 31 GB of memory, there are 24"
    assert profile_fits(paper, machine(64), {}) == "fits on the CPU, slowly"
    assert profile_fits(paper, machine(40), {}).startswith("fits on the CPU, slowly, one stage at a time")
    assert profile_fits(load_profile("demo"), machine(4), {}) == "fits on the CPU"


WITHOUT_A_GPU = {
    "demo": "at once, at once",
    "laptop": "at once, at once",
    "cpu": "one stage at a time, at once",
    "fast": "too little, one stage at a time",
    "sdxl": "too little, one stage at a time",
    "modern": "too little, too little",
    "edit": "too little, too little",
    "lance": "too little, one stage at a time",
    "paper": "too little, one stage at a time",
}
"""The models that a machine of 16 GB, and one of 32 GB, holds together."""


@pytest.mark.parametrize("name", profile_names())
def test_what_a_machine_without_a_gpu_holds_follows_from_the_counted_need(name: str) -> None:
    held = list[str]()
    for memory in (16, 32):
        left = memory * 2**30 - WORK - GB // 2  # the work and the system take the rest, as in the table of GPUs
        said = profile_fits(load_profile(name), Machine(left, left, 0, "cache"), {})
        one = "one stage at a time" if "one stage at a time" in said else "at once"
        held.append("too little" if said.startswith("does not fit") else one)
    assert ", ".join(held) == WITHOUT_A_GPU[name]
    table = [
        [cell.strip(" `") for cell in line.strip("| ").split("|")]
        for line in GUIDE[GUIDE.index("| no GPU |") :].split("\n\n", 1)[0].splitlines()
    ]
    place = table[0].index(name)
    assert [row[place] for row in table[2:]] == held, "the guide says the same"


def test_a_container_has_what_it_is_given(tmp_path: Path) -> None:
    assert _within_limit(64 * GB, 60 * GB, tmp_path) == (64 * GB, 60 * GB)
    (tmp_path / "memory.max").write_text(str(16 * GB))
    (tmp_path / "memory.current").write_text(str(4 * GB))
    assert _within_limit(64 * GB, 60 * GB, tmp_path) == (16 * GB, 12 * GB)
    (tmp_path / "memory.max").write_text("max\n")
    assert _within_limit(64 * GB, 60 * GB, tmp_path) == (64 * GB, 60 * GB)


def test_a_profile_for_a_gpu_says_what_to_expect_without_one() -> None:
    def said(name: str, memory: int, gpu: str = "") -> str:
        return without_gpu(load_profile(name), lambda: Machine(memory, memory, 0, "", gpu, 24 * GB, 24 * GB))

    assert said("paper", 16 * GB) == (
        "No GPU was found: on the CPU the profile paper takes up to 31 GB of memory at a time (this machine has only "
        "16 GB), and an image takes minutes; the profile cpu is the one for machines without a GPU."
    )
    assert "profile sdxl takes up to 22 GB of memory at a time (this machine has 64 GB)" in said("sdxl", 64 * GB)
    assert "57 GB" in said("modern", 16 * GB) and "profile fast" in said("fast", 16 * GB)
    assert said("paper", 16 * GB, "a GPU") == ""

    def asked() -> Machine:
        raise AssertionError("asking the machine takes seconds")

    assert without_gpu(load_profile("cpu"), asked) == without_gpu(load_profile("demo"), asked) == ""


def sections_in(annotation: Any) -> Iterator[type[Weights | Server]]:
    """Yield the sections of models that the type of a field of a profile names."""
    if isinstance(annotation, type) and issubclass(annotation, Weights | Server):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_in(inner)


def test_every_section_of_a_profile_has_a_class_for_its_model() -> None:
    found = [kind for field in Profile.model_fields.values() for kind in sections_in(field.annotation)]
    assert set(found) == set(CLASSES)
    assert all(callable(resolve_name(f"pipeline.models.{name}")) for name in CLASSES.values())
