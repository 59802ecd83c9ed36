"""Serves the studio: arguments to settings, then storage, models and pages are put together. No logic of its own."""

from __future__ import annotations

import argparse
import atexit
import gc
import getpass
import logging
import os
import signal
import socket
import sys
import tempfile
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import DiskTrouble, UserError
from core.locks import held_folder

if TYPE_CHECKING:
    from fastapi import FastAPI

    from pipeline.profiles.profile import Profile
    from pipeline.seams import Models
    from services.studio import Studio
    from storage.workspace import Workspace
    from ui.explore.page import Explorer
    from ui.scripts.endpoints import Services

SHUTDOWN_SECONDS = 3
UPLOADS = "dillema-uploads-"
"""What the folder of uploads is called, and a part that makes it another one each time."""


@dataclass(frozen=True)
class ServerSettings:
    """What the command line and the environment say."""

    profile: str = "demo"
    workspace: Path = Path("workspace")
    host: str = "127.0.0.1"
    port: int = 7860
    password: str = field(default="", repr=False)
    """The study lead's, from the environment; "" for the one that the workspace keeps, if any."""
    set_password: bool = False
    """Only ask for a password and keep its hash in the workspace."""
    mcp: bool = False
    """Offer the endpoints to agents as MCP tools."""
    data_roots: tuple[Path, ...] = ()
    """The folders below which scripts may plan batches; none: only the page may."""
    root_path: str = ""
    """The path below which a proxy serves the studio, as `read_root_path` returns it."""


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> ServerSettings:
    """Read the arguments. They win over the environment: PROFILE, WORKSPACE, PORT, MCP, DATA_ROOTS and ROOT_PATH.

    STUDIO_PASSWORD stands in the environment only. Raises UserError for an unusable port or root path.
    """
    from ui.addresses import read_root_path

    defaults = ServerSettings()
    parser = argparse.ArgumentParser(prog="app.py", description="Serves DILLEMA Studio.")
    parser.add_argument("--profile", default=environment.get("PROFILE") or defaults.profile, help="which models (demo)")
    parser.add_argument(
        "--workspace",
        default=environment.get("WORKSPACE") or str(defaults.workspace),
        help="folder of the runs (workspace)",
    )
    parser.add_argument("--host", default=defaults.host, help="address to serve on (127.0.0.1)")
    parser.add_argument("--port", default=environment.get("PORT") or str(defaults.port), help="port to serve on (7860)")
    parser.add_argument(
        "--set-password",
        action="store_true",
        help="ask for the study lead's password, keep its hash in the workspace, and end (or set STUDIO_PASSWORD)",
    )
    parser.add_argument(
        "--mcp",
        action="store_true",
        default=environment.get("MCP", "") not in ("", "0"),
        help="offer the endpoints to agents as MCP tools (or set MCP=1)",
    )
    parser.add_argument(
        "--data-roots",
        metavar=f"DIR[{os.pathsep}DIR]",
        default=environment.get("DATA_ROOTS", ""),
        help="folders with data sets: below them scripts and agents may plan batches (none; or set DATA_ROOTS)",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        default=environment.get("ROOT_PATH", ""),
        help="path below which a proxy serves the studio, such as /studio (none; or set ROOT_PATH)",
    )
    given = parser.parse_args(arguments)
    try:
        port = int(given.port)
    except ValueError:
        port = 0
    if not 1 <= port <= 65535:
        raise UserError(f"The port {given.port!r} is no port: give a number from 1 to 65535.")
    password, workspace = environment.get("STUDIO_PASSWORD", ""), Path(given.workspace)
    roots = tuple(Path(folder) for folder in given.data_roots.split(os.pathsep) if folder.strip())
    below = read_root_path(given.root_path)
    return ServerSettings(
        given.profile, workspace, given.host, port, password, given.set_password, given.mcp, roots, below
    )


