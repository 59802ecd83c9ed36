"""A model under test behind HTTP, with a small protocol of our own (docs/models-under-test.md). A request that fails
temporarily is sent again. Any other failure raises an error that says what was expected. Images go to the given address
only: redirects are refused.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from core.errors import UserError
from core.model_identity import UNKNOWN_VERSION, Assumptions, ModelIdentity, Preprocessing
from core.model_identity import Output as Numbers
from core.predictions import map_size
from core.progress import stop_if, stop_signal
from core.settings import UnderTestSettings
from core.types import TaskKind
from evaluation.adapters.base import Output
from evaluation.adapters.network import GIVEN, classes_given, require_classes

IMAGES = 8
"""Maximum number of images in one request."""
REQUESTS = 4
TRIES = 4
"""Maximum number of times that one request is sent. Only temporary failures are tried again."""
TRIES_OF_SLOW = 2
"""Maximum number of times that one request is sent after timeouts: a slow server seldom gets faster."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Shortest and longest wait between two tries, in seconds. The wait doubles after each try."""
CONNECT_SECONDS = 10.0
"""Maximum time to connect, in seconds. It is shorter than the timeout of an answer, so a dead server shows early."""
MOST_BYTES = 32 << 20
MOST_PIXELS = 1 << 25
"""Maximum number of pixels of a class map that a server returns."""
ROUNDING = 0.02
"""Maximum rounding error: an image's probabilities may add up to 1 plus or minus this number."""
_NO_CARD = (400, 401, 403, 404, 405, 406, 410, 415, 422, 501)
"""HTTP statuses of servers that cannot describe themselves: they answer a GET request with one of these."""


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None

    @property
    def shown(self) -> str:
        return " ".join(self.content[:600].decode("utf-8", "replace").split())[:120]


class _Passing(Exception):
    def __init__(self, fault: UserError, wait: float | None = None, tries: int = TRIES) -> None:
        super().__init__(str(fault))
        self.told, self.wait, self.tries = fault, wait, tries


