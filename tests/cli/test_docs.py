"""Run the commands and scripts of README.md and docs/ unchanged.

Commands of the studio run in this process, on a workspace of drawn scenes. Those with `|` or `$(...)` run in a shell.
The generators are stand-ins. `NOT_RUN` lists commands that cannot run here, with reasons. `ELSEWHERE` lists pages that
other tests run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

import cli.batches
import cli.curation
import cli.evaluation
import cli.pipeline
import cli.storage
import cli.studies
import cli.test_sets
import evaluation.focus
import formats.types
from core.image_filter import ImageFilter
from core.test_sets import TestSet
from pipeline.models import load_models
from pipeline.run_files import run_file
from services.batches.io_workers import Order
from services.batches.pools import HerePool, Pool
from services.batches.work import Worker
from services.evaluation import focus
from services.test_sets.examples import VersionImages
from storage.workspace import Workspace
from tests.support import drawn, evaluation_cases
from tests.support.batch_cases import pictures, plan_text
from tests.support.scripted import ScriptedModels
from tests.support.server_process import ROOT
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("sh", "bash", "python", "javascript")
NO_CLUSTER = "there is no cluster here"
NOT_RUN = {
    "make run": "installs 6 GB and serves until it is stopped; tests/test_frame.py asks make what it would do",
    "make test": "is what runs this test",
    "make cluster": "serves until it is stopped; tests/services/batches/test_cluster.py runs Ray where it is installed",
    "make demo-data": "sets up what is missing; tests/demo/test_data_set.py runs what it calls",
    "python -m pipeline fetch paper": "brings 49 GB; tests/cli/test_model_commands.py runs it against a small hub",
    "python -m pipeline check paper": "needs those 49 GB; tests/cli/test_model_commands.py runs it with small models",
    "python app.py": "serves until it is stopped; tests/ui/test_app.py and tests/browser/test_proxies.py start it",
    "ssh ": "there is no other machine",
    "docker ": "there is no Docker; a machine with it has to build the image",
    "kubectl ": NO_CLUSTER,
    "sbatch ": NO_CLUSTER,
    "pass=$(sbatch ": NO_CLUSTER,
    "srun ": "runs inside a job of SLURM, which is not here",
    "cd /shared/": "is a line of a job of SLURM, which is not here",
    ".venv/bin/python -m pip install": "needs the network",
    "python -m experiments.train_perturber": "takes minutes; tests/experiments/test_train_perturber.py trains less",
    "python -m pipeline batch run PLAN.toml --ray": "tests/services/batches/test_cluster.py runs it where there is Ray",
    "RAY_USAGE_STATS_ENABLED=0 .venv/bin/ray": NO_CLUSTER,
    ".venv/bin/ray ": NO_CLUSTER,
    ".venv/bin/python -m experiments.coverage": "takes half an hour; tests/experiments/test_coverage.py runs less",
    "python -m evaluation retrain ": "trains for minutes; tests/services/evaluation/ trains less",
    ".venv/bin/python -m evaluation sensitivity --filter class=bird --model timm:resnet50": "its weights are not here",
}
"""Beginnings of commands that this test does not run, each with the reason."""
ELSEWHERE = {
    "docs/scripting.md": "tests/ui/scripts/test_scripting.py; there is no Node.js for the one in JavaScript",
    "docs/models-under-test.md": "tests/evaluation/test_adapters_http.py",
    "docs/first-test-case.md": "tests/services/runs/test_ui_exchange.py loads such a file with the same line",
}
"""Pages whose Python and JavaScript another test runs, with that test."""
COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "pipeline": cli.pipeline.main,
    "evaluation": cli.evaluation.main,
    "storage": cli.storage.main,
    "services.curation": cli.curation.main,
    "services.studies": cli.studies.main,
    "services.test_sets": cli.test_sets.main,
}
WAITS_FOR_YES = 4
CODES = {
    "python -m services.test_sets diff": {1},  # the versions differ
    "python -m services.test_sets leaks": {1},  # the folder contains an image of the set
    "python -m pipeline batch run plan.toml --methods": {3},  # the stand-ins cannot make the images of one method
    "python -m pipeline batch run compared/plan.toml": {3},
    "python -m pipeline batch run 1": {0, WAITS_FOR_YES},
    "python -m pipeline batch merge": {0, WAITS_FOR_YES},
    "python -m pipeline batch run plan.toml": {WAITS_FOR_YES},
    "python -m pipeline batch run factors.toml": {WAITS_FOR_YES},
    ".venv/bin/python -m evaluation gate": {4},  # three sources are too few
}
"""Expected exit codes that a page documents, by the beginning of the command. All others end with 0."""


@dataclass(frozen=True)
class Block:
    """Fenced code block of a page."""

    page: str
    language: str
    text: str

    def commands(self) -> list[str]:
        """Return the commands of the block without comments. Continued lines are joined."""
        whole = re.sub(r"(\|)\s*\n|\\\s*\n", r"\1 ", re.sub(r"(?m)(^|\s)#.*$", "", self.text))
        return [line.strip() for line in whole.splitlines() if line.strip()]


def blocks_of(page: Path) -> list[Block]:
    name = page.relative_to(ROOT).as_posix()
    return [Block(name, *found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SHELL = {page: [one for one in BLOCKS if one.page == page and one.language in ("sh", "bash")] for page in
         dict.fromkeys(block.page for block in BLOCKS)}  # fmt: skip


def reason(command: str) -> str:
    """Return why a command is left out, or ""."""
    return next((why for begins, why in NOT_RUN.items() if command.startswith(begins)), "")


@dataclass
class Shell:
    """Runs commands of a page in `folder`, which contains a workspace named `workspace`."""

    folder: Path
    patch: pytest.MonkeyPatch
    replaced: dict[str, str] = field(default_factory=dict)
    """Replacements by placeholder, for values that a page cannot know, such as the hash of an image."""

    def run(self, command: str) -> None:
        """Run a command. Fails for an exit code that the page does not document."""
        begins = next((begins for begins in CODES if command.startswith(begins)), "")
        for old, new in self.replaced.items():
            command = command.replace(old, new)
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.patch.setenv(name, value)
            return
        code = self._shell(command) if re.search(r"[|$]", command) else self._here(shlex.split(command))
        assert code in CODES.get(begins, {0}), f"{command!r} ended with {code}"

    def _here(self, words: Sequence[str]) -> int:
        assert words[0] in ("python", ".venv/bin/python") and words[1] == "-m", f"nothing runs {words}"
        try:
            return COMMANDS[words[2]](words[3:])
        except SystemExit as end:
            return int(end.code or 0) if not isinstance(end.code, str) else 1

    def _shell(self, command: str) -> int:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = command.replace("python -m", f"{shlex.quote(sys.executable)} -m")
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], env=environment, check=False, timeout=120)
        return done.returncode

    def block(self, block: Block) -> None:
        for command in block.commands():
            if not reason(command):
                self.run(command)


def test_every_test_that_a_page_names_is_there() -> None:
    named = {found for page in PAGES for found in re.findall(r"`(tests/\S+\.py)::(test_\w+)`", page.read_text("utf-8"))}
    assert len(named) > 30
    for file, name in sorted(named):
        assert f"\ndef {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"


@pytest.fixture(scope="module")
def drawn_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace of drawn scenes of both tasks, more than half of them reviewed. Tests work on copies."""
    folder = tmp_path_factory.mktemp("docs") / "workspace"
    with workspace_in(folder) as workspace:
        drawn.fill(workspace, 9, 4, pixels=48)
    return folder


