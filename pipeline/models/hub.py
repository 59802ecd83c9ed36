"""Weights on the Hugging Face hub: lists files that are here and that are missing, and downloads the missing ones.

The hub's library restarts an interrupted file from the beginning and does not verify it. Files here have tens of
gigabytes. So each download resumes where it stopped, and a file counts only if its hash equals the hub's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from core.data_files import DataTable
from core.errors import CannotLoad, disk_reason
from core.images import file_hash
from core.model_sections import WebFile, Weights, in_bytes
from core.progress import stop_if

SPARE = 500_000_000
"""Minimum free bytes that a download leaves on the disk."""
BUSY = frozenset({429, 500, 502, 503, 504})
"""Statuses of a hub that may answer a later request."""
TRIES = 4
"""Maximum number of requests to a busy hub. The pauses between them grow from 1 to 4 seconds."""
_FAULTS = DataTable(__file__, str, "faults")
T = TypeVar("T")
Told = Callable[[int], None]
"""Called with the number of bytes of every part that arrived; negative if bytes must be fetched again."""


@dataclass(frozen=True)
class LocalWeights:
    """The part of a model's weights that is on this machine."""

    folder: Path | None
    """Path of the weights, or None if none are here."""
    bytes: int = 0
    complete: bool | None = False
    """True if all files are here, or None if only the hub can tell."""


@dataclass(frozen=True)
class HubFile:
    """One file of a model on the hub."""

    path: str
    bytes: int
    hash: str
    """sha256 of a large file, git's hash of a small one. It is the name of the file in the cache."""
    large: bool


@dataclass(frozen=True)
class HubListing:
    """The hub's files of a model, and which of them are still missing here."""

    weights: Weights
    commit: str
    files: tuple[HubFile, ...]
    missing: tuple[HubFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def left(self) -> dict[Path, int]:
        """Return the bytes still to fetch of each missing file, by its destination."""
        return {self.blob(file): file.bytes - min(file.bytes, _size(self.part(file))) for file in self.missing}

    @property
    def bytes_missing(self) -> int:
        return sum(self.left.values())

    @property
    def cache(self) -> Path:
        return cache_of(self.weights)

    @property
    def snapshot(self) -> Path:
        """Folder with the files of the commit under their names."""
        return self.cache / "snapshots" / self.commit

    def blob(self, file: HubFile) -> Path:
        return self.cache / "blobs" / file.hash

    def part(self, file: HubFile) -> Path:
        """Return the path of a file's unfinished download."""
        return self.blob(file).with_suffix(".part")


def cache_of(weights: Weights) -> Path:
    """Return the folder of a hub id in the hub's cache, which may not exist yet."""
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=weights.hub, repo_type="model")


def page_of(weights: Weights) -> str:
    """Return the URL of the model's page, where its licence can be accepted."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{weights.hub}"


def held(weights: Weights) -> LocalWeights:
    """Return the part of these weights that is on this machine. Uses no network."""
    place = weights.local()
    if place is not None:
        file = getattr(weights, "file", "")
        path = place / file if file else place
        size = _size(path) if path.is_file() else sum(_size(one) for one in path.rglob("*") if one.is_file())
        return LocalWeights(path, size, True) if size else LocalWeights(None, _size(part_of(path)))
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError

    parts = sum(_size(part) for part in (cache_of(weights) / "blobs").glob("*.part"))
    try:
        get_cached_repo_tree(weights.hub, revision=weights.revision)
        known = True
    except (CachedRepoTreeNotFoundError, OSError):
        known = False
    try:
        folder = Path(snapshot_download(**_wanted(weights), local_files_only=True))
    except LocalEntryNotFoundError as error:
        folder_there = getattr(error, "snapshot_path", None)
        size = _matching(weights, Path(folder_there)) if folder_there else 0
        return LocalWeights(Path(folder_there) if folder_there else None, size + parts)
    size = _matching(weights, folder)
    return LocalWeights(folder, size + parts, True if known and size else None if size else False)


def part_of(file: Path) -> Path:
    """Return the path of a file's unfinished download."""
    return file.with_name(f"{file.name}.part")


