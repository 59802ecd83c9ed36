"""Queries of scripts: read-only commands that return plain JSON-ready data.

A list comes in pages: `next` of the answer is `after` of the next query, "" after the last page. Texts of people and
models are returned unchanged; ids are those that commands take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from core.catalogue import GRIDS, CatalogueEntry, CoverageGrid, Order, PageKey
from core.check_words import described
from core.csv_tables import facts, plain
from core.errors import UserError
from core.image_filter import PARTS, ImageFilter
from core.stored_runs import RunSummary, StoredTestCase
from core.studies import Study
from core.types import to_plain
from core.validity_score import ScoreRun
from pipeline.recipes import recipes_for
from services.commands import Command, Commands, RunCommand, does
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID
from services.jobs import JobView
from services.runs.edited_share import edited_rows
from services.runs.life_cycle import RunService, case_of
from services.runs.predictions import PredictionService, with_mask_checks
from services.runs.samples import Sample
from services.runs.state import RunState, RunStates
from services.studies.drafts import StudyCommand
from storage.curation.catalogue import Catalogue
from study.tables import result_rows

MOST_LISTED = 200
"""Maximum lines in a page of a list."""

Plain = dict[str, Any]


class Query(Command, looks=True):
    """A read-only command."""


class RunQuery(RunCommand, looks=True):
    """A read-only command on a run."""


class ListRuns(Query, name="list-runs"):
    """List the runs, last worked on first."""

    find: str = Field("", max_length=200, description="Part of a name or label, in any letters' case")
    after: str = Field("", max_length=80, description="The “next” of the page before")
    limit: int = Field(50, ge=1, le=MOST_LISTED, description="Runs in a page")


class ShowRun(RunQuery, name="show-run"):
    """Show a run without its images: task, values of the stages, stale stages, and its gate."""


class ListImages(RunQuery, name="list-images"):
    """List the test cases of a run, oldest first, with their captions, checks and reviews."""

    after: int = Field(0, ge=0, le=LARGEST_ID, description="The “next” of the page before")
    limit: int = Field(50, ge=1, le=MOST_LISTED, description="Test cases in a page")


class ShowImage(RunQuery, name="show-image"):
    """Show a test case and its history."""

    case: int = Field(ge=0, le=LARGEST_ID, description="The test case")


class EditedValues(Query, name="edited-values"):
    """Show how many values of each stage people changed, by profile and stage, over all runs."""


class ListJobs(Query, name="list-jobs"):
    """List running and waiting jobs, in order."""


class ShowJob(Query, name="show-job"):
    """Show the progress of a job."""

    job: int = Field(ge=0, le=LARGEST_ID, description="The job")


class ImageQuery(Query):
    """A query on the images of a filter."""

    filter: Filter = Field(ImageFilter(), description=WHICH)


class ListTestCases(ImageQuery, name="list-test-cases"):
    """List the test cases of all runs, by filter and order, with captions, checks, reviews and predictions."""

    order: str = Field(
        "newest",
        max_length=220,
        description="newest, oldest, reviewed, source (all of one source together), information (what a look at it "
        "tells most, those without a verdict first), score (of validity), or check:NAME (by the figure of a check)",
    )
    falling: bool = Field(False, description="The largest figure, or the latest review, first")
    after: str = Field("", max_length=80, description="The “next” of the page before")
    limit: int = Field(50, ge=1, le=MOST_LISTED, description="Test cases in a page")


class CountTestCases(ImageQuery, name="count-test-cases"):
    """Count the test cases of all runs by a filter, in total and by each value of each filter."""

    filter: Filter = Field(
        ImageFilter(),
        description="Parts NAME=VALUE with & between, as in an address, or an object of names and values. Of several "
        "values of one name one has to hold; -NAME=VALUE excludes a value. "
        + " ".join(f"{name}: {described}." for name, described in PARTS.items()),
    )


class ShowCoverage(Query, name="coverage"):
    """Count the test cases of each class and edit type, or of each weather and time of day."""

    grid: CoverageGrid = Field(GRIDS[0], description="Which table; of the hundred most common lines and places")


class CheckHistogram(ImageQuery, name="check-histogram"):
    """Show the distribution of a check's figures over test cases, in steps of 0.02."""

    check: str = Field(min_length=1, max_length=200, description="The name of the check, such as “label seen”")


class ListSamples(Query, name="list-samples"):
    """List the sample pictures of the profile."""


class ListRecipes(Query, name="list-recipes"):
    """List the recipes that the profile can draw, with their stages."""


