"""The commands of a study's life cycle, from start to deletion, with descriptions of their effects."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, create_model

from core.errors import UserError
from core.form_numbers import FormNumber, form_numbers
from core.panel import Panel, check_panel, read_person_questions
from core.studies import NewItem, Rules, Study, Worker
from core.text_templates import TextTemplates
from core.words import count_of
from services.commands import Commands, in_words
from services.studies.control_items import for_more
from services.studies.drafts import StudyCommand, StudyDrafts
from services.studies.item_filter import ItemDraw
from storage.engine.rows import whole
from storage.studies.imported_votes import IMPORTED
from storage.studies.studies import Studies
from study.methods import change_words
from study.questions import check_rules
from study.readiness import check_more

MOST_CODES = 200
_Count = Annotated[int, BeforeValidator(form_numbers(Rules)["votes"].read)]


def _command(name: str, words: str) -> type[StudyCommand]:
    """Return a type of command that has no field except the study. `words` describe the command."""
    return create_model(name, __base__=StudyCommand, __module__=__name__, __doc__=words, __cls_kwargs__={"name": name})


DeleteDraft = _command("delete-draft", "Delete a draft for good.")
StartStudy = _command("start-study", "Start a study: its rules are fixed as version 1, and workers can vote.")
PauseStudy = _command(
    "pause-study", "Pause a running study: workers get no items, and no votes are taken until it is resumed."
)
ResumeStudy = _command("resume-study", "Resume a paused study.")
CloseStudy = _command("close-study", "Close a study permanently: no more votes are taken.")
ArchiveStudy = _command(
    "archive-study", "Archive a study: it moves to the end of the list, and a running study is paused."
)
UnarchiveStudy = _command("unarchive-study", "Take a study out of the archive. A paused study stays paused.")
OpenInvitation = _command("open-invitation", "Make a link with which anybody can take part in a study.")
EndInvitation = _command("end-invitation", "Make the link of a study invalid, permanently.")


class AskForVotes(StudyCommand, name="ask-for-votes"):
    """Change the number of votes per item and the consensus. This makes a new version of the rules."""

    votes: _Count = Field(description="Votes per image, 1 to 50; not fewer than now")
    consensus: _Count = Field(description="Number of equal answers that make a consensus, 1 to 50")


class AddItems(StudyCommand, ItemDraw, name="add-items"):
    """Add a sample of test cases to a started study, and control items made from the test cases' source images."""


class MakeCodes(StudyCommand, name="make-codes"):
    """Add new workers to a study, each with a personal code."""

    codes: Annotated[int, BeforeValidator(FormNumber(1, MOST_CODES).read)] = Field(
        description=f"Number of workers, 1 to {MOST_CODES}"
    )


class EnrolWorkers(StudyCommand, name="enrol-workers"):
    """Let workers of other studies take part in this study, with the codes that they have."""

    workers: tuple[str, ...] = Field(max_length=MOST_CODES, description="The pseudonyms of the workers")


class SetPanel(StudyCommand, name="set-panel"):
    """Set how panel members are recognised, where they return at the end, and which personal questions they see."""

    parameter: str = Field("", max_length=200, description="The parameter of the link that names the participant")
    code: str = Field("", max_length=200, description="The completion code that a participant gets at the end")
    address: str = Field(
        "", max_length=2000, description="Address to which a participant returns; {participant} is their id"
    )
    questions: str = Field("", max_length=5000, description="Questions about the person, one per line, answers after |")


@dataclass(frozen=True)
class Consequences:
    """Description of a command's effects, to be confirmed by the lead."""

    title: str
    words: tuple[str, ...]
    button: str
    final: bool = False
    """True if the command cannot be undone."""


@dataclass(frozen=True)
class NewCode:
    """A worker's name and new personal code, which is shown only now."""

    worker: str
    code: str


@dataclass(frozen=True)
class NewCodes:
    """The study and all personal codes that one command made."""

    study: Study
    codes: tuple[NewCode, ...]


