"""Export a study's votes as a result file of Mechanical Turk, for existing scripts, and import such files.

The columns and their order are the same as in the results that Turk offers for download. The column `Answer.NAME` holds
the answers to the question with the short name NAME. Columns that Turk does not have begin with `Answer._`. An imported
file is untrusted.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from core.csv_tables import Row, Table, as_written, cells
from core.stored_studies import ImportedVote
from core.studies import WORK, ApprovalVerdict, Item, Question, Rules, Side, StudyData, Vote, Worker
from core.words import composed, count_of
from study.questions import check_answers
from study.tables import about_item, counted_assignments

HEAD = (
    "HITId HITTypeId Title Description Keywords Reward CreationTime MaxAssignments RequesterAnnotation "
    "AssignmentDurationInSeconds AutoApprovalDelayInSeconds Expiration NumberOfSimilarHITs LifetimeInSeconds "
    "AssignmentId WorkerId AssignmentStatus AcceptTime SubmitTime AutoApprovalTime ApprovalTime RejectionTime "
    "RequesterFeedback WorkTimeInSeconds LifetimeApprovalRate Last30DaysApprovalRate Last7DaysApprovalRate"
).split()
INPUTS = "image source kind label classes edit_types caption counterfactual group model model_right".split()
"""Columns about an item. In the file, "Input." precedes each name."""
OURS = ("_comment", "_seconds", "_side", "_changes", "_counted", "_excluded")
"""Columns that the studio adds. In the file, "Answer." precedes each name, and no question can have such a name. They
hold the exact seconds (Turk has whole ones), the side (left or right) of the generated image, the number of changes,
whether the vote counts, who excluded its worker ("rule" or "person"), and why."""
TAIL = ("Approve", "Reject")
_ZONES = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6}
_TIME = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2} \d{1,2} \d\d:\d\d:\d\d) ([A-Z]{3}) (\d{4})")
_YES, _NO = frozenset({"yes", "y", "true", "1"}), frozenset({"no", "n", "false", "0"})
_WORKER = re.compile(r"[\w.:@-]{1,64}")
_JSON = "taskAnswers"
"""Name of the column in which newer forms of Turk put all answers as JSON."""
_CHOSEN = frozenset(("label", "labels"))
"""JSON key of the chosen answer in Turk's classification forms, as in {"valid": {"label": "Yes"}}."""
_TICKED = "on"
"""JSON key of a check box's value in Turk's forms, as in {"valid": {"on": true}}."""
MAX_SECONDS = 24 * 3600.0
MAX_COMMENT = 2000
SHOWN_PROBLEMS = 5
_MOST_NAMED = 1000
"""Maximum number of answer names that are recorded. Recorded names that belong to no question are reported."""
_LOOKED_AT = 1000
"""Number of rows that are read to find the column with the names of the images."""
_OWN = frozenset(f"Answer.{name}" for name in OURS)


def turk_columns(rules: Rules) -> list[str]:
    """Return the header of the file for a study with these rules."""
    answers = [f"Answer.{question.id}" for question in rules.questions]
    return [*HEAD, *(f"Input.{n}" for n in INPUTS), *answers, *(f"Answer.{n}" for n in OURS), *TAIL]


def turk_rows(data: StudyData) -> list[Row]:
    """Return one row for each vote on an item, control item or quiz item. The column `Input.kind` says which.

    Training is left out, as it is neither approved nor rejected. Columns that a study does not know stay empty: reward,
    automatic approval, expiry, rates of the last days.
    """
    study, rules = data.study, data.study.rules
    items, workers = {item.id: item for item in data.items}, {worker.id: worker for worker in data.workers}
    inside, excluded = counted_assignments(data), {ex.worker: f"{ex.by}: {ex.reason}" for ex in data.exclusions}
    rows: list[Row] = []
    for vote in (vote for vote in data.votes if vote.kind in WORK):
        item = items[vote.item]
        row: Row = {
            "HITId": item.public,
            "HITTypeId": study.id,
            "Title": study.name,
            "Description": " ".join(rules.instructions.split()),
            "Keywords": rules.template,
            "CreationTime": turk_time(study.created),
            "MaxAssignments": rules.votes,
            "RequesterAnnotation": f"study:{study.id};rules:{rules.version};",
            "AssignmentDurationInSeconds": round(60 * rules.lease_minutes),
            "AssignmentId": f"{study.id}-{vote.assignment}",
            "WorkerId": vote.worker,
            "AssignmentStatus": "Submitted" if vote.verdict == "pending" else vote.verdict.capitalize(),
            "AcceptTime": turk_time(vote.accepted),
            "SubmitTime": turk_time(vote.submitted),
            "ApprovalTime": _decided(vote, "approved"),
            "RejectionTime": _decided(vote, "rejected"),
            "RequesterFeedback": vote.reason,
            "WorkTimeInSeconds": math.ceil(vote.seconds),
            "LifetimeApprovalRate": _rate(workers.get(vote.worker)),
            "Answer._comment": vote.comment,
            "Answer._seconds": vote.seconds,
            "Answer._side": vote.side,
            "Answer._changes": vote.changes,
            "Answer._counted": vote.assignment in inside,
            "Answer._excluded": excluded.get(vote.worker, ""),
        }
        inputs: Row = {
            "image": f"{item.public}.png",
            "source": f"{item.public}.source.png" if item.source_sha else "",
            "kind": vote.kind,
            **about_item(item),
            **cells(item, "caption counterfactual"),
        }
        row |= {f"Input.{name}": value for name, value in inputs.items()}
        row |= {f"Answer.{question.id}": vote.answers.get(question.id, "") for question in rules.questions}
        rows.append(row)
    return rows


