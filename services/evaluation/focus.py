"""Measures where a model under test looks: Grad-CAM maps and figures of `evaluation.focus` for an evaluation's images.
Two models can be compared, such as before and after a retraining.

Figures need a mask of an image's main object. This is the mask stored with the test case. If there is none, it is the
object marked in the run. If none is marked, it comes from the image's mask of classes: the class with the name of the
image's label, or otherwise the only class besides the background. Maps are kept in memory.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
from PIL import Image

from core.errors import UserError
from core.latest import Latest
from core.masks import BACKGROUND
from core.regions import Region
from core.stored_runs import Run
from evaluation.focus import FIGURES, PURITY, GradCam, Look, focus_figures, plane, purity
from services.changes import Changes
from services.commands import does
from services.evaluation import commands as acts
from services.evaluation.facts import focus_facts
from services.evaluation.service import NOT_LOADED, EvaluationService, about, cancelled, work_facts
from services.evaluation.subjects import Cases, Images
from services.evaluation.texts import TEXTS
from services.evaluation.types import EvaluationQuestion, FocusFigures, FocusRow
from services.work_queue import OnWork, WorkQueue, WorkView
from storage.workspace import Workspace

MOST_IMAGES = 1_000
"""Maximum number of images with maps in one evaluation. Their sources are chosen at random."""
MOST_INFORMATION = 100
"""Maximum number of images of each group in `GROUPS` that get the figures AIC and SIC. Each image takes seconds."""
AT_ONCE = 16
"""Number of images that are read before other work may use the model."""
KEPT = 20_000
"""Maximum number of Grad-CAM maps in memory."""
PICTURES = 3
"""Maximum number of originals, of test cases and of reconstructions that are shown with their maps."""
SUBJECT, SUBJECT_MASK = "subject", "subject mask"
"""Name of the stage that marks a source's main object, and of the test case's artifact with that object's mask."""
GROUPS = ("originals", "test cases", "reconstructions")
_Mask = tuple[str, str]
"""Mask of a main object: two texts. Without a mask image, they are the text of a `Region`, and "". With a mask image,
they are a JSON list of the object's class numbers ("" if white pixels mark the object), and the image's SHA-256."""


class _Seen(NamedTuple):
    """An image to compute a Grad-CAM map for."""

    group: str
    sha: str
    source: int
    label: int
    mask: _Mask | None


_Key = tuple[str, tuple[int, ...], str, _Mask | None]
"""Key of a Grad-CAM map: model, classes of the label, image, and mask."""


