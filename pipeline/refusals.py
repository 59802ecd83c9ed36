"""What pydantic found wrong with a value, in plain words: what the field takes. The words of the library are for
programmers.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_HUGE = 10**15
"""A bound that no person means: it is not told."""
_NUMBERS = (
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "multiple_of",
    "finite_number",
    "int_type",
    "int_parsing",
    "int_parsing_size",
    "int_from_float",
    "float_type",
    "float_parsing",
)
_KINDS = {
    "bool": "yes or no",
    "string": "a text",
    "model": "an object",
    "dict": "an object",
    "dataclass": "an object",
    "list": "a list",
    "tuple": "a list",
    "is": "an object",
}
"""By the beginning of an error's type: what it has to be."""


def reason(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """What the field of the first mistake takes, as the end of a sentence: "it has to be a whole number from 1 to 8".

    `model` is what was to be made of the value; without one no bounds are told. A ValueError of a validator of ours is
    given in its own words.
    """
    first = error.errors()[0]
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":
        said = str(context["error"])
        return said[:1].lower() + said[1:].rstrip(".")
    if kind == "extra_forbidden":
        return "there is no such field here"
    if kind == "missing":
        return "it is missing"
    if kind == "union_tag_not_found":
        return f"its {_bare(context['discriminator'])} is missing"
    if kind == "union_tag_invalid":
        return (
            f"its {_bare(context['discriminator'])} is {context['tag']!r:.80}: take {_bare(context['expected_tags'])}"
        )
    if kind == "string_too_long":
        return f"it has to be a text of at most {context['max_length']} characters"
    if kind == "string_too_short":
        return f"it has to be a text of at least {context['min_length']} characters"
    if kind in ("too_long", "too_short"):
        return f"it has too {'many' if kind == 'too_long' else 'few'} parts"
    if kind in ("literal_error", "enum"):
        return f"take {_bare(context['expected'])}"
    if kind in _NUMBERS:
        field = _field(model, first["loc"]) if model is not None else None
        return f"it has to be {_number(kind, field)}"
    if kind == "string_unicode":
        return "it holds half a letter"
    found = _KINDS.get(kind.split("_")[0], "something else")
    return f"it has to be {found}"


def _bare(words: object) -> str:
    """Without the quotation marks that pydantic puts around names."""
    return str(words).replace("'", "")


def _field(model: type[BaseModel], place: Sequence[int | str]) -> FieldInfo | None:
    """The field that a place leads to, through models in models; None where it leads to none."""
    found: FieldInfo | None = None
    for part in place:
        if found is not None:
            inner = found.annotation
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                return found
            model = inner
        found = model.model_fields.get(str(part))
        if found is None:
            return None
    return found


def _number(kind: str, field: FieldInfo | None) -> str:
    """Such as "a whole number from 1 to 8", or "a number above 0, at most 1"."""
    bounds: dict[str, Any] = {}
    for name in ("ge", "gt", "le", "lt", "multiple_of"):
        for rule in field.metadata if field is not None else ():
            if getattr(rule, name, None) is not None:
                bounds[name] = getattr(rule, name)
    whole = kind.startswith("int") or (field is not None and int in _types(field.annotation))
    words = "a whole number" if whole else "a number"
    low, high = bounds.get("ge"), bounds.get("le")
    if high is not None and high > _HUGE:
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
