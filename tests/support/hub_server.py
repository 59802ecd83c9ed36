"""Small server with the endpoints of the Hugging Face hub, and with faults like those of networks and gated models."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SMALL = 200
"""Maximum size in bytes of files that are kept in git. Larger ones are in the store for large files."""


@dataclass
class Repository:
    """Model on the hub."""

    files: dict[str, bytes]
    token: str = ""
    """Token that opens a gated model, or "". Another token means that the licence was not accepted."""

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files)).encode()).hexdigest()


Fault = tuple[int, dict[str, str], str] | None
"""Status, headers and body of a wrong answer. None closes the connection instead."""


@dataclass
class Hub:
    """The server's models, its faults, and the requests to it."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    breaks: dict[str, list[int]] = field(default_factory=dict)
    """For each file, the numbers of bytes after which its next answers break off."""
    wrong: set[str] = field(default_factory=set)
    """Files that are sent with wrong bytes."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """By a part of a path, such as "/resolve/": the next answers there, in place of the right ones."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and range of each request."""
    url: str = ""

    def sent(self, file: str) -> list[str]:
        """Return the ranges of the requests for a file. "" is the whole file."""
        return [byte_range for method, path, byte_range in self.asked if method == "GET" and path.endswith("/" + file)]


@contextmanager
def serving_hub(hub: Hub) -> Iterator[Hub]:
    """Serve the hub at `hub.url` until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = urlsplit(self.path).path
            hub.asked.append((self.command, path, self.headers.get("Range", "")))
            for part, faults in hub.faults.items():
                if part in path and faults:
                    return self._fail(faults.pop(0))
            found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+)(?:/(revision|tree|auth-check|resolve)(/.*)?)?", path)
            repository = hub.repositories.get(found[1]) if found else None
            if found is None or repository is None:
                # the hub's answer to callers without a token
                return self._say(401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
            what, rest = found[2], (found[3] or "").strip("/")
            revision, _, file = rest.partition("/")
            if what in ("revision", "tree", "resolve") and revision not in ("main", repository.commit):
                return self._say(404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"})
            if what in ("auth-check", "resolve") and repository.token:
                brought = self.headers.get("Authorization", "")
                if brought != f"Bearer {repository.token}":
                    return self._say(403 if brought else 401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
            if what == "tree":
                return self._say(200, [_entry(name, data) for name, data in repository.files.items()])
            if what == "resolve":
                if file not in repository.files:
                    return self._say(404, {"error": "no such file"}, {"X-Error-Code": "EntryNotFound"})
                return self._send(repository, file)
            plain = {"id": found[1], "sha": repository.commit, "gated": bool(repository.token) and "auto"}
            return self._say(200, {**plain, "siblings": [], "tags": [], "private": False})

        def _fail(self, fault: Fault) -> None:
            self.close_connection = True
            if fault is None:
                return
            status, headers, body = fault
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body.encode())

        def _say(self, status: int, body: object, more: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(more or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def _send(self, repository: Repository, file: str) -> None:
            data = repository.files[file]
            etag = hashlib.sha256(data).hexdigest() if len(data) > SMALL else _git_hash(data)
            whole = bytes(255 - byte for byte in data) if file in hub.wrong else data
            begin = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or ["", "0"])[1])
            body = whole[begin:]
            self.send_response(206 if begin else 200)
            self.send_header("X-Repo-Commit", repository.commit)
            self.send_header("ETag", f'"{etag}"')
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(body)))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(whole) - 1}/{len(whole)}")
            self.end_headers()
            if self.command == "HEAD":
                return
            broken = hub.breaks.get(file)
            if broken:
                self.wfile.write(body[: broken.pop(0)])
                self.close_connection = True
                return
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...  # the caller may hang up during an answer

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _entry(name: str, data: bytes) -> dict[str, object]:
    plain: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": _git_hash(data)}
    if len(data) > SMALL:
        oid = hashlib.sha256(data).hexdigest()
        plain["lfs"] = {"oid": oid, "sha256": oid, "size": len(data), "pointerSize": 134}
    return plain


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
