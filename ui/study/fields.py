"""The pieces of a form of the study lead: a label, a control, a hint, and the place for what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from core.form_numbers import form_numbers
from ui.explore.parts import text_line
from ui.markup import Child, Html, el

Problems = Mapping[str, str]
"""What is wrong, by the name of the field."""


def wrong(name: str, problems: Problems) -> Html:
    """The place beside a field where what is wrong with it is said; empty while nothing is."""
    return el("p", problems.get(name, ""), class_="wrong", data_problem=name, role="alert", id=f"wrong-{_id(name)}")


def field(name: str, label: Child, control: Child, problems: Problems, hint: Child = None, look: str = "") -> Html:
    """A control under its label."""
    return el(
        "div",
        el("label", label, for_=_id(name)),
        control,
        el("p", hint, class_="hint") if hint is not None else None,
        wrong(name, problems),
        class_=f"entry {look}".strip(),
    )


def text_input(name: str, value: str, **attributes: str | int | bool | None) -> Html:
    """A line of text."""
    return text_line(name=name, id=_id(name), value=value, aria_describedby=f"wrong-{_id(name)}", **attributes)


def number_input(name: str, value: float | int, unit: str = "", **attributes: str | int | bool | None) -> Html:
    """A number as text, so that what was mistyped can be marked instead of vanishing; `unit` stands behind it."""
    shown = f"{value:.10g}"
    box = text_input(name, shown, inputmode="decimal", class_="number", **attributes)
    return el("span", box, el("span", unit, class_="unit") if unit else None, class_="with-unit")


def number_field(
    part: object, name: str, problems: Problems, prefix: str = "", **attributes: str | int | bool | None
) -> Html:
    """A number of a dataclass (see `FormNumber`) with its label and hint."""
    number = form_numbers(part)[name]
    control = number_input(prefix + name, number.shown(getattr(part, name)), number.unit, **attributes)
    return field(prefix + name, number.label, control, problems, number.hint or None)


def area(name: str, value: str, rows: int = 4, **attributes: str | int | bool | None) -> Html:
    """Several lines of text."""
    return el(
        "textarea", value, name=name, id=_id(name), rows=rows, aria_describedby=f"wrong-{_id(name)}", **attributes
    )


def tick(name: str, words: Child, on: bool, hint: Child = None, **attributes: str | int | bool | None) -> Html:
    """A box to tick, with its words."""
    box = el("input", type="checkbox", name=name, id=_id(name), checked=on, **attributes)
    return el(
        "label", box, el("span", words, el("small", hint, class_="mut") if hint is not None else None), class_="tick"
    )


def select(name: str, options: Iterable[tuple[str, str]], chosen: str, **attributes: str | int | bool | None) -> Html:
    """A choice of (value, words)."""
    made = [el("option", words, value=value, selected=value == chosen) for value, words in options]
    return el("select", made, name=name, id=_id(name), **attributes)


def _id(name: str) -> str:
    """The id of a field: its name without points."""
    return "f-" + name.replace(".", "-")
