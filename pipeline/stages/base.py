"""Types for text stages: their inputs, and all facts that the page, command line, storage and driver need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image

from core.progress import OnProgress
from core.types import PromptSlot, StageName, StageValue, Task, Values, to_plain
from pipeline.prompting import Prompt
from pipeline.seams import Models

ProducerKind = Literal["captioner", "segmenter", "language model", "nothing"]
"""The kind of model that produces a stage's values. "nothing" if the stage computes them without a model."""


@dataclass(frozen=True)
class EarlyReply:
    """A reply to an earlier stage's request that also answers this stage."""

    prompt: str
    raw_reply: str
    """The whole reply, for all stages."""
    seed: int
    part: Any
    """Plain data that answer this stage. The stage that got the reply writes them, and this stage reads them."""
    attempts: int = 1


@dataclass(frozen=True)
class StageInputs:
    """The inputs of a stage."""

    source: Image.Image
    task: Task
    values: Values
    """Values of the earlier stages that the stage reads, by stage."""
    settings: Any
    """The stage's section of the settings, or None."""
    models: Models
    prompt: Prompt | None
    seed: int
    before: Any = None
    """The model's latest value from the same inputs, from which the new one should differ. None at the first try."""
    progress: OnProgress | None = None
    cancelled: threading.Event | None = None
    others: Mapping[str, Prompt] = field(default_factory=dict)
    """The stage's further prompts by name, if the prompt set has them."""
    next: Values = field(default_factory=dict)
    """Settings of later stages, by stage. One request may also answer these stages (see `Stage.asks_ahead`)."""
    early_reply: EarlyReply | None = None
    """Reply to an earlier stage that also answers this one. It is checked like any reply."""


@dataclass(frozen=True)
class StageMade:
    """The result of a stage: its value, and an `EarlyReply` for each later stage that the same reply answers."""

    value: StageValue[Any]
    early_replies: Mapping[StageName, EarlyReply]


@dataclass(frozen=True)
class Stage:
    """A text stage: it turns the source image and earlier values into one typed value."""

    name: StageName
    """The name under which values are stored. In all recipes it represents the same type of value."""
    title: str
    """The title on the page, such as "Counterfactual captions"."""
    value: type
    """The type of the stage's value: a frozen dataclass that `to_plain` can write."""
    run: Callable[[StageInputs], StageValue[Any] | StageMade]
    """Produces a value. The caller adds its key. Raises UserError, UnreadableReply and Cancelled."""
    reads: tuple[StageName, ...] = ()
    """The earlier stages whose values the stage reads."""
    reads_source: bool = False
    reads_task: bool = True
    """False if values stay valid when the task changes."""
    producer: ProducerKind = "language model"
    prompt: PromptSlot | None = None
    """Name and variables of the stage's prompt, or None for a stage without a prompt."""
    other_prompts: tuple[PromptSlot, ...] = ()
    """Further prompts that the stage may send, each with a title of its own."""
    sends: Callable[[Any], Collection[str]] | None = None
    """Returns the names of the further prompts that the stage sends, given its settings. None: it sends all."""
    asks_ahead: Callable[[Any], tuple[StageName, ...]] | None = None
    """Returns the later stages that a request of this stage also answers, given its settings. None: no stages."""
    settings: str = ""
    """Name of the stage's section in the settings, or ""."""
    marks: frozenset[str] = frozenset()
    """Settings that only change how a value is shown. A change of them outdates no value."""
    seen: Callable[[Any], Any] = to_plain
    """Returns the part of a value that later stages use, as plain data. Only a change of that part outdates them."""
    fits: Callable[[Any, tuple[int, int]], None] = lambda _value, _size: None
    """Raises UserError for a value that does not fit a source image of this size (width, height)."""
    summary: Callable[[Any], str] = str
    remarks: Callable[[Any, Values, Task], list[str]] = lambda _value, _values, _task: []
    """Returns remarks for a person about a value, one line each, given the values of earlier stages and the task."""
    doing: str = "working"
    """Words for the running stage, such as "finding keywords"."""
    plural: bool = True
    """True if the title is in the plural."""
    again: str = "Run again"
    """Label of the button that runs the stage again."""
    same_again: str = ""
    """Message if the stage runs again and gives the same value. May contain {times}. "" for no message."""

    @property
    def prompt_slots(self) -> tuple[PromptSlot, ...]:
        """All prompts of the stage, the main one first."""
        return (*((self.prompt,) if self.prompt is not None else ()), *self.other_prompts)

    def others_sent(self, settings: Any) -> tuple[PromptSlot, ...]:
        """Return the further prompts that the stage sends, given the settings of all stages."""
        if self.sends is None:
            return self.other_prompts
        sent = self.sends(getattr(settings, self.settings) if self.settings else None)
        return tuple(slot for slot in self.other_prompts if slot.name in sent)

    @property
    def noun(self) -> str:
        """The title with a small first letter, for use within a sentence."""
        return self.title[:1].lower() + self.title[1:]

    @property
    def was(self) -> str:
        """Noun and verb, such as "caption was" or "keywords were"."""
        return f"{self.noun} {'were' if self.plural else 'was'}"

    @property
    def comes_first(self) -> str:
        """Sentence that asks the user to run this stage first."""
        return f"{self.title} come first." if self.plural else f"The {self.noun} comes first."
