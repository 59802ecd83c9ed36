"""Compare ways to write captions with one edit of a requested type: `python -m experiments.perturbers`.

The captions describe drawn scenes that no training used. Some captions are first reworded, as people may reword them.
A list of the words of drawn scenes tells the type of each edit. The demo's language model edits in five ways.
DILLEMA uses three text stages. The language model alone replies freely, or replies in a fixed form. The stage of the
recipe `lance` checks replies and asks again. LANCE-R replaces a random word, and knows no edit types. The option
`--own FILE.toml` adds a model that `python -m experiments.train_perturber` trained.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from PIL import Image
from tqdm import tqdm

from core.errors import UserError
from core.settings import LanguageSettings, Settings
from core.types import Caption, CounterfactualCaption, EditType, failed
from core.words import protected_spans, says_something, token_spans
from demo.train.corpus import NO_EDIT, Example, edit_type_of, random_example
from experiments.driving import produce
from pipeline.checks.single_edit import changes
from pipeline.checks.texts import counterfactual_checks
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA, LANCE, Recipe
from pipeline.seams import LanguageRequest
from pipeline.stages.parsing import Unreadable, read_perturbation
from pipeline.stages.reply_schema import as_lines, perturbation_schema
from study.intervals import wilson

FIRST_SEED = 6_000_000
"""First seed of the scenes. Neither training nor scoring of the language model uses these seeds."""
COUNT = 100
GROUPS = {"own": 1.0, "changed": 0.0}
"""Two groups of captions, each with its share of unchanged captions. Captions in `own` are the demo's own captions of
drawn scenes. Captions in `changed` are reworded, as people may reword captions."""
NO_SOURCE = Image.new("RGB", (8, 8))
Perturber = Callable[[Example, int], str]
"""Function that returns an edited caption for an example and a seed, or "" if no edit is found."""


@dataclass(frozen=True)
class Score:
    """Score of one caption."""

    edit: bool
    """True if the caption has an edit of the requested type and loses nothing that the task protects."""
    one_place: bool

    @property
    def both(self) -> bool:
        """True if the caption has the requested edit and no other."""
        return self.edit and self.one_place


def held_out(count: int, own: float) -> Iterator[Example]:
    """Yield `count` captions with a requested edit type that they allow. `own` is the share of unchanged captions."""
    rng, number = random.Random(FIRST_SEED), 0
    while count:
        example = random_example(rng, "perturbations", FIRST_SEED + number, own)
        number += 1
        if example.reply != NO_EDIT:
            count -= 1
            yield example


def score(example: Example, text: str) -> Score:
    """Score the caption `text` as a reply to the request in `example`. The changed words tell the type of an edit."""
    differences = changes(example.caption, text)
    passed = not failed(counterfactual_checks(example.caption, CounterfactualCaption(text, ()), example.task))
    edit = any(edit_type_of(change.gone, change.came) == example.edit_type for change in differences)
    return Score(passed and edit, len(differences) == 1)


class Perturbers:
    """The compared ways to edit a caption, with the models of a profile."""

    def __init__(self, name: str = "demo") -> None:
        profile = load_profile(name)
        self._driver = Driver(profile, load_models(profile))
        self._model = self._driver.models.language
        self._prompt = self._driver.prompts(LANCE)["perturbations"]
        self._settings = LANCE.settings_in(profile)
        self._free: LanguageSettings = getattr(self._settings, "perturbations")  # noqa: B009

    def ways(self) -> Mapping[str, Perturber]:
        """Return the compared ways to edit a caption, by name."""
        return {
            "three stages": self.three_stages,
            "asked freely": self.freely,
            "held to a form": lambda example, seed: self._asked(example, seed, hold=True),
            "the stage: held, checked, asked again": self.stage,
            "LANCE-R: a random word": self.random_word,
        }

    def three_stages(self, example: Example, seed: int) -> str:
        """Edit one caption with DILLEMA's text stages. Only keywords of the requested edit type are used."""
        plain: dict[str, dict[str, object]] = {
            "keywords": {"edit_types": example.edit_type},
            "counterfactuals": {"captions": 1},
        }
        settings = Settings.model_validate(_merged(DILLEMA.settings_in(self._driver.profile), plain))
        return self._last(DILLEMA, example, settings, seed)

    def freely(self, example: Example, seed: int) -> str:
        """Ask the language model for an edited caption, without a fixed form of reply."""
        return self._asked(example, seed, hold=False)

    def stage(self, example: Example, seed: int) -> str:
        """Edit one caption with the stage of the recipe `lance`. Return "" if the stage rejects the result."""
        plain: dict[str, dict[str, object]] = {"perturbations": {"edit_types": example.edit_type, "per_type": 1}}
        return self._last(LANCE, example, LANCE.settings.model_validate(_merged(self._settings, plain)), seed)

    def random_word(self, example: Example, seed: int) -> str:
        """Replace a random unprotected content word by the word with which the model continues the preceding text."""
        rng, text = random.Random(seed), example.caption
        protected = protected_spans(text, example.task)
        spans = [
            (start, end)
            for start, end in token_spans(text)
            if says_something(text[start:end]) and not any(a <= start and end <= b for a, b in protected)
        ]
        settings = LanguageSettings(temperature=1.0, max_new_tokens=8)
        for start, end in rng.sample(spans, len(spans)):  # the model knows no other word for some of them
            lead = f"\n### Keywords\nTask: {example.task.describe()}\nCaption: {text[:start].rstrip()}"
            for attempt in range(10):
                words = self._model.complete(LanguageRequest(lead, seed + attempt, ()), settings).split()
                word = words[0].strip(".,;:") if words else ""
                if word and word.lower() != text[start:end].lower():
                    return text[:start] + word + text[end:]
        return text

    def _asked(self, example: Example, seed: int, hold: bool) -> str:
        kind: EditType = example.edit_type  # type: ignore[assignment]
        schema = perturbation_schema(example.caption, example.task, kind) if hold else None
        values = {"task": example.task.describe(), "type": kind, "caption": example.caption}
        request = LanguageRequest(self._prompt.evaluate(**values), seed, self._prompt.stop, schema)
        try:
            return read_perturbation(as_lines(self._model.complete(request, self._free), schema))
        except Unreadable:
            return ""

    def _last(self, recipe: Recipe, example: Example, settings: Settings, seed: int) -> str:
        values: dict[str, object] = {"caption": Caption(example.caption)}
        try:
            for stage in recipe.stages[1:]:
                stage_value = produce(self._driver, recipe, stage.name, NO_SOURCE, example.task, values, settings, seed)
                values[stage.name] = stage_value.value
        except UserError:
            return ""
        captions = recipe.captions(values)
        used = [item.text for item in captions.items if item.used] if captions is not None else []
        return used[0] if used else ""


