"""Protection from idle connections: slow ones are closed, and the most idle one if there are too many. uvicorn waits
for ever for an unfinished request. A few thousand such connections use up all files that a process may open.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, h11

WANTED = 8192
"""Number of open files that the server requests from the system at its start."""
ENOUGH = 1024
"""The usual limit of open files. With a lower limit, a message at the start says how to raise it."""
BACKLOG = 128
"""Maximum number of waiting connections. asyncio accepts all of them at once, before any can be closed."""
MOST = 4096
"""Maximum number of connections at a time. A low limit of open files makes the number smaller."""
KEPT_SECONDS = 130
"""Seconds that a connection stays open after a reply. This is longer than a proxy keeps a connection (Caddy two
minutes, Traefik 90 seconds, nginx one minute). Otherwise the proxy would at times send a request into a closing
connection and answer 502, since it may not send a POST twice."""


@dataclass
class Patience:
    """Limits of connections: their time and their number. A server has one such object."""

    most: int = MOST
    """Maximum number of connections. Above this, the connection that has waited longest for its client is closed."""
    head: float = 20.0
    """Maximum seconds for the headers of a request. For a connection's first request, time starts when the connection
    opens. For a later request, time starts with its first byte."""
    body: float = 30.0
    """Seconds that a body may take at any speed. After this time its average speed must be at least `rate`."""
    rate: float = 2000.0
    """Minimum bytes per second of a body. Even slow connections are far faster."""
    unread: float = 60.0
    """Seconds after which a connection is closed if its client has read nothing of the waiting reply."""
    look: float = 5.0
    """Seconds between two checks of a connection."""
    there: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    """Open connections, ordered by their latest traffic, the oldest first."""

    def protocol(self) -> Any:
        """Return a factory of connections, for uvicorn's setting `http`."""
        return partial(Connection, patience=self)

    def moved(self, connection: Connection) -> None:
        """Record traffic on a connection. If there are too many connections, close one that waits for its client."""
        self.there[connection] = None
        self.there.move_to_end(connection)
        if len(self.there) > self.most:
            quiet = next((one for one in self.there if one.waits()), None)
            if quiet is not None:
                quiet.cut()


class Connection(H11Protocol):
    """One connection of a browser or a script."""

    def __init__(self, *arguments: Any, patience: Patience, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._patience = patience
        self._since = self._taken = self.loop.time()
        self._got = self._unsent = 0
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()
        self._patience.moved(self)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is not None:
            self._since = self.loop.time()  # the first byte of a later request
        heading = self.conn.their_state is h11.IDLE
        self._got += len(data)
        super().data_received(data)
        if heading and self.conn.their_state is not h11.IDLE:
            self._since, self._got = self.loop.time(), len(data)
        if self in self._patience.there:
            self._patience.moved(self)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.there.pop(self, None)
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def waits(self) -> bool:
        """Return True if the connection waits for its client to send or to read."""
        return self._sends() or self.flow.write_paused

    def cut(self) -> None:
        """Close the connection at once, even with unsent data."""
        self._patience.there.pop(self, None)
        self.transport.abort()

    def _sends(self) -> bool:
        """Return True if the server waits for the client to send; False while the server itself has paused reading."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.flow.read_paused

    def _look_later(self) -> None:
        self._next_look = self.loop.call_later(self._patience.look, self._look)

    def _look(self) -> None:
        """Close the connection if it is too slow; otherwise schedule the next check."""
        if self._is_slow(self.loop.time()):
            self.cut()
        else:
            self._look_later()

    def _is_slow(self, now: float) -> bool:
        allowed = self._patience
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._taken = unsent, now
        if now - self._taken > allowed.unread:
            return True
        if self.flow.read_paused:
            self._since += allowed.look
        if not self._sends():
            return False
        if self.conn.their_state is h11.SEND_BODY:
            return now - self._since > max(allowed.body, self._got / allowed.rate)
        # After a reply uvicorn itself closes an idle connection.
        return self.timeout_keep_alive_task is None and now - self._since > allowed.head


def room_for_connections() -> tuple[int, str]:
    """Raise the limit of open files. Return the maximum number of connections, and a warning if it is low, else ""."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST, ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (WANTED if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard))
    raised = min(hard, WANTED)
    if soft < raised:
        with suppress(ValueError, OSError):  # the limit stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = raised
    # Pictures, the database and the models keep files open too.
    most = min(MOST, soft // 2)
    if soft >= ENOUGH:
        return most, ""
    return most, (
        f"Only {soft} files may be open at a time, so at most {most} browsers are served at once: allow more with "
        f"“ulimit -n {ENOUGH * 4}” before the start."
    )
