"""The question templates that a study can begin with, from the data beside this file. Nothing is ever pre-selected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.csv_tables import cells
from core.data_files import DataTable
from core.studies import Question, Rules


@dataclass(frozen=True)
class Template:
    """Questions with what belongs to them; a lead may change every part of it before the start."""

    name: str
    title: str
    questions: tuple[Question, ...]
    show_source: bool
    show_captions: bool
    instructions: str
    task: str = "any"
    """The kind of task whose images it is about, "classification" or "segmentation"; "any" for no one kind."""

    @property
    def consent(self) -> str:
        """What a worker agrees to, unless the lead writes something else: the same for all templates."""
        return _TEXTS["consent"]

    def rules(self) -> Rules:
        """Draft rules that begin with this template; all else is the paper's (5 votes, 4 equal, 95 %, 50 finished)."""
        return Rules(template=self.name, **cells(self, "questions show_source show_captions instructions consent"))


TEMPLATES: Mapping[str, Template] = DataTable(__file__, Template, "templates")
"""By name, in the order in which a lead is offered them."""
_TEXTS = DataTable(__file__, str, "texts")


def task_of(template: str) -> str:
    """The kind of task whose images a template is about, by its name; "any" for none, or one not known here."""
    return TEMPLATES[template].task if template in TEMPLATES else "any"
