"""Questions, answers and rules of a study, permission to vote, and control items."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.stored_studies import Enrolment
from core.studies import ControlPolicy, Eligibility, NewItem, Question, Rules, Worker, asked, right, wording
from services.studies.templates import TEMPLATES, task_of
from study.control_items import controls_wanted, judge, made_controls, next_kind
from study.eligibility import quiz_needed, standing
from study.questions import MAX_TEXT, check_answers, check_rules
from tests.support.study_data import BIRD, ROAD, START, excluded, item

LANCE = TEMPLATES["lance"].rules()


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "own"])
def test_templates_are_sound(name):
    template = TEMPLATES[name]
    check_rules(template.rules())
    assert template.name == name and template.instructions and template.rules().consent
    assert (template.rules().votes, template.rules().consensus) == (5, 4)
    assert template.task in ("classification", "segmentation", "any") and task_of(name) == template.task


def test_a_study_without_a_known_template_takes_images_of_any_task():
    assert [task_of(name) for name in ("preservation", "own", "", "of a later version")] == [
        "segmentation",
        "any",
        "any",
        "any",
    ]


def test_the_paper_and_lance():
    assert [q.only_with for q in TEMPLATES["preservation"].questions] == ["road", "vehicle", "pedestrian"]
    assert [q.kind for q in LANCE.questions] == ["scale", "scale", "scale", "yes-no", "yes-no", "text"]
    assert LANCE.show_source and LANCE.show_captions
    assert TEMPLATES["own"].questions == ()


def test_a_question_of_a_class_is_asked_of_images_that_show_it():
    shown = [q.id for q in asked(ROAD.questions, item(1, classes=("Road", "pedestrian")), {})]
    assert shown == ["road", "pedestrians"]
    assert asked(ROAD.questions, item(1), {}) == ()


def test_a_question_that_follows_is_asked_after_its_answer():
    def last(answers):
        return asked(LANCE.questions, item(1), answers)[-1].id

    assert last({}) == last({"ethical-concern": "no"}) == "ethical-concern"
    assert last({"ethical-concern": "yes"}) == "concern"
    # A follow-up question is not asked if its parent is not asked.
    hidden = [replace(q, only_with="dog") if q.id == "ethical-concern" else q for q in LANCE.questions]
    assert asked(hidden, item(1), {"ethical-concern": "yes"})[-1].id == "label-consistency"


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("bird", "Does the image still show a bird?"),
        ("owl", "Does the image still show an owl?"),
        ("unicorn", "Does the image still show a unicorn?"),
        ("umbrella", "Does the image still show an umbrella?"),
        ("tench, Tinca tinca", "Does the image still show a tench?"),
        ("street_sign", "Does the image still show a street sign?"),
        ("", "Does the image still show its subject?"),
    ],
)
def test_wording(label, text):
    assert wording(BIRD.questions[0], item(1, label=label)) == text


def test_wording_leaves_other_braces_alone():
    question = Question("q", "{label}: is it {red}? A {label}.", "yes-no")
    assert wording(question, item(1, label="owl")) == "owl: is it {red}? An owl."


def full(**changes):
    """Return a complete answer to LANCE's questions, with `changes`."""
    given = {"realism": "3", "edit-success": "5", "fidelity": "1", "label-consistency": "yes", "ethical-concern": "no"}
    return {**given, **changes}


def test_good_answers():
    assert check_answers(LANCE, item(1), full()) == full()
    # The answer to a text question that is not asked is dropped. Otherwise the text is trimmed.
    assert check_answers(LANCE, item(1), full(concern="left over")) == full()
    kept = check_answers(LANCE, item(1), full(**{"ethical-concern": "yes", "concern": "  odd  "}))
    assert kept["concern"] == "odd"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "Please answer “How realistic is the edited image?”"),
        (full(realism="6"), "Please choose one of the answers offered"),
        (full(realism="Yes"), "Please choose one of the answers offered"),
        (full(realism=3), "has to be text"),
        (full(nonsense="1"), "belongs to no question"),
        (full(**{"ethical-concern": "yes"}), "Please answer “What is the concern?”"),
        (full(**{"ethical-concern": "yes", "concern": "   "}), "Please answer “What is the concern?”"),
        (full(**{"ethical-concern": "yes", "concern": "x" * (MAX_TEXT + 1)}), "too long"),
    ],
)
def test_answers_that_do_not_do(answers, said):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        check_answers(LANCE, item(1), answers)


