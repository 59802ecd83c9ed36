"""The lead's password: how it is kept, and where the studio may be opened without one. Knows no HTTP.

Kept is a scrypt hash (RFC 7914) with a salt of its own, written as "scrypt$n$r$p$salt$hash", the latter two in
hexadecimal. n = 2^15, r = 8, p = 3 is one of the settings that OWASP's Password Storage Cheat Sheet recommends: 32 MiB
and some 0.3 s a try on the machines that this was measured on.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import unicodedata
from collections.abc import Callable

from pipeline.errors import UserError

SECRET = "lead-password"
"""The name of the hash among the secrets of a workspace."""
SHORTEST, LONGEST = 8, 1024
"""Characters of a password."""
_N, _R, _P = 2**15, 8, 3
_MEMORY = 256 * 1024 * 1024


def hashed(password: str) -> str:
    """What is kept of a password. Raises UserError for one that is too short or too long."""
    if len(password) < SHORTEST:
        raise UserError(f"The password is too short: take at least {SHORTEST} characters.")
    if len(password) > LONGEST:
        raise UserError(f"The password is too long: take at most {LONGEST} characters.")
    salt = secrets.token_bytes(16)
    return f"scrypt${_N}${_R}${_P}${salt.hex()}${_scrypt(password, salt, _N, _R, _P).hex()}"


def matches(password: str, kept: str) -> bool:
    """Whether a password is the one that was kept. Takes as long for a wrong one."""
    if len(password) > LONGEST:
        return False
    try:
        kind, n, r, p, salt, digest = kept.split("$")
        if kind != "scrypt":
            return False
        return hmac.compare_digest(
            _scrypt(password, bytes.fromhex(salt), int(n), int(r), int(p)), bytes.fromhex(digest)
        )
    except ValueError:  # what is kept is damaged: nobody gets in with it
        return False


def choose(ask: Callable[[str], str], twice: bool) -> str:
    """The hash of a password that `ask(prompt)` gives; asked for again where a person types it unseen.

    Raises UserError when the two differ, or the password is too short or too long.
    """
    kept = hashed(ask("The study lead's new password: "))
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


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # The same letters can be typed in two ways on two keyboards: as RFC 8265 has it, NFC is what counts.
    typed = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(typed, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)
