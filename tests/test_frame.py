"""Checks of the repository: pinned versions, the version number, commands, and the imports that each folder may use."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from core.version import version

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "core",
    "pipeline",
    "formats",
    "storage",
    "study",
    "evaluation",
    "services",
    "ui",
    "cli",
    "demo",
    "experiments",
)
SOURCES = [ROOT / "app.py", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]


PACKAGE_OF = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "cv2": "opencv-python-headless",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
"""Packages with another name than their module."""


def _names(requirements: str) -> set[str]:
    lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
    return {
        match[0].lower().replace("_", "-")
        for line in lines
        if not line.startswith("-") and (match := re.match(r"[A-Za-z0-9_.-]+", line))
    }


@cache
def _imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Return the absolute imports of a file as (first part of the module's name, line)."""
    return tuple(_find_imports(path))


def _parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file. The garbage collector is off while parsing: in Python 3.11 a failing finalizer
    parses source to write its traceback, which breaks this parsing with “AST constructor recursion depth mismatch”.
    Earlier tests leave such garbage, for example Gradio's event loops, which are never closed.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if collecting:
            gc.enable()


def _find_imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0], node.lineno


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_requirement_is_pinned_and_names_no_place(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    packages = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert packages
    unpinned = [line for line in packages if not re.match(r"[a-z0-9-]+==[A-Za-z0-9.+!]+( ; .+)?$", line)]
    assert not unpinned
    assert "://" not in text and not re.search(r"(?m)^\s*-", text), "no index and no path belongs in there"


def test_pins_cover_what_is_asked_for() -> None:
    assert _names("requirements.in") <= _names("requirements.txt")
    assert _names("requirements-dev.in") <= _names("requirements-dev.txt")


def test_torch_and_torchvision_are_a_pair() -> None:
    pins = dict(re.findall(r"(?m)^(torch|torchvision)==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8")))
    assert pins == {"torch": "2.15.0", "torchvision": "0.29.2"}, "move both, to a pair that was built together"


