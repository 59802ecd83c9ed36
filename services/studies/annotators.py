"""Annotators' sessions and the pictures that annotators get.

So that nobody can guess codes or links, failed tries are limited for each network address and in total. The URL of a
picture contains a token, which is computed from the worker, the picture and a secret of this process. Nobody can guess
the token, and it reveals nothing. The token is the same before and after the picture's item is assigned, so the browser
need not load the picture twice. A picture is sent without any metadata that could reveal its origin.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from PIL import Image
from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.images import png_of
from core.latest import Latest
from core.panel import checked_participant
from core.png import bare
from core.studies import Study
from services.commands import Command
from services.limits import REMEMBERED, Limiter, address_key
from services.studies.annotation import Name
from storage.studies.studies import Studies

_OPEN = ("running", "paused")
MOST_PARAMETERS = 20
"""Maximum number of parameters in a link that brings a panel's participants."""
MOST_TOKENS = 20_000
"""Maximum number of valid picture tokens of all workers. The least recently used ones are dropped."""
MEDIA_TYPE = "image/png"
MAX_HELD = 96 * 2**20
"""Maximum bytes of cached PNG files of pictures. Several annotators get the same pictures within minutes."""


class NotSignedIn(UserError):
    """Raised if there is no valid session, or if the code or link is wrong."""


@dataclass(frozen=True)
class Joined:
    """Result of joining a study by a link."""

    study_id: str
    worker: str
    code: str
    """Personal code of a new worker, which is shown only now; "" for a known worker."""
    token: str
    """Token of a new session; "" for a worker who was signed in."""
    earlier: bool = False
    """True if another worker took part in this study from this browser before, perhaps the same person."""


class SignIn(Command, name="sign-in"):
    """Open a session with a personal code."""

    code: Name = Field(description="The personal code")


