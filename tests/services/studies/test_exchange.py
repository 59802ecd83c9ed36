"""Exports and imports of a study: votes as crowd-kit and scripts for Mechanical Turk read them, items, and the zip."""

from __future__ import annotations

import csv
import io
import json
import random
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

import pandas as pd
import pytest

from core.csv_tables import as_written, csv_text, guarded, plain, read_csv
from core.studies import Adjudication, Item, Question, StudyData
from services.studies.templates import TEMPLATES
from study.aggregation import dawid_skene
from study.results import analyse
from study.tables import ANSWER_COLUMNS, RESULT_COLUMNS, VOTE_COLUMNS, answer_rows, result_rows, vote_rows
from study.turk import HEAD, read_time, turk_columns, turk_rows, turk_votes
from tests.support.study_data import BIRD, START, data, excluded, item, simple, vote, votes_of

YES_NO_MIX = {1: ["yes"] * 5, 2: ["yes", "yes", "yes", "no", "no"], 3: ["no"] * 4 + ["yes"], 4: ["yes"] * 4 + ["no"]}


def frame(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), keep_default_na=False)


def turk_file(held: StudyData) -> bytes:
    return csv_text(turk_rows(held), turk_columns(held.study.rules)).encode()


# Votes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")
def test_crowd_kit_reads_the_votes_and_agrees() -> None:
    from crowdkit.aggregation import DawidSkene, MajorityVote

    held = simple(YES_NO_MIX)
    votes = frame(csv_text(vote_rows(held), VOTE_COLUMNS))
    assert list(votes.columns) == ["task", "worker", "label"]
    assert len(votes) == 20
    majority = MajorityVote().fit_predict(votes)
    assert dict(majority) == {"p1": "yes", "p2": "yes", "p3": "no", "p4": "yes"}
    ours = dawid_skene([(str(row.task), str(row.worker), str(row.label)) for row in votes.itertuples()])
    assert dict(DawidSkene(n_iter=200).fit_predict(votes)) == dict(ours.labels)
    rows = {row["item"]: row["dawid_skene"] for row in result_rows(held)}
    assert rows == dict(ours.labels)


def test_only_votes_that_count_are_among_the_votes_and_all_are_among_the_answers() -> None:
    items = [item(1, label="bird"), item(2, label="bird", kind="control", expected={"valid": "yes"})]
    votes = votes_of({1: ["yes"] * 5})
    votes += [vote(10, 2, "worker-0", {"valid": "no"}, kind="control"), vote(11, 1, "late", {"valid": "no"})]
    held = data(items, votes, exclusions=[excluded("worker-1", "slept")])
    assert [(row["task"], row["worker"], row["label"]) for row in vote_rows(held)] == [
        ("p1", "worker-0", "yes"),
        ("p1", "worker-2", "yes"),
        ("p1", "worker-3", "yes"),
        ("p1", "worker-4", "yes"),
        ("p1", "late", "no"),
    ]
    answers = answer_rows(held)
    assert len(answers) == 7
    assert set(answers[0]) == set(ANSWER_COLUMNS)
    why = {(row["worker"], row["kind"]): row["left_out_because"] for row in answers if not row["counted"]}
    assert why == {("worker-1", "item"): "worker excluded: slept", ("worker-0", "control"): "control item"}
    (control,) = [row for row in answers if row["kind"] == "control"]
    assert (control["expected"], control["right"]) == ("yes", False)


def test_several_questions_are_several_tasks() -> None:
    rules = replace(TEMPLATES["preservation"].rules(), version=1)
    shown = item(1, classes=("road", "vehicle"))
    held = data([shown], [vote(1, 1, "heron-41", {"road": "yes", "vehicles": "no"})], rules)
    assert [row["task"] for row in vote_rows(held)] == ["p1:road", "p1:vehicles"]


def test_the_outcomes_are_those_of_the_analysis() -> None:
    decision = Adjudication(2, "valid", "no", "a fish", START)
    held = simple(YES_NO_MIX, exclusions=[excluded("worker-4")], adjudications=[decision])
    report, rows = analyse(held), result_rows(held)
    assert set(rows[0]) == set(RESULT_COLUMNS)
    assert sum(row["valid"] is True for row in rows) == report.images.rate.count
    assert sum(row["status"] == "consensus" for row in rows) == report.images.rate.n
    before = [row["answer_before"] for row in rows if row["status_before"] == "consensus"]
    assert (before.count("yes"), len(before)) == (report.images_before.rate.count, report.images_before.rate.n)
    assert [row["adjudicated"] for row in rows if row["adjudicated"]] == ["no"]
    assert json.loads(str(rows[1]["counts_before"])) == {"yes": 3, "no": 2}


