"""The services of one workspace, put together. `app.py` hands each page the few of them that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from services.curation.map import ImageMap
from services.curation.meaning import Meaning
from services.curation.near_duplicates import NearDuplicates
from services.curation.plans import CellPlans
from services.curation.thumbnails import ThumbnailFill
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.scoring import ScoreImages, score_workspace, scoring_facts
from services.evaluation.service import EvaluationService
from services.example.service import ExampleWorkspace
from services.jobs import JobQueue
from services.queries import Queries
from services.runs.bulk_runs import BulkRuns
from services.runs.combinations import CombinationEdits
from services.runs.editing import Editing
from services.runs.estimates import Estimates
from services.runs.exchange import Exchange
from services.runs.execution import Execution
from services.runs.life_cycle import RunService
from services.runs.live_images import ControlImages, Previews
from services.runs.outdated import Outdated
from services.runs.predictions import PredictionService
from services.runs.reviews import register_reviews
from services.runs.samples import read_samples
from services.runs.settings import RunSettings
from services.runs.similarity import Similarities
from services.runs.state import RunStates, StageNotes
from services.runs.undoing import Undoing
from services.studies.drafts import model_asker
from services.studies.services import StudyServices, study_services
from services.test_sets.services import TestSetServices, test_set_services
from services.tokens import ScriptTokens
from storage.workspace import Workspace

DEMO = "demo"
"""The profile whose models know drawn scenes."""
DRAWN_SCENES = "drawn-scenes"
"""The folder of their data sets in a workspace."""


@dataclass(frozen=True)
class Studio:
    """What is there once for a workspace. Only whoever puts an application together holds it."""

    profile: Profile
    workspace: Workspace
    driver: Driver
    commands: Commands
    jobs: JobQueue
    notes: StageNotes
    runs: RunService
    states: RunStates
    estimates: Estimates
    predictions: PredictionService
    similarities: Similarities
    control_images: ControlImages
    previews: Previews
    exchange: Exchange
    imports: ImportService
    together: BulkRuns
    studies: StudyServices
    gallery: Gallery
    meaning: Meaning
    """Images by what they show."""
    near_duplicates: NearDuplicates
    image_map: ImageMap
    batches: BatchRuns
    """Whole data sets on their way to test cases."""
    evaluations: EvaluationService
    """What test sets say of models under test."""
    retrainings: Retrainings
    """What training them further gains."""
    test_sets: TestSetServices
    revisions: Revisions
    """Whether there is anything new to show."""
    thumbnails: ThumbnailFill
    """Makes those that are missing, once it is started."""
    tokens: ScriptTokens
    example: ExampleWorkspace
    """An example of everything, made by one press."""

    def close(self) -> None:
        """Stop the work that is going on; the workspace stays open."""
        self.example.close()
        self.batches.close()
        self.retrainings.close()
        self.evaluations.close()
        self.thumbnails.close()
        self.imports.close()
        self.image_map.stop()
        self.jobs.close()
        self.test_sets.close()


def put_together(
    profile: Profile,
    models: Models,
    workspace: Workspace,
    data_roots: Sequence[Path] = (),
    scenes: SceneWriter | None = None,
) -> Studio:
    """Put a workspace's services together. Scripts plan batches below `data_roots`; the demo offers what `scenes`
    draws. Raises UserError.
    """
    allowed = DataRoots(data_roots)
    drawn = DrawnScenes(workspace.folder / DRAWN_SCENES, scenes) if scenes and profile.name == DEMO else None
    changes, driver, notes = Changes(), Driver(profile, models), StageNotes()
    jobs, commands = JobQueue(changes), Commands(changes)
    runs = RunService(workspace, profile, driver, read_samples(profile.samples_folder()), jobs)
    estimates = Estimates(workspace, runs, driver, jobs)
    control_images, previews = ControlImages(workspace), Previews()
    similarities, predictions = Similarities(models, jobs), PredictionService(profile, workspace, jobs)
    outdated = Outdated(workspace)
    states = RunStates(workspace, runs, driver, jobs, notes, estimates, control_images, outdated, similarities)
    editing = Editing(workspace, runs, driver, notes)
    settings = RunSettings(workspace, runs, driver, notes)
    execution = Execution(workspace, runs, driver, jobs, notes, editing, states, estimates, control_images, previews)
    undoing = Undoing(workspace, runs, jobs, notes, editing, settings)
    for service in (runs, editing, settings, execution, undoing, CombinationEdits(workspace, runs, settings)):
        service.register(commands)
    predictions.register(commands, runs, settings)
    register_reviews(commands, workspace)
    tokens = ScriptTokens(workspace)
    tokens.register(commands)
    together = BulkRuns(workspace, runs, settings, states, execution)
    together.register(commands)
    Queries(workspace, runs, states, jobs, predictions).register(commands)
    CurationDecisions(workspace).register(commands)
    imports = ImportService(workspace, changes)
    imports.register(commands)
    CellPlans(workspace, runs, estimates).register(commands)
    meaning = Meaning(profile, models, workspace, jobs)
    near_duplicates, image_map = NearDuplicates(workspace, meaning), ImageMap(workspace, meaning)
    for curation in (meaning, near_duplicates, image_map):
        curation.register(commands)
    batches = BatchRuns(workspace, changes, allowed, drawn)
    batches.register(commands)
    evaluations = EvaluationService(profile, workspace, predictions.require_known, changes, execution)
    evaluations.register(commands)
    retrainings = Retrainings(workspace, evaluations, changes)
    retrainings.register(commands)
    example = ExampleWorkspace(workspace, profile, commands, jobs, batches, evaluations, changes)
    example.register(commands)
    commands.add(ScoreImages, lambda _: scoring_facts(score_workspace(workspace)))
    thumbnails = ThumbnailFill(workspace.thumbnails, workspace.saved, jobs.idle)
    gallery = Gallery(workspace, meaning, near_duplicates, image_map, thumbnails.give_way)
    return Studio(
        profile=profile,
        workspace=workspace,
        driver=driver,
        commands=commands,
        jobs=jobs,
        notes=notes,
        runs=runs,
        states=states,
        estimates=estimates,
        predictions=predictions,
        similarities=similarities,
        control_images=control_images,
        previews=previews,
        exchange=Exchange(workspace, runs, predictions),
        imports=imports,
        together=together,
        studies=study_services(workspace, commands, model_asker(workspace, runs.settings, predictions)),
        gallery=gallery,
        meaning=meaning,
        near_duplicates=near_duplicates,
        image_map=image_map,
        batches=batches,
        evaluations=evaluations,
        retrainings=retrainings,
        test_sets=test_set_services(workspace, commands, changes),
        revisions=Revisions(workspace.saved, changes),
        thumbnails=thumbnails,
        tokens=tokens,
        example=example,
    )
