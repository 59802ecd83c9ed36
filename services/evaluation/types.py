"""What is asked of an evaluation and what comes back: the values that services, page, command line and scripts share.

All shares are 0 to 1. What cannot be told is None, and a sentence says why. Plain frozen dataclasses; no models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from core import evaluation_results as results
from core.figures import Figure
from core.image_filter import ImageFilter
from core.model_identity import ModelIdentity
from core.settings import UnderTestSettings
from core.types import TaskKind
from core.validity_score import Agreement
from evaluation.edit_clusters import EditCluster
from evaluation.fidelity import Fidelity
from evaluation.sensitivity import SensitivityRow
from evaluation.validity import ValidityEffect

WITHOUT_SPLIT = "without a split"
"""`Subject.split` for the sources that have none, where others have one."""
EditTable = Literal["edit type", "keyword", "alternative", "class"]
EDIT_TABLES: tuple[EditTable, ...] = get_args(EditTable)
"""The tables of `Evaluated.edits`, in the order in which they are shown."""
CellKind = Literal[
    "generated", "originals", "controls", "wrong", "right", "newly wrong", "newly right", "left out",
    "all wrong", "some wrong", "none wrong", "class", "confusion", "confusion before", "kept", "missed before",
    "edit type", "keyword", "alternative",
]  # fmt: skip

MOST_WRONG, LEAST_MIOU = 0.5, 0.25
"""A model with a larger error, or a smaller mIoU, on the originals is probably not asked as it was trained."""


@dataclass(frozen=True)
class Subject:
    """The images that a model is evaluated on: those of a filter, in the catalogue or in a version of a test set."""

    version: int | None = None
    """`core.test_sets.SetVersion.number`; None for the catalogue."""
    filter: ImageFilter = field(default_factory=ImageFilter)
    """Reconstructions among its images count as controls, never as cases."""
    split: str = ""
    """Only sources of this split; `WITHOUT_SPLIT` for those of none; "" where all are of one."""


@dataclass(frozen=True)
class SubjectView:
    """A subject as it is shown before a model is chosen."""

    subject: Subject
    title: str
    kind: TaskKind | None
    """None where there is no image."""
    sources: int
    cases: int
    """Generated images, without the reconstructions."""
    controls: int
    """Reconstructions of the same sources, wherever they are in the workspace."""
    splits: tuple[str, ...]
    """Those of its sources, `WITHOUT_SPLIT` among them; one of several has to be chosen."""
    problem: str
    """Why it cannot be evaluated, in one sentence; "" where it can."""
    can_make_control: bool = False
    """Whether `make-control-set` could add reconstructions: some source has none, and its file is in the workspace."""


@dataclass(frozen=True)
class ModelChoice:
    """A model that can be chosen for a subject."""

    key: str
    """For addresses: stable, letters, digits and hyphens."""
    title: str
    kind: TaskKind | None
    """None where nobody has loaded it yet."""
    settings: UnderTestSettings
    from_profile: bool
    predicted: int
    """Images of the subject (originals, cases and controls) that it has read already."""


@dataclass(frozen=True)
class EvaluationQuestion:
    """One question: what does this model make of this subject?"""

    subject: Subject
    model: UnderTestSettings
    mapping: str = ""
    """The text of a file of one's own that maps labels to classes (CSV, or TOML with [labels]); "" for none."""
    weighing: results.Weighing = "source"
    """What weighs the same in the figures."""


@dataclass(frozen=True)
class Pending:
    """What has to be read by the model before there are figures."""

    images: int
    """Originals, cases and controls, each picture once."""
    read: int
    """Those of which a prediction is kept, and where a mask is needed, its pixels are counted."""
    unreadable: int = 0
    """Those that could not be read the last time: they are left out."""

    @property
    def left(self) -> int:
        return self.images - self.read - self.unreadable


@dataclass(frozen=True)
class Cell:
    """A number that opens images: `EvaluationService.entries` gives their entries in the catalogue."""

    kind: CellKind
    name: str = ""
    """Of the row: the class (also of both confusions), the edit type, the keyword or the alternative; "" for all."""
    said: str = ""
    """Of "confusion": the label that the model says of the image, or before of its original; "" for what is none of the
    labels. Of a segmenter it is that of pixels, and opens the images of which at least as large a share of the class is
    said to be that as of the whole set."""
    only_wrong: bool = False
    """Of "class" and tables of edits: only cases that are newly wrong, or of a segmenter lose a class, or this one."""


@dataclass(frozen=True)
class EditRow:
    """A row of a table of edits."""

    row: SensitivityRow
    cell: Cell
    """All of its test cases."""
    worst: tuple[int, ...] = ()
    """Catalogue entries of the test cases that lost most, at most `WORST`, the worst first."""


