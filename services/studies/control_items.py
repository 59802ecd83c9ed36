"""Control, quiz and training items that the studio makes from source images, kept up to date with their draft.

Items that a person gave stay unchanged. If a person gave all items of a kind, the studio makes none of this kind.
If a person removes an item or changes its kind, the studio does not make an equal item later.

The studio never shows equal pictures in two of its items. Annotators who recognise a picture could conclude that the
item has a known answer. If there are too few source images, the studio disguises a source image to use it in another
item. If the study shows source images beside the items, each use of a source image is disguised. A disguise changes
brightness and colour by the same amount in the whole picture. Content and positions stay. Control and quiz items never
show a picture of a training item.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from PIL import Image, ImageEnhance

from core.studies import Item, ItemKind, LeftOutItem, NewItem, Rules, Study
from storage.studies.studies import Studies
from storage.workspace import Workspace
from study.control_items import PICTURE, IsLeftOut, made_controls, pictures_of, what_it_shows
from study.training import made_quiz, made_training

_KNOWN: tuple[ItemKind, ...] = ("control", "quiz", "training")
"""Kinds of item with a known answer."""
MADE = "made"
"""Key in `NewItem.origin` that marks an item as made by the studio. Its value names the source image."""
LOOK = "look"
"""Key in `NewItem.origin` for the number of the colour change (`LOOKS`) that disguises a copied image."""
LOOKS = (
    ((0.72, 0.88), (0.55, 0.85), 0.0),
    ((1.06, 1.16), (0.80, 1.00), 0.10),
    ((0.84, 0.96), (0.95, 1.15), -0.10),
    ((0.60, 0.70), (0.60, 0.80), 0.06),
)
"""The disguises; the first has number 1. Each has a range of factors for the brightness, a range of factors for the
saturation, and the warmth: the share by which red rises and blue falls."""
Disguise = Callable[[str, int], str]
"""Function that returns the SHA-256 of a disguised copy of an image. Each number from 1 gives a different copy."""
_STEPPING = threading.Lock()


def keep_in_step(studies: Studies, study_id: str, disguise: Disguise) -> bool:
    """Replace the control, quiz and training items that the studio made for a draft, if its rules or images now require
    others. Return True if items were replaced. Call this after adding images. A started study stays unchanged.
    """
    # Without the lock, two threads would both add the same items.
    with _STEPPING:
        study = studies.get(study_id)
        return study.state == "draft" and _make_anew(studies, study, disguise)


def _make_anew(studies: Studies, study: Study, disguise: Disguise) -> bool:
    rules, items = study.rules, studies.items(study.id)
    plain = [item for item in items if item.kind == "item"]
    made = [item for item in items if item.kind != "item" and MADE in item.origin]
    supplied = [item for item in items if item.kind != "item" and MADE not in item.origin]
    left_out = _left_out(rules, supplied)
    controls, quiz, training = (tuple[NewItem, ...](item for item in supplied if item.kind == kind) for kind in _KNOWN)

    def makes(kind: ItemKind, there: Sequence[NewItem]) -> bool:
        return not there or any(item.kind == kind for item in made)

    if not rules.training:
        training = ()
    elif makes("training", training):
        training += made_training(plain, rules, (*controls, *quiz), left_out)
    of_training = pictures_of(training)
    if rules.controls.share > 0 and makes("control", controls):
        controls += made_controls(plain, rules, left_out, apart=of_training)
    if rules.eligibility.quiz and makes("quiz", quiz):
        quiz += made_quiz(plain, rules, controls, left_out, of_training)
    # Training items first: they get the pictures without a disguise.
    new = [item for item in (*training, *controls, *quiz) if MADE in item.origin]
    needed = _shown(new, rules, disguise, [*plain, *supplied])
    if sorted(map(_signature, needed)) == sorted(map(_signature, made)):
        return False
    if made:
        studies.remove_items(study.id, [item.id for item in made])
    if needed:
        studies.add_items(study.id, needed)
    return True


def leave_out(studies: Studies, study_id: str, gone: Sequence[Item], stay: Sequence[Item] = ()) -> None:
    """Record the items `gone` in the rules. The studio then makes no equal control, quiz or training items. Only items
    that the studio made are recorded. Items that equal an item in `stay` are not recorded.
    """
    rules = studies.get(study_id).rules
    staying = {what_it_shows(item) for item in stay}
    new = [what_it_shows(replace(item, kind=kind)) for item in gone if MADE in item.origin for kind in _KNOWN]
    left_out = tuple(dict.fromkeys((*rules.left_out, *(one for one in new if one not in staying))))
    if left_out != rules.left_out:
        studies.set_rules(study_id, replace(rules, left_out=left_out))


def _left_out(rules: Rules, there: Sequence[NewItem]) -> IsLeftOut:
    """Return a function that is True for items that must not be made. These are items that the rules exclude, items
    that equal one in `there`, and items whose right answers contradict an item in `there` with the same picture.
    """
    gone = frozenset(rules.left_out)
    by_picture: dict[LeftOutItem, NewItem] = {what_it_shows(item): item for item in there}

    def is_left_out(item: NewItem) -> bool:
        others = (by_picture.get(what_it_shows(replace(item, kind=kind))) for kind in _KNOWN if kind != item.kind)
        contradicts = any(
            other.expected.get(question, answer) != answer
            for other in others
            if other is not None
            for question, answer in item.expected.items()
        )
        return contradicts or what_it_shows(item) in gone or what_it_shows(item) in by_picture

    return is_left_out


def for_more(study: Study, there: Sequence[Item], new: Sequence[NewItem], disguise: Disguise) -> tuple[NewItem, ...]:
    """Return control items to make for the images `new` of a running study. `there` are the items that it has."""
    rules = study.rules
    if rules.controls.share <= 0:
        return ()
    left_out = _left_out(rules, [item for item in there if item.kind != "item"])
    of_training = pictures_of(item for item in there if item.kind == "training") if rules.training else frozenset()
    return tuple(_shown(made_controls(new, rules, left_out, there, of_training), rules, disguise, there))


def _shown(made: Sequence[NewItem], rules: Rules, disguise: Disguise, there: Sequence[NewItem]) -> list[NewItem]:
    """Return the made items, some disguised, so that all pictures differ from each other and from those in `there`."""
    used_looks = {(what_it_shows(item).image_sha, _look(item)) for item in there}
    shown = []
    for item in made:
        picture = item.image_sha
        look = 1 if rules.show_source and picture == item.source_sha else 0
        while (picture, look) in used_looks:
            look += 1
        used_looks.add((picture, look))
        if look:
            disguise_origin = {PICTURE: picture, LOOK: look}
            item = replace(item, image_sha=disguise(picture, look), origin={**item.origin, **disguise_origin})
        shown.append(item)
    return shown


def _look(item: NewItem) -> int:
    """Return the number of an item's disguise; 0 if its picture is not disguised."""
    return int(item.origin.get(LOOK, item.image_sha != what_it_shows(item).image_sha))


