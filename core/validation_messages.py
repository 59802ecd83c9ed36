"""Explain pydantic's errors in plain words. An explanation names the values that a field accepts."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from core.data_files import DataTable

_NUMBERS = frozenset(
    "greater_than greater_than_equal less_than less_than_equal multiple_of "
    "finite_number int_type int_parsing int_parsing_size int_from_float float_type float_parsing".split()
)
_MESSAGES, _KINDS = DataTable(__file__, str, "messages"), DataTable(__file__, str, "kinds")


def reason(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return the end of a sentence about the first error, such as "it has to be a whole number from 1 to 8". The
    validated `model` gives the bounds. A ValueError of our own validators keeps its message.
    """
    first = error.errors()[0]
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":
        message = str(context["error"])
        return message[:1].lower() + message[1:].rstrip(".")
    if kind in _MESSAGES:
        values = {name: value if name == "tag" else str(value).replace("'", "") for name, value in context.items()}
        return _MESSAGES[kind].format_map(values)
    if kind in _NUMBERS:
        field = place_of(model, first["loc"]).field if model is not None else None
        return f"it has to be {_number(kind, field)}"
    return f"it has to be {_KINDS.get(kind.split('_')[0], 'something else')}"


@dataclass(frozen=True)
class FieldPlace:
    """Position of a value within a pydantic model."""

    key: str
    """The path as a person writes it, such as "captioner.questions.0.prompt"."""
    holder: type[BaseModel] | None
    """The model that has the field, or would have it if it existed. None if unknown."""
    field: FieldInfo | None
    kinds: tuple[str, ...] = ()
    """Allowed values of the key `kind`, which selects one of several models for a value; () without such a key."""


def place_of(model: type[BaseModel], places: Sequence[int | str]) -> FieldPlace:
    """Find the field to which pydantic's error location leads, through nested models, tables, lists and unions."""
    holder: type[BaseModel] | None = model
    field: FieldInfo | None = None
    inner: Any = model
    key = list[str]()
    for part in places:
        choices = _choices(inner)
        by_kind = {str(kind): choice for choice in choices for kind in _kinds(choice)}
        if len(choices) > 1 and part in by_kind:
            inner = by_kind[str(part)]
            continue
        if part != "[key]":
            key.append(str(part))
        submodel = next(iter(choices), None)
        if submodel is None:
            within = [one for one in get_args(_bare_type(inner)) if one is not Ellipsis]
            holder, field, inner = None, None, within[-1] if within else None
        else:
            holder, field = submodel, submodel.model_fields.get(str(part))
            inner = field.annotation if field is not None else None
    kinds = tuple(str(kind) for choice in _choices(inner) for kind in _kinds(choice))
    return FieldPlace(".".join(key), holder, field, kinds)


def _bare_type(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _choices(annotation: Any) -> list[type[BaseModel]]:
    bare = _bare_type(annotation)
    parts = [_bare_type(part) for part in _types(bare)] if get_origin(bare) in (UnionType, typing.Union) else [bare]
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def _number(kind: str, field: FieldInfo | None) -> str:
    """Return words such as "a whole number from 1 to 8" or "a number above 0, at most 1"."""
    bounds: dict[str, Any] = {}
    for name in ("ge", "gt", "le", "lt", "multiple_of"):
        for rule in field.metadata if field is not None else ():
            if getattr(rule, name, None) is not None:
                bounds[name] = getattr(rule, name)
    whole = kind.startswith("int") or (field is not None and int in _types(field.annotation))
    words = "a whole number" if whole else "a number"
    low, high = bounds.get("ge"), bounds.get("le")
    if high is not None and high > 10**15:  # nobody types such a number
        high = None
    if low is not None and high is not None:
        words += f" from {_plain(low)} to {_plain(high)}"
    else:
        words += f" of at least {low:g}" if low is not None else ""
        words += f" above {bounds['gt']:g}" if "gt" in bounds else ""
        words += f"{',' if 'gt' in bounds else ''} of at most {high:g}" if high is not None else ""
        words += f" below {bounds['lt']:g}" if "lt" in bounds else ""
    return words + (f" that {bounds['multiple_of']:g} divides" if "multiple_of" in bounds else "")


def _types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (UnionType, typing.Union) else (annotation,)


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