def test_a_study_without_a_vote_gives_tables_with_a_header_only() -> None:
    held = data([item(1)], [])
    assert csv_text(vote_rows(held), VOTE_COLUMNS) == "task,worker,label\r\n"
    (row,) = result_rows(held)
    assert (row["status"], row["answer"], row["dawid_skene"]) == ("too few votes", "", "")
    json.dumps(plain(analyse(held)), allow_nan=False)


def test_no_cell_is_run_by_a_spreadsheet_and_all_come_back() -> None:
    for text in ("=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "'quoted", "-x", "\tx", "plain", "-1.5", "", "''="):
        written = guarded(text)
        assert not written.startswith(("=", "+", "@", "\t")) and (not written.startswith("-") or text == "-1.5")
        assert as_written(written) == text


def test_no_part_of_a_cell_is_run_where_a_spreadsheet_parts_it_elsewhere() -> None:
    for text in ("hm;=1+1", 'a; "=1', "two\n=lines", "x\t@SUM(A1)", "＝1+1", "－1", "a;＠b"):
        written = guarded(text)
        assert written.count("'") == 1 and as_written(written) == text
        line = csv_text([{"a": "1", "b": text}], ["a", "b"])
        cells = [cell.strip(' "') for row in csv.reader(io.StringIO(line, newline=""), delimiter=";") for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "@", "＝", "＠"))]
    for text in ("a - b", "it's = so", "x;y", "road; car", "2 > -1"):
        assert guarded(text) == text
    drawn = random.Random(5)
    for _ in range(3000):
        text = "".join(drawn.choice("a;'=-\t\n \"＝") for _ in range(drawn.randrange(9)))
        assert as_written(guarded(text)) == text


# Mechanical Turk's file


def test_turks_columns_are_there_in_their_order() -> None:
    text = turk_file(simple({1: ["yes", "no"]})).decode()
    header = next(csv.reader(io.StringIO(text)))
    assert header[: len(HEAD)] == HEAD
    assert (len(HEAD), HEAD[0], HEAD[-1]) == (27, "HITId", "Last7DaysApprovalRate")
    assert header[-2:] == ["Approve", "Reject"]
    assert "Answer.valid" in header and "Input.image" in header
    first = frame(text).iloc[0]
    assert first["AcceptTime"] == "Mon Nov 02 09:00:10 UTC 2026"
    assert first["LifetimeApprovalRate"] == "100% (60/60)"
    assert (first["AssignmentStatus"], first["WorkTimeInSeconds"]) == ("Submitted", 4)


def test_turks_times_of_decisions() -> None:
    then = datetime(2026, 11, 3, 8, 30, tzinfo=UTC)
    votes = [
        vote(1, 1, "heron-41", {"valid": "yes"}, verdict="approved", decided=then),
        vote(2, 1, "crane-2", {"valid": "no"}, verdict="rejected", reason="asleep", decided=then),
        vote(3, 1, "owl-7", {"valid": "no"}),
    ]
    read = frame(turk_file(data([item(1)], votes)).decode())
    assert list(read["ApprovalTime"]) == ["Tue Nov 03 08:30:00 UTC 2026", "", ""]
    assert list(read["RejectionTime"]) == ["", "Tue Nov 03 08:30:00 UTC 2026", ""]


def test_a_file_of_ours_comes_back_as_the_same_votes() -> None:
    items = [item(1, label="bird"), item(2, label="owl", kind="control", expected={"valid": "yes"})]
    votes = [
        vote(1, 1, "heron-41", {"valid": "yes"}, comment="=HYPERLINK(1)", seconds=3.25, verdict="approved"),
        vote(2, 2, "heron-41", {"valid": "no"}, kind="control", side="right", changes=3),
        vote(3, 1, "crane-2", {"valid": "no"}, comment='two\nlines, "quoted"', verdict="rejected", reason="asleep"),
    ]
    held = data(items, votes, exclusions=[excluded("crane-2", "too fast")])
    found = turk_votes(read_csv(turk_file(held)), BIRD, items)
    assert (found.problems, found.notes) == ((), ())
    assert found.excluded == {"crane-2": ("rule", "too fast")}
    for was, now in zip(votes, found.votes, strict=True):
        for name in (
            *("item", "worker", "answers", "comment", "accepted", "submitted", "seconds", "verdict", "reason"),
            *("side", "changes"),
        ):
            assert getattr(now, name) == getattr(was, name), name


