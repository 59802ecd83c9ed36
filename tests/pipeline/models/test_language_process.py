"""The language model in a process of its own: faults that it survives, and the messages about others."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pydantic_core import _pydantic_core

from core.errors import CannotLoad, UserError
from core.model_sections import ROOT
from core.settings import KeywordSettings, LanguageSettings
from core.types import Caption, Task
from pipeline.models import language
from pipeline.models.language_process import GgufProcess
from pipeline.profiles.text_sections import GgufLanguage
from pipeline.prompting import load_prompts
from pipeline.seams import LanguageRequest
from pipeline.stages import keywords
from pipeline.stages.parsing import read_alternatives, read_caption, read_keywords
from pipeline.stages.reply_schema import Schema, alternatives_schema, caption_schema, keywords_schema
from tests.support import tiny
from tests.support.made_once import MadeOnce
from tests.support.scripted import SUNNY_BIRD
from tests.support.serving import until
from tests.support.stages import run_keywords

pytestmark = pytest.mark.slow

REPLY = LanguageSettings(max_new_tokens=24, temperature=0.8)
LONG = "Name the colours of the bird. " * 150
"""Prompt that takes seconds to read and to answer."""


@pytest.fixture(scope="module")
def section(made_once: MadeOnce) -> GgufLanguage:
    (file,) = (tiny.paper_models(made_once) / "language").glob("*.gguf")
    return GgufLanguage(kind="llama-gguf", path=str(file), context_length=4096, threads=1)


@pytest.fixture(scope="module")
def model(section: GgufLanguage) -> Iterator[GgufProcess]:
    made = GgufProcess(section)
    yield made
    made.close()


def computing(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    return float(psutil.Process(pid).cpu_times().user)


def is_over(process: psutil.Process) -> bool:
    """Return True if the process has ended. Its entry may remain where no parent collects it, as in some containers."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("how", "said"),
    [(signal.SIGKILL, "killed in the middle of a reply, most likely for lack of memory"), (signal.SIGSEGV, "SIGSEGV")],
)
def test_a_process_that_ends_in_a_call_is_an_error_at_the_stage_and_the_next_call_works(
    model: GgufProcess, how: signal.Signals, said: str
) -> None:
    prompts = load_prompts("paper", [keywords.KEYWORDS.prompt] if keywords.KEYWORDS.prompt else [])
    before = model.complete(LanguageRequest("a bird", 7), REPLY)

    def stage(seed: int) -> object:
        settings = KeywordSettings(max_new_tokens=2000, attempts=10)
        task = Task("classification", label="bird")
        return run_keywords(Caption(SUNNY_BIRD), task, model, prompts["keywords"], settings, seed)

    with ThreadPoolExecutor(1) as pool:
        for seed in range(20):  # until the kill hits a call, usually at once
            pid, start = model.pid, computing(model.pid)
            asked = pool.submit(stage, seed)
            until(lambda: asked.done() or computing(pid) > start + 0.02)  # noqa: B023 - all within this round
            os.kill(pid, how)
            if isinstance(error := asked.exception(), UserError) and said in str(error):
                break
            with suppress(ChildProcessError):  # the kill came between two calls: wait for the end and try again
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            model.complete(LanguageRequest("a bird", 7), REPLY)
        else:
            pytest.fail("no call was hit")
    assert "run the stage again" in str(error)
    assert model.complete(LanguageRequest("a bird", 7), REPLY) == before and model.pid != pid


def test_one_that_ended_between_two_calls_is_started_anew(model: GgufProcess) -> None:
    before = model.complete(LanguageRequest("a bird", 7), REPLY)
    os.kill(model.pid, signal.SIGKILL)
    os.waitid(os.P_PID, model.pid, os.WEXITED | os.WNOWAIT)
    assert model.complete(LanguageRequest("a bird", 7), REPLY) == before
    pid = model.pid
    model.close()
    assert not psutil.pid_exists(pid), "closed, it is gone, and with it its memory"
    assert model.complete(LanguageRequest("a bird", 7), REPLY) == before


