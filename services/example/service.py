"""The example workspace: one press of a button makes example data, so that each page has something to show.

The example is made by the commands that people use. It has batches of drawn scenes, reviews, test sets, control sets,
predictions of models under test, and a study. Each step skips what exists already, so a stopped example can resume.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from core.csv_tables import plain
from core.errors import Cancelled, UserError
from core.image_filter import ImageFilter
from core.progress import OnCount
from core.studies import Rules, Study
from core.test_sets import SetVersion, TestSet
from core.text_templates import TextTemplates
from core.types import Check, TaskKind
from core.words import count_of, few_names
from pipeline.profiles.profile import Profile
from services.batches.plan_file import plan_from_text
from services.batches.running import PLAN, BatchRuns
from services.changes import Changes
from services.commands import Commands, does
from services.evaluation.service import EvaluationService, about, model_choice_key
from services.evaluation.types import EvaluationQuestion, Subject
from services.example.votes import simulated_votes
from services.jobs import JobQueue
from services.queries import Query
from services.work_queue import WorkQueue, WorkView
from storage.example import AUTHOR, ExampleRecord
from storage.workspace import Workspace

MAKING, REMOVING = "making", "removing"
ABOUT = "example"
PROFILE = "demo"
"""Profile whose models know drawn scenes."""
LOOK_SECONDS = 0.2
"""Seconds between two checks of work that the example waits for."""
STOP_SECONDS = 60.0
"""Maximum seconds for work to end after the example was stopped."""
SURE = 0.1
"""Share of the work after which the remaining time can be estimated."""
SEEDS = 10**6
NAMES: Mapping[TaskKind, str] = {"classification": "Example: drawn things", "segmentation": "Example: drawn streets"}
"""Names of the example's batches and test sets, by kind of task."""
STUDY_NAME = "Example: drawn things (simulated votes)"
SIMULATED = "This study is an example. Its votes are simulated: no person gave them."
NOTE = "Made by the example workspace from drawn scenes. Its reviews are no person's."
ACCEPTED, REJECTED = 0.65, 0.15
"""Shares of the test cases that the example accepts and rejects. The others are left for the user to try the review."""
_PLAN = Path(__file__).with_name("plan.txt")
TYPES: Mapping[TaskKind, str] = {"classification": 'types = { weather = 2, "time of day" = 1 }', "segmentation": ""}
"""Plan lines that favour edits on which the classifier is likely to fail: it learned only scenes of fair days."""
Tell = Callable[[float], None]
"""Progress callback: called with the done share of a step, from 0 to 1. An exception from it ends the step."""


@dataclass(frozen=True)
class ExampleSize:
    """Size of the example."""

    scenes: int = 30
    """Number of scenes of each kind of task."""
    captions: int = 2
    """Number of test cases per scene."""
    steps: int = 4
    """Number of denoising steps per image."""
    judged: int = 24
    """Number of images in the study."""


@dataclass(frozen=True)
class ExampleSet:
    """A released test set of the example."""

    title: str
    version: int
    model: str
    """Key of the model under test that has read the images of this set; "" if the profile names no model."""


State = Literal["none", "making", "removing", "unfinished", "made"]


@dataclass(frozen=True)
class ExampleView:
    """A snapshot of the example's state and progress."""

    state: State
    doing: str = ""
    step: int = 0
    """Number of the current step, from 1; 0 before the first."""
    steps: int = 0
    share: float | None = None
    """Share of the work that is done, 0 to 1; None if unknown."""
    seconds_left: float | None = None
    stopping: bool = False
    problem: str = ""
    """One sentence on why making or removing the example failed; "" if it did not."""
    kept: str = ""
    """Sentences on the parts that the last removal kept, and why; "" for none."""
    sets: tuple[ExampleSet, ...] = ()
    study: str = ""
    """Id of the example's study; "" before the study exists."""

    @property
    def active(self) -> bool:
        """Return True while the example is being made or removed."""
        return self.state in ("making", "removing")


@dataclass(frozen=True)
class Step:
    """One step of making the example."""

    words: str
    weight: int
    """Approximate duration in tenths of a second."""
    is_done: Callable[[], bool]
    act: Callable[[Tell], None]
    """Function that does the step. It reports progress by calling its argument."""


