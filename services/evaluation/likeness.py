"""Likeness of test cases to their originals, groups of edits with the same meaning, and the perplexity of changed
captions.

The figures come from vectors of the profile's embedder and probabilities of its language model. If some are missing,
they are computed on request. Vectors are stored in the workspace, scores of captions only in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np

from core.evaluation_results import OF_PIXELS, OF_TRUE_CLASS
from core.figures import Figure, Numbers
from core.latest import Latest
from evaluation.edit_clusters import edit_clusters
from evaluation.fidelity import Fidelity, fid, kid, perplexity_ratio
from pipeline.recipes import known_recipes
from pipeline.seams import Models, ScoringLanguageModel
from services.changes import Changes
from services.commands import does
from services.curation.meaning import Meaning, Picture
from services.evaluation import commands as acts
from services.evaluation.facts import likeness_facts
from services.evaluation.results import EvaluationResult
from services.evaluation.service import EvaluationService, about, cancelled, work_facts
from services.evaluation.types import EditGroup, EvaluationQuestion, LikenessFigures
from services.work_queue import OnWork, WorkQueue, WorkView
from storage.workspace import Workspace

MOST_SOURCES = 1_000
"""Maximum number of sources in the figures. If there are more, a random sample is used."""
CAPTIONS = 100
"""Maximum number of sources whose captions the language model reads, each with the caption of a test case."""
AT_ONCE = 16
"""Number of images or texts between two checks for cancellation."""
NAMED_EDITS, PICTURES = 3, 4
"""Maximum number of edits in the name of a group, and maximum number of images that are shown of a group."""


class _Needs:
    """Images and texts that the embedder and the language model read for the figures of one evaluation."""

    def __init__(self, found: EvaluationResult, workspace: Workspace) -> None:
        cases, fate = found.cases, np.random.default_rng(0)
        table, images = cases.table, cases.generated
        self.sources = np.sort(fate.permutation(len(cases.originals))[:MOST_SOURCES])
        self.originals = [Picture(cases.originals.shas[place]) for place in self.sources.tolist()]
        self.images = dict[str, tuple[Numbers, Numbers]]()
        """Sources and catalogue entries of the images, by kind: "test cases" or "reconstructions"."""
        for name, kind_images in (("test cases", images), ("reconstructions", cases.controls)):
            if len(of := np.flatnonzero(np.isin(kind_images.source, self.sources))):
                self.images[name] = kind_images.source[of], table.entry[kind_images.row[of]]
        case, edits = cases.case_of_edit, table.edits
        rows = np.flatnonzero((case >= 0) & (edits.keywords.numbers >= 0) & (edits.alternatives.numbers >= 0))
        rows = rows[np.isin(images.source[case[rows]], self.sources)]
        self.edits = list(zip(case[rows].tolist(), edits.keywords.of(rows), edits.alternatives.of(rows), strict=True))
        """Each edit as (position of the test case, old words, new words)."""
        self.words = list(dict.fromkeys(word for _, *pair in self.edits for word in pair))
        self.captions = list[tuple[str, str]]()
        """Pairs of a source's caption and the caption of one of its test cases."""
        edited, known = fate.permutation(np.unique(case[rows])), {recipe.name: recipe for recipe in known_recipes()}
        _, first = np.unique(images.source[edited], return_index=True)
        for test_case in table.test_case[images.row[edited[np.sort(first)[:CAPTIONS]]]].tolist():
            stored = workspace.test_cases.get(test_case) if test_case >= 0 else None
            recipe = known.get(stored.lineage.recipe) if stored is not None else None
            if stored is not None and recipe is not None:
                values = {name: saved.value.value for name, saved in workspace.runs.get(stored.run_id).values.items()}
                caption = recipe.source_caption(values)
                self.captions += [(caption, stored.lineage.counterfactual.text)] if caption else []