class HttpAdapter:
    """A model under test that a server at an HTTP address runs."""

    def __init__(self, settings: UnderTestSettings) -> None:
        """Asks the server to describe itself. Raises UserError if it does not answer, or its classes stay unknown."""
        import httpx

        self._address, self._timeout = settings.address, settings.timeout
        parts = urlsplit(self._address)
        self._tls: Any = httpx.create_ssl_context() if parts.scheme == "https" else False
        # Proxies named in environment variables are used for other hosts only.
        self._local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        (answer,) = asyncio.run(self._exchange([("GET", None)]))
        description = answer.json() if answer.status == 200 else None
        card: Mapping[str, Any] = description if isinstance(description, dict) else {}
        self.kind: TaskKind = card.get("kind", "classification")
        if self.kind not in get_args(TaskKind):
            raise UserError(
                f"The server at {self._address} calls itself a model for {str(self.kind)[:60]!r}: only "
                "classification and segmentation are supported."
            )
        classes = self._classes(card, settings)
        named = " ".join(str(card[key]) for key in ("name", "version") if card.get(key))[:200]
        weights = named if card.get("version") else UNKNOWN_VERSION
        output: Numbers = "probabilities" if self.kind == "classification" else "class numbers"
        origin = "the server" if card.get("classes") else GIVEN
        shown = Preprocessing(
            more="by the server", assumed=Assumptions("sent as it is; the server prepares it", (), output, origin)
        )
        self.identity = ModelIdentity(self._address, weights, self.kind, shown, classes)
        self._places = {name: place for place, name in enumerate(classes)}
        self.at_once = IMAGES * REQUESTS

    def prepare(self, image: Image.Image) -> str:
        """Return the image as PNG, in base64."""
        file = io.BytesIO()
        image.save(file, "PNG", compress_level=1)
        return base64.b64encode(file.getvalue()).decode("ascii")

    def answer(self, prepared: Sequence[str], sizes: Sequence[tuple[int, int]]) -> Output:
        """Return the server's answers. Raises Cancelled shortly after the user stops the job."""
        parts = [list(prepared[start : start + IMAGES]) for start in range(0, len(prepared), IMAGES)]
        answers = asyncio.run(self._exchange([("POST", {"images": part}) for part in parts]))
        entries = [
            entry for part, answer in zip(parts, answers, strict=True) for entry in self._entries(answer, len(part))
        ]
        if self.kind == "classification":
            return Output(np.stack([self._row(entry) for entry in entries]))
        return Output(maps=tuple(self._map(entry, size) for entry, size in zip(entries, sizes, strict=True)))

    # The server's description of itself

    def _classes(self, card: Mapping[str, Any], settings: UnderTestSettings) -> tuple[str, ...]:
        theirs, named = card.get("classes"), classes_given(settings)
        whole = isinstance(theirs, list) and all(isinstance(name, str) and name for name in theirs)
        own = tuple(theirs or ()) if whole else ()
        if own and named and set(own) != set(named):
            other = sorted(set(own) ^ set(named))[0]
            raise UserError(
                f"The server at {self._address} has {len(own)} classes, but {len(named)} are given. The lists differ: "
                f"{other[:60]!r} is only in one list. Correct your list, or leave it empty.",
                field="classes",
            )
        classes = own or named
        if not classes or len(set(classes)) != len(classes):
            raise UserError(
                f"The server at {self._address} does not say its classes: give their names, each once, with commas "
                'between, or let it answer GET requests with {"classes": [...]}.',
                field="classes",
            )
        require_classes(f"The server at {self._address}", self.kind, classes)
        return classes

    # The server's answers to images

    def _entries(self, answer: _Answer, count: int) -> list[Any]:
        content = answer.json()
        entries = content.get("predictions") if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise self._nonsense(answer.shown or "nothing", count)
        if len(entries) != count:
            raise self._nonsense(f"{len(entries)} predictions", count)
        return entries

    def _nonsense(self, got: str, count: int = 0) -> UserError:
        one = (
            '{"classes": {"name": probability, ...}}'
            if self.kind == "classification"
            else '{"map": "a PNG of class numbers in base64"}'
        )
        many = f" with one entry for each of {count} images" if count else ""
        return UserError(
            f'The server at {self._address} answers with {got}; expected was {{"predictions": [{one}, ...]}}{many}: '
            "correct the address, or the program that runs there."
        )

    def _row(self, entry: Any) -> np.ndarray:
        """Return the probabilities (classes,) of one image. A class that the server leaves out gets 0."""
        probabilities = entry.get("classes") if isinstance(entry, dict) else None
        if not isinstance(probabilities, dict) or not probabilities:
            raise self._nonsense(f"an entry {json.dumps(entry)[:80]}")
        row = np.zeros(len(self._places), np.float32)
        for name, probability in probabilities.items():
            if name not in self._places:
                raise UserError(
                    f"The server at {self._address} answers with the class {name[:60]!r}, which is not among its "
                    f"{len(self._places)} classes: correct the list of classes, or the server."
                )
            number = isinstance(probability, int | float) and not isinstance(probability, bool)
            if not number or not 0 <= probability <= 1 + ROUNDING:  # also refuses NaN
                raise self._nonsense(f"{json.dumps(probability)[:40]} as the probability of {name[:60]!r}")
            row[self._places[name]] = min(1.0, probability)
        total = math.fsum(probabilities.values())
        if not abs(total - 1) <= ROUNDING:
            raise self._nonsense(f"probabilities that add up to {total:.3g} and not to 1 (all classes count)")
        return row

    def _map(self, entry: Any, size: tuple[int, int]) -> Image.Image:
        encoded = entry.get("map") if isinstance(entry, dict) else None
        if not isinstance(encoded, str):
            raise self._nonsense(f"an entry {json.dumps(entry)[:80]}")
        try:
            with Image.open(io.BytesIO(base64.b64decode(encoded, validate=True)), formats=["PNG"]) as opened:
                if opened.mode not in ("L", "P") or opened.width * opened.height > MOST_PIXELS:
                    raise self._nonsense(f"a picture of mode {opened.mode} and {opened.width} × {opened.height} pixels")
                numbers = Image.frombytes("L", opened.size, opened.tobytes())
        except (Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
            raise self._nonsense("a map that is no PNG") from error
        largest = int(np.asarray(numbers).max())
        if largest >= len(self._places):
            raise self._nonsense(
                f"a map with the class number {largest}, where the last of its classes has {len(self._places) - 1}"
            )
        wide, high = map_size(size)
        if abs(numbers.width * size[1] - numbers.height * size[0]) > max(size) + max(numbers.size):
            raise self._nonsense(
                f"a map of {numbers.width} × {numbers.height} for an image of {size[0]} × {size[1]} pixels"
            )
        return numbers.resize((wide, high), Image.Resampling.NEAREST)

    # Requests

    async def _exchange(self, requests: Sequence[tuple[str, Any]]) -> list[_Answer]:
        """Return the answers to requests, in order. The first error cancels the other requests and is raised."""
        import httpx

        stopped = stop_signal()
        limits = httpx.Timeout(None, connect=min(CONNECT_SECONDS, self._timeout))
        free = asyncio.Semaphore(REQUESTS)
        client = httpx.AsyncClient(verify=self._tls, trust_env=not self._local, timeout=limits, follow_redirects=False)
        try:
            async with client, asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._tried(client, free, *request)) for request in requests]
                while (await asyncio.wait(tasks, timeout=0.1))[1]:  # look for a request to stop
                    stop_if(stopped)
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            raise first from first.__cause__
        return [task.result() for task in tasks]

    async def _tried(self, client: Any, free: asyncio.Semaphore, method: str, body: Any) -> _Answer:
        """Return the answer to one request. Send the request again after a temporary failure."""
        number = 0
        async with free:
            while True:
                number += 1
                try:
                    return await self._once(client, method, body)
                except _Passing as error:
                    if number >= error.tries:
                        raise error.told from error
                    # The random part keeps requests that failed together from being sent again together.
                    pause = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (number - 1) + random.uniform(0, FIRST_WAIT / 2))
                    await asyncio.sleep(pause if error.wait is None else error.wait)

    async def _once(self, client: Any, method: str, body: Any) -> _Answer:
        import httpx

        who = f"The server at {self._address}"
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._read(client, method, body)
        except TimeoutError as error:
            raise _Passing(
                UserError(
                    f"{who} gave no whole answer within {self._timeout:g} seconds: try again when it is less busy, or "
                    "allow it more time (timeout)."
                ),
                tries=TRIES_OF_SLOW,
            ) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            not_there = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
            message = (
                f"{who} cannot be reached ({why}): start it, or correct the address of the model."
                if isinstance(error, not_there)
                else f"{who} broke off or damaged its answer ({why}): look at its log, and try again."
            )
            raise _Passing(UserError(message)) from error
        if answer.status == 200 or (method == "GET" and answer.status in _NO_CARD):
            return answer
        if 300 <= answer.status < 400:
            to = answer.headers.get("location", "elsewhere")[:200]
            raise UserError(
                f"{who} redirects to {to}. Images are sent only to the address that was given: give the new address if "
                "it is the right one."
            )
        failure = UserError(
            f"{who} failed ({answer.status}: {answer.shown or 'no reason given'}): look at its log, and try again."
        )
        if answer.status < 500 and answer.status not in (408, 409, 425, 429):
            raise failure
        try:
            wait = max(0.0, float(answer.headers.get("retry-after", "")))
        except ValueError:
            raise _Passing(failure) from None
        raise _Passing(failure, wait) if wait <= LONGEST_WAIT else failure  # longer than a person would wait

    async def _read(self, client: Any, method: str, body: Any) -> _Answer:
        plain = {"accept": "application/json", "accept-encoding": "identity"}  # a compressed answer could hide its size
        async with client.stream(method, self._address, json=body, headers=plain) as response:
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > MOST_BYTES:
                    raise UserError(
                        f"The server at {self._address} answers with more than {MOST_BYTES >> 20} MB: check the "
                        "program that runs there."
                    )
            return _Answer(response.status_code, response.headers, bytes(content))
