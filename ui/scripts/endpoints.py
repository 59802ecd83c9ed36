"""Endpoints for scripts and agents: every command and query by its name, in the Gradio application. `gradio_client`,
plain HTTP and MCP (`ui.scripts.mcp`) call the same functions. The command's Pydantic class checks the values. An error
is one sentence, and its title names the field.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import PureWindowsPath
from typing import IO, Any, TypeVar

import gradio as gr
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from gradio.context import Context, LocalContext
from gradio.data_classes import FileData
from gradio.queueing import Queue
from pydantic import Field
from pydantic.fields import FieldInfo

from core.csv_tables import plain
from core.errors import UserError
from core.tokens import Token
from services.batches.running import PlanByScript
from services.commands import Command, Missing, RunCommand, RunIds
from services.edit_conflicts import LARGEST_ID
from services.jobs import JobView
from services.queries import Query, RunQuery, ShowJob, job_facts
from services.runs.exchange import MOST_RUNS
from services.runs.life_cycle import OpenedRun
from services.studies.drafts import DraftState, StudyCommand
from services.studies.exports import EXPORTS, OF_PERSONS
from services.studio import Studio
from services.tokens import ScriptTokens
from ui.scripts.long_requests import DownloadTestSet, ImportImages, Waiter, brought_in, fetchable, planned, zip_of
from ui.scripts.uploads import file_data, keep_to_uploads, new_upload, uploaded

AWAKE_SECONDS = 10.0
"""Seconds after a call during which the queue is polled often, as more calls are likely."""
AWAKE, ASLEEP = 0.001, 0.1
"""Seconds between two checks of the queue: soon after a call, and otherwise. The first call after a pause waits
`ASLEEP` / 2 on average.
"""


class SleepyQueue(Queue):
    """Queue of Gradio that is polled less often while nobody calls."""

    _called = -AWAKE_SECONDS

    @classmethod
    def made_of(cls, queue: Queue) -> None:
        """Convert an existing queue into a `SleepyQueue`, since Gradio makes its queue itself."""
        del queue.sleep_when_free
        queue.progress_update_sleep_when_free = ASLEEP  # nothing here reports progress to Gradio
        queue.__class__ = cls

    @property
    def sleep_when_free(self) -> float:  # type: ignore[override]
        return AWAKE if time.monotonic() < self._called + AWAKE_SECONDS else ASLEEP

    async def push(self, *arguments: Any, **named: Any) -> Any:
        self._called = time.monotonic()
        return await super().push(*arguments, **named)


PATH = "/endpoints"
OF_PAGES = frozenset({"save-draft", "refresh-draft", "preview-step", "make-token", "withdraw-token", "plan-any-batch"})
"""Commands for pages only: they update a form, manage tokens, or read any folder. Scripts use `PlanByScript`."""
_OF_A_PAGE = frozenset({"tab", "based", "number", "form"})
"""Command fields in which a page describes itself or its form. A script fills in such a field only if required."""
LOOK_SECONDS, SAY_SECONDS = 0.1, 2.0
"""Seconds between two checks of a watched job, and seconds until an unchanged state is sent again. When Gradio sends
to a client that is gone, Gradio notices this and ends the client's watcher."""
MOST_WATCHERS, MOST_OF_A_TOKEN = 200, 20
"""Maximum number of watchers (calls that follow a job): of all callers together, and with the same token. A watcher
beyond `MOST_WATCHERS` waits for its turn. A watcher beyond `MOST_OF_A_TOKEN` is refused."""
SAID_IN_A_SECOND = 25
"""Maximum progress updates per second for all watchers together, so that jobs keep the processor."""
KNOWN_CALLERS = 40
"""Number of latest callers for whom Gradio keeps a copy of its components. Any other caller gets a new copy."""
NO_FIELD = "Error"
"""Title that Gradio gives to an error without a field."""
log = logging.getLogger(__name__)
Plain = dict[str, Any]
C = TypeVar("C", bound=Command)
Do = Callable[[Any], Plain]
"""Function that performs a command and returns plain data."""
DoAwaited = Callable[[Any, Waiter], Awaitable[Plain]]
"""Coroutine that performs a slow command without a thread of its own, and returns plain data."""