def _signature(item: NewItem) -> tuple[str, str, str, str, str]:
    return (item.kind, item.image_sha, item.source_sha or "", item.label, str(sorted(item.expected.items())))


def disguises(workspace: Workspace) -> Disguise:
    """Return a function that stores a disguised copy of an image. The same image and number always give the same copy.
    It raises UserError for a missing image.
    """
    images = workspace.images
    return lru_cache(maxsize=None)(lambda sha, number: images.add(disguised(images.load(sha), sha, number)))


def disguised(image: Image.Image, seed: str, number: int = 1) -> Image.Image:
    """Return an RGB copy in other colours. `number` selects ranges of factors in `LOOKS`. `seed` fixes the factors."""
    chance = random.Random(f"disguise\0{seed}" + (f"\0{number}" if number > 1 else ""))
    light, colour, warmer = LOOKS[(number - 1) % len(LOOKS)]
    lit = ImageEnhance.Brightness(image.convert("RGB")).enhance(chance.uniform(*light))
    lit = ImageEnhance.Color(lit).enhance(chance.uniform(*colour))
    if warmer:
        red, green, blue = lit.split()
        red = red.point([min(255, round(value * (1 + warmer))) for value in range(256)])
        blue = blue.point([min(255, round(value * (1 - warmer))) for value in range(256)])
        lit = Image.merge("RGB", (red, green, blue))
    return lit
