"""Folders in which a script may name files: in a plan that it sends, for a model under test, and for backgrounds.

A text that reaches the server may name any file of its machine. The study lead, at the page, may do that. A token may
not, as it is a string that can get lost. So a script's plan is accepted only if the studio was started with named
folders, and only if all paths in it lie in one of them, with links resolved. Nothing that such a plan names is opened
before that check, and a refusal is the same whether the file exists or not.

Links within an allowed data set are followed for everybody: a person who can put one there can put a copy there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from core.errors import UserError
from services.batches.plan_file import BatchPlan, named_paths

CHECKPOINT = "under_test.file"
"""The setting that names a file."""
FOLDER = "backgrounds.folder"
"""The setting that names a folder of pictures."""
ADDRESS = "under_test.address"
"""The setting that names a server, which gets images."""


class DataRoots:
    """Folders in which scripts may name files; without any, scripts cannot plan. Raises UserError for a path that is no
    folder.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise UserError(
                    f"{folder} is no folder: name one that is there with --data-roots, or with DATA_ROOTS in the "
                    "environment."
                )
        self._folders = tuple(folder.resolve() for folder in folders)

    def require_text(self, text: str) -> None:
        """Check the text of a plan before reading it, which opens files. Raises UserError with "plan" as its field."""
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
        """Return the plan with the resolved path of its data, so that later reads use the checked path. Raises
        UserError, with "plan" as its field, if a path in it is not in one of the folders.
        """
        root = self._require("data.root", plan.data.root)
        folder = root if root.is_dir() else root.parent  # for a single table or tar, its files lie beside it
        inside = {"data.split": plan.data.split}
        inside |= {f"data.options.{name}": text for name, text in plan.data.options.items()}
        for name, text in inside.items():
            # Some options name files or folders in the data set; others are no paths, and pass.
            part = PurePosixPath(text.replace("\\", "/"))
            if part.is_absolute() or ".." in part.parts or "\0" in text:
                raise _refusal(f"{name} is {text!r:.200}: a plan by a script names nothing outside its data set.")
            self._require(name, str(folder / part))
        if address := plan.make.settings.get(ADDRESS, ""):
            raise _refusal(
                f"{ADDRESS} in make.settings is {address!r:.200}: a plan by a script names no server, since images "
                "would be sent there."
            )
        for name in (CHECKPOINT, FOLDER):
            place = plan.make.settings.get(name, "")
            if isinstance(place, str) and place:
                self._require(f"{name} in make.settings", place)
        return plan.with_root(root)

    def require_file(self, file: str, field: str, instead: str) -> None:
        """Check a path that a script names in a field. Raises UserError if it is not in one of the folders; `instead`
        says where a person gives it."""
        if self._place(file) is None:
            where = f"below {self._names()}" if self._folders else "nowhere on this machine"
            raise UserError(
                f"A script names files {where}, and {file!r:.200} is not there: choose {instead}, or have the "
                "studio started with --data-roots that hold it.",
                field=field,
            )

    def _require(self, name: str, text: str) -> Path:
        """Return the resolved path of a text. Raises UserError if it is not in one of the folders."""
        place = self._place(text)
        if place is None:
            raise _refusal(
                f"{name} is {text!r:.200}: a plan by a script reads only below {self._names()}. Plan it on the page "
                "Batches, or have the studio started with --data-roots that hold it."
            )
        return place

    def _place(self, text: str) -> Path | None:
        """Return the resolved path of a text, or None if it is not in one of the folders."""
        try:
            place = Path(text).resolve() if Path(text).is_absolute() else None
        except (OSError, RuntimeError, ValueError):  # not a path, or a circle of links
            return None
        return place if place and any(place.is_relative_to(folder) for folder in self._folders) else None

    def _names(self) -> str:
        return ", ".join(map(str, self._folders))


def _refusal(message: str) -> UserError:
    return UserError(message, field="plan")
