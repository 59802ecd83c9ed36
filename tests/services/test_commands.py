"""The dispatcher of commands: models check the input, and an error names its field."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from core.errors import UserError
from services.commands import Command, Commands, Texts, UnknownCommand, does


class Rename(Command, name="rename"):
    """Another name."""

    run: str
    title: str = Field(max_length=5)


class Numbered(Command):
    """A command with a number."""

    number: int = Field(ge=0, description="Which")


class Acts:
    """Two functions that are commands."""

    @does("move", Numbered, keeps=True)
    def move(
        self,
        number: int,
        names: Annotated[Texts, Field(max_length=2, description="Their names")],
        far: Annotated[int, Field(le=9)] = 1,
    ) -> tuple[int, tuple[str, ...], int]:
        """Move some of them, all
        at once. Raises
        UserError never.
        """
        return number, names, far

    @does("show", Numbered, looks=True)
    def show(self, sent: Numbered) -> Numbered:
        """Show one."""
        return sent


def test_a_function_is_a_command_by_its_parameters_and_docstring() -> None:
    commands = Commands()
    commands.take_on(Acts())
    move = commands.known()["move"]
    assert list(move.model_fields) == ["number", "names", "far"] and (move.keeps, move.looks) == (True, False)
    assert move.__doc__ == "Move some of them, all at once."
    assert commands.send("move", {"number": 3, "names": "a, long name"}) == (3, ("a", "long name"), 1)
    for wrong, field in (({"names": "a"}, "number"), ({"number": 1, "names": "a, b, c"}, "names")):
        with pytest.raises(UserError) as error:
            commands.send("move", wrong)
        assert error.value.field == field
    shown = commands.send("show", {"number": 4})
    assert isinstance(shown, Numbered) and (shown.number, shown.name) == (4, "show")


def test_a_command_is_parsed_done_and_answers() -> None:
    commands, done = Commands(), list[Rename]()

    def rename(command: Rename) -> str:
        done.append(command)
        return command.title

    commands.add(Rename, rename)
    assert commands.send("rename", {"run": "r", "title": "Boat"}) == "Boat"
    assert done == [Rename(run="r", title="Boat")]
    assert commands.known() == {"rename": Rename}


@pytest.mark.parametrize(
    ("data", "field"),
    [({"run": "r"}, "title"), ({"run": "r", "title": "a boat"}, "title"), ({"run": "r", "title": "", "x": 1}, "x")],
)
def test_what_does_not_fit_names_its_field_and_does_nothing(data: dict[str, object], field: str) -> None:
    commands = Commands()
    commands.add(Rename, lambda command: pytest.fail("it was done"))
    with pytest.raises(UserError) as error:
        commands.send("rename", data)
    assert error.value.field == field
    assert str(error.value).endswith(".")


def test_a_name_is_taken_once_and_an_unknown_one_is_a_mistake_of_the_program() -> None:
    commands = Commands()
    commands.add(Rename, lambda command: None)
    with pytest.raises(ValueError, match="already"):
        commands.add(Rename, lambda command: None)
    with pytest.raises(UnknownCommand):
        commands.send("destroy", {})
