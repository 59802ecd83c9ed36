"""Control items: when a worker gets one, when a worker is excluded, and how they are made."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from core.csv_tables import cells
from core.studies import Answers, ControlPolicy, ItemKind, LeftOutItem, NewItem, Question, Rules, asked
from core.words import count_of

PICTURE = "picture"
"""Key in `NewItem.origin` for the hash of the original picture, if the item shows it with changed colours."""
IsLeftOut = Callable[[NewItem], bool]
"""Function that returns True if a possible control, quiz or training item must not be made."""


def next_kind(rules: Rules, worker_id: str, items_seen: int, controls_seen: int) -> ItemKind:
    """Return "control" or "item", the kind of a worker's next item.

    The rules set the share of control items. Each stretch of 1 / share items has one control item. The place of the
    control item comes from a hash (SHA-256 of seed, worker and number), so nobody can guess it and a reload keeps it.
    Control item j (from 0) comes as soon as items_seen + controls_seen >= floor((j + u_j) / share). u_j is uniform in
    [0, 1). So the number of control items differs from share * (number of all items) by at most one.
    `items_seen` and `controls_seen` count answered items.
    """
    share = rules.controls.share
    if share <= 0:
        return "item"
    digest = hashlib.sha256(f"control\0{rules.seed}\0{worker_id}\0{controls_seen}".encode()).digest()
    uniform = int.from_bytes(digest[:7], "big") / 2**56
    due = math.floor((controls_seen + uniform) / share + 1e-9)
    return "control" if items_seen + controls_seen >= due else "item"


def judge(policy: ControlPolicy, seen: int, right: int) -> str:
    """Return the reason to exclude a worker (seen >= min_seen and right / seen < min_right); "" to keep the worker."""
    if seen < policy.min_seen or seen == 0 or right >= policy.min_right * seen - 1e-9:
        return ""
    return f"{right} of {count_of(seen, 'control item')} right; at least {100 * policy.min_right:.4g} % were asked for."


def controls_wanted(items: int, share: float) -> int:
    """Return the number of control items for a worker who judges all `items`.

    It is items * share / (1 - share), rounded up.
    """
    return math.ceil(items * share / (1 - share) - 1e-9) if 0 < share < 1 else 0


def made_controls(
    items: Sequence[NewItem],
    rules: Rules,
    left_out: IsLeftOut = lambda item: False,
    there: Sequence[NewItem] = (),
    apart: frozenset[str] = frozenset(),
) -> tuple[NewItem, ...]:
    """Make control items from the source images of `items`, enough for one worker who judges all of these items.

    Half of the control items have the right answer "yes": they show the source image in place of the generated image.
    The other half has the right answer "no": these items show the source image with the label of another item. For a
    question about a class (`only_with`), they show another scene without this class. An odd number gives one more
    "yes" item. Only yes-no questions where "yes" alone is valid get right answers. Fewer or no items are returned if
    source images, a second label or a scene without the class are missing. Items are drawn with the seed of the rules.

    `there` are the items that the study has already. Wrong labels and other scenes come from these items too. Their
    control items count when "yes" and "no" are balanced. Source images of their control and quiz items are used last.

    `apart` are hashes of the images in training items, which reveal the answers. Control items never use these images.
    """
    usable = [q for q in rules.questions if q.kind == "yes-no" and q.valid == ("yes",) and not q.follows]
    by_source = {item.source_sha: item for item in reversed(items) if _has_source(item, apart)}
    drawn = random.Random(f"controls {rules.seed}")
    sources = sorted(by_source.values(), key=lambda item: item.source_sha or "")
    drawn.shuffle(sources)
    scenes = [*sources, *(item for item in there if _has_source(item, apart))]
    number = controls_wanted(sum(item.kind == "item" for item in items), rules.controls.share)
    labels = sorted({item.label for item in (*items, *there) if item.label})
    right_ones = [made for item in sources if (made := _true(item, usable)) and not left_out(made)]
    # In reverse order, so with enough sources no image is used for a right and a wrong item.
    could_be = [made for item in reversed(sources) if (made := _false(item, usable, labels, scenes, drawn))]
    wrong_ones = [made for made in could_be if not left_out(made)]
    seen = {what_it_shows(item).image_sha for item in there if item.kind != "item"}
    for ones in (right_ones, wrong_ones):
        ones.sort(key=lambda item: item.image_sha in seen)
    answers = [set(item.expected.values()) for item in there if item.kind == "control"]
    more_right = sum(values == {"yes"} for values in answers) - sum("no" in values for values in answers)
    half = min(len(wrong_ones), max(0, min(number, (number + more_right) // 2)))
    chosen = right_ones[: number - half] + wrong_ones[:half]
    drawn.shuffle(chosen)
    return tuple(chosen)


def _has_source(item: NewItem, apart: frozenset[str]) -> bool:
    return item.kind == "item" and bool(item.source_sha) and item.source_sha not in apart


def pictures_of(items: Iterable[NewItem]) -> frozenset[str]:
    """Return the hashes of the items' pictures: images as shown, images before a colour change, and source images."""
    shown = (sha for item in items for sha in (item.image_sha, item.source_sha, item.origin.get(PICTURE)))
    return frozenset(str(sha) for sha in shown if sha)


def what_it_shows(item: NewItem) -> LeftOutItem:
    """Return a key for an item with a known answer. Items that differ only in right answers or colours share a key."""
    source = item.source_sha or item.image_sha
    of_source = item.origin.get("made") in ("source image", "wrong label")
    shown = item.origin.get(PICTURE) or (source if of_source else item.image_sha)
    return LeftOutItem(item.kind, shown, source, item.label)


def _control(item: NewItem, image_sha: str, expected: Answers, made: str) -> NewItem:
    """Return a control item that shows `image_sha`. It has both captions of `item`: equal captions would reveal it."""
    return NewItem(
        **cells(item, "source_sha label classes caption"),
        image_sha=image_sha,
        kind="control",
        expected=dict(expected),
        counterfactual=item.counterfactual or item.caption,
        origin={"made": made, "source": item.source_sha},
    )


def _true(item: NewItem, usable: Sequence[Question]) -> NewItem | None:
    """Return a control item that shows the source, so that "yes" is the right answer; None without usable question."""
    expected = {
        question.id: "yes"
        for question in asked(usable, item, {})
        if question.only_with or ("{label}" in question.text and item.label)
    }
    return _control(item, item.source_sha or "", expected, "source image") if expected else None


def _false(
    item: NewItem, usable: Sequence[Question], labels: Sequence[str], scenes: Sequence[NewItem], drawn: random.Random
) -> NewItem | None:
    """Return a control item with a wrong label, or with a picture without the class; None if there is neither."""
    own_names = {name.casefold() for name in (*item.classes, item.label)}
    others = [label for label in labels if label.casefold() not in own_names]
    about_label = [question for question in asked(usable, item, {}) if "{label}" in question.text]
    if about_label and item.label and others:
        wrong = replace(item, label=drawn.choice(others))
        return _control(wrong, item.source_sha or "", {question.id: "no" for question in about_label}, "wrong label")
    about_class = [question for question in asked(usable, item, {}) if question.only_with]
    for question in about_class:
        without = [scene for scene in scenes if _lacks(scene, question.only_with)]
        if without:
            scene = drawn.choice(without)
            expected = {q.id: "no" for q in about_class if _lacks(scene, q.only_with)}
            return _control(item, scene.source_sha or "", expected, "another scene")
    return None


def _lacks(item: NewItem, name: str) -> bool:
    return bool(item.classes) and name.casefold() not in {shown.casefold() for shown in item.classes}
