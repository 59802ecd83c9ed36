"""The services of a lead on the studies of one workspace, put together, and their commands."""

from __future__ import annotations

from functools import partial

from services.commands import Commands
from services.security_log import Refusals
from services.studies.analyses import analyses_of
from services.studies.annotation import AnnotationService
from services.studies.annotators import AnnotatorSessions, Pictures
from services.studies.decisions import StudyDecisions
from services.studies.drafts import AskModel, StudyDrafts
from services.studies.exports import opened, restore_study, zipped
from services.studies.imports import import_items, import_votes, preview_votes
from services.studies.life_cycle import StudyLifeCycle
from services.studies.preview import PreviewStep, preview_step
from storage.workspace import Workspace


class StudyServices:
    """What a lead's pages read from; what is done goes through the commands."""

    def __init__(self, workspace: Workspace, commands: Commands, ask_model: AskModel) -> None:
        """Add what can be done with studies to `commands`."""
        self.stored = studies = workspace.studies
        """The studies with their workers, panels, rules of before and log."""
        self.drafts, self.analyses = StudyDrafts(workspace, ask_model), analyses_of(studies)
        self.life_cycle = StudyLifeCycle(studies, self.drafts)
        for service in (self.drafts, self.life_cycle, StudyDecisions(studies, self.analyses)):
            commands.take_on(service)
        commands.add(PreviewStep, lambda asked: preview_step(studies, asked))
        self.picture_sizes = workspace.images.sizes
        """Width and height of pictures by their hashes."""
        self.import_items = partial(import_items, workspace)
        self.preview_votes = partial(preview_votes, workspace)
        self.import_votes = partial(import_votes, workspace)
        self.restore = partial(restore_study, workspace)
        """Restore a study from its zip. Return its id and a sentence."""
        self.export = partial(opened, workspace)
        """The study for one of `EXPORTS`."""
        self.export_zip = partial(zipped, workspace)
        """The name and the pieces of the zip of a study."""


class AnnotatorServices:
    """What the annotators' application calls."""

    def __init__(self, workspace: Workspace) -> None:
        studies, images = workspace.studies, workspace.images
        self.pictures = Pictures(images.load, read=images.read)
        self.annotation, self.sessions = AnnotationService(studies, self.pictures.png), AnnotatorSessions(studies)
        self.refusals = Refusals(studies.note)
