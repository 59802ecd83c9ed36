"""Kinds of work in which a process is killed: how each begins, resumes, and is checked afterwards.

Each works in a folder of its own with a `workspace` and the files that go in and come out. A child process does the
work, and reports each thing once the studio acknowledged it. `tests.soak.kills` kills the child repeatedly.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
import threading
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from safetensors.numpy import load_file

from core.image_filter import ImageFilter
from core.images import file_hash
from core.test_sets import SetVersion
from evaluation.retraining.stored_training import kept_state, weights_in
from formats.draft import MANIFEST
from pipeline.recipes import RECONSTRUCTION
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import read_plan
from services.batches.pools import HerePool
from services.batches.service import BatchService
from services.batches.work import Worker
from services.curation.decisions import CurationDecisions, ImagesCommand
from services.curation.import_source import bring_in
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.retraining.results import result_facts
from services.evaluation.retraining.weights import trainings_of
from services.evaluation.types import Subject
from services.studio import Studio
from services.test_sets.drafts import ReleaseTestSet, TestSetDrafts
from services.test_sets.examples import export_version
from storage.backup import backup, restore
from storage.curation.imports import NewImage
from storage.damage import damage
from storage.workspace import DATABASE, Workspace
from tests.support.batch_cases import batch_images, pictures, plan_text
from tests.support.batch_kills import drawn_data, plan_file
from tests.support.evaluation_cases import BIRDS, FEW, fill, service_of
from tests.support.retrain_cases import QUICK
from tests.support.scripted import ScriptedModels, over, studio_in
from tests.support.set_cases import picture, run_of
from tests.support.study_desk import assert_counted, crew, started
from tests.support.voting_process import annotator
from tests.support.workspaces import workspace_in

Thing = tuple[str, str]
"""An acknowledged thing: its name and its content."""
Tell = Callable[[Thing], object]


@dataclass(frozen=True)
class Seen:
    """State after a kill."""

    things: Sequence[Thing]
    twice: Sequence[str] = ()
    """Names of things that exist more often than they should."""
    wrong: Sequence[str] = ()
    """Faults such as incomplete or damaged things, in one sentence each."""
    told: str = ""
    """The studio's message about unfinished work, in a few words."""