def _decided(vote: Vote, verdict: ApprovalVerdict) -> str:
    return turk_time(vote.decided) if vote.decided and vote.verdict == verdict else ""


def _rate(worker: Worker | None) -> str:
    """Return a rate as Turk writes it, such as "98% (118/120)"; "0% (0/0)" before the first decision."""
    if worker is None or worker.approval is None:
        return "0% (0/0)"
    return f"{round(100 * worker.approval)}% ({worker.approved}/{worker.finished})"


def turk_time(time: datetime) -> str:
    """Return a time in whole seconds as Turk writes it, such as "Tue Nov 18 13:06:51 UTC 2014"."""
    return f"{time.astimezone(UTC):%a %b %d %H:%M:%S UTC %Y}"


@dataclass(frozen=True)
class TurkVotes:
    """The votes and notes read from an imported file."""

    votes: tuple[ImportedVote, ...]
    """Votes whose answers fit the rules and the items."""
    excluded: Mapping[str, tuple[Literal["rule", "person"], str]]
    """Workers whom the exporting study excluded, with "rule" or "person" and the reason. Empty for a file by Turk."""
    notes: tuple[str, ...]
    """Notes for the user, such as columns that are not used and rows that are left out."""
    problems: tuple[str, ...]
    """Messages on the first `SHOWN_PROBLEMS` invalid rows. If further rows are invalid, a last message counts them."""


