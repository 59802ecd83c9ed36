"""What a lead does with a whole study: delete, start, pause, extend, close, invite. Each is told before it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from storage.studies import Studies
from study.questions import check_rules
from study.readiness import findings
from study.types import Study, Worker
from ui.study.choosing import read_choice
from ui.study.controlling import for_more
from ui.study.drafts import NumberField, read_number
from ui.study.frame import study_address
from ui.study.invitations import codes_part
from ui.study.posting import FieldError, in_words, text_of
from ui.study.setting_up import SettingUp

MOST_CODES = 200
IMPORTED = "imported-"
"""Begins the names of workers whose votes came as a file: they have no code."""
Reply = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What an act will do, for the window that asks once more."""

    title: str
    words: tuple[str, ...]
    button: str
    bad: bool = False
    """It cannot be taken back."""


class Life:
    """The acts on the studies of one workspace, by name. All methods may be called from any thread."""

    def __init__(self, studies: Studies, setting_up: SettingUp) -> None:
        self._studies, self._setting_up = studies, setting_up
        self._lock = threading.Lock()
        self._acts: Mapping[str, tuple[Callable[[Study, Mapping[str, Any]], Told], Callable[..., Reply]]] = {
            "delete": (self._before_delete, self._delete),
            "start": (self._before_start, self._start),
            "pause": (self._before_pause, self._pause),
            "resume": (self._before_resume, self._resume),
            "close": (self._before_close, self._close),
            "votes": (self._before_votes, self._votes),
            "items": (self._before_items, self._items),
            "link-on": (self._before_link_on, self._link_on),
            "link-off": (self._before_link_off, self._link_off),
            "codes": (self._before_codes, self._codes),
            "enrol": (self._before_enrol, self._enrol),
        }

    def before(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """What an act would do. Raises UserError where it cannot be done."""
        told = self._of(data)[0](self._studies.study(study_id), data)
        return {"title": told.title, "words": list(told.words), "button": told.button, "bad": told.bad}

    def act(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Do it. Raises UserError where it cannot be done any more."""
        with self._lock:
            study = self._studies.study(study_id)
            before, act = self._of(data)
            before(study, data)
            return act(study, data)

    def _of(self, data: Mapping[str, Any]) -> tuple[Callable[[Study, Mapping[str, Any]], Told], Callable[..., Reply]]:
        name = text_of(data, "act", 20)
        if name not in self._acts:
            raise UserError("There is no such thing to do. Please reload the page.")
        return self._acts[name]

    # Delete, start, pause, resume, close

    def _before_delete(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "draft")
        words = (
            "The draft is gone for good: its questions, its instructions and its choice of "
            f"{_count(study.items, 'image')}.",
            "The images themselves stay, and so do the runs that they come from.",
        )
        return Told(f"Delete “{study.name}”?", words, "Delete the draft", bad=True)

    def _delete(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.delete_draft(study.id)
        return {"go": "/study/"}

    def _before_start(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "draft")
        with in_words():
            check_rules(study.rules)
        items = self._setting_up.items(study.id)
        for finding in findings(study.rules, items):
            if finding.stops:
                raise UserError(finding.text)
        rules = study.rules
        quiz = rules.eligibility.quiz
        words = [
            "The rules become version 1 and are frozen: questions, control policy, eligibility, instructions and "
            "consent cannot be changed any more. More images and more votes can be asked for later.",
            f"{_count(study.items, 'image')} get {rules.votes} votes each, of {rules.votes} different people: "
            f"{study.items * rules.votes:,} votes. {rules.consensus} equal ones make a consensus.",
            f"{_count(study.controls, 'control item')} stand between them."
            if study.controls and rules.controls.share
            else "There are no control items: nothing will filter unreliable votes.",
        ]
        if quiz:
            words.append(f"Who has no record yet answers {_count(quiz, 'quiz question')} first.")
        words.append("Nobody is invited by the start itself: the next page has the link and personal codes.")
        return Told(f"Start “{study.name}”?", tuple(words), "Start the study")

    def _start(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.start(study.id)
        return {"go": study_address(study.id, "run")}

    def _before_pause(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running")
        words = (
            "Annotators get no image and no answer is taken until you go on. They are told that the study is paused, "
            "and keep their place.",
            "Whoever is at an image right now cannot send that answer until then; the page keeps it.",
        )
        return Told(f"Pause “{study.name}”?", words, "Pause")

    def _pause(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.pause(study.id)
        return {"reload": True}

    def _before_resume(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "paused")
        return Told(f"Go on with “{study.name}”?", ("Annotators get images again, at once.",), "Go on")

    def _resume(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.resume(study.id)
        return {"reload": True}

    def _before_close(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running", "paused")
        missing = study.needed - study.votes
        words = ["No vote is taken any more, for good; a closed study cannot be opened again."]
        if missing > 0:
            words.append(f"{missing:,} of {study.needed:,} votes are missing: images that have too few stay undecided.")
        words.append("Results, adjudication, approvals and exports go on to work.")
        return Told(f"Close “{study.name}” for good?", tuple(words), "Close it for good", bad=True)

    def _close(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.close(study.id)
        return {"reload": True}

    # Extend

    def _before_votes(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running", "paused")
        votes, consensus = _votes(data)
        rules = study.rules
        if votes < rules.votes:
            raise FieldError("more.votes", f"Votes can only be added: give {rules.votes} or more.")
        if (votes, consensus) == (rules.votes, rules.consensus):
            raise FieldError("more.votes", "That is what the rules ask for already.")
        if not votes < 2 * consensus <= 2 * votes:
            raise FieldError("more.consensus", f"The consensus is {votes // 2 + 1} to {votes} of {votes} votes.")
        more = (votes - rules.votes) * study.items
        words = [f"The rules get version {rules.version + 1}: {votes} votes an image, consensus {consensus}."]
        if more:
            words.append(f"{_count(more, 'more vote')} will be collected, also of images that were finished.")
        if consensus != rules.consensus:
            words.append("The result is counted by the new consensus from now on; the report states both versions.")
        return Told("Ask for more votes?", tuple(words), "Change the rules")

    def _votes(self, study: Study, data: Mapping[str, Any]) -> Reply:
        votes, consensus = _votes(data)
        self._studies.set_votes(study.id, votes, consensus)
        return {"reload": True}

    def _before_items(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running", "paused")
        new, drawn = self._setting_up.drawn(study, read_choice(_draw(data)))
        controls = for_more(study, new, self._setting_up.disguise)
        words = [
            f"{drawn[0].upper()}{drawn[1:]}.",
            f"{_count(len(new) * study.rules.votes, 'more vote')} will be collected.",
        ]
        if controls:
            words.append(f"{_count(len(controls), 'control item')} are made of their source images.")
        words.append("Images that were added cannot be taken out again.")
        return Told(f"Add {_count(len(new), 'image')}?", tuple(words), "Add them")

    def _items(self, study: Study, data: Mapping[str, Any]) -> Reply:
        new, drawn = self._setting_up.drawn(study, read_choice(_draw(data)))
        self._studies.add_items(study.id, [*new, *for_more(study, new, self._setting_up.disguise)])
        self._studies.note("items drawn", drawn, study.id)
        return {"reload": True}

    # Invite

    def _before_link_on(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running", "paused")
        words = (
            "Whoever has the link can take part under a made-up name, and gets a personal code to come back with.",
            "Anybody can pass it on, and nobody can be kept from joining twice under two names: where it matters that "
            "all votes are of different people, give personal codes instead.",
        )
        return Told("Open the invitation?", words, "Open it")

    def _link_on(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.set_link(study.id, True)
        return {"reload": True}

    def _before_link_off(self, study: Study, data: Mapping[str, Any]) -> Told:
        words = (
            "Nobody else can join with it, and this link never works again; you can open another one.",
            "Those who joined go on with their personal codes.",
        )
        return Told("End the invitation?", words, "End it")

    def _link_off(self, study: Study, data: Mapping[str, Any]) -> Reply:
        self._studies.set_link(study.id, False)
        return {"reload": True}

    def _before_codes(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running", "paused")
        count = _codes(data)
        words = (
            f"{_count(count, 'new worker')} with made-up names are added to this study, each with a personal code.",
            "The codes are shown once, right after this: print or copy them before you leave the page.",
        )
        return Told(f"Make {_count(count, 'personal code')}?", words, "Make them")

    def _codes(self, study: Study, data: Mapping[str, Any]) -> Reply:
        made = []
        for _ in range(_codes(data)):
            worker, code = self._studies.add_worker()
            self._studies.enrol(study.id, worker.id)
            made.append((worker.id, code))
        return {"parts": {"part-codes": codes_part(study, made)}}

    def can_be_invited(self, workers: Sequence[Worker]) -> tuple[Worker, ...]:
        """Those with a code of this studio who are not blocked, the best record first."""
        there = [worker for worker in workers if not worker.blocked and not worker.id.startswith(IMPORTED)]
        return tuple(sorted(there, key=lambda worker: (-worker.approved, worker.rejected, worker.id)))

    def _before_enrol(self, study: Study, data: Mapping[str, Any]) -> Told:
        _need(study, "running", "paused")
        names = [worker.id for worker in self._chosen(data)]
        words = (
            f"{', '.join(names)} can take part: the code that each of them has opens this study as well.",
            "The studio writes to nobody: tell them yourself.",
        )
        return Told(f"Add {_count(len(names), 'worker')}?", words, "Add them")

    def _enrol(self, study: Study, data: Mapping[str, Any]) -> Reply:
        for worker in self._chosen(data):
            self._studies.enrol(study.id, worker.id)
        return {"reload": True}

    def _chosen(self, data: Mapping[str, Any]) -> list[Worker]:
        sent = data.get("workers")
        names = [name for name in sent if isinstance(name, str)] if isinstance(sent, list) else []
        if not names:
            raise FieldError("workers", "Pick at least one worker.")
        return [self._studies.worker(name) for name in dict.fromkeys(names[:MOST_CODES])]


def _need(study: Study, *states: str) -> None:
    if study.state not in states:
        raise UserError(f"This study is {study.state} by now. Please reload the page.")


def _votes(data: Mapping[str, Any]) -> tuple[int, int]:
    return _number(data, "more.votes", 50), _number(data, "more.consensus", 50)


def _codes(data: Mapping[str, Any]) -> int:
    return _number(data, "codes", MOST_CODES)


def _number(data: Mapping[str, Any], name: str, most: int) -> int:
    try:
        return int(read_number(data.get(name), NumberField(name, 1, most)))
    except ValueError as error:
        raise FieldError(name, str(error)) from error


def _draw(data: Mapping[str, Any]) -> Mapping[str, Any]:
    value = data.get("draw")
    return value if isinstance(value, Mapping) else {}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
