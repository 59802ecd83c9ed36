"""Queries for scripts: read-only commands that return plain data, ready for JSON.

A list comes in pages. Send `next` of an answer as `after` of the next query; it is empty ("" or 0) on the last page.
Texts by people and models are returned unchanged. Other commands accept the returned ids.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from core.catalogue import GRIDS, CatalogueEntry, CoverageGrid, Order, PageKey
from core.check_words import described
from core.csv_tables import facts, plain
from core.errors import UserError
from core.image_filter import PARTS, ImageFilter
from core.stored_runs import StoredTestCase
from core.studies import Study
from core.types import to_plain
from pipeline.recipes import recipes_for
from services.commands import Command, RunCommand, does
from services.curation.views import WHICH, Filter
from services.edit_conflicts import LARGEST_ID, After, CaseId
from services.jobs import JobView
from services.runs.life_cycle import RunService, case_of
from services.runs.predictions import PredictionService, with_mask_checks
from services.runs.state import RunState, RunStates
from services.runs.words import edited_rows
from services.studies.drafts import StudyCommand
from study.tables import result_rows

MOST_LISTED = 200
"""Maximum number of entries in a page of a list."""
Limit = Annotated[int, Field(ge=1, le=MOST_LISTED, description="Maximum number of entries in the page")]
AfterText = Annotated[str, Field(max_length=80, description="The “next” of the page before")]
Plain = dict[str, Any]


NO_FILTER = ImageFilter()
_ALL_PARTS = (
    "Parts NAME=VALUE with & between, as in an address, or an object of names and values. If a name has several "
    "values, one of them must hold; -NAME=VALUE excludes a value. "
    + " ".join(f"{name}: {described}." for name, described in PARTS.items())
)


class Query(Command, looks=True):
    """A read-only command."""


class RunQuery(RunCommand, looks=True):
    """A read-only command on a run."""


class ShowJob(Query):
    """A query on a job."""

    job: int = Field(ge=0, le=LARGEST_ID, description="The job")


class ImageQuery(Query):
    """A query on the images that match a filter."""

    filter: Filter = Field(NO_FILTER, description=WHICH)


class Queries:
    """The queries of a studio. All methods may be called from any thread."""

    def __init__(self, runs: RunService, states: RunStates, predictions: PredictionService) -> None:
        self._workspace, self._runs, self._jobs = runs.workspace, runs, runs.jobs
        self._states, self._predictions = states, predictions

    @does("show-job", ShowJob)
    def show_job(self, job: int) -> Plain:
        """Show the progress of a job. Raises UserError for an unknown job."""
        return job_facts(self._jobs.known(job))

    @does("edited-values", Query)
    def edited_values(self) -> dict[str, Any]:
        """Show how many values of each stage people changed, by profile and stage, over all runs."""
        return {"stages": edited_rows(self._workspace.runs.edited())}

    @does("list-jobs", Query)
    def list_jobs(self) -> dict[str, Any]:
        """List the running job, then the waiting jobs in the order of the queue."""
        return {"jobs": [job_facts(job) for job in self._jobs.active()]}

    @does("list-samples", Query)
    def list_samples(self) -> dict[str, Any]:
        """List the sample pictures of the profile."""
        samples = self._runs.samples
        return {"samples": [{"sample": s.name, "task": to_plain(s.task), "mask": s.mask is not None} for s in samples]}

    @does("list-recipes", Query)
    def list_recipes(self) -> dict[str, Any]:
        """List the recipes that the profile can draw, with their stages."""
        recipes = recipes_for(self._runs.profile)
        return {"recipes": [facts(r, "title description", recipe=r.name, stages=list(r.names)) for r in recipes]}

    @does("list-studies", Query)
    def list_studies(self) -> dict[str, Any]:
        """List the studies, the latest first."""
        return {"studies": [_study_facts(one) for one in self._workspace.studies.all()]}

    @does("show-study", StudyCommand, looks=True)
    def show_study(self, study: str) -> Any:
        """Show the progress of a study, and its rules."""
        shown = self._workspace.studies.get(study)
        return {**_study_facts(shown), "rules": plain(shown.rules)}

    @does("list-runs", Query)
    def list_runs(
        self,
        find: Annotated[str, Field(max_length=200, description="Text in the name or label; case does not matter")] = "",
        after: AfterText = "",
        limit: Limit = 50,
    ) -> Plain:
        """List the runs, the most recently changed first."""
        runs = self._workspace.runs.search(limit, find=find.strip(), after=after)
        names = "name task recipe profile stages accepted created changed"
        listed = [facts(run, names, run=run.id, images=run.test_cases) for run in runs]
        return {"runs": listed, "next": runs[-1].id if len(runs) == limit else ""}

    @does("show-run", RunQuery)
    def show_run(self, run: str) -> Plain:
        """Show a run without its images: task, values of the stages, stale stages, and images to approve (gate)."""
        return run_facts(self._states.of(run))

    @does("list-images", RunQuery)
    def list_images(self, run: str, after: After = 0, limit: Limit = 50) -> Plain:
        """List the test cases of a run, oldest first, with their captions, checks and reviews."""
        state = self._states.of(run)
        behind = [case for case in state.run.test_cases if case.id > after]
        page = behind[:limit]
        more = page[-1].id if len(behind) > len(page) else 0
        return {"images": [self._image_facts(case, state) for case in page], "next": more}

    @does("show-image", RunQuery)
    def show_image(self, run: str, case: CaseId) -> Plain:
        """Show a test case, and its lineage: how it was made."""
        shown = case_of(self._workspace, run, case)
        return {**self._image_facts(shown, self._states.of(run)), "lineage": shown.lineage.plain()}

    @does("list-test-cases", ImageQuery)
    def list_test_cases(
        self,
        filter: ImageFilter,
        order: Annotated[
            str,
            Field(
                max_length=220,
                description="newest, oldest, reviewed, source (images of a source together), information (images with "
                "most reasons for a review first, those with a verdict last), score (of validity), or check:NAME (by "
                "the figure of a check)",
            ),
        ] = "newest",
        falling: Annotated[bool, Field(description="True for the largest figure or the latest review first")] = False,
        after: AfterText = "",
        limit: Limit = 50,
    ) -> Plain:
        """List the test cases that match a filter, in an order, with captions, checks, reviews and predictions."""
        try:
            begin = PageKey.read(after) if after else None
        except ValueError as error:
            raise UserError(
                "The value of “after” is wrong: send the value “next” of the page before.", field="after"
            ) from error
        page = self._workspace.catalogue.page(filter, Order.read(order, falling), limit, begin)
        entries = [entry_facts(entry) for entry in page.entries]
        return {"test_cases": entries, "next": page.entries[-1].key.text if page.more else ""}

    @does("count-test-cases", Query)
    def count_test_cases(self, filter: Annotated[Filter, Field(description=_ALL_PARTS)] = NO_FILTER) -> Plain:
        """Count matching test cases in all runs. Returns a total, and a count for each value of a filter's parts."""
        catalogue = self._workspace.catalogue
        count, facets = catalogue.count(filter), catalogue.facets(filter)
        scores: Plain | None = None  # if no image was ever scored
        if runs := self._workspace.scores.latest():
            threshold = runs[0].agreement.threshold
            scores = facts(catalogue.scores(filter, threshold), "at_least below not_scored", threshold=threshold)
        return {
            "count": count.number,
            "exact": count.exact,
            "facets": {name: {value: n for value, n in counts.items() if n} for name, counts in facets.items()},
            "checks": catalogue.checks(filter),
            "models": catalogue.models(filter),
            "scores": scores,
        }

    @does("coverage", Query)
    def coverage(
        self,
        grid: Annotated[
            CoverageGrid, Field(description="The table. It has the hundred most common rows and columns")
        ] = GRIDS[0],
    ) -> Plain:
        """Count the test cases of each class and edit type, or of each weather and time of day."""
        cells = self._workspace.catalogue.coverage(grid)
        return {"cells": [facts(cell, "line place reviews models", count=cell.entries) for cell in cells]}

    @does("check-histogram", ImageQuery)
    def check_histogram(
        self,
        *,
        filter: ImageFilter,
        check: Annotated[
            str, Field(min_length=1, max_length=200, description="The name of the check, such as “label seen”")
        ],
    ) -> Plain:
        """Show the distribution of a check's figures over test cases, in steps of 0.02."""
        bars = self._workspace.catalogue.histogram(check, filter)
        return {"bars": [facts(bar, "low high", count=bar.entries) for bar in bars]}

    @does("study-outcomes", StudyCommand, looks=True)
    def study_outcomes(self, study: str) -> Plain:
        """List the outcome of the votes for every image of a study: one row per item, ready for a data frame."""
        data = self._workspace.studies.data(study)
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
            **facts(case.lineage, "seed recipe"),
            "checks": [described(check) for check in checks],
            "review": case.review.verdict if case.review else "open",
            "reason": case.review.reason if case.review else "",
            "outdated": state.outdated.get(case.id, ""),
            "created": case.created.isoformat(),
        }


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
    """Return a run as plain data, without its images."""
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
    """Return the progress of a job as plain data."""
    progress = job.progress
    return {
        **facts(job, "state stopping message", job=job.id, run=job.run_id, stage=job.stage or ""),
        **(facts(progress, "done total note") if progress is not None else {"done": 0, "total": 0, "note": ""}),
        "seconds_left": job.seconds_left(),
        "parts": [facts(part, "name state", part=part.id) for part in job.parts],
    }


def _stage_facts(name: str, state: RunState) -> Plain:
    stored = state.run.values.get(name)
    if stored is None:
        return {"stage": name, "version": 0, "value": None, "author": "", "model": "", "stale": "", "notes": []}
    about = {"stage": name, "version": stored.id, "value": to_plain(stored.value.value)}
    return about | facts(stored.value.trace, "author model notes", stale=state.stale.get(name, ""))


def _study_facts(study: Study) -> Plain:
    names = "state created items controls quiz training votes needed workers"
    return facts(study, names, study=study.id, title=study.name)
