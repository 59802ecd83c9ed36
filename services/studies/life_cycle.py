"""The life cycle of a study: start, pause, go on, extend, close, invite, delete. Each says first what it will do."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from core.errors import UserError
from core.form_numbers import FormNumber, form_numbers
from core.panel import Panel, check_panel, read_person_questions
from core.studies import NewItem, Rules, Study, Worker
from core.words import count_of
from services.commands import Commands, in_words
from services.studies.control_items import for_more
from services.studies.draft_form import typed_number
from services.studies.drafts import StudyCommand, StudyDrafts
from services.studies.item_filter import ItemDraw
from storage.engine.rows import whole
from storage.studies.imported_votes import IMPORTED
from storage.studies.studies import Studies
from study.questions import check_rules
from study.readiness import check_more
from study.rule_changes import change_words

MOST_CODES = 200
_Count = Annotated[int, typed_number(form_numbers(Rules)["votes"])]


class DeleteDraft(StudyCommand, name="delete-draft"):
    """Delete a draft, for good."""


class StartStudy(StudyCommand, name="start-study"):
    """Freeze the rules as version 1 and take votes."""


class PauseStudy(StudyCommand, name="pause-study"):
    """Give out no item and take no vote for a while."""


class ResumeStudy(StudyCommand, name="resume-study"):
    """Go on after a pause."""


class CloseStudy(StudyCommand, name="close-study"):
    """Take no more votes, for good."""


class ArchiveStudy(StudyCommand, name="archive-study"):
    """Put a study away: it goes to the end of the list and takes no vote until it is taken out again."""


class UnarchiveStudy(StudyCommand, name="unarchive-study"):
    """Take a study out of the archive."""


class AskForVotes(StudyCommand, name="ask-for-votes"):
    """Ask for more votes an item, or another consensus: a new version of the rules."""

    votes: _Count = Field(description="Votes an image, 1 to 50; not fewer than now")
    consensus: _Count = Field(description="Equal answers that make a consensus, 1 to 50")


class AddItems(StudyCommand, ItemDraw, name="add-items"):
    """Draw more test cases into a study that has started, with the control items that go with them."""


class OpenInvitation(StudyCommand, name="open-invitation"):
    """Open a link by which anybody can take part."""


class EndInvitation(StudyCommand, name="end-invitation"):
    """End the link, for good."""


class MakeCodes(StudyCommand, name="make-codes"):
    """Add new workers, each with a personal code."""

    codes: Annotated[int, typed_number(FormNumber(1, MOST_CODES))] = Field(
        description=f"How many workers, 1 to {MOST_CODES}"
    )


class EnrolWorkers(StudyCommand, name="enrol-workers"):
    """Let workers of other studies take part in this one."""

    workers: tuple[str, ...] = Field(max_length=MOST_CODES, description="The pseudonyms of the workers")


class SetPanel(StudyCommand, name="set-panel"):
    """Say how people of a panel, such as Prolific, are known and sent back, and what they are asked of themselves."""

    parameter: str = Field("", max_length=200, description="The parameter of the link that names the participant")
    code: str = Field("", max_length=200, description="The completion code that a participant gets at the end")
    address: str = Field("", max_length=2000, description="Where a participant goes back to; {participant} is their id")
    questions: str = Field("", max_length=5000, description="Questions about the person, one a line, answers after |")


@dataclass(frozen=True)
class Consequences:
    """What a command will do, for a person who is asked once more."""

    title: str
    words: tuple[str, ...]
    button: str
    final: bool = False
    """It cannot be taken back."""


@dataclass(frozen=True)
class NewCode:
    """A worker and the code that was made, which is shown this once."""

    worker: str
    code: str


@dataclass(frozen=True)
class NewCodes:
    """All codes that were made at once."""

    study: Study
    codes: tuple[NewCode, ...]


_Act = tuple[Callable[[Study, Any], Consequences], Callable[[Study, Any], Any]]
"""What a command would do, and the doing."""


class StudyLifeCycle:
    """The life cycles of the studies of one workspace. All methods may be called from any thread."""

    def __init__(self, studies: Studies, drafts: StudyDrafts) -> None:
        self._studies, self._drafts = studies, drafts
        self._lock = threading.Lock()
        self._acts: dict[type[StudyCommand], _Act] = {
            DeleteDraft: (self._before_delete, lambda study, _: studies.delete_draft(study.id)),
            StartStudy: (self._before_start, lambda study, _: studies.start(study.id)),
            PauseStudy: (self._before_pause, lambda study, _: studies.pause(study.id)),
            ResumeStudy: (self._before_resume, lambda study, _: studies.resume(study.id)),
            CloseStudy: (self._before_close, lambda study, _: studies.close(study.id)),
            ArchiveStudy: (self._before_archive, lambda study, _: studies.archive(study.id, True)),
            UnarchiveStudy: (self._before_unarchive, lambda study, _: studies.archive(study.id, False)),
            AskForVotes: (
                self._before_votes,
                lambda study, sent: studies.set_votes(study.id, sent.votes, sent.consensus),
            ),
            AddItems: (self._before_items, self._add_items),
            OpenInvitation: (self._before_link_on, lambda study, _: studies.set_link(study.id, True)),
            EndInvitation: (self._before_link_off, lambda study, _: studies.set_link(study.id, False)),
            MakeCodes: (self._before_codes, self._make_codes),
            EnrolWorkers: (self._before_enrol, self._enrol),
            SetPanel: (self._before_panel, lambda study, sent: studies.panels.set(study.id, _panel_of(sent))),
        }

    def register(self, commands: Commands) -> None:
        for kind in self._acts:
            commands.add(kind, self.do)

    def knows(self, sent: StudyCommand) -> bool:
        """Whether a command is one of the life cycle."""
        return type(sent) in self._acts

    def before(self, sent: StudyCommand) -> Consequences:
        """What a command would do; nothing is changed. Raises UserError where it cannot be done."""
        return self._acts[type(sent)][0](self._studies.get(sent.study), sent)

    def do(self, sent: StudyCommand) -> Any:
        """Do it; gives the codes of `MakeCodes`. Raises UserError where it cannot be done any more."""
        with self._lock:
            study, (before, do) = self._studies.get(sent.study), self._acts[type(sent)]
            before(study, sent)
            return do(study, sent)

    def can_be_invited(self, study_id: str) -> tuple[Worker, ...]:
        """Workers of other studies with a code of this studio who are not blocked, the best record first."""
        here = {worker.id for worker in self._studies.workers.of_study(study_id)}
        known: Sequence[Worker] = self._drafts.known_workers()
        others = (one for one in known if one.id not in here and not one.blocked and not one.id.startswith(IMPORTED))
        return tuple(sorted(others, key=lambda worker: (-worker.approved, worker.rejected, worker.id)))

    def _before_delete(self, study: Study, sent: DeleteDraft) -> Consequences:
        _need(study, "draft")
        words = (
            "The draft is gone for good: its questions, its instructions and its choice of "
            f"{count_of(study.items, 'image')}.",
            "The images themselves stay, and so do the runs that they come from.",
        )
        return Consequences(f"Delete “{study.name}”?", words, "Delete the draft", final=True)

    def _before_start(self, study: Study, sent: StartStudy) -> Consequences:
        _need(study, "draft")
        with in_words():
            check_rules(study.rules)
        draft = self._drafts.state(study.id)
        for finding in draft.findings:
            if finding.stops:
                raise UserError(finding.text)
        study, rules = draft.study, draft.study.rules
        quiz = rules.eligibility.quiz
        words = [
            "The rules become version 1 and are frozen: questions, control policy, eligibility, instructions and "
            "consent cannot be changed any more. More images and more votes can be asked for later.",
            f"{count_of(study.items, 'image')} get {rules.votes} votes each, of {rules.votes} different workers: "
            f"{study.items * rules.votes:,} votes. {rules.consensus} equal ones make a consensus.",
            f"{count_of(study.controls, 'control item')} stand between them."
            if study.controls and rules.controls.share
            else "There are no control items: nothing will filter unreliable votes.",
        ]
        if rules.training:
            words.append(
                f"Everybody answers {count_of(rules.training, 'training image')} first and is told after each what is "
                "right. Nothing of it counts."
            )
        if quiz:
            words.append(f"Who has no record yet answers {count_of(quiz, 'quiz question')} first.")
        words.append("Nobody is invited by the start itself: the next page has the link and personal codes.")
        return Consequences(f"Start “{study.name}”?", tuple(words), "Start the study")

    def _before_pause(self, study: Study, sent: PauseStudy) -> Consequences:
        _need(study, "running")
        words = (
            "Annotators get no image and no answer is taken until you go on. They are told that the study is paused, "
            "and keep their place.",
            "Whoever is at an image right now cannot send that answer until then; the page keeps it.",
        )
        return Consequences(f"Pause “{study.name}”?", words, "Pause")

    def _before_resume(self, study: Study, sent: ResumeStudy) -> Consequences:
        _need(study, "paused")
        if study.archived:
            raise UserError("This study is in the archive: take it out first.")
        return Consequences(f"Go on with “{study.name}”?", ("Annotators get images again, at once.",), "Go on")

    def _before_close(self, study: Study, sent: CloseStudy) -> Consequences:
        _need(study, "running", "paused")
        missing = study.needed - study.votes
        words = ["No vote is taken any more, for good; a closed study cannot be opened again."]
        if missing > 0:
            words.append(f"{missing:,} of {study.needed:,} votes are missing: images that have too few stay undecided.")
        words.append("Results, adjudication, approvals and exports go on to work.")
        return Consequences(f"Close “{study.name}” for good?", tuple(words), "Close it for good", final=True)

    def _before_archive(self, study: Study, sent: ArchiveStudy) -> Consequences:
        _need(study, "running", "paused", "closed")
        if study.archived:
            raise UserError("This study is in the archive already.")
        words = ["It goes to the end of the list, and nothing of it is lost: results and exports go on to work."]
        if study.state == "running":
            words.append("It is paused by it: annotators get no image and no answer is taken.")
        words.append("It can be taken out again.")
        return Consequences(f"Put “{study.name}” away?", tuple(words), "Archive it")

    def _before_unarchive(self, study: Study, sent: UnarchiveStudy) -> Consequences:
        if not study.archived:
            raise UserError("This study is not in the archive.")
        words = ["It stands among the others again."]
        if study.state == "paused":
            words.append("It is still paused: go on with it on its page.")
        return Consequences(f"Take “{study.name}” out of the archive?", tuple(words), "Take it out")

    def _before_votes(self, study: Study, sent: AskForVotes) -> Consequences:
        _need(study, "running", "paused")
        votes, consensus = sent.votes, sent.consensus
        rules = study.rules
        if votes < rules.votes:
            raise UserError(f"Votes can only be added: give {rules.votes} or more.", field="votes")
        if (votes, consensus) == (rules.votes, rules.consensus):
            raise UserError("That is what the rules ask for already.", field="votes")
        if not votes < 2 * consensus <= 2 * votes:
            raise UserError(f"The consensus is {votes // 2 + 1} to {votes} of {votes} votes.", field="consensus")
        more = (votes - rules.votes) * study.items
        change = change_words((rules.votes, votes), (rules.consensus, consensus))
        words = [f"The rules get version {rules.version + 1}: {change}."]
        if more:
            words.append(f"{count_of(more, 'more vote')} will be collected, also of images that were finished.")
        if consensus / votes < rules.consensus / rules.votes:
            words.append(
                f"That is a weaker consensus than was announced: {_as_strict(rules, votes)} of {votes} would be as "
                f"strict as {rules.consensus} of {rules.votes}."
            )
        words.append(
            "The result is counted by the new rules from now on. The report states both, when they were changed and "
            "with how many votes in, and what the first rules would have found."
        )
        return Consequences("Ask for more votes?", tuple(words), "Change the rules")

    def _before_items(self, study: Study, sent: AddItems) -> Consequences:
        _need(study, "running", "paused")
        new, drawn = self._drawn(study, sent)
        controls = for_more(study, self._drafts.items(study.id), new, self._drafts.disguise)
        words = [
            f"{drawn[0].upper()}{drawn[1:]}.",
            f"{count_of(len(new) * study.rules.votes, 'more vote')} will be collected.",
        ]
        if controls:
            words.append(f"{count_of(len(controls), 'control item')} are made of their source images.")
        words.append("Images that were added cannot be taken out again.")
        return Consequences(f"Add {count_of(len(new), 'image')}?", tuple(words), "Add them")

    def _before_link_on(self, study: Study, sent: OpenInvitation) -> Consequences:
        _need(study, "running", "paused")
        words = (
            "Whoever has the link can take part under a made-up name, and gets a personal code to come back with.",
            "Anybody can pass it on, and nobody can be kept from joining twice under two names: where it matters that "
            "all votes are of different people, give personal codes instead.",
        )
        return Consequences("Open the invitation?", words, "Open it")

    def _before_link_off(self, study: Study, sent: EndInvitation) -> Consequences:
        words = (
            "Nobody else can join with it, and this link never works again; you can open another one.",
            "Those who joined go on with their personal codes.",
        )
        return Consequences("End the invitation?", words, "End it")

    def _before_codes(self, study: Study, sent: MakeCodes) -> Consequences:
        _need(study, "running", "paused")
        count = sent.codes
        words = (
            f"This study gets {count_of(count, 'new worker')}, each with a made-up name and a personal code.",
            "The codes are shown once, right after this: print or copy them before you do anything else.",
        )
        return Consequences(f"Make {count_of(count, 'personal code')}?", words, "Make them")

    def _before_enrol(self, study: Study, sent: EnrolWorkers) -> Consequences:
        _need(study, "running", "paused")
        names = [worker.id for worker in self._chosen(sent)]
        words = (
            f"{', '.join(names)} can take part: the code that each of them has opens this study as well.",
            "The studio writes to nobody: tell them yourself.",
        )
        return Consequences(f"Add {count_of(len(names), 'worker')}?", words, "Add them")

    def _before_panel(self, study: Study, sent: SetPanel) -> Consequences:
        _need(study, "running", "paused")
        panel = _panel_of(sent)
        words = []
        if panel.parameter:
            words.append(
                f"The link takes only those whom it names, by {panel.parameter}=…: each of them is one worker, however "
                "often and from wherever they come. Personal codes go on to work."
            )
        else:
            words.append("The link takes everybody who has it.")
        if panel.code or panel.address:
            words.append("Who has judged all their images is given the completion code and the way back.")
        if panel.questions:
            words.append(
                f"Everybody is asked {count_of(len(panel.questions), 'question')} about themselves, once, before their "
                "first image from now on. Each may be left open; answers stand apart from the votes."
            )
        return Consequences("Change how people of a panel take part?", tuple(words), "Change it")

    def _add_items(self, study: Study, sent: AddItems) -> None:
        new, words = self._drawn(study, sent)
        controls = for_more(study, self._drafts.items(study.id), new, self._drafts.disguise)
        self._studies.add_items(study.id, [*new, *controls])
        self._studies.note("items drawn", words, study.id)

    def _drawn(self, study: Study, sent: AddItems) -> tuple[tuple[NewItem, ...], str]:
        """What comes in, and how it was drawn in words. Raises UserError."""
        new, words = self._drafts.drawn(study, sent)
        with in_words():
            check_more(study.rules, new)
        return new, words

    def _make_codes(self, study: Study, sent: MakeCodes) -> NewCodes:
        made = []
        for _ in range(sent.codes):
            worker, code = self._studies.workers.add()
            self._studies.workers.enrol(study.id, worker.id)
            made.append(NewCode(worker.id, code))
        self._studies.note("workers invited", count_of(len(made), "personal code"), study.id)
        return NewCodes(study, tuple(made))

    def _enrol(self, study: Study, sent: EnrolWorkers) -> None:
        for worker in self._chosen(sent):
            self._studies.workers.enrol(study.id, worker.id)

    def _chosen(self, sent: EnrolWorkers) -> list[Worker]:
        if not sent.workers:
            raise UserError("Pick at least one worker.", field="workers")
        return [self._studies.workers.get(name) for name in dict.fromkeys(sent.workers)]


def _as_strict(rules: Rules, votes: int) -> int:
    """The smallest consensus of so many votes that is no weaker than that of the rules."""
    return math.ceil(votes * rules.consensus / rules.votes - 1e-9)


def _panel_of(sent: SetPanel) -> Panel:
    """The settings that were typed. Raises UserError at the field that is wrong."""
    questions = read_person_questions(whole(sent.questions))
    panel = Panel(sent.parameter.strip(), sent.code.strip(), whole(sent.address.strip()), questions)
    field, wrong = check_panel(panel)
    if wrong:
        raise UserError(wrong, field=field)
    return panel


def _need(study: Study, *states: str) -> None:
    if study.state not in states:
        raise UserError(f"This study is {study.state} by now. Please reload the page.")
