"""Commands: each act of a person, a script or an agent is one function with typed and described parameters.

A pydantic model of its parameters validates the input and documents it for scripts. Pages and the
command line send the same commands through one `Commands`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from core.errors import UserError
from core.types import GENERATION, StageName, stage_kinds
from core.validation_messages import reason
from services.changes import Changes

LONGEST_TEXT = 4000
"""Default maximum characters of a typed text; the longest caption is far shorter."""


def _known(stage: str) -> str:
    if stage != GENERATION and stage not in stage_kinds():
        raise ValueError(f"there is no stage {stage[:80]!r}")
    return stage


KnownStage = Annotated[StageName, AfterValidator(_known), Field(description="The stage")]
"""Name of a stage of any recipe, or of the image drawing."""


def parts_of(named: Any) -> Any:
    """Return the non-empty parts of a text with commas; anything else unchanged."""
    return [part.strip() for part in named.split(",") if part.strip()] if isinstance(named, str) else named


Texts = Annotated[tuple[str, ...], BeforeValidator(parts_of)]
"""Several texts, as a list or with commas between."""
RunIds = Annotated[tuple[Annotated[str, Field(max_length=80)], ...], BeforeValidator(parts_of)]
"""Ids of several runs, as a list or with commas between."""


class Command(BaseModel):
    """One act, such as `class RenameRun(RunCommand, name="rename")`. The docstring of a subclass describes it in one
    sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=LONGEST_TEXT)

    name: ClassVar[str]
    """Name for sending, such as "rename-run": letters and hyphens."""
    looks: ClassVar[bool] = False
    """True if it only reads and changes nothing."""
    keeps: ClassVar[bool] = False
    """True if the command loses nothing: what it replaces or removes can be restored."""

    def __init_subclass__(cls, **class_values: str | bool) -> None:
        """Set class values given in the class statement: `name`, `looks`, `keeps`, `stage_of_command`."""
        super().__init_subclass__()
        for key, value in class_values.items():
            setattr(cls, key, value)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return a command of this type from plain data. Raises Malformed with the first wrong field."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise refused(error, cls) from error


class RunCommand(Command, keeps=True):
    """An act on a run."""

    stage_of_command: ClassVar[str] = ""
    """Stage of all commands of this type; "" if a field `stage` names it, or for the whole run."""

    run: str = Field(max_length=80, description="The id of the run")

    @classmethod
    def about(cls, data: Mapping[str, Any]) -> str:
        """Return the stage of a command, "" for the whole run. Takes plain data, since refusals need a stage too."""
        return cls.stage_of_command or str(data.get("stage") or "")


C = TypeVar("C", bound=Command)
Method = TypeVar("Method", bound=Callable[..., Any])


class Malformed(UserError):
    """Wrong input to a command: a mistake of a page, a script or a person."""


class Missing(UserError):
    """The object of a command does not exist, or no longer."""


class UnknownCommand(ValueError):
    """No command has this name: a bug in the sending program."""


def command_of(function: Callable[..., Any], base: type[C], *passed: str, **class_values: str | bool) -> type[C]:
    """Return a command whose fields are those of `base` and the parameters of a function, but for those `passed` from
    elsewhere.

    The function's docstring, up to "Raises", describes the command. `class_values` are set on the class: its name.
    """
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (_checked_last(hints[name]), Field() if one.default is one.empty else one.default)
        for name, one in inspect.signature(function).parameters.items()
        if name not in (*passed, *base.model_fields)
    }
    words = " ".join(re.split(r"\s+Raises\s", inspect.getdoc(function) or "")[0].split())
    name, module = str(class_values["name"]), function.__module__
    return create_model(name, __base__=base, __module__=module, __doc__=words, __cls_kwargs__=class_values, **fields)


def _checked_last(hint: Any) -> Any:
    """Return a type whose bounds are of the value that its validators make: so many runs, not so many letters."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *metadata = get_args(hint)
    return Annotated[kind, *sorted(metadata, key=lambda one: isinstance(one, BeforeValidator))]


def does(name: str, base: type[Command] = Command, **class_values: str | bool) -> Callable[[Method], Method]:
    """Make a method a command: its parameters are the fields, its docstring up to "Raises" describes the command.

    Fields of `base` that the method needs are parameters too, of the same names. A parameter `sent` gets the whole
    command, as `base`. `class_values` are those of a class statement: `looks`, `keeps`, `stage_of_command`.
    """

    def mark(method: Method) -> Method:
        # Made when the first studio takes it on: its types may stand further down in their module.
        method.__dict__["command"] = cache(lambda: command_of(method, base, "self", "sent", name=name, **class_values))
        return method

    return mark


class Commands:
    """All commands of one studio by name. Thread-safe once it is filled."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._known: dict[str, tuple[type[Command], Callable[[Any], Any]]] = {}
        self._changes = changes or Changes()

    def add(self, command: type[C], function: Callable[[C], Any]) -> None:
        """Have `function` do the commands of this type. Raises ValueError if the name is taken."""
        if command.name in self._known:
            raise ValueError(f"there is a command {command.name!r} already")
        self._known[command.name] = (command, function)

    def take_on(self, service: object) -> None:
        """Add the methods of a service marked with `does`, and those of its `register`."""
        for name, method in vars(type(service)).items():
            if command := getattr(method, "command", None):
                self.add(command(), _called(getattr(service, name)))
        register = getattr(service, "register", None)
        if register is not None:
            register(self)

    def known(self) -> Mapping[str, type[Command]]:
        """Return every type of command by name."""
        return {name: command for name, (command, _) in self._known.items()}

    def parse(self, name: str, data: Mapping[str, Any]) -> Command:
        """Return the command of this name from plain data. Raises UnknownCommand, or Malformed with the field."""
        if name not in self._known:
            raise UnknownCommand(f"there is no command {name[:80]!r}")
        return self._known[name][0].of(data)

    def do(self, command: Command) -> Any:
        """Do a command and return its function's result. Raises UserError for a person's mistake, without changes."""
        try:
            return self._known[command.name][1](command)
        finally:  # a page may show a refusal as well
            if not command.looks:
                self._changes.tell()

    def send(self, name: str, data: Mapping[str, Any]) -> Any:
        """Parse and do a command."""
        return self.do(self.parse(name, data))


def _called(method: Callable[..., Any]) -> Callable[[Command], Any]:
    """Return a function that calls a method with the fields of a command that are its parameters."""
    names = tuple(inspect.signature(method).parameters)

    def call(command: Command) -> Any:
        return method(**{name: command if name == "sent" else getattr(command, name) for name in names})

    return call


def refused(error: ValidationError, model: type[BaseModel]) -> Malformed:
    """Return the first error of pydantic as a sentence, with its field. Sentences of our own validators stay."""
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
    """Turn ValueErrors of rooms without UserError, such as `study`, into UserErrors with the same sentence."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