def _merged(settings: Settings, plain: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    sections = settings.model_dump(mode="json")
    return sections | {section: sections[section] | dict(changed) for section, changed in plain.items()}


def figure(hits: list[bool]) -> str:
    """Return a share with its interval (Wilson, 95 %)."""
    interval = wilson(sum(hits), len(hits))
    return f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def main() -> int:
    """Print a table of scores with a row for each way to edit and each group of captions."""
    parser = argparse.ArgumentParser(prog="python -m experiments.perturbers", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="captions of each group (default: %(default)s)")
    parser.add_argument("--own", metavar="FILE.toml", help="profile with a language model of one's own")
    options = parser.parse_args()
    ways = dict(Perturbers().ways())
    if options.own:
        ways["a LoRA of one's own, asked freely"] = Perturbers(options.own).freely
    print(f"{options.count} held-out captions of each group; 95 % intervals (Wilson).\n")
    print("| way | captions | edit of the type | one place | one edit of the type and no other |")
    print("| --- | --- | --- | --- | --- |")
    for name, way in ways.items():
        for group, own in GROUPS.items():
            examples = enumerate(tqdm(held_out(options.count, own), total=options.count, desc=name, leave=False))
            scores = [score(example, way(example, seed)) for seed, example in examples]
            cells = ([one.edit for one in scores], [one.one_place for one in scores], [one.both for one in scores])
            print(f"| {name} | {group} | {' | '.join(map(figure, cells))} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
