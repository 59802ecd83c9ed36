"""Takes unseen scenes through the real pipeline, stage by stage, and keeps what the report measures.

Each scene gets one planned edit, of the weather, the time of day, a colour and the background in turn. Its words are a
keyword and an alternative that the language model named. All values come from the models and are not corrected.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from core.errors import UnreadableReply
from core.settings import ControlKind, LanguageSettings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    KeywordAlternatives,
    Task,
)
from core.words import protected_words_in
from demo.check_truth import PARTS
from demo.facts import Facts, facts_of, names_in
from demo.language import TIME_PHRASES, canonical
from demo.render import render
from demo.scene import COLOURS, WEATHERS, Scene, random_scene
from experiments.driving import produce
from pipeline.driver import Driver
from pipeline.profiles.profile import Profile
from pipeline.recipes import DILLEMA
from pipeline.seams import (
    Captioner,
    Detector,
    Editor,
    Embedder,
    Generator,
    LanguageModel,
    LanguageRequest,
    Models,
    Segmenter,
    Sentences,
)
from pipeline.stages.parsing import Unreadable, read_alternatives, read_caption, read_keywords

FIRST_SEED = 1_000_000
"""First seed of the scenes. All seeds of the training are much larger."""
PLANNED = ("weather", "time of day", "attribute", "background")
_WORLD = {
    "weather": WEATHERS,
    "time of day": tuple(TIME_PHRASES.values()),
    "attribute": COLOURS,
    "background": tuple(word for words in PARTS.values() for word in words),
}
"""Words, by edit type, whose meaning the judges can recognise in an image."""


@dataclass
class Walk:
    """One scene, and everything that the pipeline has made of it so far."""

    number: int
    scene: Scene
    image: Image.Image
    mask: np.ndarray
    task: Task
    caption: str = ""
    first_replies_read: list[bool] = field(default_factory=list)
    """One entry per request to the language model: True if its first reply was readable."""
    keywords: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    """Alternatives that the language model named for all keywords."""
    keywords_free: bool | None = None
    """True if the model's first list of keywords contains no protected word. None if that reply was unreadable."""
    edits_right: list[bool] = field(default_factory=list)
    """One entry per counterfactual caption: True if it makes its edits and keeps all other facts."""
    planned: CounterfactualCaption | None = None
    """The counterfactual caption with the one planned edit."""

    @property
    def facts(self) -> Facts:
        """Facts that the caption states."""
        return facts_of(self.caption)


class ListeningModels:
    """The models of a profile. They record the language model's replies in `replies`."""

    def __init__(self, models: Models) -> None:
        self._models, self.replies = models, list[str]()
        self.language: LanguageModel = self
        self.name = "language model"

    @property
    def fit_together(self) -> bool:
        return self._models.fit_together

    @property
    def captioner(self) -> Captioner:
        return self._models.captioner

    @property
    def generator(self) -> Generator:
        return self._models.generator

    @property
    def editor(self) -> Editor:
        return self._models.editor

    def editor_name(self) -> str:
        """Return the name of the model that edits pictures."""
        return self._models.editor_name()

    @property
    def segmenter(self) -> Segmenter:
        return self._models.segmenter

    def segmenter_name(self) -> str:
        """Return the name of the segmenter."""
        return self._models.segmenter_name()

    @property
    def judge(self) -> LanguageModel:
        return self._models.judge

    @property
    def embedder(self) -> Embedder:
        return self._models.embedder

    @property
    def sentences(self) -> Sentences:
        return self._models.sentences

    def generator_name(self, kind: ControlKind) -> str:
        """Return the name of the generator for this kind of control image."""
        return self._models.generator_name(kind)

    def runs(self, role: str) -> str:
        """Return in words the device on which a model runs. `role` names the model, such as "captioner"."""
        return self._models.runs(role)

    def detector(self, kind: ControlKind) -> Detector:
        """Return the model that draws this kind of control image."""
        return self._models.detector(kind)

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """Return the language model's reply to a prompt, and record it."""
        reply = self._models.language.complete(request, settings)
        self.replies.append(reply)
        return reply


def start_walk(number: int, profile: Profile) -> Walk:
    """Return the walk with this number. It has only a scene, its picture and its task so far."""
    scene = random_scene(FIRST_SEED + number)
    image, mask = render(scene)
    if scene.family == "object":
        task = Task("classification", label=scene.label)
    else:
        task = Task("segmentation", protected=profile.tasks.protected)
    return Walk(number, scene, Image.fromarray(image), mask, task)


def walk_text(walk: Walk, driver: Driver, models: ListeningModels) -> None:
    """Run stages 2 to 4 on the walk's caption. Stage 4 runs for the planned edit alone, and again for two edits."""
    caption = Caption(walk.caption)
    try:
        models.replies.clear()
        known: dict[str, Any] = {"caption": caption}
        keywords = produce(driver, DILLEMA, "keywords", walk.image, walk.task, known, seed=walk.number).value
        walk.first_replies_read.append(_reads(read_keywords, models.replies[0]))
        walk.keywords_free = _leaves_out_protected(models.replies[0], walk.task)
        models.replies.clear()
        walk.keywords = tuple(item.text for item in keywords.items)
        known["keywords"] = keywords
        alternatives = produce(driver, DILLEMA, "alternatives", walk.image, walk.task, known, seed=walk.number).value
        walk.first_replies_read.append(_reads(read_alternatives, models.replies[0]))
        walk.alternatives = tuple(option.text for item in alternatives.items for option in item.options)
        edit = plan_edit(walk, alternatives)
        if edit is None:
            return
        walk.planned = _counterfactual(walk, driver, models, (edit,))
        second = plan_second_edit(walk, alternatives, edit)
        if second is not None:
            _counterfactual(walk, driver, models, (edit, second))
    except UnreadableReply:
        walk.first_replies_read.append(False)