def listing(role: str, weights: Weights) -> HubListing:
    """Return the hub's files of these weights. Raises CannotLoad if the hub cannot be reached or would refuse them."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import filter_repo_objects

    api = HfApi(endpoint=constants.ENDPOINT)
    with refused(role, weights):
        info = patiently(lambda: api.model_info(weights.hub, revision=weights.revision))
        if info.gated:
            patiently(lambda: api.auth_check(weights.hub))
        tree = patiently(lambda: list(api.list_repo_tree(weights.hub, recursive=True, revision=info.sha)))
        files = tuple(
            HubFile(one.path, one.size, one.lfs.sha256 if one.lfs else one.blob_id, one.lfs is not None)
            for one in tree
            if isinstance(one, RepoFile)
        )
    chosen = set(filter_repo_objects([file.path for file in files], allow_patterns=_wanted(weights)["allow_patterns"]))
    files = tuple(file for file in files if file.path in chosen)
    if not files:
        named = ", ".join(_wanted(weights)["allow_patterns"] or ("any",))
        raise CannotLoad(
            f"The {role} {weights.hub} has none of the files that the profile names ({named}): see {page_of(weights)} "
            "and correct the profile."
        )
    whole = HubListing(weights, str(info.sha), files, ())
    missing = tuple(one for one in files if not ((whole.snapshot / one.path).exists() or whole.blob(one).exists()))
    return replace(whole, missing=missing)


def damaged(found: HubListing) -> HubListing:
    """Remove files whose hash differs from the hub's, and return the listing with them as missing. Reads every file."""
    wrong = []
    for file in found.files:
        named = found.snapshot / file.path
        place = next((p for p in (found.blob(file), named) if p.exists()), None)
        if place is not None and _hash(place, file.large) != file.hash:
            place.resolve().unlink()
            place.unlink(missing_ok=True)
            named.unlink(missing_ok=True)
            wrong.append(file)
    return replace(found, missing=(*found.missing, *wrong))


def require_room(needed: int, free: int | None = None, folder: Path | None = None, variable: str = "HF_HOME") -> None:
    """Raise CannotLoad if `needed` bytes do not fit on the disk of the hub's cache, or of another `folder`, which the
    environment's `variable` sets. `free` replaces the measured free bytes.
    """
    place = cache_folder() if folder is None else folder
    available = free_on_disk(place) if free is None else free
    if needed and needed + SPARE > available:
        raise CannotLoad(
            f"The disk of {place} has too little room: {in_bytes(needed)} must be fetched, and {in_bytes(available)} "
            f"are free, of which {in_bytes(SPARE)} must stay free. Make room, or set {variable} to a folder on another "
            "disk."
        )


def free_on_disk(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which may not exist yet."""
    return shutil.disk_usage(_there(folder)).free


def disk_of(folder: Path) -> int:
    """Return the device number of the disk of a folder, which may not exist yet."""
    return _there(folder).stat().st_dev


def cache_folder() -> Path:
    """Return the folder of the hub's cache, which may not exist yet."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def _there(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def download(role: str, found: HubListing, on_bytes: Told, cancelled: threading.Event | None = None) -> Path:
    """Fetch the missing files and return the folder with all of them. Resumes where an earlier call stopped. Raises
    CannotLoad if a file cannot be fetched, and Cancelled.
    """
    from huggingface_hub import constants, snapshot_download

    with refused(role, found.weights):
        for file in found.missing:
            _get(role, found, file, on_bytes, cancelled)
        with _no_bars():  # all files are here, and the call records which of them belong to the commit
            return Path(snapshot_download(**_wanted(found.weights), endpoint=constants.ENDPOINT))


def _get(role: str, found: HubListing, file: HubFile, on_bytes: Told, cancelled: threading.Event | None) -> None:
    from huggingface_hub import constants, hf_hub_download, hf_hub_url
    from huggingface_hub.utils import WeakFileLock, build_hf_headers

    blob, part = found.blob(file), found.part(file)
    lock = found.cache.parent / ".locks" / found.cache.name / f"{file.hash}.lock"  # the lock file that the library uses
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    url = hf_hub_url(found.weights.hub, file.path, revision=found.commit, endpoint=constants.ENDPOINT)
    with WeakFileLock(lock):
        if blob.exists():  # another process was faster
            on_bytes(file.bytes)
            return
        what = f"{file.path} of the {role} {found.weights.hub}"
        # A small file may be sent compressed, so its remaining bytes cannot be requested.
        request = Download(url, part, file.bytes, what, lambda came: _hash(came, file.large) == file.hash, file.large)
        bring(request, on_bytes, cancelled, build_hf_headers())
        os.replace(part, blob)
    # Name the file in the cache now, so that it counts as present even if the next download fails.
    hf_hub_download(found.weights.hub, file.path, revision=found.weights.revision, endpoint=constants.ENDPOINT)


@dataclass(frozen=True)
class Download:
    """A file to download."""

    url: str
    part: Path
    """Path of the unfinished download; bytes that are already there are kept."""
    bytes: int
    """Size of the file, 0 if unknown."""
    what: str
    """Description of the file for messages."""
    right: Callable[[Path], bool]
    """Returns True if the downloaded file has the right hash."""
    goes_on: bool = True
    """True if a download can start in the middle of the file, as it does to resume."""


def bring(
    request: Download, on_bytes: Told, cancelled: threading.Event | None, headers: dict[str, str] | None = None
) -> None:
    """Fetch a file, from where an earlier try stopped. Raises CannotLoad if its hash is wrong."""
    from huggingface_hub.file_download import http_get

    class Counted:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, count: float | None = 1) -> None:
            stop_if(cancelled)
            on_bytes(int(count or 0))

    part = request.part

    def get() -> int:
        """Fetch the rest of the file, and return the number of bytes that were here before."""
        start = _size(part) if request.goes_on and _size(part) <= request.bytes else 0
        with part.open("ab" if start else "wb") as out:
            bars: Any = Counted
            http_get(
                request.url,
                out,
                resume_size=start,
                headers=headers,
                expected_size=request.bytes or None,
                displayed_filename=part.name,
                tqdm_class=bars,
            )
        return start

    while True:
        start = patiently(get, BUSY - {429})  # after which the library waits itself
        if request.right(part):
            return
        part.unlink()
        on_bytes(-request.bytes)
        if not start:  # otherwise the beginning may be wrong, as it is from an earlier try
            raise CannotLoad(
                f"The download of {request.what} was discarded, since its hash differs from the server's: try again, "
                "without a proxy if there is one."
            )


