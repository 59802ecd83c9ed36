"""Scores the exported language model through ctransformers, on scenes that no training saw."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.train.corpus import CHOICES, EDIT_TYPES, NO_EDIT, Example, edit_type_of, load_templates, random_example
from pipeline.checks.single_edit import changes
from pipeline.models.language import which_build

MODEL = Path(__file__).resolve().parent.parent / "weights" / "llama" / "model.gguf"
"""Path of the shipped model."""
SAMPLING = {"temperature": 0.2, "top_p": 0.95, "repetition_penalty": 1.0, "max_new_tokens": 256, "reset": True}
"""The pipeline's sampling settings. There is no repetition penalty, which would hinder copying."""


@dataclass
class Tally:
    """Counts of tests by name, and of those that passed."""

    passed_by_test: dict[str, int] = field(default_factory=dict)
    count_by_test: dict[str, int] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)

    def add(self, name: str, passed: bool, miss: str = "") -> None:
        self.passed_by_test[name] = self.passed_by_test.get(name, 0) + passed
        self.count_by_test[name] = self.count_by_test.get(name, 0) + 1
        if not passed and miss:
            self.misses.append(f"{name}: {miss}")

    def shares(self) -> dict[str, float]:
        """Return the share of tests that passed, 0 to 1, by name."""
        return {name: self.passed_by_test[name] / count for name, count in self.count_by_test.items()}


def load(path: Path, threads: int = 1) -> Any:
    """Load the model as the pipeline does."""
    from ctransformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        str(path), model_type="llama", lib=which_build(gpu_layers=0), context_length=512, threads=threads
    )


def _pairs(reply: str, separator: str) -> list[tuple[str, str]] | None:
    """Return the texts before and after the separator in every line, or None if a line lacks the separator."""
    lines = [line.strip() for line in reply.strip().split("\n")]
    if not all(separator in line for line in lines):
        return None
    return [(a.strip(), b.strip()) for a, b in (line.split(separator, 1) for line in lines)]


def _score_keywords(tally: Tally, group: str, example: Example, reply: str) -> None:
    pairs = _pairs(reply, "|")
    parses = pairs is not None and all(kind in EDIT_TYPES.values() for _, kind in pairs)
    tally.add(f"{group} keywords parse", parses, reply)
    named = {word for text, _ in pairs or () for word in text.split()}
    protected = set(" ".join(example.task.kept()).split())
    tally.add(f"{group} keywords leave out the protected", not named & protected, f"{reply!r} for {example.task}")
    exact = reply.strip() == example.reply
    tally.add(f"{group} keywords exact", exact, f"{reply!r} wanted {example.reply!r}")


def _score_alternatives(tally: Tally, group: str, example: Example, reply: str) -> None:
    pairs = _pairs(reply, ":")
    tally.add(f"{group} alternatives parse", pairs is not None, reply)
    by_keyword = {keyword: options.split(", ") for keyword, options in pairs or ()}
    tally.add(f"{group} alternatives answer every keyword", tuple(by_keyword) == example.keywords, reply)
    known = [option for options in by_keyword.values() for option in options]
    world = {value for values in CHOICES.values() for value in values}
    tally.add(f"{group} alternatives are the world's", set(known) <= world, reply)
    targets = {k: o.split(", ") for k, o in _pairs(example.reply, ":") or ()}
    fits = all(
        len(options) == len(set(options)) == len(targets.get(keyword, ())) and keyword not in options
        for keyword, options in by_keyword.items()
    )
    tally.add(f"{group} alternatives right in number, all different", fits, f"{reply!r} wanted {example.reply!r}")


def _score_counterfactual(tally: Tally, group: str, example: Example, reply: str) -> None:
    text = reply.strip()
    tally.add(f"{group} counterfactual parses", bool(text) and "\n" not in text, reply)
    miss = f"{example.edits}\n   {example.caption}\n   {text!r}\n   {example.reply!r}"
    tally.add(f"{group} counterfactual exact", text == example.reply, miss)


def _score_perturbation(tally: Tally, group: str, example: Example, reply: str) -> None:
    """Score the reply to a request for one edit. Any single edit of the requested type is right."""
    text = reply.strip()
    miss = f"{example.edit_type}: {example.caption}\n   {text!r}\n   like {example.reply!r}"
    if example.reply == NO_EDIT:
        tally.add(f"{group} perturbations left out where there is none", text == NO_EDIT, miss)
        return
    differences = changes(example.caption, text.partition(" | ")[2])
    old, new = (differences[0].gone, differences[0].came) if len(differences) == 1 else ("", "")
    tally.add(f"{group} perturbations change one place", len(differences) == 1, miss)
    tally.add(f"{group} perturbations are one edit of the type", edit_type_of(old, new) == example.edit_type, miss)


SCORERS = {
    "keywords": _score_keywords,
    "alternatives": _score_alternatives,
    "counterfactuals": _score_counterfactual,
    "perturbations": _score_perturbation,
}


def score(path: Path, count: int = 100, first_seed: int = 5_000_000, misses: int = 5) -> Mapping[str, float]:
    """Print and return the share of passed tests by name. Each stage is tested on `count` captions of demo
    scenes, and on `count` such captions with random changes, as people may make them.
    """
    model, templates, tally = load(path), load_templates(), Tally()
    rng = random.Random(first_seed)
    for group, canonical in (("world's", 1.0), ("changed", 0.0)):
        for stage, scorer in SCORERS.items():
            for i in range(count):
                example = random_example(rng, stage, first_seed + i, canonical)
                reply = model(example.prompt(templates), seed=i, **SAMPLING)
                scorer(tally, group, example, reply)
    shares = tally.shares()
    for name, share in shares.items():
        print(f"{name:55} {share:6.1%}")
        for miss in [m for m in tally.misses if m.startswith(name)][:misses]:
            print("  -", miss)
    return shares


if __name__ == "__main__":
    score(MODEL)
