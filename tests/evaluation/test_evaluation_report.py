"""The report of a model under test states the computed figures, and leaves out figures that are undefined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.figures import Figure
from evaluation.effectiveness import RIGHT, WRONG, effectiveness
from evaluation.report import (
    answer,
    latex,
    markdown,
    per_cent,
    rows,
    with_interval,
)
from evaluation.segmentation import Pixels, loss_effect, lost_by, missed_by, right_pixels, segmentation_effect
from evaluation.sensitivity import Changes, SensitivityRow
from evaluation.validity import Judged, validity_effect
from experiments.paper.breaking import by_name
from tests.evaluation.test_effectiveness import LABELS, a_world, answers, of_world
from tests.evaluation.test_segmentation_effect import NAMES, an_effect


def test_figures_as_a_person_reads_them() -> None:
    assert per_cent(0.389) == "38.9 %" and per_cent(None) == "cannot tell"
    assert with_interval(Figure(0.389, 0.348, 0.418)) == "38.9 % (34.8 to 41.8)"
    assert with_interval(Figure(-0.213, -0.25, -0.19), points=True) == "-21.3 points (-25.0 to -19.0)"
    assert with_interval(Figure(None, why="there is nothing to count")) == "cannot tell: there is nothing to count"
    assert with_interval(Figure(0.5, why="no interval, since there is one source only")).startswith(
        "50.0 % (no interval"
    )


def test_the_answer_and_the_tables_say_the_same_numbers() -> None:
    original, generated, _, _ = a_world()
    found = of_world()
    wrong = generated.right == WRONG
    said = answer("resnet50", found, None, ())
    assert f"{100 * np.mean(original.right == WRONG):.1f} % of 400 originals" in said
    assert "2,000 test cases made of them (split test; each source weighs the same)" in said
    assert "the edits cause +" in said
    by_chance = answer("resnet50", replace(found, excess=Figure(0.02, -0.01, 0.05)), None, ())
    assert "the difference, +2.0 points (-1.0 to +5.0), may be chance." in by_chance and "cause" not in by_chance
    votes = np.where(np.arange(len(wrong)) % 20 == 0, 3, 0)
    judged = Judged(generated.source, wrong, wrong.astype(np.int64), votes, votes)
    validity = validity_effect(judged, ("right", "wrong"), resamples=200)
    assert f"{int((votes > 0).sum())} judged images" in answer("resnet50", found, validity, ())
    after = np.where(wrong, 0.2, 0.9)
    changes = Changes(generated.source, after, np.full(len(after), 0.9), wrong)
    table = by_name(changes, [["weather"] if place % 2 else ["colour"] for place in range(len(after))])
    assert "hurt it." in answer("resnet50", found, validity, table)
    text = markdown("resnet50", "driving|hard", found, validity, {"By edit type": table})
    assert text.startswith("# resnet50 on driving\\|hard\n") and "## Effect of validity" in text
    assert f"| error on generated images | {with_interval(found.error_generated)} |" in text
    assert "| weather | 1,000 |" in text
    every = {(row.part, row.name, row.figure): row for row in rows(found, validity, {"By edit type": table})}
    assert every["all", "", "error on generated images"].value == found.error_generated.value
    assert every["classes", "boat", "generated less original"].low == found.classes[1].difference.low
    assert every["By edit type", "weather", "change of the probability of the true class"].images == 1000
    assert not any(row.value != row.value for row in every.values())  # no value is NaN


def test_markdown_counts_the_rows_of_too_few_test_cases_and_data_lists_them() -> None:
    found = of_world()
    few, *others = found.classes
    found = replace(found, classes=(replace(few, cases=19), *others))
    edits = [
        SensitivityRow(name, n, 9, Figure(-0.1, -0.2, 0.0), 0.1, 2, 0.5, 0.5) for name, n in (("fog", 20), ("hail", 19))
    ]
    edits.append(replace(edits[-1], name="sleet", n=1))
    text = markdown("m", "s", found, None, {"By alternative": edits})
    assert f"| {few.label} |" not in text and f"| {others[0].label} |" in text
    assert "\n\n1 row has fewer than 20 test cases: CSV, Parquet and JSON list them.\n" in text
    assert "| fog | 20 |" in text and "hail" not in text and "sleet" not in text
    assert "\n\n2 rows have fewer than 20 test cases: CSV, Parquet and JSON list them.\n" in text
    listed = {(row.part, row.name) for row in rows(found, None, {"By alternative": edits})}
    assert {("classes", few.label), ("By alternative", "hail"), ("By alternative", "sleet")} <= listed
    nothing = markdown("m", "s", found, None, {"By alternative": edits[1:]})
    assert nothing.endswith(
        "## By alternative\n\n2 rows have fewer than 20 test cases: CSV, Parquet and JSON list them.\n"
    )


def test_the_table_of_the_paper_with_intervals() -> None:
    found = of_world()
    text = latex("ResNet_18 & co", found)
    (line,) = [line for line in text.splitlines() if line.startswith("ResNet")]
    assert line.startswith(r"ResNet\_18 \& co & ") and line.endswith(r" \\")
    value = found.error_generated
    assert value.value is not None and value.low is not None and value.high is not None
    assert f"{100 * value.value:.2f} [{100 * value.low:.2f}, {100 * value.high:.2f}]" in line


def test_a_set_that_says_nothing_is_told_in_words() -> None:
    nothing = effectiveness(answers([], []), answers([], []), None, np.zeros(0, dtype=np.int64), LABELS, [])
    assert answer("m", nothing, None, ()) == "m: cannot tell; there is nothing to count."
    assert "nan" not in markdown("m", "s", nothing).lower() and "& -- & -- & --" in latex("m", nothing)
    one = effectiveness(answers([0], [RIGHT]), answers([0], [WRONG]), None, np.array([2]), LABELS, [""])
    assert "cannot be told: there are no reconstructions" in answer("m", one, None, ())
    assert "nan" not in markdown("m", "s", one).lower()


def test_a_segmenter_is_told_with_what_it_loses_and_the_same_numbers_everywhere() -> None:
    chance, source = np.random.default_rng(8), np.repeat(np.arange(30), 3)
    effect, original, generated = an_effect()
    protected, groups = np.ones((30, 2), bool), [(0,), (1,)]
    missed = missed_by(original, protected, groups)
    lost = lost_by(original, generated, protected[generated.source], groups)
    losses = loss_effect(missed, lost, lost_by(original, original, protected, groups), NAMES[:2], ["train"] * 30)
    assert losses.generated.value is not None and losses.reconstructed.value == 0.0
    after = right_pixels(generated)
    changes = Changes(generated.source, after, np.full(90, 0.9), lost.right == WRONG)
    table = by_name(changes, [["weather"] if place % 2 else ["time of day"] for place in range(90)])
    votes = np.where(chance.random(90) < 0.5, 1, 0)
    judged = Judged(source, lost.right == WRONG, (lost.right == WRONG).astype(np.int64), votes, votes)
    validity = validity_effect(judged, ("loses no class", "loses a class"), resamples=200)
    assert validity.by_strata.value is not None

    said = answer("deeplab", effect, validity, table, losses)
    assert f"on {per_cent(losses.generated.value)} of {losses.cases} test cases, on reconstructions on 0.0 %" in said
    assert f"{per_cent(validity.by_strata.value)} of these test cases lose a class and are valid" in said
    assert "hurt it." in said
    text = markdown("deeplab", "driving", effect, validity, {"By edit type": table}, losses)
    assert said in text and "| change of the share of right pixels | loses a class | p, corrected |" in text
    (row,) = [one for one in table if one.name == "weather"]
    assert f"| weather | 45 | {row.change.value:+.2f} (" in text and f") | {per_cent(row.newly_wrong)} | " in text
    assert f"| loses a class, generated less reconstructed | {with_interval(losses.excess, points=True)} |" in text
    assert f"| generated images on which it loses a class | {with_interval(losses.generated)} |" in text
    every = {(row.part, row.name, row.figure): row for row in rows(effect, validity, {"edit type": table}, losses)}
    assert every["all", "", "loses a class, generated less reconstructed"].low == losses.excess.low
    assert every["protected", "road", "lost on generated images"].value == losses.classes[0].share
    assert every["edit type", "weather", "change of the share of right pixels"].images == 45
    (weather,) = [row for row in table if row.name == "weather"]
    assert every["edit type", "weather", "loses a class"].value == weather.newly_wrong
    assert every["validity", "", "loses a class and valid, by strata"].value == validity.by_strata.value
    assert not any(row.value != row.value for row in every.values())  # no value is NaN
    (line,) = [line for line in latex("DeepLab & co", effect, losses).splitlines() if line.startswith("Deep")]
    assert line.startswith(r"DeepLab \& co & ") and line.count("&") == 5  # the fifth & is in the model's name
    assert f"{100 * losses.generated.value:.2f} [" in line


def test_a_segmenter_of_which_nothing_is_known_is_told_in_words() -> None:
    none = Pixels(np.zeros(0, np.int64), np.zeros((0, 3, 4)))
    effect = segmentation_effect(none, none, None, np.zeros(0, bool), NAMES, [])
    missed, lost = missed_by(none, np.zeros((0, 0), bool), []), lost_by(none, none, np.zeros((0, 0), bool), [])
    losses = loss_effect(missed, lost, None, (), [])
    assert answer("m", effect, losses=losses) == "m: cannot tell; there is nothing to count."
    assert "nan" not in markdown("m", "s", effect, losses=losses).lower()
    assert "& -- & -- & -- & --" in latex("m", effect, losses)
    held, original, generated = an_effect(control=False)
    nobody = np.zeros((90, 3), bool)
    unknown = lost_by(original, generated, nobody, [(0,), (1,), (2,)])
    losses = loss_effect(missed_by(original, nobody[:30], [(0,), (1,), (2,)]), unknown, None, NAMES, [""] * 30)
    assert losses.left_out == 90
    assert "How often it loses a class cannot be told: it finds no protected class" in answer("m", held, losses=losses)
    assert "nan" not in markdown("m", "s", held, losses=losses).lower()