class ListStudies(Query, name="list-studies"):
    """List the studies, the latest first."""


class ShowStudy(StudyCommand, name="show-study", looks=True):
    """Show the progress of a study, and its rules."""


class StudyOutcomes(StudyCommand, name="study-outcomes", looks=True):
    """List the outcome of the votes for every image of a study: one row per item, ready for a data frame."""


class Queries:
    """Answers the queries. All methods may be called from any thread."""

    def __init__(self, runs: RunService, states: RunStates, predictions: PredictionService) -> None:
        self._workspace, self._runs, self._jobs = runs.workspace, runs, runs.jobs
        self._states, self._predictions = states, predictions

    def register(self, commands: Commands) -> None:
        commands.add(ShowRun, lambda command: run_facts(self._states.of(command.run)))
        commands.add(EditedValues, lambda _: {"stages": edited_rows(self._workspace.runs.edited())})
        commands.add(ListJobs, lambda _: {"jobs": [job_facts(job) for job in self._jobs.active()]})
        commands.add(ShowJob, lambda command: job_facts(self._jobs.known(command.job)))
        commands.add(ListSamples, lambda _: {"samples": [_sample_facts(sample) for sample in self._runs.samples]})
        commands.add(ListRecipes, lambda _: {"recipes": self._recipes()})
        commands.add(ListStudies, lambda _: {"studies": [_study_facts(one) for one in self._workspace.studies.all()]})
        commands.add(ShowStudy, lambda command: _whole_study(self._workspace.studies.get(command.study)))

    def _recipes(self) -> list[Mapping[str, Any]]:
        return [
            facts(one, "title description", recipe=one.name, stages=list(one.names))
            for one in recipes_for(self._runs.profile)
        ]

    @does
    def list_runs(self, command: ListRuns) -> Plain:
        runs = self._workspace.runs.search(command.limit, find=command.find.strip(), after=command.after)
        return {"runs": [_summary_facts(run) for run in runs], "next": _next(runs, command.limit)}

    @does
    def list_images(self, command: ListImages) -> Plain:
        state = self._states.of(command.run)
        behind = [case for case in state.run.test_cases if case.id > command.after]
        page = behind[: command.limit]
        more = page[-1].id if len(behind) > len(page) else 0
        return {"images": [self._image_facts(case, state) for case in page], "next": more}

    @does
    def show_image(self, command: ShowImage) -> Plain:
        case = case_of(self._workspace, command.run, command.case)
        return {**self._image_facts(case, self._states.of(command.run)), "lineage": case.lineage.plain()}

    @does
    def list_test_cases(self, command: ListTestCases) -> Plain:
        try:
            after = PageKey.read(command.after) if command.after else None
        except ValueError as error:
            raise UserError("Give as “after” what the page before gave as “next”.", field="after") from error
        order = Order.read(command.order, command.falling)
        page = self._workspace.catalogue.page(command.filter, order, command.limit, after)
        entries = [entry_facts(entry) for entry in page.entries]
        return {"test_cases": entries, "next": page.entries[-1].key.text if page.more else ""}

    @does
    def count_test_cases(self, command: CountTestCases) -> Plain:
        catalogue, image_filter = self._workspace.catalogue, command.filter
        count = catalogue.count(image_filter)
        facets = catalogue.facets(image_filter)
        return {
            "count": count.number,
            "exact": count.exact,
            "facets": {name: {value: n for value, n in counts.items() if n} for name, counts in facets.items()},
            "checks": catalogue.checks(image_filter),
            "models": catalogue.models(image_filter),
            "scores": _score_facts(catalogue, image_filter, self._workspace.scores.latest()),
        }

    @does
    def coverage(self, command: ShowCoverage) -> Plain:
        cells = self._workspace.catalogue.coverage(command.grid)
        return {"cells": [facts(cell, "line place reviews models", count=cell.entries) for cell in cells]}

    @does
    def check_histogram(self, command: CheckHistogram) -> Plain:
        bars = self._workspace.catalogue.histogram(command.check, command.filter)
        return {"bars": [facts(bar, "low high", count=bar.entries) for bar in bars]}

    @does
    def study_outcomes(self, command: StudyOutcomes) -> Plain:
        data = self._workspace.studies.data(command.study)
        return {"study": data.study.id, "rows": [plain(row) for row in result_rows(data)]}

    def _image_facts(self, case: StoredTestCase, state: RunState) -> Plain:
        mask_checks = self._predictions.mask_checks(state.run, state.settings, case)
        checks = with_mask_checks(case.checks, mask_checks, state.run.mask_sha is not None)
        caption = case.lineage.counterfactual
        return {
            "case": case.id,
            "run": case.run_id,
            "caption": caption.text,
            "edits": [to_plain(edit) for edit in caption.edits],
            "task": to_plain(case.task),
            "seed": case.lineage.seed,
            "recipe": case.lineage.recipe,
            "checks": [described(check) for check in checks],
            "review": case.review.verdict if case.review else "open",
            "reason": case.review.reason if case.review else "",
            "outdated": state.outdated.get(case.id, ""),
            "created": case.created.isoformat(),
        }


