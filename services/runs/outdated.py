"""Which images of a run no longer fit what stands before them, and why: another task by now, another caption,
another mask, or another region.
"""

from __future__ import annotations

from functools import lru_cache

from core.errors import UserError
from core.images import image_sha
from core.lineage import MethodSettings
from core.masks import NamedMask
from core.stored_runs import Run, StoredTestCase
from core.types import Task
from pipeline.methods import method_of
from pipeline.recipes import is_drawn_from, recipe_of
from storage.workspace import Workspace

EARLIER_CAPTION = "of an earlier caption"
EARLIER_MASK = "of an earlier mask"
EARLIER_SOURCE_CAPTION = "of an earlier caption of the source"
"""Only of images that were drawn from the inverted source."""
EARLIER_REGION = "of an earlier region"
"""Only of images whose method looked at where the source may change."""
EARLIER_TASK = "made for "
"""How the reason begins where an image was made for another task; what it was made for follows."""


def made_for(task: Task) -> str:
    """What an image was made for, in a few words."""
    if task.kind == "classification":
        return f"{EARLIER_TASK}the label {task.label}"
    return f"{EARLIER_TASK}the protected classes {', '.join(task.protected)}"


class Outdated:
    """Of the runs of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # A request asks for every image of its run: pictures are compared by hashes that are worked out once.
        self._wanted = lru_cache(maxsize=64)(self._wanted_shas)
        self._held = lru_cache(maxsize=1024)(lambda sha: image_sha(workspace.images.load(sha)))

    def reasons(self, run: Run, size: tuple[int, int]) -> dict[int, str]:
        """The outdated test cases by their id, each with the reason in a few words. `size` is that of the source."""
        values = {name: stored.value.value for name, stored in run.values.items()}
        other_mask, found = self.of_another_mask(run, size), dict[int, str]()
        for case in run.test_cases:
            drawn_with = case.lineage.settings
            if case.task != run.task:
                found[case.id] = made_for(case.task)
            elif not is_drawn_from(case.lineage.recipe, case.lineage.counterfactual, values):
                found[case.id] = EARLIER_CAPTION
            elif case.id in other_mask:
                found[case.id] = EARLIER_MASK
            elif drawn_with.source_caption not in (None, recipe_of(case.lineage.recipe).source_caption(values)):
                found[case.id] = EARLIER_SOURCE_CAPTION
            elif drawn_with.region not in (None, recipe_of(case.lineage.recipe).region(values)):
                found[case.id] = EARLIER_REGION
        return found

    def of_another_mask(self, run: Run, size: tuple[int, int]) -> frozenset[int]:
        """Return the test cases whose artifacts the mask would make differently now, by their pixels."""
        return frozenset(case.id for case in run.test_cases if self._redrawn(case, run, size))

    def _redrawn(self, case: StoredTestCase, run: Run, size: tuple[int, int]) -> bool:
        lineage = case.lineage
        if not method_of(lineage.method).needs_mask(lineage.settings):
            return False
        if run.mask_sha is None:
            return True
        try:
            classes = tuple(sorted(run.mask_classes.items()))
            expected = self._wanted(run.mask_sha, classes, size, lineage.method, lineage.settings)
            return any(
                name not in case.artifacts or self._held(case.artifacts[name].sha) != sha
                for name, sha in expected.items()
            )
        except UserError:  # a file is missing or damaged, which the page says where it shows it
            return True

    def _wanted_shas(
        self,
        mask_sha: str,
        classes: tuple[tuple[int, str], ...],
        size: tuple[int, int],
        method: str,
        settings: MethodSettings,
    ) -> dict[str, str]:
        mask = NamedMask(self._workspace.images.load(mask_sha), dict(classes))
        made = method_of(method).mask_artifacts(settings, mask, size)
        return {name: image_sha(image) for name, image in made.items()}
