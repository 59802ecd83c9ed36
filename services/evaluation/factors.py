"""Factor experiments: which kinds of edits break a model, alone or together, and where the generator changes more than
was asked.

A factor is an edit type, and its levels are the alternatives in the edits of the test cases. Reconstructions are the
images without a change. A number from 0 to 1 says how much an image shows a factor: 1 if the image resembles the
alternatives, 0 if it resembles the unchanged words. The number is computed from stored vectors of the embedder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.csv_tables import facts
from core.evaluation_results import OF_PIXELS, OF_TRUE_CLASS, EffectRow, FactorEffects, MixedRow
from core.figures import Figure, Floats, Numbers
from core.progress import OnCount
from core.types import EDIT_TYPES
from evaluation.effectiveness import UNKNOWN, WRONG
from evaluation.factors import ANY, OTHER, Levels, effects, mixed
from services.commands import does
from services.curation.meaning import Meaning
from services.evaluation import commands as acts
from services.evaluation.results import STANDING, EvaluationResult
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import edits_by_row
from services.evaluation.texts import TEXTS
from services.evaluation.types import EvaluationQuestion

AT_ONCE = 16
"""Number of images or words that the embedder reads at once."""
SHARPNESS = 100.0
"""Factor that multiplies similarities before the softmax, as in the training of CLIP (Radford et al., ICML 2021)."""
MOST_TOLD = 8
"""Maximum number of effects named in the summary of an experiment. Its tables list all effects."""
NOTHING = "No test case changes two kinds of things at once. Draw a factor experiment: it tells what breaks together."
NOT_READ = "The embedder has not read these images yet, so it is not known whether drawing changes more than was asked."


@dataclass(frozen=True)
class FactorRow:
    """Effect of one level of a factor, or of two levels of different factors together, on two outcomes of a model."""

    parts: tuple[tuple[str, str], ...]
    """Factor (edit type) and level (alternative): one pair for a main effect, two for an interaction."""
    error: EffectRow
    figure: Figure
    """Effect on the probability of the true class or the share of right pixels."""
    entries: tuple[int, ...]
    """Catalogue entries of the test cases with the levels in `parts`."""


@dataclass(frozen=True)
class FactorView:
    """Result of a factor experiment, as a page shows it."""

    model: str
    title: str
    """Name of the evaluated images."""
    wrong: str
    """Word for an error of the model, such as "wrong"."""
    figure: str
    """Name of the second outcome: the probability of the true class, or the share of right pixels."""
    effects: Mapping[str, FactorEffects]
    """Effects on the error, by the key "edit type" or "alternative". For "alternative", each alternative is a level of
    its factor. For "edit type", all alternatives of a factor are one level. If each factor has only one alternative,
    the key "edit type" is missing, as its effects would be the same."""
    rows: Mapping[str, tuple[FactorRow, ...]]
    """Rows by the keys of `effects`, one for each effect. A row has the effects on the error and on `figure`."""
    mixed: tuple[MixedRow, ...]
    """Unrequested changes of one factor in images where another was edited; empty if they cannot be measured."""
    problem: str
    """Sentence on why no interaction can be measured; "" if some test cases change two factors."""
    notes: tuple[str, ...]

    @property
    def answer(self) -> tuple[str, ...]:
        """Return the answer in sentences: the significant effects, and the factors that change if another is edited. An
        effect of an edit type is left out if an effect of an alternative comes from the same images.
        """
        rows = [row for table in self.rows.values() for row in table]
        significant = {row.entries: row for row in rows if row.error.answer != "cannot tell"}
        nearest = min((row for row in rows if row.error.needed), key=lambda row: row.error.needed or 0, default=None)
        return TEXTS.paragraphs(
            "factors-answer.txt",
            parts_words=parts_words,
            change=_change,
            problem=self.problem,
            told=list(significant.values())[:MOST_TOLD],
            nearest=nearest,
            sources=max((one.sources for one in self.effects.values()), default=0),
            mixing=[row for row in self.mixed if row.mixes],
        )


class Factors:
    """Analyses factor experiments. All methods may be called from any thread."""

    def __init__(self, evaluations: EvaluationService, meaning: Meaning) -> None:
        self._evaluations, self._meaning = evaluations, meaning

    @does("show-factors", acts.OnModel, looks=True)
    def show_factors(self, sent: acts.OnModel) -> dict[str, Any]:
        """Show which kinds of edits raise a model's error, alone (main effects) and together (interactions), with
        intervals over sources and corrected p-values, and where drawing changes a factor that was not asked for.
        """
        return factor_facts(self.figures(self._evaluations.asked(sent)))

    def figures(self, question: EvaluationQuestion) -> FactorView:
        """Return all effects, from stored predictions and vectors. Raises UserError if nothing can be evaluated."""
        result = self._evaluations.result(question)
        images, weighing = _Experiment(result), question.weighing
        levels, task = images.levels, result.cases.task
        tables = {"edit type": levels.by_factor(), "alternative": levels}
        if all(len(names) == 1 for names in levels.names):  # the names of the alternatives say more
            del tables["edit type"]
        on_error = {name: effects(one, images.wrong, weighing) for name, one in tables.items()}
        on_figure = {name: effects(one, images.figure, weighing) for name, one in tables.items()}
        looks = images.looks(self._meaning)
        return FactorView(
            model=result.evaluated.model,
            title=result.evaluated.subject.title,
            wrong=STANDING[task][1],
            figure=OF_TRUE_CLASS if task == "classification" else OF_PIXELS,
            effects=on_error,
            rows={name: _rows(one, on_figure[name], images.entries) for name, one in on_error.items()},
            mixed=mixed(levels, looks) if np.isfinite(looks).any() else (),
            problem="" if (np.count_nonzero(levels.levels, axis=1) > 1).any() else NOTHING,
            notes=images.notes,
        )

    def read(self, question: EvaluationQuestion, on_count: OnCount) -> None:
        """Have the embedder read images and edited words that have no stored vector. Raises the errors of `figures`."""
        images = _Experiment(self._evaluations.result(question))
        entries = images.entries[np.isnan(self._meaning.vectors_of(images.entries)[:, 0])].tolist()
        words = [
            word
            for word, vector in zip(images.words, self._meaning.placed(images.words), strict=True)
            if np.isnan(vector[0])
        ]
        if words:
            self._meaning.place(words)
        for first in range(0, len(entries), AT_ONCE):
            on_count(first, len(entries))
            self._meaning.embed(entries[first : first + AT_ONCE])


class _Experiment:
    """Test cases and reconstructions of an evaluation, with each image's level of each factor."""

    def __init__(self, result: EvaluationResult) -> None:
        cases = result.cases
        generated, controls, table = cases.generated, cases.controls, cases.table
        changes: list[dict[str, list[str]]] = [{} for _ in range(len(generated))]
        self._words: dict[tuple[int, str], tuple[set[str], set[str]]] = {}
        """Old and new words of the edits, by source number and factor."""
        edits_of = edits_by_row(table, generated.row)
        for own, number, edits in zip(changes, generated.source.tolist(), edits_of, strict=True):
            for name, old, new in edits:
                own.setdefault(name, []).append(" ".join(new.casefold().split()))
                before, after = self._words.setdefault((number, name), (set(), set()))
                before.add(old)
                after.add(new)
        known = np.array([bool(one) and set(one) <= set(EDIT_TYPES) for one in changes], bool)
        ways = np.bincount(cases.way[known] + 1) if known.any() else np.zeros(1, np.int64)
        way = int(np.argmax(ways)) - 1
        kept_cases, kept_controls = known & (cases.way == way), cases.control_way == way
        used = np.concatenate([kept_cases, kept_controls])

        def both(of_cases: Any, of_controls: Any) -> Any:
            """Join values of all test cases and of all reconstructions, and keep those of images in the experiment."""
            return np.concatenate([of_cases, of_controls])[used]

        factors = [name for name in EDIT_TYPES if any(name in one for one in changes)]
        names = [sorted({_level(one[name]) for one in changes if name in one}) for name in factors]
        numbers = [{level: at + 1 for at, level in enumerate(of_factor)} for of_factor in names]
        levels = np.zeros((len(generated), len(factors)), np.int64)
        for factor, name in enumerate(factors):
            levels[:, factor] = [numbers[factor][_level(one[name])] if name in one else 0 for one in changes]
        levels = both(levels, np.zeros((len(controls), len(factors)), np.int64))
        source = both(generated.source, controls.source)
        self.levels = Levels(source, levels, factors, names)
        self.entries: Numbers = table.entry[both(generated.row, controls.row)]
        right = np.where(result.compared[source], both(result.right, result.control_right), UNKNOWN)
        self.wrong: Floats = np.where(right == UNKNOWN, np.nan, right == WRONG)
        self.figure: Floats = both(result.after, result.control_after)
        counts = {"without_edit": int((~known).sum()), "others": int(ways.sum() - ways[way + 1])}
        unknown = int(np.isnan(self.wrong).sum())
        self.notes = TEXTS.paragraphs("factors-notes.txt", unknown=unknown, **counts)

    @property
    def words(self) -> list[str]:
        """Return all words that were changed, or that replaced others."""
        return list(dict.fromkeys(word for pair in self._words.values() for words in pair for word in sorted(words)))

    def looks(self, meaning: Meaning) -> Floats:
        """Return how much each image looks changed in each factor, 0 to 1, (images, factors). A softmax over the
        image's similarities to the old and the new words of an edit gives each word a share. The result is the sum of
        the new words' shares. NaN if a vector is missing, or if the source has no edit of the factor.
        """
        words, found = self.words, np.full(self.levels.levels.shape, np.nan)
        images, vectors = _units(meaning.vectors_of(self.entries)), _units(meaning.placed(words))
        if np.isnan(images).all() or np.isnan(vectors).all():  # without any vector their length is not known
            return found
        place = {word: at for at, word in enumerate(words)}
        factors = {name: at for at, name in enumerate(self.levels.factors)}
        order = np.argsort(self.levels.source, kind="stable")
        begins = np.searchsorted(self.levels.source[order], np.arange(self.levels.source.max(initial=-1) + 2))
        for (source, name), (before, after) in self._words.items():
            rows = order[begins[source] : begins[source + 1]]
            both = [place[word] for word in (*sorted(before), *sorted(after))]
            likeness = SHARPNESS * images[rows] @ vectors[both].T
            shares = np.exp(likeness - likeness.max(axis=1, keepdims=True, initial=-np.inf))
            found[rows, factors[name]] = shares[:, len(before) :].sum(axis=1) / shares.sum(axis=1)
        return found


