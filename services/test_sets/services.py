"""The services of test sets, put together once for a workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from core.test_sets import SetVersion, TestSet
from services.changes import Changes
from services.commands import Commands
from services.test_sets.drafts import TestSetDrafts
from services.test_sets.exports import SetExports
from services.test_sets.versions import Versions, set_of, version_of
from services.work_queue import WorkQueue
from storage.test_sets.test_sets import TestSets
from storage.workspace import Workspace


@dataclass(frozen=True)
class TestSetServices:
    """What the pages of test sets call."""

    __test__ = False  # not a pytest class

    drafts: TestSetDrafts
    versions: Versions
    exports: SetExports
    work: WorkQueue
    """Splits, releases and checks of large sets; what each is about is the id of the set."""
    stored: TestSets
    """The sets with their versions and entries."""
    set_of: Callable[[str], TestSet]
    """The set of an id or a name. Raises Missing."""
    version_of: Callable[[str], SetVersion]
    """The version of a reference. Raises Missing."""
    orphans: Callable[[], tuple[str, ...]]
    """Image files that belong to nothing."""
    workspace_folder: str

    def close(self) -> None:
        """Stop what is going on."""
        self.work.close()
        self.exports.close()


def test_set_services(workspace: Workspace, commands: Commands, changes: Changes) -> TestSetServices:
    """The services of a workspace, their commands taken on."""
    versions, drafts = Versions(workspace), TestSetDrafts(workspace)
    versions.register(commands)
    drafts.register(commands)
    return TestSetServices(
        drafts,
        versions,
        SetExports(workspace, changes),
        WorkQueue(changes),
        workspace.test_sets,
        partial(set_of, workspace),
        partial(version_of, workspace),
        workspace.images.orphans,
        str(workspace.folder),
    )
