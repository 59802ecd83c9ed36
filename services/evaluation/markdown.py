"""Rankings, retrainings and stored trainings as Markdown, from the templates beside this file."""

from __future__ import annotations

from collections.abc import Sequence

from core.evaluation_results import BUDGETS
from core.twins import RATES
from evaluation.factors import FEWEST
from services.evaluation.caption_ranking import CaptionRanking
from services.evaluation.factors import FactorView, parts_words
from services.evaluation.methods import MethodsCompared, method_counts, method_rows
from services.evaluation.ranking import Ranking
from services.evaluation.retraining.results import RetrainingResult, sides_words
from services.evaluation.retraining.weights import KeptTraining, disk_of
from services.evaluation.texts import TEXTS
from services.evaluation.weak_cells import SearchView
from storage.workspace import Workspace


def ranking_markdown(model: str, title: str, found: Ranking) -> str:
    """Return a ranking of test cases as Markdown. `title` names their test set."""
    return _lines("ranking.md", model=model, title=title, found=found, budgets=BUDGETS)


def caption_ranking_markdown(model: str, title: str, found: CaptionRanking) -> str:
    """Return Markdown text with a ranking of captions. `title` names the test set that the ranking learnt from."""
    return _lines("caption-ranking.md", model=model, title=title, found=found, budgets=BUDGETS)


def result_markdown(found: RetrainingResult) -> str:
    """Return the results of a retraining as Markdown."""
    miou = {(one.arm, one.set): one.value for one in found.miou}
    return _lines("retraining.md", found=found, miou=miou, rates=RATES, sides_words=sides_words)


def methods_markdown(found: MethodsCompared) -> str:
    """Return a comparison of methods as Markdown."""
    reference = found.names[found.reference]
    differences = [f"{name} less {reference}" for name in found.names if name != reference]
    heads = [*found.names, *differences]
    return _lines("methods.md", found=found, heads=heads, counts=method_counts(found), rows=method_rows)


def search_markdown(batch: str, found: SearchView) -> str:
    """Return the results of a search for weak cells in a batch as Markdown."""
    return _lines("search.md", batch=batch, found=found)


def factors_markdown(found: FactorView) -> str:
    """Return the results of a factor experiment as Markdown."""
    return _lines("factors.md", found=found, fewest=FEWEST, parts_words=parts_words)


def trainings_markdown(workspace: Workspace, found: Sequence[KeptTraining], removed: Sequence[KeptTraining]) -> str:
    """Return a list of the `found` and the `removed` trainings with their disk use, as Markdown."""
    folder = workspace.trainings
    return _lines("trainings.md", found=found, removed=removed, folder=folder, disk=disk_of(folder))


def _lines(name: str, /, **values: object) -> str:
    return TEXTS.lines(name, **values).removesuffix("\n")
