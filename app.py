"""Serves the studio: reads the settings, then assembles storage, models and pages."""

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

SHUTDOWN_SECONDS = 3
UPLOADS = "dillema-uploads-"
"""First part of the name of the folder for uploads. Random characters follow."""


@dataclass(frozen=True)
class ServerSettings:
    """Settings from the command line and the environment."""

    profile: str = "demo"
    workspace: Path = Path("workspace")
    host: str = "127.0.0.1"
    port: int = 7860
    password: str = field(default="", repr=False)
    """The study lead's password from the environment. If it is "", a password stored in the workspace counts."""
    set_password: bool = False
    """True to ask for a password, store its hash in the workspace, and exit."""
    mcp: bool = False
    """True to offer the endpoints to agents as MCP tools."""
    data_roots: tuple[Path, ...] = ()
    """Folders whose data sets scripts may use in batches. If empty, only people on the page can plan batches."""
    root_path: str = ""
    """Path at which a proxy serves the studio, such as "/studio"; "" for none."""


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> ServerSettings:
    """Return the settings. Arguments override the environment: PROFILE, WORKSPACE, PORT, MCP, DATA_ROOTS and ROOT_PATH.

    STUDIO_PASSWORD is read from the environment only. Raises UserError for an unusable port or root path.
    """
    from ui.addresses import read_root_path

    defaults = ServerSettings()
    parser = argparse.ArgumentParser(prog="app.py", description="Serves DILLEMA Studio.")
    parser.add_argument(
        "--profile", default=environment.get("PROFILE") or defaults.profile, help="name of the profile (demo)"
    )
    parser.add_argument(
        "--workspace",
        default=environment.get("WORKSPACE") or str(defaults.workspace),
        help="folder of the workspace (workspace)",
    )
    parser.add_argument("--host", default=defaults.host, help="address to serve on (127.0.0.1)")
    parser.add_argument("--port", default=environment.get("PORT") or str(defaults.port), help="port to serve on (7860)")
    parser.add_argument(
        "--set-password",
        action="store_true",
        help="ask for the study lead's password, store its hash in the workspace, and end (or set STUDIO_PASSWORD)",
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
        help="folders of data sets for which scripts and agents may plan batches (none; or set DATA_ROOTS)",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        default=environment.get("ROOT_PATH", ""),
        help="path below which a proxy serves the studio, such as /studio (none; or set ROOT_PATH)",
    )
    options = parser.parse_args(arguments)
    try:
        port = int(options.port)
    except ValueError:
        port = 0
    if not 1 <= port <= 65535:
        raise UserError(f"{options.port!r} is not a port: give a number from 1 to 65535.")
    password, workspace = environment.get("STUDIO_PASSWORD", ""), Path(options.workspace)
    roots = tuple(Path(folder) for folder in options.data_roots.split(os.pathsep) if folder.strip())
    below = read_root_path(options.root_path)
    return ServerSettings(
        options.profile, workspace, options.host, port, password, options.set_password, options.mcp, roots, below
    )


def build(settings: ServerSettings, models: Models | None = None) -> tuple[FastAPI, Studio]:
    """Return the application and its studio with an open workspace. It is not served yet, and no model is loaded.

    The caller closes the studio and its workspace. `models` replaces the models of the profile. Raises UserError for an
    unknown profile, missing weights, an unusable workspace, a data root that is no folder, a root path that is also the
    address of a page, and a missing password if other machines can reach the host.
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
    """Return the complete application and its studio. This takes seconds, because it imports large libraries."""
    from demo import data_set
    from services.studio import Studio
    from ui.addresses import served_below

    studio = Studio(profile, models, workspace, settings.data_roots, data_set)
    with served_below(settings.root_path):
        return _application(settings, studio, annotators), studio


def _first(settings: ServerSettings, profile: Profile, workspace: Workspace, annotators: FastAPI) -> FastAPI:
    """Return a small application to serve until the complete one is ready. Its imports take only a second."""
    from fastapi import FastAPI

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _guarded(app, settings, workspace)
    _add_first(app, profile, annotators, "starting")
    return app


def _add_first(app: FastAPI, profile: Profile, annotators: FastAPI, status: str) -> None:
    """Add /healthz, which replies with `status`, and the annotators' pages."""
    from core.version import version

    @app.api_route("/healthz", methods=["GET", "HEAD"])
    def healthz() -> dict[str, str]:
        return {"status": status, "profile": profile.name, "version": version()}

    app.mount("/annotate", annotators)


def _guarded(app: FastAPI, settings: ServerSettings, workspace: Workspace) -> str:
    """Protect `app` with a sign-in, except the annotators' pages. Return a script for the head of the Explore page."""
    from services.sign_in import LeadSignIn
    from ui.security.root_path import BelowRootPath
    from ui.security.sign_in import stand_guard

    script = stand_guard(app, LeadSignIn(workspace, settings.password), settings.host)
    app.add_middleware(BelowRootPath, root_path=settings.root_path)  # added last, so it sees each request first
    return script


