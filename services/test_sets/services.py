"""Assembles the services of test sets, once for a workspace."""

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
    """Services of the pages of test sets."""

    __test__ = False  # not a pytest class

    def __init__(self, workspace: Workspace, commands: Commands, changes: Changes) -> None:
        """Create the services, and add their commands to `commands`."""
        self.versions, self.drafts = Versions(workspace), TestSetDrafts(workspace)
        commands.take_on(self.versions)
        commands.take_on(self.drafts)
        self.exports, self.work = SetExports(workspace, changes), WorkQueue(changes)
        """`exports` makes zips of versions. `work` is a queue of long tasks: to split, release or check a large set."""
        self.stored = workspace.test_sets
        """Stored sets with their versions and entries."""
        self.set_of, self.version_of = partial(set_of, workspace), partial(version_of, workspace)
        """Functions that return a test set by id or name, and a version by reference. Both raise Missing."""
        self.orphans = workspace.images.orphans
        """Returns unused image files."""
        self.workspace_folder = str(workspace.folder)

    def close(self) -> None:
        """Stop running work."""
        self.work.close()
        self.exports.close()