def turk_row(**cells: str) -> dict[str, str]:
    base = {
        "HITId": "3ABC",
        "WorkerId": "A1B2C3",
        "AssignmentStatus": "Submitted",
        "AcceptTime": "Tue Nov 18 13:06:41 PST 2014",
        "SubmitTime": "Tue Nov 18 13:06:51 PST 2014",
        "WorkTimeInSeconds": "10",
        "Input.image_url": "https://example.org/batch%201/bird_7.jpg?x=1",
        "Answer.Valid": "Yes",
    }
    return {**base, **cells}


def written(*rows: Mapping[str, str]) -> bytes:
    return csv_text(rows, list(dict.fromkeys(name for row in rows for name in row))).encode()


BIRD_7 = item(7, label="bird", origin={"file": "bird_7.png"})


@pytest.mark.parametrize(
    "cells, answer",
    [
        ({}, "yes"),
        ({"Answer.Valid": "", "Answer.valid.yes": "false", "Answer.valid.no": "true"}, "no"),
        ({"Answer.Valid": "", "Answer.taskAnswers": '[{"valid": {"yes": true, "no": false}}]'}, "yes"),
        ({"Answer.Valid": "", "Answer.taskAnswers": '[{"valid": "No"}]'}, "no"),
        ({"Answer.Valid": "", "Answer.valid.label": "No"}, "no"),
        ({"Answer.Valid": "", "Answer.valid.labels": '["No"]'}, "no"),
        ({"Answer.Valid": "", "Answer.valid.on": "false"}, "no"),
        ({"Answer.Valid": "", "Answer.taskAnswers": '[{"valid": {"label": "No"}}]'}, "no"),
        ({"Answer.Valid": "", "Answer.taskAnswers": '[{"valid": {"labels": ["Yes"]}}]'}, "yes"),
        ({"Answer.Valid": "", "Answer.taskAnswers": '[{"valid": {"on": true}}]'}, "yes"),
        ({"Answer.Valid": "", "Answer.taskAnswers": '{"valid": ["Yes"], "mood": null}'}, "yes"),
    ],
)
def test_a_file_by_mechanical_turk_is_read(cells: Mapping[str, str], answer: str) -> None:
    found = turk_votes(read_csv(written(turk_row(**cells))), BIRD, [BIRD_7])
    (read,) = found.votes
    assert (found.problems, read.item, read.worker, read.answers) == ((), 7, "A1B2C3", {"valid": answer})
    assert read.submitted == datetime(2014, 11, 18, 21, 6, 51, tzinfo=UTC)
    assert read.seconds == 10


def test_what_turk_rejected_was_replaced_and_is_left_out() -> None:
    rows = [turk_row(), turk_row(WorkerId="B", AssignmentStatus="Rejected"), turk_row(**{"Answer.mood": "fine"})]
    found = turk_votes(read_csv(written(*rows)), BIRD, [BIRD_7])
    assert len(found.votes) == 1
    assert found.notes == (
        "1 row that Mechanical Turk calls rejected was left out.",
        "1 row by a worker who had voted on the same image before was left out.",
        "No question of this study belongs to “Answer.mood”: its question is “valid”.",
    )


def test_an_option_called_label_is_an_option_still() -> None:
    kind = Question("kind", "What is it?", "choice", options=("label", "picture"))
    rules = replace(BIRD, questions=(kind,))
    row = turk_row(**{"Answer.Valid": "", "Answer.kind.label": "true", "Answer.kind.picture": "false"})
    (read,) = turk_votes(read_csv(written(row)), rules, [BIRD_7]).votes
    assert read.answers == {"kind": "label"}


def test_an_answer_that_belongs_to_no_question_is_named_wherever_it_stands() -> None:
    given = '[{"valid": {"label": "Yes"}, "is_clear": "no", "mood": {"fine": true}}]'
    found = turk_votes(read_csv(written(turk_row(**{"Answer.Valid": "", "Answer.taskAnswers": given}))), BIRD, [BIRD_7])
    assert len(found.votes) == 1
    (note,) = found.notes
    assert "“is_clear” in Answer.taskAnswers, “mood.fine” in Answer.taskAnswers" in note and "“valid”" in note


