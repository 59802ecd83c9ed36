"""Draws items for a study from the test cases that match a filter, with all facts about them that the analysis needs.

Reconstructions are drawn only if the filter names their recipe: a study usually asks about edits, and reconstructions
have none. The catalogue finds the matching test cases, `study.sampling` draws some, and only the drawn ones are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from core.csv_tables import cells
from core.errors import UserError
from core.form_numbers import FormNumber
from core.image_filter import UNREAD, Facet, ImageFilter
from core.masks import NamedMask, numbers_of
from core.stored_studies import Candidate
from core.studies import NewItem
from core.text_templates import TextTemplates
from core.types import EDIT_TYPES, Task
from core.words import classes_in, count_of
from evaluation.metrics import share
from pipeline.recipes import RECONSTRUCTION, control_recipes, known_recipes
from services.curation.views import WHICH, Filter
from services.evaluation.model_outcomes import RunMasks, kind_of, verdict_with_masks
from services.studies.draft_form import typed_text
from storage.curation.catalogue import Catalogue
from storage.workspace import Workspace
from study.sampling import at_random, stratified

How = Literal["random", "label", "edit type"]
HOWS: tuple[How, ...] = get_args(How)
WRONG = ("newly wrong", "wrong")
"""Outcomes of a model under test that count as wrong."""
NO_LABEL, NO_EDIT = "no label", "no edit"
"""Names of the groups of images without a label or an edit."""
ASKED_OF_SCENES = ("road", "vehicle", "pedestrian")
"""Classes that questions ask about. They include narrower classes in data sets, such as car for vehicle."""
LEAST_SHARE = 0.0005
"""Minimum share of a mask's pixels from which a class counts as shown. People could not find a smaller one."""
SENTENCES = TextTemplates(Path(__file__).with_name("sentences"), count_of=count_of, reconstruction=RECONSTRUCTION.title)
MOST_STRATA = 100_000
MOST = 20_000
"""Maximum number of items in one draw."""


class ItemDraw(BaseModel):
    """A draw of test cases for a study: a filter, and the way to draw among the matching test cases."""

    model_config = ConfigDict(frozen=True)

    filter: Filter = Field(
        ImageFilter(),
        description=f"{WHICH}. Reconstructions match only by their recipe: recipe={RECONSTRUCTION.name}",
    )
    how: How = Field("random", description="At random, or equally many of each label or edit type")
    count: Annotated[int, BeforeValidator(FormNumber(1, MOST).read)] = Field(
        100, description=f"Number of items, at most {MOST:,}"
    )
    group: Annotated[str, typed_text(60, one_line=True)] = Field(
        "", description="The name of the sample; empty for a name that says how it is drawn"
    )

    @property
    def sample(self) -> str:
        """Return the name of the sample. If none was given, the name says how it is drawn."""
        standings = {standing for values in self.filter.models.values() for standing in values}
        wrong = "misclassified" if standings and standings <= {*WRONG} else ""
        way = "" if wrong and self.how == "random" else self.how if self.how == "random" else f"by {self.how}"
        return self.group or " ".join(filter(None, (wrong, way)))


@dataclass(frozen=True)
class Pool:
    """The test cases that a draw can choose, with their numbers."""

    selection: ImageFilter
    """Filter of the draw, restricted to images that are not in the study yet."""
    free: int
    """Number of images in `selection`."""
    fitting: int
    """Number of all images that match the filter, including those in the study."""
    unread: int
    """Number of images that match the rest of the filter, but have no prediction of the model under test."""
    unmeasured: int
    """Number of images whose class maps are not compared yet, so that it is unknown whether the images match."""
    model: str
    reconstructions: int = 0
    """Number of matching reconstructions left out, as the filter does not name their recipe."""
    strata: Mapping[str, int] = field(default_factory=dict)
    """Number of images by class or edit type, if the draw takes equally many of each; otherwise empty."""


def pool_of(catalogue: Catalogue, request: ItemDraw, study: str = "") -> Pool:
    """Return the pool of a draw. It leaves out images that are items of `study`. Images are counted, not loaded."""
    standings = request.filter.models
    rest = replace(_without_reconstructions(request.filter), models={}, test_cases=True)
    model = next(filter(None, standings), "") or catalogue.most_read(rest)
    fitting = replace(rest, models={name or model: values for name, values in standings.items()})

    def count(selection: ImageFilter) -> int:
        return catalogue.count(selection).number

    unread, unmeasured = (
        count(replace(rest, models={model: (standing,)})) if standings else 0 for standing in (UNREAD, "not measured")
    )
    selection = replace(fitting, not_in_study=study)
    free = count(selection)
    reconstructions = 0
    if "recipe" not in request.filter.facets and "recipe" not in request.filter.without:
        controls = tuple(recipe.name for recipe in control_recipes())
        every = replace(request.filter, models=fitting.models, test_cases=True)
        reconstructions = count(replace(every, facets={**every.facets, "recipe": controls}))
    strata = {}
    if request.how == "label":
        labels = catalogue.facets(_labelled(selection), ("class",), most=MOST_STRATA)["class"]
        strata = {**labels, NO_LABEL: free - sum(labels.values())}
    elif request.how == "edit type":
        strata = {
            **catalogue.facets(selection, ("edit type",))["edit type"],
            NO_EDIT: count(replace(selection, facets={**selection.facets, "edits": ("0",)})),
        }
    strata = {name: number for name, number in strata.items() if number}
    return Pool(selection, free, count(fitting), unread, unmeasured, model, reconstructions, strata)


