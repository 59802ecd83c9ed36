"""All that the page shows of one run, as plain values: what is saved, what goes on, what went wrong, what is stale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.errors import UserError
from pipeline.prompting import PromptSet
from pipeline.settings import Settings
from pipeline.types import Alternatives, StageName
from storage.types import Run, StoredState, StoredValue
from ui.gate import Gate
from ui.job_views import JobView


@dataclass(frozen=True)
class Problem:
    """What a stage could not do, until the person tries again."""

    text: str
    prompt: str = ""
    raw_reply: str = ""
    """What the model said instead, where it said something."""
    again: Mapping[str, str] = field(default_factory=dict)
    """The action that does it all the same, as the data of a button; empty where nothing does."""
    again_words: str = ""
    """What that button says."""


class Refused(UserError):
    """A person's mistake with more to it than a sentence."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True)
class RunState:
    """All that the page shows of one run."""

    run: Run
    settings: Settings
    stale: dict[StageName, str]
    problems: dict[StageName, Problem]
    histories: dict[StageName, tuple[StoredValue, ...]]
    job: JobView | None
    """The latest since the server was started."""
    gate: Gate
    control_there: bool
    """Whether the control image can be shown: one that a model draws has to be asked for first."""
    outdated: Mapping[int, str]
    """The test cases that do not fit what stands before them any more, each with the reason in a few words."""
    model_names: dict[str, str]
    """What a page calls the models that have no telling name of their own."""
    notices: dict[StageName, str]
    """What a person should know of a stage, until it is edited again."""
    prompts: PromptSet
    """What the language stages of this run are told."""
    earlier_prompts: tuple[StoredState, ...]
    """The states of the run with which its prompts became others, oldest first."""
    alternatives: Alternatives
    """Those of stage 3, with all that was measured of them."""

    @property
    def current(self) -> frozenset[int]:
        """The test cases that still fit."""
        return frozenset(case.id for case in self.run.test_cases if case.id not in self.outdated)
