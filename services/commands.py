"""Commands: each thing that a person, a script or an agent can do is one pydantic model, done by one function.

A command is data: its fields, their bounds and their descriptions are the check of what comes in, and the documentation
for scripts. Page and command line send the same ones through one `Commands`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from core.errors import UserError
from core.types import GENERATION, StageName, stage_kinds
from core.validation_messages import reason
from services.changes import Changes

LONGEST_TEXT = 4000
"""Characters in a text that is typed, where a command says nothing else; the longest caption is far shorter."""


def _known(stage: str) -> str:
    if stage != GENERATION and stage not in stage_kinds():
        raise ValueError(f"there is no stage {stage[:80]!r}")
    return stage


KnownStage = Annotated[StageName, AfterValidator(_known)]
"""The name of a stage of any recipe, or that of the drawing."""


def parts_of(named: Any) -> Any:
    """A text with commas as the list of what stands between them, without what is empty; anything else as it is."""
    return [part.strip() for part in named.split(",") if part.strip()] if isinstance(named, str) else named


Texts = Annotated[tuple[str, ...], BeforeValidator(parts_of)]
"""Several texts, as a list or with commas between."""
RunIds = Annotated[tuple[Annotated[str, Field(max_length=80)], ...], BeforeValidator(parts_of)]
"""The ids of several runs, as a list or with commas between."""


class Command(BaseModel):
    """One thing to do: `class RenameRun(RunCommand, name="rename")`. The docstring of a subclass says what it does, in
    one sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=LONGEST_TEXT)

    name: ClassVar[str]
    """What it is sent as, such as "rename-run": letters and hyphens."""
    looks: ClassVar[bool] = False
    """It only looks: nothing is changed by it."""

    def __init_subclass__(cls, **class_values: str | bool) -> None:
        """Set the values of a class that stand in its first line: `name`, `looks`, `stage_of_command`."""
        super().__init_subclass__()
        for key, value in class_values.items():
            setattr(cls, key, value)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """A command of this type from plain data. Raises Malformed, naming the first field that does not fit."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise refused(error, cls) from error


class RunCommand(Command):
    """One thing to do with a run."""

    stage_of_command: ClassVar[str] = ""
    """The stage that all commands of this type are about; "" where a field `stage` says it, or for the whole run."""

    run: str = Field(max_length=80, description="The id of the run")

    @classmethod
    def about(cls, data: Mapping[str, Any]) -> str:
        """Return the stage of a command, "" for the whole run. Takes plain data: refusals need a stage too."""
        return cls.stage_of_command or str(data.get("stage") or "")


C = TypeVar("C", bound=Command)
Method = TypeVar("Method", bound=Callable[..., Any])


class Malformed(UserError):
    """What was sent is not what a command takes: a mistake of a page or a script, or of whoever filled in a field."""


class Missing(UserError):
    """What a command is about does not exist, or not any more."""


class UnknownCommand(ValueError):
    """No command has this name: a mistake of the program that sent it."""


def command_of(function: Callable[..., Any], base: type[C], *passed: str, **class_values: str | bool) -> type[C]:
    """Return a command whose fields are the parameters of a function, without those that are `passed` from elsewhere.

    The docstring of the function, up to what it raises, says what it does. `class_values` stand in the class: its name.
    """
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], ... if one.default is one.empty else one.default)
        for name, one in inspect.signature(function).parameters.items()
        if name not in passed
    }
    words = re.split(r"\s+Raises ", inspect.getdoc(function) or "")[0]
    return create_model(str(class_values["name"]), __base__=base, __doc__=words, __cls_kwargs__=class_values, **fields)


def does(method: Method) -> Method:
    """Mark a method that does what a command asks for. The command is the type of its first parameter."""
    method.__dict__["does"] = True
    return method


class Commands:
    """All commands of one studio by their names. May be used from any thread once it is filled."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._known: dict[str, tuple[type[Command], Callable[[Any], Any]]] = {}
        self._changes = changes or Changes()

    def add(self, command: type[C], function: Callable[[C], Any]) -> None:
        """`function` does what the commands of this type ask for. Raises ValueError for a name that is taken."""
        if command.name in self._known:
            raise ValueError(f"there is a command {command.name!r} already")
        self._known[command.name] = (command, function)

    def take_on(self, service: object) -> None:
        """Add the methods of a service that are marked with `does`, and what its `register` adds."""
        for name, method in vars(type(service)).items():
            if getattr(method, "does", False):
                command = next(iter(method.__annotations__.values()))
                self.add(method.__globals__[command], getattr(service, name))
        register = getattr(service, "register", None)
        if register is not None:
            register(self)

    def known(self) -> Mapping[str, type[Command]]:
        """Every type of command by its name."""
        return {name: command for name, (command, _) in self._known.items()}

    def parse(self, name: str, data: Mapping[str, Any]) -> Command:
        """Return the command of this name from plain data. Raises UnknownCommand, or Malformed with the field."""
        if name not in self._known:
            raise UnknownCommand(f"there is no command {name[:80]!r}")
        return self._known[name][0].of(data)

    def do(self, command: Command) -> Any:
        """Do it, and give what its function gives. Raises UserError for a person's mistake; nothing is changed then."""
        try:
            return self._known[command.name][1](command)
        finally:  # what was refused may be told on a page as well
            if not command.looks:
                self._changes.tell()

    def send(self, name: str, data: Mapping[str, Any]) -> Any:
        """`parse`, then `do`."""
        return self.do(self.parse(name, data))


def refused(error: ValidationError, model: type[BaseModel]) -> Malformed:
    """Say the first thing that pydantic found wrong, with its field. A sentence of our own validators stays."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error" and str(first["ctx"]["error"]).endswith("."):
        return Malformed(str(first["ctx"]["error"]), field=field)
    words = str(first["loc"][-1]).replace("_", " ") if first["loc"] else "what was sent"
    if first["type"] == "missing":
        return Malformed(f"“{words}” is missing.", field=field)
    if first["type"] == "string_too_long":
        return Malformed(
            f"“{words}” is too long: at most {first['ctx']['max_length']} characters are taken.", field=field
        )
    if first["type"] == "literal_error":
        return Malformed(f"There is no {words} {first['input']!r:.80}: take {first['ctx']['expected']}.", field=field)
    return Malformed(f"“{words}” cannot be taken: {reason(error, model)}.", field=field)


@contextmanager
def in_words() -> Iterator[None]:
    """The sentences of rooms that know no UserError, such as `study`, which raise ValueError, as errors of a person."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
