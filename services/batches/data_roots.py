"""The folders below which a script may name files: in a plan that it sends, and of a model under test.

A text that reaches the server may name any file of the machine it runs on. The study lead, at the page, may do that; a
token may not, as it is a string that can get lost. So a plan by a script is taken only where whoever started the studio
has named folders, and only if all the places in it lie below one of them, wherever links lead. Nothing that such a plan
names is opened before that is known, and a refusal is the same whether there is such a file or not.

Links within a data set that is allowed are followed, as for everybody: whoever can put one there can put a copy there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from core.errors import UserError
from services.batches.plan_file import BatchPlan, named_paths

CHECKPOINT = "under_test.file"
"""The setting that names a file."""
ADDRESS = "under_test.address"
"""The setting that names a server, which images are sent to."""


class DataRoots:
    """Some folders, or none: then scripts plan nothing. Raises UserError for what is no folder."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise UserError(
                    f"{folder} is no folder: name one that is there with --data-roots, or with DATA_ROOTS in the "
                    "environment."
                )
        self._folders = tuple(folder.resolve() for folder in folders)

    def require_text(self, text: str) -> None:
        """Check the text of a plan before reading it as one opens files. Raises UserError with "plan" as its field."""
        if not self._folders:
            raise _refusal(
                "This studio takes no plan from a script: plan it on the page Batches, or have the studio started with "
                "--data-roots and the folders that scripts may plan with."
            )
        paths = named_paths(text)
        if profile := paths.get("make.profile"):
            raise _refusal(f"make.profile is {profile!r:.200}: a plan by a script names a profile that the studio has.")
        if keys := paths.get("choose.keys"):
            self._require("choose.keys", keys)

    def require_plan(self, plan: BatchPlan) -> BatchPlan:
        """The plan with its data where they really lie, so that what is read later is what was looked at. Raises
        UserError, with "plan" as its field, where a place in it is not below one of the folders.
        """
        root = self._require("data.root", plan.data.root)
        folder = root if root.is_dir() else root.parent  # a table or a tar alone: its files lie beside it
        inside = {"data.split": plan.data.split}
        inside |= {f"data.options.{name}": text for name, text in plan.data.options.items()}
        for name, text in inside.items():
            # Some are names of files or folders within the data set, others are none: those lead nowhere.
            part = PurePosixPath(text.replace("\\", "/"))
            if part.is_absolute() or ".." in part.parts or "\0" in text:
                raise _refusal(f"{name} is {text!r:.200}: a plan by a script names nothing outside its data set.")
            self._require(name, str(folder / part))
        if address := plan.make.settings.get(ADDRESS, ""):
            raise _refusal(
                f"{ADDRESS} in make.settings is {address!r:.200}: a plan by a script names no server, since images "
                "would be sent there."
            )
        checkpoint = plan.make.settings.get(CHECKPOINT, "")
        if isinstance(checkpoint, str) and checkpoint:
            self._require(f"{CHECKPOINT} in make.settings", checkpoint)
        return plan.with_root(root)

    def require_model(self, file: str) -> None:
        """Check the path of a model that a script names. Raises UserError, with "file" as its field, where it is not
        below one of the folders."""
        if self._place(file) is None:
            where = f"below {self._names()}" if self._folders else "nowhere on this machine"
            raise UserError(
                f"A script names files {where}, and {file!r:.200} is not there: choose the model on the page Evaluate, "
                "or have the studio started with --data-roots that hold it.",
                field="file",
            )

    def _require(self, name: str, text: str) -> Path:
        """The place that a text names, without links. Raises UserError for one that is not below the folders."""
        place = self._place(text)
        if place is None:
            raise _refusal(
                f"{name} is {text!r:.200}: a plan by a script reads only below {self._names()}. Plan it on the page "
                "Batches, or have the studio started with --data-roots that hold it."
            )
        return place

    def _place(self, text: str) -> Path | None:
        """The place that a text names, without links; None for one that is not below the folders."""
        try:
            place = Path(text).resolve() if Path(text).is_absolute() else None
        except (OSError, RuntimeError, ValueError):  # no path, or links in a circle
            return None
        return place if place and any(place.is_relative_to(folder) for folder in self._folders) else None

    def _names(self) -> str:
        return ", ".join(map(str, self._folders))


def _refusal(said: str) -> UserError:
    return UserError(said, field="plan")
