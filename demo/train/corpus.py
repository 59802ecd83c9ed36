"""Examples to train the embedded language model: prompt and target reply of the language stages of all recipes.

The target replies follow `demo.language`, which also writes the captions, in all forms and with all synonyms. About
half of the captions are then changed at random, as people may write: sentences are dropped, moved or added, and words
are swapped or inserted, even unknown words. A keyword that occurs twice (two red cars) is listed once, and an edit
changes both cars. A snowy caption does not mention the ground under the snow; if an edit melts the snow, the ground is
grassy. A perturbation changes one phrase, without the consequences. The reply is "none" if no word of the requested
type may change. This module knows nothing of tokens or training.
"""

from __future__ import annotations

import dataclasses
import random
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from core.types import CounterfactualCaption, Edit, EditType, Task, failed
from core.words import find_phrase
from demo.language import (
    CANONICAL,
    OTHER_NAMES,
    TIME_PHRASES,
    Wording,
    article,
    canonical,
    caption,
    ground_sentence,
    protected_words,
    random_wording,
    water_sentence,
)
from demo.scene import (
    COLOURS,
    GROUNDS,
    HILLS,
    PROTECTED_ROAD_CLASSES,
    SEMANTIC_CLASSES,
    TREES,
    WALLS,
    WATERS,
    WEATHERS,
    Scene,
    random_scene,
)
from demo.train.word_lists import (
    MORE_COLOURS,
    MORE_GROUNDS,
    MORE_LOOKS,
    MORE_TIMES,
    MORE_WEATHERS,
    PLAIN_SENTENCES,
    SYNONYMS,
    THING_SENTENCES,
    THINGS,
    WORDS,
)
from pipeline.checks.single_edit import changes
from pipeline.checks.texts import counterfactual_checks

PROMPTS = Path(__file__).resolve().parents[2] / "prompts" / "demo"
STAGES = ("keywords", "alternatives", "counterfactuals", "perturbations")
HIDDEN_GROUND = GROUNDS[0]
"""The ground that a caption names after an edit has removed the snow."""
COUNTS = (1, 2, 3, 3, 3, 4, 5, 6, 8, 10)
MOST_OPTIONS = 6  # maximum for any requested count
EDIT_TYPES: dict[str, EditType] = {
    "c": "attribute",
    "w": "weather",
    "t": "time of day",
    "x": "object",
    **dict.fromkeys("glbrh", "background"),
}
ASKED_TYPES: dict[EditType, int] = {
    "attribute": 4,
    "background": 4,
    "weather": 4,
    "time of day": 4,
    "object": 3,
    "subject": 1,
    "domain": 1,
}
"""Relative frequency of each requested edit type. No edit in the demo has the type "subject" or "domain"."""
NO_EDIT = "none"


def _with_names(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for word in words for name in (word, *OTHER_NAMES.get(word, ())))


CHOICES = {
    "c": _with_names(COLOURS),
    "w": _with_names(WEATHERS),
    "t": _with_names(tuple(TIME_PHRASES.values())),
    "g": _with_names(GROUNDS),
    "l": _with_names(TREES),
    "b": _with_names(WALLS),
    "r": _with_names(WATERS),
    "h": _with_names(HILLS),
    "x": THINGS,
}
"""All words of the drawn world for a slot (an open place in a caption), by the first letter of the slot's name."""
MORE = {"c": MORE_COLOURS, "w": MORE_WEATHERS, "t": MORE_TIMES, "g": MORE_GROUNDS, "x": WORDS} | dict.fromkeys(
    "lbrh", MORE_LOOKS
)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Draft:
    """A caption with open slots: sentences such as "{A} {c0} bird in {w} weather {t}." and the values of the slots.

    Slots: w (weather), t (time phrase), g (ground), r (water), l (trees), b (buildings), h (hills), c0, c1, ...
    (colours), x0, ... (added things), s0, ... (other words that an edit replaces). {A} and {Aw} are the articles of c0
    and w. {land} is a sentence on the ground g, {water} one on the water r. The weather changes these two sentences.
    """

    sentences: tuple[str, ...]
    slots: Mapping[str, str]
    protected: tuple[str, ...]
    """Words that no edit may touch: the label, or the protected objects."""

    def text(self) -> str:
        """Return the caption with all slots filled."""
        return " ".join(_SLOT.sub(lambda match: self._fill(match[1]), sentence) for sentence in self.sentences)

    def with_slots(self, **changes: str) -> Draft:
        """Return the draft with `changes` in its slots: new values by the name of the slot."""
        return dataclasses.replace(self, slots={**self.slots, **changes})

    def open_slots(self) -> list[str]:
        """Return the visible slots in caption order. If slots have the same word, only the first one is listed."""
        open_ones: dict[str, str] = {}
        for name in _SLOT.findall(" ".join(self.sentences)):
            if name == "land" and canonical(self.slots["w"]) != "snowy":
                name = "g"
            if name == "water":
                name = "r"
            if name in self.slots:
                open_ones.setdefault(self.slots[name], name)
        return list(open_ones.values())

    def _fill(self, name: str) -> str:
        if name in ("A", "Aw"):
            return article(self.slots["c0" if name == "A" else "w"])
        if name == "land":
            return ground_sentence(self.slots["w"], self.slots["g"])
        if name == "water":
            return water_sentence(self.slots["w"], self.slots["r"])
        return self.slots[name]