def _score_facts(catalogue: Catalogue, image_filter: ImageFilter, runs: Sequence[ScoreRun]) -> Plain | None:
    """Return the number of images above and below the score threshold; None if none was ever scored."""
    if not runs:
        return None
    threshold = runs[0].agreement.threshold
    return facts(catalogue.scores(image_filter, threshold), "at_least below not_scored", threshold=threshold)


def entry_facts(entry: CatalogueEntry) -> Plain:
    return {
        **facts(entry, "run run_name kind classes edits profile recipe method reason reviewer tags score name created"),
        "entry": entry.id,
        "case": entry.test_case,
        "image": entry.image_sha,
        "source": entry.source_sha,
        "source_caption": entry.caption,
        "caption": entry.counterfactual,
        "checks": [described(check) for check in entry.checks],
        "review": entry.verdict,
        "reviewed": entry.reviewed.isoformat() if entry.reviewed is not None else "",
        "models": dict(entry.standings),
        "studies": list(entry.study_outcomes),
        "import": entry.import_name,
    }


def run_facts(state: RunState) -> Plain:
    """Return everything of a run but its images."""
    run, gate = state.run, state.gate
    planned = gate.plan.images if gate.plan is not None else ()
    return {
        **facts(run, "name profile recipe task notes state"),
        "run": run.id,
        "mask": run.mask_sha is not None,
        "settings": state.settings.model_dump(mode="json"),
        "stages": [_stage_facts(name, state) for name in state.recipe.names],
        "gate": {
            **facts(gate, "closed shown doubts"),
            "images": [{"caption": one.counterfactual.text, "seed": one.seed} for one in planned],
            "seconds": gate.plan.seconds if gate.plan is not None else None,
            "generator_runs": state.generator_runs,
        },
        "problems": {stage: problem.text for stage, problem in state.problems.items()},
        "notices": dict(state.notices),
        "images": len(run.test_cases),
        "accepted": sum(
            case.review is not None and case.review.verdict == "accepted" and case.task == run.task
            for case in run.test_cases
        ),
        "job": job_facts(state.job) if state.job is not None else None,
    }


def job_facts(job: JobView) -> Plain:
    """Return the progress of a job."""
    progress = job.progress
    return {
        **facts(job, "state stopping message", job=job.id, run=job.run_id, stage=job.stage or ""),
        **(facts(progress, "done total note") if progress is not None else {"done": 0, "total": 0, "note": ""}),
        "seconds_left": job.seconds_left(),
        "parts": [facts(part, "name state", part=part.id) for part in job.parts],
    }


def _stage_facts(name: str, state: RunState) -> Plain:
    stored = state.run.values.get(name)
    facts: Plain = {"stage": name, "version": 0, "value": None, "author": "", "model": "", "stale": "", "notes": []}
    if stored is None:
        return facts
    trace = stored.value.trace
    facts |= {"version": stored.id, "value": to_plain(stored.value.value), "author": trace.author, "model": trace.model}
    return {**facts, "stale": state.stale.get(name, ""), "notes": list(trace.notes)}


def _summary_facts(run: RunSummary) -> Plain:
    names = "name task recipe profile stages accepted created changed"
    return facts(run, names, run=run.id, images=run.test_cases)


def _next(found: Sequence[RunSummary], limit: int) -> str:
    return found[-1].id if len(found) == limit else ""


def _sample_facts(sample: Sample) -> Plain:
    return {"sample": sample.name, "task": to_plain(sample.task), "mask": sample.mask is not None}


def _study_facts(study: Study) -> Plain:
    names = "state created items controls quiz training votes needed workers"
    return facts(study, names, study=study.id, title=study.name)


def _whole_study(study: Study) -> Plain:
    return {**_study_facts(study), "rules": plain(study.rules)}