def read_time(text: str) -> datetime:
    """Parse a time as Turk writes it, or in ISO 8601 (UTC if it has no zone). Raises ValueError for other text."""
    if (found := _TIME.fullmatch(text)) and found[2] in _ZONES:
        zone = timezone(timedelta(hours=_ZONES[found[2]]))
        time = datetime.strptime(f"{found[1]} {found[3]}", "%b %d %H:%M:%S %Y").replace(tzinfo=zone)
        return time.astimezone(UTC)
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def turk_votes(table: Table, rules: Rules, items: Sequence[Item]) -> TurkVotes:
    """Return the votes of a result file on the items of a study.

    A row names its item in column `HITId`, otherwise in the `Input.` column that names most items. A row may give the
    item's public name, or the name, path or web address of its original file. The file's ending may be absent. Answers
    are in columns `Answer.QUESTION`, `Answer.QUESTION.label` (Turk's classification form) and `Answer.QUESTION.OPTION`
    (true or false), or in `Answer.taskAnswers` (JSON). QUESTION may have upper or lower case, and `_` or spaces in
    place of `-`. Rejected rows are skipped if Turk wrote the file. Raises ValueError for a file of another form.
    """
    missing = [name for name in ("WorkerId", "SubmitTime") if name not in table.columns]
    if missing:
        raise ValueError(f"The file has no column {' and no column '.join(missing)}: it is no result file of Turk.")
    if not any(name.startswith("Answer.") for name in table.columns):
        raise ValueError("The file has no column that begins with “Answer.”: there are no votes in it.")
    known = _named(items)
    column = _image_column(table, known)
    ours = "Answer._excluded" in table.columns
    questions = {_plain_name(question.id): question for question in rules.questions}
    votes: list[ImportedVote] = []
    seen: set[tuple[int, str]] = set()
    excluded: dict[str, tuple[Literal["rule", "person"], str]] = {}
    # Names of answers, each with True if a question belongs to it.
    named = {f"“{name[:60]}”": False for name in table.columns if name.startswith("Answer.") and name not in _OWN}
    named.pop(f"“Answer.{_JSON}”", None)
    left: Counter[str] = Counter()
    problems: list[str] = []
    for number, row in enumerate(table.rows, start=1):
        verdict, reason = _verdict(row)
        if verdict == "rejected" and not ours:
            left["that Mechanical Turk calls rejected"] += 1
            continue
        try:
            item = _find(row.get("HITId", ""), known) or _find(row.get(column, ""), known)
            if item is None:
                raise ValueError(f"no item of this study is called “{row.get(column, '')[:80]}”")
            vote = _vote(row, item, rules, _answers(row, questions, named), verdict, reason)
        except ValueError as error:
            problems.append(f"Row {number}: {str(error).rstrip('.')}.")
            continue
        if (item.id, vote.worker) in seen:
            left["by a worker who had voted on the same image before"] += 1
            continue
        seen.add((item.id, vote.worker))
        votes.append(vote)
        by, _, why = as_written(row.get("Answer._excluded", "")).partition(": ")
        if why:
            excluded[vote.worker] = ("rule" if by == "rule" else "person", why[:500])
    unused = [name for name, belongs in named.items() if not belongs]
    notes = [f"{count_of(n, 'row')} {what} {'was' if n == 1 else 'were'} left out." for what, n in left.items()]
    if unused:
        asked_for = [f"“{question.id}”" for question in rules.questions]
        phrase = f"question is {asked_for[0]}" if len(asked_for) == 1 else f"questions are {', '.join(asked_for)}"
        notes.append(f"No question of this study belongs to {', '.join(unused[:8])}: its {phrase}.")
    more = len(problems) - SHOWN_PROBLEMS
    shown = [*problems[:SHOWN_PROBLEMS], f"{count_of(more, 'more row')} like these."] if more > 0 else problems
    return TurkVotes(tuple(votes), excluded, tuple(notes), tuple(shown))


def _named(items: Sequence[Item]) -> dict[str, Item]:
    """Return items by each name that a file may use for them. A name that two items share is left out."""
    named = [(name, item) for item in items for name in {*_keys(item.public), *_keys(str(item.origin.get("file", "")))}]
    times = Counter(name for name, _ in named)
    return {name: item for name, item in named if times[name] == 1}


def _keys(name: str) -> tuple[str, ...]:
    """Return the names for a file or address, normalised, with and without folders, and with and without ending."""
    plain = composed(unquote(urlsplit(name).path if "://" in name else name))
    path = PurePosixPath(plain.replace("\\", "/").strip("/"))
    if not path.name:
        return ()
    names = (str(path), str(path.with_suffix("")), path.name, path.stem)
    return tuple(dict.fromkeys(name.casefold() for name in names))


def _find(name: str, known: Mapping[str, Item]) -> Item | None:
    return next((known[key] for key in _keys(name) if key in known), None)


def _image_column(table: Table, known: Mapping[str, Item]) -> str:
    matches = {
        name: sum(_find(row.get(name, ""), known) is not None for row in table.rows[:_LOOKED_AT])
        for name in table.columns
        if name == "HITId" or name.startswith("Input.")
    }
    best = max(matches, key=lambda name: matches[name], default="")
    if not best or not matches[best]:
        raise ValueError(
            "No row of the file names an image of this study: its column HITId, or one that begins with “Input.”, has "
            "to hold the items' names or the names of the files that they came from."
        )
    return best


def _verdict(row: Mapping[str, str]) -> tuple[ApprovalVerdict, str]:
    status, feedback = row.get("AssignmentStatus", "").casefold(), as_written(row.get("RequesterFeedback", ""))
    if status == "rejected" or row.get("Reject", ""):
        return "rejected", (feedback or row.get("Reject", ""))[:500]
    if status == "approved" or row.get("Approve", ""):
        return "approved", feedback[:500]
    return "pending", feedback[:500]