class NotAllowed(UserError):
    """Raised if the token of a request does not allow the command, or has expired or been withdrawn."""


class WatchJob(ShowJob, name="watch-job"):
    """Report the state of a job repeatedly until the job ends."""


class DownloadImage(Query, name="download-image"):
    """Give a test case as a PNG file that contains its run."""

    case: int = Field(ge=0, le=LARGEST_ID, description="The test case")


class DownloadImageWithMask(DownloadImage, name="download-image-with-mask"):
    """Give a test case and its mask as a ZIP file."""


class DownloadAccepted(Query, name="download-accepted"):
    """Give all accepted images of runs as a ZIP file, with their labels, masks and a metadata.parquet."""

    runs: RunIds = Field(min_length=1, max_length=MOST_RUNS, description="The ids of the runs")


class DownloadSource(RunQuery, name="download-source"):
    """Give the source image of a run as a PNG file."""


class DownloadStudy(StudyCommand, name="download-study", looks=True):
    """Give an export of a study as a file."""

    file: str = Field(
        "outcomes.csv", max_length=80, description="Name of the file", json_schema_extra={"enum": list(EXPORTS)}
    )


class DownloadEvidence(Query, name="download-evidence"):
    """Give a finished evidence bundle as a ZIP file."""

    work: int = Field(ge=1, le=LARGEST_ID, description="Number from begin_evidence; show_evidence says when it is done")


class UploadPicture(Command, name="upload-picture", keeps=True):
    """Begin a run with a picture. A picture that was downloaded from a studio restores its run."""

    file: FileData = Field(description="PNG, JPEG, WebP, GIF, BMP or TIFF")


class GiveMask(RunCommand, name="give-mask"):
    """Set the mask of a run."""

    file: FileData = Field(description="A PNG of class numbers")
    classes: str = Field("", description="The number and name of each class, such as “0 sky, 1 road”")


@dataclass(frozen=True)
class Services:
    """The services that the endpoints call."""

    studio: Studio
    watchers: Counter[int] = field(default_factory=Counter)
    """Number of watchers (calls that follow a job) by token id; 0 is the id for calls without a token."""


def add_endpoints(page: gr.Blocks, services: Services) -> Mapping[int, type[Command] | None]:
    """Add the endpoints to a Gradio application, on a page of their own, so that other pages do not load their
    description. Return the command of each function of the application by its number, or None for a function that only
    a page calls.
    """
    # Each watcher occupies one of Gradio's slots for running calls. Other calls must still find a free slot.
    page._queue.max_thread_count = MOST_WATCHERS + page.max_threads
    SleepyQueue.made_of(page._queue)
    # Gradio keeps a copy of all components for each caller, although these components are the same for everybody.
    page.state_session_capacity = KNOWN_CALLERS
    before = set(page.fns)
    with page.route("Endpoints", PATH, show_in_navbar=False):
        for command, do in answering(services.studio):
            _add_one(command, do, services)
        for command, do_awaited in awaited(services.studio):
            _add_awaited(page, command, do_awaited, services)
        _add_watching(services)
    by_name = {endpoint_of(command): command for command in offered(services.studio)}
    return {number: None if number in before else by_name[str(page.fns[number].api_name)] for number in page.fns}


def has_call(page: gr.Blocks, event: str) -> bool:
    """Return True while the call with the id `event` is running, or its answer was not fetched yet."""
    queue = page._queue
    return event in queue.event_ids_to_events or any(event in ids for ids in queue.pending_event_ids_session.values())


def answering(studio: Studio) -> Iterator[tuple[type[Command], Do]]:
    """Yield (command, function) for endpoints that answer at once: all but those of `awaited` and `WatchJob`."""
    for name, command in studio.commands.known().items():
        if name not in OF_PAGES:
            yield command, lambda sent: _reply(sent, studio.commands.do(sent), studio)
    yield from _files(studio)


def awaited(studio: Studio) -> Iterator[tuple[type[Command], DoAwaited]]:
    """Yield (command, coroutine) for endpoints whose answer may take minutes."""
    yield DownloadTestSet, lambda command, waiter: zip_of(command, studio.test_sets.exports, waiter)
    yield ImportImages, lambda sent, waiter: brought_in(sent, studio.imports, waiter)
    yield PlanByScript, lambda sent, waiter: planned(sent, studio.batches, waiter)