class Focus:
    """Measures where models look. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, evaluations: EvaluationService, changes: Changes | None = None) -> None:
        self._workspace, self._evaluations = workspace, evaluations
        self.work = WorkQueue(changes, name="where a model looks")
        """Queue that computes maps. `work.of(about(question))` finds the work for an `EvaluationQuestion`."""
        self._looks, self._count = Latest[Look](KEPT), 0
        """Grad-CAM maps by `_Key`, and the number of maps made so far."""
        self._chosen, self._found = Latest[tuple[Cases, list[_Seen]]](4), Latest[FocusFigures](4)

    @does("show-focus", acts.OnTwoModels, looks=True)
    def show_focus(self, sent: acts.OnTwoModels) -> dict[str, Any]:
        """Show where a classifier looks, for the images that have a Grad-CAM map. The figures are insertion, deletion,
        AIC, SIC, purity, and the share of a map on the main object. With a second model, also show the differences.
        """
        return focus_facts(self.figures(*self._evaluations.asked_both(sent)))

    @does("begin-focus", acts.OnTwoModels)
    def begin_focus(self, sent: acts.OnTwoModels) -> dict[str, Any]:
        """Compute a classifier's missing Grad-CAM maps for show_focus, on at most 1,000 images of a test set."""
        return work_facts(self.begin(*self._evaluations.asked_both(sent)))

    @does("cancel-focus")
    def cancel_focus(self, work: Annotated[int, acts.work_of("begin_focus")]) -> dict[str, Any]:
        """Stop computing maps; finished maps stay until the studio ends."""
        return cancelled(self.work, work)

    def begin(self, *questions: EvaluationQuestion) -> WorkView:
        """Begin to compute the missing maps, or return the work in progress. Raises UserError for a segmentation, and
        for a model whose layers cannot be accessed.
        """
        self._require(questions)
        return self.work.begin("looking at images", about(questions[0]), partial(self.look, questions))

    def figures(self, *questions: EvaluationQuestion) -> FocusFigures:
        """Return figures of the maps made so far. Raises the errors of `begin`, and UserError for an unknown model."""
        self._require(questions)
        key = (repr(questions), self._workspace.saved(), self._count)
        return self._found.once(key, lambda: self._made(questions))

    def look(self, questions: Sequence[EvaluationQuestion], on_work: OnWork) -> None:
        """Compute the missing maps of each model, and AIC and SIC of some images."""
        for one in questions:
            self._evaluations.predicting.identify(one.model, partial(on_work, 0, 0))
        chosen = [self._chosen_of(one) for one in questions]
        keys = [self._keys(one, *of_one) for one, of_one in zip(questions, chosen, strict=True)]
        waiting = [self._waiting(images, own) for (_, images), own in zip(chosen, keys, strict=True)]
        done, total = 0, sum(len(places) for steps in waiting for places in steps)
        for question, (_, images), own, steps in zip(questions, chosen, keys, waiting, strict=True):
            for places, step in zip(steps, ("maps", "AIC and SIC"), strict=True):
                for first in range(0, len(places), AT_ONCE):
                    reported = partial(on_work, done, total, step)
                    with self._evaluations.predicting.grad_cam(question.model, reported) as cam:
                        for place in places[first : first + AT_ONCE]:
                            on_work(done, total, step)
                            self._look(cam, images[place], own[place])
                            done += 1

    def _look(self, cam: GradCam, seen: _Seen, key: _Key | None) -> None:
        assert key is not None
        image, look = self._workspace.images.load(seen.sha), self._looks.get(key)
        if look is None:
            self._looks.put(key, cam.look(image, key[1], self._loaded(seen.mask)))
        else:
            self._looks.put(key, cam.informed(look, image, key[1], int(seen.sha[:12], 16)))
        self._count += 1

    def _require(self, questions: Sequence[EvaluationQuestion]) -> None:
        for one in questions:
            if self._evaluations.cases(one.subject).task != "classification":
                raise UserError(
                    "These images belong to a segmentation, but only classifiers have Grad-CAM maps: choose images of "
                    "a classification."
                )
            if one.model.source in ("onnx", "http"):
                title = self._evaluations.title(one.model)
                raise UserError(f"{title} is no torch network, but Grad-CAM maps need one: choose another model.")

    # Images and their masks

    def _chosen_of(self, question: EvaluationQuestion) -> tuple[Cases, list[_Seen]]:
        """Return the images that a question is about, and those chosen among them for maps. Callers must use one result
        throughout, since other threads may add images at any time.
        """
        key = (repr(question.subject), self._workspace.saved())
        return self._chosen.once(key, lambda: self._some(self._evaluations.cases(question.subject)))

    def _some(self, cases: Cases) -> tuple[Cases, list[_Seen]]:
        chosen, runs, of_source = list[_Seen](), dict[str, Run](), defaultdict[int, list[tuple[str, Images, int]]](list)
        for group, images in zip(GROUPS, cases.all_images, strict=True):
            for place in np.flatnonzero(images.label >= 0).tolist():
                of_source[int(images.source[place])].append((group, images, place))
        row_of = dict(zip(cases.generated.source.tolist(), cases.generated.row.tolist(), strict=True))
        for source in np.random.default_rng(0).permutation(len(cases.originals)).tolist():
            for group, images, place in of_source[source][: MOST_IMAGES - len(chosen)]:
                label, row = int(images.label[place]), int(images.row[place])
                mask = self._mask_of(cases, runs, row if row >= 0 else row_of[source], row >= 0, cases.labels[label])
                chosen.append(_Seen(group, images.shas[place], source, label, mask))
        return cases, chosen

    def _mask_of(self, cases: Cases, runs: dict[str, Run], row: int, generated: bool, label: str) -> _Mask | None:
        table = cases.table
        if generated and table.test_case[row] >= 0:
            artifacts = self._workspace.test_cases.get(int(table.test_case[row])).artifacts
            if SUBJECT_MASK in artifacts:
                return "", artifacts[SUBJECT_MASK].sha
        run, sha, classes = (column.of([row])[0] for column in (table.runs, table.masks, table.mask_classes))
        if run and run not in runs:
            runs[run] = self._workspace.runs.get(run)
        marked = runs[run].values.get(SUBJECT) if run else None
        if marked is not None and isinstance(marked.value.value, Region) and not marked.value.value.whole:
            return marked.value.value.text, ""
        names = {int(number): name for number, name in json.loads(classes).items()} if sha and classes else {}
        others = [number for number, name in names.items() if name.casefold() not in BACKGROUND]
        named = [number for number, name in names.items() if name == label]
        numbers = named or (others if len(others) == 1 else [])
        return (json.dumps(numbers), sha) if numbers else None

    def _loaded(self, mask: _Mask | None) -> Image.Image | None:
        if mask is None:
            return None
        about, sha = mask
        if not sha:
            width, height = about.partition(" ")[0].split("x")
            return Region(about).mask((int(width), int(height)))
        image = self._workspace.images.load(sha)
        return Image.fromarray(np.isin(np.asarray(image), json.loads(about)).astype(np.uint8) * 255) if about else image

    def _keys(self, question: EvaluationQuestion, cases: Cases, images: Sequence[_Seen]) -> list[_Key | None]:
        """Return the key of each image's map; None if the model has no class for the image's label."""
        stored = self._evaluations.predicting.stored(question.model)
        if stored is None:
            raise UserError(NOT_LOADED)
        mapping = self._evaluations.class_map(question, cases, stored)
        classes, digest = [one.classes for one in mapping.labels], stored.identity.digest
        return [(digest, classes[seen.label], seen.sha, seen.mask) if classes[seen.label] else None for seen in images]

    def _looked(self, keys: Sequence[_Key | None]) -> list[Look | None]:
        return [None if key is None else self._looks.get(key) for key in keys]

    def _waiting(self, images: Sequence[_Seen], keys: Sequence[_Key | None]) -> tuple[list[int], list[int]]:
        """Return the positions of images without a map, and of images that still lack AIC and SIC."""
        counted = Counter[str]()
        maps, curves = list[int](), list[int]()
        for place, (key, look) in enumerate(zip(keys, self._looked(keys), strict=True)):
            if key is not None:
                counted[images[place].group] += 1
                maps += [place] if look is None else []
                if counted[images[place].group] <= MOST_INFORMATION and (look is None or look.left_out is None):
                    curves.append(place)
        return maps, curves

    def _made(self, questions: Sequence[EvaluationQuestion]) -> FocusFigures:
        cases, images = self._chosen_of(questions[0])
        titles = tuple(self._evaluations.title(one.model) for one in questions)
        group, source, label = (np.array([one[at] for one in images]) for at in (0, 2, 3))
        keys = [self._keys(one, cases, images) for one in questions]
        looks = [self._looked(own) for own in keys]
        values = {
            name: np.array([[look.figures.get(name, np.nan) if look else np.nan for look in own] for own in looks]).T
            for name in FIGURES
        }
        maps, left_out = list[tuple[tuple[float, float, int], ...]](), Counter[tuple[str, str, str, int]]()
        for at, own in enumerate(looks):
            known = np.flatnonzero([look is not None for look in own])
            features = np.array([look.features for look in own if look is not None])
            for name in GROUPS if len(known) else ():
                of_group = group[known] == name
                chosen = known[of_group]
                values[PURITY][chosen, at] = purity(features[of_group], label[chosen], source[chosen])
            dots = plane(features).tolist() if len(known) else []
            maps.append(tuple((x, y, number) for (x, y), number in zip(dots, label[known].tolist(), strict=True)))
            tried = [look.left_out for look in own if look is not None and look.left_out is not None]
            left_out.update((titles[at], *reason, len(tried)) for one in tried for reason in one.items())
        groups = [name for name in GROUPS if (group == name).any()]
        both = [place for place in range(len(images)) if all(own[place] is not None for own in looks)]
        missing = sum(len(places) for own in keys for places in self._waiting(images, own))
        return FocusFigures(
            titles,
            tuple(next((look.layer for look in own if look is not None), "") for own in looks),
            len(both),
            missing,
            tuple(
                FocusRow(name, figure, focus_figures(values[figure][group == name], source[group == name]))
                for name in groups
                for figure in FIGURES
            ),
            tuple((*about, number) for about, number in sorted(left_out.items())),
            tuple(
                (name, cases.labels[images[at].label], tuple(own[at].picture for own in looks))  # type: ignore[union-attr]
                for name in groups
                for at in [one for one in both if images[one].group == name][:PICTURES]
            ),
            tuple(maps),
            cases.labels,
            TEXTS.paragraphs("focus-notes.txt", images=images, pictures=len(cases.pictures), missing=missing),
        )
