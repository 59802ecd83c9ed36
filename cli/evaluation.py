"""`python -m evaluation`: evaluates a model under test on a test set, like the page Evaluate, without a browser.

The report goes to stdout, as Markdown or with `--json` as data; progress goes to stderr. The model first predicts all
new images, and the predictions are stored. A stopped training resumes. A user's mistake ends with one sentence and exit
code 2. `gate` ends with 1 if the model is worse, and 4 if that cannot be told. Otherwise the exit code is 3 after
unreadable images, 130 after Ctrl-C, 143 after SIGTERM, and 141 if the reader of the
output stops reading. In all cases, predictions and trainings are kept.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from cli import batches
from cli.common import (
    INTERRUPTED,
    SOME_FAILED,
    TERMINATED,
    WAITS,
    in_workspace,
    printable,
    until_pipe_closes,
)
from cli.parsers import parser_of, points, whole_number
from cli.terminal import ProgressLine, Terminated, stop_on_signals
from core.errors import Cancelled, UserError
from core.evaluation_results import OF_PIXELS, OF_TRUE_CLASS, GateAnswer, Weighing
from core.image_filter import ImageFilter
from core.model_sections import in_bytes
from core.progress import OnCount, Pace, Progress
from core.settings import UnderTestSettings
from core.validation_messages import reason
from core.words import count_of
from evaluation.report import LOSES, edits_markdown, gate_junit, gate_markdown, rows_markdown
from pipeline.models import load_models
from pipeline.models.machine import share_cores
from pipeline.profiles.profile import Profile, load_profile
from services.batches.engine import Engine
from services.batches.plan_file import read_plan
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
from services.evaluation.retraining.jobs import TRAINING, OnStep, Retrainings, retraining_question
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

TRAININGS = "trainings"
MOST_WORKERS = 256
SEARCH_OPTIONS = ("images", "minutes", "weak")
SOURCES = ("torchvision", "timm", "transformers")
GATE_CODES: dict[GateAnswer, int] = {"no worse": 0, "worse": 1, "cannot tell": 4}
"""Exit codes of the command `gate`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    return until_pipe_closes(lambda: _run(arguments))


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
    options = parser_of(__file__, **values).parse_args(arguments)
    share_cores()

    def act(workspace: Workspace) -> int:
        with stop_on_signals() as stop:
            if options.command == TRAININGS:
                report, code = _trainings(workspace, options), 0
            elif options.command == "search":
                report, code = _searched(workspace, options, stop.asked)
            else:
                report, code = _evaluated(workspace, options, stop.asked)
        print(report)
        return code

    try:
        return in_workspace(Path(options.workspace), act)
    except Terminated:
        return TERMINATED
    except (Cancelled, KeyboardInterrupt):
        return INTERRUPTED