@dataclass(frozen=True)
class _Act:
    """Functions of a command, and the states in which a study allows the command; () for all states."""

    states: tuple[str, ...]
    do: Callable[[Study, Any], Any]
    look: Callable[[Study, Any], Mapping[str, object]] = lambda _study, _sent: {}
    """Function that checks a command, and returns values for its text in `_CONSEQUENCES`. May raise UserError."""


class StudyLifeCycle:
    """The life-cycle commands on the studies of one workspace. All methods may be called from any thread."""

    def __init__(self, studies: Studies, drafts: StudyDrafts) -> None:
        self._studies, self._drafts = studies, drafts
        self._lock = threading.Lock()
        live = ("running", "paused")
        self._acts: dict[type[StudyCommand], _Act] = {
            DeleteDraft: _Act(("draft",), lambda study, _: studies.delete_draft(study.id)),
            StartStudy: _Act(("draft",), lambda study, _: studies.start(study.id), self._before_start),
            PauseStudy: _Act(("running",), lambda study, _: studies.pause(study.id)),
            ResumeStudy: _Act(("paused",), lambda study, _: studies.resume(study.id)),
            CloseStudy: _Act(live, lambda study, _: studies.close(study.id)),
            ArchiveStudy: _Act((*live, "closed"), lambda study, _: studies.archive(study.id, True)),
            UnarchiveStudy: _Act((), lambda study, _: studies.archive(study.id, False)),
            AskForVotes: _Act(
                live, lambda study, sent: studies.set_votes(study.id, sent.votes, sent.consensus), _before_votes
            ),
            AddItems: _Act(live, self._add_items, self._before_items),
            OpenInvitation: _Act(live, lambda study, _: studies.set_link(study.id, True)),
            EndInvitation: _Act((), lambda study, _: studies.set_link(study.id, False)),
            MakeCodes: _Act(live, self._make_codes),
            EnrolWorkers: _Act(live, self._enrol, lambda _, sent: {"names": [one.id for one in self._chosen(sent)]}),
            SetPanel: _Act(
                live,
                lambda study, sent: studies.panels.set(study.id, _panel_of(sent)),
                lambda _, sent: {"panel": _panel_of(sent)},
            ),
        }

    def register(self, commands: Commands) -> None:
        for kind in self._acts:
            commands.add(kind, self.do)

    def knows(self, sent: StudyCommand) -> bool:
        """Return True for a command of the life cycle."""
        return type(sent) in self._acts

    def before(self, sent: StudyCommand) -> Consequences:
        """Describe the effects of a command, without doing it. Raises UserError if it is not possible."""
        return self._before(self._studies.get(sent.study), sent)

    def do(self, sent: StudyCommand) -> Any:
        """Carry out a command. For MakeCodes, return a NewCodes. Raises UserError if the command is not possible."""
        with self._lock:
            study = self._studies.get(sent.study)
            self._before(study, sent)
            return self._acts[type(sent)].do(study, sent)

    def can_be_invited(self, study_id: str) -> tuple[Worker, ...]:
        """Return the workers of other studies who are neither blocked nor imported, those with most approvals first."""
        here = {worker.id for worker in self._studies.workers.of_study(study_id)}
        known: Sequence[Worker] = self._drafts.known_workers()
        others = (one for one in known if one.id not in here and not one.blocked and not one.id.startswith(IMPORTED))
        return tuple(sorted(others, key=lambda worker: (-worker.approved, worker.rejected, worker.id)))

    def _before(self, study: Study, sent: StudyCommand) -> Consequences:
        act = self._acts[type(sent)]
        if act.states and study.state not in act.states:
            raise UserError(f"This study is {study.state} by now. Please reload the page.")
        archived, refusal = _IN_ARCHIVE.get(type(sent), (study.archived, ""))
        if study.archived != archived:
            raise UserError(refusal)
        values = act.look(study, sent)
        title, button, *words = _CONSEQUENCES.paragraphs(f"{sent.name}.txt", study=study, sent=sent, **values)
        return Consequences(title, tuple(words), button, final=type(sent) in (DeleteDraft, CloseStudy))

    def _before_start(self, study: Study, sent: StudyCommand) -> Mapping[str, object]:
        with in_words():
            check_rules(study.rules)
        draft = self._drafts.state(study.id)
        for finding in draft.findings:
            if finding.stops:
                raise UserError(finding.text)
        return {"draft": draft.study}

    def _before_items(self, study: Study, sent: AddItems) -> Mapping[str, object]:
        new, controls, drawn = self._drawn(study, sent)
        return {"new": len(new), "drawn": drawn, "controls": len(controls)}

    def _add_items(self, study: Study, sent: AddItems) -> None:
        new, controls, words = self._drawn(study, sent)
        self._studies.add_items(study.id, [*new, *controls])
        self._studies.note("items drawn", words, study.id)

    def _drawn(self, study: Study, sent: AddItems) -> tuple[tuple[NewItem, ...], tuple[NewItem, ...], str]:
        """Return a sample of items, control items for the sample, and a description of the sample. Raises UserError
        if the study cannot take the sample.
        """
        new, words = self._drafts.drawn(study, sent)
        with in_words():
            check_more(study.rules, new)
        return new, for_more(study, self._drafts.items(study.id), new, self._drafts.disguise), words

    def _make_codes(self, study: Study, sent: MakeCodes) -> NewCodes:
        codes = []
        for _ in range(sent.codes):
            worker, code = self._studies.workers.add()
            self._studies.workers.enrol(study.id, worker.id)
            codes.append(NewCode(worker.id, code))
        self._studies.note("workers invited", count_of(len(codes), "personal code"), study.id)
        return NewCodes(study, tuple(codes))

    def _enrol(self, study: Study, sent: EnrolWorkers) -> None:
        for worker in self._chosen(sent):
            self._studies.workers.enrol(study.id, worker.id)

    def _chosen(self, sent: EnrolWorkers) -> list[Worker]:
        if not sent.workers:
            raise UserError("Pick at least one worker.", field="workers")
        return [self._studies.workers.get(name) for name in dict.fromkeys(sent.workers)]


