"""The methods paragraph says what is known of a study, and no more."""

from __future__ import annotations

from dataclasses import replace

from study.methods import paragraph
from study.results import analyse
from study.templates import TEMPLATES
from tests.study_data import MOSTLY, YES, data, item, simple, vote


def test_of_votes_from_a_file_it_says_that_their_collection_is_not_known() -> None:
    whole = simple({1: YES, 2: MOSTLY})
    assert "No answer was pre-selected, the order of the images was random" in paragraph(analyse(whole))
    brought = replace(whole, votes=tuple(replace(one, imported=True) for one in whole.votes))
    text = paragraph(analyse(brought))
    assert "All votes were collected elsewhere and brought in from a file" in text
    assert "pre-selected" not in text and "random for every worker" not in text
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
