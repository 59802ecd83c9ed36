"""One sentence and one example for each figure of Evaluate, for the help window and for `docs/`. Pure."""

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
    """Other names of the figure in pages and files. N represents any number."""

    @property
    def key(self) -> str:
        """Return the name for addresses and ids: small letters, digits and hyphens."""
        return "-".join("".join(one if one.isalnum() else " " for one in self.name.lower()).split())


GROUPS: Mapping[str, tuple[Term, ...]] = {
    group: tuple(Term(name, **content) for name, content in terms.items())
    for group, terms in tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8")).items()
}
"""All terms, by the title of their section, in the order of the help window."""
TERMS: Mapping[str, Term] = {
    name.lower(): term for terms in GROUPS.values() for term in terms for name in (term.name, *term.shown)
}
"""Terms by each name under which a figure is shown, in small letters."""
_CONTROLLED = ", of sources with a reconstruction"
_NUMBER = re.compile(r"\d[\d,]*")


def explained(words: str, of: str = "") -> list[Child]:
    """Return the name `words` of a figure, with a link to its explanation if there is one. The explanation is looked up
    under `of`, or under `words` if `of` is "".
    """
    term = TERMS.get(_NUMBER.sub("N", of or words).removesuffix(_CONTROLLED).lower())
    if term is None:
        return [words]
    to, name = f"#explains-{term.key}", f"What is “{term.name}”?"
    return [words, el("a", href=to, data_explain=term.key, class_="why", title=term.words, aria_label=name)]


def explanations_window() -> Html:
    """Return the closed window with all explanations, which "?" opens."""
    links = [(f"help-{number}", words) for number, words in enumerate(GROUPS)]
    return help_window("What the figures say", links, templating.render("evaluate/explanations.html", groups=GROUPS))


def explanations_folded() -> Html:
    """Return all explanations for a report, folded below one line."""
    shown = templating.render("evaluate/explanations.html", groups=GROUPS)
    return more_line("What the figures say", shown, id="explanations")
