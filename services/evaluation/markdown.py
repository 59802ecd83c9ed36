"""Rankings, retrainings and stored trainings as Markdown, from the templates beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from core.evaluation_results import BUDGETS, ORIGINAL
from core.figures import Figure, percent
from core.model_sections import in_bytes
from core.text_templates import TextTemplates
from core.twins import RATES
from core.words import count_of
from evaluation.factors import FEWEST
from evaluation.report import per_cent, with_interval
from services.evaluation.caption_ranking import CaptionRanking
from services.evaluation.factors import FactorView, parts_words
from services.evaluation.methods import MethodsCompared, method_counts, method_rows
from services.evaluation.ranking import Ranking
from services.evaluation.retraining.results import RetrainingResult, sides_words
from services.evaluation.retraining.weights import KeptTraining, disk_of
from services.evaluation.weak_cells import SearchView
from storage.workspace import Workspace


def ranking_markdown(model: str, title: str, found: Ranking) -> str:
    """Return the ranking of the test cases of a test set."""
    return _lines("ranking.md", model=model, title=title, found=found, budgets=BUDGETS)


def caption_ranking_markdown(model: str, title: str, found: CaptionRanking) -> str:
    """Return the ranking of captions to draw."""
    return _lines("caption-ranking.md", model=model, title=title, found=found, budgets=BUDGETS)


def result_markdown(found: RetrainingResult) -> str:
    """Return the results of a retraining."""
    miou = {(one.arm, one.set): one.value for one in found.miou}
    return _lines("retraining.md", found=found, miou=miou, original=ORIGINAL, rates=RATES)


def methods_markdown(found: MethodsCompared) -> str:
    """Return a comparison of methods."""
    reference = found.names[found.reference]
    differences = [f"{name} less {reference}" for name in found.names if name != reference]
    heads = [*found.names, *differences]
    return _lines("methods.md", found=found, heads=heads, counts=method_counts(found), rows=method_rows)


def search_markdown(batch: str, found: SearchView) -> str:
    """Return what a search for weak cells in a batch has found."""
    return _lines("search.md", batch=batch, found=found)


def factors_markdown(found: FactorView) -> str:
    """Return what a factor experiment found."""
    return _lines("factors.md", found=found, fewest=FEWEST)


def trainings_markdown(workspace: Workspace, found: Sequence[KeptTraining], removed: Sequence[KeptTraining]) -> str:
    """Return a list of the `found` and the `removed` trainings, and their disk use."""
    folder = workspace.trainings
    return _lines("trainings.md", found=found, removed=removed, folder=folder, disk=disk_of(folder))


def _lines(name: str, /, **values: object) -> str:
    return _TEMPLATES.lines(name, **values).removesuffix("\n")


def _look(effect: Figure) -> str:
    if effect.value is None or effect.low is None or effect.high is None:
        return effect.why
    return f"{effect.value:+.2f} ({effect.low:+.2f} to {effect.high:+.2f})"


def _cell(text: str) -> str:
    """Escape a text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _when(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M UTC")


_TEMPLATES = TextTemplates(
    Path(__file__).with_name("templates"),
    cell=_cell,
    count_of=count_of,
    in_bytes=in_bytes,
    look=_look,
    parts_words=parts_words,
    per_cent=per_cent,
    percent=percent,
    sides_words=sides_words,
    when=_when,
    with_interval=with_interval,
)
