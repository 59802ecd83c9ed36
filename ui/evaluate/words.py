"""Addresses of the page Evaluate, and functions that write figures as text. Pure."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import AfterValidator, Field

from core.figures import Figure
from services.edit_conflicts import LARGEST_ID
from services.evaluation.study import StudyPlan
from services.evaluation.types import Cell
from ui.markup import Attribute, Child, el

EVALUATE = "/evaluate/"
CANNOT_TELL = "cannot tell"
LONGEST_MAPPING = 4000
"""Maximum number of characters of a mapping file in an address. Longer files need the command line."""
MINUS = "\N{MINUS SIGN}"
OPENS = "Open these images"
_FIGURES = re.compile(r"(\([^()]*\)|(?<![\w.-])[-+]?\d(?:[\d,.]*\d)?(?: %| points)?)")
"""Pattern for a figure in a sentence, or for an interval in brackets."""
_Number = Annotated[int | None, Field(ge=1, le=LARGEST_ID)]


def _unix_lines(text: str) -> str:
    """Return a text with "\\n" as line ends. Forms of a browser send CR LF."""
    return text.replace("\r\n", "\n")


@dataclass(frozen=True)
class Place:
    """The content of an evaluation page's address: images, model, and the model or version to compare with. FastAPI
    reads it from the parameters of the address.
    """

    version: _Number = None
    filter: str = ""
    """A filter of the gallery, written as in the gallery's address."""
    split: str = ""
    key: str = ""
    """Key of the model, as in `ModelChoice.key`; "" while no model is chosen."""
    mapping: Annotated[str, Field(max_length=LONGEST_MAPPING), AfterValidator(_unix_lines)] = ""
    beside: str = ""
    """Key of a second model to compare with; "" for none."""
    other: _Number = None
    """Number of a second version of the test set to compare with, or None."""
    weighing: Literal["", "case"] = ""
    """"case" if each test case has the same weight, "" if each source image has the same weight."""
    among_labels: Literal["", "1"] = ""
    """"1" if a classifier's answers are limited to the classes of the labels, else ""."""

    @property
    def fields(self) -> dict[str, Any]:
        """Return the values for the fields of `services.evaluation.commands.OnModel`."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("beside", "other")}
        return {name: value for name, value in fields.items() if value not in (None, "")}

    @property
    def compared_fields(self) -> dict[str, Any]:
        """Return the values for a command that may compare two models."""
        return self.fields | ({"beside": self.beside} if self.beside else {})

    def to(self, end: str = "", **changes: Any) -> str:
        """Return this page's address with `changes` to the fields. `end` is appended to the path."""
        return evaluate_address(end, **asdict(replace(self, **changes)))

    @property
    def second(self) -> Place | None:
        """Return the fields of a page that evaluates only the second model or version; None if no second exists."""
        if self.beside:
            return replace(self, key=self.beside, beside="", other=None)
        if self.other is not None:
            return replace(self, version=self.other, beside="", other=None)
        return None

    def images(self, cell: Cell, image: int = 0) -> str:
        """Return the address of the images that a figure counts, with the entry `image` enlarged unless it is 0."""
        cell_fields = {name: value for name, value in asdict(cell).items() if value}
        place_fields = asdict(replace(self, beside="", other=None))
        return evaluate_address("images", **place_fields, **cell_fields, **({"image": image} if image else {}))


@dataclass(frozen=True)
class Links:
    """Links in the result of an evaluation. By default there are none, as in a report."""

    opened: Callable[[Cell], str | None] = lambda _cell: None
    """Function that returns the address of the images that a figure counts, or None."""
    picture: Callable[[str], str | None] = lambda _sha: None
    """Function that returns a thumbnail's address from the SHA-256 of its image, or None."""
    image: Callable[[int, Cell], str | None] = lambda _entry, _cell: None
    """Function that returns the address of one of the images that a figure counts, or None."""
    control: Child = None
    """Part of the page with the button to draw the control set (images without an edit), and its progress."""
    weighed: Child = None
    """Links to the result with another weighting (by source or test case) or other classes for the model to choose."""
    study: StudyPlan | str | None = None
    """Plan for a study of the images, or a sentence on why none can be drafted; None if no study is needed."""
    can_check: bool = False
    """True if the page can start a check of the images' masks."""


def evaluate_address(end: str = "", **query: Any) -> str:
    """Return an address below /evaluate/. Values of None and "" are left out."""
    present = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{EVALUATE}{end}{'?' if present else ''}{urlencode(present)}"


def embedded(webp: bytes) -> str:
    """Return a data URL that contains a WebP picture."""
    return f"data:image/webp;base64,{b64encode(webp).decode()}"


def linked(shown: Child, link: str | None, title: str = OPENS, **attributes: Attribute) -> Child:
    """Return `shown` as a link, or unchanged without a `link`."""
    return el("a", shown, href=link, class_="opens", title=title, **attributes) if link else shown


def per_cent(share: float | None, unit: bool = True) -> str:
    """Return a share as a percentage with one decimal; "–" for None."""
    return "–" if share is None else f"{100 * share:.1f}{' %' if unit else ''}"


def signed(value: float | None, form: str = ".2f") -> str:
    """Return a number as text with "+" or a minus sign before it; "–" for None."""
    if value is None:
        return "–"
    text = f"{value:+{form}}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def points(value: float | None) -> str:
    """Return a difference of two shares in percentage points, such as "+21.3"."""
    return signed(None if value is None else 100 * value, ".1f")


def ends_of(figure: Figure, difference: bool = False, form: str = "") -> str:
    """Return the interval of a figure as text, such as "34.8 to 41.8", or the reason why it has none."""
    if figure.low is None or figure.high is None:
        return figure.why
    if form:
        return f"{signed(figure.low, form)} to {signed(figure.high, form)}"
    say = points if difference else (lambda value: per_cent(value, unit=False))
    return f"{say(figure.low)} to {say(figure.high)}"


def p_words(p: float | None) -> str:
    """Return a p-value as text; "–" for None."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def minus(text: str) -> str:
    """Return the text with minus signs in place of hyphens."""
    return text.replace("-", MINUS)


def clipped(figure: Figure) -> Figure:
    """Return the figure with its interval limited to -1 to 1, the range of a change of a probability."""
    if figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=max(-1.0, figure.low), high=min(1.0, figure.high))


def strong_figures(answer: str) -> list[Child]:
    """Return a sentence with its figures in bold, except intervals."""
    pieces = _FIGURES.split(answer)
    return [
        el("b", minus(piece)) if place % 2 and not piece.startswith("(") else minus(piece) if place % 2 else piece
        for place, piece in enumerate(pieces)
    ]
