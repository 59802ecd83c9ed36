"""The services of a lead on the studies of one workspace, put together, and their commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from services.commands import Commands
from services.security_log import Refusals
from services.studies.analyses import Analyses, analyses_of
from services.studies.annotation import AnnotationService
from services.studies.annotators import AnnotatorSessions, Pictures
from services.studies.decisions import StudyDecisions
from services.studies.drafts import AskModel, StudyDrafts
from services.studies.exports import StudyExport, opened, zipped
from services.studies.imports import ImportFiles, import_items, import_votes, preview_votes
from services.studies.life_cycle import StudyLifeCycle
from services.studies.preview import PreviewStep, preview_step
from services.studies.restore import restore_study
from storage.studies.studies import Studies
from storage.workspace import Workspace


@dataclass(frozen=True)
class StudyServices:
    """What a lead's pages read from; what is done goes through the commands."""

    drafts: StudyDrafts
    life_cycle: StudyLifeCycle
    analyses: Analyses
    stored: Studies
    """The studies with their workers, panels, rules of before and log."""
    picture_sizes: Callable[[Iterable[str | None]], Mapping[str, tuple[int, int]]]
    """Width and height of pictures by their hashes."""
    import_items: Callable[[str, ImportFiles], tuple[int, str]]
    preview_votes: Callable[[str, bytes], tuple[int, str, str]]
    import_votes: Callable[[str, bytes, bool], tuple[int, str]]
    restore: Callable[[Path], tuple[str, str]]
    """Restore a study from its zip. Return its id and a sentence."""
    export: Callable[[str], StudyExport]
    """The study for one of `EXPORTS`."""
    export_zip: Callable[[str], tuple[str, Iterator[bytes]]]
    """The name and the pieces of the zip of a study."""


def study_services(workspace: Workspace, commands: Commands, ask_model: AskModel) -> StudyServices:
    """The services on an open workspace; adds what can be done with studies to `commands`."""
    studies = workspace.studies
    drafts, analyses = StudyDrafts(workspace, ask_model), analyses_of(studies)
    life_cycle = StudyLifeCycle(studies, drafts)
    drafts.register(commands)
    life_cycle.register(commands)
    StudyDecisions(studies, analyses).register(commands)
    commands.add(PreviewStep, lambda asked: preview_step(studies, asked))
    return StudyServices(
        drafts,
        life_cycle,
        analyses,
        studies,
        workspace.images.sizes,
        partial(import_items, workspace),
        partial(preview_votes, workspace),
        partial(import_votes, workspace),
        partial(restore_study, workspace),
        partial(opened, workspace),
        partial(zipped, workspace),
    )


@dataclass(frozen=True)
class AnnotatorServices:
    """What the annotators' application calls."""

    annotation: AnnotationService
    sessions: AnnotatorSessions
    pictures: Pictures
    refusals: Refusals


def annotator_services(workspace: Workspace) -> AnnotatorServices:
    """The services of annotators on an open workspace."""
    studies, images = workspace.studies, workspace.images
    return AnnotatorServices(
        AnnotationService(studies),
        AnnotatorSessions(studies),
        Pictures(images.load, read=lambda sha: images.path(sha).read_bytes()),
        Refusals(studies.note),
    )
