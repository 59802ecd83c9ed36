"""Assembles the services on studies of one workspace: for a lead's pages, and for the annotators' application."""

from __future__ import annotations

from functools import partial

from services.commands import Commands
from services.security_log import Refusals
from services.studies.analyses import Analyses
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
    """The services from which a lead's pages read. Changes are made by the commands."""

    def __init__(self, workspace: Workspace, commands: Commands, ask_model: AskModel) -> None:
        """Create the services, and add their commands to `commands`."""
        self.stored = studies = workspace.studies
        """Studies with their workers, panels, earlier rules and log."""
        self.drafts = StudyDrafts(workspace, ask_model)
        self.analyses = Analyses(studies.data, lambda name: (studies.get(name).state, studies.revision(name)))
        self.life_cycle = StudyLifeCycle(studies, self.drafts)
        for service in (self.drafts, self.life_cycle, StudyDecisions(studies, self.analyses)):
            commands.take_on(service)
        commands.add(PreviewStep, lambda command: preview_step(studies, command))
        self.picture_sizes = workspace.images.sizes
        """Returns the width and height of stored pictures, by SHA-256."""
        self.import_items = partial(import_items, workspace)
        self.preview_votes = partial(preview_votes, workspace)
        self.import_votes = partial(import_votes, workspace)
        self.restore = partial(restore_study, workspace)
        """Restores a study from its zip; returns its id and a sentence."""
        self.export = partial(opened, workspace)
        """Opens a study for one of `EXPORTS`."""
        self.export_zip = partial(zipped, workspace)
        """Returns the name of a study's zip, and an iterator of its bytes."""


class AnnotatorServices:
    """Services of the annotators' application."""

    def __init__(self, workspace: Workspace) -> None:
        studies, images = workspace.studies, workspace.images
        self.pictures = Pictures(images.load, read=images.read)
        self.annotation, self.sessions = AnnotationService(studies, self.pictures.png), AnnotatorSessions(studies)
        self.refusals = Refusals(studies.note)