def offered(studio: Studio) -> tuple[type[Command], ...]:
    """Return all commands and queries that are endpoints, sorted by name."""
    known: list[type[Command]] = [WatchJob, *(command for command, _ in (*answering(studio), *awaited(studio)))]
    return tuple(sorted(known, key=lambda command: command.name))


def endpoint_of(command: type[Command]) -> str:
    """Return the name of a command's endpoint, such as "run_all" for "run-all"."""
    return command.name.replace("-", "_")


def _files(studio: Studio) -> Iterator[tuple[type[Command], Do]]:
    exchange = studio.exchange

    def take_picture(sent: UploadPicture) -> Plain:
        path = uploaded(sent.file.path)
        # Some clients send a whole path as the name, with the separators of their own system.
        name = PureWindowsPath(sent.file.orig_name or path.name).name
        try:
            taken = exchange.take_picture(path.read_bytes(), name)
        except UserError as error:
            raise UserError(str(error), field=error.field or "file") from error
        return {"run": taken.run_id, "case": taken.case_id, "said": taken.said}

    def take_mask(sent: GiveMask) -> Plain:
        notes = studio.runs.give_mask(sent.run, uploaded(sent.file.path).read_bytes(), sent.classes)
        return {"run": sent.run, "said": list(notes)}

    def accepted(command: DownloadAccepted) -> Plain:
        with tempfile.TemporaryFile() as file:
            name = exchange.saved_accepted(command.runs, file)
            file.seek(0)
            return _download(name, file)

    def study_file(command: DownloadStudy) -> Plain:
        if command.file not in EXPORTS:
            raise UserError(f"There is no file {command.file!r}: choose one of {', '.join(EXPORTS)}.", field="file")
        return _download(command.file, EXPORTS[command.file][1](studio.studies.export(command.study)))

    yield UploadPicture, take_picture
    yield GiveMask, take_mask
    yield DownloadImage, lambda command: _download(*exchange.saved_image(command.case))
    yield DownloadImageWithMask, lambda command: _download(*exchange.saved_with_mask(command.case))
    yield DownloadAccepted, accepted
    yield DownloadSource, lambda command: _download("source.png", studio.runs.source_png(command.run))
    yield DownloadStudy, study_file
    yield DownloadEvidence, lambda command: fetchable(studio.evidence.ready(command.work))


@contextmanager
def in_sentences(request: gr.Request | Request) -> Iterator[None]:
    """Turn errors into gr.Error with the field as title. Save the status for `PlainHttp`. Log our own faults."""
    try:
        yield
    except UserError as error:
        _state(request)["status"] = 403 if isinstance(error, NotAllowed) else 404 if isinstance(error, Missing) else 400
        message = " ".join(str(error).splitlines())  # it may quote lines that the caller has sent
        raise gr.Error(message, title=error.field or NO_FIELD, print_exception=False) from error
    except gr.Error:
        raise
    except Exception as error:
        log.exception("an endpoint failed")
        _state(request)["status"] = 500
        text = f"The studio itself failed ({type(error).__name__}): the terminal says more."
        raise gr.Error(text, title=NO_FIELD, print_exception=False) from error


def _add_one(command: type[Command], do: Do, services: Services) -> None:
    fields = fields_of(command)

    def send(*arguments: Any) -> Plain:
        *values, request = arguments
        with in_sentences(request):
            return perform(command, do, dict(zip(fields, values, strict=True)), request, services.studio.tokens)

    _add_shaped(send, command, queue=False)


def perform(
    command: type[Command], do: Do, values: Mapping[str, Any], request: gr.Request | Request, tokens: ScriptTokens
) -> Plain:
    """Perform a command if the request's token allows it. Ignore values of None. Raises UserError."""
    token, sent = _admitted(command, values, request, tokens)
    done = do(sent)
    if token is not None and not command.looks:
        tokens.log(token.name, sent)
    return done