@dataclass(frozen=True)
class Example:
    """One training example of a stage: the values in its prompt and the target reply. Unused fields are empty."""

    stage: str
    task: Task
    caption: str
    reply: str
    """The target reply. A space follows each newline, so that words become the same tokens as in running text."""
    keywords: tuple[str, ...] = ()
    edits: Mapping[str, str] = field(default_factory=dict)
    count: int = 0
    edit_type: str = ""

    def prompt(self, templates: Mapping[str, str]) -> str:
        """Return the prompt of the stage, as the pipeline sends it."""
        edits = "; ".join(f"{old} -> {new}" for old, new in self.edits.items())
        return Template(templates[self.stage]).substitute(
            task=self.task.describe(),
            caption=self.caption,
            keywords=", ".join(self.keywords),
            edits=edits,
            count=self.count,
            type=self.edit_type,
        )


def load_templates(folder: Path = PROMPTS) -> dict[str, str]:
    """Return the prompt template of each stage."""
    return {stage: tomllib.loads((folder / f"{stage}.toml").read_text())["template"] for stage in STAGES}


def draft_of(scene: Scene, wording: Wording = CANONICAL) -> Draft:
    """Return the caption of a scene as a draft: `draft_of(scene, wording).text() == caption(scene, wording)`."""
    look, name = scene.look, wording.name
    ground = HIDDEN_GROUND if look.weather == "snowy" else look.ground
    slots = {"w": look.weather, "t": TIME_PHRASES[look.time], "g": ground, "r": look.water}
    slots |= {"l": look.trees, "b": look.walls, "h": look.hills}
    slots |= {f"c{i}": colour for i, colour in enumerate(look.colours)}
    marks = {slot: f"{{{slot}}}" for slot in slots}
    marked = scene.with_look(
        weather=marks["w"],
        time="day",
        colours=tuple(marks[f"c{i}"] for i in range(len(look.colours))),
        ground=marks["g"],
        water=marks["r"],
        trees=marks["l"],
        walls=marks["b"],
        hills=marks["h"],
    )
    text = caption(marked, Wording(wording.form))
    text = text.replace(TIME_PHRASES["day"], "{t}").replace("A {c0}", "{A} {c0}").replace("A {w}", "{Aw} {w}")
    text = text.replace(ground_sentence("{w}", "{g}"), "{land}").replace(water_sentence("{w}", "{r}"), "{water}")
    sentences = re.sub(r"(\.|\{land\}|\{water\}) ", r"\1\n", text).split("\n")
    return Draft(tuple(sentences), {slot: name(word) for slot, word in slots.items()}, protected_words(scene))


