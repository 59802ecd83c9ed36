"""What a script or a page can ask of evaluations, as commands: what is evaluated, by which model, and what is done."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from core.image_filter import ImageFilter
from services.commands import Command, parts_of
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID
from services.evaluation.model_choice import NamesModel
from services.evaluation.retraining.training import ARM_KEYS, SEEDS, ArmKey
from services.evaluation.types import Subject
from services.queries import Query

LONGEST_MAPPING = 100_000
MOST_RANKED = 5_000
MOST_RUNS = 1_000
STUDY_IMAGES = 300
"""As many as the paper had judged."""


def _known_arms(named: Any) -> Any:
    found = parts_of(named)
    for one in found if isinstance(found, list | tuple) else ():
        if one not in ARM_KEYS:
            raise ValueError(f"There is no arm {one!r:.80}: take some of {', '.join(ARM_KEYS)}.")
    return found


class OnSubject(Command):
    """What is evaluated."""

    version: int | None = Field(
        None, ge=1, le=LARGEST_ID, description="The number of a version of a test set, as list_evaluation_subjects says"
    )
    filter: Filter = Field(ImageFilter(), description=WHICH)
    split: str = Field("", max_length=40, description="Only sources of this split, where there are several")

    @property
    def subject(self) -> Subject:
        """Version, filter and split together."""
        return Subject(self.version, self.filter, self.split)


class OnModel(NamesModel, OnSubject):
    """What is evaluated, and the model."""

    source: Literal["profile", "torchvision", "timm", "transformers", "file", "onnx", "http"] = Field(
        "profile", description="Where the model comes from; profile: the one that the profile names"
    )
    key: str = Field("", max_length=80, description="In place of these: the “key” of list_models_under_test")
    mapping: str = Field(
        "", max_length=LONGEST_MAPPING, description="A file that maps labels to classes, CSV or TOML; as text"
    )


class ListEvaluationSubjects(Query):
    """List the versions of test sets, with how many sources and test cases each has and why it cannot be evaluated."""

    name: ClassVar[str] = "list-evaluation-subjects"


class ListModelsUnderTest(OnSubject):
    """List the models that can be asked about a test set, and how many of its images each has read."""

    name: ClassVar[str] = "list-models-under-test"
    looks: ClassVar[bool] = True


class BeginPredictions(OnModel):
    """Have a model read all images of a test set that it has not read; what it has read is kept."""

    name: ClassVar[str] = "begin-predictions"


class CancelPredictions(Command):
    """Stop a model that reads images; what it has read is kept."""

    name: ClassVar[str] = "cancel-predictions"
    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_predictions gives it")


class ShowPredictions(Query):
    """Tell how far a model that reads images is."""

    name: ClassVar[str] = "show-predictions"
    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_predictions gives it")


class ShowEvaluation(OnModel):
    """Tell what a test set says of a model: errors, or mIoU and lost classes, with intervals, excess over
    reconstruction, edits that hurt.
    """

    name: ClassVar[str] = "show-evaluation"
    looks: ClassVar[bool] = True


class MakeControlSet(OnSubject):
    """Draw the reconstructions that sources of a test set lack: their own captions without an edit, and all else as
    their test cases were drawn. What is there is not drawn again.
    """

    name: ClassVar[str] = "make-control-set"


class CancelControlSet(Command):
    """Stop to draw reconstructions; what was drawn stays."""

    name: ClassVar[str] = "cancel-control-set"
    work: int = Field(ge=1, le=LARGEST_ID, description="As make_control_set gives it")


class ShowControlSet(Query):
    """Tell how far the drawing of reconstructions is."""

    name: ClassVar[str] = "show-control-set"
    work: int = Field(ge=1, le=LARGEST_ID, description="As make_control_set gives it")


class RankTestCases(OnModel):
    """Tell in which order to look at the test cases of a test set, so that the first ones show as many different valid
    faults of the model as there are; and how good that order is beside random, entropy and DeepGini.
    """

    name: ClassVar[str] = "rank-test-cases"
    looks: ClassVar[bool] = True
    most: int = Field(100, ge=1, le=MOST_RANKED, description="So many of them are told, the first ones")


class BeginRetraining(OnModel):
    """Train a model further with images of a test set, arm by arm at equal updates, and measure what that gains on
    sources that it has not learnt from. What was trained before is not trained again.
    """

    name: ClassVar[str] = "begin-retraining"
    preset: Literal["short", "paper"] = Field(
        "short", description="A short fine-tuning, or the paper's 90 epochs from weights of chance"
    )
    arms: Annotated[tuple[ArmKey, ...], BeforeValidator(_known_arms)] = Field(
        ARM_KEYS, description="What is learnt from beside the originals, as a list or with commas between"
    )
    seeds: int = Field(SEEDS, ge=1, le=20, description="Trainings of each arm that differ by chance alone")
    augmentation: Literal["randaugment", "augmix"] = Field("randaugment", description="Of the arm “augmentation”")
    unseen: str = Field(
        "", max_length=40, description="An edit type that no arm learns from; empty: the rarest; none: none"
    )
    split_seed: int = Field(0, ge=0, le=LARGEST_ID, description="Another one parts the sources in another way")
    updates: int = Field(0, ge=0, le=1_000_000, description="Of the optimiser, for each arm; 0: those of the preset")
    batch: int = Field(0, ge=0, le=1_024, description="Images of an update; 0: those of the preset")
    rate: float = Field(0.0, ge=0, le=10, allow_inf_nan=False, description="The learning rate; 0: that of the preset")
    shift: int | None = Field(
        None,
        ge=1,
        le=LARGEST_ID,
        description="The number of a version of a test set that is measured with too, as a natural shift",
    )


class CancelRetraining(Command):
    """Stop a retraining; it goes on where it was when it is begun again."""

    name: ClassVar[str] = "cancel-retraining"
    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_retraining gives it")


class ShowRetraining(OnModel):
    """Tell how far the retraining of a model with images of a test set is, and what the ones before have brought."""

    name: ClassVar[str] = "show-retraining"
    looks: ClassVar[bool] = True


class ForetellFaults(OnModel):
    """Tell which counterfactual captions of runs are likely to show a valid fault of the model once they are drawn:
    from what came of the same edits in a test set. The one that is to be drawn first stands in front.
    """

    name: ClassVar[str] = "foretell-faults"
    looks: ClassVar[bool] = True
    runs: tuple[str, ...] = Field(
        min_length=1, max_length=MOST_RUNS, description="Runs with captions that are not drawn yet"
    )


class DraftEvaluationStudy(OnModel):
    """Draft a validity study of images that a model gets right and wrong, or loses a class of and does not, drawn so
    that it says how many of the faults are valid; gives the study, which nobody sees before it is started.
    """

    name: ClassVar[str] = "draft-evaluation-study"
    judged: int = Field(STUDY_IMAGES, ge=10, le=5_000, description="So many images are to be judged, at most")