def _admitted(
    command: type[C], values: Mapping[str, Any], request: gr.Request | Request, tokens: ScriptTokens
) -> tuple[Token | None, C]:
    """Return the token and the validated command of a request. Raises UserError for a wrong or forbidden command."""
    token = let_in(command, request)
    sent = command.of({name: value for name, value in values.items() if value is not None})
    if token is not None:
        if token.reads_only and isinstance(sent, DownloadStudy) and sent.file in OF_PERSONS:
            raise NotAllowed(
                f"The token “{token.name}” only reads. “{sent.file}” holds personal data: use a token that may change "
                "things."
            )
        tokens.require_place(sent)
    return token, sent


def _add_awaited(page: gr.Blocks, command: type[Command], do: DoAwaited, services: Services) -> None:
    fields = fields_of(command)

    async def send(*arguments: Any) -> Plain:
        *values, request = arguments
        with in_sentences(request):
            named, waiter = dict(zip(fields, values, strict=True)), Waiter(lambda: _listens(page, request))
            return await perform_awaited(command, do, named, request, services.studio.tokens, waiter)

    _add_shaped(send, command, queue=True)


async def perform_awaited(
    command: type[Command],
    do: DoAwaited,
    values: Mapping[str, Any],
    request: gr.Request | Request,
    tokens: ScriptTokens,
    waiter: Waiter,
) -> Plain:
    """Perform a slow command as `perform` does. Raises NotAllowed if the token ends before the answer is ready."""
    token, sent = _admitted(command, values, request, tokens)
    done = await do(sent, waiter)
    if token is not None:
        if not command.looks:
            await run_in_threadpool(tokens.log, token.name, sent)
        if not await run_in_threadpool(tokens.holds, token.id):
            raise NotAllowed("The token ended or was withdrawn before the answer: ask the lead for another one.")
    return done


async def _listens(page: gr.Blocks, request: gr.Request) -> bool:
    """Return True while the client still waits for the answer to its call."""
    number = LocalContext.event_id.get(None)
    if number is None:  # a plain request without an event of the queue
        return not await request.request.is_disconnected()
    event = page._queue.event_ids_to_events.get(number)
    return event is not None and event.alive


def _add_watching(services: Services) -> None:
    fields = fields_of(WatchJob)

    async def watch(*arguments: Any) -> AsyncIterator[Plain]:
        *values, request = arguments
        with in_sentences(request):
            async with aclosing(watching(dict(zip(fields, values, strict=True)), request, services)) as looks:
                async for facts in looks:
                    yield facts

    _add_shaped(watch, WatchJob, queue=True)


async def watching(
    values: Mapping[str, Any], request: gr.Request | Request, services: Services
) -> AsyncGenerator[Plain, None]:
    """Yield the state of a job until it ends. A new step is sent at once. Other progress is sent less often if there
    are many watchers. Raises UserError. Watchers have no thread of their own. With a thread each, forty watchers would
    block all other calls.
    """
    tokens, watchers = services.studio.tokens, services.watchers
    token, query = _admitted(WatchJob, values, request, tokens)
    number = token.id if token is not None else 0
    if number and watchers[number] >= MOST_OF_A_TOKEN:
        raise NotAllowed(
            f"This token watches {MOST_OF_A_TOKEN} jobs already: end one of these watches, or call show_job instead."
        )
    watchers[number] += 1
    try:
        last_view, sent_at = None, 0.0
        while True:
            view, now = services.studio.jobs.known(query.job), time.monotonic()
            often = watchers.total() / SAID_IN_A_SECOND
            wait = max(SAY_SECONDS, often) if view == last_view else max(LOOK_SECONDS, often)
            if last_view is None or _step(view) != _step(last_view) or now >= sent_at + wait:
                if token is not None and not await run_in_threadpool(tokens.holds, token.id):
                    raise NotAllowed("The token has ended or was withdrawn. The job continues, but is not watched.")
                yield job_facts(view)
                last_view, sent_at = view, now
            if not view.active:
                return
            await asyncio.sleep(max(LOOK_SECONDS, often / 4))
    finally:
        watchers[number] -= 1


def _step(view: JobView) -> tuple[object, ...]:
    """Return the fields of a job that seldom change. A change of them is sent at once."""
    return view.state, view.stage, view.stopping, view.message, view.parts


