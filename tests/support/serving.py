"""Start the studio in the process of a test. `server_process.py` starts it in a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.server_process import START_SECONDS, answers, free_port
from tests.support.workspaces import workspace_in

if TYPE_CHECKING:
    from fastapi import FastAPI

    from services.studio import Studio


def until(true: Callable[[], object], seconds: float = 300) -> None:
    """Wait until `true()` holds. Fails after `seconds`, far above the usual time, since the machine may be busy."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it is not so after {seconds:g} s"
        time.sleep(0.01)


@contextmanager
def serving_here(
    workspace: Path,
    models: Any,
    password: str = "",
    mcp: bool = False,
    data_roots: tuple[Path, ...] = (),
    root_path: str = "",
) -> Iterator[tuple[str, Studio]]:
    """Serve the demo profile with these models in a thread of this process. Yield its address and its studio."""
    import app

    port = free_port()
    folder = workspace_in(workspace).folder
    more: dict[str, Any] = {"mcp": mcp, "data_roots": data_roots, "root_path": root_path}
    if password:
        _hash_cheaply(folder, password)
    settings = app.ServerSettings("demo", folder, port=port, password=password, **more)
    application, studio = app.build(settings, models)
    with nothing_missed(), serving_application(application, studio, port) as url:
        yield url, studio


def _hash_cheaply(folder: Path, password: str) -> None:
    """Let a workspace know the password by a cheap hash. The studio uses a known hash if the password fits it."""
    from services.passwords import hashed
    from services.sign_in import OPENED_WITH
    from storage.workspace import Workspace
    from tests.support.guarded import CHEAP

    with Workspace(folder) as workspace:
        sessions = workspace.studies.sessions
        if not sessions.secret(OPENED_WITH):
            sessions.set_secret(OPENED_WITH, hashed(password, CHEAP))


@contextmanager
def nothing_missed() -> Iterator[None]:
    """Fail at the end if the server answered a page that nothing is new although its content had changed."""
    import pytest  # imported here, since processes of tests import this module too

    import ui.explore.page
    from ui.explore.page import Batch, Explorer

    plain, missed = Explorer.answer, list[str]()

    def answer(self: Explorer, batch: Batch) -> dict[str, Any]:
        reply = plain(self, batch)
        if reply.get("same"):
            parts = ui.explore.page.render(self.read(batch.run, batch.view, batch.find))
            other = [name for name, part in parts.items() if batch.seen.get(name) != part[4 : part.index("-->")]]
            # A change after the answer belongs to the next answer, and may be noted a moment later.
            if other and not _soon(lambda: batch.revision != self._revision(batch)):
                missed.append(f"{other} of {batch.run!r}")
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explorer, "answer", answer)
        yield
    assert not missed, f"a page was told that nothing is new, but it was: {missed}"


def _soon(true: Callable[[], object]) -> bool:
    """Return True if `true()` holds now or soon."""
    try:
        until(true)
    except AssertionError:
        return False
    return True


@contextmanager
def serving_application(application: FastAPI, studio: Studio, port: int) -> Iterator[str]:
    """Serve the result of `app.build` in a thread of this process. Yield its address. It is closed at the end."""
    import uvicorn

    from ui.security.connections import KEPT_SECONDS

    ends: dict[str, Any] = {"timeout_keep_alive": KEPT_SECONDS, "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="warning", **ends))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        end = time.monotonic() + START_SECONDS
        while not answers(port):
            assert time.monotonic() < end and thread.is_alive(), "the server did not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(30)
        studio.close()
        studio.workspace.close()