class KilledWork(ABC):
    """A kind of work that is killed."""

    name: ClassVar[str]
    share: ClassVar[float]
    """Share of this kind in all kills."""
    told: ClassVar[str]
    """For the report: how the studio shows unfinished work of this kind."""

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Fill an empty folder with what the work needs at its beginning."""

    @abstractmethod
    def work(self, folder: Path, tell: Tell) -> None:
        """Resume the work, finish it, and report the acknowledged things."""

    @abstractmethod
    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        """Open the workspace like the next start of a studio, and return what is there."""

    @abstractmethod
    def result(self, folder: Path) -> Any:
        """Return the result of finished work. It must be the same with and without kills."""


def child(connection: Connection, kind: KilledWork, folder: Path) -> None:
    """Run the work in a child process, and send the acknowledged things and the outcome over the connection."""
    connection.send("begun")
    try:
        kind.work(folder, connection.send)
    except Exception:  # noqa: BLE001 - the report tells it
        connection.send(["failed", traceback.format_exc()])
    else:
        connection.send("over")


def repeated(things: Iterable[str]) -> list[str]:
    """Return the things that occur more than once."""
    return [f"{thing}, {number} times" for thing, number in Counter(things).items() if number > 1]


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the database of a folder's workspace."""
    with closing(sqlite3.connect(f"file:{folder / 'workspace' / DATABASE}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def content_of(folder: Path) -> str:
    """Return a hash of the names and contents of all files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = "".join(f"{path.relative_to(folder)} {file_hash(path)}\n" for path in files)
    return hashlib.sha256(whole.encode()).hexdigest()


def weights_hash(file: Path) -> str:
    """Return a hash of the weights in a file that does not depend on the order of its header."""
    whole = hashlib.sha256()
    for name, values in sorted(load_file(file).items()):
        whole.update(f"{name} {values.shape}".encode() + values.tobytes())
    return whole.hexdigest()


class Votes(KilledWork):
    """Four annotators vote, and take some of it back."""

    name, share = "votes", 0.12
    told = "the study counts what is missing, and gives a held item to somebody again"

    def prepare(self, folder: Path) -> None:
        with workspace_in(folder / "workspace") as workspace:
            crew(workspace.studies, started(workspace, items=30, votes=2, lease_minutes=0.05 / 60), 4)

    def work(self, folder: Path, tell: Tell) -> None:
        lock = threading.Lock()

        def say(event: str, public: str, answer: str) -> None:
            with lock:
                tell((public, f"{event} {answer}"))

        with Workspace(folder / "workspace") as workspace:
            study, workers = self._study(folder)
            threads = [
                threading.Thread(target=annotator, args=(workspace.studies, study, worker, say)) for worker in workers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        study, _ = self._study(folder)
        with Workspace(folder / "workspace") as workspace:
            data = workspace.studies.data(study)
        assert_counted(folder / "workspace")
        words = {"submitted": "saved", "withdrawn": "undone"}
        query = """
            SELECT public, event, answers FROM study_votes JOIN assignments ON assignments.id = assignment
            ORDER BY study_votes.id
        """
        things, twice, last = [], list[str](), dict[str, str]()
        for public, event, answers in rows(folder, query):
            things.append((public, f"{words[event]} {json.loads(answers)['valid'] if event == 'submitted' else '-'}"))
            if last.get(public) == event:
                twice.append(f"{public} {event}")
            last[public] = event
        counts = Counter(vote.item for vote in data.votes)
        twice += [f"item {item}" for item, votes in counts.items() if votes > data.study.rules.votes]
        wrong = [] if data.study.votes == len(data.votes) else ["the study miscounts its votes"]
        missing = data.study.votes < data.study.needed
        return Seen(things, twice, wrong, "votes missing" if missing else "all votes there")

    def result(self, folder: Path) -> Any:
        study, _ = self._study(folder)
        with Workspace(folder / "workspace") as workspace:
            return sorted(Counter(vote.item for vote in workspace.studies.data(study).votes).items())

    @staticmethod
    def _study(folder: Path) -> tuple[str, list[str]]:
        (study,) = {study for (study,) in rows(folder, "SELECT study FROM enrolments")}
        return study, [worker for (worker,) in rows(folder, "SELECT worker FROM enrolments ORDER BY worker")]


class Decisions(KilledWork):
    """A person accepts, rejects, tags and relabels six images at a time, and takes some of it back."""

    name, share = "decisions", 0.12
    told = "a decision is there of all its images, or of none"
    NUMBER = 60

    def prepare(self, folder: Path) -> None:
        with workspace_in(folder / "workspace") as workspace:
            run_of(workspace, 1, range(10, 16), accepted=False)

    def work(self, folder: Path, tell: Tell) -> None:
        with Workspace(folder / "workspace") as workspace:
            decisions, entries = CurationDecisions(workspace), workspace.catalogue.ids()
            done = {one.author: one.id for one in workspace.decisions.all(1000)}
            # Repeat the last request, like a page whose reply was lost.
            for number in range(max(0, len(done) - 1), self.NUMBER):
                about = {"author": f"decision {number}", "key": f"key {number}"}
                if number % 4 == 0:
                    verdict = "rejected" if number % 8 else "accepted"
                    made = decisions.decide(ImagesCommand(entries=entries, **about), verdict)  # type: ignore[arg-type]
                elif number % 4 == 1:
                    made = decisions.tag(ImagesCommand(entries=entries, **about), f"tag {number}")
                elif number % 4 == 2:
                    made = decisions.relabel(ImagesCommand(entries=entries, **about), f"label {number}")
                else:
                    before = done[f"decision {number - 1}"]
                    made = decisions.undo(decision=before, **about)  # type: ignore[arg-type]
                done[about["author"]] = made.decision
                tell((about["author"], str(made.decision)))

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        with Workspace(folder / "workspace") as workspace:
            made = workspace.decisions.all(1000)
            images_of = Counter(
                one.decision for entry in workspace.catalogue.ids() for one in workspace.decisions.of_entry(entry)
            )
        wrong = [
            f"{one.author} is of {images_of[one.id]} images and not of 6" for one in made if images_of[one.id] != 6
        ]
        things = [(one.author, str(one.id)) for one in made]
        return Seen(things, repeated(one.author for one in made), wrong, "whole or not there")

    def result(self, folder: Path) -> Any:
        with Workspace(folder / "workspace") as workspace:
            made = [(one.author, one.kind, one.what, one.entries, one.undoes) for one in workspace.decisions.all(1000)]
            shown = [
                (one.verdict, one.classes, one.tags) for one in workspace.catalogue.listed(workspace.catalogue.ids())
            ]
        return made, shown


class Batches(KilledWork):
    """A plan becomes test cases, with stand-ins for the models."""

    name, share = "batches", 0.08
    told = "the batch is “stopped”, or waits for a yes"

    def prepare(self, folder: Path) -> None:
        self._draw_data(folder / "data")
        with workspace_in(folder / "workspace"):
            pass

    def work(self, folder: Path, tell: Tell) -> None:
        # The folder may be a copy, so the plan must name this folder's data.
        self._write_plan(folder)
        known = set[Thing]()
        with Workspace(folder / "workspace") as workspace:

            def say(*_: object) -> None:
                for thing in self._done(folder):
                    if thing not in known:
                        known.add(thing)
                        tell(thing)

            service = BatchService(workspace)
            number = service.plan(read_plan(folder / "plan.toml"))
            tell(("batch", str(number)))
            pool = partial(HerePool, make=self._worker)
            while Engine(workspace, number, service.order(number), pool, tell=say).run() == "approval":
                workspace.batches.approve(number)
                tell(("approved", str(number)))

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        with Workspace(folder / "workspace") as workspace:
            batches = [one.id for one in workspace.batches.all()]
            service = BatchService(workspace)
            states = "".join(service.status(number).state for number in batches) or "no batch yet"
            approved = [number for number in batches if workspace.batches.get(number).approved is not None]
            cases = sum(len(workspace.runs.get(run.id).test_cases) for run in workspace.runs.search(10_000))
        done = self._done(folder)
        images = sum(content != "" for _, content in done)
        twice = repeated(thing for thing, _ in done)
        if cases != images or len(batches) > 1:
            twice.append(f"{cases} test cases for {images} images that are done, {len(batches)} batches")
        things = [*done, *(("batch", str(one)) for one in batches), *(("approved", str(one)) for one in approved)]
        wrong = ["it is told as running"] if states == "running" else []
        return Seen(things, twice, wrong, f"“{states}”")

    def result(self, folder: Path) -> Any:
        return sorted(batch_images(Workspace(folder / "workspace"), 1).values())

    def _draw_data(self, data: Path) -> None:
        pictures(data, 6)

    def _write_plan(self, folder: Path) -> None:
        (folder / "plan.toml").write_text(plan_text(folder / "data"), encoding="utf-8")

    def _worker(self, order: Order) -> Worker:
        return Worker(order, ScriptedModels())  # type: ignore[arg-type]

    @staticmethod
    def _done(folder: Path) -> list[Thing]:
        query = """
            SELECT pass || ' ' || key, coalesce(image, '') FROM batch_work
                LEFT JOIN test_cases ON test_cases.id = test_case
            WHERE batch_work.state = 'done'
        """
        return [(what, image) for what, image in rows(folder, query)]


class Edits(Batches):
    """A plan becomes images of LANCE, with the embedded models: captions, inversions and edits."""

    name, share = "edits", 0.04

    def _draw_data(self, data: Path) -> None:
        drawn_data(data, 2)

    def _write_plan(self, folder: Path) -> None:
        plan = plan_file(folder, folder / "data", together=1)
        text = plan.read_text(encoding="utf-8")
        plan.write_text(text.replace('profile = "demo"', 'profile = "demo"\nrecipe = "lance"'), encoding="utf-8")

    def _worker(self, order: Order) -> Worker:
        import torch

        torch.set_num_threads(1)
        return Worker(order)


class Imports(KilledWork):
    """A folder of images is brought in, three at a time."""

    name, share = "imports", 0.12
    told = "the import is “unfinished”"

    def prepare(self, folder: Path) -> None:
        for number in range(24):
            place = folder / "birds" / ("train" if number % 2 else "test") / ("bird" if number % 3 else "boat")
            place.mkdir(parents=True, exist_ok=True)
            picture(number).save(place / f"{number}.png")
        (folder / "birds" / "train" / "bird" / "broken.png").write_bytes(b"no picture")
        with workspace_in(folder / "workspace"):
            pass

    def work(self, folder: Path, tell: Tell) -> None:
        with Workspace(folder / "workspace") as workspace:
            add = workspace.imports.add

            def told(number: int, images: Sequence[NewImage]) -> int:
                made = add(number, images)
                for one in images:
                    tell((one.name, one.image.sha))
                return made

            workspace.imports.add = told  # type: ignore[method-assign]
            bring_in(workspace, folder / "birds", at_once=3)
            tell(("import", "done"))

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        with Workspace(folder / "workspace") as workspace:
            found = workspace.imports.all()
            images = [one for own in found for one in workspace.imports.images(own.id)]
            catalogue = [one.image_sha for one in workspace.catalogue.listed(workspace.catalogue.ids())]
        twice = [*repeated(one.image for one in images), *repeated(catalogue), *repeated(one.name for one in found)]
        wrong = [] if sorted(catalogue) == sorted(one.image for one in images) else ["catalogue and import differ"]
        things = [(one.name, one.image) for one in images]
        things += [("import", own.state) for own in found]
        return Seen(things, twice, wrong, "".join(f"“{own.state}”" for own in found) or "no import yet")

    def result(self, folder: Path) -> Any:
        with Workspace(folder / "workspace") as workspace:
            (own,) = workspace.imports.all()
            images = sorted((one.name, one.image, one.label, one.split) for one in workspace.imports.images(own.id))
            rows = sorted((row.file, row.reason) for _, row in workspace.imports.rows(own.id))
            return images, rows, own.state, workspace.images.orphans(), (workspace.folder / "importing").exists()


class Releases(KilledWork):
    """A test set is released again and again, each time with two images more."""

    name, share = "releases", 0.12
    told = "what is not released is still the draft"
    VERSIONS = 12

    def prepare(self, folder: Path) -> None:
        with workspace_in(folder / "workspace") as workspace:
            run_of(workspace, 1, range(10, 10 + 2 * self.VERSIONS))
            workspace.test_sets.create("Birds")

    def work(self, folder: Path, tell: Tell) -> None:
        with Workspace(folder / "workspace") as workspace:
            sets, drafts = workspace.test_sets, TestSetDrafts(workspace)
            (own,) = sets.all()
            cases = sorted(case for (case,) in rows(folder, "SELECT id FROM test_cases"))
            while True:
                latest = max(sets.get(own.id).versions, key=lambda one: one.place)
                if not latest.is_draft:
                    if latest.place == self.VERSIONS:
                        return
                    latest = drafts.begin(latest.id)
                    tell((f"version {latest.place}", "begun"))
                drafts.add(own.id, cases[2 * latest.place - 2 : 2 * latest.place])
                for entry in sets.entries(latest.number):
                    tell((f"image of version {latest.place}", entry.image))
                released = drafts.release(ReleaseTestSet(test_set=own.id, note=f"Version {latest.place}"))
                tell((f"version {released.place}", released.id))

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        with Workspace(folder / "workspace") as workspace:
            (own,) = workspace.test_sets.all()
            versions = own.versions
            entries = {one.place: workspace.test_sets.entries(one.number) for one in versions}
        things = [(f"version {one.place}", "begun") for one in versions]
        things += [(f"version {one.place}", one.id) for one in versions if not one.is_draft]
        things += [(f"image of version {place}", entry.image) for place, some in entries.items() for entry in some]
        twice = [*repeated(one.id for one in versions), *repeated(str(one.place) for one in versions)]
        twice += [text for some in entries.values() for text in repeated(entry.image for entry in some)]
        wrong = [
            f"version {one.place} has {len(entries[one.place])} images"
            for one in versions
            if not one.is_draft and len(entries[one.place]) != 2 * one.place
        ]
        drafts = sum(one.is_draft for one in versions)
        return Seen(things, twice, wrong, "a draft" if drafts else "all versions whole")

    def result(self, folder: Path) -> Any:
        with Workspace(folder / "workspace") as workspace:
            return sorted((one.place, one.id, one.note) for one in workspace.test_sets.all()[0].versions)


class Exports(KilledWork):
    """A version is exported in four formats, and over an earlier export of another format."""

    name, share = "exports", 0.12
    told = "a folder that is not whole is named “unfinished-…”, and the next export removes it"
    LAYOUTS = ("imagefolder", "coco", "csv", "webdataset")

    def prepare(self, folder: Path) -> None:
        with workspace_in(folder / "workspace") as workspace:
            drafts, number = TestSetDrafts(workspace), workspace.test_sets.create("Birds")
            drafts.add(number, run_of(workspace, 1, range(10, 16)), sources=True)
            drafts.release(ReleaseTestSet(test_set=number))
        (folder / "out").mkdir()

    def work(self, folder: Path, tell: Tell) -> None:
        with Workspace(folder / "workspace") as workspace:
            version: SetVersion = workspace.test_sets.all()[0].versions[0]
            for layout in self.LAYOUTS:
                into = folder / "out" / layout
                if not into.exists():
                    tell((layout, content_of(export_version(workspace, version, into, layout))))
            into, last = folder / "out" / "replaced", len(self.LAYOUTS) - 1
            # Always write the last export, which removes the leftovers of a kill.
            for layout in self.LAYOUTS[min(last, self._standing(folder) + 1) :]:
                tell((f"replaced by {layout}", content_of(export_version(workspace, version, into, layout, True))))

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        places = sorted((folder / "out").iterdir())
        left = [path for path in places if ".unfinished-" in path.name]
        things, wrong = list[Thing](), list[str]()
        for path in places:
            if path in left:
                continue
            wrong += self._not_whole(path)
            if path.name != "replaced":
                things.append((path.name, content_of(path)))
        standing = self._standing(folder)
        # The content of replaced exports is the same for any name of the folder.
        contents: Mapping[str, str] = {what.removeprefix("replaced by "): content for what, content in acknowledged}
        things += [(f"replaced by {layout}", contents.get(layout, "")) for layout in self.LAYOUTS[: standing + 1]]
        if standing >= 0:
            now = content_of(self._replaced(folder))
            if contents.get(self.LAYOUTS[standing], now) != now:
                wrong.append(f"the export over an earlier one is not that of {self.LAYOUTS[standing]}")
        return Seen(things, (), wrong, "a folder “unfinished-…”" if left else "nothing half is left")

    def result(self, folder: Path) -> Any:
        return sorted((path.name, content_of(path)) for path in (folder / "out").iterdir())

    @staticmethod
    def _replaced(folder: Path) -> Path:
        """Return the folder of the replaced export, also if a kill came between its two renames."""
        into = folder / "out" / "replaced"
        return into if into.exists() else next(into.parent.glob("replaced.unfinished-*.before"), into)

    def _standing(self, folder: Path) -> int:
        """Return the index of the format of the replaced export, or -1 before the first export."""
        manifest = self._replaced(folder) / MANIFEST
        if not manifest.exists():
            return -1
        return self.LAYOUTS.index(json.loads(manifest.read_text(encoding="utf-8"))["layout"])

    @staticmethod
    def _not_whole(path: Path) -> list[str]:
        if not (path / MANIFEST).exists():
            return [f"{path.name} has no manifest"]
        named = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"]
        here = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
        if here != {MANIFEST, *(file["name"] for file in named)}:
            return [f"{path.name} has other files than its manifest says"]
        return [
            f"{path.name}/{file['name']} has another hash than its manifest says"
            for file in named
            if file_hash(path / file["name"]) != file["sha256"]
        ]


class Backups(KilledWork):
    """A workspace in use is backed up, and each backup restored."""

    name, share = "backups", 0.12
    told = "a folder “.storage-…” is left, and the next backup or restore to that place removes it"
    NUMBER = 3

    def prepare(self, folder: Path) -> None:
        with workspace_in(folder / "workspace") as workspace:
            run_of(workspace, 1, range(10, 22))
        (folder / "out").mkdir()

    def work(self, folder: Path, tell: Tell) -> None:
        out = folder / "out"
        with Workspace(folder / "workspace"):
            for number in range(self.NUMBER):
                if not (out / f"{number}.zip").exists():
                    backup(folder / "workspace", out / f"{number}.zip")
                    tell((f"{number}.zip", "backup"))
                if not (out / f"{number}").exists():
                    restore(out / f"{number}.zip", out / f"{number}")
                    tell((f"{number}", "restored"))
            # Always write this one, which removes the leftovers of a kill.
            (out / "last.zip").unlink(missing_ok=True)
            backup(folder / "workspace", out / "last.zip")

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        things, wrong, out = list[Thing](), list[str](), folder / "out"
        expected = self._content(folder)
        left = sorted(out.glob(".storage-*"))
        for path in sorted({*out.iterdir()} - {*left}):
            things.append((path.name, "backup" if path.suffix else "restored"))
            with tempfile.TemporaryDirectory() as scratch:
                restored = Path(scratch) / "workspace"
                if path.suffix:
                    restore(path, restored)
                else:
                    restored.symlink_to(path)
                if damage(restored) or self._content(restored.parent) != expected:
                    wrong.append(f"{path.name} is not the workspace")
        return Seen(things, (), wrong, "a folder “.storage-…”" if left else "nothing half is left")

    def result(self, folder: Path) -> Any:
        return sorted(path.name for path in (folder / "out").iterdir())

    @staticmethod
    def _content(folder: Path) -> list[tuple[Any, ...]]:
        tables = ("images", "runs", "stage_values", "test_cases", "reviews", "catalogue")
        return [(table, *row) for table in tables for row in rows(folder, f"SELECT * FROM {table}")]


class Trainings(KilledWork):
    """A classifier is trained further: two arms by two seeds."""

    name, share = "trainings", 0.06
    told = "the training is “not done”, and what it has learnt is kept"
    ASKED = replace(QUICK, seeds=2, updates=4)

    def prepare(self, folder: Path) -> None:
        with workspace_in(folder / "workspace") as workspace:
            fill(workspace, 14, most=FEW)

    def work(self, folder: Path, tell: Tell) -> None:
        import torch

        torch.set_num_threads(1)
        known = set[Thing]()
        with Workspace(folder / "workspace") as workspace:
            service = service_of(workspace)

            def say(*_: object) -> None:
                for thing in self._trained(workspace):
                    if thing not in known:
                        known.add(thing)
                        tell(thing)

            Retrainings(workspace, service).retrain(self.ASKED, say)
            tell(("result", self.ASKED.digest))
            service.close()

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        with Workspace(folder / "workspace") as workspace:
            results = [one.asked for one in workspace.retrainings.kept()]
            trainings, done = trainings_of(workspace), self._trained(workspace)
        things = [*done, *(("result", question) for question in results)]
        twice = [*repeated(results), *repeated(f"{one.arm}, seed {one.seed}" for one in trainings)]
        wrong = [] if sum(one.done for one in trainings) == len(done) else ["what is told as done has no weights"]
        unfinished = any(not one.done for one in trainings)
        return Seen(things, twice, wrong, "“not done”" if unfinished else "no result yet" if not results else "done")

    def result(self, folder: Path) -> Any:
        with Workspace(folder / "workspace") as workspace:
            service = service_of(workspace)
            (kept,) = Retrainings(workspace, service).kept(BIRDS)
            service.close()
            facts = result_facts(kept.found, entries=False)
            return sorted(self._trained(workspace)), facts["rows"], facts["answer"]

    @staticmethod
    def _trained(workspace: Workspace) -> list[Thing]:
        found = []
        for folder in workspace.trainings.iterdir() if workspace.trainings.is_dir() else ():
            state, weights = kept_state(folder), weights_in(folder)
            if state is not None and weights is not None:
                found.append((f"{state.arm}, seed {state.seed}", weights_hash(weights)))
        return found


class ControlSets(KilledWork):
    """The sources of test cases are drawn once more, with stand-ins for the models."""

    name, share = "control sets", 0.1
    told = "the job of the run is “interrupted”, and the page counts what is missing"
    ALL: ClassVar[Subject] = Subject(filter=ImageFilter())
    RUNS = 8

    def prepare(self, folder: Path) -> None:
        with studio_in(folder) as studio:
            for number in range(self.RUNS):
                name = f"{number}.png"
                picture(number).save(folder / name)
                run = studio.runs.from_upload((folder / name).read_bytes(), name)
                studio.commands.send("task", {"run": run, "kind": "classification", "label": "bird"})
                own = {"generation.steps": 3, "generation.seed_mode": "fixed", "generation.seed": 10 + number}
                for setting, value in {**own, "counterfactuals.captions": 1}.items():
                    studio.commands.send("setting", {"run": run, "setting": setting, "value": value})
                for command in ("run-all", "generate"):
                    studio.commands.send(command, {"run": run})
                    over(studio.jobs)

    def work(self, folder: Path, tell: Tell) -> None:
        known = set[Thing]()
        with studio_in(folder) as studio:
            controls = studio.evaluations.controls
            if controls is None or not studio.evaluations.view(self.ALL).can_make_control:
                return
            number = studio.evaluations.make_control(self.ALL).id
            while True:
                view = controls.work.wait(number, 0.005)
                for thing in self._drawn(studio):
                    if thing not in known:
                        known.add(thing)
                        tell(thing)
                if not view.active:
                    assert (view.state, view.result.note) == ("done", ""), view
                    return

    def look(self, folder: Path, acknowledged: Sequence[Thing]) -> Seen:
        with studio_in(folder) as studio:
            drawn = self._drawn(studio)
            view = studio.evaluations.view(self.ALL)
            states = Counter(
                job.state for run in studio.workspace.runs.search(100) for job in studio.workspace.runs.get(run.id).jobs
            )
        twice = repeated(run for run, _ in drawn)
        wrong = ["a job is told as running"] if states["running"] else []
        if view.controls != len(drawn) or view.can_make_control != (len(drawn) < self.RUNS):
            wrong.append(f"{view.controls} reconstructions are told, and {len(drawn)} are there")
        missing = "some missing" if view.can_make_control else "none missing"
        return Seen(drawn, twice, wrong, f"“interrupted”, {missing}" if states["interrupted"] else missing)

    def result(self, folder: Path) -> Any:
        with studio_in(folder) as studio:
            return sorted(self._drawn(studio))

    @staticmethod
    def _drawn(studio: Studio) -> list[Thing]:
        runs = [studio.workspace.runs.get(run.id) for run in studio.workspace.runs.search(100)]
        return [
            (run.id, case.image_sha)
            for run in runs
            for case in run.test_cases
            if case.lineage.recipe == RECONSTRUCTION.name
        ]


KINDS: tuple[KilledWork, ...] = (
    Votes(),
    Decisions(),
    Batches(),
    Edits(),
    Imports(),
    Releases(),
    Exports(),
    Backups(),
    Trainings(),
    ControlSets(),
)
