"""What a text stage declares of itself, and what it is given to produce its value from.

A `Stage` says all that page, command line, storage and driver need to know of it, so that none of them knows a stage by
its name. Each module beside this one declares its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image

from core.progress import OnProgress
from core.types import StageName, StageValue, Task, to_plain
from pipeline.prompting import Prompt, PromptSlot
from pipeline.seams import Models

ProducerKind = Literal["captioner", "language model", "nothing"]
"""Which model produces the values of a stage; "nothing" for a stage that computes them without one."""


@dataclass(frozen=True)
class EarlyReply:
    """What a model said for a stage in reply to the request of an earlier one, which asked for both."""

    prompt: str
    raw_reply: str
    """All of it, for whichever stages it was."""
    seed: int
    part: Any
    """What of it is for this stage: plain data whose shape the two stages agree on."""


@dataclass(frozen=True)
class StageInputs:
    """What a stage is given to produce its value from."""

    source: Image.Image
    task: Task
    values: Mapping[StageName, Any]
    """Of the stages that it reads."""
    settings: Any
    """Its section of the settings; None for a stage without one."""
    models: Models
    prompt: Prompt | None
    """None for a stage without one."""
    seed: int
    before: Any = None
    """What a model gave last from the same inputs: another value is wanted. None at a first try."""
    progress: OnProgress | None = None
    cancelled: threading.Event | None = None
    others: Mapping[str, Prompt] = field(default_factory=dict)
    """Its other prompts by their names, but for those that the prompt set does without."""
    next: Mapping[StageName, Any] = field(default_factory=dict)
    """The settings of those later stages that its request may ask for too (see `Stage.asks_ahead`), by their names;
    empty where they are not run next.
    """
    said: EarlyReply | None = None
    """What the request of an earlier stage gave for this one. It is checked as any reply is."""


@dataclass(frozen=True)
class StageMade:
    """A value, and what the same reply said for later stages."""

    value: StageValue[Any]
    said: Mapping[StageName, EarlyReply]


@dataclass(frozen=True)
class Stage:
    """A text stage: it turns the source image and earlier values into one typed value."""

    name: StageName
    """What its values are stored under. All recipes that use a name mean a value of the same type."""
    title: str
    """What the page calls it, such as "Counterfactual captions"."""
    value: type
    """The type of its value: a frozen dataclass that `to_plain` can write."""
    run: Callable[[StageInputs], StageValue[Any] | StageMade]
    """Produces a value; its key is filled in by whoever calls. Raises UserError, UnreadableReply and Cancelled."""
    reads: tuple[StageName, ...] = ()
    """The earlier stages that it reads."""
    reads_source: bool = False
    """Whether it looks at the source image."""
    producer: ProducerKind = "language model"
    prompt: PromptSlot | None = None
    """Which variables its prompt has; None for a stage without a prompt of the prompt set."""
    other_prompts: tuple[PromptSlot, ...] = ()
    """Further prompts that it may send, each with a title."""
    sends: Callable[[Any], Collection[str]] | None = None
    """Which of the other prompts it sends under its settings, by their names: only a change of those outdates a value.
    None for all of them, always.
    """
    asks_ahead: Callable[[Any], tuple[StageName, ...]] | None = None
    """The later stages that one request of it asks for too under its settings; None for a stage that never does."""
    settings: str = ""
    """Its section of the settings; "" for none."""
    marks: frozenset[str] = frozenset()
    """Settings that say how a value is shown and not what it is: a change of them outdates nothing."""
    seen: Callable[[Any], Any] = to_plain
    """What later stages see of a value, as plain data: only a change of that outdates them."""
    summary: Callable[[Any], str] = str
    """A value in one line."""
    remarks: Callable[[Any, Mapping[StageName, Any], Task], list[str]] = lambda _value, _values, _task: []
    """What a person should know of a value beside it, a line each, given the values of earlier stages."""
    doing: str = "working"
    """What is done while it runs, such as "finding keywords"."""
    plural: bool = True
    """Whether the title is a plural."""
    again: str = "Run again"
    """What the button says that runs it once more."""
    same_again: str = ""
    """What a person is told when another try gave the same value; may hold {times}. "" for nothing."""

    @property
    def prompt_slots(self) -> tuple[PromptSlot, ...]:
        """All its prompts, its own one first."""
        return (*((self.prompt,) if self.prompt is not None else ()), *self.other_prompts)

    def others_sent(self, settings: Any) -> tuple[PromptSlot, ...]:
        """Those of its other prompts that it sends under settings, which are those of all stages."""
        if self.sends is None:
            return self.other_prompts
        sent = self.sends(getattr(settings, self.settings) if self.settings else None)
        return tuple(slot for slot in self.other_prompts if slot.name in sent)

    @property
    def noun(self) -> str:
        """Its title within a sentence."""
        return self.title[:1].lower() + self.title[1:]

    @property
    def was(self) -> str:
        """Such as "caption was" or "keywords were"."""
        return f"{self.noun} {'were' if self.plural else 'was'}"

    @property
    def comes_first(self) -> str:
        """That it has to be run before something else."""
        return f"{self.title} come first." if self.plural else f"The {self.noun} comes first."
