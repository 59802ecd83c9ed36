"""The lead's password: how it is stored, and where one is required."""

from __future__ import annotations

import pytest

from core.errors import UserError
from services.passwords import beyond_this_machine, choose, hashed, matches
from tests.support.guarded import CHEAP, PASSWORD


@pytest.fixture(scope="module")
def kept() -> str:
    return hashed(PASSWORD, CHEAP)


@pytest.mark.slow
def test_a_password_costs_what_is_recommended() -> None:
    kept = hashed(PASSWORD)
    assert kept.startswith("scrypt$32768$8$3$")
    assert matches(PASSWORD, kept)


def test_a_password_is_kept_as_a_hash_with_a_salt_of_its_own(kept: str) -> None:
    again = hashed(PASSWORD, CHEAP)
    assert kept != again
    assert PASSWORD not in kept
    assert matches(PASSWORD, kept)
    assert matches(PASSWORD, again)
    assert not matches(PASSWORD + " ", kept)
    assert not matches("", kept)


def test_the_same_letters_typed_in_two_ways_are_one_password() -> None:
    assert matches("caf\u00e9 au lait", hashed("cafe\u0301 au lait", CHEAP))


@pytest.mark.parametrize(
    "damaged", ["", "x", "scrypt$1$2", "scrypt$x$8$3$00$00", "scrypt$3$8$1$00$00", "md5$1$1$1$0$0"]
)
def test_nobody_gets_in_with_a_damaged_hash(damaged: str) -> None:
    assert not matches("", damaged)
    assert not matches(PASSWORD, damaged)


@pytest.mark.parametrize(
    ("password", "words"), [("", "too short"), ("seven77", "at least 8"), ("x" * 1025, "too long")]
)
def test_a_password_that_will_not_do(password: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        hashed(password)


def test_a_new_password_is_typed_twice() -> None:
    typed = iter(["long enough", "long enough", "long enough", "long enoughh"])
    assert matches("long enough", choose(lambda _: next(typed), True, CHEAP))
    with pytest.raises(UserError, match="differ"):
        choose(lambda _: next(typed), True, CHEAP)


@pytest.mark.parametrize(
    ("host", "beyond"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("", True),
        ("192.0.2.1", True),
        ("nowhere.invalid", True),
    ],
)
def test_what_other_machines_can_reach(host: str, beyond: bool) -> None:
    assert beyond_this_machine(host) is beyond