def random_word(rng: random.Random) -> str:
    """Return a random word, or random letters, that the model may never have met."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(WORDS)
    if kind < 0.8:
        return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(1, 3)))
    letters = "abcdefghijklmnopqrstuvwxyz" if kind < 0.95 else "abcXYZ0123456789-'éüñßøжλ日"
    return "".join(rng.choice(letters) for _ in range(rng.randint(2, 7)))


def random_phrase(rng: random.Random, longest: int = 3) -> str:
    """Return one to `longest` random words."""
    return " ".join(random_word(rng) for _ in range(rng.choices(range(1, longest + 1), (6, 3, 1)[:longest])[0]))


def new_value(rng: random.Random, slot: str, old: str, known: float = 0.7) -> str:
    """Return a random new value for a slot. At least one value in ten is a phrase of random words. Each
    other value is a word of the demo's captions with probability `known`, and otherwise a word new to the demo.
    """
    kind = slot[0]
    pool = CHOICES.get(kind, ()) if rng.random() < known else MORE.get(kind, ())
    options = [value for value in pool if canonical(value) != canonical(old)]
    return rng.choice(options) if options and rng.random() < 0.9 else random_phrase(rng)


def random_task(rng: random.Random, scene: Scene, label: str) -> Task:
    """Return a random task: mostly the scene's own. Some have other classes, classify a road, or segment an object."""
    other = rng.random() < 0.06
    if (scene.family == "object") != other:
        return Task("classification", label=label or rng.choice(("road", "street", "car", random_word(rng))))
    if rng.random() < 0.65:
        return Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
    chosen = rng.sample(SEMANTIC_CLASSES, rng.randint(1, len(SEMANTIC_CLASSES) - 1))
    if rng.random() < 0.7:
        chosen.sort(key=SEMANTIC_CLASSES.index)
    return Task("segmentation", protected=tuple(chosen))


def _rename(rng: random.Random, draft: Draft) -> Draft:
    """Return the draft with its label replaced by a random phrase."""
    label, pattern = random_phrase(rng, 2), re.compile(rf"\b{draft.protected[0]}\b")
    return dataclasses.replace(
        draft, sentences=tuple(pattern.sub(label, s) for s in draft.sentences), protected=(label,)
    )


def _refill(rng: random.Random, draft: Draft) -> Draft:
    """Return the draft with one or two slots filled with words that the demo's own captions do not use."""
    shown = draft.open_slots()
    chosen = rng.sample(shown, min(len(shown), rng.choice((1, 1, 2))))
    return draft.with_slots(**{name: new_value(rng, name, draft.slots[name], known=0.0) for name in chosen})


def _swap_words(rng: random.Random, draft: Draft) -> Draft:
    text = "\n".join(draft.sentences)
    for old, new in rng.sample(SYNONYMS, 12):
        text = re.sub(rf"\b{old}\b", new, text)
    return dataclasses.replace(draft, sentences=tuple(text.split("\n")))


def _insert_word(rng: random.Random, draft: Draft) -> Draft:
    words = "\n".join(draft.sentences).split(" ")
    words.insert(rng.randint(1, len(words)), random_word(rng))
    return dataclasses.replace(draft, sentences=tuple(" ".join(words).split("\n")))


def _add_sentence(rng: random.Random, draft: Draft) -> Draft:
    slots = dict(draft.slots)
    if rng.random() < 0.5:
        slots["x0"] = rng.choice(THINGS) if rng.random() < 0.7 else random_phrase(rng, 2)
        new = rng.choice(THING_SENTENCES).replace("{x}", "{x0}")
    else:
        new = rng.choice(PLAIN_SENTENCES) if rng.random() < 0.5 else random_phrase(rng).capitalize() + "."
    sentences = list(draft.sentences)
    sentences.insert(rng.randint(1, len(sentences)), new)
    return dataclasses.replace(draft, sentences=tuple(sentences), slots=slots)


def _drop_sentence(rng: random.Random, draft: Draft) -> Draft:
    gone = rng.choices(range(len(draft.sentences)), (1, *[4] * (len(draft.sentences) - 1)))[0]
    remaining = tuple(s for i, s in enumerate(draft.sentences) if i != gone)
    return dataclasses.replace(draft, sentences=remaining or draft.sentences)


def _reorder(rng: random.Random, draft: Draft) -> Draft:
    return dataclasses.replace(draft, sentences=tuple(rng.sample(draft.sentences, len(draft.sentences))))


def _articles(rng: random.Random, draft: Draft) -> Draft:
    first = re.sub(r"^(\{Aw?\}|A) ", rng.choice(("The ", "This ", "", "Here is a ")), draft.sentences[0])
    return dataclasses.replace(draft, sentences=(first, *draft.sentences[1:]))


CHANGES: tuple[Callable[[random.Random, Draft], Draft], ...] = (
    _refill,
    _refill,
    _swap_words,
    _insert_word,
    _add_sentence,
    _add_sentence,
    _drop_sentence,
    _reorder,
    _articles,
)


