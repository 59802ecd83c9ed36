"""The study lead's password: how it is stored, and whether the studio may run without a password. Knows no HTTP.

The password is stored as a scrypt hash (RFC 7914) with a random salt: "scrypt$n$r$p$salt$hash", salt and hash in
hexadecimal. n, r and p set the cost of trying a password, so a later version may change the cost of new hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import unicodedata
from collections.abc import Callable

from core.errors import UserError

SECRET = "lead-password"
"""Name of the hash among the secrets of a workspace."""
SHORTEST, LONGEST = 8, 1024
"""Minimum and maximum number of characters of a password."""
_MEMORY = 256 * 1024 * 1024


Cost = tuple[int, int, int]
"""Cost of one try with scrypt: its parameters n, r and p."""
COST: Cost = (2**15, 8, 3)
"""Cost recommended by OWASP's Password Storage Cheat Sheet: 32 MiB and about 0.3 s per try."""


def hashed(password: str, cost: Cost = COST) -> str:
    """Return the hash of a password, to be stored. Raises UserError if the password is too short or too long."""
    if len(password) < SHORTEST:
        raise UserError(f"The password is too short: use at least {SHORTEST} characters.")
    if len(password) > LONGEST:
        raise UserError(f"The password is too long: use at most {LONGEST} characters.")
    salt = secrets.token_bytes(16)
    return "$".join(("scrypt", *map(str, cost), salt.hex(), _scrypt(password, salt, cost).hex()))


def matches(password: str, stored: str) -> bool:
    """Return True if a password matches the stored hash. Takes the same time for a right and a wrong one."""
    if len(password) > LONGEST:
        return False
    try:
        kind, n, r, p, salt, digest = stored.split("$")
        typed = _scrypt(password, bytes.fromhex(salt), (int(n), int(r), int(p)))
        return kind == "scrypt" and hmac.compare_digest(typed, bytes.fromhex(digest))
    except ValueError:  # the stored hash is damaged: no password matches it
        return False


def choose(ask: Callable[[str], str], twice: bool, cost: Cost = COST) -> str:
    """Ask for a new password with `ask(prompt)` and return its hash. With `twice` ask again, since typing is not shown.

    Raises UserError if the two answers differ, or the password is too short or too long.
    """
    stored_hash = hashed(ask("The study lead's new password: "), cost)
    if twice and not matches(ask("The same again: "), stored_hash):
        raise UserError("The two passwords differ: nothing was changed.")
    return stored_hash


def beyond_this_machine(host: str) -> bool:
    """Return True if another machine may reach a server on this address. For a name, all its addresses count."""
    try:
        return not ipaddress.ip_address(host.strip("[]").split("%")[0]).is_loopback
    except ValueError:
        pass
    if not host:
        return True
    try:
        addresses = {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return not all(ipaddress.ip_address(address).is_loopback for address in addresses)


def _scrypt(password: str, salt: bytes, cost: Cost) -> bytes:
    # Two keyboards may encode the same letters differently: RFC 8265 uses their NFC form.
    typed = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    n, r, p = cost
    return hashlib.scrypt(typed, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)
