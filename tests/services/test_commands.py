"""The dispatcher of commands: what comes in is checked by the model, and what is wrong names its field."""

from __future__ import annotations

import pytest
from pydantic import Field

from core.errors import UserError
from services.commands import Command, Commands, UnknownCommand


class Rename(Command, name="rename"):
    """Another name."""

    run: str
    title: str = Field(max_length=5)


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
