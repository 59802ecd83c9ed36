"""Data sets of drawn scenes, for users without data. A plan names the folder of a data set, whose scenes are drawn when
the batch is planned.

The folder's name says what is drawn: classification-60-48213 means 60 scenes for classification, from seed 48213.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from core.errors import UserError
from core.progress import OnCount
from core.types import TaskKind

COUNT, MOST = 60, 10_000
"""Default and maximum number of scenes in a data set."""
SEEDS = 1_000_000
KINDS: tuple[TaskKind, ...] = ("classification", "segmentation")
_NAME = re.compile(rf"({'|'.join(KINDS)})-(\d{{1,6}})-(\d{{1,9}})")


class SceneWriter(Protocol):
    """Draws scenes, and writes a plan for a batch of them. Only `demo` implements it."""

    def write_scenes(self, folder: Path, kind: TaskKind, count: int, seed: int, on_count: OnCount) -> None:
        """Draw a data set. `on_count` gets the number of scenes written and `count`, and may raise to stop the work."""

    def plan_text(self, root: str, kind: TaskKind) -> str:
        """Return the TOML text of a plan for a batch of the data set at `root`."""


@dataclass(frozen=True)
class DrawnScenes:
    """The data sets of drawn scenes in a workspace."""

    folder: Path
    writer: SceneWriter

    def plan_text(self, kind: TaskKind) -> str:
        """Return the TOML text of a plan for new scenes. The scenes are drawn when the batch is planned."""
        name = f"{kind}-{COUNT}-{random.SystemRandom().randrange(SEEDS)}"
        return self.writer.plan_text(str(self.folder / name), kind)

    def draw(self, root: Path, on_count: OnCount) -> None:
        """Draw the scenes that are missing in the data set at `root`. Do nothing if `root` is no folder of drawn
        scenes. Raises UserError for no scene, or for more than `MOST`.
        """
        named = _NAME.fullmatch(root.name)
        if root.parent != self.folder or named is None:
            return
        kind = next(one for one in KINDS if one == named[1])
        count, seed = int(named[2]), int(named[3])
        if not 0 < count <= MOST:
            raise UserError(f"{root.name} asks for {count:,} drawn scenes: ask for 1 to {MOST:,}.", field="plan")
        self.writer.write_scenes(root, kind, count, seed, on_count)
