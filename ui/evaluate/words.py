"""The addresses of the page Evaluate, and how figures are said there. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from core.figures import Figure
from services.evaluation.study import StudyPlan
from services.evaluation.types import Cell
from ui.explore.parts import small
from ui.markup import Attribute, Child, Html, el

EVALUATE = "/evaluate/"
CANNOT_TELL = "cannot tell"
MINUS = "\N{MINUS SIGN}"
OPENS = "Open these images"
_FIGURES = re.compile(r"(\([^()]*\)|(?<![\w.-])[-+]?\d(?:[\d,.]*\d)?(?: %| points)?)")
"""What is a figure in the words of an answer, or an interval in brackets."""


@dataclass(frozen=True)
class Place:
    """What an address of the page says: what is evaluated, the model, and what stands beside it."""

    version: int | None = None
    filter: str = ""
    """A filter, as in the address of the gallery."""
    split: str = ""
    key: str = ""
    """`ModelChoice.key`; "" as long as no model is chosen."""
    mapping: str = ""
    beside: str = ""
    """The key of a second model."""
    other: int | None = None
    """A second version, of which the same is asked."""
    weighing: str = ""
    """"case" where each test case weighs the same, in place of each source."""

    @property
    def fields(self) -> dict[str, Any]:
        """What `services.evaluation.service.OnModel` takes."""
        said = {name: value for name, value in asdict(self).items() if name not in ("beside", "other")}
        return {name: value for name, value in said.items() if value not in (None, "")}

    def to(self, end: str = "", **changes: Any) -> str:
        """The address of a place that differs by `changes`; `end` stands behind the page's own."""
        return evaluate_address(end, **asdict(replace(self, **changes)))

    @property
    def second(self) -> Place | None:
        """What is compared with it; None for nothing."""
        if self.beside:
            return replace(self, key=self.beside, beside="", other=None)
        if self.other is not None:
            return replace(self, version=self.other, beside="", other=None)
        return None

    def images(self, cell: Cell, image: int = 0) -> str:
        """Where the images of a number are opened, with one of them large."""
        said = {name: value for name, value in asdict(cell).items() if value}
        alone = asdict(replace(self, beside="", other=None))
        return evaluate_address("images", **alone, **said, **({"image": image} if image else {}))


def weighing_link(place: Place) -> Html:
    """A link to the same figures weighed in the other way."""
    other = "source" if place.weighing == "case" else "case"
    words = f"Let each {'test case' if other == 'case' else 'source'} weigh the same"
    return small(el("a", words, href=place.to(weighing="case" if other == "case" else "")), id="weighing")


@dataclass(frozen=True)
class Links:
    """Where an answer leads."""

    opened: Callable[[Cell], str | None] = lambda _cell: None
    """Where the images of a number are."""
    picture: Callable[[str], str | None] = lambda _sha: None
    """The address of a thumbnail by its SHA-256."""
    image: Callable[[int, Cell], str | None] = lambda _entry, _cell: None
    """Where one image of a number is."""
    control: Child = None
    """What makes the control set, where it can be made, and how far that is."""
    weighed: Child = None
    """Where the figures are weighed in the other way."""
    study: StudyPlan | str | None = None
    """What a study would say that can be drafted, or in a sentence why none can; None where none is needed."""
    can_check: bool = False
    """Whether masks can be checked from here."""


def evaluate_address(end: str = "", **query: Any) -> str:
    """An address below /evaluate/; what is None or "" is left out."""
    said = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{EVALUATE}{end}{'?' if said else ''}{urlencode(said)}"


def linked(shown: Child, link: str | None, title: str = OPENS, **attributes: Attribute) -> Child:
    """What is shown, as a link to its images where there are some."""
    return el("a", shown, href=link, class_="opens", title=title, **attributes) if link else shown


def per_cent(share: float | None, unit: bool = True) -> str:
    """A share as per cent with one digit; "–" for None."""
    return "–" if share is None else f"{100 * share:.1f}{' %' if unit else ''}"


def signed(value: float | None, form: str = ".2f") -> str:
    """A number with its sign, and a minus of full width; "–" for None."""
    if value is None:
        return "–"
    text = f"{value:+{form}}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def points(value: float | None) -> str:
    """A difference of shares in points, such as "+21.3"."""
    return signed(None if value is None else 100 * value, ".1f")


def ends_of(figure: Figure, difference: bool = False, form: str = "") -> str:
    """The interval in words, such as "34.8 to 41.8", or why there is none."""
    if figure.low is None or figure.high is None:
        return figure.why
    if form:
        return f"{signed(figure.low, form)} to {signed(figure.high, form)}"
    say = points if difference else (lambda value: per_cent(value, unit=False))
    return f"{say(figure.low)} to {say(figure.high)}"


def p_words(p: float | None) -> str:
    """A p-value; "–" for None."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def minus(text: str) -> str:
    """With the sign that figures have, and not a hyphen."""
    return text.replace("-", MINUS)


def clipped(figure: Figure) -> Figure:
    """With the ends of its interval between -1 and 1, as a change of a probability can be."""
    if figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=max(-1.0, figure.low), high=min(1.0, figure.high))


def strong_figures(answer: str) -> list[Child]:
    """The words, with the figures in them made strong, but for their intervals."""
    pieces = _FIGURES.split(answer)
    return [
        el("b", minus(piece)) if place % 2 and not piece.startswith("(") else minus(piece) if place % 2 else piece
        for place, piece in enumerate(pieces)
    ]
