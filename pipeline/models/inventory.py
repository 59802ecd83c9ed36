"""Lists the models of profiles, each with its origin, its files on this machine, its memory, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.model_sections import COMMIT, WebFile, Weights, in_bytes
from pipeline.models.hub import SPARE, held, page_of
from pipeline.models.machine import Machine, model_fits, profile_fits
from pipeline.profiles.profile import Profile
from pipeline.profiles.text_sections import ServerJudge


@dataclass(frozen=True)
class ListedModel:
    """One model of a profile. Numbers of bytes are 0 if unknown."""

    role: str
    name: str
    """Hub id, path or package of the model."""
    page: str = ""
    """URL of the hub's page or of the file; "" for a model that is not fetched."""
    revision: str = ""
    """Pinned version: a commit, or torchvision's name of the weights. "" if none is pinned."""
    pinned: bool = False
    licence: str = ""
    bytes: int = 0
    bytes_here: int = 0
    complete: bool = False
    path: str = ""
    memory_half: int = 0
    memory_full: int = 0
    fits: str = ""

    @property
    def to_fetch(self) -> int:
        """Bytes still to download. 0 for a model that needs no download."""
        return max(0, self.bytes - self.bytes_here) if self.page and not self.complete else 0

    @property
    def commit(self) -> str:
        """Commit of the hub's weights on this machine; "" if there are none."""
        folder = Path(self.path).name
        return folder if self.page and COMMIT.fullmatch(folder) else ""

    @property
    def on_disk(self) -> str:
        """Text about the model's files: the bytes on this machine, and the bytes to fetch."""
        if self.complete and not self.bytes_here:
            return "on a server"
        if self.complete:
            return f"here, {in_bytes(self.bytes_here)}"
        if not self.page:
            return "missing"
        size = in_bytes(self.to_fetch) if self.bytes else "size unknown,"
        return f"{size} to fetch" + (f", {in_bytes(self.bytes_here)} here" if self.bytes_here else "")

    @property
    def origin(self) -> str:
        """Text with revision, licence, and path or URL."""
        parts = [f"revision {self.revision[:12] if len(self.revision) == 40 else self.revision}"] if self.pinned else []
        if self.page and not self.pinned:
            parts.append(f"not pinned: {f'{self.commit[:12]} is here' if self.commit else 'the newest is taken'}")
        parts += [f"licence: {self.licence}"] if self.licence else []
        return " · ".join((*parts, self.path or self.page))

    @property
    def memory(self) -> str:
        """Text about the memory that the model needs at half and at full precision, "" if unknown."""
        if not self.memory_full:
            return ""
        half, full = in_bytes(self.memory_half), in_bytes(self.memory_full)
        return full if half == full else f"{half} or {full}"


@dataclass(frozen=True)
class ListedProfile:
    """A profile with its models."""

    name: str
    title: str
    models: tuple[ListedModel, ...]
    fits: str
    disk_free: int
    called: str = ""
    """Name by which the profile was requested, if it differs from the profile's name."""

    @property
    def to_fetch(self) -> int:
        """Bytes still to download for all models, computed from the sizes in the profile."""
        return sum(model.to_fetch for model in self.models)

    def plain(self) -> dict[str, Any]:
        models = [{**vars(model), "to_fetch": model.to_fetch, "commit": model.commit} for model in self.models]
        return {"name": self.name, "title": self.title, "to_fetch": self.to_fetch, "fits": self.fits, "models": models}


def sections(profile: Profile) -> dict[str, Any]:
    """Return the profile's section for each model, by role, in the order of use. Includes models on servers."""
    text_models: dict[str, Any] = {"captioner": profile.captioner, "language model": profile.language}
    judge = {"judge": profile.judge} if isinstance(profile.judge, ServerJudge) else {}
    return {**text_models, **judge, **profile.weights()}


def listed(
    profile: Profile, machine: Machine, called: str = "", under_test: Mapping[str, Weights | UserError] | None = None
) -> ListedProfile:
    """List a profile's models and their files on this machine, without asking the hub. `called` is the name by which
    the profile was requested. `under_test` has each model under test by role, or the error if it is missing.
    """
    models, on_disk = [], {}
    for role, weights in {**sections(profile), **(under_test or {})}.items():
        if isinstance(weights, UserError):
            models.append(ListedModel(role, profile.under_test()[role].title, fits=str(weights)))
            continue
        if not isinstance(weights, Weights):  # it is on a server
            licence, path = (str(getattr(weights, name, "")) for name in ("licence", "address"))
            served = ListedModel(role, weights.title, licence=licence, complete=True, path=path)
            models.append(replace(served, fits="takes nothing of it"))
            continue
        address = weights.url if isinstance(weights, WebFile) else ""
        local = held(weights)
        # If completeness cannot be known offline, weights count as complete when their size is about right.
        complete = bool(local.complete) or (local.complete is None and local.bytes >= 0.95 * weights.bytes)
        on_disk[role] = local.bytes if complete else 0
        pinned = bool(address) or (bool(weights.hub) and weights.pinned)
        models.append(
            ListedModel(
                role=role,
                name=weights.title,
                page=page_of(weights) if weights.hub else address,
                revision=weights.revision if pinned else "",
                pinned=pinned,
                licence=weights.licence,
                bytes=weights.bytes,
                bytes_here=local.bytes,
                complete=complete,
                path=str(local.folder) if local.folder is not None else "",
                memory_half=weights.memory_half,
                memory_full=weights.memory_full,
                fits=model_fits(weights, machine, on_disk[role]),
            )
        )
    fits = profile_fits(profile, machine, on_disk)
    return ListedProfile(profile.name, profile.title, tuple(models), fits, machine.disk_free, called)


def in_table(profile: ListedProfile, origins: bool) -> str:
    """Return a profile's models as a text table. With `origins`, each model has a second line with its `origin`."""
    heading = ("FOR", "MODEL", "ON DISK", "MEMORY", "THIS MACHINE")
    rows = [(model.role, model.name, model.on_disk, model.memory, model.fits) for model in profile.models]
    lines = _columns([heading, *rows])
    table = [f"{profile.name}: {profile.title}"]
    fetch = f"{in_bytes(profile.to_fetch)} to fetch (python -m pipeline fetch {profile.called or profile.name})"
    if profile.to_fetch + SPARE > profile.disk_free:
        fetch += f", for which the disk has too little room: {in_bytes(profile.disk_free)} are free"
    missing = [model.role for model in profile.models if not model.complete]
    state = "all models are here" if not missing else fetch if profile.to_fetch else f"missing: {', '.join(missing)}"
    table.append(f"  {state[:1].upper()}{state[1:]}. It {profile.fits}.")
    table.append(f"  {lines[0]}")
    for model, line in zip(profile.models, lines[1:], strict=True):
        table.append(f"  {line}")
        if origins and model.origin:
            table.append(f"      {model.origin}")
    return "\n".join(table)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
