"""Limits on failures: by address and in all, with the test's clock and in bounded memory."""

from __future__ import annotations

import threading

import pytest

from services.limits import REMEMBERED, Limiter, TooMany, address_key


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def limiter(attempts: int = 3, seconds: float = 60, in_all: int = 0) -> tuple[Limiter, Clock]:
    clock = Clock()
    return Limiter(attempts, seconds, in_all, clock), clock


def test_an_address_waits_after_its_failures_and_no_other_does() -> None:
    counted, clock = limiter()
    for _ in range(3):
        counted.check("a")
        counted.failed("a")
        clock.now += 10
    with pytest.raises(TooMany, match="30 seconds") as refused:
        counted.check("a")
    assert refused.value.seconds == 30
    counted.check("b")


def test_failures_are_forgotten_one_by_one() -> None:
    counted, clock = limiter()
    for _ in range(3):
        counted.failed("a")
        clock.now += 10
    clock.now += 30  # sixty seconds after the first
    counted.check("a")
    counted.failed("a")
    with pytest.raises(TooMany) as refused:
        counted.check("a")
    assert refused.value.seconds == 10
    clock.now += 1000
    counted.check("a")
    assert len(counted._failures) == 0


def test_tries_that_are_right_do_not_count_and_do_not_clear() -> None:
    counted, _ = limiter()
    for _ in range(100):
        counted.check("a")
        counted.passed("a")
    counted.failed("a")
    counted.failed("a")
    counted.passed("a")
    counted.failed("a")
    with pytest.raises(TooMany):
        counted.check("a")


def test_many_addresses_together_are_held_up_but_not_who_is_known() -> None:
    counted, clock = limiter(attempts=3, in_all=10)
    counted.passed("known")
    for number in range(10):
        counted.check(f"bot-{number}")
        counted.failed(f"bot-{number}")
    with pytest.raises(TooMany, match="60 seconds"):
        counted.check("new")
    counted.check("known")
    clock.now += 60
    counted.check("new")


def test_memory_is_bounded() -> None:
    counted, _ = limiter(attempts=2, in_all=50)
    for number in range(10_000):
        counted.failed(f"address-{number}")  # some callers do not ask first
    assert len(counted._failures) <= 100
    for number in range(2 * REMEMBERED):
        counted.passed(f"address-{number}")
    known = [bool(counted._known.get(f"address-{number}")) for number in range(2 * REMEMBERED)]
    assert known == [False] * REMEMBERED + [True] * REMEMBERED


def test_many_threads() -> None:
    counted, _ = limiter(attempts=1_000_000, in_all=1_000_000)

    def fail() -> None:
        for _ in range(1000):
            counted.check("a")
            counted.failed("a")

    threads = [threading.Thread(target=fail) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted._failures) == 8000


@pytest.mark.parametrize(("attempts", "seconds"), [(0, 60), (1, 0)])
def test_a_limit_of_nothing_is_a_mistake(attempts: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="at least one attempt"):
        Limiter(attempts, seconds)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::99", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        ("x" * 500, "x" * 60),
        ("", "?"),
        (None, "?"),
    ],
)
def test_what_an_address_counts_as(host: str | None, key: str) -> None:
    assert address_key(host) == key


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second"), (59, "59 seconds"), (90, "2 minutes"), (900, "15 minutes")]
)
def test_a_wait_in_words(seconds: int, words: str) -> None:
    assert str(TooMany(seconds)) == f"Too many tries: wait {words}, then try again."