_IN_ARCHIVE: Mapping[type[StudyCommand], tuple[bool, str]] = {
    ResumeStudy: (False, "This study is in the archive: take it out first."),
    ArchiveStudy: (False, "This study is in the archive already."),
    UnarchiveStudy: (True, "This study is not in the archive."),
}
"""By command: whether the study must be in the archive (True) or must not, and the error message if that fails."""


def _before_votes(study: Study, sent: AskForVotes) -> Mapping[str, object]:
    votes, consensus, rules = sent.votes, sent.consensus, study.rules
    if votes < rules.votes:
        raise UserError(f"The number of votes can only be raised: give {rules.votes} or more.", field="votes")
    if (votes, consensus) == (rules.votes, rules.consensus):
        raise UserError("The study has these numbers already: change the votes or the consensus.", field="votes")
    if not votes < 2 * consensus <= 2 * votes:
        raise UserError(f"With {votes} votes, a consensus needs {votes // 2 + 1} to {votes}.", field="consensus")
    # The smallest consensus of this many votes that is at least as strict as that of the present rules.
    return {"as_strict": math.ceil(votes * rules.consensus / rules.votes - 1e-9)}


def _panel_of(sent: SetPanel) -> Panel:
    """Return the panel settings that were typed. Raises UserError, with the field, for an invalid value."""
    questions = read_person_questions(whole(sent.questions))
    panel = Panel(sent.parameter.strip(), sent.code.strip(), whole(sent.address.strip()), questions)
    field, wrong = check_panel(panel)
    if wrong:
        raise UserError(wrong, field=field)
    return panel


_CONSEQUENCES = TextTemplates(Path(__file__).with_name("consequences"), change_words=change_words, count_of=count_of)
"""Texts on the effects, one file per command. The paragraphs of a file are the question, the button, and notes."""
