"""Limit of a request body's size: a larger body is refused before it is read, with and without a stated length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.testclient import TestClient

from core.errors import UserError
from ui.security.request_limits import BadRequest, BodyLimit, Limit

LIMITS = (Limit("/small/", 10, "At most ten bytes."), Limit("", 1000, "At most a thousand bytes."))


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.add_middleware(BodyLimit, limits=LIMITS)

    @app.post("/{where:path}")
    async def take(request: Request) -> Response:
        seen = 0
        async for part in request.stream():
            seen += len(part)
        return Response(str(seen))

    @app.put("/small/words")
    async def words(request: Request) -> Response:
        try:
            await request.body()
        except BadRequest as error:
            return Response(f"No: {error}", error.status)
        return Response("taken")

    with TestClient(app) as made:
        yield made


def parts(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"12345"


def test_what_fits_is_taken(client: TestClient) -> None:
    assert client.post("/small/x", content=b"1234567890").text == "10"
    assert client.post("/small/x", content=parts(2)).text == "10"
    assert client.post("/else", content=b"1" * 1000).text == "1000"


def test_what_is_larger_is_refused_with_its_length_and_without(client: TestClient) -> None:
    for content in (b"12345678901", parts(3), parts(10_000)):
        reply = client.post("/small/x", content=content)
        assert (reply.status_code, reply.json()) == (400, {"error": "At most ten bytes."})
    assert client.post("/else", content=parts(201)).json() == {"error": "At most a thousand bytes."}


def test_a_length_that_is_said_is_refused_before_anything_is_read(client: TestClient) -> None:
    def never() -> Iterator[bytes]:
        yield b"1"

    reply = client.post("/small/x", content=never(), headers={"content-length": "11"})
    assert reply.status_code == 400


def test_an_application_may_refuse_in_its_own_words(client: TestClient) -> None:
    reply = client.put("/small/words", content=parts(3))
    assert (reply.status_code, reply.text) == (400, "No: At most ten bytes.")
    assert issubclass(BadRequest, UserError)
