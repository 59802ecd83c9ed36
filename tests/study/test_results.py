"""The analysis of whole studies: the paper's figures, edge cases, and the paragraph of results."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from core.studies import Adjudication, ControlPolicy, Exclusion, Item, Question, Rules, StudyState, Vote, Worker
from services.studies.templates import TEMPLATES
from study.methods import paragraph
from study.results import analyse
from tests.support.study_data import (
    BIRD,
    MOSTLY,
    NO,
    ROAD,
    SPLIT,
    START,
    YES,
    data,
    driving,
    excluded,
    item,
    known,
    simple,
    vote,
)
from ui.study.workers import all_workers


def figures_in(value):
    """Yield every number in a report, at any depth."""
    if is_dataclass(value):
        for field in fields(value):
            yield from figures_in(getattr(value, field.name))
    elif isinstance(value, dict):
        for part in value.values():
            yield from figures_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from figures_in(part)
    elif isinstance(value, float):
        yield value


def sound(report):
    """Check that a report has no NaN, no infinity, and a complete paragraph. Return the report."""
    assert all(math.isfinite(figure) for figure in figures_in(report))
    text = paragraph(report)
    assert "None" not in text and "nan" not in text and ".." not in text and "  " not in text and text.endswith(".")
    return report


def test_the_papers_driving_figures():
    report = sound(analyse(driving()))
    found = {result.question.id: result.after for result in report.questions}
    said = {name: (part.rate.count, part.rate.n, part.discarded) for name, part in found.items()}
    assert said == {"road": (92, 93, 7), "vehicles": (24, 24, 1), "pedestrians": (11, 13, 2)}
    assert [f"{100 * part.rate.value:.1f}" for part in found.values()] == ["98.9", "100.0", "84.6"]
    assert found["pedestrians"].bounds.worst == 11 / 15 and found["pedestrians"].bounds.best == 13 / 15
    # Whole images: pedestrians are lost or split on images 11 to 14, vehicles split on 24, road on 92 to 99.
    assert (report.images.rate.count, report.images.rate.n, report.images.discarded) == (87, 90, 10)
    text = paragraph(report)
    assert "“vehicles”: valid 100 % (24 of 24; 95 % Wilson interval 86.2 to 100.0 %); 1 image discarded" in text
    assert "Intervals show the chance in which images were drawn, but no errors that workers share" in text
    assert "100 images were to be judged by 5 workers each, on 3 questions" in text
    assert "Source and generated image were shown side by side" in text


def the_papers_samples(state="closed"):
    """Return a study of 300 random images, 1 of them invalid, and 100 that the model gets wrong, of which 81 of 98
    are valid (82.7 %). Workers err a little.
    """
    rng = random.Random(2026)
    items: list[Item] = []
    votes: list[Vote] = []
    for n in range(400):
        wrong = n >= 300
        items.append(
            item(n, label="bird", group="misclassified" if wrong else "random", model="resnet", model_right=not wrong)
        )
        if not wrong:
            given = NO if n == 0 else MOSTLY if rng.random() < 0.2 else YES
        else:
            given = MOSTLY if n < 381 else NO if n < 398 else SPLIT
        shuffled = rng.sample(given, 5)
        for worker, answer in zip(rng.sample(range(12), 5), shuffled, strict=True):
            votes.append(vote(len(votes) + 1, n, f"worker-{worker}", {"valid": answer}, seconds=rng.uniform(0.5, 9)))
    rng.shuffle(votes)
    return data(items, votes, state=state)


def test_the_papers_two_samples():
    study = the_papers_samples()
    report = sound(analyse(study))
    by_group = {part.name: part for part in report.image_slices.by_group}
    assert (by_group["random"].rate.count, by_group["random"].rate.n) == (299, 300)
    assert (by_group["misclassified"].rate.count, by_group["misclassified"].rate.n) == (81, 98)
    assert [f"{100 * by_group[g].rate.value:.1f}" for g in ("random", "misclassified")] == ["99.7", "82.7"]
    assert by_group["misclassified"].discarded == 2
    assert [part.name for part in report.image_slices.by_model] == ["resnet: right", "resnet: wrong"]
    assert report.votes_counted == report.votes_cast == 2000 and report.complete == 400


@pytest.mark.slow  # crowd-kit is loaded
def test_an_independent_count_agrees():
    import krippendorff
    from crowdkit.aggregation import MajorityVote
    from scipy import stats

    study = the_papers_samples()
    found = analyse(study).questions[0]
    by_item: dict[int, list[str]] = {}
    for given in study.votes:
        by_item.setdefault(given.item, []).append(given.answers["valid"])
    top = {number: Counter(answers).most_common(1)[0] for number, answers in by_item.items()}
    decided = {number: answer for number, (answer, votes) in top.items() if votes >= 4}
    valid = sum(answer == "yes" for answer in decided.values())
    assert (found.after.rate.count, found.after.rate.n) == (valid, len(decided))
    interval = stats.binomtest(valid, len(decided)).proportion_ci(method="wilson")
    assert (found.after.rate.low, found.after.rate.high) == pytest.approx((interval.low, interval.high))
    table = np.array([[answer == "yes" for answer in answers] for answers in by_item.values()], dtype=float).T
    assert found.agreement.alpha.value == pytest.approx(krippendorff.alpha(table, level_of_measurement="nominal"))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        [(v.item, v.worker, v.answers["valid"]) for v in study.votes], columns=["task", "worker", "label"]
    )
    assert found.second.majority.count == (MajorityVote().fit_predict(frame) == "yes").sum()
    assert found.votes.value == (frame.label == "yes").mean()
    assert found.second.dawid_skene.n == 400 and found.second.ties == 0


def test_before_and_after_an_exclusion():
    # Worker 0 always says no and fails the control items. Another worker replaces two of the three votes.
    items = [
        *(item(n, label="bird") for n in (1, 2, 3)),
        item(9, kind="control", label="bird", expected={"valid": "yes"}),
    ]
    votes: list[Vote] = []
    for of in (1, 2, 3):
        for worker in range(5):
            votes.append(vote(len(votes) + 1, of, f"worker-{worker}", {"valid": "no" if worker < 1 else "yes"}))
    votes.append(vote(50, 9, "worker-0", {"valid": "no"}, kind="control"))
    votes.append(vote(51, 9, "worker-1", {"valid": "yes"}, kind="control"))
    votes += [vote(60, 1, "late", {"valid": "no"}), vote(61, 2, "late", {"valid": "yes"})]
    running = sound(analyse(data(items, votes, state="running", exclusions=[excluded("worker-0")])))
    assert (running.votes_cast, running.votes_excluded, running.votes_counted, running.votes_surplus) == (17, 3, 14, 0)
    assert (running.images.rate.n, running.images.waiting, running.complete) == (2, 1, 2)
    assert running.questions[0].second.majority.n == running.questions[0].second.dawid_skene.n == 2
    assert any("1 vote of 15" in note for note in running.notes) and "preliminary" in paragraph(running)
    closed = sound(analyse(data(items, votes, exclusions=[excluded("worker-0")])))
    # Item 3 has four votes left, all yes: 4 of 4 is not the announced 4 of 5.
    assert (closed.images.rate.count, closed.images.rate.n, closed.images.short) == (2, 2, 1)
    assert "1 image left with too few votes" in paragraph(closed)
    assert closed.questions[0].before.rate.n == 3 and closed.questions[0].agreement_before.raw.value == pytest.approx(
        0.6
    )
    assert (closed.controls.count, closed.controls.n) == (1, 2)
    text = paragraph(closed)
    assert "1 worker was excluded with 3 votes: worker-0 (by rule: 1 of 4 control items right" in text
    lines = {worker.worker: worker for worker in closed.workers}
    assert lines["worker-0"].counted == 0 and lines["worker-0"].words.endswith("3 votes left out")
    assert lines["worker-0"].controls.count == 0 and lines["worker-0"].with_consensus.count == 0
    assert lines["worker-1"].with_consensus.value == 1.0
    # Workers who left before four control items were not judged, except the one excluded by a person. The report says
    # so.
    few = data(items, votes, exclusions=[excluded("worker-0")])
    told = sound(analyse(replace(few, study=replace(few.study, controls=1))))
    judged = {worker.worker: worker.judged for worker in told.workers}
    assert judged["worker-0"] and not judged["worker-1"]
    few_seen = "5 workers with 14 counted votes were not judged, as they had seen fewer than 4 control items."
    assert few_seen in paragraph(told)
    assert "not judged" not in text and all(worker.judged for worker in closed.workers)
    assert "saw 1 of the 4 control items that the studio needs to judge a worker" in str(all_workers(told))
    # Readmitted: the first five count again, the late ones do not.
    readmitted = sound(analyse(data(items, votes)))
    assert (readmitted.votes_surplus, readmitted.votes_counted) == (2, 15)
    assert {w.worker: w.counted for w in readmitted.workers}["late"] == 0
    assert "2 votes beyond the first 5 of an image were left out" in paragraph(readmitted)


def test_fewer_votes_than_needed_after_filtering():
    study = simple(
        {1: YES, 2: SPLIT, 3: ["no", "no", "yes", "yes", "yes"]},
        exclusions=[excluded("worker-0"), excluded("worker-1")],
    )
    report = sound(analyse(study))
    assert (report.images.rate.value, report.images.short, report.images.discarded) == (None, 3, 0)
    assert report.images.rate.words == "undefined: no image found a consensus"
    assert (report.images.bounds.worst, report.images.bounds.best) == (0.0, 1.0)
    assert report.questions[0].before.rate.n == 1
    assert "closed with 6 votes missing of 15" in report.notes[0]
    assert len(report.disagreements) == 3  # a person must decide all three


def test_people_who_have_to_join_before_all_votes_can_be_given():
    three = replace(BIRD, votes=3, consensus=2)

    def needed(**changes: Any) -> int:
        study = simple({1: YES[:3], 2: YES[:3]}, rules=three, state="running")
        return analyse(replace(study, **changes)).further_people

    assert needed() == 0
    assert needed(exclusions=(excluded("worker-0"),)) == 1
    assert needed(exclusions=(excluded("worker-0"), excluded("worker-1"))) == 2
    study = simple({1: YES[:3], 2: YES[:3]}, rules=three, state="running", exclusions=[excluded("worker-0")])
    report = analyse(study)
    assert any(note.startswith("At least 1 more annotator is needed for the missing votes") for note in report.notes)
    assert analyse(replace(study, study=replace(study.study, state="closed"))).further_people == 0
    newcomer = Worker("newcomer", START, approved=60)
    assert needed(exclusions=study.exclusions, workers=(*study.workers, newcomer)) == 0
    assert needed(exclusions=study.exclusions, workers=(*study.workers, replace(newcomer, blocked=True))) == 1
    assert needed(exclusions=study.exclusions, workers=(*study.workers, replace(newcomer, rejected=60))) == 1
    # A worker who failed the quiz cannot vote. A worker before the quiz may.
    quiz = item(9, label="bird", kind="quiz", expected={"valid": "yes"})
    asking = replace(three, eligibility=replace(three.eligibility, quiz=1, quiz_pass=1.0))
    short = replace(newcomer, approved=0)
    crew: dict[str, Any] = {"workers": (*study.workers, short), "exclusions": study.exclusions}
    crew |= {"items": (*study.items, quiz), "study": replace(study.study, rules=asking)}
    assert needed(**crew) == 0
    assert needed(**crew, votes=(*study.votes, vote(70, 9, "newcomer", {"valid": "yes"}, kind="quiz"))) == 0
    assert needed(**crew, votes=(*study.votes, vote(70, 9, "newcomer", {"valid": "no"}, kind="quiz"))) == 1
    failed = analyse(replace(study, **crew, votes=(vote(70, 9, "newcomer", {"valid": "no"}, kind="quiz"),)))
    words = {worker.worker: worker.words for worker in failed.workers}
    assert words["newcomer"] == "failed the quiz: 0 of 1 right, 1 needed"
    assert words["worker-1"] == "no vote on an item yet"
    # Nobody votes more often than the limit. Workers from an imported file cannot vote here.
    limited = replace(study.study, rules=replace(three, most_items=1))
    assert needed(study=limited, votes=(), workers=(newcomer,)) == 5
    assert needed(votes=tuple(replace(given, imported=True) for given in study.votes[:5])) == 1


def test_no_vote_at_all():
    for state in ("draft", "running", "paused", "closed"):
        report = sound(analyse(data([item(1, label="bird")], [], state=state)))
        assert report.images.rate.value is None and report.agreement.raw.value is None and report.first is None
        assert report.notes == ("There is no vote yet, so there is nothing to report.",)
        assert "No vote has been collected." in paragraph(report)
        result = report.questions[0]
        assert result.votes.words == "undefined: no vote counts yet"
        assert result.second.words == "Dawid and Skene's model is undefined: no vote counts yet."
    empty = sound(analyse(data([], [], state="draft")))
    assert empty.notes == ("This study has no images yet.",) and empty.images.items == 0


def test_votes_that_wait_for_others_are_not_called_none():
    # 48 votes came, 4 of 5 for each image: nothing can be said yet, though votes exist.
    report = sound(analyse(simple(dict.fromkeys(range(12), YES[:4]), state="running")))
    assert report.votes_counted == 48
    second = report.questions[0].second
    assert second.words == "Dawid and Skene's model is undefined: no image has all its votes yet."
    assert second.majority.words == second.dawid_skene.words == "undefined: no image has all its votes yet"


def test_a_question_that_nobody_was_asked_says_so_beside_one_that_waits():
    votes = [vote(n, 1, f"worker-{n}", {"road": "yes"}) for n in range(3)]
    road, vehicles, _ = analyse(data([item(1, classes=("road",))], votes, ROAD, "running")).questions
    assert road.second.words.endswith("undefined: no image has all its votes yet.")
    assert vehicles.second.words.endswith("undefined: no vote counts yet.")


def test_one_worker_only():
    study = simple({1: ["yes"], 2: ["no"]}, state="running")
    report = sound(analyse(study))
    assert report.images.waiting == 2 and "by one worker" in report.notes[0]
    assert report.agreement.words == "No item has two votes yet, so nothing can be said of agreement."
    one = replace(BIRD, votes=1, consensus=1)
    report = sound(analyse(simple({1: ["yes"], 2: ["no"]}, rules=one)))
    assert (report.images.rate.count, report.images.rate.n) == (1, 2)
    assert "one worker there is nobody to compare with" in report.questions[0].second.words


def test_everybody_agrees():
    report = sound(analyse(simple(dict.fromkeys(range(30), YES))))
    result = report.questions[0]
    assert report.images.rate.words.startswith("100 % (30 of 30;")
    assert result.agreement.alpha.words == "undefined: all votes agree" and result.agreement.ac1.value == 1.0
    assert result.votes.low is None and "no interval" in result.votes.words
    assert result.second.words == "Dawid and Skene's model is undefined: all votes agree."
    assert not report.disagreements


def test_everybody_is_excluded():
    names = [f"worker-{n}" for n in range(5)]
    report = sound(analyse(simple({1: YES}, exclusions=[excluded(name) for name in names])))
    assert report.votes_counted == 0 and report.notes[0] == "All votes are by excluded workers: no vote counts."
    assert report.questions[0].before.rate.count == 1
    assert paragraph(report).count("by rule: ") == 5
    assert report.agreement.words == "No vote counts yet."
    assert report.questions[0].votes.words == "undefined: no vote counts yet"


def test_disagreements_come_the_most_divided_first():
    report = analyse(simple({1: YES, 2: MOSTLY, 3: SPLIT, 4: ["yes", "yes", "no", "no", "no"]}))
    assert [(d.item, d.status, d.words) for d in report.disagreements] == [
        (3, "no consensus", "3 yes, 2 no"),
        (4, "no consensus", "3 no, 2 yes"),
        (2, "consensus", "4 yes, 1 no"),
    ]


def test_a_persons_answers_are_kept_apart():
    decisions = [
        Adjudication(2, "valid", "no", "a boat", START),
        Adjudication(1, "valid", "no", "a consensus is never overruled", START),
        Adjudication(99, "valid", "no", "no such item", START),
    ]
    report = sound(analyse(simple({1: YES, 2: SPLIT, 3: SPLIT}, adjudications=decisions)))
    result = report.questions[0]
    assert (result.after.rate.count, result.after.rate.n, result.after.discarded) == (1, 1, 2)
    assert (result.adjudicated.rate.count, result.adjudicated.rate.n, result.adjudicated.discarded) == (1, 2, 1)
    assert report.images_adjudicated.rate.n == 2 and report.images.rate.n == 1
    assert next(d for d in report.disagreements if d.item == 2).adjudication.reason == "a boat"
    assert "one person also decided; this is not part of the results above" in paragraph(report)
    assert analyse(simple({1: YES})).questions[0].adjudicated is None


def lance():
    """Return a study of 12 images with LANCE's five axes."""
    rng = random.Random(5)
    votes: list[Vote] = []
    for of in range(12):
        for worker in range(5):
            answers = {
                "realism": str(rng.choice([3, 4, 4, 5])),
                "edit-success": str(1 + of % 5),
                "fidelity": rng.choice("12345"),
                "label-consistency": "yes",
                "ethical-concern": "yes" if of == 0 and worker < 2 else "no",
            }
            if answers["ethical-concern"] == "yes":
                answers["concern"] = f"odd {worker}"
            votes.append(vote(len(votes) + 1, of, f"worker-{worker}", answers, comment="hm " if worker == 0 else ""))
    items = [item(n, label="owl", edit_types=("weather", "object") if n % 2 else ("weather",)) for n in range(12)]
    return data(items, votes, replace(TEMPLATES["lance"].rules(), version=2))