def _level(alternatives: Sequence[str]) -> str:
    return " and ".join(sorted(set(alternatives)))


def _units(vectors: Floats) -> Floats:
    units: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units


def _rows(error: FactorEffects, figure: FactorEffects, entries: Numbers) -> tuple[FactorRow, ...]:
    of_figure = {row.parts: row.effect for row in figure.rows}
    none = Figure(None, why="there is nothing to compare")
    return tuple(
        FactorRow(row.parts, row, of_figure.get(row.parts, none), tuple(sorted(entries[list(row.images)].tolist())))
        for row in error.rows
    )


def parts_words(parts: Sequence[tuple[str, str]]) -> str:
    """Return the levels of an effect in words, such as "“night” (time of day) and “rain” (weather)"."""
    named = {ANY: "a change of the", OTHER: "other changes of the"}
    words = [f"{named[level]} {factor}" if level in named else f"“{level}” ({factor})" for factor, level in parts]
    text = " and ".join(words)
    return text[:1].upper() + text[1:]


def _change(effect: Figure) -> str:
    assert effect.value is not None and effect.low is not None and effect.high is not None
    ends = sorted((abs(effect.low), abs(effect.high)))
    return f"{100 * abs(effect.value):.1f} points ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})"


def factor_facts(found: FactorView) -> dict[str, Any]:
    """Return all effects, JSON-ready."""
    return {
        **facts(found, "model title wrong answer notes"),
        "unchanged": {name: vars(one.unchanged) for name, one in found.effects.items()},
        "figure": found.figure,
        "tables": {
            name: [
                {
                    "levels": dict(row.parts),
                    "error": vars(row.error.effect),
                    "p_adjusted": row.error.p_adjusted,
                    "answer": row.error.answer,
                    "sources_needed": row.error.needed,
                    "figure": vars(row.figure),
                    "entries": row.entries,
                }
                for row in rows
            ]
            for name, rows in found.rows.items()
        },
        "mixed": [
            {**facts(row, "asked seen p_adjusted mixes"), "effect": vars(row.effect), "own": vars(row.own)}
            for row in found.mixed
        ],
    }
