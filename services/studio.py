"""Assembles the services of one workspace. `app.py` gives them to the handlers of requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pipeline.driver import Driver
from pipeline.profiles.profile import Profile
from pipeline.seams import Models
from services.batches.data_roots import DataRoots
from services.batches.drawn_scenes import DrawnScenes, SceneWriter
from services.batches.running import BatchRuns
from services.changes import Changes, Revisions
from services.commands import Commands
from services.curation.decisions import CurationDecisions
from services.curation.gallery import Gallery
from services.curation.imports import ImportService
from services.curation.judging import Judging
from services.curation.map import ImageMap
from services.curation.meaning import Meaning
from services.curation.near_duplicates import NearDuplicates
from services.curation.plans import CellPlans
from services.curation.thumbnails import ThumbnailFill
from services.evaluation.check_agreement import CheckAgreements
from services.evaluation.evidence.service import Evidence
from services.evaluation.factors import Factors
from services.evaluation.focus import Focus
from services.evaluation.likeness import Likeness
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.scoring import ScoreImages, score_workspace, scoring_facts
from services.evaluation.search_commands import Searches
from services.evaluation.service import EvaluationService
from services.example.service import ExampleWorkspace
from services.jobs import JobQueue
from services.queries import Queries
from services.runs.bulk_runs import BulkRuns
from services.runs.combinations import CombinationEdits
from services.runs.editing import Editing
from services.runs.exchange import Exchange
from services.runs.execution import Execution
from services.runs.life_cycle import RunService
from services.runs.live_images import Previews
from services.runs.predictions import ModelChoices, PredictionService
from services.runs.samples import read_samples
from services.runs.settings import RunSettings
from services.runs.state import RunStates, StageNotes
from services.runs.undoing import Undoing
from services.studies.services import StudyServices
from services.test_sets.services import TestSetServices
from services.tokens import ScriptTokens
from storage.workspace import Workspace

DEMO = "demo"
"""Profile whose models know drawn scenes."""
DRAWN_SCENES = "drawn-scenes"
"""Name of the folder with drawn data sets in a workspace."""
Service = TypeVar("Service")


class Studio:
    """All services of a workspace. Handlers of requests call the services and give the results to page templates."""

    def __init__(
        self,
        profile: Profile,
        models: Models,
        workspace: Workspace,
        data_roots: Sequence[Path] = (),
        scenes: SceneWriter | None = None,
    ) -> None:
        """Create the services of a workspace. A script may plan batches only on data below `data_roots`. `scenes`
        writes drawn data sets for batches of the profile “demo”. Raises UserError, such as for a damaged sample.
        """
        self.profile, self.workspace = profile, workspace
        self.driver, self.notes = Driver(profile, models, inversions=workspace.inversions), StageNotes()
        changes, driver, notes = Changes(), self.driver, self.notes
        self.commands = commands = Commands(changes)

        def taken_on(service: Service) -> Service:
            """Add the commands of a service, and return it."""
            commands.take_on(service)
            return service

        self.jobs = jobs = taken_on(JobQueue(changes))
        samples = read_samples(profile.samples_folder())
        self.runs = runs = taken_on(RunService(workspace, profile, driver, samples, jobs))
        self.states = states = RunStates(runs, notes)
        self.estimates, self.control_images = states.estimates, states.control_images
        self.similarities, self.previews = states.similarities, Previews()
        self.predictions = PredictionService(profile, workspace, jobs)
        editing, settings = taken_on(Editing(runs, notes)), taken_on(RunSettings(runs, notes))
        execution = taken_on(Execution(runs, notes, editing, self.states, self.previews))
        choices = taken_on(ModelChoices(runs, settings, self.predictions))
        taken_on(Undoing(runs, notes, editing, settings))
        taken_on(CombinationEdits(runs, settings))
        taken_on(Queries(runs, self.states, self.predictions))
        taken_on(CurationDecisions(workspace))
        taken_on(CellPlans(runs, self.estimates))
        roots = DataRoots(data_roots)
        self.tokens = taken_on(ScriptTokens(workspace, roots))
        self.together = taken_on(BulkRuns(runs, settings, self.states, execution))
        self.imports = taken_on(ImportService(workspace, changes))
        self.meaning = taken_on(Meaning(profile, models, workspace, jobs))
        self.near_duplicates = taken_on(NearDuplicates(workspace, self.meaning))
        self.image_map = taken_on(ImageMap(workspace, self.meaning))
        drawn = DrawnScenes(workspace.folder / DRAWN_SCENES, scenes) if scenes and profile.name == DEMO else None
        self.judging = taken_on(Judging(profile, models, workspace, jobs, changes))
        self.check_agreements = taken_on(CheckAgreements(workspace))
        self.batches = batches = taken_on(BatchRuns(workspace, changes, roots, drawn))
        known = self.predictions.require_known
        self.evaluations = evaluations = taken_on(EvaluationService(profile, workspace, known, changes, execution))
        self.searches = taken_on(Searches(workspace, batches, evaluations, models, execution))
        self.likeness = taken_on(Likeness(workspace, evaluations, self.meaning, models, changes))
        self.factors = taken_on(Factors(evaluations, self.meaning))
        self.focus = taken_on(Focus(workspace, evaluations, changes))
        self.evidence = taken_on(Evidence(workspace, evaluations, changes))
        self.retrainings = taken_on(Retrainings(workspace, evaluations, changes))
        self.example = taken_on(ExampleWorkspace(workspace, profile, commands, jobs, batches, evaluations, changes))
        commands.add(ScoreImages, lambda _: scoring_facts(score_workspace(workspace)))
        self.thumbnails = ThumbnailFill(workspace.thumbnails, workspace.saved, jobs.idle)
        """Makes missing thumbnails after `start` is called."""
        give_way = self.thumbnails.give_way
        self.gallery = Gallery(
            workspace, self.meaning, self.near_duplicates, self.image_map, self.check_agreements, self.judging, give_way
        )
        self.exchange = Exchange(runs, self.predictions)
        self.studies = StudyServices(workspace, commands, choices.ask)
        self.test_sets = TestSetServices(workspace, commands, changes)
        self.revisions = Revisions(workspace.saved, changes)

    def close(self) -> None:
        """Stop running work; the workspace stays open."""
        queues = (self.likeness.work, self.focus.work, self.evidence.work, self.evaluations)
        services = (self.example, self.batches, self.retrainings, *queues, self.thumbnails, self.imports)
        for service in (*services, self.image_map, self.judging, self.jobs, self.test_sets):
            service.close()