def _application(settings: ServerSettings, studio: Studio, annotators: FastAPI) -> FastAPI:
    from fastapi import FastAPI
    from fastapi.middleware import Middleware

    from ui.quick_gradio import no_server, no_stubs

    with no_stubs():
        import gradio as gr

    from services.pictures import StoredPictures
    from ui.batches.routes import add_batch_routes
    from ui.curate.coverage import add_coverage
    from ui.curate.gallery import add_gallery
    from ui.curate.imports import add_imports
    from ui.curate.map import add_map
    from ui.curate.sets import add_test_sets
    from ui.evaluate.retraining_routes import add_retraining_routes
    from ui.evaluate.routes import add_evaluate_routes
    from ui.explore.drawing_routes import add_drawing_routes
    from ui.explore.loading import SaysWhatIsMissing
    from ui.explore.page import LARGEST_UPLOAD, Explorer, explore_page
    from ui.routes import add_routes, disk_trouble, unknown_address
    from ui.scripts.endpoints import Services, add_endpoints, has_call
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

    endpoints = Services(studio)
    with no_server():
        page = explore_page(Explorer(studio))
        functions = add_endpoints(page, endpoints)
    app.add_middleware(PlainHttp, functions=functions, has_call=partial(has_call, page))
    for_the_signed_in = _guarded(app, settings, studio.workspace)
    _add_first(app, studio.profile, annotators, "ok")
    add_routes(app, StoredPictures(studio.workspace), studio.runs.samples, studio.exchange)
    add_drawing_routes(app, studio.control_images, studio.previews, studio.profile.settings.generation)
    add_study_routes(app, studio.commands, studio.studies, studio.revisions)
    add_gallery(app, studio.commands, studio.gallery)
    add_coverage(app, studio.commands, studio.gallery)
    add_test_sets(app, studio.commands, studio.test_sets)
    add_imports(app, studio.commands, studio.imports)
    add_map(app, studio)
    add_batch_routes(app, studio)
    add_evaluate_routes(app, studio)
    add_retraining_routes(app, studio.commands, studio.evaluations, studio.retrainings)
    add_scripts_page(app, studio, settings.mcp)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "SSR mode")  # server-side rendering is off anyway
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
    # Gradio must know one page only. Otherwise it would add its own bar of links above our header.
    page.config["pages"] = page.config["pages"][:1]
    refuse_own_address(settings.root_path, mounted.routes)
    if settings.mcp:
        from ui.scripts.mcp import serve_agents

        serve_agents(page, endpoints)
    return mounted


def _stay_here(profile: Profile) -> None:
    """Prevent libraries from calling other machines, except to download models of the profile. Call this before gradio
    and transformers are imported.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # Gradio sums up all remembered calls whenever one fails, for a page that the studio does not serve.
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"], os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = str(10**9), "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("DISABLE_TELEMETRY", "YES")
    from_hub = any(model.source == "timm" for model in profile.under_test().values())
    if not from_hub and all(weights.local() is not None for weights in profile.weights().values()):
        os.environ["HF_HUB_OFFLINE"] = "1"


def _keep_uploads_apart() -> None:
    """Give this server its own folder of uploads, which is removed at the end. In Gradio's default folder, all servers
    of a machine share their uploads.
    """
    temp_dir = os.environ.get("GRADIO_TEMP_DIR", "")
    if not Path(temp_dir).name.startswith(UPLOADS):
        if temp_dir:
            Path(temp_dir).mkdir(parents=True, exist_ok=True)
        folder = ExitStack()
        parent = Path(temp_dir or tempfile.gettempdir())
        os.environ["GRADIO_TEMP_DIR"] = str(folder.enter_context(held_folder(parent, UPLOADS)))
        atexit.register(folder.close)


def _leave_a_core(environment: MutableMapping[str, str] = os.environ, cores: int | None = None) -> None:
    """Leave one core to the page and other programs, unless OMP_NUM_THREADS is set. Call this before torch is imported.

    Computing threads keep their cores busy even while they wait for each other. If they used all cores, an open browser
    would make drawing four times slower on the same machine, and the time estimated before drawing would be wrong.
    """
    available = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, available - 1)))


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UserError if the address or the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once (TCP_NODELAY) only on such sockets. On others
    # the second half of an answer waits 40 ms until the browser has confirmed the first.
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen()  # without this, a second server could bind the same port unnoticed
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
    """Serve the studio until SIGTERM or Ctrl-C. Then stop running work and close the workspace."""
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
    """Serve the annotators' pages immediately, and the whole studio as soon as it is assembled."""
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
        # Later full garbage collections would scan all imported objects again, for a fifth of a second each.
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
    # After its own shutdown uvicorn raises the signal again. This would end the process before the workspace is closed.
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
    """Ask for the study lead's password and store its hash in the workspace. All open sessions of the lead end.

    At a terminal, ask twice without showing the password. Otherwise read the first line of the input. Raises UserError
    if no password is given.
    """
    from services.passwords import SECRET, choose
    from storage.workspace import Workspace

    at_terminal = sys.stdin.isatty()
    try:
        stored = choose(getpass.getpass if at_terminal else lambda _: sys.stdin.readline().rstrip("\r\n"), at_terminal)
    except (EOFError, KeyboardInterrupt) as error:
        raise UserError("No password was given: nothing was changed.") from error
    with Workspace(settings.workspace) as workspace:
        workspace.studies.sessions.set_secret(SECRET, stored)
        workspace.studies.sessions.close_all("lead")
    print(f"The password of {settings.workspace} is set. Restart a running studio if it had no password before.")
    if settings.password:
        print("STUDIO_PASSWORD is also set: as long as it is set, its password counts.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code. For a mistake that the user can correct, print one sentence and return
    2.
    """
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
