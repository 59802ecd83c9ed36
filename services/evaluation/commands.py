"""Commands on evaluations for scripts and pages: the subject, the model, and the acts."""

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
from services.queries import Query

LONGEST_MAPPING = 100_000
MOST_RANKED = 5_000
MOST_RUNS = 1_000
STUDY_IMAGES = 300
"""Number of images that the paper had judged."""


def _known_arms(named: Any) -> Any:
    names = parts_of(named)
    for one in names if isinstance(names, list | tuple) else ():
        if one not in ARM_KEYS:
            raise ValueError(f"There is no arm {one!r:.80}: take some of {', '.join(ARM_KEYS)}.")
    return names


class OnSubject(Command):
    """A command that names a subject to evaluate."""

    version: int | None = Field(
        None, ge=1, le=LARGEST_ID, description="The number of a version of a test set, as list_evaluation_subjects says"
    )
    filter: Filter = Field(ImageFilter(), description=WHICH)
    split: str = Field("", max_length=40, description="Only sources of this split, where there are several")

    @property
    def subject(self) -> Subject:
        """Return the subject that version, filter and split name."""
        return Subject(self.version, self.filter, self.split)


class OnModel(NamesModel, OnSubject):
    """A command that names a subject and a model."""

    source: Literal["profile", "torchvision", "timm", "transformers", "file", "onnx", "http"] = Field(
        "profile", description="Where the model comes from; profile: the one that the profile names"
    )
    key: str = Field("", max_length=80, description="In place of these: the “key” of list_models_under_test")
    mapping: str = Field(
        "", max_length=LONGEST_MAPPING, description="A file that maps labels to classes, CSV or TOML; as text"
    )
    weighing: Weighing = Field("source", description="What weighs the same in figures: each source, or each test case")
    among_labels: bool = Field(
        False, description="Whether a classifier chooses among the classes of these labels only (subset evaluation)"
    )


class ListEvaluationSubjects(Query, name="list-evaluation-subjects"):
    """List the versions of test sets, with their numbers of sources and test cases, and why one cannot be evaluated."""


class ListModelsUnderTest(OnSubject, name="list-models-under-test", looks=True):
    """List the models that can read a test set, and how many of its images each has read."""


class BeginPredictions(OnModel, name="begin-predictions"):
    """Have a model read all unread images of a test set; earlier predictions are reused."""


class CancelPredictions(Command, name="cancel-predictions"):
    """Stop a model that reads images; its predictions so far stay."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_predictions gives it")


class ShowPredictions(Query, name="show-predictions"):
    """Show the progress of a model that reads images."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_predictions gives it")


class ShowEvaluation(OnModel, name="show-evaluation", looks=True):
    """Evaluate a model on a test set: errors, or mIoU and lost classes, with intervals, excess over reconstruction, and
    edits that hurt; with a second model, also which of the two is better.
    """

    beside: str = Field("", max_length=80, description="A second model to compare: a “key” of list_models_under_test")


class MakeControlSet(OnSubject, name="make-control-set"):
    """Draw the missing reconstructions of a test set's sources: from their own captions without an edit, otherwise like
    their test cases. Existing ones are not drawn again.
    """

    key: str = Field(
        "",
        max_length=80,
        description="The model that reads them once they are drawn: a “key” of list_models_under_test; empty: none",
    )


class CancelControlSet(Command, name="cancel-control-set"):
    """Stop drawing reconstructions; finished ones stay."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As make_control_set gives it")


class ShowControlSet(Query, name="show-control-set"):
    """Show the progress of drawing reconstructions."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As make_control_set gives it")


class RankTestCases(OnModel, name="rank-test-cases", looks=True):
    """Rank the test cases of a test set, so that the first ones show as many different valid faults of the model as
    possible; compare the ranking with random, entropy and DeepGini.
    """

    most: int = Field(100, ge=1, le=MOST_RANKED, description="So many of them are told, the first ones")