class Likeness:
    """Computes the likeness of test sets of a workspace. All methods may be called from any thread."""

    def __init__(
        self,
        workspace: Workspace,
        evaluations: EvaluationService,
        meaning: Meaning,
        models: Models,
        changes: Changes | None = None,
    ) -> None:
        self._workspace, self._evaluations, self._meaning, self._models = workspace, evaluations, meaning, models
        self.work = WorkQueue(changes, name="likeness of a test set")
        """Queue that reads images and texts. `work.of(about(question))` finds the work for an `EvaluationQuestion`."""
        self._scores, self._language, self._no_score = dict[str, float](), "", ""
        self._found = Latest[LikenessFigures](4)

    @does("show-likeness", acts.OnModel, looks=True)
    def show_likeness(self, sent: acts.OnModel) -> dict[str, Any]:
        """Show how similar the images of a test set are to the originals (KID, FID), which groups of edits with the
        same meaning hurt the model, and how much more perplexing the changed captions are. The figures use the images
        and texts that the models have read so far.
        """
        return likeness_facts(self.figures(self._evaluations.asked(sent)))

    @does("begin-likeness", acts.OnModel)
    def begin_likeness(self, sent: acts.OnModel) -> dict[str, Any]:
        """Have the embedder read the images and edited words that show_likeness lacks, and have the language model read
        the missing captions.
        """
        return work_facts(self.begin(self._evaluations.asked(sent)))

    @does("cancel-likeness")
    def cancel_likeness(self, work: Annotated[int, acts.work_of("begin_likeness")]) -> dict[str, Any]:
        """Stop reading images and words; the embedder's results stay."""
        return cancelled(self.work, work)

    def begin(self, question: EvaluationQuestion) -> WorkView:
        """Begin or continue to compute vectors and scores. Raises UserError if nothing can be evaluated."""
        needs = _Needs(self._evaluations.result(question), self._workspace)
        return self.work.begin("working out vectors", about(question), partial(self._work_out, needs))

    def figures(self, question: EvaluationQuestion) -> LikenessFigures:
        """Return the figures so far. Can take seconds. Raises UserError if nothing can be evaluated."""
        result, key = self._evaluations.result(question), (repr(question), self._workspace.saved(), len(self._scores))
        return self._found.once((*key, self._no_score), lambda: self._made(result, _Needs(result, self._workspace)))

    def _missing(self, needs: _Needs) -> tuple[Sequence[Any], ...]:
        """Return three lists: images without vector; originals and words without vector; captions without score."""
        entries = np.unique(np.concatenate([entries for _, entries in needs.images.values()]))
        inputs: list[str | Picture] = [*needs.originals, *needs.words]
        captions = dict.fromkeys(text for pair in needs.captions for text in pair if text not in self._scores)
        return (
            entries[np.isnan(self._meaning.vectors_of(entries)[:, 0])].tolist(),
            [inputs[place] for place in np.flatnonzero(np.isnan(self._meaning.placed(inputs)[:, 0])).tolist()],
            () if self._no_score else tuple(captions),
        )

    def _work_out(self, needs: _Needs, on_work: OnWork) -> None:
        missing = self._missing(needs)
        done, total = 0, sum(map(len, missing))
        read: tuple[Callable[[Any], None], ...] = self._meaning.embed, self._meaning.place, self._score
        for act, step, waiting in zip(read, ("images", "originals and words", "captions"), missing, strict=True):
            for first in range(0, len(waiting), AT_ONCE):
                on_work(done, total, step)
                act(waiting[first : first + AT_ONCE])
                done += len(waiting[first : first + AT_ONCE])

    def _score(self, captions: Sequence[str]) -> None:
        model = self._models.language
        self._language = model.name
        if isinstance(model, ScoringLanguageModel):
            self._scores |= {text: model.score(text) for text in captions}
        else:
            self._no_score = f"the language model {model.name} does not tell how likely a text is"

    def _made(self, found: EvaluationResult, needs: _Needs) -> LikenessFigures:
        missing, compared, before = self._missing(needs), dict[str, Fidelity](), self._meaning.placed(needs.originals)
        seen, sources = np.isfinite(before[:, 0]), len(found.cases.originals)
        for name, (source, entries) in needs.images.items():
            after = self._meaning.vectors_of(entries)
            if seen.any() and (has_vector := np.isfinite(after[:, 0])).any():
                both = before[seen], after[has_vector], needs.sources[seen], source[has_vector]
                compared[name] = Fidelity(self._meaning.title, kid(*both), fid(*both[:2]))
        pairs = [(self._scores[old], self._scores[new]) for old, new in needs.captions if {old, new} <= {*self._scores}]
        perplexity = perplexity_ratio(*np.array(pairs or np.zeros((0, 2)), float).T)
        if not pairs:
            why = self._no_score or ("they are not read yet" if needs.captions else "no test case has a source caption")
            perplexity = Figure(None, why=why)
        left, notes = sum(map(len, missing)), list[str]()
        if sources > MOST_SOURCES:
            notes.append(f"The figures use {MOST_SOURCES:,} of {sources:,} sources, chosen by chance.")
        if left:
            notes.append(f"Not read yet: {left:,} of the images, words and captions. The figures leave them out.")
        changed = OF_TRUE_CLASS if found.cases.task == "classification" else OF_PIXELS
        groups = self._groups(found, needs)
        return LikenessFigures(left, changed, groups, compared, perplexity, self._language, tuple(notes))

    def _groups(self, found: EvaluationResult, needs: _Needs) -> tuple[EditGroup, ...]:
        cases, images, vectors = found.cases, found.cases.generated, self._meaning.placed(needs.words)
        place = {word: number for number, word in enumerate(needs.words)}
        grouped, case = np.unique([case for case, *_ in needs.edits], return_inverse=True)
        differences, of_case = np.zeros((len(grouped), vectors.shape[1])), [list[str]() for _ in grouped]
        for number, (_, old, new) in zip(case.tolist(), needs.edits, strict=True):
            differences[number] += vectors[place[new]] - vectors[place[old]]
            of_case[number].append(f"{old} → {new}")
        edit_groups, grouped = [], grouped.astype(np.int64)
        label = np.maximum(images.label[grouped], 0)
        for one in edit_clusters(differences, found.change[grouped], images.source[grouped], label):
            rows, counted = grouped[list(one.cases)], Counter(words for at in one.cases for words in of_case[at])
            named = ", ".join(words for words, _ in counted.most_common(NAMED_EDITS))
            more = f" and {len(counted) - NAMED_EDITS} more" if len(counted) > NAMED_EDITS else ""
            title = cases.labels[one.label] if cases.task == "classification" else ""
            entries = tuple(cases.table.entry[images.row[rows]].tolist())
            pictures = tuple(images.shas[at] for at in rows[:PICTURES].tolist())
            edit_groups.append(EditGroup(title, named + more, one, entries, pictures))
        return tuple(edit_groups)
