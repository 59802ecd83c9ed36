"""The questions and answers of evaluations, shared by services, pages, command line and scripts.

All shares are 0 to 1. Unknown values are None, with a sentence on why. All classes here are frozen dataclasses.
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
from evaluation.report import LOSES, validity_figures
from evaluation.sensitivity import SensitivityRow
from evaluation.validity import ValidityEffect
from services.evaluation.texts import TEXTS

WITHOUT_SPLIT = "without a split"
"""`Subject.split` for sources without a split, if others have one."""
EditTable = Literal["edit type", "keyword", "alternative", "class"]
EDIT_TABLES: tuple[EditTable, ...] = get_args(EditTable)
"""The tables of `Evaluated.edits`, in display order."""
CellKind = Literal[
    "generated", "originals", "controls", "wrong", "right", "newly wrong", "newly right", "left out",
    "all wrong", "some wrong", "none wrong", "class", "confusion", "confusion before", "kept", "missed before",
    "edit type", "keyword", "alternative",
]  # fmt: skip

MOST_WRONG, LEAST_MIOU = 0.5, 0.25
"""Highest plausible error and lowest plausible mIoU on the originals. Beyond them the model's inputs may be wrong."""


@dataclass(frozen=True)
class Subject:
    """Images that a model is evaluated on: those that match a filter, in the catalogue or a version of a test set."""

    version: int | None = None
    """Number of a version of a test set, as in `core.test_sets.SetVersion`; None for the catalogue."""
    filter: ImageFilter = field(default_factory=ImageFilter)
    """Filter of the images. Reconstructions among them count as controls, never as test cases."""
    split: str = ""
    """Split whose sources are used; `WITHOUT_SPLIT` for sources without one; "" if all sources share one split."""


@dataclass(frozen=True)
class SubjectView:
    """The images to evaluate, as shown before a model is chosen."""

    subject: Subject
    title: str
    kind: TaskKind | None
    """Task of the images, or None without images."""
    sources: int
    cases: int
    """Number of generated images, without reconstructions."""
    controls: int
    """Number of reconstructions that the images are compared with. They may come from any run in the workspace."""
    splits: tuple[str, ...]
    """Splits of the sources, including `WITHOUT_SPLIT`. If there are several, one must be chosen."""
    problem: str
    """Sentence on why the images cannot be evaluated; "" if they can."""
    can_make_control: bool = False
    """True if `make-control-set` can add reconstructions: some source has none, and its file is in the workspace."""


@dataclass(frozen=True)
class ModelChoice:
    """A model that can be chosen for an evaluation."""

    key: str
    """Stable key for URLs: letters, digits and hyphens."""
    title: str
    kind: TaskKind | None
    """Task of the model, or None if it was never loaded."""
    settings: UnderTestSettings
    from_profile: bool
    predicted: int
    """Number of the subject's images (originals, test cases and controls) that the model has read."""


@dataclass(frozen=True)
class EvaluationQuestion:
    """One question: how does this model do on these images?"""

    subject: Subject
    model: UnderTestSettings
    mapping: str = ""
    """Text of a user's file that maps labels to classes (CSV, or TOML with [labels]); "" for none."""
    weighing: results.Weighing = "source"
    """Unit with equal weight in the figures: each source, or each test case."""
    among_labels: bool = False
    """True if a classifier chooses among the classes of the subject's labels only."""


@dataclass(frozen=True)
class Pending:
    """Numbers of images that a model has read, and that it has still to read."""

    images: int
    """Number of originals, cases and controls, each picture once."""
    read: int
    """Number of images that the model has read. A segmenter has read a masked image once its pixels are counted."""
    unreadable: int = 0
    """Number of images that the last attempt could not read: they are left out."""

    @property
    def left(self) -> int:
        return self.images - self.read - self.unreadable


@dataclass(frozen=True)
class Cell:
    """A number with a link to its images: `EvaluationService.entries` returns their catalogue entries."""

    kind: CellKind
    name: str = ""
    """Name of the row: a class (for confusion, the true one), edit type, keyword or alternative; "" for all."""
    said: str = ""
    """Predicted label; "" for none of the labels. For "confusion", the prediction is about the image; for "confusion
    before", about the image's original. A segmenter's table of confusions shows the label's mean share of the class's
    pixels. The cell links to images whose share is above 0 and not below the mean share."""
    only_wrong: bool = False
    """True to count only wrong cases: for a segmenter, those that lose the class; for edits, newly wrong ones."""


@dataclass(frozen=True)
class EditRow:
    """A row of a table of edits."""

    row: SensitivityRow
    cell: Cell
    """Cell that links to all test cases of the row."""
    worst: tuple[int, ...] = ()
    """Catalogue entries of the test cases with the largest loss, the worst first, at most `WORST`."""


WORST = 6


@dataclass(frozen=True)
class ClassMapping:
    """Map from the subject's labels to the model's classes, shown before anything is computed."""

    identity: ModelIdentity
    report: results.MappingReport
    problem: str = ""
    """Sentence on why nothing can be compared; "" if something can."""
    sample: str = ""
    """SHA-256 of an example image, to show the input that the model gets; "" without one."""


@dataclass(frozen=True)
class StudyShown:
    """Agreement of a validity score with the votes of one study, if the score is learnt from other studies."""

    study: str
    agreement: Agreement


