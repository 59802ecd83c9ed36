"""Goals of the paper's questions, read from `goals.toml`. The verdict on a goal is reached, missed, or cannot tell.

A goal is judged by the worse end of its figure's interval. A run keeps the goals that the repository had when it began.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.evaluation_results import AUGMENTED, CONTROL, ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL
from core.figures import Figure
from evaluation.report import CANNOT_TELL, per_cent, with_interval
from evaluation.retraining.arm_statistics import GENERATED
from experiments.paper.breaking import Breaking
from experiments.paper.prioritising import LABEL_FIRST, OURS, WRONG_FIRST, Prioritising
from experiments.paper.retraining import Retraining
from experiments.paper.size import FAMILIES, Family, Size
from experiments.paper.validity import ERRING, Validity

GOALS = Path(__file__).resolve().with_name("goals.toml")
TITLES: Mapping[Family, str] = {"object": "classifier", "road": "segmenter"}
MAIN_ARM = GENERATED
"""Name of the paper's way to retrain. Goals are judged by this one, not by the best of several."""
Unit = Literal["share", "points", "times", "minutes"]


class Rule(BaseModel):
    """A stated goal."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    question: str
    goal: str
    models: Annotated[tuple[str, ...], Field(strict=False)] = ("",)
    """Names of the models that must each reach the goal."""
    figure: str
    unit: Unit = "share"
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    beside: str = ""
    beside_is: str = ""
    beside_unit: Unit = "share"
    missed_by: str = Field(min_length=10)

    @model_validator(mode="after")
    def _bounded(self) -> Rule:
        if self.at_least is None and self.above is None and self.at_most is None:
            raise ValueError("a goal needs at_least, above or at_most: nothing could miss it")
        return self

    @property
    def wanted(self) -> str:
        """The bounds of the goal in words, such as "at least 90 %"."""
        bounds = (("at least", self.at_least), ("more than", self.above), ("at most", self.at_most))
        return ", ".join(f"{word} {_plain(bound, self.unit)}" for word, bound in bounds if bound is not None)

    def reached_by(self, figure: Figure) -> bool | None:
        """Return True if the worse end of the figure's interval reaches the goal. None without an interval, or for a
        width of 0, since equal results give no certainty. A figure in minutes is exact: its value must reach the goal.
        """
        counted = self.unit == "minutes"
        low, high = (figure.value, figure.value) if counted else (figure.low, figure.high)
        if figure.value is None or low is None or high is None or (low == high and not counted):
            return None
        enough = (self.at_least is None or low >= self.at_least) and (self.above is None or low > self.above)
        return enough and (self.at_most is None or high <= self.at_most)


@dataclass(frozen=True)
class Goal:
    """One goal of one model, and its measured figure."""

    rule: Rule
    model: str
    figure: Figure
    beside: Figure | None
    judged: bool = True
    """False if the goals were not committed before the run began. The goal is then neither reached nor missed."""

    @property
    def what(self) -> str:
        """The name of the model, if any, followed by the goal in words."""
        return f"{self.model}: {self.rule.goal}" if self.model else self.rule.goal

    @property
    def reached(self) -> bool | None:
        """True if the goal is reached, False if it is missed. None if the figure cannot tell, which is no success."""
        return self.rule.reached_by(self.figure) if self.judged else None

    @property
    def words(self) -> str:
        """The verdict: "reached", "MISSED", or `CANNOT_TELL`."""
        return CANNOT_TELL if self.reached is None else "reached" if self.reached else "MISSED"

    @property
    def measured(self) -> str:
        """The measured figure with its interval, in words."""
        return in_unit(self.figure, self.rule.unit)

    @property
    def compared(self) -> str:
        """Another figure for comparison, with its name. "-" if none exists."""
        if self.beside is None:
            return "-"
        return f"{self.rule.beside_is}: {in_unit(self.beside, self.rule.beside_unit)}"


@dataclass(frozen=True)
class Stated:
    """The goals of a run, as they were in the repository when it began."""

    rules: tuple[Rule, ...]
    digest: str
    """SHA-256 hash of the file with the goals."""
    commit: str
    """The commit that last changed the file with the goals, and its date. "" if the file has uncommitted changes."""

    @property
    def words(self) -> str:
        """A sentence for the report. It names the file of the goals, and the commit that last changed this file."""
        which = f"`experiments/paper/{GOALS.name}` (SHA-256 {self.digest[:12]})"
        if self.commit:
            return f"The goals are those of {which}, last changed in commit {self.commit}, before this run began."
        return (
            f"**The goals of {which} were in no commit when this run began: nobody can tell whether they were written "
            "before its figures, so they judge nothing.**"
        )


def stated(text: str, commit: str) -> Stated:
    """Read the text of a file of goals. Raises ValueError if it states no goal, or a goal without a bound."""
    rules = tuple(Rule.model_validate(one) for one in tomllib.loads(text).get("goals", ()))
    if not rules:
        raise ValueError("the file states no goal")
    return Stated(rules, sha256(text.encode()).hexdigest(), commit)


def commit_of(file: Path) -> str:
    """Return the commit that last changed a file, such as "1a2b3c4 of 2026-11-26". "" if the file has changed since, is
    in no commit, or git cannot be run.
    """
    if _git(file, "status", "--porcelain", "--", file.name) != "":
        return ""
    return _git(file, "log", "-1", "--format=%h of %cs", "--", file.name) or ""


def _git(file: Path, *command: str) -> str | None:
    """Return the output of a git command. None if it fails or git cannot be run."""
    try:
        done = subprocess.run(["git", *command], cwd=file.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@dataclass(frozen=True)
class Results:
    """All results of a run."""

    size: Size
    validity: Mapping[Family, Validity]
    breaking: Mapping[Family, Breaking]
    prioritising: Prioritising
    retraining: Mapping[Family, Retraining]
    cases: Mapping[Family, Mapping[int, int]]
    """Distribution of test cases: the number of sources that have a given number of test cases."""
    minutes: Mapping[str, float]
    """Minutes that each stage took, by its name."""


def goals(run: Results, stated: Stated) -> tuple[Goal, ...]:
    """Return all goals, each with its figure. The goals are judged only if they were in a git commit before the run."""
    found = figures(run)

    def figure(model: str, name: str) -> Figure:
        return found.get(f"{model}: {name}" if model else name, Figure(None, why="it was not measured"))

    return tuple(
        Goal(
            rule,
            model,
            figure(model, rule.figure),
            figure(model, rule.beside) if rule.beside else None,
            bool(stated.commit),
        )
        for rule in stated.rules
        for model in rule.models
    )


def figures(run: Results) -> dict[str, Figure]:
    """Return the figures that the goals name. Keys are "MODEL: NAME", or "NAME" alone."""
    found = {
        f"{TITLES[family]}: {name}": figure
        for family in FAMILIES
        for part in (_validity(run.validity[family]), _breaking(run.breaking[family]), _arms(run.retraining[family]))
        for name, figure in part
    }
    ranked = run.prioritising
    for order in ranked.orders:
        found[f"classifier: weak cells found by {order}"] = ranked.share_found(order)
    for other in (WRONG_FIRST, LABEL_FIRST):
        found[f"classifier: {OURS} over {other}"] = ranked.more_than(other)
    found["minutes in all"] = Figure(sum(run.minutes.values()))
    found["minutes of evaluation"] = Figure(run.minutes.get("reading", 0.0) + run.minutes.get("figures", 0.0))
    return found


def _validity(found: Validity) -> Iterator[tuple[str, Figure]]:
    for row in found.coverage:
        yield f"coverage{'' if row.annotators == ERRING else ' without errors'}: {row.figure}", row.share
    score = found.score
    yield "AUC", Figure(None, why=found.score_why) if score is None else score.auc
    yield "AUC of one score for all", Figure(0.5, 0.5, 0.5)
    yield "valid of accepted, over accepting all", found.over_accepting_all
    yield "share of valid images", Figure(None if score is None or not score.images else score.valid / score.images)


def _breaking(found: Breaking) -> Iterator[tuple[str, Figure]]:
    whole = found.classifier or found.segmenter
    assert whole is not None
    original, reconstructed = found.errors
    before, after = original.value, reconstructed.value
    yield "error on originals", original
    yield "error on reconstructions", reconstructed
    yield "excess", whole.excess
    if found.segmenter is not None:
        before, after = found.segmenter.miou_original.value, found.segmenter.miou_reconstructed.value
    if found.classifier is not None:
        yield "factor", found.classifier.factor
        yield "factor of reconstructions", Figure(after / before if before and after is not None else None)
    yield "reconstructions less originals", Figure(None if before is None or after is None else after - before)
    yield "left-out conditions named", found.left_out_named
    yield "other words named", found.others_named
    yield "things taught wrongly named", found.taught_wrong_named
    yield "other things named", found.other_things_named


def _arms(found: Retraining) -> Iterator[tuple[str, Figure]]:
    back = {one.arm: one.share for one in found.won_back}
    rows = {(one.arm, one.set): one for one in found.rows}
    for name, arm in (("won back", MAIN_ARM), ("won back by augmentation", AUGMENTED)):
        yield name, back.get(arm, Figure(None, why="there is no such set"))
    for name, arm in (("gain on originals", MAIN_ARM), ("gain on originals by augmentation", AUGMENTED)):
        if (arm, ON_ORIGINAL) in rows:
            yield name, rows[arm, ON_ORIGINAL].gain
    for control, name in ((AUGMENTED, "augmentation"), (CONTROL, "reconstructions"), (ORIGINAL, "originals alone")):
        for on in (ON_GENERATED, ON_UNSEEN, ON_SHIFT):
            if (control, on) in rows:
                yield f"accuracy with {name}: {on}", rows[control, on].accuracy
            if (MAIN_ARM, control, on) in found.beside:
                yield f"generated over {name}: {on}", found.beside[MAIN_ARM, control, on]


def in_unit(figure: Figure, unit: Unit) -> str:
    """Return a figure with its interval, or the reason that it has none."""
    if figure.value is None:
        return f"{CANNOT_TELL}{f': {figure.why}' if figure.why else ''}"
    if unit in ("share", "points") and figure.low is not None:
        return with_interval(figure, points=unit == "points")
    ends = f" ({figure.low:.1f} to {figure.high:.1f})" if figure.low is not None and figure.high is not None else ""
    return f"{_plain(figure.value, unit)}{ends or (f' ({figure.why})' if figure.why else '')}"


def _plain(value: float, unit: Unit) -> str:
    if unit == "share":
        return per_cent(value)
    return f"{100 * value:+.1f} points" if unit == "points" else f"{value:.1f} {unit}"