def _evaluated(workspace: Workspace, options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    """Run a command that evaluates a model. Return the report and the exit code."""
    profile = load_profile(options.profile)
    service = EvaluationService(profile, workspace, lambda _: None)  # the user may send images to any server
    try:
        question = _asked(service, workspace, options)
        cases = service.cases(question.subject)
        if cases.view.problem:
            raise UserError(cases.view.problem)
        line = ProgressLine()
        pace: Pace | None = None

        def on_step(what: str, done: int, total: int) -> None:
            nonlocal pace
            if stop.is_set():
                raise Cancelled
            pace = pace if pace is not None and pace.total == total else Pace(total)
            line(Progress(what, done, total, pace.seconds_left(done)))

        def on_count(done: int, total: int) -> None:
            on_step(READING, done, total)

        if options.command == "retrain":
            return _retrained(workspace, service, question, options, line, on_step), 0
        questions = [question]
        if options.command == "evidence" and options.beside:
            questions.append(replace(question, model=_model(service, question.subject, options, options.beside)))
        if options.command == "evidence":
            released(workspace, question)
            require_free(Path(options.out))
        if options.command == "gate":
            against = _model(service, question.subject, options, options.against)
            if against == question.model:
                raise UserError(
                    "Both models are the same: name the new one with --model, or the old one with --against."
                )
            questions = [replace(question, model=against), question]
        for one in questions:
            stored = service.predicting.identify(one.model)
            misfit = service.misfit(cases, stored)
            if misfit:
                raise UserError(misfit)
            if service.pending(one).left:
                for name, words in stored.identity.assumptions:
                    print(printable(f"{name}: {words}"), file=sys.stderr)
            try:
                read = service.read(one.model, cases, on_count)
            finally:
                line.clear()
            if read.note:
                print(printable(read.note), file=sys.stderr)
        if options.command == "gate":
            return _gated(service, questions, options)
        if options.command == "evidence":
            try:
                words = _bundled(workspace, service, questions, Path(options.out), on_step)
            finally:
                line.clear()
            return words, SOME_FAILED if any(service.pending(one).unreadable for one in questions) else 0
        evaluated = service.evaluate(question)
        if options.command == "rank":
            ranking = service.rank(question, options.most)
            text = ranking_markdown(evaluated.model, evaluated.subject.title, ranking)
            report = json_text(ranking_facts(ranking)) if options.json else _plain(text)
        elif options.command == "foretell":
            predicted = service.rank_captions(question, options.run)
            text = caption_ranking_markdown(evaluated.model, evaluated.subject.title, predicted)
            report = json_text(caption_ranking_facts(predicted)) if options.json else _plain(text)
        elif options.command == "factors":
            report = _factors(workspace, profile, service, question, options, on_count, line)
        elif options.command == "compare-methods":
            compared = service.methods(question, options.reference).compared
            report = json_text(methods_facts(compared)) if options.json else _plain(methods_markdown(compared))
        elif options.command == "focus":
            models = [
                question.model,
                *([_model(service, question.subject, options, options.beside)] if options.beside else []),
            ]
            focus, questions = Focus(workspace, service), [replace(question, model=one) for one in models]
            try:
                focus.look(questions, lambda done, total, step="": on_step(step, done, total))
            finally:
                line.clear()
            shown = focus.figures(*questions)
            text = rows_markdown(f"Where {' and '.join(shown.models)} look", focus_rows(shown), shown.notes)
            report = json_text(focus_facts(shown)) if options.json else _plain(text.strip())
        else:
            report = _report(evaluated, options)
        return report, SOME_FAILED if evaluated.pending.unreadable else 0
    finally:
        service.close()


def _factors(
    workspace: Workspace,
    profile: Profile,
    service: EvaluationService,
    question: EvaluationQuestion,
    options: argparse.Namespace,
    on_count: OnCount,
    line: ProgressLine,
) -> str:
    """Have the embedder read what is missing, and return the report of a factor experiment."""
    jobs = JobQueue()
    factors = Factors(service, Meaning(profile, load_models(profile), workspace, jobs))
    try:
        factors.read(question, on_count)
    except UserError as error:  # all else is known without the embedder
        print(printable(str(error)), file=sys.stderr)
    finally:
        line.clear()
        jobs.close()
    found = factors.figures(question)
    return json_text(factor_facts(found)) if options.json else _plain(factors_markdown(found))


def _gated(
    service: EvaluationService, questions: Sequence[EvaluationQuestion], options: argparse.Namespace
) -> tuple[str, int]:
    """Compare the second model with the first. Return the report and the exit code."""
    margin = options.no_worse_than / 100
    result = service.gate(questions[0], questions[1], margin, options.classes)
    models = tuple(service.title(one.model) for one in questions)
    test_set = service.view(questions[0].subject).title
    if options.junit:
        Path(options.junit).write_bytes(gate_junit(test_set, models, result))
    if options.json:
        report = json_text({"models": models, "test_set": test_set, **asdict(result)})
    else:
        report = _plain(gate_markdown(test_set, models, result).strip())
    return report, GATE_CODES[result.answer]


def _bundled(
    workspace: Workspace,
    service: EvaluationService,
    questions: Sequence[EvaluationQuestion],
    file: Path,
    on_step: OnStep,
) -> str:
    """Write the evidence of the models to a zip. Return a sentence about it."""
    manifest = write_bundle(workspace, service, questions, file, partial(on_step, "writing images"))
    images = sum(one["name"].startswith("images/") for one in manifest["files"])
    return (
        f"{file}: {count_of(manifest['figures'], 'figure')}, {count_of(images, 'image')}, "
        f"{in_bytes(file.stat().st_size)}. Unpack it and run python recompute.py to check every figure."
    )


def _searched(workspace: Workspace, options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    """Search a batch for weak cells. Return the report and the exit code."""
    made = BatchService(workspace)
    number = int(options.batch) if options.batch.isdecimal() else made.plan(read_plan(Path(options.batch)))
    given = {name: getattr(options, name) for name in SEARCH_OPTIONS if getattr(options, name) is not None}
    asked, order = BeginSearch.of({"batch": number, **given}), made.order(number)
    if options.yes and made.status(number).batch.approved is None:
        workspace.batches.approve(number, ahead=True)
    profile = load_profile(options.profile)
    service = EvaluationService(profile, workspace, lambda _: None)
    line = ProgressLine()

    def on_count(done: int, total: int) -> None:
        if stop.is_set():
            raise Cancelled
        line(Progress(READING, done, total))

    def on_round(view: SearchView) -> None:
        note = f"{view.drawn:,} of {settings.images:,} images, {count_of(len(view.told), 'weak cell')}"
        line(Progress("searching", 0, 0, None, note))

    facet = ImageFilter(facets={"batch": (workspace.batches.get(number).facet,)})
    model = _model(service, Subject(filter=facet), options, options.model)
    settings = asked.settings(model, _mapping(options))
    search = WeakCellSearch(workspace, service, number, settings, on_count, on_round)
    search.begin()
    try:
        for words in options.ask:
            search.ask(words, partial(nearest_names, load_models(profile)))
        with batches.pools(options, options.workers or order.plan.run.workers) as pool:
            outcome = Engine(workspace, number, order, pool, stop, choose=search.choose).run()
        line.clear()
        if outcome == "approval":
            print(f"Approve the captions first: python -m pipeline batch approve {number}", file=sys.stderr)
        view = search.view()
    finally:
        line.clear()
        service.close()
    report = (
        json_text(asdict(view)) if options.json else _plain(search_markdown(workspace.batches.get(number).name, view))
    )
    return report, WAITS if outcome == "approval" else INTERRUPTED if stop.is_set() else 0


def _retrained(
    workspace: Workspace,
    service: EvaluationService,
    evaluation_question: EvaluationQuestion,
    options: argparse.Namespace,
    line: ProgressLine,
    on_step: OnStep,
) -> str:
    names = ("preset", "arms", "seeds", "augmentation", "unseen", "split_seed", "updates", "batch", "rate")
    values = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.shift:
        values["shift"] = version_of(workspace, options.shift).number
    question = retraining_question(evaluation_question, BeginRetraining.of(values))
    retrainings = Retrainings(workspace, service)
    is_printed = False

    def before_training(what: str, done: int, total: int) -> None:
        nonlocal is_printed
        if what.startswith(TRAINING) and not is_printed:
            is_printed = True
            line.clear()
            print(printable(retrainings.expected(question).words), file=sys.stderr)
        on_step(what, done, total)

    try:
        result = retrainings.retrain(question, before_training)
    finally:
        line.clear()
        retrainings.close()
    return json_text(result_facts(result)) if options.json else _plain(result_markdown(result))


def _trainings(workspace: Workspace, options: argparse.Namespace) -> str:
    """Return the list of trainings in the workspace. With `--remove-old`, first remove old trainings."""
    removed = remove_old(workspace) if options.remove_old else ()
    trainings = trainings_of(workspace)
    if options.json:
        return json_text({"trainings": [asdict(one) for one in trainings], "removed": [asdict(one) for one in removed]})
    return _plain(trainings_markdown(workspace, trainings, removed))


def _asked(service: EvaluationService, workspace: Workspace, options: argparse.Namespace) -> EvaluationQuestion:
    if options.filter is None and not options.test_set:
        raise UserError("Name a test set, such as “Birds@2”, or a filter with --filter.")
    version = version_of(workspace, options.test_set).number if options.test_set else None
    subject = Subject(version, filter_of(options.filter or ""), options.split)
    return EvaluationQuestion(
        subject, _model(service, subject, options, options.model), _mapping(options), options.each, options.among_labels
    )


def _mapping(options: argparse.Namespace) -> str:
    return Path(options.mapping).read_text(encoding="utf-8") if options.mapping else ""


def _model(service: EvaluationService, subject: Subject, options: argparse.Namespace, text: str) -> UnderTestSettings:
    """Return the model that `text` names: a name such as torchvision:resnet50, an address, a file or a folder. For ""
    return the profile's model. Raises UserError.
    """
    if not text:
        listed = next((one for one in service.models(subject) if one.from_profile), None)
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
        raise UserError(f"There is no model {text[:200]!r}: give timm:NAME, torchvision:NAME, a file or an address.")
    for pair in options.set:
        key, _, value = pair.partition("=")
        values[key.strip()] = value.strip()
    try:
        return UnderTestSettings.model_validate(values)
    except ValidationError as error:
        raise UserError(f"The settings of the model are wrong: {reason(error, UnderTestSettings)}.") from error


def _report(found: Evaluated, options: argparse.Namespace) -> str:
    if options.json:
        facts = facts_of(found)
        if options.command == "sensitivity":
            facts["figures"] = [row for row in facts["figures"] if row["part"] in found.edits]
        return json_text(facts)
    if options.command == "sensitivity":
        tables = {f"By {table}": rows for table, rows in found.sensitivity.items()}
        compared = "reconstructions of the same sources" if found.against_control else "the originals"
        what, wrong = (OF_TRUE_CLASS, "") if found.kind == "classification" else (OF_PIXELS, LOSES)
        head = f"# Which edits hurt {printable(found.model)}\n\nThe change of {what}, against {compared}.\n"
        return head + edits_markdown(tables, what, wrong)
    return file_of(found, "latex" if options.latex else "markdown").decode().rstrip("\n")


def _plain(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