@dataclass(frozen=True)
class ScoreView:
    """A validity score: the studies it learnt from, and its agreement with people."""

    studies: tuple[str, ...]
    """Names of the studies whose votes the score was learnt from."""
    own: Agreement
    """Agreement with votes on sources from which the scores were not learnt."""
    shown: tuple[StudyShown, ...]
    """For each study, its agreement with a score learnt from the other studies. Empty if there are too few studies."""


@dataclass(frozen=True)
class ModelComparison:
    """A second model compared with the first, on the same test cases."""

    model: str
    answer: str
    """Statement on which model is better, in a few sentences."""
    paired: results.PairedDifference


@dataclass(frozen=True)
class EditGroup:
    """Test cases of one class whose edits mean the same."""

    label: str
    """Label of the test cases; "" for a segmenter, where all count as one class."""
    edits: str
    """The most frequent edits in words, such as "red → blue"."""
    cluster: EditCluster
    entries: tuple[int, ...]
    """Catalogue entries of the test cases, the most typical first."""
    pictures: tuple[str, ...]
    """SHA-256 of the most typical images."""


@dataclass(frozen=True)
class LikenessFigures:
    """Likeness figures of the images and texts that the models have read."""

    missing: int
    """Number of images, words and captions still to be read by the embedder or the language model."""
    changed: str
    """The figure that edits change: the probability of the true class, or the share of right pixels."""
    groups: tuple[EditGroup, ...]
    """Groups of edits with the same meaning, the most harmful first."""
    fidelity: Mapping[str, Fidelity]
    """Fidelity to the originals, by kind of images: "test cases" or "reconstructions"."""
    perplexity: Figure
    """Perplexity of the changed captions divided by the perplexity of the sources' captions."""
    language: str
    """Name of the language model; "" until it has read a caption."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FocusRow:
    """One figure on where models look."""

    images: str
    """Kind of images: "originals", "test cases" or "reconstructions"."""
    name: str
    """Name of the figure, one of `evaluation.focus.FIGURES`."""
    figures: tuple[Figure, ...]
    """Figure of each model, for the images with maps of all models. With two models, also model 2 minus model 1."""


@dataclass(frozen=True)
class FocusFigures:
    """Figures on where one or two models look, for the images with maps so far."""

    models: tuple[str, ...]
    layers: tuple[str, ...]
    """For each model, the name of the layer that its maps show; "" before its first map."""
    images: int
    """Number of images with maps of all models."""
    missing: int
    """Number of maps, and of curves for AIC and SIC, still to be computed."""
    rows: tuple[FocusRow, ...]
    left_out: tuple[tuple[str, str, str, int, int], ...]
    """Model, figure (AIC or SIC), reason, number of images tried, and number left out for that reason."""
    pictures: tuple[tuple[str, str, tuple[bytes, ...]], ...]
    """For each of some images: its kind (`FocusRow.images`), its label, and for each model a WebP with its map."""
    maps: tuple[tuple[tuple[float, float, int], ...], ...]
    """For each model and image: position (x, y) in a plane of the model's features, 0 to 1, and the label's number."""
    labels: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Evaluated:
    """All figures of an evaluation, for the page and reports. `notes` says why a figure is missing."""

    subject: SubjectView
    model: str
    kind: TaskKind
    identity: ModelIdentity | None
    """Stored identity of the model, or None for predictions without one."""
    mapping: results.MappingReport
    pending: Pending
    """Numbers of read and unread images. The figures cover only images that the model has read."""
    edits: Mapping[EditTable, tuple[EditRow, ...]]
    """Change of the probability of the true class, or of the share of right pixels, by edit, the most harmful first."""
    against_control: bool
    """True if `edits` compares with reconstructions of the same sources, False with the originals."""
    validity: ValidityEffect | None
    answer: str
    """Summary of the figures in a few sentences."""
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""
    effectiveness: results.Effectiveness | None = None
    """Figures of a classifier; None for a segmenter."""
    segmentation: results.SegmentationEffect | None = None
    """Figures of a segmenter; None for a classifier."""
    losses: results.LossEffect | None = None
    """Rate at which a segmenter loses classes: a lost class is an error. None for a classifier."""
    labels: tuple[str, ...] = ()
    """Labels in the order of tables and confusion matrices; for a segmenter, the groups of classes."""
    thumbnails: Mapping[int, str] = field(default_factory=dict)
    """SHA-256 of the image of each entry in `EditRow.worst`."""
    score: ScoreView | None = None
    """Score that estimates how likely people find an image valid. None if no score can be learnt."""
    unchecked: int = 0
    """For a segmenter: number of test cases whose mask is still to be checked by the profile's own segmenter."""

    @property
    def doubt(self) -> str:
        """Return a warning if the model does so badly on the originals that its inputs may be wrong; else ""."""
        return TEXTS.paragraph("doubt.txt", found=self, most_wrong=MOST_WRONG, least_miou=LEAST_MIOU)

    @property
    def sensitivity(self) -> Mapping[str, tuple[SensitivityRow, ...]]:
        """Return the tables of edits for `evaluation.report`."""
        return {table: tuple(one.row for one in rows) for table, rows in self.edits.items()}

    @property
    def validity_figures(self) -> list[tuple[str, Figure]]:
        """Return the figures on validity, each after its title. Empty without votes."""
        wrong = "wrong" if self.kind == "classification" else LOSES
        return validity_figures(self.validity, wrong) if self.validity is not None else []