@pytest.mark.slow
def test_code_imports_only_what_the_requirements_name() -> None:
    known = _names("requirements.in") | set(sys.stdlib_module_names) | {*ROOMS, "app"}
    extra = dict.fromkeys(
        ("services/batches/cluster.py", "experiments/toy_cluster.py"), _names("requirements-batch.txt")
    ) | {
        "experiments/train_perturber.py": _names("requirements-dev.in"),
        "pipeline/models/detectors.py": _names("requirements-hed.txt"),
        "services/evaluation/evidence/recompute.py": {"pandas"},  # runs where a bundle is unpacked, not in the studio
    }
    unknown = {
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in SOURCES
        for name, line in _imports(path)
        if PACKAGE_OF.get(name, name).replace("_", "-") not in known | extra.get(str(path.relative_to(ROOT)), set())
        and name not in known
    }
    assert not unknown


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert version() == project["version"]
    releases = re.findall(r"(?m)^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert releases[0] == version()


def test_types_come_without_models_or_pages() -> None:
    """Modules that every folder imports for their types must stay quick to import."""
    heavy = {"torch", "diffusers", "transformers", "ctransformers", "gradio", "cv2", "sqlite3", "sqlite_utils"}
    assert not heavy & _loaded_by("core.types", "core.settings", "pipeline.seams", "core.errors")


@pytest.mark.slow
def test_models_are_loaded_when_used_and_not_before() -> None:
    """`python -m pipeline --help` and the first page do not wait for torch or pandas."""
    heavy = {"torch", "diffusers", "transformers", "ctransformers", "gradio", "pandas"}
    assert not heavy & _loaded_by(
        "pipeline.driver",
        "pipeline.profiles.profile",
        "pipeline.models",
        "pipeline.models.language_process",  # first import in the process of the language model
        "storage.workspace",
    )


@pytest.mark.slow
def test_no_module_of_the_services_reads_a_file_of_the_project_when_it_is_imported() -> None:
    """Tables and templates are read on first use, so that a damaged one does not stop code that does not need it."""
    code = """
import importlib, pathlib, pkgutil, sys
rooms, found = ("evaluation", "study", "storage", "services"), []
own = tuple(f"{pathlib.Path.cwd()}/{room}/" for room in rooms)
def opened(event, arguments):
    path = str(arguments[0]) if event == "open" else ""
    if path.startswith(own) and not path.endswith(".py") and "__pycache__" not in path:
        found.append(path)
sys.addaudithook(opened)
for room in rooms:
    for module in pkgutil.walk_packages([room], f"{room}."):
        if not module.name.endswith(("__main__", "small_unet")):  # a network: it loads torch, and reads nothing
            importlib.import_module(module.name)
print(*found, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def _loaded_by(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_links_and_pictures_of_the_docs_lead_somewhere(page: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        file = page.parent / name if name else page
        if not re.match(r"https?:", link) and not (file.exists() and (not anchor or anchor in _headings(file))):
            lost.append(link)
    assert not lost


@cache
def _headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in GitHub's form."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_files_that_the_docs_name_are_there(page: Path) -> None:
    named = set(re.findall(r"`([\w/.-]+\.(?:py|sql|js|css))`", page.read_text(encoding="utf-8")))
    files = (*ROOT.glob("*.py"), *ROOT.glob("[!.]*/**/*.*"))
    tree = "\n".join(f"/{file.relative_to(ROOT).as_posix()}" for file in files)
    assert not [name for name in named if not re.search(rf"/{re.escape(name)}$", tree, re.M) and "NAME" not in name]


def test_make_knows_its_targets() -> None:
    known = _make("help")
    targets = "run test test-fast soak lint format demo-report bench screenshots train clean".split()
    assert [target for target in targets if f"make {target} " not in known] == []
    # If packages are out of date, each run of make within make checks for Python.
    assert _make("--dry-run", f"PYTHON={sys.executable}", *targets)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_passes_on_only_what_was_asked_for() -> None:
    assert _make("--dry-run", "run").rstrip().endswith("app.py")
    asked = _make("--dry-run", "run", "PROFILE=paper", "WORKSPACE=my runs", "PORT=8000", "HOST=0.0.0.0")
    assert asked.rstrip().endswith('app.py --profile "paper" --workspace "my runs" --port "8000" --host "0.0.0.0"')


def test_make_says_what_python_it_needs(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = ["make", "run", "PYTHON=no-such-python", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("The studio needs Python 3.11 or newer")


def _make(*arguments: str) -> str:
    # Neither the settings of a surrounding `make test` nor the user's own may reach this make.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PROFILE", "WORKSPACE", "PORT", "HOST", "VENV", "ARGS"}
    }
    done = subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def _is_value(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return True if a class of services or storage has plain values: frozen, and made of values only."""
    if not inspect.isclass(kind) or kind in seen or kind.__module__.partition(".")[0] not in ("services", "storage"):
        return True
    if issubclass(kind, BaseModel):
        return bool(kind.model_config.get("frozen"))
    if not (is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        return False
    return all(_holds_values(hint, seen | {kind}) for hint in get_type_hints(kind).values())


def _holds_values(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return True if an annotation, such as `dict[str, Problem]`, holds only values."""
    return _is_value(hint, seen) and all(_holds_values(part, seen) for part in get_args(hint))


HANDLERS = {
    "annotate/application", "batches/routes", "evaluate/retraining_routes", "evaluate/routes", "replies", "routes",
    "explore/drawing_routes", "explore/page", "study/requests", "study/routes",
    *(f"curate/{name}" for name in ("coverage", "frame", "gallery", "imports", "map", "sets")),
    *(f"scripts/{name}" for name in ("endpoints", "long_requests", "mcp", "scripts_page")),
    *(f"security/{name}" for name in ("guard", "request_limits", "sign_in")),
}  # fmt: skip
"""Modules of ui that answer requests and so hold services. All others are views."""
WITH_TOKENS = "annotate/shown"
"""View that also gets the service that signs the addresses of its pictures."""
VIEWS = sorted(
    path.relative_to(ROOT / "ui").with_suffix("").as_posix()
    for path in (ROOT / "ui").rglob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.slow
@pytest.mark.parametrize("view", [name for name in VIEWS if name not in HANDLERS | {WITH_TOKENS}])
def test_views_take_values_and_never_a_service(view: str) -> None:
    module = importlib.import_module(f"ui.{view.replace('/', '.')}")
    for name, attribute in vars(module).items():
        assert not inspect.ismodule(attribute) or attribute.__name__.partition(".")[0] not in ("services", "storage")
        assert _is_value(attribute), f"ui/{view}.py holds {name}, which is no value"
        if inspect.isfunction(attribute) and attribute.__module__ == module.__name__:
            for parameter, hint in get_type_hints(attribute).items():
                assert _holds_values(hint), f"{name} takes {parameter}, which is no value"


def test_handlers_are_there() -> None:
    assert set(VIEWS) >= HANDLERS | {WITH_TOKENS}


def test_what_the_explore_page_shows_is_a_value() -> None:
    from services.studio import Studio
    from ui.explore.page import Explorer, PageValues, render

    assert get_type_hints(render)["values"] is PageValues
    assert all(_holds_values(hint) for hint in get_type_hints(PageValues).values())
    assert not _is_value(Studio) and not all(_holds_values(hint) for hint in get_type_hints(Explorer).values())
