"""Connections that send nothing, send slowly or do not read are closed, and block nobody else."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest
import uvicorn

from tests.support.server_process import free_port
from tests.support.serving import until
from ui.security.connections import BACKLOG, Patience

LARGE = b"x" * 40_000_000


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer /large with more than a socket buffers, and other requests with their own body."""
    if scope["type"] == "http":
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": LARGE if scope["path"] == "/large" else body})


@contextmanager
def serving(patience: Patience) -> Iterator[int]:
    port = free_port()
    config = uvicorn.Config(
        application,
        http=patience.protocol(),
        port=port,
        backlog=BACKLOG,
        timeout_keep_alive=600,
        log_level="critical",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield port
    server.should_exit = True
    thread.join(30)


def answered(port: int, body: bytes = b"") -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", body)
    return connection.getresponse().read()


def ended(connection: socket.socket) -> bool:
    """Return True once the server closes the connection, after reading the rest of a reply."""
    connection.settimeout(60)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_who_sends_nothing_or_slowly_or_does_not_read_is_cut_off() -> None:
    patience = Patience(head=600, body=600, unread=600, look=0.05)
    with serving(patience) as port, ExitStack() as stack:

        def opened(sent: bytes) -> socket.socket:
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.sendall(sent)
            return one

        silent, half = opened(b""), opened(b"GET / HTTP/1.1\r\nHost: x\r\n")
        body = opened(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
        again = opened(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert again.recv(1000).startswith(b"HTTP/1.1 200")
        again.sendall(b"G")
        deaf = opened(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: len(patience.there) == 5)
        patience.head = patience.body = patience.unread = 0.1
        assert all(ended(one) for one in (silent, half, body, again))
        until(lambda: not patience.there)
        patience.head = patience.body = 600
        assert deaf.fileno() and answered(port, b"hello") == b"hello"


def test_what_comes_at_some_speed_is_waited_for() -> None:
    patience = Patience(body=0.0, rate=1.0, look=0.01)
    with serving(patience) as port:
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 800\r\n\r\n" + b"a" * 400)
            for _ in range(20):  # the server checks the connection several times in this time
                assert answered(port, b"b") == b"b"
            one.sendall(b"a" * 400)
            reply = b"".join(iter(lambda: one.recv(65536), b""))
        assert reply.startswith(b"HTTP/1.1 200") and b"a" * 400 in reply


def test_idle_connections_keep_nobody_out() -> None:
    patience = Patience(most=20)
    with serving(patience) as port, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(60)]
        assert answered(port, b"hello") == b"hello" and len(patience.there) <= 20
        assert ended(idle[0]), "the oldest goes first"


@pytest.mark.slow
def test_the_start_asks_for_more_files_and_says_where_it_gets_none() -> None:
    code = """
import resource
from ui.security.connections import room_for_connections
for limits in ((1024, 4096), (256, 256)):
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    print(*room_for_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    enough, few = done.stdout.splitlines()
    assert enough == "2048  4096"
    assert few.startswith("128 Only 256 files may be open") and "ulimit -n 4096" in few