def patiently(ask: Callable[[], T], busy: Collection[int] = BUSY) -> T:
    """Return the result of `ask`. While the hub answers with a status in `busy`, ask again after growing pauses."""
    import tenacity

    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: _status(error) in busy),
        stop=tenacity.stop_after_attempt(TRIES),
        wait=tenacity.wait_exponential(),
        reraise=True,
    )
    return again(ask)


def _status(error: BaseException) -> int:
    """Return the status that the hub answered, or 0 for an error without an answer."""
    from huggingface_hub.errors import HfHubHTTPError

    return error.response.status_code if isinstance(error, HfHubHTTPError) else 0


@contextmanager
def refused(role: str, weights: Weights) -> Iterator[None]:
    """Turn errors of the hub, the network or the disk into one sentence that says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HTTPError,  # of the HTTP library that the hub's library uses
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except (LocalEntryNotFoundError, HTTPError, OSError, JSONDecodeError, KeyError, TypeError) as error:
        status = _status(error)
        on_disk = error if isinstance(error, OSError) and error.errno is not None else None
        if isinstance(error, GatedRepoError):
            fault = "licence not accepted" if status == 401 else "not granted"
        elif isinstance(error, RevisionNotFoundError):
            fault = "no revision"
        elif isinstance(error, RepositoryNotFoundError):
            fault = "no repository"
        elif isinstance(error, OfflineModeIsEnabled):
            fault = "offline"
        elif status in BUSY:
            fault = "busy"
        elif status in (401, 403):
            fault = "denied"
        elif status:
            fault = "refused"
        elif isinstance(error, JSONDecodeError | KeyError | TypeError):  # some other program answers
            fault = "strange"
        else:
            fault = "not saved" if on_disk else "not fetched"
        sentence = _FAULTS[fault].format(
            role=role,
            weights=weights,
            page=weights.url if isinstance(weights, WebFile) else page_of(weights),
            about=f"{weights.title} ({weights.size_in_words}; licence: {weights.licence or 'see its page'})",
            host=urlsplit(weights.url if isinstance(weights, WebFile) else constants.ENDPOINT).netloc,
            folder=Path(weights.path).parent if isinstance(weights, WebFile) else cache_folder(),
            why=f"it answered {status}" if status else disk_reason(on_disk) if on_disk else type(error).__name__,
        )
        raise CannotLoad(sentence) from error


@contextmanager
def _no_bars() -> Iterator[None]:
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()


def _wanted(weights: Weights) -> dict[str, Any]:
    """Return repository, revision and file patterns as arguments for the hub's library."""
    file = getattr(weights, "file", "")
    return {
        "repo_id": weights.hub,
        "revision": weights.revision,
        "allow_patterns": [file] if file else list(weights.files) or None,
    }


def _matching(weights: Weights, folder: Path) -> int:
    from huggingface_hub.utils import filter_repo_objects

    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    return sum(
        _size(folder / name) for name in filter_repo_objects(names, allow_patterns=_wanted(weights)["allow_patterns"])
    )


def _hash(file: Path, large: bool) -> str:
    """Return the hash of a file as the hub has it: sha256, or git's hash of a small file."""
    if large:
        return file_hash(file)
    data = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