def draw(workspace: Workspace, pool: Pool, request: ItemDraw, seed: int) -> tuple[Candidate, ...]:
    """Draw test cases from the pool, all if it has fewer than requested. Raises UserError if it is empty."""
    catalogue, selection = workspace.catalogue, pool.selection
    everything = catalogue.ids(selection)
    if not everything:
        raise UserError(SENTENCES.paragraph("none-left.txt", pool=pool))
    if request.how != "random":
        facet: Facet = "class" if request.how == "label" else "edit type"
        within = _labelled(selection) if request.how == "label" else selection
        strata: dict[str, Sequence[int]] = {
            name: catalogue.ids(replace(within, facets={**within.facets, facet: (name,)}))
            for name in pool.strata
            if name not in (NO_LABEL, NO_EDIT)
        }
        if left := sorted(set(everything).difference(*strata.values())):
            strata[NO_LABEL if request.how == "label" else NO_EDIT] = left
        entries = stratified(strata, request.count, seed)
    else:
        entries = at_random(everything, request.count, seed)
    return workspace.test_cases.candidates(catalogue.test_cases(entries))


def _without_reconstructions(selection: ImageFilter) -> ImageFilter:
    """Return the filter without reconstructions, unless it names their recipe."""
    controls = [recipe.name for recipe in control_recipes()]
    if not {*controls}.isdisjoint(selection.facets.get("recipe", ())):
        return selection
    others = dict.fromkeys((*selection.without.get("recipe", ()), *controls))
    return replace(selection, without={**selection.without, "recipe": tuple(others)})


def _labelled(selection: ImageFilter) -> ImageFilter:
    labelled = ("classification",)
    kinds = labelled if selection.facets.get("kind", labelled) == labelled else ()
    return replace(selection, facets={**selection.facets, "kind": kinds})


def items_of(
    candidates: Sequence[Candidate],
    sample: str,
    model: str,
    masks: RunMasks,
    asked_of: Iterable[str] = (),
    known: tuple[str, ...] = (),
) -> tuple[NewItem, ...]:
    """Return the drawn test cases as items of the sample `sample`. `model` is the key of the model under test whose
    outcomes the items record. `asked_of` are the classes that the study's questions ask about, `known` the classes of
    the model.
    """
    names = tuple(dict.fromkeys((*ASKED_OF_SCENES, *(name for name in asked_of if name))))
    shown = {run: _shown(masks.of(run), names) for run in {candidate.run_id for candidate in candidates}}
    return tuple(_item(candidate, sample, model, masks, shown[candidate.run_id], known) for candidate in candidates)


def note_of(pool: Pool, request: ItemDraw) -> str:
    """Return one or more sentences on the test cases that a draw can choose."""
    return SENTENCES.paragraph("note.txt", pool=pool, request=request, model=model_name(pool.model))


def recipes_in(catalogue: Catalogue) -> tuple[tuple[str, str], ...]:
    """Return name and title of the recipes that made test cases of the workspace, the most frequent first."""
    recipe_counts = catalogue.facets(ImageFilter(test_cases=True), ("recipe",))["recipe"]
    titles = {recipe.name: recipe.title for recipe in known_recipes()}
    return tuple((name, titles.get(name, name)) for name in recipe_counts if name)


def model_name(key: str) -> str:
    """Return the name of a model under test from its key. A file's folder and modification time are left out."""
    return re.sub(r"@[0-9a-f]+(?= \(|$)", "", key).rsplit("/", 1)[-1].rsplit("\\", 1)[-1]


def _item(
    candidate: Candidate, group: str, model: str, masks: RunMasks, shown: tuple[str, ...], known: tuple[str, ...]
) -> NewItem:
    source_right, model_right = verdict_with_masks(candidate, model, masks, known)
    classes = shown or classes_in(candidate.caption, Task("segmentation", protected=tuple(ASKED_OF_SCENES)))
    origin: dict[str, Any] = {"run_name": candidate.run_name, **candidate.origin}
    if source_right is not None:
        origin["source_right"] = source_right
    return NewItem(
        **cells(candidate, "image_sha source_sha label caption test_case"),
        classes=tuple(classes) if kind_of(candidate) == "segmentation" else (),
        edit_types=tuple(kind for kind in EDIT_TYPES if kind in candidate.edit_types),
        counterfactual=candidate.counterfactual.text,
        model=model_name(model) if model_right is not None else "",
        model_right=model_right,
        group=group,
        origin=origin,
    )


def _shown(mask: NamedMask | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the `names` that cover a visible class (vehicle covers car), then the visible classes; () without mask."""
    if mask is None:
        return ()
    visible = {n: name for n, name in mask.classes.items() if share(mask.image, [n]) >= LEAST_SHARE}
    wider = [name for name in names if numbers_of(name, visible)]
    return tuple(dict.fromkeys((*wider, *visible.values())))