def token_of(request: gr.Request | Request) -> Token | None:
    """Return the token of a call, which the guard has checked. None for a call without a token, as from a browser."""
    token: Token | None = _state(request)["token"]
    return token


def _state(request: gr.Request | Request) -> MutableMapping[str, Any]:
    plain = getattr(request, "request", request)  # Gradio passes FastAPI's own request to functions of components
    state: MutableMapping[str, Any] = plain.scope["state"]
    return state


def let_in(command: type[Command], request: gr.Request | Request) -> Token | None:
    """Return the token of a request, or None without one. Raises NotAllowed if a read-only token would change data."""
    token = token_of(request)
    if token is not None and token.reads_only and not command.looks:
        raise NotAllowed(f"The token “{token.name}” only reads. “{command.name}” needs a token that may change things.")
    return token


def fields_of(command: type[Command]) -> dict[str, FieldInfo]:
    """Return the fields that a script fills in, required ones first."""
    known = sorted(command.model_fields.items(), key=lambda item: not item[1].is_required())
    return {name: field for name, field in known if name not in _OF_A_PAGE or field.is_required()}


@cache
def schema_of(command: type[Command]) -> Mapping[str, Any]:
    """Return the JSON schema of a command. It is cached."""
    return command.model_json_schema()


def _add_shaped(function: Callable[..., Any], command: type[Command], queue: bool) -> None:
    """Register an endpoint that calls `function`. Its name, parameters, types and description come from the command."""
    fields = fields_of(command)
    parameter = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [parameter(name, default=_default(field), annotation=Any) for name, field in fields.items()]
    # Gradio recognises this parameter by its type and passes the request.
    parameters.append(parameter("request", default=None, annotation=gr.Request))
    function.__signature__ = inspect.Signature(parameters, return_annotation=Plain)  # type: ignore[attr-defined]
    function.__annotations__ = {**dict.fromkeys(fields, Any), "request": gr.Request, "return": Plain}
    function.__name__ = function.__qualname__ = endpoint_of(command)
    arguments = "".join(f"\n    {name}: {field.description or ''}" for name, field in fields.items())
    function.__doc__ = f"{inspect.getdoc(command)}" + (f"\n\nArgs:{arguments}\n" if arguments else "")
    gr.api(function, api_name=function.__name__, queue=queue, concurrency_limit=MOST_WATCHERS if queue else None)
    root = Context.root_block
    assert root is not None  # gr.api has checked this
    schema = schema_of(command)
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    for component, name in zip(root.fns[max(root.fns)].inputs, fields, strict=True):
        keep_to_uploads(component)
        # gr.api reads only the type of a parameter, so the full schema is set here.
        component._api_info = {**schema["properties"][name], **shared}  # type: ignore[attr-defined]


def _default(field: FieldInfo) -> Any:
    value = inspect.Parameter.empty if field.is_required() else field.get_default()
    return list(value) if isinstance(value, tuple) else value


def _reply(sent: Command, result: Any, studio: Studio) -> Plain:
    if sent.looks and isinstance(result, dict):
        return result
    if isinstance(result, OpenedRun):
        return {"run": result.run_id}
    if sent.name in ("create-test-set", "draft-test-set", "release-test-set"):
        return dict(result)
    if sent.name in ("create-study", "copy-rules"):
        return {"study": result}
    if isinstance(sent, RunCommand):
        job = studio.jobs.of_run(sent.run)
        going_on = job_facts(job) if job is not None and job.active else None
        # A notice says that somebody else has changed the same value in the meantime.
        return {"run": sent.run, "job": going_on, "notices": studio.notes.notices(sent.run)}
    of: Plain = {name: getattr(sent, name) for name in ("study", "job", "test_set") if hasattr(sent, name)}
    if isinstance(result, DraftState):
        return {**of, "troubles": [plain(trouble) for trouble in result.troubles]}
    return {**of, "result": plain(result)}


def _download(name: str, data: bytes | IO[bytes]) -> Plain:
    """Write a file that the caller may download. Return its description. Gradio names it by a hash of its content."""
    file = new_upload(name)
    with file.open("wb") as to:
        if isinstance(data, bytes):
            to.write(data)
        else:
            shutil.copyfileobj(data, to)
    return file_data(file, orig_name=name)
