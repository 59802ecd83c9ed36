"""An OpenAI-compatible server with the faults that a test chooses, in the answers and in the connection."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGE = {"content-type": "text/html"}


@dataclass(frozen=True)
class Raw:
    """Bytes sent as they are, in place of an answer. The server closes the connection after them."""

    data: bytes
    reset: bool = False
    """True if the connection is reset, as by a program that crashes."""
    waits: bool = False
    """True if the connection stays open and silent until the test ends."""


Answer = tuple[int, dict[str, str], Any] | Raw | Callable[[dict[str, Any]], Any]
"""Status, headers and body (text, bytes, or data for JSON). Or bytes for the connection. Or a function that makes one
of these, or the body of a good answer, from the request.
"""


def completion(text: Any, **more: Any) -> dict[str, Any]:
    """Return a chat completion with this text. `finish` and `usage` set those fields, and `more` fields of the
    message.
    """
    finish, usage = more.pop("finish", "stop"), more.pop("usage", None)
    message = {"role": "assistant", "content": text, **more}
    return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": finish}], "usage": usage}


class Misbehaving:
    """Server that sends its answers one after another, repeats the last one, and records the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [(200, {}, completion("a reply"))]
        self.others: dict[str, Answer] = {}
        """Answers by path, for paths other than the chat endpoint."""
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.let = threading.Event()
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                given = self.rfile.read(int(self.headers.get("content-length", 0)))
                request = json.loads(given) if given else {}
                if self.path.endswith("/v1/chat/completions"):  # a proxy is asked with the whole URL
                    with lock:
                        outer.asked.append(request)
                        outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                        answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                else:
                    answer = outer.others.get(self.path, (404, {}, {"detail": "Not Found"}))
                made = answer(request) if callable(answer) else answer
                if isinstance(made, Raw):
                    self.send_raw(made)
                    return
                status, headers, body = made if isinstance(made, tuple) else (200, {}, made)
                data = (
                    body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
                )
                self.send_response(status)
                for name, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def send_raw(self, raw: Raw) -> None:
                self.wfile.write(raw.data)
                if raw.waits:
                    outer.let.wait()
                if raw.reset:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    os.close(self.connection.detach())

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None: ...  # the client may hang up, or send no HTTP

        self._server = Server(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.address = f"{self.root}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def never(self, _request: dict[str, Any]) -> Any:
        """Wait until the test ends before answering."""
        self.let.wait()
        return {}

    def close(self) -> None:
        self.let.set()
        self._server.shutdown()
        self._server.server_close()
