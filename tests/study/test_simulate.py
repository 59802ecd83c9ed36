"""Simulated workers answer as specified, and the command line refuses in one sentence."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from cli.study import main, told
from core.csv_tables import read_csv
from core.studies import NewItem, Question
from services.studies.templates import TEMPLATES
from study.behaviour import Behaviour, habit_of, judge, read_crew
from study.questions import check_answers
from study.simulate import Acknowledged, WorkerRun
from study.truth import AnswerKey, pixels, pixels_of, read_truth, sight

VALID = Question("valid", "Does the image still show a {label}?", "yes-no", valid=("yes",))
SCALE = Question("realism", "How realistic?", "scale")


def answers_of(behaviour: Behaviour, question: Question, true: str, times: int = 4000) -> list[str]:
    drawn = random.Random(1)
    habit = habit_of([question], drawn)
    return [judge(behaviour, [question], lambda _: true, habit, drawn)[0][question.id] for _ in range(times)]


@pytest.mark.parametrize(
    "behaviour, true, share_of_yes",
    [
        (Behaviour(accuracy=1.0), "yes", 1.0),
        (Behaviour(accuracy=0.9), "yes", 0.9),
        (Behaviour(accuracy=0.9), "no", 0.1),
        (Behaviour(accuracy=0.9, bias=0.5), "no", 0.5 + 0.5 * 0.1),
        (Behaviour(accuracy=0.9, bias=-1.0), "yes", 0.0),
    ],
)
def test_accuracy_and_bias_are_what_was_asked_for(behaviour: Behaviour, true: str, share_of_yes: float) -> None:
    given = answers_of(behaviour, VALID, true)
    assert given.count("yes") / len(given) == pytest.approx(share_of_yes, abs=0.03)


def test_a_lazy_worker_says_always_the_same_at_once() -> None:
    drawn = random.Random(3)
    habit = habit_of([VALID, SCALE], drawn)
    lazy = [judge(Behaviour(lazy=1.0), [VALID, SCALE], lambda _: "no", habit, drawn) for _ in range(50)]
    assert {tuple(answers.items()) for answers, _ in lazy} == {tuple(habit.items())}
    assert max(seconds for _, seconds in lazy) <= 0.4


def test_an_error_on_a_scale_is_one_step_off() -> None:
    assert set(answers_of(Behaviour(accuracy=0.0), SCALE, "4")) == {"3", "5"}
    assert set(answers_of(Behaviour(accuracy=0.0), SCALE, "1")) == {"2"}


def test_the_median_time_is_what_was_asked_for() -> None:
    drawn = random.Random(5)
    times = sorted(judge(Behaviour(seconds=6), [VALID], lambda _: "yes", {}, drawn)[1] for _ in range(4001))
    assert times[2000] == pytest.approx(6, rel=0.05)


@pytest.mark.parametrize("concern", ["yes", "no"])
def test_answers_are_what_the_rules_take_and_follow_ups_only_where_asked(concern: str) -> None:
    rules, shown = TEMPLATES["lance"].rules(), NewItem("sha", label="bird")
    truth = {"ethical-concern": concern, "label-consistency": "yes"}
    drawn = random.Random(7)
    for _ in range(100):
        answers, _ = judge(
            Behaviour(accuracy=1.0),
            rules.questions,
            lambda q: truth.get(q.id, "3"),
            habit_of(rules.questions, drawn),
            drawn,
        )
        assert check_answers(rules, shown, answers) == answers
        assert ("concern" in answers) == (concern == "yes")


def encoded(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


def test_what_is_seen_goes_by_the_pixels_whatever_the_file() -> None:
    image = Image.effect_noise((40, 30), 60).convert("RGB")
    assert pixels(encoded(image, "PNG")) == pixels(encoded(image, "WEBP")) == pixels_of(image)
    assert pixels_of(image) != pixels_of(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    first = sight(pixels_of(image), "", "Is it a bird?")
    assert first != sight(pixels_of(image), "", "Is it a boat?") != sight("", pixels_of(image), "Is it a boat?")
    with pytest.raises(ValueError, match="no PNG or WebP"):
        pixels(b"<html>")


def test_known_truth_wins_and_a_guess_is_the_same_for_all() -> None:
    place = sight("abc", "", VALID.text)
    table = read_csv(f"sight,answer,more\n{place},no,x\nxyz,,\n".encode())
    truth = AnswerKey(read_truth(table), valid=0.9, seed=4)
    assert truth.answer("abc", "", VALID) == "no"
    guessed = [truth.answer(str(n), "", VALID) for n in range(2000)]
    assert guessed == [replace(truth).answer(str(n), "", VALID) for n in range(2000)]
    assert guessed.count("yes") / 2000 == pytest.approx(0.9, abs=0.03)
    with pytest.raises(ValueError, match="Row 2"):
        read_truth(read_csv(b"sight,answer\nabc,no\nabc,yes\n"))
    with pytest.raises(ValueError, match="no column sight"):
        read_truth(read_csv(b"item,answer\n1,yes\n"))


def test_a_crew_is_read() -> None:
    assert read_crew("3:lazy=0.9,accuracy=0.6", Behaviour(seconds=2)) == (3, Behaviour(0.6, 0.0, 2, 0.9))
    assert read_crew("1", Behaviour()) == (1, Behaviour())
    for wrong in ("x", "0", "2:speed=1", "2:lazy=x", "2:lazy=2", "2:seconds=nan"):
        with pytest.raises(ValueError, match=r"."):
            read_crew(wrong, Behaviour())


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "--link"),
        (["--link", "x", "--accuracy", "1.5"], "accuracy"),
        (["--link", "x", "--url", "ftp://x"], "no address"),
        (["--link", "x", "--workers", "5000"], "1 to 1,000"),
        (["--link", "x", "--valid", "2"], "--valid"),
        (["--link", "x", "--truth", "/nowhere.csv"], "/nowhere.csv"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == "" and said in error and error.count("\n") == 1


def test_nobody_there_is_told_and_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = ["--url", "http://127.0.0.1:9", "--link", "x", "--workers", "2", "--patience", "0.2"]
    assert main(["simulate", *address, "--journal", str(tmp_path / "votes.jsonl")]) == 1
    said = capsys.readouterr().out
    assert "2 simulated workers, 0 votes acknowledged; 2 failed" in said
    assert (tmp_path / "votes.jsonl").read_text() == ""


def test_the_summary_tells_times_and_ends() -> None:
    votes = [Acknowledged("heron-41", str(n), "k", {}, 0.01 * n, 1) for n in range(1, 11)]
    runs = [WorkerRun("heron-41", votes, "done"), WorkerRun("crane-2", [], "excluded", "0 of 3 right.", 2)]
    assert told(runs).splitlines() == [
        "2 simulated workers, 10 votes acknowledged; 1 done, 1 excluded",
        "acknowledged after 55 ms (median), 95 % within 96 ms",
        "2 requests were sent again, because the server was away or asked to wait",
        "  crane-2: excluded. 0 of 3 right.",
    ]
