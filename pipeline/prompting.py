"""Prompt sets: a TOML file for each stage under `prompts/NAME/`, with a `string.Template` and texts that end a reply.

Knows nothing of models, of stages or of how a reply is read. A template must use the variables that its stage requires
(so the task is in every prompt), and may use only variables that the stage fills.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from core.errors import UserError
from core.types import PromptSlot

PROMPTS_FOLDER = Path(__file__).resolve().parent.parent / "prompts"


class PromptError(UserError):
    """A prompt file that cannot be used. The message names the file or the variable."""


@dataclass(frozen=True)
class Prompt:
    """A template and the texts that end a reply."""

    where: str
    """Name of the prompt in messages, such as "paper/keywords"."""
    template: str
    stop: tuple[str, ...] = ()

    def variables(self) -> tuple[str, ...]:
        """Return the names that the template uses, in order of appearance. Raises PromptError for a stray dollar."""
        template = Template(self.template)
        if not template.is_valid():
            raise PromptError(f"The prompt {self.where} has a stray $: write $$ for a dollar sign.")
        return tuple(template.get_identifiers())

    def evaluate(self, **values: str | int) -> str:
        """Return the template with its variables replaced. Values are put on one line. Raises PromptError."""
        if missing := [f"${name}" for name in self.variables() if name not in values]:
            raise PromptError(f"The prompt {self.where} needs {', '.join(missing)}: give it a value.")
        return Template(self.template).substitute({name: " ".join(str(v).split()) for name, v in values.items()})

    def without(self, name: str) -> Prompt:
        """Return the prompt without a variable and the text around it, up to a full stop or variable on each side."""
        pieces = re.split(r"((?<!\$)\$(?:[a-z_][a-z0-9_]*|\{[a-z_][a-z0-9_]*\}))", self.template, flags=re.IGNORECASE)
        for place in range(1, len(pieces), 2):
            if pieces[place].strip("${}") == name:
                before, behind = pieces[place - 1], pieces[place + 1]
                pieces[place - 1] = before[: before.rfind(".") + 1]
                pieces[place] = ""
                pieces[place + 1] = behind[behind.find(".") + 1 :] if "." in behind else ""
        return dataclasses.replace(self, template="".join(pieces).strip())


@dataclass(frozen=True)
class PromptSet:
    """The prompts that a recipe uses, by their names."""

    name: str
    prompts: Mapping[str, Prompt]

    def __getitem__(self, name: str) -> Prompt:
        return self.prompts[name]

    def get(self, name: str) -> Prompt | None:
        """Return the prompt of a name, or None if the set has none (see `PromptSlot.needed`)."""
        return self.prompts.get(name)


def load_prompts(name: str, slots: Sequence[PromptSlot], folder: Path = PROMPTS_FOLDER) -> PromptSet:
    """Load prompts of the set `folder/name`. Raises PromptError for an unknown name, a bad file or a wrong variable."""
    known = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if name not in known:
        raise PromptError(
            f"There is no prompt set {name!r}: choose one of {', '.join(known) or 'none (none are there)'}."
        )
    loaded = {slot.name: _load(folder / name / f"{slot.name}.toml", name, slot) for slot in slots}
    return PromptSet(name, {slot: prompt for slot, prompt in loaded.items() if prompt is not None})


def edited_prompts(prompts: PromptSet, slots: Sequence[PromptSlot], templates: Mapping[str, str]) -> PromptSet:
    """Return a copy of the set with new `templates`, by prompt name. Raises PromptError for a bad name or template."""
    by_name = {slot.name: slot for slot in slots}
    changed: dict[str, Prompt] = {}
    for name, template in templates.items():
        if name not in by_name:
            raise PromptError(f"There is no prompt named {name!r}: choose one of {', '.join(by_name)}.")
        prompt = prompts.get(name) or Prompt(f"{prompts.name}/{name}", "")
        if not template.strip():
            raise PromptError(f"The prompt {prompt.where} is empty: write it, or put the profile's prompt back.")
        changed[name] = _checked(dataclasses.replace(prompt, template=template), by_name[name])
    return PromptSet(prompts.name, {**prompts.prompts, **changed})


def prompts_to_plain(prompts: PromptSet) -> dict[str, Any]:
    """Return a prompt set as JSON-ready data, from which it can be built again without its files."""
    return {"name": prompts.name} | {name: dataclasses.asdict(prompt) for name, prompt in prompts.prompts.items()}


def prompts_from_plain(data: Mapping[str, Any], slots: Sequence[PromptSlot]) -> PromptSet:
    """Return the set that `prompts_to_plain` wrote. Raises PromptError if the data do not fit."""
    built: dict[str, Prompt] = {}
    try:
        name = str(data["name"])
        for slot in slots:
            if slot.name in data or (slot.needed and not slot.default):
                built[slot.name] = Prompt(**{**data[slot.name], "stop": tuple(data[slot.name]["stop"])})
            elif slot.default:
                built[slot.name] = Prompt(f"{name}/{slot.name}", slot.default)
    except (KeyError, TypeError) as error:
        raise PromptError("The prompts in this file cannot be read: the file was changed or cut off.") from error
    for slot in slots:
        if slot.name in built:
            _checked(built[slot.name], slot)
    return PromptSet(name, built)


def _load(path: Path, name: str, slot: PromptSlot) -> Prompt | None:
    where = f"{name}/{slot.name}"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if slot.default:
            return _checked(Prompt(where, slot.default), slot)
        if not slot.needed:
            return None
        raise PromptError(f"The prompt {where} is missing: there is no file {path.name} in prompts/{name}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PromptError(f"The prompt {where} cannot be read: {error}.") from error
    unknown = sorted(set(data) - {"template", "stop"})
    if unknown:
        raise PromptError(f"The prompt {where} has an unknown entry {unknown[0]!r}: it has only template and stop.")
    template, stop = data.get("template"), data.get("stop", [])
    if not isinstance(template, str) or not template.strip():
        raise PromptError(f"The prompt {where} has no template: add one.")
    if not isinstance(stop, list) or not all(isinstance(text, str) and text for text in stop):
        raise PromptError(f"The prompt {where} has a wrong stop: give a list of texts, none of them empty.")
    return _checked(Prompt(where, template, tuple(stop)), slot)


def _checked(prompt: Prompt, slot: PromptSlot) -> Prompt:
    """Return the prompt. Raises PromptError if it lacks a required variable of the slot or uses an unknown one."""
    used, allowed = set(prompt.variables()), (*slot.required, *slot.optional)
    for name in sorted(used - set(allowed)):
        listed = ", ".join(f"${each}" for each in allowed)
        raise PromptError(f"The prompt {prompt.where} uses ${name}, which nothing fills: it may use {listed}.")
    for name in slot.required:
        if name not in used:
            raise PromptError(f"The prompt {prompt.where} does not use ${name}: add it to the prompt.")
    return prompt
