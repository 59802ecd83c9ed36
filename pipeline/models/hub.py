"""Lists which files of weights are here and which are missing, and downloads missing files from the Hugging Face hub or
from the URL of a single file, such as a file of torchvision.

The hub's library restarts an interrupted file from the beginning and does not verify it. As weights may have tens of
gigabytes, each download here resumes where it stopped. A file counts only if it has the right hash.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from core.data_files import DataTable
from core.errors import CannotLoad, disk_reason
from core.images import file_hash
from core.model_sections import WebFile, Weights, in_bytes
from core.progress import stop_if

SPARE = 500_000_000
"""Minimum free bytes that a download leaves on the disk."""
BUSY = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses of a busy server, which may answer a later request."""
TRIES = 4
"""Maximum number of requests to a busy hub. The pauses between them grow from 1 to 4 seconds."""
_HASH = re.compile(r"-([0-9a-f]{8,64})\.")
"""Matches the beginning of a file's sha256 in the file's name, as in torch's "resnet18-f37072fd.pth"."""
_FAULTS = DataTable(__file__, str, "faults")
T = TypeVar("T")
Told = Callable[[int], object]
"""Function that is called with the number of new bytes as they arrive. A negative number means discarded bytes."""


@dataclass(frozen=True)
class LocalWeights:
    """The part of a model's weights that is on this machine."""

    folder: Path | None
    """Path of the weights, or None if none are on this machine."""
    bytes: int = 0
    complete: bool | None = False
    """True if all files are on this machine, or None if only the hub can tell."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a model on its server."""

    path: str
    bytes: int
    """Size of the file, 0 if the server does not tell it."""
    hash: str
    """sha256 of a large file, or git's hash of a small one. The hub's cache uses this hash as file name. For a
    `WebFile`: the beginning of the sha256, as found in the name of the file, or "" if the name has none."""
    large: bool

    def right(self, place: Path) -> bool:
        """Return True if the file at `place` has the right hash."""
        return _hash(place, self.large).startswith(self.hash)


@dataclass(frozen=True)
class Listing:
    """The files of a model on its server, and those of them that are missing on this machine."""

    weights: Weights
    commit: str
    """Commit of the files on the hub, or "" for a file at a URL of its own."""
    files: tuple[RemoteFile, ...]
    missing: tuple[RemoteFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def left(self) -> dict[Path, int]:
        """Bytes still to fetch of each missing file, by the path where it will be stored."""
        places = {self.places(file)[0]: file.bytes for file in self.missing}
        return {place: size - min(size, _size(part_of(place))) for place, size in places.items()}

    @property
    def bytes_missing(self) -> int:
        return sum(self.left.values())

    def places(self, file: RemoteFile) -> tuple[Path, ...]:
        """Return the path of the stored file. For a file of the hub, add the file's path in the commit's folder."""
        if isinstance(self.weights, WebFile):
            return (Path(self.weights.path),)
        cache = cache_of(self.weights)
        return cache / "blobs" / file.hash, cache / "snapshots" / self.commit / file.path


def cache_of(weights: Weights) -> Path:
    """Return the folder of a model in the hub's cache. It may not exist yet."""
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=weights.hub, repo_type="model")


def page_of(weights: Weights) -> str:
    """Return the URL of the model's page on the hub, where its licence can be accepted."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{weights.hub}"


def held(weights: Weights) -> LocalWeights:
    """Return which part of these weights is on this machine. Does not use the network."""
    place = weights.local()
    if place is not None:
        path = place / getattr(weights, "file", "")
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


def listing(role: str, weights: Weights) -> Listing:
    """Return the server's list of these weights' files. Raises CannotLoad if it does not answer or refuses access."""
    found = _web_listing(role, weights) if isinstance(weights, WebFile) else _hub_listing(role, weights)
    missing = (one for one in found.files if not any(place.exists() for place in found.places(one)))
    return replace(found, missing=tuple(missing))


def _hub_listing(role: str, weights: Weights) -> Listing:
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
            RemoteFile(one.path, one.size, one.lfs.sha256 if one.lfs else one.blob_id, one.lfs is not None)
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
    return Listing(weights, str(info.sha), files)


def _web_listing(role: str, weights: WebFile) -> Listing:
    from huggingface_hub.utils import get_session, hf_raise_for_status

    place = Path(weights.path)
    match, size = _HASH.search(place.name), _size(place)

    def ask() -> Any:
        # Ask for the file uncompressed, so that the answer has the length of the file itself.
        plain = {"Accept-Encoding": "identity"}
        answer = get_session().head(weights.url, follow_redirects=True, headers=plain)
        hf_raise_for_status(answer)
        return answer

    if not place.is_file():
        with refused(role, weights):
            size = int(patiently(ask).headers.get("Content-Length", 0))
    return Listing(weights, "", (RemoteFile(place.name, size, match[1] if match else "", True),))


def damaged(role: str, found: Listing) -> Listing:
    """Delete files whose hash differs from the server's. Return a new listing if any were deleted, else `found`. Reads
    every file. Raises errors of `listing`.
    """
    wrong = False
    for file in found.files:
        places = [place for place in found.places(file) if place.exists()]
        if places and not file.right(places[0]):
            wrong = True
            places[0].resolve().unlink()
            for place in places:
                place.unlink(missing_ok=True)
    return listing(role, found.weights) if wrong else found


def require_room(needed: int, free: int | None = None, folder: Path | None = None, variable: str = "HF_HOME") -> None:
    """Raise CannotLoad if `needed` bytes do not fit on the disk of a folder, by default the hub's cache. `variable` is
    the environment variable that sets the folder; the message names it. `free` replaces the measured free bytes.
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
    """Return the free bytes on the disk of a folder. The folder may not exist yet."""
    return shutil.disk_usage(_there(folder)).free


