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
"""Default maximum number of characters of a text in a command. The longest caption is far shorter."""


def _known(stage: str) -> str:
    if stage != GENERATION and stage not in stage_kinds():
        raise ValueError(f"there is no stage {stage[:80]!r}")
    return stage


KnownStage = Annotated[StageName, AfterValidator(_known), Field(description="The stage")]
"""Name of a text stage of any recipe, or `GENERATION` for the drawing of images."""


def parts_of(named: Any) -> Any:
    """Split a text at its commas and return the non-empty parts. Return any other value unchanged."""
    return [part.strip() for part in named.split(",") if part.strip()] if isinstance(named, str) else named


Texts = Annotated[tuple[str, ...], BeforeValidator(parts_of)]
"""Several texts: a list, or one text with commas between them."""
RunIds = Annotated[tuple[Annotated[str, Field(max_length=80)], ...], BeforeValidator(parts_of)]
"""Ids of several runs: a list, or one text with commas between them."""


class Command(BaseModel):
    """A command, such as `class RenameRun(RunCommand, name="rename")`. A subclass's docstring describes the command."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=LONGEST_TEXT)

    name: ClassVar[str]
    """Unique name by which the command is sent, such as "rename-run". It has only letters and hyphens."""
    looks: ClassVar[bool] = False
    """True if the command only reads and changes nothing."""
    keeps: ClassVar[bool] = False
    """True if everything that the command replaces or removes can be restored."""

    def __init_subclass__(cls, **class_values: str | bool) -> None:
        """Set class values given in the class statement: `name`, `looks`, `keeps`, `stage_of_command`."""
        super().__init_subclass__()
        for key, value in class_values.items():
            setattr(cls, key, value)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return a command of this type from its fields by name. Raises Malformed for the first invalid field."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise refused(error, cls) from error


class RunCommand(Command, keeps=True):
    """A command on one run."""

    stage_of_command: ClassVar[str] = ""
    """Stage that all commands of this type affect; "" if they have a field `stage`, or affect the whole run."""

    run: str = Field(max_length=80, description="The id of the run")

    @classmethod
    def about(cls, data: Mapping[str, Any]) -> str:
        """Return the stage that a command affects, read from its fields, which may be invalid. "" for the whole run."""
        return cls.stage_of_command or str(data.get("stage") or "")


C = TypeVar("C", bound=Command)
Method = TypeVar("Method", bound=Callable[..., Any])


class Malformed(UserError):
    """Raised for invalid input to a command, sent by a page, a script or a person."""


class Missing(UserError):
    """Raised if a command names something that does not exist, or does not exist any more."""


class UnknownCommand(ValueError):
    """Raised for a name that no command has: the sending program has a bug."""


def command_of(function: Callable[..., Any], base: type[C], *passed: str, **class_values: str | bool) -> type[C]:
    """Return a new command type. Its fields are those of `base` and the parameters of a function except `passed`.

    The function's docstring, up to "Raises", describes the command. `class_values` become attributes of the class. They
    must contain `name`.
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
    """Return the type with its BeforeValidators at the end of its metadata. There, they run before the bounds are
    checked. So a bound counts the entries of the parsed list, not the letters of the typed text.
    """
    if get_origin(hint) is not Annotated:
        return hint
    kind, *metadata = get_args(hint)
    return Annotated[kind, *sorted(metadata, key=lambda one: isinstance(one, BeforeValidator))]


def does(name: str, base: type[Command] = Command, **class_values: str | bool) -> Callable[[Method], Method]:
    """Mark a method as the command `name`. The method's parameters become the command's fields. The method's docstring,
    up to "Raises", becomes the command's description. A method that needs fields of `base` has parameters of the same
    names. A parameter `sent` receives the whole command, of the type `base`. `class_values` set attributes of the
    command's class: `looks`, `keeps`, `stage_of_command`.
    """

    def mark(method: Method) -> Method:
        # The command is made when a studio first takes it on: the method's types may be defined further down in the
        # module.
        method.__dict__["command"] = cache(lambda: command_of(method, base, "self", "sent", name=name, **class_values))
        return method

    return mark


class Commands:
    """All commands of one studio by name. Thread-safe once all commands are added."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._known: dict[str, tuple[type[Command], Callable[[Any], Any]]] = {}
        self._changes = changes or Changes()

    def add(self, command: type[C], function: Callable[[C], Any]) -> None:
        """Let `function` carry out the commands of this type. Raises ValueError if another command has the name."""
        if command.name in self._known:
            raise ValueError(f"there is a command {command.name!r} already")
        self._known[command.name] = (command, function)

    def take_on(self, service: object) -> None:
        """Add a service's methods that are marked with `does`, and the commands that its `register` adds, if any."""
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
        """Return a command from its name and fields. Raises UnknownCommand, or Malformed for an invalid field."""
        if name not in self._known:
            raise UnknownCommand(f"there is no command {name[:80]!r}")
        return self._known[name][0].of(data)

    def do(self, command: Command) -> Any:
        """Carry out a command and return its result. Raises UserError, with nothing changed, for a user's mistake."""
        try:
            return self._known[command.name][1](command)
        finally:  # pages may show errors too
            if not command.looks:
                self._changes.tell()

    def send(self, name: str, data: Mapping[str, Any]) -> Any:
        """Parse and carry out a command, and return its result. Raises the errors of `parse` and `do`."""
        return self.do(self.parse(name, data))


def _called(method: Callable[..., Any]) -> Callable[[Command], Any]:
    """Return a function that passes a command's fields to `method`; a parameter named `sent` gets the whole command."""
    names = tuple(inspect.signature(method).parameters)

    def call(command: Command) -> Any:
        return method(**{name: command if name == "sent" else getattr(command, name) for name in names})

    return call


def refused(error: ValidationError, model: type[BaseModel]) -> Malformed:
    """Return a Malformed error with pydantic's first error in one sentence. A validator's own sentence is kept."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error" and str(first["ctx"]["error"]).endswith("."):
        return Malformed(str(first["ctx"]["error"]), field=field)
    words = str(first["loc"][-1]).replace("_", " ") if first["loc"] else "what was sent"
    if first["type"] == "missing":
        return Malformed(f"“{words}” is missing.", field=field)
    if first["type"] == "string_too_long":
        return Malformed(
            f"“{words}” is too long: at most {first['ctx']['max_length']} characters are allowed.", field=field
        )
    if first["type"] == "literal_error":
        return Malformed(f"There is no {words} {first['input']!r:.80}: choose {first['ctx']['expected']}.", field=field)
    return Malformed(f"“{words}” is not valid: {reason(error, model)}.", field=field)


@contextmanager
def in_words() -> Iterator[None]:
    """Turn a ValueError of a package that raises no UserErrors, such as `study`, into a UserError with its text."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
