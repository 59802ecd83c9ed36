"""Jinja templates of plain text, such as sentences and Markdown of reports. They lie beside the code that uses them."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension

from core.words import and_list

_SPACE, _PARAGRAPH = "\x1f", "\x1e"
"""Placeholders for a template's own line breaks while it is rendered. Values may contain line breaks too."""


class TextTemplates:
    """The templates of a folder. `known` holds values and functions for all templates. Functions are also filters."""

    def __init__(self, folder: Path, **known: object) -> None:
        self._folder, self._known = folder, known

    def paragraphs(self, name: str, /, **values: object) -> tuple[str, ...]:
        """Render a template of sentences: a line break becomes one space, so that conditions may have their own lines,
        and an empty line separates paragraphs. Empty paragraphs are dropped.
        """
        text = re.sub(f"{_SPACE}+", " ", self._sentences.get_template(name).render(values))
        return tuple(part.strip(" ") for part in text.split(_PARAGRAPH) if part.strip(" "))

    def paragraph(self, name: str, /, **values: object) -> str:
        """Render a template of sentences as one paragraph."""
        return " ".join(self.paragraphs(name, **values))

    def lines(self, name: str, /, **values: object) -> str:
        """Render a template and keep its lines, as for Markdown. Lines with only a Jinja statement are dropped."""
        return self._lines.get_template(name).render(values)

    @cached_property
    def _sentences(self) -> Environment:
        return self._environment(extensions=[_Sentences])

    @cached_property
    def _lines(self) -> Environment:
        return self._environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)

    def _environment(self, **options: Any) -> Environment:
        # The output is plain text, so nothing is escaped.
        loader = FileSystemLoader(self._folder)
        environment = Environment(loader=loader, undefined=StrictUndefined, auto_reload=False, **options)
        environment.globals |= self._known
        environment.filters |= {name: value for name, value in self._known.items() if callable(value)}
        environment.filters |= {"thousands": "{:,}".format, "and_list": and_list}
        return environment


class _Sentences(Extension):
    """Marks the line breaks of a template before Jinja reads it. Jinja treats the marks as text."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Replace each line break, with the spaces around it, by a mark. Empty lines get another mark."""
        return re.sub(r"\s*\n\s*", _SPACE, re.sub(r"\s*\n\s*\n\s*", _PARAGRAPH, source.strip()))