def disk_of(folder: Path) -> int:
    """Return the device number of the disk of a folder. The folder may not exist yet."""
    return _there(folder).stat().st_dev


def cache_folder() -> Path:
    """Return the folder of the hub's cache. It may not exist yet."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def _there(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def download(role: str, found: Listing, on_bytes: Told, cancelled: threading.Event | None = None) -> Path:
    """Fetch the missing files, and resume interrupted downloads. Return the folder of weights from the hub, or the path
    of a `WebFile`. Raises CannotLoad if a file cannot be fetched, and Cancelled if `cancelled` is set.
    """
    from huggingface_hub import constants, snapshot_download
    from tqdm import tqdm

    weights, no_bars = found.weights, cast(Any, partial(tqdm, disable=True))
    with refused(role, weights):
        for file in found.missing:
            _get(role, found, file, on_bytes, cancelled)
        if isinstance(weights, WebFile):
            return Path(weights.path)
        # All files are here, and the call records which of them belong to the commit.
        return Path(snapshot_download(**_wanted(weights), endpoint=constants.ENDPOINT, tqdm_class=no_bars))


def _get(role: str, found: Listing, file: RemoteFile, on_bytes: Told, cancelled: threading.Event | None) -> None:
    from huggingface_hub import constants, hf_hub_download, hf_hub_url
    from huggingface_hub.utils import WeakFileLock, build_hf_headers

    weights, place = found.weights, found.places(file)[0]
    if isinstance(weights, WebFile):
        url, headers, locks = weights.url, dict[str, str](), place.parent / ".locks"
    else:
        url = hf_hub_url(weights.hub, file.path, revision=found.commit, endpoint=constants.ENDPOINT)
        # The lock files that the library uses.
        headers, locks = build_hf_headers(), cache_folder() / ".locks" / cache_of(weights).name
    for folder in (place.parent, locks):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(locks / f"{place.name}.lock"):
        if place.exists():  # another role uses the same file, or another process was faster
            on_bytes(file.bytes)
            return
        _bring(
            f"{file.path} of the {role} {weights.hub or weights.title}", url, headers, file, place, on_bytes, cancelled
        )
    if weights.hub:  # name the file in the cache now, so that it counts as present even if the next download fails
        hf_hub_download(weights.hub, file.path, revision=weights.revision, endpoint=constants.ENDPOINT)


def _bring(
    what: str,
    url: str,
    headers: dict[str, str],
    file: RemoteFile,
    place: Path,
    on_bytes: Told,
    cancelled: threading.Event | None,
) -> None:
    """Fetch a file to `place`, or the rest of it. Raises CannotLoad, naming the file as `what`, for a wrong hash."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import silent_tqdm

    class Counted(silent_tqdm):
        def update(self, count: float | None = 1) -> None:
            stop_if(cancelled)
            on_bytes(int(count or 0))

    part, counted = part_of(place), cast(Any, Counted)

    def get() -> int:
        """Fetch the rest of the file, and return the number of bytes that were here before."""
        # A small file may be sent compressed, so its remaining bytes cannot be requested.
        start = _size(part) if file.large and _size(part) <= file.bytes else 0
        with part.open("ab" if start else "wb") as out:
            http_get(
                url,
                out,
                resume_size=start,
                headers=headers,
                expected_size=file.bytes or None,
                displayed_filename=part.name,
                tqdm_class=counted,
            )
        return start

    while True:
        start = patiently(get, BUSY - {429})  # after which the library waits itself
        if file.right(part):
            os.replace(part, place)
            return
        part.unlink()
        on_bytes(-file.bytes)
        if not start:  # otherwise the beginning may be wrong, as it is from an earlier try
            raise CannotLoad(
                f"The download of {what} was discarded, since its hash differs from the server's: try again, without a "
                "proxy if there is one."
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
    """Return the HTTP status of the hub's answer, or 0 if an error has no answer."""
    from huggingface_hub.errors import HfHubHTTPError

    return error.response.status_code if isinstance(error, HfHubHTTPError) else 0


@contextmanager
def refused(role: str, weights: Weights) -> Iterator[None]:
    """Within the context, turn errors of the hub, the network or the disk into a CannotLoad that says what to do."""
    from huggingface_hub import constants, errors

    try:
        yield
    # The HTTPError is of the HTTP library that the hub's library uses.
    except (errors.LocalEntryNotFoundError, errors.HTTPError, OSError, JSONDecodeError, KeyError, TypeError) as error:
        status = _status(error)
        on_disk = error if isinstance(error, OSError) and error.errno is not None else None
        faults = (
            (isinstance(error, errors.GatedRepoError), "licence not accepted" if status == 401 else "not granted"),
            (isinstance(error, errors.RevisionNotFoundError), "no revision"),
            (isinstance(error, errors.RepositoryNotFoundError), "no repository"),
            (isinstance(error, errors.OfflineModeIsEnabled), "offline"),
            (status in BUSY, "busy"),
            (status in (401, 403), "denied"),
            (status > 0, "refused"),
            (isinstance(error, JSONDecodeError | KeyError | TypeError), "strange"),  # some other program answers
            (on_disk is not None, "not saved"),
        )
        fault = next((name for applies, name in faults if applies), "not fetched")
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
    """Return the hash by which the hub knows a file: sha256 of a `large` file, git's hash of a small one."""
    if large:
        return file_hash(file)
    data = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