def _answers(row: Mapping[str, str], questions: Mapping[str, Question], named: dict[str, bool]) -> dict[str, str]:
    """Return the answers in a row by question. Record in `named` which names of answers belong to a question."""
    answers: dict[str, str] = {}
    for column, cell in row.items():
        if not column.startswith("Answer.") or column in _OWN:
            continue
        name = column.removeprefix("Answer.")
        named_cells = _from_json(cell) if name == _JSON else {name: cell}
        for place, text in named_cells.items():
            question, option = _asked_by(place, questions)
            called = f"“{column[:60]}”" if name != _JSON else f"“{place[:60]}” in {column}"
            if called in named or len(named) < _MOST_NAMED:
                named[called] = question is not None or named.get(called, False)
            if question is None:
                continue
            if option and text.casefold() in _YES:
                answer = _answer(question, option)
            elif not option and text:
                answer = _answer(question, as_written(text))
            else:
                continue
            if answers.setdefault(question.id, answer) != answer:
                raise ValueError(f"it answers “{question.id}” with both “{answers[question.id]}” and “{answer}”")
    return answers


def _asked_by(name: str, questions: Mapping[str, Question]) -> tuple[Question | None, str]:
    """Return the question and the option that a column's name contains, as in valid, valid.label or valid.yes."""
    if question := questions.get(_plain_name(name)):
        return question, ""
    before, _, option = name.rpartition(".")
    question = questions.get(_plain_name(before))
    if question is None or option in question.answers():
        return question, option if question else ""
    # A column QUESTION.label or QUESTION.on holds the answer itself.
    return question, "" if option in _CHOSEN or (option == _TICKED and question.kind == "yes-no") else option


def _plain_name(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip()).casefold()


def _from_json(cell: str) -> dict[str, str]:
    """Parse the JSON of a cell, and return the given answers by name.

    The JSON is {"valid": {"yes": true}}, {"valid": {"label": "yes"}} or {"valid": "yes"}, alone or in a list.
    """
    try:
        value = json.loads(cell) if cell else []
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Answer.{_JSON} is no JSON") from error
    texts: dict[str, str] = {}
    for part in value if isinstance(value, list) else [value]:
        for name, content in part.items() if isinstance(part, dict) else ():
            if isinstance(content, dict):
                texts |= {f"{name}.{option}": _text(chosen) for option, chosen in content.items()}
            else:
                texts[name] = _text(content)
    return texts


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _only(text: str) -> str:
    """Return the single label of a list, such as ["Yes"]. Turk's form for several labels writes such lists."""
    try:
        value = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return text
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) else text


def _answer(question: Question, text: str) -> str:
    """Return the option that a text means: "Yes" becomes yes, "4.0" becomes 4. Unknown text is refused later."""
    if question.kind == "text":
        return text
    text = composed(_only(text))
    if question.kind == "yes-no" and text.casefold() in _YES | _NO:
        return "yes" if text.casefold() in _YES else "no"
    if question.kind == "scale":
        return text.removesuffix(".0")
    return next((option for option in question.answers() if composed(option).casefold() == text.casefold()), text)


def _vote(
    row: Mapping[str, str], item: Item, rules: Rules, answers: Mapping[str, str], verdict: ApprovalVerdict, reason: str
) -> ImportedVote:
    worker = row.get("WorkerId", "")
    if not _WORKER.fullmatch(worker):
        raise ValueError(f"“{worker[:80]}” is no worker's name: letters, digits, and . : @ - _ only, at most 64")
    try:
        submitted = read_time(row.get("SubmitTime", ""))
        accepted = read_time(row["AcceptTime"]) if row.get("AcceptTime") else None
        text = row.get("Answer._seconds") or row.get("WorkTimeInSeconds") or ""
        seconds = float(text) if text else (submitted - accepted).total_seconds() if accepted else 0.0
    except (ValueError, OverflowError) as error:
        raise ValueError("SubmitTime, AcceptTime or WorkTimeInSeconds is no time") from error
    if not 0 <= seconds < math.inf:
        raise ValueError("WorkTimeInSeconds has to be 0 or more")
    seconds = min(seconds, MAX_SECONDS)
    try:
        accepted = min(accepted or submitted - timedelta(seconds=seconds), submitted)
    except OverflowError as error:
        raise ValueError("SubmitTime is no time that a vote can have") from error
    side, changes = row.get("Answer._side") or "left", row.get("Answer._changes") or "0"
    if side not in ("left", "right"):
        raise ValueError(f"Answer._side is “{side[:40]}”; it has to be left or right")
    if not re.fullmatch("[0-9]{1,6}", changes):
        raise ValueError(f"Answer._changes is “{changes[:40]}”; it has to be a number")
    comment = as_written(row.get("Answer._comment", ""))[:MAX_COMMENT]
    checked = check_answers(rules, item, answers)
    placed: Side = "right" if side == "right" else "left"
    vote = ImportedVote(item.id, worker, checked, comment, accepted, submitted, seconds, verdict, reason)
    return vote._replace(side=placed, changes=int(changes))