def test_lances_five_axes():
    report = sound(analyse(lance()))
    found = {result.question.id: result for result in report.questions}
    realism = found["realism"]
    assert realism.mean.n == 12 and 3 < realism.mean.low < realism.mean.value < realism.mean.high < 5
    assert (
        realism.agreement.ordinal is not None
        and realism.after.rate.words == "undefined: it is not asked whether the image is valid"
    )
    assert found["edit-success"].agreement.ordinal.value == 1.0
    assert [share.share.count for share in found["edit-success"].answers] == [3, 3, 2, 2, 2]
    assert report.images.rate.count == 12  # by the question on the label alone
    assert [(remark.item, remark.text) for remark in found["concern"].remarks] == [(0, "odd 0"), (0, "odd 1")]
    assert found["concern"].answers == () and found["concern"].agreement.raw.value is None
    assert {part.name: part.items for part in report.image_slices.by_edit_type} == {"object": 6, "weather": 12}
    assert len(report.comments) == 12 and report.comments[0].text == "hm"
    text = paragraph(report)
    assert "(1 to 5, from not realistic at all to could be a photograph)" in text
    assert "1 more question was asked only after a certain answer" in text


def test_a_follow_up_with_fixed_answers_concerns_images_where_it_was_asked():
    rules = Rules(
        (
            Question("valid", "Is it a {label}?", "yes-no", valid=("yes",)),
            Question("why", "What is wrong?", "choice", ("shape", "colour"), follows="valid", follows_answer="no"),
        )
    )
    votes = [vote(n, 1, f"w{n}", {"valid": "yes"}) for n in range(5)]
    votes += [vote(10 + n, 2, f"w{n}", {"valid": "no", "why": "shape" if n < 4 else "colour"}) for n in range(5)]
    report = sound(analyse(data([item(1), item(2)], votes, rules)))
    why = report.questions[1]
    assert why.after.items == 1 and [share.share.count for share in why.answers] == [1, 0]
    assert (report.images.rate.count, report.images.rate.n) == (1, 2)


