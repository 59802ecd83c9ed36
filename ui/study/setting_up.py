"""What a person does on the set-up page of a draft: each a method that takes what the page sent and gives its reply."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from pipeline.errors import UserError
from storage.studies import Studies
from storage.study_types import Candidate
from study.readiness import findings
from study.templates import TEMPLATES
from study.types import Example, Item, NewItem, Rules, Study, Worker
from ui.readings import model_key
from ui.studio import Studio
from ui.study import drafts
from ui.study.choosing import Choice, Masks, draw, items_of, model_name, most_read, note_of, pool_of, read_choice
from ui.study.controlling import MADE, keep_in_step
from ui.study.disguise import Disguises
from ui.study.drafts import Trouble
from ui.study.frame import study_address
from ui.study.items_part import given_shown, item_window, items_shown, thumbs
from ui.study.plan_part import Assumptions, missing_part, plan_figures, read_assumptions
from ui.study.posting import FieldError, Missing, in_words, text_of
from ui.study.questions_form import questions_card
from ui.study.setup import SetUp, example_window, plain, template_of, texts_card
from ui.views.markup import Html

QUIZ = 5
"""Questions of the quiz of a new draft: without one nobody who is new could vote."""
CANDIDATES_SECONDS = 3.0
"""The test cases are read anew after so long: a filter asks for them with every change."""
PICKABLE = 60
Reply = dict[str, Any]


class SettingUp:
    """The drafts of one workspace. All methods may be called from any thread."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._lock = threading.RLock()
        self._masks = Masks(studio.workspace)
        self.disguise = Disguises(studio.workspace)
        self._candidates: tuple[float, tuple[Candidate, ...]] = (-1e9, ())

    @property
    def _studies(self) -> Studies:
        return self._studio.workspace.studies

    # A draft

    def create(self, data: Mapping[str, Any]) -> Reply:
        """A new draft, and where it is set up: of a template, or with the rules of another study ("like")."""
        seed = secrets.randbelow(10**6)
        if like := text_of(data, "like", 80):
            study = self._studies.study(like)
            name = f"{study.name[: drafts.LONGEST_NAME - 7]}, again"
            return {"go": study_address(self._studies.create(name, replace(study.rules, version=0, seed=seed)))}
        rules = template_of(text_of(data, "template", 40) or "own")
        if rules is None:
            raise FieldError("template", "There is no such template. Please reload the page.")
        try:
            name = drafts.read_name(data)
        except ValueError as error:
            raise FieldError("name", str(error)) from error
        return {"go": study_address(self._studies.create(name, drafts.default_rules(rules, QUIZ, seed)))}

    def shown(self, study_id: str, unread: Sequence[Trouble] = ()) -> SetUp:
        """All that the page shows. `unread`: what was typed and could not be read."""
        study = self._studies.study(study_id)
        items = self.items(study_id)
        troubles = (*unread, *drafts.troubles(study.rules))
        # What is missing is only told of rules that are sound.
        found = findings(study.rules, items, self.known_workers())
        return SetUp(study, items, troubles, found, self.models())

    def known_workers(self) -> tuple[Worker, ...]:
        """All who ever took part in a study of this workspace."""
        known = {worker.id: worker for study in self._studies.studies() for worker in self._studies.workers(study.id)}
        return tuple(known.values())

    def items(self, study_id: str) -> tuple[Item, ...]:
        """Of all kinds, without removed ones."""
        return tuple(item for item in self._studies.items(study_id) if not item.removed)

    def models(self) -> tuple[str, ...]:
        """Models under test that have read a test case; the one that has read most first."""
        candidates = self.candidates()
        first = most_read(candidates)
        others = {model for candidate in candidates for model in candidate.readings} - {first}
        return (first, *sorted(others)) if first else ()

    def save(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """The form as it was typed, and what one of its buttons does with it."""
        with self._lock:
            study = self._draft(study_id, data)
            form = _mapping(data, "form")
            rules, _ = drafts.read_rules(form, study.rules)
            name, _ = drafts.read_draft_name(form, study.name)
            rules, redraw = self._acted(rules, data)
            if rules != study.rules:
                self._studies.set_rules(study_id, rules)
            if name != study.name:
                self._studies.rename(study_id, name)
            keep_in_step(self._studies, self._studies.study(study_id), self.disguise)
            return self._reply(study_id, data, redraw)

    def _acted(self, rules: Rules, data: Mapping[str, Any]) -> tuple[Rules, set[str]]:
        """The rules after a button, and the parts of the page that have to be drawn anew for it."""
        redraw = {part for part in ("questions", "texts") if part == data.get("redraw")}
        act, place = data.get("act"), data.get("place")
        at = place if isinstance(place, int) and not isinstance(place, bool) else -1
        if act == "question":
            return replace(rules, questions=drafts.moved(rules.questions, text_of(data, "do", 20), at)), {"questions"}
        if act == "template":
            template = TEMPLATES.get(text_of(data, "template", 40))
            if template is None:
                raise UserError("There is no such template. Please reload the page.")
            fresh = template.rules()
            names = ("questions", "template", "show_source", "show_captions", "instructions", "consent")
            changed = {held.name: getattr(fresh, held.name) for held in fields(fresh) if held.name in names}
            return replace(rules, **changed), {"questions", "texts"}
        if act == "example-remove" and 0 <= at < len(rules.examples):
            left = tuple(example for number, example in enumerate(rules.examples) if number != at)
            return replace(rules, examples=left), {"texts"}
        if act == "example-add":
            sha = text_of(data, "sha", 64)
            self._studio.workspace.image_path(sha)
            return replace(rules, examples=(*rules.examples, Example(sha, "", ""))), {"texts"}
        return rules, redraw

    def plan(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """The figures of the plan, with what is expected of the votes."""
        assumed = read_assumptions(_mapping(data, "plan"))
        study = self._studies.study(study_id)
        return {"parts": {"part-plan": plan_figures(study.rules, plain(self.items(study_id)), assumed)}}

    # Images

    def candidates(self) -> tuple[Candidate, ...]:
        """The test cases of this workspace, at most a few seconds old."""
        with self._lock:
            read, candidates = self._candidates
            if time.monotonic() - read > CANDIDATES_SECONDS:
                candidates = self._studies.candidates()
                self._candidates = (time.monotonic(), candidates)
            return candidates

    def draw_note(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """What a filter can draw, in words."""
        choice = read_choice(_mapping(data, "draw"))
        pool = pool_of(self.candidates(), choice, self._masks, self.items(study_id))
        return {"note": note_of(pool, choice), "unread": pool.unread, "free": len(pool.free)}

    def draw(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Draw images into a draft."""
        with self._lock:
            study = self._draft(study_id, data)
            new, words = self.drawn(study, read_choice(_mapping(data, "draw")))
            self._studies.add_items(study_id, new)
            self._studies.note("items drawn", words, study_id)
            keep_in_step(self._studies, self._studies.study(study_id), self.disguise)
            return {**self._reply(study_id, data), "said": f"{words[0].upper()}{words[1:]}."}

    def drawn(self, study: Study, choice: Choice) -> tuple[tuple[NewItem, ...], str]:
        """New items by a choice, and how they were drawn in words. Raises UserError when nothing fits."""
        self._candidates = (-1e9, ())
        pool = pool_of(self.candidates(), choice, self._masks, self.items(study.id))
        with in_words():
            chosen = draw(pool, choice, study.rules.seed)
        asked_of = [question.only_with for question in study.rules.questions]
        new = items_of(chosen, choice, pool.model, self._masks, asked_of)
        way = {
            "random": "at random",
            "misclassified": f"at random of those that {model_name(pool.model)} got wrong",
            "label": "equally of each class",
            "edit type": "equally of each edit type",
        }[choice.how]
        short = f" ({choice.count} were asked for)" if len(new) < choice.count else ""
        one = "image" if len(new) == 1 else "images"
        words = f"{len(new)} {one} drawn {way}{short}, from {len(pool.free)} that fitted, seed {study.rules.seed}"
        return new, words

    def ask_model(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Have the model under test read what it has not read yet, while nobody waits."""
        choice = read_choice(_mapping(data, "draw"))
        pool = pool_of(self.candidates(), replace(choice, how="random"), self._masks)
        runs = {candidate.run_id for candidate in pool.free if pool.model not in candidate.readings}
        asked, problem = 0, ""
        for run_id in sorted(runs):
            run = self._studio.workspace.run(run_id)
            settings = self._studio.settings(run)
            wanted = self._studio.readings.model_of(run, settings)
            # A run's images are read by the model under test of that run; another one is chosen on the explore page.
            if wanted is not None and choice.model in ("", model_key(wanted)):
                problem = self._studio.readings.seen(run, settings).problem or problem
                asked += 1
        if not asked:
            problem = "These images belong to runs with another model under test: choose that one, or change it there."
        if problem:
            raise FieldError("draw", problem)
        return {"asked": asked}

    def refresh(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """The draft after images came in as files."""
        with self._lock:
            keep_in_step(self._studies, self._studies.study(study_id), self.disguise)
            return self._reply(study_id, data)

    def remove(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Take an item, or all images of a sample, out of a draft."""
        with self._lock:
            self._draft(study_id, data)
            items = self.items(study_id)
            if "group" in data:
                ids = [item.id for item in items if item.kind == "item" and item.group == data["group"]]
            else:
                ids = [item.id for item in items if item.id == data.get("item")]
            if ids:
                self._studies.remove_items(study_id, ids)
                self._studies.note("items removed", f"{len(ids)} removed from the draft", study_id)
            keep_in_step(self._studies, self._studies.study(study_id), self.disguise)
            return self._reply(study_id, data)

    def known(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Make an item a control or quiz item with right answers, or an ordinary one again."""
        with self._lock:
            study = self._draft(study_id, data)
            item = self._item(study_id, data)
            kind = data.get("kind")
            if kind not in ("item", "control", "quiz"):
                raise UserError("There is no such kind of item. Please reload the page.")
            new = replace(_new(item), kind=kind, expected=self._expected(study, data) if kind != "item" else {})
            if item.kind == "item":
                new = replace(new, group="")
            elif kind == "item":
                new = replace(new, group="given")
            self._studies.remove_items(study_id, [item.id])
            self._studies.add_items(study_id, [new])
            keep_in_step(self._studies, self._studies.study(study_id), self.disguise)
            return self._reply(study_id, data)

    def _expected(self, study: Study, data: Mapping[str, Any]) -> dict[str, str]:
        sent = _mapping(data, "expected")
        right = {
            question.id: str(sent[question.id])
            for question in study.rules.questions
            if sent.get(question.id) in question.answers()
        }
        if not right:
            raise FieldError("known", "Say the right answer to at least one question.")
        return right

    def window(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """One item, large."""
        study = self._studies.study(study_id)
        return {"html": item_window(self._item(study_id, data), study.rules, study.state == "draft")}

    def more(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Further pictures of the items."""
        start = data.get("from")
        if not isinstance(start, int) or isinstance(start, bool) or start < 0:
            raise UserError("There are no such pictures. Please reload the page.")
        return {"html": thumbs([item for item in self.items(study_id) if item.kind == "item"], start)}

    def examples(self, data: Mapping[str, Any], study_id: str) -> Reply:
        """Pictures that can be an example: of the source images, and of test cases that are not judged here."""
        items = self.items(study_id)
        taken = {item.image_sha for item in items}
        sources = dict.fromkeys(item.source_sha for item in items if item.source_sha)
        others = dict.fromkeys(held.image_sha for held in self.candidates() if held.image_sha not in taken)
        groups = (
            ("Source images of this study", list(sources)[:PICKABLE]),
            ("Generated images that are not in this study", list(others)[:PICKABLE]),
        )
        return {"html": example_window(groups)}

    # Replies

    def _reply(self, study_id: str, data: Mapping[str, Any], redraw: Collection[str] = ()) -> Reply:
        """What the page shows now. What was typed and cannot be read is told whatever else was done."""
        form, study = _mapping(data, "form"), self._studies.study(study_id)
        unread = (*drafts.read_draft_name(form, study.name)[1], *drafts.read_rules(form, study.rules)[1])
        shown = self.shown(study_id, unread)
        study, items = shown.study, shown.items
        try:
            assumed = read_assumptions(_mapping(data, "plan"))
        except FieldError:
            assumed = Assumptions()
        parts: dict[str, Html] = {
            "part-plan": plan_figures(study.rules, plain(items), assumed),
            "part-missing": missing_part(study, shown.troubles, shown.findings),
            "part-items": items_shown(items),
            "part-control": given_shown(items, "control", "control"),
            "part-quiz": given_shown(items, "quiz", "quiz"),
        }
        if "questions" in redraw:
            parts["part-questions"] = questions_card(study.rules, shown.problems, shown.classes)
        if "texts" in redraw:
            parts["part-texts"] = texts_card(study.rules, shown.problems)
        return {
            "changed": study.changed.isoformat(),
            "problems": dict(shown.problems),
            "unread": len(unread),
            "parts": parts,
        }

    def _draft(self, study_id: str, data: Mapping[str, Any]) -> Study:
        study = self._studies.study(study_id)
        if study.state != "draft":
            raise UserError("This study has started, so its set-up is frozen. Please reload the page.")
        based = data.get("based")
        if isinstance(based, str) and based and based != study.changed.isoformat():
            raise UserError(
                "This draft was changed in another window. Please reload the page and go on from there; "
                "what you typed last was not saved."
            )
        return study

    def _item(self, study_id: str, data: Mapping[str, Any]) -> Item:
        for item in self.items(study_id):
            if item.id == data.get("item"):
                return item
        raise Missing("This image is not in the study any more. Please reload the page.")


def _new(item: Item) -> NewItem:
    """An item as it came in, to be put in anew."""
    origin = {name: value for name, value in item.origin.items() if name != MADE}
    return NewItem(**{held.name: getattr(item, held.name) for held in fields(NewItem)} | {"origin": origin})


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}
