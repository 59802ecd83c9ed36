"""Which images of a run no longer fit what stands before them, and why: another caption by now, or another mask."""

from __future__ import annotations

from functools import lru_cache

from pipeline.conditioning import NamedMask
from pipeline.errors import UserError
from pipeline.freshness import image_sha, is_current
from pipeline.methods import map_shown
from pipeline.types import CounterfactualCaptions
from storage.types import Run, StoredTestCase
from storage.workspace import Workspace

EARLIER_CAPTION = "of an earlier caption"
EARLIER_MASK = "of an earlier mask"


class Outdated:
    """Of the runs of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # A request asks for every image of its run: pictures are compared by hashes that are worked out once.
        self._map = lru_cache(maxsize=64)(self._map_sha)
        self._shown = lru_cache(maxsize=1024)(self._shown_sha)

    def reasons(self, run: Run, size: tuple[int, int]) -> dict[int, str]:
        """The outdated test cases by their id, each with the reason in a few words. `size` is that of the source."""
        stored = run.values.get("counterfactuals")
        captions: CounterfactualCaptions = stored.value.value if stored else CounterfactualCaptions(())
        other_mask, found = self.of_another_mask(run, size), {}
        for case in run.test_cases:
            if not is_current(case.counterfactual, captions):
                found[case.id] = EARLIER_CAPTION
            elif case.id in other_mask:
                found[case.id] = EARLIER_MASK
        return found

    def of_another_mask(self, run: Run, size: tuple[int, int]) -> frozenset[int]:
        """The test cases that were drawn on a map of the mask which would be another map now.

        Their control images tell: a mask that only got the same classes under other numbers outdates nothing.
        """
        return frozenset(case.id for case in run.test_cases if self._redrawn(case, run, size))

    def _redrawn(self, case: StoredTestCase, run: Run, size: tuple[int, int]) -> bool:
        conditioning, short_side = case.settings.get("conditioning"), case.settings.get("short_side")
        if not isinstance(conditioning, dict) or conditioning.get("kind") != "segmentation":
            return False
        if run.mask_sha is None or not isinstance(short_side, int):
            return True
        try:
            wanted = self._map(run.mask_sha, tuple(sorted(run.mask_classes.items())), size, short_side)
            return self._shown(case.control_sha) != wanted
        except UserError:  # a file is missing or damaged, which the page says where it shows it
            return True

    def _map_sha(
        self, mask_sha: str, classes: tuple[tuple[int, str], ...], size: tuple[int, int], short_side: int
    ) -> str:
        mask = NamedMask(self._workspace.image(mask_sha), dict(classes))
        return image_sha(map_shown(mask, size, short_side))

    def _shown_sha(self, control_sha: str) -> str:
        return image_sha(self._workspace.image(control_sha))
