"""Folders in which a script may name files: in a plan that it sends, for a model under test, and for backgrounds.

A request may name any file of the server's machine. The study lead may do that on the page. A script may not, since it
has only a token, which can get lost. So a script's plan is accepted only if the studio was started with named folders,
and only if all paths in the plan lie in one of them, with links resolved. No file of the plan is opened before that
check, and a refusal is the same whether the file exists or not.

Links within an allowed data set are followed for everybody: who can put a link there can also put a copy there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from core.errors import UserError
from services.batches.plan_file import BatchPlan, named_paths

FOLDER = "backgrounds.folder"
"""Name of the setting for a folder of background pictures."""


class DataRoots:
    """Folders in which scripts may name files. Without folders, scripts cannot plan batches. Raises UserError for a
    path that is not a folder.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise UserError(
                    f"{folder} is no folder: give an existing one with --data-roots, or with DATA_ROOTS in the "
                    "environment."
                )
        self._folders = tuple(folder.resolve() for folder in folders)

    def require_text(self, text: str) -> None:
        """Check the paths in the text of a plan. Call this before reading the plan, which opens files. Raises
        UserError, with "plan" as its field, if a script may not use a path or no folders were given.
        """
        if not self._folders:
            raise _refusal(
                "This studio takes no plan from a script: plan it on the page Batches, or restart the studio with "
                "--data-roots and the folders that scripts may plan with."
            )
        paths = named_paths(text)
        if profile := paths.get("make.profile"):
            raise _refusal(f"make.profile is {profile!r:.200}: a plan by a script may name only the studio's profiles.")
        if keys := paths.get("choose.keys"):
            self._require("choose.keys", keys)

    def require_plan(self, plan: BatchPlan) -> BatchPlan:
        """Return the plan with the resolved path of its data set, so that later reads use the path that was checked.
        Raises UserError, with "plan" as its field, if the plan names a path outside the allowed folders.
        """
        root = self._require("data.root", plan.data.root)
        folder = root if root.is_dir() else root.parent  # the files of a single table or tar lie beside it
        options = {f"data.options.{name}": text for name, text in plan.data.options.items()}
        for name, text in {"data.split": plan.data.split, **options}.items():
            # Some options name files or folders in the data set. Others are no paths, and pass this check.
            part = PurePosixPath(text.replace("\\", "/"))
            if part.is_absolute() or ".." in part.parts or "\0" in text:
                raise _refusal(f"{name} is {text!r:.200}: a plan by a script may name nothing outside its data set.")
            self._require(name, str(folder / part))
        if address := plan.make.settings.get("under_test.address", ""):
            raise _refusal(
                f"under_test.address in make.settings is {address!r:.200}: a plan by a script may not name a server, "
                "since images would be sent there."
            )
        for name in ("under_test.file", FOLDER):
            place = plan.make.settings.get(name, "")
            if isinstance(place, str) and place:
                self._require(f"{name} in make.settings", place)
        return plan.with_root(root)

    def require_file(self, file: str, field: str, instead: str) -> None:
        """Raise UserError if `file`, which a script names, is outside the allowed folders. `field` is the command's
        field for it. The message advises “choose `instead`”.
        """
        if self._place(file) is None:
            only = f", only files below {self._names()}" if self._folders else ""
            raise UserError(
                f"A script may not name {file!r:.200}{only}: choose {instead}, or restart the studio with --data-roots "
                "and a folder that contains it.",
                field=field,
            )

    def _require(self, name: str, text: str) -> Path:
        """Return the resolved path `text` of the setting `name`. Raises UserError if it is in no allowed folder."""
        place = self._place(text)
        if place is None:
            raise _refusal(
                f"{name} is {text!r:.200}: a plan by a script may only read below {self._names()}. Plan it on the page "
                "Batches, or restart the studio with --data-roots and a folder that contains it."
            )
        return place

    def _place(self, text: str) -> Path | None:
        """Resolve and return the path `text`, or return None if it is in none of the allowed folders."""
        try:
            place = Path(text).resolve() if Path(text).is_absolute() else None
        except (OSError, RuntimeError, ValueError):  # not a path, or a circle of links
            return None
        return place if place and any(place.is_relative_to(folder) for folder in self._folders) else None

    def _names(self) -> str:
        return ", ".join(map(str, self._folders))


def _refusal(message: str) -> UserError:
    return UserError(message, field="plan")
