"""Parsers of the command lines. A TOML file beside each module defines its commands and options.

A table `[commands.NAME]` defines a command. `act` names its function, which by default has the command's name. `help`
is a short description, `description` a longer one ("$doc" is the function's docstring). `takes` lists options from the
shared table `[options]`, and `options` are further options. The key of an option is its flag or name, unless `flags`
lists several flags. The rest of an option are arguments of argparse's `add_argument`. "$NAME", alone or in a text,
stands for a value that the module passes to `parser_of`. `workspace = true` adds --workspace.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Parser that reports wrong options in one sentence, not with the list of all options."""

    def error(self, message: str) -> NoReturn:
        sentence = message.removeprefix("argument ")
        self.exit(2, f"{sentence[:1].upper()}{sentence[1:]}. All that it takes: {self.prog} --help\n")


def parser_of(module_file: str, *functions: Callable[..., Any], **values: Any) -> Parser:
    """Return the parser that the TOML file of a module describes. The parsed options have the command's function as
    `act`, or None if none of `functions` fits.
    """
    table = tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))
    known = {"int": int, "float": float, "path": Path, "suppress": argparse.SUPPRESS, **values}
    acts = {function.__name__: function for function in functions}
    parser = Parser(prog=table["prog"], description=table["description"])
    if table.get("workspace"):
        add_workspace_option(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in table["commands"].items():
        act = acts.get(command.get("act", name.replace("-", "_")))
        words = {"help": command["help"], "description": command.get("description", command["help"])}
        sub = commands.add_parser(name, **_filled(words, {"doc": act.__doc__}))
        sub.set_defaults(act=act)
        if command.get("workspace"):
            add_workspace_option(sub)
        shared = {key: table["options"][key] for key in command.get("takes", ())}
        for key, option in {**shared, **command.get("options", {})}.items():
            arguments = _filled(option, known)
            sub.add_argument(*arguments.pop("flags", key).split(), **arguments)
    return parser


def add_workspace_option(parser: argparse.ArgumentParser) -> None:
    """Add --workspace, whose default is $WORKSPACE or "workspace"."""
    usual = os.environ.get("WORKSPACE") or "workspace"
    parser.add_argument("--workspace", default=usual, help="folder of the workspace (workspace)")


def whole_number(least: int, most: int, refusal: str = "") -> Callable[[str], int]:
    """Return a function that reads an option as a whole number from `least` to `most`. `refusal` is the error message;
    "{text}" in it is replaced by the wrong text.
    """

    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
            words = refusal.format(text=repr(text)) or f"say a number from {least} to {most:,}"
            raise argparse.ArgumentTypeError(words)
        return int(text)

    return read


def points(text: str) -> float:
    """Read an option as a number of per cent points from 0 to 100."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:  # also refuses nan
        raise argparse.ArgumentTypeError("say a number of points from 0 to 100, such as 1 or 0.5")
    return value


def _filled(table: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    def value(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        named = text[1:] if text.startswith("$") else ""
        return known[named] if named in known else Template(text).substitute(known)

    return {key: value(text) for key, text in table.items()}
