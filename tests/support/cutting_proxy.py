"""A proxy between browser and studio that cuts its connection in the middle of a reply when a test says so."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CuttingProxy(socketserver.ThreadingTCPServer):
    """Proxy to the studio's port. It cuts the next reply to the address `cut` after the reply's head."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.behind = port
        self.cut = b""
        self.has_cut = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Connection(socketserver.BaseRequestHandler):
    server: CuttingProxy

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.behind)) as studio:
            self.asked = b""
            threading.Thread(target=self._pass_on_requests, args=(studio,), daemon=True).start()
            with suppress(OSError):  # either end may be closed first
                while data := studio.recv(65536):
                    if self.server.cut and self.server.cut in self.asked and data.startswith(b"HTTP/1.1 200"):
                        self.server.cut = b""
                        self.request.sendall(data[: data.index(b"\r\n\r\n") + 4])
                        self.request.shutdown(socket.SHUT_RDWR)
                        self.server.has_cut.set()
                        return
                    self.request.sendall(data)

    def _pass_on_requests(self, studio: socket.socket) -> None:
        with suppress(OSError):
            while data := self.request.recv(65536):
                self.asked = data.split(b"\r\n", 1)[0] if data.startswith((b"GET ", b"POST ")) else self.asked
                studio.sendall(data)
        with suppress(OSError):
            studio.shutdown(socket.SHUT_RDWR)


@contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    """Serve the proxy in front of a studio of this machine."""
    with CuttingProxy(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join(30)
