"""Tests for `python -m benchmarks.gpu`: its counts and report at tiny size, and the published sizes of its models."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu import Machine, Speed
from core.errors import UserError


def test_a_row_says_how_far_from_the_floor_it_is() -> None:
    machine = Machine("A10G", 50e12, 500e9)
    drawn = Speed("an image", "cuda, float16", 4, (2.4, 2.0, 2.8), 80e12, 0, 6_000_000_000)
    assert drawn.each == 0.6 and drawn.floor(machine) == 0.4, "80 TFLOP for four, at 50 a second"
    assert gpu.line(drawn, machine) == (
        "| an image; cuda, float16 | 600 ms (500 ms to 700 ms) | 1.67 | 3 | 6 GB | 20 TFLOP | 400 ms | 1.5 × |"
    )
    said = Speed("a reply", "cuda, float16", 1, (20.0,), 5e12, 4000e9, 0)
    assert said.floor(machine) == 8, "it reads its weights for each token, which takes longer than the operations"


@pytest.mark.slow
def test_operations_are_counted_as_two_a_multiplication() -> None:
    import torch

    rows, same = torch.zeros(3, 5), torch.zeros(5, 7)
    heads = torch.zeros(1, 2, 11, 8)
    assert gpu.operations_of(lambda: rows @ same) == 2 * 3 * 5 * 7
    attended = gpu.operations_of(lambda: torch.nn.functional.scaled_dot_product_attention(heads, heads, heads))
    assert attended == 2 * 2 * (2 * 11 * 11 * 8), "that of the attention on this device too"
    once = torch.zeros(2, 2)

    def draw(steps: int) -> None:
        _ = once @ once
        for _step in range(steps):
            _ = rows @ same

    assert gpu.counted(draw, 8) == 8 * 2 * 3 * 5 * 7 + 2 * 2 * 2 * 2


@pytest.mark.slow
def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gpu, "pick_device", lambda: "cpu")
    assert gpu.main([]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "no GPU" in told.err and "--tiny" in told.err


@pytest.mark.slow
def test_a_model_that_does_not_go_in_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "free_memory", lambda device: 24_000_000_000)
    with pytest.raises(UserError, match=r"Llama-2 13B is not measured: it needs 28 GB on the GPU, but 24 GB are free"):
        next(gpu.replies(tmp_path, "cuda", False, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("save", "model", "published"),
    [("save_llama", "LlamaForCausalLM", 13_015_864_320), ("save_blip2", "Blip2ForConditionalGeneration", 7.75e9)],
)
def test_the_large_ones_have_the_published_sizes(save: str, model: str, published: float, tmp_path: Path) -> None:
    """Only the shapes of the weights are made. `tests/pipeline/models/test_real_size.py` checks Stable Diffusion."""
    import torch
    import transformers

    from benchmarks import random_weights

    kind: Any = getattr(transformers, model)
    loader = SimpleNamespace(from_pretrained=None)
    folder = getattr(random_weights, save)(tmp_path)
    with random_weights.filled_in_place(loader, kind, "meta"):
        made: Any = loader.from_pretrained(folder, dtype=torch.float16)
    assert loader.from_pretrained is None
    assert sum(weights.numel() for weights in made.parameters()) == pytest.approx(published, rel=0.002)
    assert {str(weights.dtype) for weights in made.parameters()} == {"torch.float16"}


@pytest.mark.slow
def test_what_does_not_go_in_stops_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(error: Exception) -> Any:
        def part(*_given: Any) -> Any:
            yield from ()
            raise error

        return part

    monkeypatch.setattr(gpu, "images", full(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")))
    monkeypatch.setattr(gpu, "compiled_images", full(UserError("torch.compile needs a compiler")))
    monkeypatch.setattr(gpu, "captions", full(UserError("BLIP-2 6.7B is not measured: it needs 17 GB.")))
    monkeypatch.setattr(gpu, "replies", lambda *_given: iter([Speed("a reply", "cpu", 1, (1.0, 1.0, 1.0), 1e9, 0, 0)]))
    assert gpu.main(["--tiny"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line[:9] for line in told[3:6]] == ["| what | ", "| --- | -", "| a reply"]
    assert told[7].startswith("No ") and "memory" in told[7]
    assert told[8] == "No compiled images: torch.compile needs a compiler"
    assert told[9] == "No captions: BLIP-2 6.7B is not measured: it needs 17 GB."
    monkeypatch.setattr(gpu, "images", full(RuntimeError("a fault of ours")))
    with pytest.raises(RuntimeError, match="a fault of ours"):
        gpu.main(["--tiny"])