def test_an_optional_question_may_be_left_out():
    rules = replace(BIRD, questions=(*BIRD.questions, Question("why", "Why?", "text", required=False)))
    assert check_answers(rules, item(1, label="owl"), {"valid": "no", "why": ""}) == {"valid": "no"}


def with_question(**fields):
    """Return rules with one question, which has these fields."""
    return Rules((Question(**{"id": "q", "text": "Is it?", "kind": "yes-no", **fields}),))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (Rules(()), "at least one question"),
        (Rules(BIRD.questions * 2), "taken by another"),
        (with_question(id="Q 1"), "lower case"),
        (with_question(id="a/../b"), "lower case"),
        (with_question(text=" "), "needs a text"),
        (with_question(kind="slider"), "its kind"),
        (with_question(kind="choice", options=("a",)), "2 to 9"),
        (with_question(kind="choice", options=("a", "A")), "the same"),
        (with_question(kind="choice", options=("a", " ")), "1 to 100"),
        (with_question(options=("a", "b")), "only a choice"),
        (with_question(valid=("maybe",)), "among its answers"),
        (with_question(valid=("yes", "no")), "says nothing"),
        (with_question(kind="text"), "fixed answers"),
        (with_question(follows="other", follows_answer="yes"), "no earlier question"),
        (replace(LANCE, questions=(*LANCE.questions[:5], replace(LANCE.questions[5], follows_answer="?"))), "lacks"),
        (replace(BIRD, votes=0), "Votes an image: .* from 1 to 50"),
        (replace(BIRD, votes=4, consensus=2), "all of them: 3 to 4 of 4 votes"),
        (replace(BIRD, consensus=6), "more than half"),
        (replace(BIRD, controls=ControlPolicy(share=0.6)), "Share of control items: .* from 0 to 50 %"),
        (replace(BIRD, controls=ControlPolicy(min_seen=0)), "judged after: .* from 1 to 100"),
        (replace(BIRD, controls=ControlPolicy(min_right=1.5)), "Control items right: .* from 0 to 100 %"),
        (replace(BIRD, eligibility=Eligibility(min_approval=1.0)), "Approval above: .* from 0 to 99.99 %"),
        (replace(BIRD, eligibility=Eligibility(min_finished=-1)), "Decided assignments: .* from 0 to 100,000"),
        (replace(BIRD, eligibility=Eligibility(quiz=51)), "Quiz: .* from 0 to 50"),
        (replace(BIRD, eligibility=Eligibility(quiz_pass=2)), "Right in the quiz: .* from 0 to 100 %"),
        (replace(BIRD, lease_minutes=0), "held for: .* from 1 to 240"),
        (replace(BIRD, seconds_expected=0), "Time a vote takes: .* from 0.1 to 600"),
        (replace(BIRD, too_fast_seconds=-1), "Too fast below: .* from 0 to 60"),
        (replace(BIRD, consent="x" * 10_001), "10,000"),
        (replace(BIRD, lease_minutes=float("nan")), "from 1 to 240"),
    ],
)  # fmt: skip
def test_rules_that_do_not_do(rules, said):
    with pytest.raises(ValueError, match=said):
        check_rules(rules)


@pytest.mark.parametrize(("votes", "consensus"), [(1, 1), (3, 2), (5, 3), (5, 5), (50, 26)])
def test_votes_and_consensus_that_do(votes, consensus):
    check_rules(replace(BIRD, votes=votes, consensus=consensus))


# Who may vote


def stands(approved=0, rejected=0, rules=BIRD, blocked=False, **enrolment):
    """Return the standing of a worker with this record."""
    worker = Worker("heron-41", START, approved=approved, rejected=rejected, pending=99, blocked=blocked)
    return standing(worker, Enrolment("a study", worker.id, **{"consented": True, **enrolment}), rules)


