"""The studio as a process of its own, and the Chromium that looks at it: for benchmarks, tests and screenshots."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 240
"""Far longer than a start takes: the machine may be busy with other things."""
SET_BY_TESTS = ("PROFILE", "WORKSPACE", "PORT", "STUDIO_PASSWORD", "DATA_ROOTS")
"""What the shell of a test run says of these is not passed on."""
CHROMIUM_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)


SPARING = (*CHROMIUM_ARGUMENTS, "--renderer-process-limit=1", "--disable-site-isolation-trials")
"""With one process for all pages, which are all ours: a tenth less work for a browser that nobody measures."""


def free_port() -> int:
    """One that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether /healthz does."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@dataclass
class ServerProcess:
    """`python app.py` on a workspace. `code` replaces `app.py` where a test needs something around it."""

    workspace: Path
    log: Path
    code: str = ""
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> ServerProcess:
        """Start it and wait until it answers."""
        program = ["-c", self.code] if self.code else ["app.py"]
        command = [
            sys.executable,
            *program,
            "--workspace",
            str(self.workspace),
            "--port",
            str(self.port),
            *self.arguments,
        ]
        environment = {name: value for name, value in os.environ.items() if name not in SET_BY_TESTS}
        environment |= self.environment
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the server did not start: {self.said()}")
            time.sleep(0.1)
        return self

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Send a signal and give the exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(60)

    def said(self) -> str:
        """All that it printed."""
        return self.log.read_text(errors="replace")


@contextmanager
def browsing(chromium: str, in_the_open: bool = False) -> Iterator[Page]:
    """A page in a new browser. Fails at the end when it asked for anything outside this machine, or a script failed.

    With `in_the_open` the explore page shows all settings of its cards, as its switch in the header does.
    """
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # the machine may be busy with other things
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(SPARING))
        # `wait_for_function` evaluates a text in the page, which ours forbid; test_sign_in.py goes by what they forbid.
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
        context.set_default_timeout(60_000)
        if in_the_open:
            context.add_init_script("try { localStorage.setItem('studio-all-open', '1'); } catch {}")
        outside: list[str] = []
        broken: list[str] = []

        def on_request(request: Any) -> None:
            if not request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
                outside.append(request.url)

        context.on("request", on_request)
        context.on("weberror", lambda error: broken.append(f"{error.error} {getattr(error.error, 'stack', '')}"))
        yield context.new_page()
        browser.close()
        assert not outside, f"the page asked for {outside}"
        assert not broken, f"a script of the page failed: {broken}"


def settled(page: Page, seconds: float = 60) -> None:
    """Wait until everything that was done has come back, and nothing is running any more."""
    page.wait_for_function("window.studio && studio.idle && !studio.active", timeout=seconds * 1000)
