"""Fields of commands on evaluations, for scripts and pages: the evaluated images, the model, and the retraining."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from core.evaluation_results import Weighing
from core.image_filter import ImageFilter
from services.commands import Command, parts_of
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID
from services.evaluation.model_choice import NamesModel
from services.evaluation.retraining.training import ARM_KEYS, SEEDS, ArmKey
from services.evaluation.types import Subject

LONGEST_MAPPING = 100_000
MOST_RANKED = 5_000
MOST_RUNS = 1_000
STUDY_IMAGES = 300
"""Default number of images that people judge in a study, as in the paper."""


def work_of(command: str) -> Any:
    """Return a field for the id of a piece of work. `command` is the name of the command that returned the id."""
    return Field(ge=1, le=LARGEST_ID, description=f"The “work” that {command} returned")


def _known_arms(named: Any) -> Any:
    names = parts_of(named)
    for one in names if isinstance(names, list | tuple) else ():
        if one not in ARM_KEYS:
            raise ValueError(f"There is no arm {one!r:.80}: choose among {', '.join(ARM_KEYS)}.")
    return names


class OnSubject(Command):
    """A command that names the images to evaluate."""

    version: int | None = Field(
        None, ge=1, le=LARGEST_ID, description="The number of a version of a test set, as list_evaluation_subjects says"
    )
    filter: Filter = Field(ImageFilter(), description=WHICH)
    split: str = Field("", max_length=40, description="Only sources of this split, where there are several")

    @property
    def subject(self) -> Subject:
        """Return the images selected by `version`, `filter` and `split`."""
        return Subject(self.version, self.filter, self.split)


class OnModel(NamesModel, OnSubject):
    """A command that names the images to evaluate and a model."""

    source: Literal["profile", "torchvision", "timm", "transformers", "file", "onnx", "http"] = Field(
        "profile", description="Where the model comes from; profile: the one that the profile names"
    )
    key: str = Field("", max_length=80, description="Instead of the model fields: a “key” of list_models_under_test")
    mapping: str = Field(
        "", max_length=LONGEST_MAPPING, description="The text of a file that maps labels to classes: CSV or TOML"
    )
    weighing: Weighing = Field("source", description="Unit of equal weight in figures: each source, or each test case")
    among_labels: bool = Field(
        False, description="Whether a classifier chooses among the classes of these labels only (subset evaluation)"
    )


class OnTwoModels(OnModel):
    """A command that names images, the model to evaluate on them, and optionally a second model."""

    beside: str = Field("", max_length=80, description="A second model to compare: a “key” of list_models_under_test")


class OnMethods(OnModel):
    """A command that compares the methods that made images."""

    reference: str = Field(
        "",
        max_length=120,
        description="The method that the others are compared with, such as “dillema:noise”; empty: the first",
    )


class BeginRetraining(OnModel):
    """A command that names a model to train further, and the images and settings of the training."""

    preset: Literal["short", "paper"] = Field(
        "short", description="A short fine-tuning, or the paper's 90 epochs from random weights"
    )
    arms: Annotated[tuple[ArmKey, ...], BeforeValidator(_known_arms)] = Field(
        ARM_KEYS, description="Arms to train besides “original only”, as a list or with commas between"
    )
    seeds: int = Field(SEEDS, ge=1, le=20, description="Number of trainings of each arm: they differ by chance alone")
    augmentation: Literal["randaugment", "augmix"] = Field("randaugment", description="For the arm “augmentation”")
    unseen: str = Field(
        "", max_length=40, description="An edit type that no arm learns from; empty: the rarest; “none”: learn from all"
    )
    split_seed: int = Field(0, ge=0, le=LARGEST_ID, description="Another seed divides the sources differently")
    updates: int = Field(0, ge=0, le=1_000_000, description="Updates of the optimiser in each arm; 0: as the preset")
    batch: int = Field(0, ge=0, le=1_024, description="Images per update; 0: as the preset")
    rate: float = Field(0.0, ge=0, le=10, allow_inf_nan=False, description="The learning rate; 0: that of the preset")
    shift: int | None = Field(
        None,
        ge=1,
        le=LARGEST_ID,
        description="The number of a version of a test set to measure on as well, as a natural shift",
    )