def _parameters(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST_PARAMETERS:
        raise ValueError(f"“parameters” has to hold at most {MOST_PARAMETERS} parameters of a link.")
    return {str(name)[:100]: str(text)[:500] for name, text in value.items()}


class Join(Command, name="join"):
    """Take part in a study by the link of its invitation."""

    link: Name = Field(description="The part of the link after #join=")
    parameters: Annotated[dict[str, str], BeforeValidator(_parameters)] = Field(
        default={}, description="The parameters of the link, one of which may name the participant of a panel"
    )


class _Tries:
    """Limits failed tries with codes and links, per address. A wrong code that is repeated is soon blocked,
    but other codes from the address still work: a school class often shares an address. The limit for all wrong codes
    of an address is so high that typing errors do not reach it. Guessing is hopeless: a code has 80 random bits.
    """

    def __init__(self) -> None:
        # In total only `_all` limits, which exempts addresses that signed in: all of these can fail this often.
        of_address, in_all = 200, 5000
        self._same = Limiter(attempts=10, seconds=300, in_all=in_all + REMEMBERED * of_address)
        self._all = Limiter(of_address, seconds=300, in_all=in_all)

    def check(self, key: str, typed: str) -> None:
        """Check that the address `key` may try the code or link `typed` now. Raises TooMany if it must wait."""
        self._all.check(key)
        self._same.check(self._one(key, typed))

    def failed(self, key: str, typed: str) -> None:
        """Record that the address `key` failed with the code or link `typed`."""
        self._all.failed(key)
        self._same.failed(self._one(key, typed))

    def passed(self, key: str) -> None:
        """Record a successful try: from now on the failures of other addresses do not block the address `key`."""
        self._all.passed(key)

    def _one(self, key: str, typed: str) -> str:
        # No code is stored in plain text, not even a mistyped one.
        return f"{key} {hashlib.sha256(typed.strip().upper().encode()).hexdigest()}"


class AnnotatorSessions:
    """Signs workers in and out. All methods may be called from any thread."""

    HOURS = 14 * 24
    SECONDS = HOURS * 3600

    def __init__(self, studies: Studies) -> None:
        self._studies = studies
        self.code_again = studies.workers.code_of_browser
        """Returns the code of a worker who just joined from a browser, so that a reload shows it again; or ""."""
        self._codes, self._links = _Tries(), _Tries()
        # A link admits any number of workers. Up to 500 joins from one address in an hour may be classes of students;
        # more must be a script.
        self._joins = Limiter(attempts=500, seconds=3600, in_all=5000)
        self._one_at_a_time = threading.Lock()

    def worker(self, token: str) -> str:
        """Return the worker whose session a token belongs to; "" if it belongs to none."""
        session = self._studies.sessions.get(token) if token else None
        return session.worker if session is not None and session.role == "worker" else ""

    def require(self, token: str) -> str:
        """Return the worker whose session a token belongs to. Raises NotSignedIn if it belongs to none."""
        if worker := self.worker(token):
            return worker
        raise NotSignedIn("Please sign in with your code, or open the link of your invitation.")

    def sign_in(self, sent: SignIn, address: str | None, browser: str = "") -> tuple[str, str]:
        """Open a session with a personal code. Return the worker and the token of the session. `browser` is a secret
        text that identifies the browser. Raises NotSignedIn for a wrong code, TooMany after too many wrong codes.
        """
        key = address_key(address)
        with self._one_at_a_time:  # from the check to the count: otherwise many tries at once would all pass the check
            self._codes.check(key, sent.code)
            worker = self._studies.workers.of_code(sent.code)
            if worker is None:
                self._codes.failed(key, sent.code)
                raise NotSignedIn("There is no such code. Please check it letter by letter, or ask who invited you.")
            self._codes.passed(key)
        self._studies.workers.came_from(worker, browser)
        return worker, self._studies.sessions.open("worker", worker, self.HOURS)

    def join(self, sent: Join, there: str, address: str | None, browser: str = "") -> Joined:
        """Join a study by its link: enrol the signed-in worker `there`, or create a new worker if `there` is empty. A
        person who joins again from the same browser before beginning the study stays the same worker. `browser` is a
        secret text that identifies the browser. Raises NotSignedIn for an invalid link, TooMany after too many invalid
        links or joins.
        """
        key = address_key(address)
        with self._one_at_a_time:
            self._links.check(key, sent.link)
            study = self._open_study(sent.link)
            if study is None:
                self._links.failed(key, sent.link)
                raise NotSignedIn("This invitation is not open; please ask the person who sent it for another one.")
            if parameter := self._studies.panels.get(study.id).parameter:
                return self._of_panel(study, parameter, sent, key, browser)
            if there:
                self._studies.workers.enrol(study.id, there)
                self._studies.workers.came_from(there, browser)
                return Joined(study.id, there, "", "")
            self._joins.check(key)
            study_id, worker, code = self._studies.workers.join(sent.link, browser)
            self._links.passed(key)
            self._joins.failed(key)
        earlier = self._studies.workers.others_of_browser(study_id, worker.id, browser)
        token = self._studies.sessions.open("worker", worker.id, self.HOURS)
        return Joined(study_id, worker.id, code, token, earlier)

    def _of_panel(self, study: Study, parameter: str, sent: Join, key: str, browser: str) -> Joined:
        """Join a study as a panel's participant, whose id the link's `parameter` holds, even if another worker is
        signed in. Raises NotSignedIn or TooMany as `join` does.
        """
        participant = checked_participant(sent.parameters.get(parameter, ""))
        if not participant:
            raise NotSignedIn(
                f"Please open the study from the site that sent you: the link has to say who you are "
                f"({parameter}=…). If you have a personal code, sign in with it."
            )
        self._joins.check(key)
        worker = self._studies.panels.join(study.id, participant, browser)
        self._joins.failed(key)
        return Joined(study.id, worker, "", self._studies.sessions.open("worker", worker, self.HOURS))

    def sign_out(self, token: str) -> None:
        """End the session of a token. An unknown token changes nothing."""
        if token:
            self._studies.sessions.close(token)

    def _open_study(self, link: str) -> Study | None:
        """Return the running or paused study with this link, or None."""
        for study in self._studies.all():
            if study.link and hmac.compare_digest(study.link.encode(), link.encode()) and study.state in _OPEN:
                return study
        return None


class PictureTokens:
    """Tokens of pictures, valid until the process ends. The stored tokens of assignments remain valid. Thread-safe."""

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._secret = secrets.token_bytes(32)
        self._known, self._ahead = Latest[tuple[str, str]](most), Latest[frozenset[str]](most)

    def give(self, worker: str, sha: str) -> str:
        """Return the token of this picture for this worker, valid from now on."""
        token = self._token(worker, sha)
        self._known.put(token, (worker, sha))
        return token

    def expect(self, worker: str, study_id: str, shas: Sequence[str]) -> list[str]:
        """Return tokens for a worker's next pictures in a study. They replace the tokens of an earlier call."""
        self._ahead.put((worker, study_id), frozenset(shas))
        return [self.give(worker, sha) for sha in shas]

    def open(self, token: str, worker: str, judging: Mapping[str, Collection[str]]) -> str | None:
        """Return the SHA-256 of a token's picture, or None if the worker neither judges it now nor gets it next."""
        sha = self.image(token, worker)
        expected = any(sha in (self._ahead.get((worker, study_id)) or ()) for study_id in judging)
        return sha if expected or any(sha in shas for shas in judging.values()) else None

    def known(self, worker: str, sha: str) -> str:
        """Return the token that `give` returned for this worker and this picture; "" if there is no such token."""
        token = self._token(worker, sha)
        return token if self._known.get(token) else ""

    def image(self, token: str, worker: str) -> str | None:
        """Return the SHA-256 of the picture that a token of this worker represents; None for any other token."""
        owner_and_sha = self._known.get(token)
        return owner_and_sha[1] if owner_and_sha is not None and owner_and_sha[0] == worker else None

    def _token(self, worker: str, sha: str) -> str:
        digest = hmac.new(self._secret, f"{worker}\0{sha}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest[:16]).rstrip(b"=").decode()


class Pictures:
    """Returns stored images as PNG without metadata, cached. `load` returns the image of a SHA-256, `read` its file."""

    def __init__(
        self, load: Callable[[str], Image.Image], most: int = MAX_HELD, read: Callable[[str], bytes] | None = None
    ) -> None:
        self._load, self._read, self._kept = load, read, Latest[bytes](most, weigh=len)

    def png(self, sha: str) -> bytes:
        """Return a PNG file of only an image's pixels. Raises UserError if the image is missing or damaged."""
        return self._kept.once(sha, lambda: self._made(sha))

    def _made(self, sha: str) -> bytes:
        if self._read is not None and hashlib.sha256(data := self._read(sha)).hexdigest() == sha:
            pixels = bare(data)
            if pixels is not None:
                return pixels
        return png_of(self._load(sha))