def build(settings: ServerSettings, models: Models | None = None) -> tuple[FastAPI, Studio]:
    """The application, not served yet, and the studio behind it, whose workspace is open: close both at the end.

    `models` stands in for those of the profile. Raises UserError for an unknown profile, missing weights, a
    workspace that cannot be used, a data root that is no folder, a root path below which the studio has pages of its
    own, and a host beyond this machine without a password. Loads no model.
    """
    profile, models = _profile_and_models(settings, models)
    workspace = _workspace(settings)
    try:
        return _whole(settings, profile, models, workspace, _annotators(workspace))
    except BaseException:
        workspace.close()
        raise


def _profile_and_models(settings: ServerSettings, models: Models | None = None) -> tuple[Profile, Models]:
    from pipeline.models import load_models
    from pipeline.profiles.profile import load_profile

    profile = load_profile(settings.profile)
    if models is None:
        loading = load_models(profile)
        loading.check()
        models = loading
    _stay_here(profile)
    _keep_uploads_apart()
    return profile, models


def _workspace(settings: ServerSettings) -> Workspace:
    from storage.workspace import Workspace

    return Workspace(settings.workspace).open()


def _annotators(workspace: Workspace) -> FastAPI:
    from services.studies.services import AnnotatorServices
    from ui.annotate.application import annotate_application

    return annotate_application(AnnotatorServices(workspace))


def _whole(
    settings: ServerSettings, profile: Profile, models: Models, workspace: Workspace, annotators: FastAPI
) -> tuple[FastAPI, Studio]:
    """All that is served: seconds of importing."""
    from demo import data_set
    from services.studio import Studio
    from ui.addresses import served_below

    studio = Studio(profile, models, workspace, settings.data_roots, data_set)
    with served_below(settings.root_path):
        return _application(settings, studio, annotators), studio


def _first(settings: ServerSettings, profile: Profile, workspace: Workspace, annotators: FastAPI) -> FastAPI:
    """What is served until the whole is there: a second of importing."""
    from fastapi import FastAPI

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _guarded(app, settings, workspace)
    _add_first(app, profile, annotators, "starting")
    return app


def _add_first(app: FastAPI, profile: Profile, annotators: FastAPI, status: str) -> None:
    """/healthz and the annotators' pages."""
    from core.version import version

    @app.api_route("/healthz", methods=["GET", "HEAD"])
    def healthz() -> dict[str, str]:
        return {"status": status, "profile": profile.name, "version": version()}

    app.mount("/annotate", annotators)


def _guarded(app: FastAPI, settings: ServerSettings, workspace: Workspace) -> str:
    """Let the guard stand before all that was added, and return the script for the head of pages."""
    from services.sign_in import LeadSignIn
    from ui.security.root_path import BelowRootPath
    from ui.security.sign_in import stand_guard

    script = stand_guard(app, LeadSignIn(workspace, settings.password), settings.host)
    app.add_middleware(BelowRootPath, root_path=settings.root_path)  # the outermost, as the last that is added
    return script


