"""The studio in a process of its own: for tests, benchmarks and screenshots."""

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
"""Maximum number of seconds for a start, far above the usual time, since the machine may be busy."""
SET_BY_TESTS = ("PROFILE", "WORKSPACE", "PORT", "STUDIO_PASSWORD", "DATA_ROOTS", "ROOT_PATH")
"""Environment variables of the shell that test servers do not inherit."""


_held: list[socket.socket] = []
"""Sockets that keep each port free for its server until this process ends."""


def free_port() -> int:
    """Return a free port that no other test gets before its server starts."""
    holder = socket.socket()
    # A server can bind the port beside a socket that does not listen, if both set this option. No one gets it by
    # chance.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return int(holder.getsockname()[1])


def answers(port: int, whole: bool = True) -> bool:
    """Return True if the studio on this port answers /healthz. With `whole` it must have finished starting."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
            return not (whole and b'"starting"' in reply.read())
    except OSError:
        return False


@dataclass
class ServerProcess:
    """A process of `python app.py` on a workspace. `code` replaces `app.py` for tests that change something around
    it.
    """

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
        """Start the process, and wait until `answers` is True."""
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
        """Send a signal and return the exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(60)

    def said(self) -> str:
        """Return all output."""
        return self.log.read_text(errors="replace")
