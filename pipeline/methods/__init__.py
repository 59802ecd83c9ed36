"""Methods, one module each: ways to make a test case from a source and a caption. `METHODS` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from core.lineage import Lineage, read_settings, set_methods
from core.types import from_plain
from pipeline.methods.background import BACKGROUND
from pipeline.methods.base import MethodDescription
from pipeline.methods.controlnet import CONTROLNET
from pipeline.methods.edit import EDIT
from pipeline.methods.instruct import INSTRUCT

METHODS: dict[str, MethodDescription] = {method.name: method for method in (CONTROLNET, EDIT, INSTRUCT, BACKGROUND)}
set_methods(lambda name: METHODS[name].settings_type)


def method_of(name: str) -> MethodDescription:
    """Return the description of a method. That of an unknown method has no settings type and no artifacts."""
    return METHODS.get(name) or MethodDescription(name)


def read_lineage(plain: Mapping[str, Any]) -> Lineage:
    """Read a lineage from the data of `Lineage.plain`. Raises KeyError, TypeError or ValueError for other data."""
    seed, settings = plain["seed"], plain["settings"]
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise ValueError("the seed is no whole number of 64 bits")
    if not isinstance(settings, Mapping):
        raise TypeError("the settings are no object")
    known_fields = {field.name: plain[field.name] for field in fields(Lineage) if field.name in plain}
    lineage: Lineage = from_plain(Lineage, {**known_fields, "settings": read_settings(str(plain["method"]), settings)})
    return lineage