def _application(settings: ServerSettings, studio: Studio, annotators: FastAPI) -> FastAPI:
    from fastapi import FastAPI
    from fastapi.middleware import Middleware

    from ui.quick_gradio import no_server, no_stubs

    with no_stubs():
        import gradio as gr

    from services.pictures import StoredPictures
    from ui.batches.routes import add_batch_routes
    from ui.curate.routes import add_curate_routes
    from ui.evaluate.retraining_routes import add_retraining_routes
    from ui.evaluate.routes import add_evaluate_routes
    from ui.explore.drawing_routes import add_drawing_routes
    from ui.explore.loading import SaysWhatIsMissing
    from ui.explore.page import LARGEST_UPLOAD, explore_page
    from ui.routes import add_routes, disk_trouble, unknown_address
    from ui.scripts.endpoints import add_endpoints, has_call
    from ui.scripts.plain_http import PlainHttp
    from ui.scripts.scripts_page import add_scripts_page
    from ui.scripts.uploads import uploads_forgotten
    from ui.security.root_path import refuse_own_address
    from ui.study.routes import add_study_routes
    from ui.theme import FAVICON, head, theme

    title = "DILLEMA Studio"
    handlers: dict[int | type[Exception], Any] = {404: unknown_address, DiskTrouble: disk_trouble}
    app = FastAPI(
        title=title,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=uploads_forgotten,
        exception_handlers=handlers,
    )

    endpoints = endpoints_of(studio)
    with no_server():
        page = explore_page(explorer_of(studio))
        functions = add_endpoints(page, endpoints)
    app.add_middleware(PlainHttp, functions=functions, has_call=partial(has_call, page))
    for_the_signed_in = _guarded(app, settings, studio.workspace)
    _add_first(app, studio.profile, annotators, "ok")
    workspace = studio.workspace
    add_routes(app, StoredPictures(workspace), studio.runs.samples, studio.exchange)
    add_drawing_routes(app, studio.control_images, studio.previews, studio.profile.settings.generation)
    add_study_routes(app, studio.commands, studio.studies, studio.revisions)
    services = (studio.gallery, studio.test_sets, studio.imports, studio.image_map, studio.meaning)
    add_curate_routes(app, studio.commands, *services)
    add_batch_routes(app, studio.commands, studio.batches, studio.revisions, studio.profile.name)
    add_evaluate_routes(
        app, studio.commands, studio.evaluations, studio.retrainings, studio.likeness, workspace.thumbnails.webp
    )
    add_retraining_routes(app, studio.commands, studio.evaluations, studio.retrainings)
    add_scripts_page(app, studio.commands, studio.tokens, settings.mcp)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "SSR mode")  # which is off as it is
        mounted = gr.mount_gradio_app(
            app,
            page,
            path="/",
            server_name=settings.host,
            server_port=settings.port,
            root_path=settings.root_path or None,
            favicon_path=str(FAVICON),
            footer_links=[],
            run_history=False,
            ssr_mode=False,
            max_file_size=LARGEST_UPLOAD,
            mcp_server=settings.mcp,
            app_kwargs={"exception_handlers": handlers, "middleware": [Middleware(SaysWhatIsMissing)]},
            theme=theme(),
            head=head() + for_the_signed_in,
        )
    # Our header has the links between pages; Gradio would set a bar of its own above it, for that of the endpoints.
    page.config["pages"] = page.config["pages"][:1]
    refuse_own_address(settings.root_path, mounted.routes)
    if settings.mcp:
        from ui.scripts.mcp import serve_agents

        serve_agents(page, endpoints)
    return mounted


def endpoints_of(studio: Studio) -> Services:
    """The endpoints for scripts with the services that they call."""
    from ui.scripts.endpoints import Services

    return Services(
        studio.commands,
        studio.runs,
        studio.exchange,
        studio.jobs,
        studio.notes,
        studio.studies,
        studio.tokens,
        studio.test_sets.exports,
        studio.imports,
        studio.batches,
    )


def explorer_of(studio: Studio) -> Explorer:
    """The explore page with the services that it calls."""
    from ui.explore.page import Explorer

    return Explorer(
        studio.commands,
        studio.runs,
        studio.states,
        studio.notes,
        studio.jobs,
        studio.estimates,
        studio.predictions,
        studio.similarities,
        studio.exchange,
        studio.together,
        studio.example,
        studio.revisions,
    )


