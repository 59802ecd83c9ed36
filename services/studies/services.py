"""The services of a lead on the studies of one workspace, put together, and their commands."""

from __future__ import annotations

from dataclasses import dataclass

from services.commands import Commands
from services.studies.analyses import Analyses, analyses_of
from services.studies.decisions import Decisions
from services.studies.drafts import AskModel, Drafts
from services.studies.life_cycle import LifeCycle
from services.studies.preview import PreviewStep, preview_step
from storage.workspace import Workspace


@dataclass(frozen=True)
class StudyServices:
    """What a lead's pages read from; what is done goes through the commands."""

    drafts: Drafts
    life_cycle: LifeCycle
    analyses: Analyses


def study_services(workspace: Workspace, commands: Commands, ask_model: AskModel) -> StudyServices:
    """The services on an open workspace; adds what can be done with studies to `commands`."""
    studies = workspace.studies
    drafts, analyses = Drafts(workspace, ask_model), analyses_of(studies)
    life_cycle = LifeCycle(studies, drafts)
    drafts.register(commands)
    life_cycle.register(commands)
    Decisions(studies, analyses).register(commands)
    commands.add(PreviewStep, lambda asked: preview_step(studies, asked))
    return StudyServices(drafts, life_cycle, analyses)