QUIZ = replace(BIRD, eligibility=Eligibility(quiz=5))
TRAINING = replace(QUIZ, training=2)
OPEN = replace(BIRD, eligibility=Eligibility(min_finished=0))


@pytest.mark.parametrize(
    ("found", "kind", "text"),
    [
        (stands(96, 4), "may vote", ""),
        (stands(95, 5), "not eligible", "95 of 100"),  # 95 % is not above 95 %
        (stands(50, 0), "may vote", ""),
        (stands(49, 0), "not eligible", "at least 50 finished"),
        (stands(96, 4, consented=False), "consent", "Please read"),
        (stands(96, 4, exclusion=excluded("w", "1 of 4 right")), "excluded", "no longer vote in this study. 1 of"),
        (stands(exclusion=excluded("w"), controls_seen=4, controls_right=1), "excluded", "1 of 4 of these as expected"),
        (stands(96, 4, blocked=True), "not eligible", "blocked"),
        (stands(0, 0, QUIZ), "quiz", "question 1 of 5; 4 have to be right"),
        (stands(0, 0, QUIZ, consented=False), "consent", "Please read"),
        (stands(0, 0, QUIZ, quiz_seen=3, quiz_right=3), "quiz", "question 4 of 5"),
        (stands(0, 0, QUIZ, quiz_seen=5, quiz_right=4), "may vote", ""),
        (stands(0, 0, QUIZ, quiz_seen=5, quiz_right=3), "not eligible", "3 of 5 quiz questions right; 4 were needed"),
        (stands(60, 0, QUIZ), "may vote", ""),
        (stands(0, 0, TRAINING, consented=False), "consent", "Please read"),
        (stands(0, 0, TRAINING), "training", "image 1 of 2"),
        (stands(60, 0, TRAINING, training_seen=1), "training", "image 2 of 2"),  # a long record replaces only the quiz
        (stands(60, 0, TRAINING, training_seen=2), "may vote", ""),
        (stands(0, 0, TRAINING, training_seen=2), "quiz", "question 1 of 5"),
        (stands(30, 30, TRAINING), "not eligible", "30 of 60"),
        (stands(30, 30, QUIZ, quiz_seen=5, quiz_right=5), "not eligible", "30 of 60"),
        (stands(0, 0, OPEN), "may vote", ""),
        (stands(0, 1, OPEN), "not eligible", "0 of 1"),
        (stands(0, 1, replace(BIRD, eligibility=Eligibility(0.0, 0))), "may vote", ""),
    ],
)  # fmt: skip
def test_standing(found, kind, text):
    assert found.kind == kind and text in found.text


def test_share_of_a_quiz_in_whole_answers():
    assert [quiz_needed(0.8, n) for n in (1, 4, 5, 10)] == [1, 4, 4, 8]
    assert quiz_needed(0.7, 10) == 7 and quiz_needed(0.0, 5) == 0


# Control items


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15, 1 / 3, 0.5])
def test_controls_keep_their_share_at_any_time(share):
    rules = replace(BIRD, controls=ControlPolicy(share=share))
    items = controls = 0
    for shown in range(1, 400):
        if next_kind(rules, "heron-41", items, controls) == "control":
            controls += 1
        else:
            items += 1
        assert abs(controls - share * shown) <= 1 + 1e-9


def places(worker, seed=0, stretches=300):
    """Return the position of the control item in each group of ten items."""
    rules, found, items = replace(BIRD, seed=seed), [], 0
    for controls in range(stretches):
        while next_kind(rules, worker, items, controls) == "item":
            items += 1
        found.append((items + controls) % 10)
    return found


def test_controls_come_where_no_worker_can_guess():
    from scipy import stats

    found = places("heron-41")
    assert stats.chisquare([found.count(place) for place in range(10)]).pvalue > 0.001
    assert found != places("otter-07") and found != places("heron-41", seed=1) and found == places("heron-41")


def test_no_share_no_controls():
    rules = replace(BIRD, controls=ControlPolicy(share=0.0))
    assert {next_kind(rules, "w", n, 0) for n in range(100)} == {"item"}
    assert controls_wanted(100, 0.0) == 0 and controls_wanted(90, 0.1) == 10 and controls_wanted(100, 0.1) == 12


