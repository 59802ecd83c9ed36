"""Read study items from a CSV list of images that were made elsewhere, and report errors in its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.csv_tables import Table, as_written
from core.studies import ITEM_KINDS, LONGEST_WHY, Answers, ItemKind, NewItem, Question, Rules, asked
from core.words import composed

IMAGE_COLUMNS = ("image", "file_name", "file", "filename", "path")
"""Possible names of the column with the file names of the images."""
COLUMNS = "source label classes edit_types caption counterfactual kind why group model model_right origin".split()
"""Names of all columns besides the image column and expected.QUESTION. Semicolons separate classes and edit types."""
_OURS = frozenset({"item", "removed", "test_case", "image_sha", "source_sha"})
"""Columns of an export that are ignored without a note."""
_KINDS: Mapping[str, ItemKind] = {"": "item", **{kind: kind for kind in ITEM_KINDS}}
_TRUTH = {"": None, "true": True, "yes": True, "1": True, "right": True}
_TRUTH |= {"false": False, "no": False, "0": False, "wrong": False}
LONGEST = {"label": 200, "group": 60, "model": 400, "caption": 4000, "counterfactual": 4000, "why": LONGEST_WHY}
MAX_PARTS, LONGEST_PART, LONGEST_ORIGIN = 50, 100, 20_000
DEEPEST_ORIGIN = 50
"""Maximum nesting of lists and objects in the JSON of an item's origin. Each export and import adds a level."""


@dataclass(frozen=True)
class ListedItem:
    """A row of the list: names of the picture files, and the item without its pictures."""

    image: str
    source: str
    item: NewItem
    row: int
    """Number of the item's row. The first row below the header has the number 1."""


def listed_items(table: Table, rules: Rules) -> tuple[tuple[ListedItem, ...], tuple[str, ...]]:
    """Return the items of a list, and notes for the user. Raises ValueError with a sentence about the first error."""
    names = {name.casefold(): name for name in table.columns}
    column = next((names[name] for name in IMAGE_COLUMNS if name in names), None)
    if column is None:
        raise ValueError("The list has no column “image”: add it, with the file of each image.")
    if not table.rows:
        raise ValueError("The list has no images: add a row for each image below the header.")
    questions = {question.id: question for question in rules.questions}
    known = {column, *(names[name] for name in COLUMNS if name in names)}
    expected = {name: name[9:] for name in table.columns if name.startswith("expected.") and name[9:] in questions}
    known |= set(expected)
    unused = [name for name in table.columns if name and name not in known and name.casefold() not in _OURS]
    listed = []
    for number, row in enumerate(table.rows, start=1):
        cells = {name: as_written(row.get(names[name], "")) if name in names else "" for name in COLUMNS}
        try:
            answers = {question: as_written(row[name]) for name, question in expected.items() if row.get(name)}
            listed.append(_listed(row.get(column, ""), cells, answers, questions, number))
        except ValueError as error:
            raise ValueError(f"Row {number} of the list: {str(error).rstrip('.')}.") from error
    note = f"Columns that are not used: {', '.join(name[:60] for name in unused[:8])}."
    return tuple(listed), (note,) if unused else ()


def _listed(
    image: str, cells: Mapping[str, str], expected: Answers, questions: Mapping[str, Question], number: int
) -> ListedItem:
    if not image:
        raise ValueError("it names no image")
    for name, longest in LONGEST.items():
        if len(cells[name]) > longest:
            raise ValueError(f"its {name} has {len(cells[name])} characters; at most {longest} fit")
    kind = _KINDS.get(cells["kind"].casefold())
    if kind is None:
        raise ValueError(f"“{cells['kind'][:60]}” is no kind of item: use item, control, quiz or training")
    typed = cells["model_right"].casefold()
    if typed not in _TRUTH:
        raise ValueError(f"model_right is “{typed[:60]}”; it has to be true, false or empty")
    texts: dict[str, Any] = {name: cells[name] for name in LONGEST}
    item = NewItem(
        image_sha="",
        kind=kind,
        expected=_expected(expected, questions),
        classes=_parts(cells["classes"], "classes"),
        edit_types=_parts(cells["edit_types"], "edit types"),
        model_right=_TRUTH[typed],
        origin={**_origin(cells["origin"]), "file": image},
        **texts,
    )
    answered = asked(tuple(questions.values()), item, item.expected)
    if kind != "item" and not any(question.id in item.expected for question in answered):
        first = next(iter(questions), "QUESTION")
        raise ValueError(f"a {kind} item needs a right answer to a question that it gets, in a column expected.{first}")
    return ListedItem(image, cells["source"], item, number)


def _expected(answers: Answers, questions: Mapping[str, Question]) -> Answers:
    matched = {}
    for name, text in answers.items():
        options = questions[name].answers()
        answer = next((option for option in options if composed(option).casefold() == text.casefold()), None)
        if answer is None:
            raise ValueError(f"“{text[:60]}” is no answer to the question {name}")
        matched[name] = answer
    return matched


def _parts(text: str, what: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    if len(parts) > MAX_PARTS or any(len(part) > LONGEST_PART for part in parts):
        raise ValueError(f"its {what} are more than {MAX_PARTS}, or one has more than {LONGEST_PART} characters")
    return parts


def _origin(text: str) -> dict[str, Any]:
    """Return the origin that an export wrote as JSON. Any other text is kept as it is."""
    if not text:
        return {}
    if len(text) > LONGEST_ORIGIN:
        raise ValueError(f"its origin has more than {LONGEST_ORIGIN:,} characters")
    try:
        value = json.loads(text)
        # The parser accepts NaN, infinity and lone surrogates, but no export does.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        value = None
    return {"earlier": value if isinstance(value, dict) and not _too_deep(value) else text}


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST_ORIGIN):
        inside = [list(value_part.values()) if isinstance(value_part, dict) else value_part for value_part in level]
        level = [part for parts in inside for part in parts if isinstance(part, dict | list)]
    return bool(level)


def by_folder(files: Sequence[str]) -> dict[str, str]:
    """Return the label of each file: the name of its folder, as in ImageFolder. "" if all are in one folder."""
    folders = {file: file.rpartition("/")[0].rpartition("/")[2] for file in files}
    several = len({file.rpartition("/")[0] for file in files}) > 1
    return {file: folder[: LONGEST["label"]] if several else "" for file, folder in folders.items()}
