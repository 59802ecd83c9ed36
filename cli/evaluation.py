"""`python -m evaluation`: evaluates a model under test on a test set, like the page Evaluate, without a browser.

The report goes to stdout, as Markdown or with `--json` as data; progress goes to stderr. The model first predicts all
new images, and the predictions are stored. A stopped training resumes. A user's mistake ends with one sentence and exit
code 2. `gate` ends with 1 if the model is worse, and 4 if there are too few images to say. Otherwise the exit code is 3
after unreadable images, 130 after Ctrl-C, 143 after SIGTERM, and 141 if the reader of the output stops reading.
Predictions and trainings are kept in all cases.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from cli import batches
from cli.common import (
    INTERRUPTED,
    SOME_FAILED,
    WAITS,
    ProgressLine,
    exit_code,
    in_workspace,
    printable,
    stop_on_signals,
)
from cli.parsers import parser_of, points, whole_number
from core.errors import UserError
from core.evaluation_results import OF_PIXELS, OF_TRUE_CLASS, GateAnswer, Weighing
from core.image_filter import ImageFilter
from core.model_sections import in_bytes
from core.progress import Pace, Progress, stop_if
from core.settings import UnderTestSettings
from core.validation_messages import reason
from core.words import count_of
from evaluation.report import LOSES, edits_markdown, gate_junit, gate_markdown, rows_markdown
from pipeline.models import load_models
from pipeline.models.machine import share_cores
from pipeline.profiles.profile import Profile, load_profile
from services.batches.engine import Engine
from services.batches.service import BatchService
from services.curation.meaning import Meaning
from services.curation.views import filter_of
from services.evaluation.caption_ranking import caption_ranking_facts
from services.evaluation.commands import MOST_RANKED, BeginRetraining
from services.evaluation.evidence.bundle import released, require_free, write_bundle
from services.evaluation.factors import Factors, factor_facts
from services.evaluation.facts import facts_of, file_of, focus_facts, focus_rows, json_text
from services.evaluation.focus import Focus
from services.evaluation.markdown import (
    caption_ranking_markdown,
    factors_markdown,
    methods_markdown,
    ranking_markdown,
    result_markdown,
    search_markdown,
    trainings_markdown,
)
from services.evaluation.methods import methods_facts
from services.evaluation.ranking import ranking_facts
from services.evaluation.retraining.jobs import TRAINING, Retrainings, retraining_question
from services.evaluation.retraining.results import result_facts
from services.evaluation.retraining.training import ARM_KEYS, PRESETS, SEEDS
from services.evaluation.retraining.weights import remove_old, trainings_of
from services.evaluation.search_commands import BeginSearch, nearest_names
from services.evaluation.service import READING, EvaluationService
from services.evaluation.types import Evaluated, EvaluationQuestion, Subject
from services.evaluation.weak_cells import SearchView, WeakCellSearch
from services.jobs import JobQueue
from services.test_sets.versions import version_of
from storage.workspace import Workspace

MOST_WORKERS = 256
SEARCH_OPTIONS = ("images", "minutes", "weak")
SOURCES = ("torchvision", "timm", "transformers")
GATE_CODES: dict[GateAnswer, int] = {"no worse": 0, "worse": 1, "cannot tell": 4}
"""Exit codes of the command `gate`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    return exit_code(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    values = {
        **{name: field.description or "" for name, field in BeginRetraining.model_fields.items()},
        "presets": PRESETS,
        "every_arm": ",".join(ARM_KEYS),
        "usual_seeds": SEEDS,
        "weighings": get_args(Weighing),
        "most": whole_number(1, MOST_RANKED),
        "points": points,
        **{name: BeginSearch.model_fields[name].description or "" for name in SEARCH_OPTIONS},
        **{f"usual_{name}": f"{BeginSearch.model_fields[name].default:g}" for name in SEARCH_OPTIONS},
        "workers": whole_number(1, MOST_WORKERS),
    }
    figures = (effectiveness, sensitivity, rank, foretell, factors, compare_methods, focus)
    acts = (*figures, retrain, gate, evidence, search, trainings)
    options = parser_of(__file__, *acts, **values).parse_args(arguments)
    share_cores()

    def act(workspace: Workspace) -> int:
        with stop_on_signals() as stop, closing(_Work(workspace, options, stop.asked)) as work:
            report = options.act(work)
        print(report)
        return work.code

    return in_workspace(Path(options.workspace), act)


class _Work:
    """The work of one command: its options, the images and model that they name, and its progress line."""

    def __init__(self, workspace: Workspace, options: argparse.Namespace, stop: threading.Event) -> None:
        self.workspace, self.options, self.stop = workspace, options, stop
        self.line = ProgressLine()
        self.code = 0
        """Exit code of the command."""
        self._pace: Pace | None = None

    @cached_property
    def profile(self) -> Profile:
        return load_profile(self.options.profile)

    @cached_property
    def service(self) -> EvaluationService:
        return EvaluationService(self.profile, self.workspace, lambda _: None)  # the user may send images to any server

    @cached_property
    def question(self) -> EvaluationQuestion:
        """Return the images, model and mapping that the options name. Raises UserError if they cannot be evaluated."""
        options = self.options
        if options.filter is None and not options.test_set:
            raise UserError("Name a test set, such as “Birds@2”, or a filter with --filter.")
        version = version_of(self.workspace, options.test_set).number if options.test_set else None
        subject = Subject(version, filter_of(options.filter or ""), options.split)
        model = self.model(subject, options.model)
        question = EvaluationQuestion(subject, model, self.mapping, options.each, options.among_labels)
        if problem := self.service.cases(subject).view.problem:
            raise UserError(problem)
        return question

    @property
    def mapping(self) -> str:
        return Path(self.options.mapping).read_text(encoding="utf-8") if self.options.mapping else ""

    def model(self, subject: Subject, text: str) -> UnderTestSettings:
        """Return the model that `text` names: a name such as torchvision:resnet50, an address, a file or a folder. For
        "" return the profile's model. Raises UserError if there is no such model.
        """
        if not text:
            listed = next((one for one in self.service.models(subject) if one.from_profile), None)
            if listed is None:
                raise UserError("The profile names no model under test for these images: name one with --model.")
            return listed.settings
        source, _, name = text.partition(":")
        if source in SOURCES and name:
            values = {"source": source, "name": name}
        elif text.startswith(("http://", "https://")):
            values = {"source": "http", "address": text}
        elif Path(text).is_dir():
            values = {"source": "transformers", "file": text}
        elif Path(text).is_file():
            values = {"source": "onnx" if text.endswith(".onnx") else "file", "file": str(Path(text).absolute())}
        else:
            raise UserError(
                f"There is no model {text[:200]!r}: give timm:NAME, torchvision:NAME, a file or an address."
            )
        for pair in self.options.set:
            key, _, value = pair.partition("=")
            values[key.strip()] = value.strip()
        try:
            return UnderTestSettings.model_validate(values)
        except ValidationError as error:
            raise UserError(f"The settings of the model are wrong: {reason(error, UnderTestSettings)}.") from error

    def of_model(self, text: str) -> EvaluationQuestion:
        """Return the command's question about another model. `text` names this model in a form that `model` accepts."""
        return replace(self.question, model=self.model(self.question.subject, text))

    def compared(self) -> list[EvaluationQuestion]:
        """Return the command's question, and the same one with the model of `--beside` if that is given."""
        return [self.question, *([self.of_model(self.options.beside)] if self.options.beside else [])]

    def predict(self, questions: Sequence[EvaluationQuestion]) -> None:
        """Predict all new images with each model. Raises UserError if a model does not fit the images."""
        cases = self.service.cases(self.question.subject)
        for one in questions:
            stored = self.service.predicting.identify(one.model)
            if misfit := self.service.misfit(cases, stored):
                raise UserError(misfit)
            if self.service.pending(one).left:
                for name, words in stored.identity.assumptions:
                    self.line.say(printable(f"{name}: {words}"))
            read = self.service.read(one.model, cases, self.on_count)
            if read.note:
                self.line.say(printable(read.note))

    def evaluated(self) -> Evaluated:
        """Predict all new images, then return the results of the evaluation that the command asks for."""
        self.predict([self.question])
        found = self.service.evaluate(self.question)
        self.code = SOME_FAILED if found.pending.unreadable else 0
        return found

    def on_step(self, what: str, done: int, total: int) -> None:
        """Show the progress of a step. Raises Cancelled once the work should stop."""
        stop_if(self.stop)
        self._pace = self._pace if self._pace is not None and self._pace.total == total else Pace(total)
        self.line(Progress(what, done, total, self._pace.seconds_left(done)))

    def on_count(self, done: int, total: int) -> None:
        """Show the progress of reading images. Raises Cancelled once the work should stop."""
        self.on_step(READING, done, total)

    def shown(self, facts: dict[str, Any], markdown: str) -> str:
        """Return the report of a command: its facts as JSON with `--json`, else the Markdown."""
        return json_text(facts) if self.options.json else "\n".join(map(printable, markdown.split("\n")))

    def close(self) -> None:
        self.line.clear()
        if "service" in vars(self):
            self.service.close()


def effectiveness(work: _Work) -> str:
    found = work.evaluated()
    if work.options.json:
        return json_text(facts_of(found))
    return file_of(found, "latex" if work.options.latex else "markdown").decode().rstrip("\n")


def sensitivity(work: _Work) -> str:
    found = work.evaluated()
    if work.options.json:
        facts = facts_of(found)
        return json_text(facts | {"figures": [row for row in facts["figures"] if row["part"] in found.edits]})
    tables = {f"By {table}": rows for table, rows in found.sensitivity.items()}
    compared = "reconstructions of the same sources" if found.against_control else "the originals"
    what, wrong = (OF_TRUE_CLASS, "") if found.kind == "classification" else (OF_PIXELS, LOSES)
    head = f"# Which edits hurt {printable(found.model)}\n\nThe change of {what}, against {compared}.\n"
    return head + edits_markdown(tables, what, wrong)


def rank(work: _Work) -> str:
    evaluated, ranking = work.evaluated(), work.service.rank(work.question, work.options.most)
    return work.shown(ranking_facts(ranking), ranking_markdown(evaluated.model, evaluated.subject.title, ranking))


def foretell(work: _Work) -> str:
    evaluated, ranking = work.evaluated(), work.service.rank_captions(work.question, work.options.run)
    text = caption_ranking_markdown(evaluated.model, evaluated.subject.title, ranking)
    return work.shown(caption_ranking_facts(ranking), text)


def factors(work: _Work) -> str:
    """Compute missing embeddings of images and words, and return the report of a factor experiment."""
    work.evaluated()
    jobs = JobQueue()
    experiment = Factors(work.service, Meaning(work.profile, load_models(work.profile), work.workspace, jobs))
    try:
        experiment.read(work.question, work.on_count)
    except UserError as error:  # the other figures need no embedder
        work.line.say(printable(str(error)))
    finally:
        jobs.close()
    found = experiment.figures(work.question)
    return work.shown(factor_facts(found), factors_markdown(found))


def compare_methods(work: _Work) -> str:
    work.evaluated()
    compared = work.service.methods(work.question, work.options.reference).compared
    return work.shown(methods_facts(compared), methods_markdown(compared))


def focus(work: _Work) -> str:
    questions = work.compared()
    work.evaluated()
    maps = Focus(work.workspace, work.service)
    maps.look(questions, lambda done, total, step="": work.on_step(step, done, total))
    shown = maps.figures(*questions)
    text = rows_markdown(f"Where {' and '.join(shown.models)} look", focus_rows(shown), shown.notes)
    return work.shown(focus_facts(shown), text.strip())


def gate(work: _Work) -> str:
    """Compare the model with the one of `--against`. The exit code is the answer."""
    options, old, new = work.options, work.of_model(work.options.against), work.question
    if old == new:
        raise UserError("Both models are the same: name the new one with --model, or the old one with --against.")
    work.predict([old, new])
    result = work.service.gate(old, new, options.no_worse_than / 100, options.classes)
    models = work.service.title(old.model), work.service.title(new.model)
    test_set = work.service.view(new.subject).title
    if options.junit:
        Path(options.junit).write_bytes(gate_junit(test_set, models, result))
    work.code = GATE_CODES[result.answer]
    facts = {"models": models, "test_set": test_set, **asdict(result)}
    return work.shown(facts, gate_markdown(test_set, models, result).strip())


def evidence(work: _Work) -> str:
    """Write a zip with which others can recompute the models' figures. Return a sentence about it."""
    questions, file = work.compared(), Path(work.options.out)
    released(work.workspace, work.question)
    require_free(file)
    work.predict(questions)
    on_image = partial(work.on_step, "writing images")
    manifest = write_bundle(work.workspace, work.service, questions, file, on_image)
    images = sum(one["name"].startswith("images/") for one in manifest["files"])
    work.code = SOME_FAILED if any(work.service.pending(one).unreadable for one in questions) else 0
    return (
        f"{file}: {count_of(manifest['figures'], 'figure')}, {count_of(images, 'image')}, "
        f"{in_bytes(file.stat().st_size)}. Unpack it and run python recompute.py to check every figure."
    )


def search(work: _Work) -> str:
    """Search a batch for weak cells: pairs of a label and an edit with which the model is likely to fail."""
    options, workspace = work.options, work.workspace
    made = BatchService(workspace)
    number = batches.number_of(made, options.batch)
    chosen = {name: getattr(options, name) for name in SEARCH_OPTIONS if getattr(options, name) is not None}
    command, order = BeginSearch.of({"batch": number, **chosen}), made.order(number)
    if options.yes and made.status(number).batch.approved is None:
        workspace.batches.approve(number, ahead=True)

    def on_round(view: SearchView) -> None:
        note = f"{view.drawn:,} of {settings.images:,} images, {count_of(len(view.weak_cells), 'weak cell')}"
        work.line(Progress("searching", 0, 0, None, note))

    subject = Subject(filter=ImageFilter(facets={"batch": (workspace.batches.get(number).facet,)}))
    settings = command.settings(work.model(subject, options.model), work.mapping)
    weak_cells = WeakCellSearch(workspace, work.service, number, settings, work.on_count, on_round)
    weak_cells.begin()
    for words in options.ask:
        weak_cells.ask(words, partial(nearest_names, load_models(work.profile)))
    with batches.pools(options, options.workers or order.plan.run.workers) as pool:
        outcome = Engine(workspace, number, order, pool, work.stop, choose=weak_cells.choose).run()
    if outcome == "approval":
        work.line.say(f"Approve the captions first: python -m pipeline batch approve {number}")
    work.code = WAITS if outcome == "approval" else INTERRUPTED if work.stop.is_set() else 0
    view = weak_cells.view()
    return work.shown(asdict(view), search_markdown(workspace.batches.get(number).name, view))


def retrain(work: _Work) -> str:
    options = work.options
    names = ("preset", "arms", "seeds", "augmentation", "unseen", "split_seed", "updates", "batch", "rate")
    values = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.shift:
        values["shift"] = version_of(work.workspace, options.shift).number
    question = retraining_question(work.question, BeginRetraining.of(values))
    retrainings = Retrainings(work.workspace, work.service)
    is_printed = False

    def before_training(what: str, done: int, total: int) -> None:
        nonlocal is_printed
        if what.startswith(TRAINING) and not is_printed:
            is_printed = True
            work.line.say(printable(retrainings.expected(question).words))
        work.on_step(what, done, total)

    with closing(retrainings):
        result = retrainings.retrain(question, before_training)
    return work.shown(result_facts(result), result_markdown(result))


def trainings(work: _Work) -> str:
    """Return the list of trainings in the workspace. With `--remove-old`, first remove old trainings."""
    removed = remove_old(work.workspace) if work.options.remove_old else ()
    listed = trainings_of(work.workspace)
    facts = {"trainings": [asdict(one) for one in listed], "removed": [asdict(one) for one in removed]}
    return work.shown(facts, trainings_markdown(work.workspace, listed, removed))
