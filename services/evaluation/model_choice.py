"""Fields of commands that name a model under test, and their translation to the model's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from core.errors import UserError
from core.settings import UnderTestSettings
from evaluation.adapters.network import checkpoint_path, require_read
from services.commands import Command, refused
from services.edit_conflicts import StateEdit

LONGEST_NAME = 120
"""Maximum number of characters in a model's name. `UnderTestSettings` has the same limit."""
LONGEST_PATH = 1000
"""Maximum number of characters in a checkpoint's path. `UnderTestSettings` has the same limit."""
LONGEST_CLASSES = 20_000
"""Maximum number of characters in the names of a file's classes; 1,000 classes take about 12,000."""


class NamesModel(Command):
    """A command that names a model under test."""

    source: str = Field(
        max_length=40,
        description="Where it comes from: profile, torchvision, timm, transformers (the hub), file, onnx or http",
    )
    model: str = Field(
        "",
        max_length=LONGEST_NAME,
        description="The model's name, such as resnet50 or owner/name. For a file: its architecture if the file lacks "
        "it, after timm: or torchvision: if both have it. For http: the address, which the profile has to name",
    )
    file: str = Field(
        "",
        max_length=LONGEST_PATH,
        description="The path of a checkpoint or ONNX file, or of a folder of transformers, on the machine of the "
        "studio",
    )
    classes: str = Field(
        "", max_length=LONGEST_CLASSES, description="The names of a file's classes in order, with commas between"
    )
    size: str = Field("", max_length=20, description="Size to scale images to for a file: 224, or width x height")
    mean: str = Field("", max_length=100, description="Mean of each channel (0 to 1) to subtract for a file")
    std: str = Field("", max_length=100, description="Standard deviation by which each channel is then divided")
    layout: Literal["channels first", "channels last"] = Field(
        "channels first", description="Shape of an ONNX file's input: (3, height, width) or (height, width, 3)"
    )


class ChooseModelUnderTest(NamesModel, StateEdit):
    """A command that chooses the model under test of a run."""


def chosen_model(command: NamesModel) -> UnderTestSettings:
    """Return the settings that a command names. Raises UserError with the field that is wrong or unused."""
    source, name, file = command.source, command.model.strip(), command.file.strip()
    values = {"source": source, "file": file, "classes": command.classes, "layout": command.layout}
    values |= {"address" if source == "http" else "name": name}
    values |= {"size": command.size, "mean": command.mean, "std": command.std}
    try:
        settings = UnderTestSettings.model_validate(values)
    except ValidationError as error:
        if error.errors()[0]["loc"][:1] == ("source",):
            raise UserError(
                "Pick where the model under test comes from: the profile, torchvision, timm, the hub, a file, ONNX or "
                "a server.",
                field="source",
            ) from error
        wrong = refused(error, UnderTestSettings)
        raise UserError(str(wrong), field="model" if wrong.field == "address" else wrong.field) from error
    try:
        require_read(settings)
    except UserError as error:
        field = "model" if error.field in ("name", "address") else error.field
        raise UserError(str(error), field=field) from error
    if file:
        checkpoint_path(settings.file)
    return settings
