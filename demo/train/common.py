"""Functions that all training programs share: command line, device, learning rate, progress and checkpoints."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"
"""Folder of the shipped models."""

TRAIN_SEEDS = 10_000_000
"""First seed of the training scenes. Smaller seeds are for the report and the samples, which no training may see."""


def arguments(name: str, default_minutes: float, can_go_on: bool = False) -> argparse.Namespace:
    """Parse the options of a training program. `can_go_on` adds the option to continue from the finished model."""
    parser = argparse.ArgumentParser(description=f"Train the embedded {name} on the drawn world.")
    parser.add_argument("--minutes", type=float, default=default_minutes, help="time budget (default: %(default)s)")
    parser.add_argument(
        "--work", type=Path, default=Path("build/train"), help="checkpoints go here (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="the finished model goes here (default: %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="ignore an earlier checkpoint")
    if can_go_on:
        parser.add_argument("--go-on", action="store_true", help="start from the finished model, not from nothing")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads (default: all)")
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    torch.manual_seed(0)
    return parsed


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def carried_over(
    new: torch.Tensor, vocabulary: Mapping[str, int], old: torch.Tensor, old_vocabulary: Mapping[str, int]
) -> torch.Tensor:
    """Return a copy of `new`, in which tokens that are in both vocabularies have their rows from `old`. Both tensors
    are (tokens, width), and a vocabulary maps each token to its row.
    """
    both = [(row, old_vocabulary[token]) for token, row in vocabulary.items() if token in old_vocabulary]
    rows, old_rows = (torch.tensor(numbers) for numbers in zip(*both, strict=True))
    carried = new.clone()
    carried[rows] = old[old_rows].to(new.dtype)
    return carried


def half_precision() -> contextlib.AbstractContextManager[Any]:
    """Return a bfloat16 autocast, which is about twice as fast on GPUs and on processors with AVX512-BF16."""
    return torch.autocast(device().type, dtype=torch.bfloat16)


class Run:
    """A training run of a given number of minutes, so that a recipe takes as long on a slow machine as on a fast one.

    Iterating yields step numbers until the time is spent. Only the training's own processor time counts: neither pauses
    nor the time of other programs. The share of time spent determines the learning rate (warm-up, then a cosine to a
    twentieth). Every two minutes all objects passed as `keep` are saved; a later run with the same name resumes from
    there.
    """

    def __init__(self, name: str, options: argparse.Namespace, optimizer: torch.optim.Optimizer, **keep: Any) -> None:
        self.name, self.optimizer = name, optimizer
        self._keep = {"optimizer": optimizer, **keep}
        self._budget = options.minutes * 60
        self._file: Path = options.work / f"{name}.pt"
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self._spent, self.step = 0.0, 0
        self._figures: dict[str, float] = {}
        if self._file.exists() and not options.fresh:
            saved = torch.load(self._file, map_location=device(), weights_only=True)
            for key, thing in self._keep.items():
                thing.load_state_dict(saved[key])
            self._spent, self.step = saved["spent"], saved["step"]
            print(f"{name}: going on at step {self.step}, {self._spent / 60:.1f} min spent", flush=True)

    @property
    def share(self) -> float:
        """Share of the training time that has passed, 0 to 1."""
        return min(1.0, self._spent / self._budget)

    def __iter__(self) -> Iterator[int]:
        last_line = last_save = last = time.thread_time()
        while self._spent < self._budget:
            factor = min(1.0, (self.step + 1) / 200) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * self.share)))
            for group, peak in zip(self.optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * factor
            yield self.step
            self.step += 1
            now = time.thread_time()
            self._spent += now - last
            last = now
            if now - last_line > 10:
                self._line()
                last_line = now
            if now - last_save > 120:
                self.save()
                last_save = now
        self.save()
        self._line()

    def report(self, **figures: float) -> None:
        """Show a step's figures in the progress line, as running means."""
        for key, value in figures.items():
            old = self._figures.get(key, value)
            self._figures[key] = 0.98 * old + 0.02 * value

    def save(self) -> None:
        """Write the checkpoint. If this is interrupted, the old checkpoint stays complete."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        state = {key: thing.state_dict() for key, thing in self._keep.items()}
        partial = self._file.with_suffix(".part")
        torch.save({**state, "spent": self._spent, "step": self.step}, partial)
        partial.replace(self._file)

    def _line(self) -> None:
        left = max(0.0, self._budget - self._spent)
        figures = "  ".join(f"{key} {value:.4f}" for key, value in self._figures.items())
        print(
            f"{self.name}: {self.share:4.0%}  step {self.step}  {figures}  {left / 60:.1f} min left",
            file=sys.stderr,
            flush=True,
        )