def _stay_here(profile: Profile) -> None:
    """Before gradio and transformers are imported: no call leaves this machine that the profile does not need."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # Gradio sums up all the calls that it remembers whenever one fails, for a page that is not served here.
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"], os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = str(10**9), "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("DISABLE_TELEMETRY", "YES")
    from_hub = any(wanted.source == "timm" for wanted in profile.under_test().values())
    if not from_hub and all(weights.local() is not None for weights in profile.weights().values()):
        os.environ["HF_HUB_OFFLINE"] = "1"


def _keep_uploads_apart() -> None:
    """A folder of this server's own, which is emptied: Gradio's usual one is one for all servers of a machine."""
    given = os.environ.get("GRADIO_TEMP_DIR", "")
    if not Path(given).name.startswith(UPLOADS):
        if given:
            Path(given).mkdir(parents=True, exist_ok=True)
        folder = ExitStack()
        parent = Path(given or tempfile.gettempdir())
        os.environ["GRADIO_TEMP_DIR"] = str(folder.enter_context(held_folder(parent, UPLOADS)))
        atexit.register(folder.close)


def _leave_a_core(environment: MutableMapping[str, str] = os.environ, cores: int | None = None) -> None:
    """Before torch is imported: one core is left to the page and whatever else runs, unless a person says otherwise.

    Threads that compute wait for each other busily. With all cores taken, a browser on the same machine makes an image
    of the demo take four times as long, and the estimate at the gate worthless.
    """
    there = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, there - 1)))


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound already, so that a port that is taken is known before anything is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio lets small answers go at once (TCP_NODELAY) on such sockets only, and others wait
    # 40 ms for the browser to confirm the first half.
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen()  # two that are bound but do not listen yet would not notice each other
    except OSError as error:
        server.close()
        if isinstance(error, socket.gaierror):
            raise UserError(f"There is no address {host!r} on this machine: give another --host.") from error
        reason = error.strerror or str(error)
        raise UserError(
            f"Port {port} on {host} cannot be used ({reason}): stop what uses it, or give another --port."
        ) from error
    return server


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C; then stop the work that is going on and close the workspace."""
    _leave_a_core()
    with _listen(settings.host, settings.port) as listening:
        from pipeline.models.machine import share_cores

        share_cores()
        profile, models = _profile_and_models(settings)
        workspace = _workspace(settings)
        shown = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
        address = f"http://{shown}:{settings.port}{settings.root_path}"
        try:
            with workspace.served(address):
                _run(settings, profile, models, workspace, listening, address)
        finally:
            workspace.close()


def _run(
    settings: ServerSettings,
    profile: Profile,
    models: Models,
    workspace: Workspace,
    listening: socket.socket,
    address: str,
) -> None:
    """Annotators are served at once, and the whole studio when it was put together meanwhile."""
    import uvicorn

    from ui.security.connections import BACKLOG, KEPT_SECONDS, Patience, room_for_connections
    from ui.starting import Starting

    studios: list[Studio] = []
    annotators = _annotators(workspace)

    def whole() -> FastAPI:
        app, studio = _whole(settings, profile, models, workspace, annotators)
        studios.append(studio)
        from pipeline.models.machine import without_gpu

        if remark := without_gpu(profile):
            print(remark, file=sys.stderr, flush=True)
        print(f"DILLEMA Studio, profile {profile.name}: {address} (Ctrl-C ends it)", flush=True)
        # A full collection would look through all of this again, and hold up every answer for a fifth of a second.
        gc.collect()
        gc.freeze()
        studio.thumbnails.start()
        return app

    def stop() -> None:
        server.should_exit = True

    app = Starting(_first(settings, profile, workspace, annotators), whole, stop, settings.root_path)
    most, warning = room_for_connections()
    if warning:
        print(warning, file=sys.stderr, flush=True)
    config = uvicorn.Config(
        app,
        http=Patience(most).protocol(),
        backlog=BACKLOG,
        log_level="warning",
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    # After its own shutdown uvicorn raises the signal again, which would end us before we have closed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
    finally:
        for studio in studios:
            studio.close()
    if app.error is not None:
        raise app.error


def set_password(settings: ServerSettings) -> None:
    """Ask for the study lead's password and keep its hash in the workspace; whoever was signed in no longer is.

    A terminal is asked twice, unseen; else the first line of the input is taken. Raises UserError for one that is none.
    """
    from services.passwords import SECRET, choose
    from storage.workspace import Workspace

    at_terminal = sys.stdin.isatty()
    try:
        kept = choose(getpass.getpass if at_terminal else lambda _: sys.stdin.readline().rstrip("\r\n"), at_terminal)
    except (EOFError, KeyboardInterrupt) as error:
        raise UserError("No password was given: nothing was changed.") from error
    with Workspace(settings.workspace) as workspace:
        workspace.studies.sessions.set_secret(SECRET, kept)
        workspace.studies.sessions.close_all("lead")
    print(f"The password of {settings.workspace} is set; a studio that is running without one asks after a new start.")
    if settings.password:
        print("STUDIO_PASSWORD is set as well: as long as it is, that one counts.")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 2 for what a person can put right, told in one sentence."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        settings = read_settings(arguments)
        set_password(settings) if settings.set_password else serve(settings)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
