"""The methods paragraph states the known facts of a study, and no others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from services.studies.templates import TEMPLATES
from study.figure_rows import figure_rows
from study.methods import paragraph
from study.results import analyse
from tests.support.study_data import BIRD, MOSTLY, NO, SPLIT, START, YES, data, item, simple, vote


def test_of_votes_from_a_file_it_says_that_their_collection_is_not_known() -> None:
    whole = simple({1: YES, 2: MOSTLY})
    assert "No answer was pre-selected, the order of the images was random" in paragraph(analyse(whole))
    brought = replace(whole, votes=tuple(replace(one, imported=True) for one in whole.votes))
    text = paragraph(analyse(brought))
    assert "All votes were collected elsewhere and brought in from a file" in text
    for claim in (
        "pre-selected",
        "random for every worker",
        "without its source",
        "Workers needed",
        "before the first",
    ):
        assert claim not in text, claim
    mixed = replace(whole, votes=(replace(whole.votes[0], imported=True), *whole.votes[1:]))
    text = paragraph(analyse(mixed))
    assert "1 vote of 10 was collected elsewhere" in text and "For the others, no answer was pre-selected" in text


def test_ratings_are_reported_by_their_mean_and_not_discarded() -> None:
    rules = replace(TEMPLATES["lance"].rules(), version=1)
    answers = {"realism": "4", "edit-success": "5", "fidelity": "3", "label": "yes", "concern": "no"}
    votes = [
        vote(10 * of + n, of, f"w{n}", answers | {"realism": "45453"[n] if of else "4"})
        for of in (0, 1)
        for n in range(5)
    ]
    text = paragraph(analyse(data([item(0, label="bird"), item(1, label="bird")], votes, rules)))
    assert "ratings are reported by their mean over all of them" in text
    assert "“realism”: at least 4 ratings equal on 1 image" in text
    assert "discarded without one" not in text.split("“realism”:")[1].split("“label")[0]


def test_every_change_of_the_rules_is_stated_with_old_new_and_when_and_what_the_first_rules_say() -> None:
    lower = replace(BIRD, consensus=3, version=2)
    plain = simple({1: YES, 2: SPLIT, 3: NO, 4: SPLIT}, rules=lower)
    # Votes come every ten seconds, so ten of the twenty had come at this time.
    changed = replace(plain, history=((BIRD, START), (lower, START + timedelta(seconds=106))))
    report = analyse(changed)
    words = (
        "Version 2 of 2 November 2026, 09:01 UTC, with 10 votes in: the consensus went from 4 of 5 (80.0 %) to 3 of 5 "
        "(60.0 %); the votes per image stayed 5."
    )
    first = "By the rules as first announced (4 of 5): valid 50.0 % (1 of 2;"
    assert [(change.consensus, change.votes, change.votes_in) for change in report.changes] == [((4, 3), (5, 5), 10)]
    text = paragraph(report)
    assert f"The rules were fixed before the first vote. The rules were changed after the start: {words}" in text
    assert first in text and "2 without a consensus." in text
    assert any(words in note for note in report.notes) and any(first in note for note in report.notes)
    rows = figure_rows(report)
    assert [row["words"] for row in rows if row["figure"] == "change of rules"] == [words]
    [announced] = [row for row in rows if row.get("votes_used") == "by the first rules"]
    assert (announced["count"], announced["n"], announced["discarded"]) == (1, 2, 2)
    unchanged = analyse(replace(plain, history=((lower, START),)))
    assert not unchanged.changes and unchanged.as_announced is None and "changed" not in paragraph(unchanged)


def test_a_consensus_that_stayed_while_votes_were_added_is_named_for_what_it_became() -> None:
    more = replace(BIRD, votes=7, version=2)
    report = analyse(replace(simple({1: YES}, rules=more), history=((BIRD, START), (more, START))))
    assert "the votes per image went from 5 to 7; the consensus stayed 4 equal answers" in paragraph(report)
    assert "which was 4 of 5 (80.0 %) and is 4 of 7 (57.1 %)" in paragraph(report)


def test_what_was_shown_is_what_the_images_had_and_not_what_the_rules_allow() -> None:
    rules = replace(BIRD, show_source=True, show_captions=True)

    def said(*items: object) -> str:
        return paragraph(analyse(data(items, [], rules)))  # type: ignore[arg-type]

    bare, whole = item(1, label="bird"), item(2, source_sha="s", caption="A bird.", counterfactual="A bird, at night.")
    text = said(bare)
    assert "shown without its source; none of them had one" in text and "side by side" not in text
    assert "No captions were shown, as the images had none." in text
    text = said(bare, whole)
    assert "1 image of 2 was shown side by side with its source" in text and "were shown alone" in text
    assert "Both captions were shown, with the changed words marked, for 1 image of 2; the others had none." in text
    text = said(whole)
    assert "Source and generated image were shown side by side" in text and "The others" not in text
    assert "Both captions were shown with the changed words marked." in text


def test_workers_are_called_different_people_only_as_far_as_is_known() -> None:
    whole = simple({1: YES})
    assert "Only people with a personal code from the study lead could take part." in paragraph(analyse(whole))
    text = paragraph(analyse(replace(whole, linked=True)))
    assert "it is not known that they are different people" in text and "independent" not in text
    text = paragraph(analyse(replace(whole, panelled=True)))
    assert "only people whom a panel named" in text and "made-up name without saying who" not in text
    text = paragraph(analyse(replace(whole, panelled=True, linked=True)))
    assert "not known that they are different people" in text and "at other times" in text


def test_images_without_a_sample_are_a_part_of_their_own() -> None:
    items = [item(1, label="bird", group="random"), item(2, label="bird"), item(3)]
    votes = [vote(9 * of.id + n, of.id, f"w{n}", {"valid": "yes"}) for of in items for n in range(5)]
    slices = analyse(data(items, votes)).image_slices
    assert [(part.name, part.items) for part in slices.by_group] == [("random", 1), ("(none)", 2)]
    assert [(part.name, part.items) for part in slices.by_class] == [("bird", 2), ("(none)", 1)]
    assert slices.by_edit_type == () == slices.by_model