WORST = 6


@dataclass(frozen=True)
class ClassMapping:
    """What the labels of the subject are for the model, as it is shown before anything is computed."""

    identity: ModelIdentity
    report: results.MappingReport
    problem: str = ""
    """Why nothing can be compared, in one sentence; "" where something can."""
    sample: str = ""
    """SHA-256 of an image of the subject, by which is shown what the model gets of it; "" where there is none."""


@dataclass(frozen=True)
class StudyShown:
    """A score of validity that was learnt from other studies, held against the votes of this one."""

    study: str
    agreement: Agreement


@dataclass(frozen=True)
class ScoreView:
    """A score of validity: what it was learnt from, and how far it agrees with people."""

    studies: tuple[str, ...]
    """Those with votes that it was learnt from."""
    own: Agreement
    """With votes on other sources than those that each score was learnt from."""
    shown: tuple[StudyShown, ...]
    """With each study that the others foretell; empty where there are too few."""


@dataclass(frozen=True)
class ModelComparison:
    """A second model beside the first, on the same test cases."""

    model: str
    answer: str
    """Which is better, in a few sentences."""
    paired: results.PairedDifference


@dataclass(frozen=True)
class EditGroup:
    """Test cases of one class whose edits mean the same."""

    label: str
    """"" for a segmenter, where all images are one class."""
    edits: str
    """The most frequent edits in words, such as "red → blue"."""
    cluster: EditCluster
    entries: tuple[int, ...]
    """In the catalogue, the most typical first."""
    pictures: tuple[str, ...]
    """SHA-256 of the most typical images."""


@dataclass(frozen=True)
class LikenessFigures:
    """All figures, of what the models have read."""

    missing: int
    """Images, words and captions that the embedder or the language model has still to read."""
    changed: str
    """The figure that edits change: the probability of the true class, or the share of right pixels."""
    groups: tuple[EditGroup, ...]
    """What hurts most first."""
    fidelity: Mapping[str, Fidelity]
    """Of the test cases and of the reconstructions, against the originals."""
    perplexity: Figure
    """How many times as perplexing the language model finds the changed captions as those of the sources."""
    language: str
    """The name of that model; "" until it has read a caption."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Evaluated:
    """All that the page and a report show. Every part may be None; `notes` says why."""

    subject: SubjectView
    model: str
    kind: TaskKind
    identity: ModelIdentity | None
    """None for predictions that were stored without one."""
    mapping: results.MappingReport
    pending: Pending
    """Figures are of what was read; `pending.left` is what is missing."""
    edits: Mapping[EditTable, tuple[EditRow, ...]]
    """By the change of the true class's probability, or of the share of right pixels; what hurts most first."""
    against_control: bool
    """Whether `edits` compares with the reconstructions of the same sources; else with the originals."""
    validity: ValidityEffect | None
    answer: str
    """In a few sentences."""
    notes: tuple[str, ...]
    """What a person has to know, each one sentence."""
    effectiveness: results.Effectiveness | None = None
    """Of a classifier."""
    segmentation: results.SegmentationEffect | None = None
    """Of a segmenter."""
    losses: results.LossEffect | None = None
    """Of a segmenter: how often it loses a class, which is what counts as wrong of it."""
    labels: tuple[str, ...] = ()
    """Of the subject, in the order of tables and confusion matrices; of a segmenter the groups that it tells apart."""
    thumbnails: Mapping[int, str] = field(default_factory=dict)
    """By entry of `EditRow.worst`: the SHA-256 of its image."""
    score: ScoreView | None = None
    """Of the chance that people find an image valid; None where none can be learnt."""
    unchecked: int = 0
    """Of a segmenter: how many masks of test cases wait for the segmenter of the checks."""

    @property
    def doubt(self) -> str:
        """A sentence where the model does so badly on the originals that it may not be asked right; else ""."""
        error = self.effectiveness.error_original.value if self.effectiveness is not None else None
        miou = self.segmentation.miou_original.value if self.segmentation is not None else None
        if error is not None and error > MOST_WRONG:
            does = "is wrong on most originals"
        elif miou is not None and miou < LEAST_MIOU:
            does = f"reaches a mIoU of only {100 * miou:.1f} % on the originals"
        else:
            return ""
        return (
            f"The model {does}, before any edit. Check how it is asked (size, mean, std, order of classes) and what "
            "the labels are for it."
        )

    @property
    def sensitivity(self) -> Mapping[str, tuple[SensitivityRow, ...]]:
        """The tables of edits as `evaluation.report` takes them."""
        return {table: tuple(one.row for one in rows) for table, rows in self.edits.items()}
