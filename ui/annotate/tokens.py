"""Names under which a picture can be on its way to a worker before its item is given to them, and stays there after.

A token is drawn from worker and picture with a secret of this process: nobody can guess it, it says nothing, and the
same picture has the same address before and after, so that the browser need not fetch it again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict

MOST = 20_000
"""Tokens that are known at a time, of all workers; the ones that were not used for longest go."""


class Tokens:
    """May be used from any thread. What it knows is gone with the process: then an assignment's own tokens serve."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._lock = threading.Lock()

    def give(self, worker: str, sha: str) -> str:
        """The token of this picture for this worker, known from now on."""
        token = self._token(worker, sha)
        with self._lock:
            self._known[token] = (worker, sha)
            self._known.move_to_end(token)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return token

    def known(self, worker: str, sha: str) -> str:
        """The token of this picture for this worker, if it was given before; else ""."""
        token = self._token(worker, sha)
        with self._lock:
            return token if token in self._known else ""

    def image(self, token: str, worker: str) -> str | None:
        """The picture behind a token of this worker; None for any other."""
        with self._lock:
            found = self._known.get(token)
        return found[1] if found is not None and found[0] == worker else None

    def _token(self, worker: str, sha: str) -> str:
        drawn = hmac.new(self._secret, f"{worker}\0{sha}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(drawn[:16]).rstrip(b"=").decode()
