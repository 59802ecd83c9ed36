"""The lead's password: how it is kept, and where the studio may be opened without one. Knows no HTTP.

Kept is a scrypt hash (RFC 7914) with a salt of its own, written as "scrypt$n$r$p$salt$hash", the latter two in
hexadecimal, so that each hash says itself what it costs to try a password.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from core.errors import UserError

SECRET = "lead-password"
"""The name of the hash among the secrets of a workspace."""
SHORTEST, LONGEST = 8, 1024
"""Characters of a password."""
_MEMORY = 256 * 1024 * 1024


@dataclass(frozen=True)
class Cost:
    """What scrypt is to spend on a try: its parameters n, r and p."""

    n: int
    r: int
    p: int


COST = Cost(2**15, 8, 3)
"""One of the settings that OWASP's Password Storage Cheat Sheet recommends: 32 MiB and some 0.3 s a try."""


def hashed(password: str, cost: Cost = COST) -> str:
    """What is kept of a password. Raises UserError for one that is too short or too long."""
    if len(password) < SHORTEST:
        raise UserError(f"The password is too short: take at least {SHORTEST} characters.")
    if len(password) > LONGEST:
        raise UserError(f"The password is too long: take at most {LONGEST} characters.")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, cost)
    return f"scrypt${cost.n}${cost.r}${cost.p}${salt.hex()}${digest.hex()}"


def matches(password: str, kept: str) -> bool:
    """Whether a password is the one that was kept. Takes as long for a wrong one."""
    if len(password) > LONGEST:
        return False
    try:
        kind, n, r, p, salt, digest = kept.split("$")
        if kind != "scrypt":
            return False
        cost = Cost(int(n), int(r), int(p))
        return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt), cost), bytes.fromhex(digest))
    except ValueError:  # what is kept is damaged: nobody gets in with it
        return False


def choose(ask: Callable[[str], str], twice: bool, cost: Cost = COST) -> str:
    """The hash of a password that `ask(prompt)` gives; asked for again where a person types it unseen.

    Raises UserError when the two differ, or the password is too short or too long.
    """
    kept = hashed(ask("The study lead's new password: "), cost)
    if twice and not matches(ask("The same again: "), kept):
        raise UserError("The two passwords differ: nothing was changed.")
    return kept


def beyond_this_machine(host: str) -> bool:
    """Whether a server on this address can be reached from another machine. A name counts by all its addresses."""
    try:
        return not ipaddress.ip_address(host.strip("[]").split("%")[0]).is_loopback
    except ValueError:
        pass
    if not host:
        return True
    try:
        found = {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return not all(ipaddress.ip_address(address).is_loopback for address in found)


def _scrypt(password: str, salt: bytes, cost: Cost) -> bytes:
    # The same letters can be typed in two ways on two keyboards: as RFC 8265 has it, NFC is what counts.
    typed = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(typed, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=_MEMORY, dklen=32)
