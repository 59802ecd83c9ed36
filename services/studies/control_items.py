"""Control and quiz items that are made of source images: kept in step with the draft that they belong to.

Those that a person gave stay as they are. As long as there are only given ones, none are made beside them. What a
person removed or marked is not made again. Where the source is shown beside an item, a source image as an item is
disguised, so that it looks like a generated one of itself: two equal pictures would tell an annotator at once that
the answer is known. Only light and colour change, everywhere by as much: what the picture shows, and where, stays.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from PIL import Image, ImageEnhance

from storage.studies import Studies
from storage.workspace import Workspace
from study.control_items import IsLeftOut, made_controls, what_it_shows
from study.quiz import made_quiz
from study.types import Item, ItemKind, LeftOut, NewItem, Rules, Study

MADE = "made"
"""The key of `NewItem.origin` that says that an item was made, and of what."""
LIGHT = (0.72, 0.88)
"""Brightness, as a share of the source's."""
COLOUR = (0.55, 0.85)
"""Saturation, as a share of the source's."""
Disguise = Callable[[str], str]
"""Gives the hash of an image that stands in for the one with this hash."""


def keep_in_step(studies: Studies, study: Study, disguise: Disguise) -> bool:
    """Make the control and quiz items of a draft anew, if they are others now. Whether anything changed."""
    items = studies.items(study.id)
    plain = [item for item in items if item.kind == "item"]
    rules = study.rules
    left_out = _left_out(rules, [item for item in items if item.kind != "item" and MADE not in item.origin])
    controls: Sequence[NewItem] = _given(items, "control")
    if rules.controls.share > 0 and (_made(items, "control") or not controls):
        controls = (*controls, *made_controls(plain, rules, left_out))
    quiz: Sequence[NewItem] = _given(items, "quiz")
    if rules.eligibility.quiz and (_made(items, "quiz") or not quiz):
        quiz = (*quiz, *made_quiz(plain, rules, controls, left_out))
    wanted = [_shown(item, rules, disguise) for item in (*controls, *quiz) if MADE in item.origin]
    there = [item for item in items if item.kind != "item" and MADE in item.origin]
    if sorted(map(_signature, wanted)) == sorted(map(_signature, there)):
        return False
    if there:
        studies.remove_items(study.id, [item.id for item in there])
    if wanted:
        studies.add_items(study.id, wanted)
    return True


def leave_out(studies: Studies, study_id: str, gone: Sequence[Item], stay: Sequence[Item] = ()) -> None:
    """Remember of a draft that those of `gone` that were made are not made again, neither as control nor as quiz item.

    What is among `stay` as an item of the other kind stays.
    """
    rules = studies.get(study_id).rules
    kinds: tuple[ItemKind, ...] = ("control", "quiz")
    staying = {what_it_shows(item) for item in stay}
    new = [what_it_shows(replace(item, kind=kind)) for item in gone if MADE in item.origin for kind in kinds]
    left_out = tuple(dict.fromkeys((*rules.left_out, *(one for one in new if one not in staying))))
    if left_out != rules.left_out:
        studies.set_rules(study_id, replace(rules, left_out=left_out))


def _left_out(rules: Rules, there: Sequence[NewItem]) -> IsLeftOut:
    """What is left out by the rules, or is `there`: with the same kind, or as the other kind with another answer."""
    gone = frozenset(rules.left_out)
    held: dict[LeftOut, NewItem] = {what_it_shows(item): item for item in there}

    def is_left_out(item: NewItem) -> bool:
        other: ItemKind = "quiz" if item.kind == "control" else "control"
        beside = held.get(what_it_shows(replace(item, kind=other)))
        contradicts = beside is not None and any(
            beside.expected.get(question, answer) != answer for question, answer in item.expected.items()
        )
        return contradicts or what_it_shows(item) in gone or what_it_shows(item) in held

    return is_left_out


def for_more(study: Study, there: Sequence[Item], new: Sequence[NewItem], disguise: Disguise) -> tuple[NewItem, ...]:
    """The control items that go with images that are added to a study that runs; none if it has no control items.

    `there`: what it has already, of all kinds; nothing of it is made again.
    """
    rules = study.rules
    if rules.controls.share <= 0:
        return ()
    left_out = _left_out(rules, [item for item in there if item.kind != "item"])
    return tuple(_shown(item, rules, disguise) for item in made_controls(new, rules, left_out, there))


def _shown(item: NewItem, rules: Rules, disguise: Disguise) -> NewItem:
    """The item so that nobody sees that it was made."""
    if rules.show_source and item.source_sha and item.image_sha == item.source_sha:
        return replace(item, image_sha=disguise(item.source_sha))
    return item


def _given(items: Sequence[Item], kind: ItemKind) -> tuple[Item, ...]:
    return tuple(item for item in items if item.kind == kind and MADE not in item.origin)


def _made(items: Sequence[Item], kind: ItemKind) -> tuple[Item, ...]:
    return tuple(item for item in items if item.kind == kind and MADE in item.origin)


def _signature(item: NewItem) -> tuple[str, str, str, str, str]:
    return (item.kind, item.image_sha, item.source_sha or "", item.label, str(sorted(item.expected.items())))


class Disguises:
    """The images of one workspace and their disguises. May be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._made: dict[str, str] = {}
        self._lock = threading.Lock()

    def __call__(self, sha: str) -> str:
        """The hash of the disguise of an image; the same whenever it is asked for. Raises UserError for no image."""
        with self._lock:
            if sha not in self._made:
                self._made[sha] = self._workspace.images.add(disguised(self._workspace.images.load(sha), sha))
            return self._made[sha]


def disguised(image: Image.Image, seed: str) -> Image.Image:
    """An RGB image of the same size, darker and paler, by amounts drawn with `seed`."""
    drawn = random.Random(f"disguise\0{seed}")
    darker = ImageEnhance.Brightness(image.convert("RGB")).enhance(drawn.uniform(*LIGHT))
    return ImageEnhance.Color(darker).enhance(drawn.uniform(*COLOUR))
