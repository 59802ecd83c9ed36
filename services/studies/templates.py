"""Question templates for new studies, read from `templates.toml`. No answer is ever pre-selected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.csv_tables import cells
from core.data_files import DataTable
from core.studies import Question, Rules


@dataclass(frozen=True)
class Template:
    """Questions and texts with which a study can begin. A lead may change all of them before the start."""

    name: str
    title: str
    questions: tuple[Question, ...]
    show_source: bool
    show_captions: bool
    instructions: str
    task: str = "any"
    """Kind of task that the questions are made for, "classification" or "segmentation"; "any" for both."""

    def rules(self) -> Rules:
        """Return the paper's rules, such as a consensus of 4 of 5 votes, with this template's questions and texts."""
        taken = cells(self, "questions show_source show_captions instructions")
        return Rules(template=self.name, consent=_TEXTS["consent"], **taken)


TEMPLATES: Mapping[str, Template] = DataTable(__file__, Template, "templates")
"""Templates by name, in the order offered to a lead."""
_TEXTS = DataTable(__file__, str, "texts")


def task_of(template: str) -> str:
    """Return the kind of task of a template, by its name; "any" for an unknown one."""
    return TEMPLATES[template].task if template in TEMPLATES else "any"
