"""A small run of the training experiment of recipes, from the first image to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import arms
from experiments.arms import ON_MIXED, SETS, SMALL


def test_a_small_run_reaches_its_report_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, out = tmp_path / "work", tmp_path / "report.md"
    assert arms.main(["--small", "--work", str(work), "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in (work / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {arms.PLAIN, arms.RANDAUGMENT, arms.AUGMIX}
    names |= {f"{name} {times}x" for name in ("DILLEMA", "LANCE", "AGA", arms.MIXED) for times in SMALL.multiples}
    assert {line["arm"] for line in lines} == names and len(lines) == len(names) * SMALL.seeds
    assert all(f"| {name} |" in text for name in names) and "| ImageNet-V2 | 102 | 1.0 points | 78.4 %" in text
    first = next(line for line in lines if line["arm"] == "AGA 2x")
    assert first["images"] > SMALL.sources and {len(own) for on, own in first["right"].items() if on in SETS} == {
        SMALL.tests
    }
    assert ON_MIXED in first["right"] and len(first["right"][arms.ON_MAPS]) == SMALL.maps
    kept = {file: file.stat().st_mtime_ns for file in work.rglob("*") if file.is_file()}
    results = work / "results.jsonl"
    results.write_text("".join(f"{json.dumps(line)}\n" for line in lines[:-1]), encoding="utf-8")
    assert arms.main(["--small", "--work", str(work)]) == 0
    again = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert again == lines, "the last training was kept, and gives the same answers"
    assert {file for file, when in kept.items() if file.stat().st_mtime_ns != when} == {results}
    capsys.readouterr()
    assert arms.main(["--work", str(work)]) == 2 and "another size" in capsys.readouterr().err