def plan_edit(walk: Walk, alternatives: Alternatives) -> Edit | None:
    """Return an edit of the walk's type, or else of the next type that this scene can show. None if there is no such
    edit.
    """
    for turn in range(len(PLANNED)):
        edits = _edits(walk, alternatives, PLANNED[(walk.number + turn) % len(PLANNED)])
        if edits:
            return random.Random(walk.number).choice(edits)
    return None


def plan_second_edit(walk: Walk, alternatives: Alternatives, first: Edit) -> Edit | None:
    """Return an edit of another type than `first` that is still visible if both are made, or None."""
    others = [edit for kind in PLANNED if kind != first.edit_type for edit in _edits(walk, alternatives, kind)]
    others = [edit for edit in others if not _buried((first, edit))]
    return random.Random(walk.number + 1).choice(others) if others else None


def edited_things(walk: Walk, edit: Edit) -> list[int]:
    """Return the indices of the objects whose colour an edit changes: those that have the keyword's colour in the
    caption.
    """
    colours = walk.facts.colours[: len(walk.scene.look.colours)]
    return [place for place, colour in enumerate(colours) if colour == canonical(edit.keyword)]


def edited_slots(walk: Walk, edit: Edit) -> list[tuple[str, str]]:
    """Return the parts of the scene that an edit changes, such as "weather" or "colour 0", each with its new word. The
    function `check_truth.edited_scene` takes this list.
    """
    old, new = canonical(edit.keyword), canonical(edit.alternative)
    match edit.edit_type:
        case "weather":
            return [("weather", new)]
        case "time of day":
            return [("time", new)]
        case "background":
            return [(slot, new) for slot, words in PARTS.items() if old in words]
        case _:
            return [(f"colour {place}", new) for place in edited_things(walk, edit)]


def can_be_judged(edit: Edit) -> bool:
    """Return True if the judges know both words of an edit."""
    words = _WORLD.get(edit.edit_type, ())
    return canonical(edit.keyword) in words and canonical(edit.alternative) in words


def expected_facts(facts: Facts, edits: Sequence[Edit]) -> Facts:
    """Return the facts that a caption should state after these edits. Before the edits, `facts` are true."""
    for edit in edits:
        old, new = canonical(edit.keyword), canonical(edit.alternative)
        if edit.edit_type == "weather":
            facts = dataclasses.replace(facts, weather=new)
        elif edit.edit_type == "time of day":
            facts = dataclasses.replace(facts, time=new)
        elif edit.edit_type == "attribute":
            # A word that occurs twice is one keyword, and an edit changes both.
            colours = tuple(new if colour == old else colour for colour in facts.colours)
            facts = dataclasses.replace(facts, colours=colours)
    return facts


def _edits(walk: Walk, alternatives: Alternatives, kind: str) -> list[Edit]:
    edits = [
        Edit(item.keyword, option.text, item.edit_type)
        for item in alternatives.items
        for option in item.options
        if item.edit_type == kind and option.used
    ]
    edits = [edit for edit in edits if can_be_judged(edit)]
    if kind == "background":  # both words must be looks of the same part of the scene
        return [edit for edit in edits if any(_both(words, edit) for words in PARTS.values())]
    if kind != "attribute":
        return edits
    # If a caption has two names for one colour, an edit of one leaves the other, so it is unclear which car is meant.
    once = [edit for edit in edits if len(names_in(walk.caption, canonical(edit.keyword))) == 1]
    return [edit for edit in once if edited_things(walk, edit)]


def _buried(edits: Sequence[Edit]) -> bool:
    """Return True if one edit changes the ground and another one brings snow, which hides the ground."""
    snow = any(canonical(edit.alternative) == "snowy" for edit in edits)
    return snow and any(_both(PARTS["ground"], edit) for edit in edits)


def _both(words: Sequence[str], edit: Edit) -> bool:
    return canonical(edit.keyword) in words and canonical(edit.alternative) in words


def _counterfactual(
    walk: Walk, driver: Driver, models: ListeningModels, edits: tuple[Edit, ...]
) -> CounterfactualCaption:
    """Return the counterfactual caption that the pipeline writes if it makes exactly these edits."""
    items = tuple(KeywordAlternatives(e.keyword, e.edit_type, (Alternative(e.alternative),)) for e in edits)
    stage_settings = driver.profile.settings.counterfactuals.model_copy(
        update={"edits_at_once": len(edits), "captions": 1}
    )
    settings = driver.profile.settings.model_copy(update={"counterfactuals": stage_settings})
    models.replies.clear()
    known = {"caption": Caption(walk.caption), "alternatives": Alternatives(items)}
    captions: CounterfactualCaptions = produce(
        driver, DILLEMA, "counterfactuals", walk.image, walk.task, known, settings, walk.number
    ).value
    walk.first_replies_read.append(_reads(read_caption, models.replies[0]))
    text = captions.items[0].text
    same_protected = set(protected_words_in(walk.caption, walk.task)) == set(protected_words_in(text, walk.task))
    named = all(edit.alternative in text for edit in edits if edit.edit_type == "background")
    walk.edits_right.append(same_protected and named and facts_of(text) == expected_facts(walk.facts, edits))
    return captions.items[0]


def _reads(parser: Callable[[str], object], reply: str) -> bool:
    try:
        parser(reply)
    except Unreadable:
        return False
    return True


def _leaves_out_protected(reply: str, task: Task) -> bool | None:
    try:
        return not any(protected_words_in(keyword, task) for keyword, _ in read_keywords(reply))
    except Unreadable:
        return None
