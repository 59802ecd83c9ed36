"""Combinations of alternatives for captions: each way to choose them, and the stored results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from core.errors import UserError
from core.settings import CounterfactualSettings
from core.types import Alternative, Alternatives, Caption, Edit, KeywordAlternatives
from pipeline.stages.asking import BETWEEN
from pipeline.stages.counterfactuals import choose_edits
from services.runs.combinations import Grid, grid_of, pairs_of
from services.studio import Studio
from tests.support.scripted import SUNNY_BIRD, parts_of, studio_in
from tests.ui.explore.test_ui_studio import do, new_run

CAPTION = Caption(SUNNY_BIRD)
ALTERNATIVES = Alternatives(
    (
        KeywordAlternatives(
            "red", "attribute", (Alternative("blue"), Alternative("green"), Alternative("pink", False))
        ),
        KeywordAlternatives("sunny", "weather", (Alternative("snowy"), Alternative("rainy"), Alternative("foggy"))),
        KeywordAlternatives("by day", "time of day", (Alternative("at night"),)),
    )
)


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with studio_in(tmp_path) as made:
        yield made


def chosen(seed: int = 0, **settings: object) -> list[tuple[str, ...]]:
    wanted = CounterfactualSettings.model_validate(settings)
    return [tuple(edit.alternative for edit in edits) for edits in choose_edits(CAPTION, ALTERNATIVES, wanted, seed)]


def test_all_are_every_alternative_that_is_ticked_alone_or_together() -> None:
    assert chosen(combinations="all") == [("blue",), ("green",), ("snowy",), ("rainy",), ("foggy",), ("at night",)]
    pairs = chosen(combinations="all", edits_at_once=2)
    assert len(pairs) == len(set(pairs)) == 2 * 3 + 2 * 1 + 3 * 1 and ("green", "foggy") in pairs
    assert len(chosen(combinations="all", edits_at_once=0)) == 6


def test_one_of_each_changes_every_keyword_or_group_of_keywords_once() -> None:
    def keywords(combinations: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        of = {option.text: item.keyword for item in ALTERNATIVES.items for option in item.options}
        return sorted(tuple(of[one] for one in edits) for edits in combinations)

    assert keywords(chosen(combinations="one of each", captions=1)) == [("by day",), ("red",), ("sunny",)]
    pairs = chosen(combinations="one of each", edits_at_once=2)
    assert keywords(pairs) == [("red", "by day"), ("red", "sunny"), ("sunny", "by day")]


def test_so_many_are_drawn_at_random_and_others_with_another_seed() -> None:
    drawn = [tuple(chosen(seed, combinations="at random", captions=3)) for seed in range(6)]
    assert {len(set(one)) for one in drawn} == {3} and len(set(drawn)) > 1
    assert drawn[0] == tuple(chosen(0, combinations="at random", captions=3))
    assert len(chosen(combinations="at random", captions=32)) == 6


def test_what_a_person_chose_is_written_as_far_as_it_is_still_there() -> None:
    wanted = ((("red", "green"), ("sunny", "foggy")), (("red", "pink"),), (("by day", "at night"),))
    assert chosen(combinations="chosen", chosen=wanted) == [("green", "foggy"), ("at night",)]
    gone = ((("red", "purple"),),)
    assert chosen(combinations="chosen", chosen=gone) == chosen(), "as without a choice"


def test_more_captions_than_are_written_are_refused() -> None:
    many = tuple(Alternative(f"colour {number}") for number in range(15))
    two = Alternatives((KeywordAlternatives("red", "attribute", many), KeywordAlternatives("sunny", "weather", many)))
    settings = CounterfactualSettings(combinations="all", edits_at_once=2)
    with pytest.raises(UserError, match="225 combinations, and at most 200"):
        choose_edits(CAPTION, two, settings, 0)


def grid(studio: Studio, run_id: str) -> Grid:
    state = studio.states.of(run_id)
    fresh = "counterfactuals" not in state.stale
    found = grid_of(state.run, state.settings, state.histories["counterfactuals"], fresh, state.prompts)
    assert found is not None
    return found


def written(studio: Studio, run_id: str) -> set[tuple[tuple[str, str], ...]]:
    value = studio.workspace.runs.get(run_id).values["counterfactuals"].value.value
    return {pairs_of(item.edits) for item in value.items}


def test_the_grid_shows_what_the_next_run_writes_and_takes_a_choice(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    assert do(studio, run_id, "combination-use", edits="[]", used=True).field == "edits"
    do(studio, run_id, "run", stage="counterfactuals")
    before = grid(studio, run_id)
    assert before.total == 9 and {pairs_of(edits) for edits in before.planned} == written(studio, run_id)
    assert "4 of 9 combinations are captions" in parts_of(studio, run_id)["counterfactuals"]

    do(studio, run_id, "combinations", how="one of each")
    assert "counterfactuals" in studio.states.of(run_id).stale, "what was written is of another choice"
    planned = grid(studio, run_id).planned
    assert len(planned) == 4 and "4 of 9 combinations become captions" in parts_of(studio, run_id)["counterfactuals"]
    do(studio, run_id, "run-all")
    assert written(studio, run_id) == {pairs_of(edits) for edits in planned}

    held = grid(studio, run_id)
    assert {edit.keyword for edit in chain(*held.planned)} == {"red", "sunny", "by day", "grassy"}
    for edits in held.planned[1:]:
        do(studio, run_id, "combination-use", edits=json.dumps(pairs_of(edits)), used=False)
    do(studio, run_id, "combination-use", edits='[["red", "white"]]', used=True)
    do(studio, run_id, "combination-use", edits='[["red", "green"], ["sunny", "foggy"]]', used=True)
    last = pairs_of(held.planned[0])
    wanted = {last, (("red", "white"),), (("red", "green"), ("sunny", "foggy"))}
    assert {pairs_of(edits) for edits in grid(studio, run_id).planned} == wanted
    do(studio, run_id, "run-all")
    assert written(studio, run_id) == wanted
    for refused, said in (
        ('[["red", "purple"]]', "no longer has this alternative"),
        ('[["red", "blue"], ["red", "white"]]', "one"),
    ):
        assert said in do(studio, run_id, "combination-use", edits=refused, used=True).problem
    assert {pairs_of(edits) for edits in grid(studio, run_id).planned} == wanted
    assert Edit("red", "white", "attribute") in chain(*grid(studio, run_id).planned)


def test_a_factorial_experiment_combines_the_edit_types(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    assert do(studio, run_id, "combinations", how="factorial", captions=10).problem == ""
    planned = grid(studio, run_id).planned
    assert len(planned) == 10 and {len(edits) for edits in planned} >= {1, 2}
    assert {edit.edit_type for edit in chain(*planned)} == {"attribute", "weather", "time of day", "background"}
    do(studio, run_id, "run-all")
    assert written(studio, run_id) == {pairs_of(edits) for edits in planned}
    assert "factorial, up to 10" in parts_of(studio, run_id)["counterfactuals"]


# Chosen by the language model


def with_model(studio: Studio, run_id: str, **settings: object) -> None:
    for name, value in {"combinations": "model", **settings}.items():
        assert do(studio, run_id, "setting", setting=f"counterfactuals.{name}", value=value).problem == ""


def test_the_language_model_chooses_and_the_page_says_how_many_at_most(tmp_path: Path) -> None:
    with studio_in(tmp_path, "paper") as studio:
        run_id = new_run(studio)
        do(studio, run_id, "run-all")
        assert do(studio, run_id, "combinations", how="model").problem == ""
        assert do(studio, run_id, "setting", setting="counterfactuals.edits_at_once", value=2).problem == ""
        state, held = studio.states.of(run_id), grid(studio, run_id)
        assert "counterfactuals" in state.stale and held.at_most == state.settings.counterfactuals.captions == 5
        card = parts_of(studio, run_id)["counterfactuals"]
        assert "up to 5 captions: the language model chooses" in card
        assert "Prompt of this run: which edits go together" in card

        do(studio, run_id, "run-all")
        chosen = {(("grassy", "sandy"),), (("red", "blue"), ("sunny", "snowy"))}
        assert written(studio, run_id) == chosen == {pairs_of(edits) for edits in grid(studio, run_id).planned}
        state = studio.states.of(run_id)
        trace = state.run.values["counterfactuals"].value.trace
        assert not state.stale and trace.notes == () and trace.prompt.count(BETWEEN) == 2
        assert "Alternatives: red: blue, green, white; sunny: snowy" in trace.prompt.partition(BETWEEN)[0]
        assert trace.raw_reply.startswith(f"grassy -> sandy\nred -> blue; sunny -> snowy{BETWEEN}")
        card = parts_of(studio, run_id)["counterfactuals"]
        assert "were spread evenly" not in card and "2 combinations are captions" in card, "one of them with one edit"

        # After a tick, the combinations count as chosen by a person.
        do(studio, run_id, "combination-use", edits='[["red", "green"]]', used=True)
        assert studio.states.of(run_id).settings.counterfactuals.combinations == "chosen"
        assert {pairs_of(edits) for edits in grid(studio, run_id).planned} == {*chosen, (("red", "green"),)}


def test_the_question_outdates_only_what_was_chosen_by_it(tmp_path: Path) -> None:
    template = "$task $caption $alternatives: choose.\nCaption: $caption\nAlternatives: $alternatives\nChanges:"
    with studio_in(tmp_path, "paper") as studio:
        run_id = new_run(studio)
        do(studio, run_id, "run-all")
        about = {"stage": "counterfactuals", "prompt": "edits"}
        assert do(studio, run_id, "prompt-save", **about, template=template).problem == ""
        assert not studio.states.of(run_id).stale, "the edits were drawn at random"
        do(studio, run_id, "prompt-back", **about)
        with_model(studio, run_id)
        do(studio, run_id, "run-all")
        assert not studio.states.of(run_id).stale
        do(studio, run_id, "prompt-save", **about, template=template)
        assert studio.states.of(run_id).stale == {"counterfactuals": "the prompt was changed after this was made"}
        do(studio, run_id, "run-all")
        trace = studio.states.of(run_id).run.values["counterfactuals"].value.trace
        assert trace.prompt.startswith("image classification with the label bird A red bird")
        do(studio, run_id, "prompt-back", **about)
        assert "counterfactuals" in studio.states.of(run_id).stale


def test_a_profile_that_does_not_ask_says_so_before_and_after(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    spread = {pairs_of(edits) for edits in grid(studio, run_id).planned}
    with_model(studio, run_id)
    card = parts_of(studio, run_id)["counterfactuals"]
    assert "This profile has no prompt for letting the model choose" in card
    assert "4 of 9 combinations become captions" in card, "those of the even spread"
    planned = {pairs_of(edits) for edits in grid(studio, run_id).planned}
    do(studio, run_id, "run-all")
    assert written(studio, run_id) == planned and len(planned) == len(spread)
    card = parts_of(studio, run_id)["counterfactuals"]
    assert "The edits were spread evenly: the language model was to choose them" in card
    (note,) = studio.commands.send("show-run", {"run": run_id})["stages"][-1]["notes"]
    assert "edits.toml is missing" in note

    # A run can have its own prompt.
    own = "$task\nCaption: $caption\nAlternatives: $alternatives\nChanges:"
    about = {"stage": "counterfactuals", "prompt": "edits"}
    assert do(studio, run_id, "prompt-save", **about, template=own).problem == ""
    assert "up to 4 captions: the language model chooses" in parts_of(studio, run_id)["counterfactuals"]
    do(studio, run_id, "run-all")
    assert written(studio, run_id) == {(("grassy", "sandy"),)}, "with one edit a caption, the other line is dropped"
    assert "spread evenly: the language model" not in parts_of(studio, run_id)["counterfactuals"]