def random_draft(rng: random.Random, scene: Scene, own: float = 0.45) -> tuple[Draft, str]:
    """Return a random caption of the scene, and its label. With probability `own`, there are no random changes."""
    draft = draft_of(scene, random_wording(rng))
    if rng.random() >= own:
        if scene.family == "object" and rng.random() < 0.25:
            draft = _rename(rng, draft)
        for change in rng.sample(CHANGES, rng.choice((1, 1, 2, 2, 3))):
            draft = change(rng, draft)
    return draft, draft.protected[0] if scene.family == "object" else ""


def alternatives_of(rng: random.Random, keyword: str, count: int) -> list[str]:
    """Return at most `count` random alternatives of a keyword. Only words of the demo's captions are used."""
    options = options_of(keyword)
    return rng.sample(options, min(count, len(options), MOST_OPTIONS))


def options_of(keyword: str) -> list[str]:
    """Return all alternatives of a keyword in the drawn world; for an unknown keyword, things to add to a scene."""
    kinds = [kind for kind in CHOICES if keyword in CHOICES[kind] or keyword in MORE[kind]]
    return [value for value in CHOICES[kinds[0] if kinds else "x"] if canonical(value) != canonical(keyword)]


def edit_type_of(old: str, new: str) -> EditType | None:
    """Return the edit type of a change from text `old` to `new`. None if the drawn world does not know `new`, if `old`
    is of another type, or if both mean the same. An article may change too ("a red" to "an orange"), and the first word
    of a phrase may stay ("at dusk" to "at night").
    """
    before, after = (re.sub(r"^an? ", "", text.lower()) for text in (old, new))
    kinds_before, kinds_after = _kinds_of(before), _kinds_of(after)
    for kind, value in kinds_after.items():
        if not kinds_before or (kind in kinds_before and canonical(kinds_before[kind]) != canonical(value)):
            return EDIT_TYPES[kind]
    return None


def _kinds_of(words: str) -> dict[str, str]:
    """Return the values in `CHOICES` that equal or end with `words`, by key: "dusk" gives {"t": "at dusk"}."""
    return {
        kind: value
        for kind, choices in CHOICES.items()
        for value in choices
        if value == words or value.endswith(f" {words}")
    }


def keywords_example(rng: random.Random, draft: Draft, task: Task) -> Example | None:
    """Return an example whose reply lists all unprotected keywords with their edit types, or None without any."""
    named = " ".join((*draft.protected, *task.kept())).split()
    names = [name for name in draft.open_slots() if not set(draft.slots[name].split()) & set(named)]
    lines = [f"{draft.slots[name]} | {EDIT_TYPES[name[0]]}" for name in names]
    return Example("keywords", task, draft.text(), "\n ".join(lines)) if lines else None


def alternatives_example(rng: random.Random, draft: Draft, task: Task) -> Example | None:
    """Return an example whose reply lists alternatives of some or all keywords, sometimes also of random words."""
    words = [draft.slots[name] for name in draft.open_slots()]
    if rng.random() < 0.3 and words:
        words = sorted(rng.sample(words, rng.randint(1, len(words))), key=words.index)
    if rng.random() < 0.2:
        words.insert(rng.randint(0, len(words)), random_phrase(rng))
    if not words:
        return None
    count = rng.choice(COUNTS)
    lines = [f"{word}: {', '.join(alternatives_of(rng, word, count))}" for word in words]
    return Example("alternatives", task, draft.text(), "\n ".join(lines), keywords=tuple(words), count=count)


def open_span(rng: random.Random, draft: Draft) -> Draft:
    """Return the draft with a new slot for one to three fixed words, as if a person had chosen them as a keyword."""
    index = rng.randrange(len(draft.sentences))
    words = draft.sentences[index].rstrip(".").split(" ")
    start = rng.randrange(len(words))
    span = " ".join(words[start : start + rng.choice((1, 1, 2, 3))])
    text, protected = draft.text(), " ".join(draft.protected).split()
    name = f"s{len(draft.slots)}"
    if (
        re.search(r"[{},.]", span)
        or set(span.split()) & set(protected)
        or len(re.findall(rf"\b{re.escape(span)}\b", text)) != 1
    ):
        return draft
    sentences = list(draft.sentences)
    sentences[index] = re.sub(rf"(?<!\S){re.escape(span)}(?![^\s.])", f"{{{name}}}", sentences[index], count=1)
    opened = dataclasses.replace(draft, sentences=tuple(sentences), slots={**draft.slots, name: span})
    return opened if opened.text() == text else draft


