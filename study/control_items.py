"""Control items: when a worker gets one, whether the answer is right, when a worker is out, and how they are made."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from core.studies import Answers, ControlPolicy, ItemKind, LeftOutItem, NewItem, Question, Rules, asked
from core.words import count_of

PICTURE = "picture"
"""The key of `NewItem.origin` with the hash of the picture that an item shows in another light."""
IsLeftOut = Callable[[NewItem], bool]
"""Whether an item with a known answer that could be made is not."""


def next_kind(rules: Rules, worker_id: str, items_seen: int, controls_seen: int) -> ItemKind:
    """Whether the next thing a worker sees is an item or a control item.

    The worker's run is cut into stretches of 1 / share; each has one control item, at a place drawn from a hash
    (SHA-256 of seed, worker and number), so that no worker can guess it, two workers differ, and a reload changes
    nothing: control j (from 0) comes as soon as items_seen + controls_seen >= floor((j + u_j) / share), u_j uniform in
    [0, 1). So the share is kept within one control item at any time. `items_seen` and `controls_seen` count what was
    answered.
    """
    share = rules.controls.share
    if share <= 0:
        return "item"
    digest = hashlib.sha256(f"control\0{rules.seed}\0{worker_id}\0{controls_seen}".encode()).digest()
    uniform = int.from_bytes(digest[:7], "big") / 2**56
    due = math.floor((controls_seen + uniform) / share + 1e-9)
    return "control" if items_seen + controls_seen >= due else "item"


def judge(policy: ControlPolicy, seen: int, right: int) -> str:
    """Return why a worker is excluded: seen >= min_seen and right / seen < min_right; "" if there is no reason."""
    if seen < policy.min_seen or seen == 0 or right >= policy.min_right * seen - 1e-9:
        return ""
    return f"{right} of {count_of(seen, 'control item')} right; at least {100 * policy.min_right:.4g} % were asked for."


def controls_wanted(items: int, share: float) -> int:
    """How many control items a worker sees who judges all `items`: items * share / (1 - share), rounded up."""
    return math.ceil(items * share / (1 - share) - 1e-9) if 0 < share < 1 else 0


def made_controls(
    items: Sequence[NewItem],
    rules: Rules,
    left_out: IsLeftOut = lambda item: False,
    there: Sequence[NewItem] = (),
    apart: frozenset[str] = frozenset(),
) -> tuple[NewItem, ...]:
    """Control items made of the source images of `items`, as many as one worker who judges all of them sees.

    Half of them (one more, if odd) are right as they stand: the source image in place of the generated one, so that
    "yes" is true. The rest are wrong for certain: the source with the label of another item, or, for a question about a
    class (`only_with`), another scene that does not show this class. Only yes-no questions where "yes" alone is valid
    can be made so; the other questions are asked but not judged. Fewer come back, or none, where there is nothing to
    make them of: no source images, no second label, no scene without the class. In place of one that is `left_out`
    another one is made. Drawn with the seed of the rules.

    `there` is what a study that is extended by `items` has, of every kind. Wrong labels and other scenes are taken from
    it too, source images of its control and quiz items come last, and right and wrong ones are counted together.

    `apart` are the hashes of images that none of them shows, nor is made of: those of the training, where everybody is
    told the right answer.
    """
    usable = [q for q in rules.questions if q.kind == "yes-no" and q.valid == ("yes",) and not q.follows]
    by_source: dict[str, NewItem] = {}
    for item in items:
        if item.kind == "item" and item.source_sha and item.source_sha not in apart:
            by_source.setdefault(item.source_sha, item)
    drawn = random.Random(f"controls {rules.seed}")
    sources = sorted(by_source.values(), key=lambda item: item.source_sha or "")
    drawn.shuffle(sources)
    scenes = [
        *sources,
        *(one for one in there if one.kind == "item" and one.source_sha and one.source_sha not in apart),
    ]
    number = controls_wanted(sum(item.kind == "item" for item in items), rules.controls.share)
    labels = sorted({item.label for item in (*items, *there) if item.label})
    right_ones = [made for item in sources if (made := _true(item, usable)) and not left_out(made)]
    # From the other end: as long as there are enough sources, no image is both a right and a wrong one.
    could_be = [made for item in reversed(sources) if (made := _false(item, usable, labels, scenes, drawn))]
    wrong_ones = [made for made in could_be if not left_out(made)]
    seen = {what_it_shows(item).image_sha for item in there if item.kind != "item"}
    for ones in (right_ones, wrong_ones):
        ones.sort(key=lambda item: item.image_sha in seen)
    answers = [set(item.expected.values()) for item in there if item.kind == "control"]
    more_right = sum(given == {"yes"} for given in answers) - sum("no" in given for given in answers)
    half = min(len(wrong_ones), max(0, min(number, (number + more_right) // 2)))
    chosen = right_ones[: number - half] + wrong_ones[:half]
    drawn.shuffle(chosen)
    return tuple(chosen)


def pictures_of(items: Iterable[NewItem]) -> frozenset[str]:
    """Return all pictures of these items: as shown, as they were before, and their sources."""
    shown = (sha for item in items for sha in (item.image_sha, item.source_sha, item.origin.get(PICTURE)))
    return frozenset(str(sha) for sha in shown if sha)


def what_it_shows(item: NewItem) -> LeftOutItem:
    """Which control, quiz or training item it is, whatever its answers, and whether or not it was disguised."""
    source = item.source_sha or item.image_sha
    of_source = item.origin.get("made") in ("source image", "wrong label")
    shown = item.origin.get(PICTURE) or (source if of_source else item.image_sha)
    return LeftOutItem(item.kind, shown, source, item.label)


def _control(item: NewItem, image_sha: str, expected: Answers, made: str) -> NewItem:
    """Make the source beside `image_sha` a control item. The caption stays, as equal captions would give it away."""
    return NewItem(
        image_sha=image_sha,
        source_sha=item.source_sha,
        kind="control",
        expected=dict(expected),
        label=item.label,
        classes=item.classes,
        caption=item.caption,
        counterfactual=item.counterfactual or item.caption,
        origin={"made": made, "source": item.source_sha},
    )


def _true(item: NewItem, usable: Sequence[Question]) -> NewItem | None:
    """The source in place of the generated image: every usable question that it gets is answered with yes."""
    expected = {
        question.id: "yes"
        for question in asked(usable, item, {})
        if question.only_with or ("{label}" in question.text and item.label)
    }
    return _control(item, item.source_sha or "", expected, "source image") if expected else None


def _false(
    item: NewItem, usable: Sequence[Question], labels: Sequence[str], scenes: Sequence[NewItem], drawn: random.Random
) -> NewItem | None:
    """The source with a wrong label, or a scene without a class that the source has."""
    own = {name.casefold() for name in (*item.classes, item.label)}
    others = [label for label in labels if label.casefold() not in own]
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