class ExampleWorkspace:
    """Makes and removes the example of one workspace. All methods may be called from any thread."""

    def __init__(
        self,
        workspace: Workspace,
        profile: Profile,
        commands: Commands,
        jobs: JobQueue,
        batches: BatchRuns,
        evaluations: EvaluationService,
        changes: Changes | None = None,
    ) -> None:
        """Create the service. An example can be made only if `batches` can draw scenes."""
        self._workspace, self._profile, self._commands = workspace, profile, commands
        self._jobs, self._batches, self._evaluations = jobs, batches, evaluations
        self.size = ExampleSize()
        self.new_seed: Callable[[], int] = lambda: secrets.randbelow(SEEDS)
        self.work = WorkQueue(changes, name="the example workspace")
        """Queue for making and removing the example. At most one piece of work is active."""
        self._at: tuple[str, int, int] = ("", 0, 0)
        """Current step in words, its number, and the number of steps."""
        self._kept = ""
        """Sentences on the parts that the last removal kept; "" for none."""
        self._closing = False

    @property
    def offered(self) -> bool:
        """Return True if this studio can make an example: its profile is the demo's, and it can draw scenes."""
        return self._batches.scenes is not None

    # Commands

    @does("make-example", keeps=True)
    def make(self) -> ExampleView:
        """Fill the workspace with example data: batches of drawn scenes, reviews, test sets, control sets, predictions,
        and a study with simulated votes. An example that was stopped is resumed. Raises UserError if this studio cannot
        make an example, or if the example is being removed.
        """
        if not self.offered:
            raise UserError("The example is drawn by the demo's own models: start the studio with the profile “demo”.")
        if self.work.going_on(REMOVING, ABOUT) is not None:
            raise UserError("The example is being removed: make another one when that is done.")
        self._kept = ""
        self.work.begin(MAKING, ABOUT, self._make)
        return self.view()

    @does("stop-example", keeps=True)
    def stop(self) -> ExampleView:
        """Stop making the example. Finished parts stay. The example can be resumed or removed later."""
        going_on = self.work.going_on(MAKING, ABOUT)
        if going_on is not None:
            self.work.cancel(going_on.id)
        return self.view()

    @does("remove-example")
    def remove(self) -> ExampleView:
        """Remove the example's data. Keep and report data that people have used for their own work."""
        self.stop()
        if self._workspace.example.record() is not None or self._at_work() is not None:
            self.work.begin(REMOVING, ABOUT, self._remove)
        return self.view()

    def wait(self, seconds: float) -> ExampleView:
        """Wait until the current work on the example ends, but at most `seconds`. Return the example's state."""
        at_work = self._at_work()
        if at_work is not None:
            self.work.wait(at_work.id, seconds)
        return self.view()

    def close(self) -> None:
        """Stop making or removing the example. It can be resumed later."""
        self._closing = True
        self.work.close()

    # Queries

    @does("show-example", Query)
    def show_example(self) -> dict[str, Any]:
        """Show whether the workspace has an example, and the progress of making or removing it."""
        return dict(plain(self.view()))

    @property
    def active(self) -> bool:
        return self._at_work() is not None

    def view(self) -> ExampleView:
        record, at_work = self._workspace.example.record(), self._at_work()
        latest = next(iter(self.work.of(ABOUT)), None)
        problem = latest.error if latest is not None and latest.state == "failed" else ""
        if at_work is not None:
            share = at_work.done / at_work.total if at_work.total else None
            left = at_work.seconds_left if share is not None and share >= SURE else None
            now: State = "removing" if at_work.kind == REMOVING else "making"
            return ExampleView(now, *self._at, share, left, at_work.stopping)
        if record is None:
            return ExampleView("none", problem=problem, kept=self._kept)
        state: State = "made" if record.finished else "unfinished"
        sets = tuple(self._set(kind, version) for kind, version in self._versions(record).items())
        return ExampleView(state, problem=problem, sets=sets, study=record.study)

    def _set(self, kind: TaskKind, version: SetVersion) -> ExampleSet:
        model = self._profile.model_under_test.of(kind)
        key = "" if model is None else model_choice_key(model)
        return ExampleSet(NAMES[kind].partition(": ")[2], version.number, key)

    def _at_work(self) -> WorkView | None:
        return next((one for one in reversed(self.work.of(ABOUT)) if one.active), None)

    # Making

    def _make(self, on_count: OnCount) -> None:
        self._at = ("looking at what is there", 0, 0)
        on_count(0, 0)
        record = self._workspace.example.begin(self.new_seed())
        if record.finished:  # if a person removed parts of a finished example, they are not made again
            return
        steps = [step for step in self._steps(record) if not step.is_done()]
        total, before = sum(step.weight for step in steps), 0
        for number, step in enumerate(steps, start=1):
            self._at = (step.words, number, len(steps))

            def tell(share: float, before: int = before, weight: int = step.weight) -> None:
                on_count(before + int(weight * share), total)

            tell(0.0)
            step.act(tell)
            before += step.weight
        self._workspace.example.finish()

    def _steps(self, record: ExampleRecord) -> Iterator[Step]:
        size = self.size
        for kind in get_args(TaskKind):
            what = NAMES[kind].partition(": ")[2]
            yield Step(
                f"writing captions and drawing test cases: {what}",
                100 + size.scenes * (8 + 4 * size.captions),
                partial(self._batch_is_done, kind),
                partial(self._work_off, kind, record.seed),
            )
            yield Step(
                f"reviewing some of them and releasing a test set: {what}",
                10,
                lambda kind=kind: kind in self._versions(),  # type: ignore[misc]
                partial(self._release, kind),
            )
            yield Step(
                f"drawing reconstructions for the control set: {what}",
                40 + 5 * size.scenes,
                partial(self._has_controls, kind),
                partial(self._draw_controls, kind),
            )
            yield Step(
                f"having the model under test read the images: {what}",
                30,
                partial(self._is_read, kind),
                partial(self._read, kind),
            )
        yield Step("making a study with simulated votes", 20, self._is_voted, partial(self._vote, record.seed))

    def _folder(self, kind: TaskKind, seed: int) -> Path:
        """Return the folder of a task's drawn scenes. Its name has the number of scenes and the seed to draw them."""
        assert self._batches.scenes is not None
        return self._batches.scenes.folder / f"{kind}-{self.size.scenes}-{seed}"

    # The batches

    def _plan(self, kind: TaskKind, seed: int) -> str:
        protected = ", ".join(f'"{name}"' for name in self._profile.tasks.protected)
        return _PLAN.read_text(encoding="utf-8").format(
            name=NAMES[kind],
            root=json.dumps(str(self._folder(kind, seed)), ensure_ascii=False),  # also a string of TOML
            kind=kind,
            task="" if kind == "classification" else f"protected = [{protected}]",
            profile=PROFILE,
            seed=seed,
            steps=self.size.steps,
            captions=self.size.captions,
            types=TYPES[kind],
        )

    def _batch(self, kind: TaskKind) -> int | None:
        """Return the number of the example's batch for a task, even if the record lacks it; None if none exists."""
        record = self._workspace.example.record()
        if record is None or not self.offered:
            return None
        return self._workspace.batches.find(plan_from_text(self._plan(kind, record.seed), PLAN).digest)

    def _batch_is_done(self, kind: TaskKind) -> bool:
        number = self._batch(kind)
        return number is not None and self._batches.status(number).state == "done"

    def _work_off(self, kind: TaskKind, seed: int, tell: Tell) -> None:
        planning = self._commands.send("plan-any-batch", {"plan": self._plan(kind, seed)})
        number = int(self._until_over(self._batches.planning, planning.id, lambda _: tell(0.0)).result)
        self._workspace.example.add_batch(number)
        if self._batches.status(number).batch.approved is None:
            self._workspace.batches.approve(number, ahead=True)
        if self._batches.status(number).state == "done":
            return
        self._batches.begin(number)

        def is_over() -> bool:
            return not self._batches.status(number).at_work

        def look() -> None:
            captions, language, images = self._batches.status(number).passes
            sources = self.size.scenes * 4
            done = captions.number("done") + 3 * language.number("done") + images.number("done")
            tell(min(1.0, done / (sources + self.size.scenes * self.size.captions)))

        def stop() -> None:
            with suppress(UserError):  # already over
                self._batches.pause(number)

        self._until(is_over, look, stop)
        status = self._batches.status(number)
        if status.state != "done":
            raise UserError(status.problem or f"The batch “{status.batch.name}” was stopped: continue the example.")

    # Reviews and test sets

    def _versions(self, record: ExampleRecord | None = None) -> dict[TaskKind, SetVersion]:
        """Return the latest released version of each of the example's test sets, by kind of task."""
        record = record or self._workspace.example.record()
        sets = self._sets(record) if record is not None else {}
        return {kind: test_set.versions[0] for kind, test_set in sets.items() if test_set.latest is not None}

    def _sets(self, record: ExampleRecord) -> dict[TaskKind, TestSet]:
        known = self._workspace.test_sets.names()
        test_sets = (self._workspace.test_sets.get(one) for one in record.test_sets if one in known)
        return {next(kind for kind, prefix in NAMES.items() if one.name.startswith(prefix)): one for one in test_sets}

    def _release(self, kind: TaskKind, _tell: Tell) -> None:
        accepted = self._review(kind)
        record = self._workspace.example.record()
        assert record is not None
        known = self._sets(record)
        set_id = known[kind].id if kind in known else self._workspace.example.create_test_set(NAMES[kind])
        self._commands.send("add-to-test-set", {"test_set": set_id, "cases": accepted, "sources": True})
        self._commands.send("split-test-set", {"test_set": set_id, "test": 1.0})
        self._commands.send("release-test-set", {"test_set": set_id, "note": NOTE})

    def _review(self, kind: TaskKind) -> list[int]:
        """Accept the test cases that fail fewest checks, and reject some that fail most. Return the accepted ids."""
        number = self._batch(kind)
        assert number is not None
        runs = self._runs({number})
        cases = [one for one in self._workspace.test_cases.candidates() if one.run_id in runs]
        checks = self._checks([one.test_case for one in cases])
        failed = {case: sum(check.passed is False for check in case_checks) for case, case_checks in checks.items()}
        order = sorted(cases, key=lambda one: (failed[one.test_case], one.test_case))
        accepted = order[: max(1, round(ACCEPTED * len(order)))]
        left = [one for one in order[len(accepted) :] if failed[one.test_case]]
        rejected = left[len(left) - min(len(left), round(REJECTED * len(order))) :]
        for verdict, chosen, reason in (("accepted", accepted, ""), ("rejected", rejected, "a check failed")):
            images = tuple(one.image_sha for one in chosen if not one.verdict)
            if images:
                entries = self._workspace.catalogue.ids(ImageFilter(images=images))
                self._commands.send(
                    "decide", {"entries": tuple(entries), "verdict": verdict, "reason": reason, "author": AUTHOR}
                )
        now = self._workspace.test_cases.candidates([one.test_case for one in accepted])
        return [one.test_case for one in now if one.verdict == "accepted"]

    def _checks(self, cases: Sequence[int]) -> dict[int, tuple[Check, ...]]:
        return {case: tuple(self._workspace.test_cases.get(case).checks) for case in cases}

    # Evaluation

    def _subject(self, kind: TaskKind) -> Subject:
        return Subject(self._versions()[kind].number)

    def _asked(self, kind: TaskKind) -> EvaluationQuestion:
        model = self._profile.model_under_test.of(kind)
        assert model is not None
        return EvaluationQuestion(self._subject(kind), model)

    def _has_controls(self, kind: TaskKind) -> bool:
        return kind in self._versions() and not len(self._evaluations.cases(self._subject(kind)).lacking)

    def _draw_controls(self, kind: TaskKind, tell: Tell) -> None:
        if self._has_controls(kind):
            return
        assert self._evaluations.controls is not None
        queue, work = self._evaluations.controls.work, self._evaluations.make_control(self._subject(kind))
        self._until_over(queue, work.id, lambda view: tell(view.done / (view.total or 1)))

    def _is_read(self, kind: TaskKind) -> bool:
        if kind not in self._versions():
            return False
        pending = self._evaluations.pending(self._asked(kind))
        return pending.read + pending.unreadable >= pending.images

    def _read(self, kind: TaskKind, tell: Tell) -> None:
        work = self._evaluations.begin(self._asked(kind))
        self._until_over(self._evaluations.work, work.id, lambda view: tell(view.done / (view.total or 1)))

    # The study

    def _study(self) -> Study | None:
        record = self._workspace.example.record()
        if record is not None and record.study:
            with suppress(UserError):  # a deleted draft
                return self._workspace.studies.get(record.study)
        return None

    def _is_voted(self) -> bool:
        study = self._study()
        return study is not None and study.state == "closed"

    def _vote(self, seed: int, _tell: Tell) -> None:
        studies, study = self._workspace.studies, self._study()
        if study is None or study.state == "draft":
            if study is not None:  # the draft may lack some items
                studies.delete_draft(study.id)
            new_id = self._evaluations.draft_study(self._asked("classification"), self.size.judged, self._create_study)
            self._commands.send("start-study", {"study": new_id})
            study = studies.get(new_id)
        if not study.votes:
            items = studies.items(study.id)
            # The simulated annotators find an image invalid if one of its checks failed or could not tell.
            cases = [item.test_case for item in items if item.test_case is not None]
            valid = {one: all(check.passed for check in checks) for one, checks in self._checks(cases).items()}
            studies.import_votes(study.id, simulated_votes(study.rules, items, valid, seed))
        self._commands.send("close-study", {"study": study.id})

    def _create_study(self, _title: str, rules: Rules) -> str:
        example_rules = replace(rules, instructions=f"{SIMULATED}\n\n{rules.instructions}")
        return self._workspace.example.create_study(STUDY_NAME, example_rules)

    # Removing

    def _remove(self, on_count: OnCount) -> None:
        self._at = ("removing what the example made", 0, 0)
        on_count(0, 0)
        record = self._workspace.example.record()
        if record is None:
            return
        batches = [number for kind in get_args(TaskKind) if (number := self._batch(kind)) is not None]
        for number in {*record.batches, *batches}:
            status = self._batches.status(number)
            if status.at_work:
                raise UserError(f"The batch “{status.batch.name}” is running: pause it, then remove the example.")
        busy = {job.run_id for job in self._jobs.active()} & self._runs({*record.batches, *batches})
        if busy:
            raise UserError("A run of the example is busy: wait until its job ends or cancel it, then try again.")
        left = self._workspace.example.remove(batches, self._trained_on(record))
        for kind in get_args(TaskKind) if self.offered else ():
            shutil.rmtree(self._folder(kind, record.seed), ignore_errors=True)
        names = few_names([f"“{name}”" for name in left.test_sets])
        self._kept = _TEXTS.paragraph("kept.txt", stays=left, names=names)

    def _runs(self, batches: set[int]) -> set[str]:
        sources = (one for number in batches for one in self._workspace.batches.sources(number))
        return {one.run for one in sources if one.run}

    def _trained_on(self, record: ExampleRecord) -> list[str]:
        trained_sets = []
        for version in self._versions(record).values():
            subject = Subject(version.number)
            models = self._evaluations.models(subject)
            questions = [EvaluationQuestion(subject, one.settings) for one in models]
            if any(self._workspace.retrainings.kept(about(one)) for one in questions):
                trained_sets.append(version.test_set)
        return trained_sets

    # Waiting for other work

    def _until_over(self, queue: WorkQueue, number: int, look: Callable[[WorkView], None]) -> WorkView:
        """Wait until work ends, calling `look` repeatedly. Raises UserError if the work failed or was cancelled."""
        self._until(
            lambda: not queue.view(number).active, lambda: look(queue.view(number)), lambda: queue.cancel(number)
        )
        view = queue.view(number)
        if view.state != "done":
            raise UserError(view.error or "The work was stopped: continue the example.")
        return view

    def _until(self, is_over: Callable[[], bool], look: Callable[[], None], stop: Callable[[], object]) -> None:
        """Wait for the end of work, calling `look` repeatedly. Stop the work if `look` raises Cancelled."""
        while not is_over():
            try:
                look()
            except Cancelled:
                stop()
                end = time.monotonic() + STOP_SECONDS
                while not self._closing and not is_over() and time.monotonic() < end:
                    time.sleep(LOOK_SECONDS)
                raise
            time.sleep(LOOK_SECONDS)


_TEXTS = TextTemplates(Path(__file__).parent, count_of=count_of)