@pytest.fixture
def shell(tmp_path: Path, drawn_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Folder of a user who follows a page, with the pictures that the page names."""
    shutil.copytree(drawn_workspace, tmp_path / "workspace")
    Image.radial_gradient("L").resize((96, 64)).convert("RGB").save(tmp_path / "picture.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKSPACE", raising=False)
    monkeypatch.setattr(cli.pipeline, "load_models", lambda profile: ScriptedModels())

    @contextmanager
    def stand_ins(*_: Any) -> Iterator[Callable[[Order], Pool]]:
        yield lambda order: HerePool(order, lambda order: Worker(order, ScriptedModels()))  # type: ignore[arg-type]

    monkeypatch.setattr(cli.batches, "pools", stand_ins)
    return Shell(tmp_path, monkeypatch, {"IMAGE": "picture.png"})


def pixels(file: Path) -> bytes:
    with Image.open(file) as image:
        return image.tobytes()


# Preparations before the first block of each page, between its blocks, and checks after the last block


def follow_command_line(shell: Shell) -> None:
    for block in SHELL["docs/command-line.md"]:
        shell.block(block)
    first, again = ({file.name: pixels(file) for file in Path(name).glob("image-???.png")} for name in ("DIR", "OTHER"))
    assert first == again and len(first) > 1


def follow_readme(shell: Shell) -> None:
    for block in SHELL["README.md"]:
        shell.block(block)
    assert list((shell.folder / "DIR").glob("*.png"))
    with Workspace(shell.folder / "folder") as restored:
        assert len(restored.catalogue.ids()) == 36


def follow_serving(shell: Shell) -> None:
    shell.replaced["study-2026-11-21.zip"] = f"study-{date.today():%Y-%m-%d}.zip"
    for block in SHELL["docs/serving.md"]:
        shell.block(block)
    assert (shell.folder / "elsewhere" / "studio.db").is_file()


def follow_batches(shell: Shell) -> None:
    pictures(shell.folder / "sets", 2)
    (shell.folder / "plan.toml").write_text(plan_text(shell.folder / "sets"), encoding="utf-8")
    shell.patch.setenv("WORKSPACE", "workspace")
    for block in SHELL["docs/batches.md"]:
        shell.block(block)
    with Workspace(shell.folder / "workspace") as workspace:
        assert len(workspace.catalogue.ids()) == 36 + 4


def follow_clusters(shell: Shell) -> None:
    pictures(shell.folder / "sets", 2)
    (shell.folder / "PLAN.toml").write_text(plan_text(shell.folder / "sets"), encoding="utf-8")
    shell.patch.setenv("WORKSPACE", "workspace")
    shell.replaced |= {"hand-out 3": "hand-out 1", "run 3 --shard 1/16": "run 1 --shard 1/1", "merge 3": "merge 1"}
    for block in SHELL["docs/clusters.md"]:
        shell.block(block)
    with Workspace(shell.folder / "workspace") as workspace:
        assert workspace.batches.get(1).stage == "language", "the captions are merged"


def follow_test_sets(shell: Shell) -> None:
    create, following, by_hand, files, leaks = SHELL["docs/test-sets.md"]
    shell.block(create)
    with Workspace(shell.folder / "workspace") as workspace:
        entries = workspace.catalogue.page(ImageFilter(facets={"review": ("open",)})).entries
        one, other = [entry.id for entry in entries][:2]
        for case in (one, other):
            workspace.test_cases.review(case, "accepted")
    shell.replaced["17 21"] = f"{one} {other}"
    shell.block(following)
    shell.run('python -m services.test_sets draft "Night birds"')
    with Workspace(shell.folder / "workspace") as workspace:
        draft = set_called(workspace, "Night birds").draft
        assert draft is not None
        held = [entry.image[:12] for entry in workspace.test_sets.entries(draft.number) if entry.label]
    shell.replaced |= {"3f1c0a9d2b77": held[0], "a04411": held[1]}
    shell.block(by_hand)
    shell.block(files)
    first = next((shell.folder / "night-birds" / "test" / "images").glob("*.png"))
    (shell.folder / "training").mkdir()
    shutil.copy(first, shell.folder / "training")
    shell.replaced["/data/training"] = "training"
    shell.block(leaks)
    shutil.copytree(shell.folder / "night-birds", shell.folder / "drawn-hard-v1-imagefolder")
    (script,) = (block for block in BLOCKS if block.page == "docs/test-sets.md" and block.language == "python")
    own = {**os.environ, "HF_DATASETS_CACHE": str(shell.folder / "loaded")}
    done = subprocess.run([sys.executable, "-c", script.text], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr


def follow_formats(shell: Shell) -> None:
    shell.patch.setenv("WORKSPACE", "workspace")
    for command in ("create Birds", "add Birds --filter review=accepted", "split Birds --test 1", "release Birds"):
        shell.run(f"python -m services.test_sets {command}")
    (script,) = (block for block in BLOCKS if block.page == "docs/formats.md" and block.language == "python")
    with Workspace(shell.folder / "workspace") as workspace:
        version = set_called(workspace, "Birds").versions[0]
        examples = list(VersionImages(workspace, version).all())
        header = formats.types.TestSet(version.set_name, version.id)
        names: dict[str, Any] = {"test_set": header, "examples": examples}
        exec(script.text, names)
        assert len(names["found"].examples) == len(examples)
    shell.run("python -m services.test_sets export Birds@1 night --format imagefolder")
    shutil.make_archive("night", "zip", "night")
    shell.run("python -m services.test_sets draft Birds")
    pictures(shell.folder / "photos", 1)
    for block in SHELL["docs/formats.md"]:
        shell.block(block)


def follow_evaluate(shell: Shell) -> None:
    """Compute the maps' figures in few steps and of few images. `test_focus.py` tests the figures themselves."""
    shell.patch.setattr(evaluation.focus, "STEPS", 4)
    shell.patch.setattr(focus, "MOST_INFORMATION", 8)
    evaluated(shell)
    for block in SHELL["docs/evaluate.md"]:
        shell.block(block)


def follow_gate(shell: Shell) -> None:
    evaluated(shell)
    for name in ("old", "new"):
        shutil.copy(evaluation_cases.CLASSIFIER.file, f"{name}.safetensors")
    for block in SHELL["docs/gate.md"]:
        shell.block(block)
    assert 'errors="1"' in Path("gate.xml").read_text(encoding="utf-8")


def follow_evidence(shell: Shell) -> None:
    evaluated(shell)
    write, check = SHELL["docs/evidence.md"]
    shell.block(write)
    with zipfile.ZipFile("birds.zip") as archive:
        archive.extractall()
    assert check.commands()[-1] == "check/bin/python recompute.py"
    done = subprocess.run([sys.executable, "birds/recompute.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "; 0 differ." in done.stdout, done.stdout + done.stderr


def follow_search(shell: Shell) -> None:
    """The pictures are noise, so the reply only says what the search chose."""
    pictures(shell.folder / "sets", 3)
    Path("plan.toml").write_text(plan_text(shell.folder / "sets", captions=4), encoding="utf-8")
    shutil.rmtree("workspace")
    workspace_in(shell.folder / "workspace").close()
    for block in SHELL["docs/search.md"]:
        shell.block(block)
    with Workspace(shell.folder / "workspace") as workspace:
        assert any(one.chosen_by and one.test_case for one in workspace.batches.candidates(1))


def follow_factors(shell: Shell) -> None:
    """The pictures are one colour each, and too few to tell anything."""
    pictures(shell.folder / "photos", 3)
    plans = [block.text for block in BLOCKS if block.page == "docs/factors.md" and block.language == "toml"]
    for name, plan in zip(("factors", "unchanged"), plans, strict=True):
        Path(f"{name}.toml").write_text(plan, encoding="utf-8")
    shutil.rmtree("workspace")
    workspace_in(shell.folder / "workspace").close()
    for block in SHELL["docs/factors.md"]:
        shell.block(block)
    with Workspace(shell.folder / "workspace") as workspace:
        assert len(workspace.catalogue.ids()) == 3 * 7 + 3


def follow_compare_methods(shell: Shell) -> None:
    """The pictures are noise, and too few to tell anything. The stand-ins cannot make LANCE's images."""
    pictures(shell.folder / "sets", 3)
    Path("plan.toml").write_text(plan_text(shell.folder / "sets", captions=2), encoding="utf-8")
    Path("compared").mkdir()
    shutil.copy("plan.toml", "compared/plan.toml")
    shutil.rmtree("workspace")
    workspace_in(shell.folder / "workspace").close()
    for block in SHELL["docs/compare-methods.md"]:
        shell.block(block)
    with Workspace(shell.folder / "workspace") as workspace:
        counts = workspace.catalogue.facets(names=("recipe", "start"))
        assert {"dillema", "aga", "reconstruction"} == set(counts["recipe"])
        assert all(counts["start"][one] for one in ("noise", "inverted"))
        assert len(workspace.batches.all()) == 7, "the same plan again makes no batch"


def follow_class_mapping(shell: Shell) -> None:
    evaluated(shell)
    (shell.folder / "mapping.csv").write_text("label,model class\nbird,bird\n", encoding="utf-8")
    for block in SHELL["docs/class-mapping.md"]:
        shell.block(block)


def follow_plainly(page: str, shell: Shell) -> None:
    """Run the commands of a page that need nothing but a workspace and a picture."""
    for block in SHELL[page]:
        shell.block(block)


def set_called(workspace: Workspace, name: str) -> TestSet:
    return next(one for one in workspace.test_sets.all() if one.name == name)


def evaluated(shell: Shell) -> None:
    """Prepare a workspace with two versions of the test set Birds, which the demo's classifier can read."""
    shutil.rmtree(shell.folder / "workspace")
    with workspace_in(shell.folder / "workspace") as workspace:
        evaluation_cases.fill(workspace, 3)
        for case in workspace.catalogue.test_cases(workspace.catalogue.ids()):
            workspace.test_cases.review(case, "accepted")
    shell.patch.setenv("WORKSPACE", "workspace")
    for command in (
        "create Birds",
        "add Birds --filter 'review=accepted&kind=classification' --sources",
        "release Birds",
        "draft Birds",
        "split Birds --test 1",
        "release Birds",
    ):
        shell.run(f"python -m services.test_sets {command}")


def follow_laptop(shell: Shell) -> None:
    """Put a cup in front of background pictures. One picture has print colours and one is broken. No model is asked."""
    shell.patch.setattr(cli.pipeline, "load_models", load_models)
    photo = Image.new("RGB", (320, 240), (90, 110, 60))
    ImageDraw.Draw(photo).rectangle((110, 70, 210, 200), (200, 30, 40))
    photo.save("photo.jpg", quality=95)
    Path("backgrounds").mkdir()
    Image.new("RGB", (500, 300), (20, 60, 200)).save("backgrounds/sea.png")
    Image.new("CMYK", (90, 160), (0, 90, 200, 10)).save("backgrounds/wall.jpg")
    Path("backgrounds/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    follow_plainly("docs/laptop.md", shell)
    shown, cup = np.asarray(Image.open("photo.jpg")), np.zeros((240, 320), bool)
    cup[80:190, 120:200] = True
    for folder, images in (("made", 2), ("moved", 8)):
        record = run_file.read(Path(folder) / "run.json")
        assert len(record.images) == images
        for image in record.images:
            assert (image.record.lineage.settings.plain()["matrix"] is None) == (folder == "made")
            if folder == "made":  # every readable file is used, and the cup stays in its place
                pixels = np.asarray(Image.open(f"{folder}/{image.file}"))
                assert (pixels[cup] == shown[cup]).all() and (pixels[20, 20] != shown[20, 20]).any()
                assert "broken.png" in str(record.run.values["counterfactuals"].trace.notes)


FOLLOWED: Mapping[str, Callable[[Shell], None]] = {
    "README.md": follow_readme,
    "docs/batches.md": follow_batches,
    "docs/class-mapping.md": follow_class_mapping,
    "docs/clusters.md": follow_clusters,
    "docs/command-line.md": follow_command_line,
    "docs/compare-methods.md": follow_compare_methods,
    "docs/evaluate.md": follow_evaluate,
    "docs/factors.md": follow_factors,
    "docs/evidence.md": follow_evidence,
    "docs/formats.md": follow_formats,
    "docs/gate.md": follow_gate,
    "docs/laptop.md": follow_laptop,
    "docs/models.md": partial(follow_plainly, "docs/models.md"),
    "docs/paper-and-here.md": partial(follow_plainly, "docs/paper-and-here.md"),
    "docs/retraining.md": partial(follow_plainly, "docs/retraining.md"),
    "docs/search.md": follow_search,
    "docs/serving.md": follow_serving,
    "docs/test-sets.md": follow_test_sets,
}


def test_every_block_names_its_language_and_somebody_runs_its_programs() -> None:
    assert [(block.page, block.text[:40]) for block in BLOCKS if not block.language] == []
    for block in BLOCKS:
        if block.language in ("sh", "bash"):
            left = [command for command in block.commands() if not reason(command) and not command.startswith("#!")]
            assert block.page in FOLLOWED or not left, f"{block.page}: nothing runs {left}"
        elif block.language in PROGRAMS:
            assert block.page in FOLLOWED or block.page in ELSEWHERE, f"{block.page}: nothing runs {block.text[:60]!r}"
    known = [command for block in BLOCKS if block.language in ("sh", "bash") for command in block.commands()]
    assert [begins for begins in NOT_RUN if not any(one.startswith(begins) for one in known)] == [], (
        "left out for nothing"
    )


@pytest.mark.parametrize("page", sorted(FOLLOWED))
def test_the_commands_of_a_page_run_as_they_stand_there(page: str, shell: Shell) -> None:
    FOLLOWED[page](shell)


def test_the_readme_is_short_and_begins_with_what_it_is_and_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    begins = "\n".join(lines[:10])
    assert len(lines) <= 120
    assert "make run" in begins and "make test" in begins and "vision model" in begins and "annotators" in begins
