"""The studio as a process of its own: for tests, benchmarks and screenshots."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 240
"""Far longer than a start takes: the machine may be busy with other things."""
SET_BY_TESTS = ("PROFILE", "WORKSPACE", "PORT", "STUDIO_PASSWORD", "DATA_ROOTS", "ROOT_PATH")
"""Variables of the shell of a test run that are not passed on."""


_held: list[socket.socket] = []
"""Sockets that keep their ports from all but the servers that they are for, until this process ends."""


def free_port() -> int:
    """Return a port that nothing listens on, and that no other test gets before the server is there."""
    holder = socket.socket()
    # A server may bind the port beside a socket that does not listen, if both say this; nobody is given it by chance.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return int(holder.getsockname()[1])


def answers(port: int, whole: bool = True) -> bool:
    """Return true if /healthz of the studio on this port does: once it is `whole`, or once annotators can vote."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
            return not (whole and b'"starting"' in reply.read())
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

    def start(self, whole: bool = True) -> ServerProcess:
        """Start it and wait until it answers, as `answers` says."""
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
        while not answers(self.port, whole):
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
        """Return all that it printed."""
        return self.log.read_text(errors="replace")