def test_it_ends_with_a_parent_that_is_killed_in_the_middle_of_a_call(section: GgufLanguage) -> None:
    code = f"""if True:
        from pipeline.models.language_process import GgufProcess
        from core.settings import LanguageSettings
        from pipeline.profiles.text_sections import GgufLanguage
        from pipeline.seams import LanguageRequest
        model = GgufProcess(GgufLanguage.model_validate_json({section.model_dump_json()!r}))
        print(model.pid, flush=True)
        while True:
            model.complete(LanguageRequest({LONG!r}, 1), LanguageSettings(max_new_tokens=500))"""
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        until(lambda: child.cpu_times().user > 0.5)
        parent.kill()
    until(lambda: is_over(child))


def test_a_file_of_another_architecture_is_named_with_what_runs_it(tmp_path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "other.gguf", "qwen3")
    writer.add_tokenizer_model("gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CannotLoad, match=r"architecture qwen3, tokenizer gpt2.*serve it with llama-server"):
        GgufProcess(GgufLanguage(kind="llama-gguf", path=str(tmp_path / "other.gguf")))
    (tmp_path / "other.gguf").write_bytes(b"GGUF, cut")
    with pytest.raises(CannotLoad, match=r"cannot be loaded .*: get them again"):
        GgufProcess(GgufLanguage(kind="llama-gguf", path=str(tmp_path / "other.gguf")))


def test_replies_of_random_weights_can_be_read_when_they_are_held_to_their_form(model: GgufProcess) -> None:
    freely, task = LanguageSettings(max_new_tokens=700, temperature=1), Task("classification", label="bird")
    wanted: list[tuple[Schema | None, Callable[[str], object]]] = [
        (keywords_schema(SUNNY_BIRD, task), read_keywords),
        (alternatives_schema(["red", "by day"], 2), read_alternatives),
        (caption_schema(SUNNY_BIRD), read_caption),
    ]
    for schema, read in wanted:
        for seed in range(3):
            assert read(model.complete(LanguageRequest("a bird", seed, schema=schema), freely))


# On a GPU. The tests run without one, so no test shows that a model computes on a GPU.


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has a driver")
def test_layers_on_a_gpu_that_is_not_there_are_refused_with_the_way_out(section: GgufLanguage) -> None:
    with pytest.raises(CannotLoad, match=r"puts 4 layers .* no NVIDIA GPU.*set gpu_layers = 0"):
        GgufProcess(section.model_copy(update={"gpu_layers": 4}))


def test_libraries_of_cuda_12_that_are_missing_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "CUDA_12", (("cublas", "libcublas.so.of-none"),))
    with pytest.raises(CannotLoad, match=r"needs libcublas.so.of-none .* pip install -r requirements-gpu.txt"):
        language.open_cuda(4)
    named = (ROOT / "requirements-gpu.txt").read_text()
    assert "nvidia-cuda-runtime-cu12==" in named and "nvidia-cublas-cu12==" in named


def test_libraries_of_cuda_12_are_opened_where_their_packages_put_them(tmp_path: Path) -> None:
    some_library = _pydantic_core.__file__  # some builds of Python have no library of their own
    for package, name in language.CUDA_12:
        folder = tmp_path / "nvidia" / package / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(some_library, folder / name)
    code = "from pipeline.models.language import open_cuda; open_cuda(4); print(open('/proc/self/maps').read())"
    paths = {**os.environ, "PYTHONPATH": str(tmp_path)}
    opened = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=paths, capture_output=True, text=True, check=True
    )
    assert all(str(tmp_path / "nvidia" / package / "lib" / name) in opened.stdout for package, name in language.CUDA_12)


def test_a_text_is_as_likely_as_torch_says(tmp_path: Path) -> None:
    import sentencepiece
    import torch

    weights = tiny.save_llama(tmp_path / "tiny.gguf").eval()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces.model"))
    section = GgufLanguage(kind="llama-gguf", path=str(tmp_path / "tiny.gguf"), context_length=64, threads=1)
    model = GgufProcess(section)
    try:
        for text in ("a red bird on a twig", SUNNY_BIRD, "bird " * 100):
            tokens = torch.tensor([[1, *pieces.encode(text)]])[:, :64]
            with torch.inference_mode():
                said = torch.log_softmax(weights(input_ids=tokens).logits[0].float(), -1)
            wanted = -said[:-1].gather(1, tokens[0, 1:, None]).mean()
            assert model.score(text) == pytest.approx(float(wanted), abs=0.02), "weights of half precision"
        assert model.score("") == 0.0
    finally:
        model.close()
