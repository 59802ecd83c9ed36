"""Make or remove the example in a workspace, without a browser: `make example`, or `python -m experiments.example`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from cli.common import INTERRUPTED, WRONG, remaining, stop_on_signals
from cli.parsers import Parser, add_workspace_option
from core.errors import UserError
from demo import data_set
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from services.example.service import PROFILE, ExampleView
from services.studio import Studio
from storage.workspace import Workspace

LOOK_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or remove the example. Return the exit code: 0, 2 after an error, or 130 if it was stopped."""
    parser = Parser(prog="python -m experiments.example", description=__doc__)
    add_workspace_option(parser)
    parser.add_argument("--remove", action="store_true", help="remove what the example made")
    options = parser.parse_args(arguments)
    try:
        with Workspace(options.workspace) as workspace:
            return _act(workspace, options)
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG


def _act(workspace: Workspace, options: argparse.Namespace) -> int:
    profile = load_profile(PROFILE)
    studio = Studio(profile, load_models(profile), workspace, scenes=data_set)
    try:
        view = studio.example.remove() if options.remove else studio.example.make()
        with stop_on_signals() as stop:
            view = _watched(studio, view, stop.asked.is_set)
    finally:
        studio.close()
    if view.problem:
        print(view.problem, file=sys.stderr)
        return WRONG
    if view.state == "unfinished":
        print("Stopped. The same command continues from there.", file=sys.stderr)
        return INTERRUPTED
    if options.remove:
        print(f"The example is removed. {view.kept}".rstrip())
    else:
        print(f"The example is in {workspace.folder}: start the studio on it with `make run`.")
    return 0


def _watched(studio: Studio, view: ExampleView, is_stopped: Callable[[], bool]) -> ExampleView:
    """Print each step of the job that makes the example, until the job ends. Return the last state of the example."""
    printed = ""
    while view.active:
        if view.doing != printed:
            printed = view.doing
            rest = remaining(view.seconds_left)
            print(f"{view.step} of {view.steps}: {printed}{f' ({rest})' if rest else ''}", file=sys.stderr, flush=True)
        if is_stopped() and not view.stopping:
            studio.example.stop()
        view = studio.example.wait(LOOK_SECONDS)
    return view


if __name__ == "__main__":
    raise SystemExit(main())
