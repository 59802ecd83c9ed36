"""Further alternatives for the keywords of weak cells: the language model proposes them, and a person accepts some.

A caption with an accepted alternative is added to the run of each source, as if a person had added the caption in
Explore. The next round of a search can then choose this caption (`services.batches.planning`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.batches import Candidate
from core.errors import UserError
from core.types import Alternatives, CounterfactualCaption, CounterfactualCaptions, Trace
from core.words import count_of, find_phrase, meaning
from pipeline.checks.texts import alternative_checks, require
from services.evaluation.search_questions import CellName, Part, cell_name, with_one_edit
from storage.workspace import Workspace

ALTERNATIVES, CAPTIONS = "alternatives", "counterfactuals"
"""Stages whose values hold the alternatives and the captions of a run."""


@dataclass(frozen=True)
class NearCell:
    """A weak cell (a label with an edit), and further alternatives for its keyword that could be searched."""

    key: str
    """Text that identifies the cell, made by `Part.key`."""
    label: str
    alternative: str
    run: str
    """Id of a run with a caption of the cell, in which the language model proposes alternatives."""
    keyword: str
    """The keyword in this run that the alternatives replace."""
    proposals: tuple[str, ...]
    """Alternatives of the keyword in this run that no caption of the batch has."""
    added: tuple[str, ...]
    """Alternatives that a person added and that no round of the search has taken yet."""


def near_cells(workspace: Workspace, batch: int, names: Sequence[CellName]) -> tuple[NearCell, ...]:
    """Return for each of these cells the further alternatives that could be searched."""
    candidates = with_one_edit(workspace.batches.candidates(batch))
    known = {cell_name(one)[1:] for one in candidates}
    first = {cell_name(one): one for one in reversed(candidates)}
    found = list[NearCell]()
    for name in names:
        one = first[name]
        (edit,), values = one.counterfactual.edits, workspace.runs.get(one.run).values
        captions = _captions(values[CAPTIONS].value.value) if CAPTIONS in values else ()
        written = [each for caption in captions if caption.used and len(caption.edits) == 1 for each in caption.edits]
        added = {each.alternative for each in written if (each.edit_type, meaning(each.alternative)) not in known}
        offered = values[ALTERNATIVES].value.value if ALTERNATIVES in values else Alternatives(())
        proposals = dict.fromkeys(
            option.text
            for item in offered.items
            for option in item.options
            if item.keyword == edit.keyword
            and (edit.edit_type, meaning(option.text)) not in known
            and option.text not in added
        )
        key = Part(*name).key
        found.append(
            NearCell(key, name[0], edit.alternative, one.run, edit.keyword, tuple(proposals), tuple(sorted(added)))
        )
    return tuple(found)


def add_alternative(workspace: Workspace, batch: int, cell: str, alternative: str) -> Mapping[str, int]:
    """Add to each source in a cell a copy of its caption that has `alternative` in place of the cell's alternative.
    Return the number of sources by outcome, such as "added". Raises UserError for an unusable alternative, and if no
    caption was added.
    """
    alternative = " ".join(alternative.split())
    of_cell: dict[int, Candidate] = {}
    for one in with_one_edit(workspace.batches.candidates(batch)):
        if Part(*cell_name(one)).key == cell:
            of_cell.setdefault(one.source, one)
    if not of_cell:
        raise UserError("This batch has no such cell: take one that show_search lists.", field="cell")
    runs = {one.run: workspace.runs.get(one.run) for one in of_cell.values()}
    for one in of_cell.values():
        (edit,) = one.counterfactual.edits
        require(alternative_checks(edit.keyword, alternative, runs[one.run].task, edit.forced))
    counts = Counter[str]()
    for one in of_cell.values():
        (edit,), text = one.counterfactual.edits, one.counterfactual.text
        stored = runs[one.run].values[CAPTIONS].value if CAPTIONS in runs[one.run].values else None
        captions = _captions(stored.value) if stored is not None else ()
        spans = find_phrase(text, edit.alternative)
        new = replace(edit, alternative=alternative)
        written = [each.edits[0] for each in captions if len(each.edits) == 1]
        if any((each.keyword, meaning(each.alternative)) == (new.keyword, meaning(alternative)) for each in written):
            counts["have it already"] += 1
        elif stored is None or len(spans) != 1:
            counts["left out, as their caption does not have the words of the edit once"] += 1
        else:
            ((start, end),) = spans
            caption = CounterfactualCaption(text[:start] + alternative + text[end:], (new,))
            value = replace(stored, value=CounterfactualCaptions((*captions, caption)), trace=Trace("person"))
            workspace.runs.append_value(one.run, CAPTIONS, value)
            counts["added"] += 1
    if not counts["added"]:
        why = "; ".join(f"{count_of(number, 'source')} {what}" for what, number in counts.items() if number)
        raise UserError(f"No caption is added: {why}.", field="alternative")
    return dict(counts)


def _captions(value: object) -> tuple[CounterfactualCaption, ...]:
    return value.items if isinstance(value, CounterfactualCaptions) else ()