def test_when_control_items_run_out_items_go_on():
    # The annotation service then gives a plain item. The next kind stays "control", and no error is raised.
    assert next_kind(BIRD, "w", 500, 3) == "control"


def test_right():
    control = item(1, label="bird", kind="control", expected={"valid": "yes"})
    assert right(control, {"valid": "yes"}, BIRD.questions)
    assert not right(control, {"valid": "no"}, BIRD.questions) and not right(control, {}, BIRD.questions)
    lance = item(1, kind="control", expected={"label-consistency": "no", "ethical-concern": "no"})
    assert right(lance, full(**{"label-consistency": "no"}), LANCE.questions)
    assert not right(lance, full(), LANCE.questions)
    with pytest.raises(ValueError, match="right answer"):
        right(item(1, kind="control"), {"valid": "yes"}, BIRD.questions)


@pytest.mark.parametrize(
    ("seen", "right_ones", "said"),
    [
        (0, 0, ""),
        (3, 0, ""),
        (4, 3, ""),
        (4, 2, "2 of 4 control items right; at least 75 % were asked for."),
    ],
)
def test_judge(seen, right_ones, said):
    assert judge(ControlPolicy(), seen, right_ones) == said


def birds(number, labels=("bird", "boat", "house")):
    """Return items, each with its own source image."""
    return [
        item(n, source_sha=f"source-{n}", label=labels[n % len(labels)], caption=f"caption {n}",
             edit_types=("weather",), model="m", model_right=True, group="random", test_case=n)
        for n in range(number)
    ]  # fmt: skip


def test_controls_of_labels_are_made_of_source_images():
    items = birds(90)
    made = made_controls(items, BIRD)
    assert len(made) == controls_wanted(90, 0.1) == 10
    assert [control.expected["valid"] for control in made].count("yes") == 5
    truth = {i.source_sha: i.label for i in items}
    for control in made:
        assert type(control) is NewItem and control.kind == "control"
        assert control.image_sha == control.source_sha
        assert (control.expected["valid"] == "yes") == (control.label == truth[control.image_sha])
        assert right(control, control.expected, BIRD.questions)
        assert not control.edit_types and control.model_right is None and not control.group
    assert len({control.image_sha for control in made}) == 10
    assert made == made_controls(items, BIRD) != made_controls(items, replace(BIRD, seed=1))


def test_one_label_makes_true_controls_only():
    made = made_controls(birds(90, ("bird",)), BIRD)
    assert len(made) == 10 and {control.expected["valid"] for control in made} == {"yes"}


def test_a_wrong_label_is_never_something_that_is_shown():
    items = [item(1, source_sha="s", label="bird", classes=("boat",)), item(2, label="boat")]
    rules = replace(BIRD, controls=ControlPolicy(share=0.5))
    assert {control.expected["valid"] for control in made_controls(items, rules)} == {"yes"}


def test_controls_of_scenes():
    scenes = [("road",), ("road", "vehicle"), ("road", "vehicle", "pedestrian"), ("road", "pedestrian")]
    items = [item(n, source_sha=f"source-{n}", classes=scenes[n % 4]) for n in range(90)]
    shown = {i.source_sha: set(i.classes) for i in items}
    made = made_controls(items, ROAD)
    assert len(made) == 10
    wrong = [control for control in made if "no" in control.expected.values()]
    assert len(wrong) == 5
    for control in made:
        assert control.classes == scenes[int((control.source_sha or "").split("-")[1]) % 4]
        if control in wrong:
            assert control.image_sha != control.source_sha and "road" not in control.expected
            names = {"vehicles": "vehicle", "pedestrians": "pedestrian"}
            assert all(names[q] not in shown[control.image_sha] for q in control.expected)
        else:
            assert control.image_sha == control.source_sha and set(control.expected.values()) == {"yes"}


def test_nothing_to_make_controls_of():
    assert made_controls([], BIRD) == ()
    assert made_controls([item(1, label="bird")], BIRD) == ()
    own = Rules((Question("nice", "Is it nice?", "yes-no", valid=("yes",)),))
    assert made_controls(birds(20), own) == ()
