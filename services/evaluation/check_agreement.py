"""Measures how well each check of images agrees with the votes of studies, to show which checks to trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from core.check_words import WORDS
from core.csv_tables import facts
from core.types import TaskKind
from evaluation.validity_score import CheckAgreement, check_agreement
from services.commands import does
from services.evaluation.scoring import OUTCOMES
from storage.workspace import Workspace

FIGURE = "value low high n sources why"
"""Attributes of a `Figure` in the reply to a script, separated by spaces."""
Agreements = Mapping[TaskKind, CheckAgreement]
"""Agreement of a check with votes by task; tasks without judged images are left out."""


class CheckAgreements:
    """Compares the checks of images with votes of studies. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @does("check-agreement", looks=True)
    def show(self) -> dict[str, Any]:
        """Show how well each check of images agrees with the votes of studies, by task. Precision is the share of
        invalid images among images that fail the check. Recall is the share of invalid images that fail the check.
        Intervals are over sources.
        """
        checks = list(self._workspace.catalogue.checks())
        rows = [
            {
                "check": name,
                "title": WORDS[name].title if name in WORDS else name,
                "task": task,
                **facts(one, "judged cannot_tell"),
                **{name: facts(getattr(one, name), FIGURE) for name in ("precision", "recall")},
            }
            for name, agreements in self.of(checks).items()
            for task, one in agreements.items()
        ]
        return {"checks": rows}

    def of(self, checks: Sequence[str]) -> Mapping[str, Agreements]:
        """Return each check's agreement with votes, by name. If several studies judged an image, the last counts."""
        columns = self._workspace.case_columns
        judged = {
            entry: (task, source or str(entry), OUTCOMES[outcome])  # an image without a source is its own source
            for entry, source, task, outcome in columns.outcomes_of_entries()
            if outcome in OUTCOMES
        }
        found: dict[str, dict[TaskKind, CheckAgreement]] = {name: {} for name in checks}
        for task in get_args(TaskKind):
            of_task = {entry: (source, valid) for entry, (kind, source, valid) in judged.items() if kind == task}
            if not of_task or not checks:
                continue
            sources, valid = zip(*of_task.values(), strict=True)
            votes = np.array(valid), np.unique(sources, return_inverse=True)[1]
            outcomes = columns.check_outcomes(np.array(list(of_task)))
            for name in checks:
                if name in outcomes and (outcomes[name] > -2).any():
                    untold = int(np.count_nonzero(outcomes[name] == -1))
                    failed, passed = (outcomes[name] == number for number in (0, 1))
                    found[name][task] = check_agreement(failed, passed, *votes, untold)
        return found
