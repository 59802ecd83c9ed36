"""The services of test sets, put together once for a workspace."""

from __future__ import annotations

from functools import partial

from services.changes import Changes
from services.commands import Commands
from services.test_sets.drafts import TestSetDrafts
from services.test_sets.exports import SetExports
from services.test_sets.versions import Versions, set_of, version_of
from services.work_queue import WorkQueue
from storage.workspace import Workspace


class TestSetServices:
    """What the pages of test sets call."""

    __test__ = False  # not a pytest class

    def __init__(self, workspace: Workspace, commands: Commands, changes: Changes) -> None:
        """Add what can be done with test sets to `commands`."""
        self.versions, self.drafts = Versions(workspace), TestSetDrafts(workspace)
        commands.take_on(self.versions)
        commands.take_on(self.drafts)
        self.exports, self.work = SetExports(workspace, changes), WorkQueue(changes)
        """`work` holds splits, releases and checks of large sets; what each is about is the id of the set."""
        self.stored = workspace.test_sets
        """The sets with their versions and entries."""
        self.set_of, self.version_of = partial(set_of, workspace), partial(version_of, workspace)
        """Return the set of an id or name, or the version of a reference. Raise Missing."""
        self.orphans = workspace.images.orphans
        """Image files that belong to nothing."""
        self.workspace_folder = str(workspace.folder)

    def close(self) -> None:
        """Stop what is going on."""
        self.work.close()
        self.exports.close()