def test_names_of_images_are_the_same_in_both_forms_of_unicode() -> None:
    whole, parted = (unicodedata.normalize(form, "café.png") for form in ("NFC", "NFD"))
    for file, named in ((whole, parted), (parted, whole), (parted, f"https://x.test/{quote(whole)}")):
        row = turk_row(**{"Input.image_url": named})
        found = turk_votes(read_csv(written(row)), BIRD, [item(7, label="bird", origin={"file": file})])
        assert [read.item for read in found.votes] == [7], (file, named)


@pytest.mark.parametrize(
    "cells, said",
    [
        ({"Answer.valid.label": "perhaps", "Answer.Valid": ""}, "Please choose one of the answers offered"),
        ({"Answer.valid.labels": '["Yes", "No"]', "Answer.Valid": ""}, "Please choose one of the answers offered"),
        ({"Answer.valid.label": "No"}, "with both “yes” and “no”"),
        ({"Answer.Valid": "perhaps"}, "Please choose one of the answers offered"),
        ({"Answer.Valid": ""}, "Please answer"),
        ({"WorkerId": "a b<script>"}, "no worker's name"),
        ({"SubmitTime": "yesterday"}, "is no time"),
        ({"SubmitTime": "0001-01-01T00:00:00Z", "AcceptTime": ""}, "SubmitTime is no time that a vote can have"),
        ({"WorkTimeInSeconds": "nan"}, "has to be 0 or more"),
        ({"Answer.taskAnswers": "{"}, "is no JSON"),
        ({"Answer.valid.yes": "true", "Answer.valid.no": "true", "Answer.Valid": ""}, "with both “yes” and “no”"),
        ({"Answer.taskAnswers": '[{"valid": {"no": true}}]'}, "with both “yes” and “no”"),
        ({"Answer._side": "top"}, "it has to be left or right"),
    ],
)
def test_a_row_that_is_no_vote_is_told_with_its_number(cells: Mapping[str, str], said: str) -> None:
    found = turk_votes(read_csv(written(turk_row(WorkerId="Z"), turk_row(**cells))), BIRD, [BIRD_7])
    (problem,) = found.problems
    assert problem.startswith("Row 2: ") and said in problem
    assert len(found.votes) == 1


@pytest.mark.parametrize(
    "file, said",
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n", "no column WorkerId and no column SubmitTime"),
        (b"WorkerId,SubmitTime\n1,2\n", "no column that begins with"),
        (b"WorkerId,SubmitTime,Answer.valid,Input.x\nA,now,yes,cat.png\n", "names an image of this study"),
        (b"PK\x03\x04rest", "Excel"),
        ("a,ä\n".encode("latin-1"), "not in UTF-8"),
        (b'a,b\n"1,2\n', "cannot be read as CSV"),
        (b"a,a\n1,2\n", "two columns named"),
        (b"a\n1,2\n", "more cells in line 2"),
    ],
)
def test_a_file_that_is_something_else_is_refused_in_one_sentence(file: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        turk_votes(read_csv(file), BIRD, [BIRD_7])
    assert "\n" not in str(refused.value)


def test_times_of_turk_and_iso() -> None:
    assert read_time("Mon Jun 01 00:00:00 PDT 2026") == datetime(2026, 6, 1, 7, tzinfo=UTC)
    assert read_time("2026-06-01T09:00:00+02:00") == datetime(2026, 6, 1, 7, tzinfo=UTC)
    with pytest.raises(ValueError):
        read_time("Mon Jux 01 00:00:00 PDT 2026")


def test_two_files_of_one_name_are_told_apart_by_their_folder() -> None:
    items: list[Item] = [item(n, label="bird", origin={"file": f"{n}/same.png"}) for n in (1, 2)]
    row = turk_row(**{"Input.image_url": "https://example.org/2/same.png"})
    found = turk_votes(read_csv(written(turk_row(**{"Input.image_url": "2/same.jpg"}))), BIRD, items)
    assert [read.item for read in found.votes] == [2]
    with pytest.raises(ValueError, match="names an image"):
        turk_votes(read_csv(written({**row, "Input.image_url": "same.png"})), BIRD, items)