def nonsense_draft(rng: random.Random) -> Draft:
    """Return a draft (a caption with slots) of a few random words. The slots mark the words that edits may replace."""
    words = list(dict.fromkeys(random_word(rng) for _ in range(rng.randint(3, 10))))
    chosen = rng.sample(range(len(words)), rng.randint(1, min(3, len(words))))
    slots = {f"s{i}": words[i] for i in chosen}
    marked = (f"{{s{i}}}" if i in chosen else word for i, word in enumerate(words))
    return Draft((" ".join(marked) + ".",), {"w": "", "r": "", **slots}, ("thing",))


def counterfactual_example(rng: random.Random, draft: Draft, task: Task, nonsense: float = 0.0) -> Example | None:
    """Return an example with one or more edits, whose reply is the edited caption. With probability `nonsense` the
    caption consists of random words.
    """
    if rng.random() < nonsense:
        draft = nonsense_draft(rng)
    for _ in range(rng.choice((0, 0, 1, 2, 2))):
        draft = open_span(rng, draft)
    shown = draft.open_slots()
    chosen = rng.sample(shown, rng.choice((1, 1, 2, 3, len(shown), len(shown)))) if len(shown) > 2 else shown[:1]
    if rng.random() < 0.6:
        chosen.sort(key=shown.index)
    edits = {draft.slots[name]: new_value(rng, name, draft.slots[name]) for name in chosen}
    return Example("counterfactuals", task, draft.text(), apply(draft, edits), edits=edits) if edits else None


def apply(draft: Draft, edits: Mapping[str, str]) -> str:
    """Return the edited caption. `edits` maps old values of slots to new ones."""
    return draft.with_slots(**{name: edits.get(value, value) for name, value in draft.slots.items()}).text()


def perturbation_example(rng: random.Random, draft: Draft, task: Task, edit_type: EditType | None = None) -> Example:
    """Return an example with one edit of a type (random if None) in one place. Its reply is "none" if no word of the
    type may change.
    """
    edit_type = edit_type or rng.choices(list(ASKED_TYPES), list(ASKED_TYPES.values()))[0]
    draft, named = _settled(draft), set(" ".join((*draft.protected, *task.kept())).split())
    text = draft.text()
    for name in sorted(draft.open_slots(), key=lambda _: rng.random()):
        old = draft.slots[name]
        if EDIT_TYPES.get(name[0]) != edit_type or set(old.split()) & named or len(find_phrase(text, old)) != 1:
            continue
        options = [value for value in CHOICES[name[0]] if canonical(value) != canonical(old)]
        for new in rng.sample(options, len(options)):
            perturbed_text = apply(draft, {old: new})
            perturbed = CounterfactualCaption(perturbed_text, (Edit(old, new, edit_type),))
            if len(changes(text, perturbed_text)) == 1 and not failed(counterfactual_checks(text, perturbed, task)):
                reply = f"{old} -> {new} | {perturbed_text}"
                return Example("perturbations", task, text, reply, edits={old: new}, edit_type=edit_type)
    return Example("perturbations", task, text, NO_EDIT, edit_type=edit_type)


def _settled(draft: Draft) -> Draft:
    """Return the draft with its ground and water described for its weather. Later weather keeps these sentences."""
    weather = draft.slots["w"]
    land, water = ground_sentence(weather, "{g}"), water_sentence(weather, "{r}")
    sentences = tuple(one.replace("{land}", land).replace("{water}", water) for one in draft.sentences)
    return dataclasses.replace(draft, sentences=sentences)


MAKERS: Mapping[str, Callable[[random.Random, Draft, Task], Example | None]] = {
    "keywords": keywords_example,
    "alternatives": alternatives_example,
    "perturbations": perturbation_example,
}


def random_example(rng: random.Random, stage: str, seed: int, own: float = 0.45, nonsense: float = 0.0) -> Example:
    """Return a random example of `stage` for the scene of `seed`. `own` is the share of unchanged captions."""
    scene = random_scene(seed)
    while True:
        draft, label = random_draft(rng, scene, own)
        task = random_task(rng, scene, label)
        if stage == "counterfactuals":
            example = counterfactual_example(rng, draft, task, nonsense)
        else:
            example = MAKERS[stage](rng, draft, task)
        if example is not None:
            return example