def test_items_that_are_no_part_of_the_result():
    study = simple({1: YES})
    control = item(3, kind="control", label="bird", expected={"valid": "yes"})
    bare = item(4, classes=("road",))
    report = sound(analyse(replace(study, items=(*study.items, control, bare))))
    assert report.items == 2 and report.votes_cast == 5 and report.images.items == 2
    road = sound(analyse(data([item(1), item(2, classes=("road",))], [vote(1, 2, "w", {"road": "yes"})], ROAD)))
    assert any(note.startswith("No question applies to 1 image:") for note in road.notes)


@pytest.mark.parametrize("seed", range(25))
def test_any_study_gives_sound_figures(seed):
    rng = random.Random(seed)
    rules = replace(TEMPLATES["lance"].rules(), votes=(votes_each := rng.randint(1, 6)), consensus=votes_each // 2 + 1)
    items = [item(n, label=rng.choice(["owl", ""]), model_right=rng.choice([True, False, None])) for n in range(6)]
    votes: list[Vote] = []
    for of in items:
        for worker in rng.sample(range(8), rng.randint(0, 8)):
            given = {q.id: rng.choice(q.answers() or ("odd",)) for q in rules.questions if rng.random() < 0.9}
            votes.append(vote(len(votes) + 1, of.id, f"worker-{worker}", given))
    gone = [excluded(f"worker-{n}") for n in rng.sample(range(8), rng.randint(0, 4))]
    states: list[StudyState] = ["running", "paused", "closed"]
    state = rng.choice(states)
    report = sound(analyse(data(items, votes, rules, state, gone)))
    out = {exclusion.worker for exclusion in gone}
    for part in (report.images, *(result.after for result in report.questions if result.question.valid)):
        assert part.items == part.rate.n + part.discarded + part.short + part.waiting
        assert part.waiting == 0 if state == "closed" else part.short == 0
        assert part.bounds.missing == part.discarded + part.short
        if part.rate.value is not None:
            assert known(part.bounds.worst) <= part.rate.value <= known(part.bounds.best)
    kept = Counter(v.item for v in votes if v.worker not in out)
    assert report.votes_counted == sum(min(n, rules.votes) for n in kept.values())
    assert report.votes_cast == report.votes_counted + report.votes_excluded + report.votes_surplus
    assert sum(worker.counted for worker in report.workers) == report.votes_counted


def test_workers():
    items = [item(1, label="bird"), item(2, kind="control", label="bird", expected={"valid": "yes"})]
    votes = [
        vote(1, 1, "a", {"valid": "yes"}, seconds=2.0, verdict="approved"),
        vote(2, 2, "a", {"valid": "yes"}, kind="control", seconds=0.4, changes=1),
        vote(3, 1, "b", {"valid": "no"}, seconds=6.0, verdict="rejected", reason="all no"),
    ]
    person = Exclusion("b", "Answers no to everything.", "person", START)
    report = sound(analyse(data(items, votes, exclusions=[person])))
    a, b = report.workers
    assert (a.worker, a.votes, a.counted, a.median_seconds, a.changed) == ("a", 1, 1, 1.2, 1)
    assert (a.too_fast.count, a.too_fast.n, a.approval, a.finished) == (1, 2, 1.0, 60)
    assert a.decided == {"approved": 1, "rejected": 0, "pending": 1} and a.words == "all votes count"
    assert b.words == "excluded by the study lead: Answers no to everything; 1 vote left out"
    assert b.controls.words == "undefined: no control item seen yet"


def test_the_paragraph_states_the_whole_protocol():
    rules = replace(BIRD, controls=ControlPolicy(0.1, 3, 0.75))
    text = paragraph(sound(analyse(simple(dict.fromkeys(range(10), MOSTLY), rules=rules, state="running"))))
    for part in (
        "10 images were to be judged by 5 workers each, on 1 question: “Does the image still show a ",
        "[class]?” (yes, no).",
        "if at least 4 of its 5 answers were equal, and was discarded otherwise",
        "The generated image was shown without its source.",
        "No answer was pre-selected",
        "The rules were fixed before the first vote.",
        "Workers needed an approval rate above 95 % over at least 50 finished assignments.",
        "Only people with a personal code from the study lead could take part.",
        "10 % of what a worker was shown were to be control items with a known answer (0 of 50 (0 %) of what was ",
        "fewer than 75 % of them right, after at least 3",
        "On 2 November 2026, 5 workers cast 50 votes on these images.",
        "No worker was excluded.",
        "50 votes were counted; 10 of 10 images have all 5.",
        "Result: valid 100 % (10 of 10; 95 % Wilson interval 72.2 to 100.0 %); no image discarded.",
        "raw agreement 0.60",
        "Gwet's AC1",
        "10 images, 5 votes each on average",
        "These figures are preliminary: the study is still running.",
    ):
        assert part in text, part
    none = replace(rules, controls=ControlPolicy(share=0.0))
    assert "There were no control items." in paragraph(analyse(simple({1: YES}, rules=none)))
