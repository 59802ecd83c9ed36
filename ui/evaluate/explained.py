"""An explanation of each figure of Evaluate, one sentence with an example: for the help window and `docs/`. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ui import templating
from ui.explore.parts import help_window, more_line
from ui.markup import Child, Html, el


@dataclass(frozen=True)
class Term:
    """A figure of the page Evaluate and its explanation."""

    name: str
    words: str
    example: str
    shown: Sequence[str] = ()
    """Other names for the figure on pages and in files. N in a name represents any number."""

    @property
    def key(self) -> str:
        """Return the name in addresses and HTML ids: small letters, digits and hyphens."""
        return "-".join("".join(one if one.isalnum() else " " for one in self.name.lower()).split())


GROUPS: Mapping[str, tuple[Term, ...]] = {
    group: tuple(Term(name, **content) for name, content in terms.items())
    for group, terms in tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8")).items()
}
"""All explained figures by the title of their section, in the order of the help window."""
TERMS: Mapping[str, Term] = {
    name.lower(): term for terms in GROUPS.values() for term in terms for name in (term.name, *term.shown)
}
"""Explained figures by each of their names, in small letters."""
_CONTROLLED = ", of sources with a reconstruction"
_NUMBER = re.compile(r"\d[\d,]*")


def explained(words: str, of: str = "") -> list[Child]:
    """Return the name `words` of a figure, linked to its explanation if there is one. The explanation is looked up
    under the name `of`, or under `words` if `of` is "".
    """
    term = TERMS.get(_NUMBER.sub("N", of or words).removesuffix(_CONTROLLED).lower())
    if term is None:
        return [words]
    to, name = f"#explains-{term.key}", f"What is “{term.name}”?"
    return [words, el("a", href=to, data_explain=term.key, class_="why", title=term.words, aria_label=name)]


def explanations_window() -> Html:
    """Return the window with all explanations. It is closed until a person presses "?"."""
    links = [(f"help-{number}", words) for number, words in enumerate(GROUPS)]
    return help_window("What the figures say", links, templating.render("evaluate/explanations.html", groups=GROUPS))


def explanations_folded() -> Html:
    """Return all explanations for a report, hidden below a line that unfolds them."""
    shown = templating.render("evaluate/explanations.html", groups=GROUPS)
    return more_line("What the figures say", shown, id="explanations")