class ShowLikeness(OnModel, name="show-likeness", looks=True):
    """Show how similar the images of a test set are to the originals (KID, FID), which groups of edits with one meaning
    hurt the model, and how much more perplexing the changed captions are; for what the models have read so far.
    """


class BeginLikeness(OnModel, name="begin-likeness"):
    """Have the embedder read images and edited words that show_likeness lacks, and the language model the captions."""


class CancelLikeness(Command, name="cancel-likeness"):
    """Stop reading images and words; the embedder's results stay."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_likeness gives it")


class ShowFocus(OnModel, name="show-focus", looks=True):
    """Show where a classifier looks (Grad-CAM): the share of its maps on the subject, insertion, deletion, AIC, SIC and
    purity, of the images that it has looked at; with a second model, also the differences.
    """

    beside: str = Field("", max_length=80, description="A second model to compare: a “key” of list_models_under_test")


class BeginFocus(ShowFocus, name="begin-focus", looks=False):
    """Have a classifier look at the images of a test set that show_focus lacks, at most 1,000."""


class CancelFocus(Command, name="cancel-focus"):
    """Stop looking at images; finished maps stay until the studio ends."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_focus gives it")


class BeginRetraining(OnModel, name="begin-retraining"):
    """Train a model further with images of a test set, arm by arm at equal updates, and measure the gain on sources
    that it has not learnt from. Finished trainings are not repeated.
    """

    preset: Literal["short", "paper"] = Field(
        "short", description="A short fine-tuning, or the paper's 90 epochs from random weights"
    )
    arms: Annotated[tuple[ArmKey, ...], BeforeValidator(_known_arms)] = Field(
        ARM_KEYS, description="What is learnt from beside the originals, as a list or with commas between"
    )
    seeds: int = Field(SEEDS, ge=1, le=20, description="Trainings of each arm that differ by chance alone")
    augmentation: Literal["randaugment", "augmix"] = Field("randaugment", description="Of the arm “augmentation”")
    unseen: str = Field(
        "", max_length=40, description="An edit type that no arm learns from; empty: the rarest; none: none"
    )
    split_seed: int = Field(0, ge=0, le=LARGEST_ID, description="Another seed divides the sources differently")
    updates: int = Field(0, ge=0, le=1_000_000, description="Of the optimiser, for each arm; 0: those of the preset")
    batch: int = Field(0, ge=0, le=1_024, description="Images per update; 0: those of the preset")
    rate: float = Field(0.0, ge=0, le=10, allow_inf_nan=False, description="The learning rate; 0: that of the preset")
    shift: int | None = Field(
        None,
        ge=1,
        le=LARGEST_ID,
        description="The number of a version of a test set that is also measured on, as a natural shift",
    )


class CancelRetraining(Command, name="cancel-retraining"):
    """Stop a retraining; it resumes there when begun again."""

    work: int = Field(ge=1, le=LARGEST_ID, description="As begin_retraining gives it")


class ShowRetraining(OnModel, name="show-retraining", looks=True):
    """Show the progress of retraining a model with images of a test set, and the results of earlier retrainings."""


class ForetellFaults(OnModel, name="foretell-faults", looks=True):
    """Rank undrawn counterfactual captions of runs by the chance that their images show a valid fault of the model,
    learnt from the same edits in a test set. The first is to be drawn first.
    """

    runs: tuple[str, ...] = Field(
        min_length=1, max_length=MOST_RUNS, description="Runs with captions that are not drawn yet"
    )


class DraftEvaluationStudy(OnModel, name="draft-evaluation-study"):
    """Draft a validity study of images that a model gets right or wrong, or loses a class of or not, sampled to
    estimate how many of the faults are valid. Returns the study, which nobody sees before its start.
    """

    judged: int = Field(STUDY_IMAGES, ge=10, le=5_000, description="So many images are to be judged, at most")
