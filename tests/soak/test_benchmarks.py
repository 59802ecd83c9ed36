"""Benchmarks run completely at their smallest size and measure every part that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import asleep, gpu, lots, reference
from tests.support.demo_server import demo_models


def test_all_of_it_runs_at_tiny_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Run the real classes and the product's loading code, up to the table."""
    import torch

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # skips compilations that only test the CPU
    assert gpu.main(["--tiny", "--times", "3"]) == 0
    told = capsys.readouterr().out
    rows = [line.split(" | ") for line in told.splitlines() if line.startswith("| ")][2:]
    whats = [row[0] for row in rows]
    eager, compiled = ([what for what in whats if ("compiled" in what) == wanted] for wanted in (False, True))
    pictures = [what for what in eager if "image of 128" in what]
    assert len(pictures) in (1, 2) and len(compiled) in (1, 2), "two at once are not always faster here"
    assert ["a caption" in what for what in eager[len(pictures) :]] == [True, False]
    assert "2 steps with guidance, batch 1; cpu, float32" in pictures[0]
    assert re.search(r"batch 1; cpu, float32, compiled \(the first image [\d.]+ m?s more\)", compiled[0])
    counted = {what.partition("batch ")[2][:1]: row[5] for what, row in zip(whats, rows, strict=True) if "128" in what}
    for what, row in zip(whats, rows, strict=True):
        if "128" in what:
            assert row[5] == counted[what.partition("batch ")[2][:1]], "compiled, it is as much work"
    assert re.search(r"7 calls, \d{4} tokens read and 64 written", whats[-1])
    assert f"torch {torch.__version__}" in told and "TFLOP/s" in told
    assert all(row[3] == "3" for row in rows), "no figure is from one time"
    assert "say nothing of real ones" in told and "nothing else is compiled" in told and "2.76 s a test case" in told
    assert "not measured" not in told


def test_a_run_of_models_that_sleep_takes_more_than_their_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asleep, "HELPERS", (1,))
    (with_one,) = asleep.asleep(8)
    assert with_one.median > 1
    assert with_one.words.startswith("8 sources of 512 pixels") and with_one.words.endswith("slept 4.0 s.")


@pytest.mark.demo
def test_both_ways_and_several_processes_make_test_cases() -> None:
    inside, beside = lots.measure(1, 2, 2, demo_models(), 0)
    for figure in (inside, beside):
        assert len(figure.ratios) == len(figure.of_cpu) == 1 and figure.ratios[0] > 0
    for part in ("captions", "replies", "control images", "drawing", "of which decoding", "checks", "PNG files"):
        assert inside.words.count(part) >= 2, "of each way"
    assert "2 processes" in beside.words


@pytest.mark.demo
def test_both_ways_make_test_cases_of_a_sample() -> None:
    """Run every part once with the embedded models."""
    beside, without_checks, batch, edited = reference.measure(1, ("bird-on-a-twig",), 2, 2, demo_models(), 0)
    assert "2 test cases of each way" in beside.words, "as many by each"
    assert all(part in beside.words for part in ("captions", "replies", "drawing", "checks"))
    calls = float(beside.words.rpartition("; ")[2].rpartition(", ")[2].partition(" calls each")[0])
    assert calls >= 3, "its language model is asked for keywords, alternatives and the caption of each"
    assert without_checks.ratios[0] > beside.ratios[0] > 0 and beside.of_cpu[0] > 0
    assert "a batch of 2" in batch.what and len(batch.ratios) == len(batch.of_cpu) == 1
    assert "of the rate of multiplied matrices" in batch.words and "cores busy" in batch.words
    assert edited.held and edited.words.startswith("1 of 7 calls (1 of 2 images)"), "the edited one is drawn, no more"
