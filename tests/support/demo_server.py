"""The studio with the embedded models in this process, which loads the models once for all tests."""

from __future__ import annotations

import logging
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from core.settings import GenerationSettings
from pipeline.models import Models, load_models
from pipeline.profiles.profile import load_profile
from pipeline.seams import DrawnImage, DrawRequest, LanguageRequest, OnStep
from services.studio import Studio
from tests.support.browser import page_in
from tests.support.serving import serving_here, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HELD_SECONDS = 300
"""Maximum number of seconds that a test holds something back."""


@cache
def demo_models() -> Models:
    """Return the embedded models, each loaded at its first use in this process. Only one thread at a time may use
    them.
    """
    models = load_models(load_profile("demo"))
    models.check()
    return models


@contextmanager
def serving_demo(workspace: Path, mcp: bool = False) -> Iterator[tuple[str, Studio]]:
    """Serve the embedded models. Yield the address and the studio. Fails at the end if an error was logged.

    The models are free at the end, so that the next test can use them.
    """
    before = set(threading.enumerate())
    with serving_here(workspace, demo_models(), mcp=mcp) as served, _no_errors():
        yield served
    until(lambda: not [one for one in threading.enumerate() if one.name == "jobs" and one not in before])


@contextmanager
def browsing_demo(browser: Browser, folder: Path, mcp: bool = False) -> Iterator[tuple[Page, str, Studio]]:
    """Yield a new page for such a server, the server's address, and its studio."""
    with serving_demo(folder / "workspace", mcp) as (url, studio), page_in(browser, in_the_open=True) as page:
        yield page, url, studio
        page.goto("about:blank")


@contextmanager
def no_call_leaves() -> Iterator[None]:
    """Forbid connections beyond this machine in this process. Fails at the end if any was tried."""
    here, tried, look_up = ("127.0.0.1", "::1", "localhost"), list[object](), socket.getaddrinfo

    def guarded(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(own: socket.socket, *arguments: Any) -> Any:
            if isinstance(arguments[-1], tuple) and arguments[-1][0] not in here:
                tried.append(arguments[-1])
                raise OSError(f"a call to {arguments[-1]} was about to leave the machine")
            return plain(own, *arguments)

        return call

    def look_up_here(host: str | None, *arguments: Any, **more: Any) -> Any:
        if host not in (None, "", *here):
            tried.append(host)
            raise socket.gaierror(f"{host} was about to be looked up")
        return look_up(host, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", look_up_here)
        yield
    assert not tried, f"about to leave the machine: {tried}"


class Held:
    """Gate at which calls of the embedded models wait until the test lets them through, or ends."""

    def __init__(self) -> None:
        self._through, self._over = threading.Semaphore(0), threading.Event()

    def let_through(self, number: int = 1) -> None:
        """Let `number` waiting or future calls through."""
        self._through.release(number)

    def wait(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until this call is let through. `meanwhile` is called repeatedly, and may raise."""
        end = time.monotonic() + HELD_SECONDS
        while not self._through.acquire(timeout=0.05) and not self._over.is_set():
            assert time.monotonic() < end, "nobody lets it through"
            meanwhile()

    @contextmanager
    def in_place_of(self, model: type, name: str, method: Callable[..., object]) -> Iterator[Held]:
        """Replace a method of a model until the context ends."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, name, method)
            try:
                yield self
            finally:
                self._over.set()


@contextmanager
def images_held(step: int) -> Iterator[Held]:
    """Make every image of the embedded models wait at this step. While it waits, the page can show or cancel it."""
    from pipeline.models.generator import ControlNetPipeline

    plain, gate = ControlNetPipeline.draw, Held()

    def draw(
        self: Any,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        def after_step(done: int, total: int) -> None:
            on_step(done, total)
            if done == step:
                gate.wait(lambda: on_step(done, total))

        return plain(self, requests, size, pictures, settings, after_step)

    with gate.in_place_of(ControlNetPipeline, "draw", draw):
        yield gate


@contextmanager
def replies_held(words: str) -> Iterator[Held]:
    """Make every reply of the embedded language model wait if its prompt contains these words."""
    from pipeline.models.language_process import GgufProcess

    plain, gate = GgufProcess.complete, Held()

    def complete(self: Any, request: LanguageRequest, settings: Any) -> str:
        if words in request.prompt:
            gate.wait()
        return plain(self, request, settings)

    with gate.in_place_of(GgufProcess, "complete", complete):
        yield gate


@contextmanager
def replies_free() -> Iterator[None]:
    """Make the embedded language model ignore schemas, like some models on servers."""
    from pipeline.models.language_process import GgufProcess

    plain = GgufProcess.complete

    def complete(self: Any, request: LanguageRequest, settings: Any) -> str:
        return plain(self, replace(request, schema=None), settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GgufProcess, "complete", complete)
        yield


@contextmanager
def _no_errors() -> Iterator[None]:
    """Fail if an error occurs that a separate server process would print as a traceback."""
    errors: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                errors.append(self.format(record))

    listener, roots = Listener(logging.ERROR), [logging.getLogger(), logging.getLogger("uvicorn")]
    with pytest.MonkeyPatch.context() as patch:
        # Gradio prints what fails in an event, and logs nothing.
        patch.setattr(traceback, "print_exc", lambda *_, **__: errors.append(traceback.format_exc()))
        for root in roots:
            root.addHandler(listener)
        try:
            yield
        finally:
            for root in roots:
                root.removeHandler(listener)
    assert not errors, "\n".join(errors)
