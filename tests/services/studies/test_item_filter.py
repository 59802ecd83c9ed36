"""Drawing items, choosing control and quiz items, and problems that prevent a start. No page and no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PIL import Image
from pydantic import ValidationError

from core.errors import UserError
from core.image_filter import ImageFilter
from core.predictions import Prediction, encode_map
from core.stored_studies import Candidate
from core.studies import ControlPolicy, Eligibility, Item, NewItem, Question, Rules, Study, Worker, asked, right
from pipeline.recipes import RECONSTRUCTION
from services.evaluation.model_outcomes import RunMasks, measure, verdict_of
from services.studies.control_items import MADE, disguises, for_more, keep_in_step
from services.studies.drafts import DrawsItems, StudyDrafts
from services.studies.item_filter import ItemDraw, Pool, draw, items_of, model_name, note_of, pool_of
from services.studies.templates import TEMPLATES
from storage.damage import catalogue_faults
from storage.workspace import DATABASE, Workspace
from study.control_items import made_controls
from study.readiness import findings
from study.sampling import at_random, stratified
from study.training import made_quiz
from tests.support.cases import made_case
from tests.support.study_cases import LABELS, MODEL, object_runs, reconstructions, road_runs
from tests.support.workspaces import workspace_in

WRONG, LOST = ImageFilter.read("model=:newly wrong&model=:wrong"), ImageFilter.read("model=:newly wrong")
CLASSIFICATION, PRESERVATION = (TEMPLATES[name].rules() for name in ("classification", "preservation"))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def read(workspace: Workspace) -> tuple[Candidate, ...]:
    return workspace.test_cases.candidates()


def free(workspace: Workspace, pool: Pool) -> tuple[Candidate, ...]:
    """Return all candidates that a pool can draw, oldest first."""
    catalogue = workspace.catalogue
    return workspace.test_cases.candidates(catalogue.test_cases(catalogue.ids(pool.selection)))


def drawable(workspace: Workspace, wanted: ItemDraw, study: str = "") -> tuple[Candidate, ...]:
    return free(workspace, pool_of(workspace.catalogue, wanted, study))


# Drawing


def test_a_sample_has_everyone_at_most_once_and_is_the_same_for_a_seed() -> None:
    drawn = at_random(range(1000), 100, 3)
    assert len(set(drawn)) == 100 and drawn == at_random(range(1000), 100, 3) != at_random(range(1000), 100, 4)
    assert sorted(at_random(range(5), 9, 0)) == [0, 1, 2, 3, 4]


def test_every_image_is_as_likely_as_any_other() -> None:
    times = Counter(number for seed in range(3000) for number in at_random(range(10), 3, seed))
    # 900 expected, standard deviation 25.
    assert all(780 < times[number] < 1020 for number in range(10))


def test_strata_give_equally_many_and_small_ones_all_they_have() -> None:
    strata = {"bird": range(100), "boat": range(100, 200), "owl": range(200, 203)}
    drawn = stratified(strata, 23, 1)
    sizes = Counter(next(name for name, held in strata.items() if number in held) for number in drawn)
    assert len(set(drawn)) == 23 and sizes == {"bird": 10, "boat": 10, "owl": 3}
    assert drawn == stratified(dict(reversed(list(strata.items()))), 23, 1)


def test_what_lies_in_two_strata_is_drawn_once() -> None:
    drawn = stratified({"weather": range(6), "time": range(3, 9)}, 20, 0)
    assert sorted(drawn) == list(range(9))


@pytest.mark.parametrize("draw_one", [at_random, lambda held, wanted, seed: stratified({"a": held}, wanted, seed)])
def test_nothing_cannot_be_drawn(draw_one: object) -> None:
    with pytest.raises(ValueError, match="at least one"):
        draw_one([1], 0, 0)  # type: ignore[operator]


# Choosing


def test_misclassified_images_are_those_that_the_model_gets_wrong(workspace: Workspace) -> None:
    cases = object_runs(workspace, 4, wrong=(1, 6, 14))
    candidates = read(workspace)
    assert [verdict_of(candidate, MODEL) for candidate in candidates][:3] == [(True, True), (True, False), (True, True)]
    pool = pool_of(workspace.catalogue, ItemDraw(filter=WRONG, count=10))
    assert [candidate.test_case for candidate in free(workspace, pool)] == [cases[1], cases[6], cases[14]]
    assert pool.model == MODEL and pool.unread == 0
    assert note_of(pool, ItemDraw(filter=WRONG, count=10)).startswith(f"3 fit: {MODEL} is newly wrong or wrong.")
    items = items_of(
        draw(workspace, pool, ItemDraw(filter=WRONG, count=2), 5),
        ItemDraw(filter=WRONG).sample,
        pool.model,
        RunMasks(workspace),
    )
    assert len(items) == 2 and {item.group for item in items} == {"misclassified"}
    assert all(item.model_right is False and item.model == MODEL and item.source_sha for item in items)
    assert all(item.origin["source_right"] is True and item.origin["prompt"] for item in items)
    # Without a class for the label, the model's verdict is unknown.
    assert verdict_of(candidates[1], MODEL, classes=("cat", "dog")) == (None, None)
    assert verdict_of(candidates[1], MODEL, classes=("bird", "boat")) == (True, False)


def test_an_image_whose_source_alone_was_read_is_not_read_yet(workspace: Workspace) -> None:
    object_runs(workspace, 1, wrong=(0, 1))
    run = workspace.runs.search()[0].id
    for shade in range(3):
        workspace.test_cases.append(run, None, made_case(Image.new("RGB", (8, 8), (shade, 0, 0))))
    choice = ItemDraw(filter=WRONG)
    pool = pool_of(workspace.catalogue, choice)
    assert (pool.model, pool.unread, pool.free) == (MODEL, 3, 2)
    assert "3 were not read by it yet." in note_of(pool, choice)
    assert pool_of(workspace.catalogue, ItemDraw(filter=ImageFilter.read("model=another:wrong"))).unread == 7


def test_reconstructions_are_drawn_only_where_the_filter_names_their_recipe(workspace: Workspace) -> None:
    edited, unedited = object_runs(workspace, 1), reconstructions(workspace, 3)
    drafts = StudyDrafts(workspace, lambda run, model: None)
    listed = workspace.catalogue.ids(ImageFilter())
    for wanted in ("", "-recipe=lance", "recipe=dillema", "kind=classification", ImageFilter(entries=listed).address):
        choice = ItemDraw(filter=ImageFilter.read(wanted))
        assert [one.test_case for one in drawable(workspace, choice)] == edited, wanted
    everything = ItemDraw(filter=ImageFilter.read(f"recipe=dillema&recipe={RECONSTRUCTION.name}"))
    assert {one.test_case for one in drawable(workspace, everything)} == {*edited, *unedited}
    told = note_of(pool_of(workspace.catalogue, ItemDraw()), ItemDraw())
    assert told.endswith("3 reconstructions are left out: choose their recipe, such as “Reconstruction”, to draw them.")
    assert "reconstruction" not in note_of(pool_of(workspace.catalogue, everything), everything)
    study = workspace.studies.create("Birds", CLASSIFICATION)
    alone = ItemDraw(filter=ImageFilter(entries=listed[len(edited) :]))
    with pytest.raises(UserError, match="3 reconstructions are left out: choose their recipe, such as"):
        drafts.drawn(workspace.studies.get(study), alone)
    new, words = drafts.drawn(workspace.studies.get(study), ItemDraw())
    assert len(new) == len(edited) and words.endswith(", without 3 reconstructions")
    assert dict(drafts.recipes()) == {"dillema": "DILLEMA", "reconstruction": "Reconstruction"}


def segmented(workspace: Workspace) -> tuple[Candidate, ...]:
    """Two test cases of a road. A segmenter sees all of the source and of the first case, and nothing in the second."""
    road_runs(workspace, 1)
    cases = read(workspace)
    mask = RunMasks(workspace).of(cases[0].run_id)
    assert mask is not None
    names = tuple(mask.classes[number] for number in range(len(mask.classes)))
    blind = Image.new("L", mask.image.size)
    shas = (cases[0].source_sha, *(held.image_sha for held in cases))
    for sha, seen in zip(shas, (mask.image, mask.image, blind), strict=True):
        prediction = Prediction("segmentation", MODEL, classes=names, class_map=encode_map(seen))
        workspace.predictions.append(sha, MODEL, prediction)
    return cases


def test_class_maps_are_compared_once_and_again_after_another_mask(workspace: Workspace) -> None:
    cases, choice = segmented(workspace), ItemDraw(filter=LOST)
    pool = pool_of(workspace.catalogue, choice)
    assert (pool.free, pool.unread, pool.unmeasured) == (0, 0, 2)
    assert "2 are still to be measured; a draw waits for them." in note_of(pool, choice)
    masks = RunMasks(workspace)
    assert not measure(workspace, masks, MODEL, enough=lambda: True)
    assert measure(workspace, masks, MODEL, cases[0].image_sha)
    assert pool_of(workspace.catalogue, choice).unmeasured == 1, "the other one's image was not asked for"
    assert measure(workspace, masks, MODEL)
    pool = pool_of(workspace.catalogue, choice)
    assert (pool.unmeasured, [held.test_case for held in free(workspace, pool)]) == (0, [cases[1].test_case])
    assert catalogue_faults(workspace.folder / DATABASE) == ()
    waiting = workspace.catalogue.not_measured
    mask = masks.of(cases[0].run_id)
    assert mask is not None and waiting(MODEL, 9) == ()
    # In this mask the model finds nothing on the source either, so nothing can be lost.
    workspace.runs.set_mask(cases[0].run_id, Image.new("L", (8, 8), 1), {1: "pedestrian"})
    held = waiting(MODEL, 9)
    assert pool_of(workspace.catalogue, choice).unmeasured == len(held) == 2
    workspace.runs.set_mask(cases[0].run_id, mask.image, mask.classes)
    workspace.catalogue.measured(MODEL, [(one, (True, True)) for one in held])
    assert len(waiting(MODEL, 9)) == 2, "what was measured with an earlier mask does not count"
    assert measure(workspace, masks, MODEL) and pool_of(workspace.catalogue, choice).free == 1
    workspace.runs.set_mask(cases[0].run_id, Image.new("L", (8, 8), 1), {1: "pedestrian"})
    assert measure(workspace, masks, MODEL) and pool_of(workspace.catalogue, choice).free == 0
    workspace.runs.set_mask(cases[0].run_id, None)
    assert pool_of(workspace.catalogue, choice).unmeasured == 2
    workspace.predictions.append(cases[0].image_sha, MODEL, Prediction("segmentation", MODEL, classes=("sky",),
        class_map=encode_map(Image.new("L", (8, 8)))))  # fmt: skip
    assert measure(workspace, masks, MODEL) and catalogue_faults(workspace.folder / DATABASE) == ()


def test_a_draft_measures_what_it_draws(workspace: Workspace) -> None:
    cases = segmented(workspace)
    study = workspace.studies.create("Roads", PRESERVATION)
    drafts, choice = StudyDrafts(workspace, lambda run, model: ""), ItemDraw(filter=WRONG, count=5)
    new, words = drafts.drawn(workspace.studies.get(study), choice)
    assert [item.test_case for item in new] == [cases[1].test_case] and "from 1 that fitted" in words
    assert drafts.describe_filter(DrawsItems(study=study, **vars(choice))).free == 1
    assert drafts.models() == (MODEL,)


def test_the_model_is_asked_where_it_has_read_the_source_alone(workspace: Workspace) -> None:
    road_runs(workspace, 1)
    (held, _) = read(workspace)
    seen = Prediction("segmentation", MODEL, classes=("road",), class_map=encode_map(Image.new("L", (8, 8))))
    workspace.predictions.append(held.source_sha, MODEL, seen)
    asked_runs: list[str] = []

    def ask(run: str, model: str) -> str:
        asked_runs.append(run)
        return ""

    choice = ItemDraw(filter=ImageFilter.read(f"model={MODEL}:wrong"))
    study = workspace.studies.create("Roads", PRESERVATION)
    assert StudyDrafts(workspace, ask).ask_model(DrawsItems(study=study, **vars(choice))) == 1
    assert asked_runs == [held.run_id]


def test_images_of_the_study_are_not_drawn_again(workspace: Workspace) -> None:
    cases = object_runs(workspace, 2)
    study = workspace.studies.create("Birds", CLASSIFICATION)
    first = pool_of(workspace.catalogue, ItemDraw(count=5), study)
    drawn = draw(workspace, first, ItemDraw(count=5), 0)
    # The same seed gives the same draw as in earlier versions.
    assert [held.test_case for held in drawn] == list(at_random(sorted(cases), 5, 0))
    workspace.studies.add_items(study, items_of(drawn, "random", "", RunMasks(workspace)))
    second = pool_of(workspace.catalogue, ItemDraw(count=5), study)
    assert (second.free, second.fitting) == (3, 8)
    assert "besides 5 that are in the study already" in note_of(second, ItemDraw(count=5))
    assert "all 3 would be taken" in note_of(second, ItemDraw(count=5))
    workspace.studies.add_items(study, items_of(free(workspace, second), "random", "", RunMasks(workspace)))
    with pytest.raises(UserError, match="No image is left that fits"):
        draw(workspace, pool_of(workspace.catalogue, ItemDraw(), study), ItemDraw(), 0)


def test_reviews_and_tasks_filter(workspace: Workspace) -> None:
    cases = object_runs(workspace, 1)
    roads = road_runs(workspace, 1)
    workspace.test_cases.review(cases[0], "accepted")
    workspace.test_cases.review(cases[1], "rejected", "no bird")

    def fits(address: str) -> set[int]:
        return {candidate.test_case for candidate in drawable(workspace, ItemDraw(filter=ImageFilter.read(address)))}

    assert fits("") == {*cases, *roads}
    assert fits("review=accepted") == {cases[0]}
    assert fits("-review=rejected") == {*cases, *roads} - {cases[1]}
    assert fits("kind=segmentation") == set(roads)


@pytest.mark.slow
def test_classes_and_edit_types_are_strata(workspace: Workspace) -> None:
    object_runs(workspace, 8)
    roads = road_runs(workspace, 1, cases=1)
    choice = ItemDraw(how="label", count=10)
    pool = pool_of(workspace.catalogue, choice)
    assert pool.strata == {**dict.fromkeys(LABELS, 8), "no label": 1}
    labels = Counter(candidate.label for candidate in draw(workspace, pool, choice, 0))
    assert labels[""] == 1 and sorted(labels[label] for label in LABELS) == [2, 2, 2, 3]
    choice = ItemDraw(how="edit type", count=8)
    pool = pool_of(workspace.catalogue, choice)
    assert pool.strata == {"weather": 17, "time of day": 16}
    strata: dict[str, list[int]] = {}
    for candidate in read(workspace):
        strata.setdefault(candidate.edit_types[0], []).append(candidate.test_case)
    drawn = draw(workspace, pool, choice, 3)
    assert [candidate.test_case for candidate in drawn] == list(stratified(strata, 8, 3))
    plain = workspace.test_cases.append(read(workspace)[0].run_id, None, made_case(Image.new("RGB", (8, 8))))
    assert pool_of(workspace.catalogue, choice).strata["no edit"] == 1
    choice = ItemDraw(how="label", filter=ImageFilter.read("kind=segmentation"))
    pool = pool_of(workspace.catalogue, choice)
    assert pool.strata == {"no label": 1} and plain not in roads
    assert [candidate.test_case for candidate in draw(workspace, pool, choice, 0)] == roads


def test_a_scene_shows_what_its_mask_shows(workspace: Workspace) -> None:
    road_runs(workspace, 2, cases=1)
    choice = ItemDraw(filter=ImageFilter.read("kind=segmentation"))
    without, with_one = items_of(drawable(workspace, choice), choice.sample, "", RunMasks(workspace))
    assert {"road", "vehicle"} <= set(without.classes) and "pedestrian" not in without.classes
    assert "pedestrian" in with_one.classes
    assert [question.id for question in asked(PRESERVATION.questions, without, {})] == ["road", "vehicles"]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("resnet50", "resnet50"),
        ("timm/vit_b_16", "vit_b_16"),
        ("/some/where/segmenter.safetensors@18ea232a21d02c0e", "segmenter.safetensors"),
        ("C:\\models\\net.pt@1f (classes.txt)", "net.pt (classes.txt)"),
        ("", ""),
    ],
)
def test_a_model_is_called_by_its_name_and_not_by_its_folder(key: str, name: str) -> None:
    assert model_name(key) == name


def test_a_segmenter_is_measured_against_the_mask(workspace: Workspace) -> None:
    road_runs(workspace, 1, cases=1)
    (held,) = read(workspace)
    mask = RunMasks(workspace).of(held.run_id)
    assert mask is not None
    names = tuple(mask.classes[number] for number in range(len(mask.classes)))
    seen = Prediction("segmentation", "m", classes=names, class_map=encode_map(mask.image))
    blind = Prediction("segmentation", "m", classes=names, class_map=encode_map(Image.new("L", mask.image.size)))

    def verdict(before: Prediction | None, after: Prediction | None) -> tuple[bool | None, bool | None]:
        return verdict_of(replace(held, predictions={"m": (before, after)}), "m", mask)

    assert verdict(seen, seen) == (True, True) and verdict(seen, blind) == (True, False)
    assert verdict(seen, None) == (None, None)
    assert verdict(blind, blind) == (False, None), "what was not found in the source cannot be lost"
    half = mask.image.copy()
    road = list(mask.classes.values()).index("road")
    half.paste(list(mask.classes.values()).index("sky"), mask=half.point(lambda number: 255 * (number == road)))
    no_road = Prediction("segmentation", "m", classes=names, class_map=encode_map(half))
    assert verdict(no_road, no_road) == (False, True) and verdict(no_road, blind) == (False, False)


@pytest.mark.parametrize("masked", [True, False])
def test_a_segmenter_is_neither_right_nor_wrong_where_nothing_can_be_measured(
    workspace: Workspace, masked: bool
) -> None:
    road_runs(workspace, 1, cases=1)
    (held,) = read(workspace)
    mask = RunMasks(workspace).of(held.run_id) if masked else None
    sky = Prediction("segmentation", "m", classes=("sky",), class_map=encode_map(Image.new("L", (8, 8))))
    held = replace(held, classes=("pedestrian",), predictions={"m": (sky, sky)})
    assert verdict_of(held, "m", mask) == (None, None)
    (item,) = items_of([held], "random", "m", RunMasks(workspace))
    assert (item.model, item.model_right) == ("", None) and "source_right" not in item.origin


@pytest.mark.parametrize("count", ["0", "many", "", "-3", "1e9", None, True])
def test_a_number_that_is_none_is_told_at_its_field(count: object) -> None:
    with pytest.raises(ValidationError) as caught:
        ItemDraw.model_validate({"count": count})
    assert caught.value.errors()[0]["loc"] == ("count",)


# Control and quiz items


def items(count: int, labels: tuple[str, ...] = ("bird", "boat")) -> tuple[NewItem, ...]:
    return tuple(
        NewItem(f"image-{number}", f"source-{number}", label=labels[number % len(labels)]) for number in range(count)
    )


def test_a_quiz_has_right_and_wrong_questions_of_images_that_are_no_control_items() -> None:
    rules = replace(CLASSIFICATION, eligibility=Eligibility(quiz=6), seed=2)
    plain = items(40)
    controls = made_controls(plain, rules)
    quiz = made_quiz(plain, rules, controls)
    assert len(quiz) == 6 and all(item.kind == "quiz" for item in quiz)
    assert Counter(item.expected["valid"] for item in quiz) == {"yes": 3, "no": 3}
    assert not {item.image_sha for item in quiz} & {item.image_sha for item in controls}
    assert len({item.image_sha for item in quiz}) == 6
    assert quiz == made_quiz(plain, rules, controls)
    assert all(right(item, item.expected, rules.questions) for item in quiz)


@pytest.mark.parametrize(("count", "labels", "made"), [(2, ("bird", "boat"), 4), (3, ("bird",), 3), (0, ("bird",), 0)])
def test_a_quiz_has_as_many_questions_as_can_be_made(count: int, labels: tuple[str, ...], made: int) -> None:
    rules = replace(CLASSIFICATION, eligibility=Eligibility(quiz=10))
    assert len(made_quiz(items(count, labels), rules)) == made


@pytest.mark.slow
def test_made_items_follow_the_draft_and_given_ones_stay(workspace: Workspace) -> None:
    object_runs(workspace, 10)
    studies, disguise = workspace.studies, disguises(workspace)
    rules = replace(CLASSIFICATION, eligibility=Eligibility(quiz=4))
    study = studies.create("Birds", rules)
    chosen = drawable(workspace, ItemDraw())
    studies.add_items(study, items_of(chosen, "random", MODEL, RunMasks(workspace)))
    assert keep_in_step(studies, study, disguise) and not keep_in_step(studies, study, disguise)
    held = studies.get(study)
    assert (held.items, held.controls, held.quiz) == (40, 5, 4)
    studies.set_rules(study, replace(rules, controls=ControlPolicy(share=0.2)))
    assert keep_in_step(studies, study, disguise) and studies.get(study).controls == 10
    given = replace(
        items_of(chosen[:1], "random", MODEL, RunMasks(workspace))[0], kind="control", expected={"valid": "yes"}
    )
    studies.add_items(study, [given])
    assert not keep_in_step(studies, study, disguise) and studies.get(study).controls == 11
    studies.set_rules(study, replace(rules, controls=ControlPolicy(share=0), eligibility=Eligibility()))
    assert keep_in_step(studies, study, disguise)
    assert [MADE in item.origin for item in studies.items(study) if item.kind != "item"] == [False]
    # With a control item by the lead, none are made automatically.
    studies.set_rules(study, replace(rules, controls=ControlPolicy(share=0.1), eligibility=Eligibility()))
    assert not keep_in_step(studies, study, disguise)


@pytest.mark.slow
def test_what_was_given_is_not_made_beside_it_with_another_answer(workspace: Workspace) -> None:
    object_runs(workspace, 10)
    studies, disguise = workspace.studies, disguises(workspace)
    study = studies.create("Birds", replace(CLASSIFICATION, eligibility=Eligibility(quiz=4)))
    studies.add_items(study, items_of(drawable(workspace, ItemDraw()), "random", MODEL, RunMasks(workspace)))
    keep_in_step(studies, study, disguise)
    of_kind = {item.kind: item for item in studies.items(study) if MADE in item.origin}
    for held in of_kind.values():
        answer = "no" if held.expected["valid"] == "yes" else "yes"
        given = NewItem(held.image_sha, kind="control", label=held.label, expected={"valid": answer})
        studies.add_items(study, [given])
    assert keep_in_step(studies, study, disguise)
    made = {(item.image_sha, item.label) for item in studies.items(study) if MADE in item.origin}
    assert not made & {(held.image_sha, held.label) for held in of_kind.values()}
    assert (studies.get(study).controls, studies.get(study).quiz) == (5 + 2, 4)


@pytest.mark.slow
def test_beside_its_source_a_made_item_cannot_be_told_by_equal_pictures_or_captions(workspace: Workspace) -> None:
    object_runs(workspace, 10)
    studies, disguise = workspace.studies, disguises(workspace)
    study = studies.create("Birds", replace(TEMPLATES["lance"].rules(), eligibility=Eligibility(quiz=4)))
    chosen = drawable(workspace, ItemDraw())
    studies.add_items(study, items_of(chosen, "random", MODEL, RunMasks(workspace)))
    assert keep_in_step(studies, study, disguise)
    made = [item for item in studies.items(study) if item.kind != "item"]
    assert len(made) == 9 and all(item.image_sha != item.source_sha for item in made)
    assert all(item.counterfactual and item.counterfactual != item.caption for item in made)
    shown, source = workspace.images.load(made[0].image_sha), workspace.images.load(str(made[0].source_sha))
    assert shown.size == source.size and shown.tobytes() != source.convert("RGB").tobytes()
    assert not keep_in_step(studies, study, disguises(workspace)), "the same again: nothing to do"


def test_of_few_sources_no_control_or_quiz_item_shows_the_picture_of_another(workspace: Workspace) -> None:
    object_runs(workspace, 2)  # two sources with four images each
    studies, disguise = workspace.studies, disguises(workspace)
    rules = replace(CLASSIFICATION, eligibility=Eligibility(quiz=4), controls=ControlPolicy(share=0.4))
    study = studies.create("Birds", rules)
    studies.add_items(study, items_of(drawable(workspace, ItemDraw()), "random", MODEL, RunMasks(workspace)))
    assert keep_in_step(studies, study, disguise)
    made = [item for item in studies.items(study) if item.kind != "item"]
    assert len(made) == 8 and len({item.image_sha for item in made}) == 8
    assert len({item.source_sha for item in made}) == 2
    pictures = [workspace.images.load(item.image_sha).convert("RGB").tobytes() for item in made]
    assert len(set(pictures)) == 8
    assert not keep_in_step(studies, study, disguises(workspace)), "the same again: nothing to do"
    # Each source comes equally often as an item, so a repeated source gives nothing away. With fewer items it would.
    assert not [found for found in findings(rules, studies.items(study)) if "could recognise" in found.text]
    few = [item for item in studies.items(study) if item.kind != "item"]
    few += [item for item in studies.items(study) if item.kind == "item"][::4]
    [told] = [found for found in findings(rules, few) if "could recognise" in found.text]
    assert told.field == "share" and not told.stops and "from 2 source images only" in told.text


def pairs(held: Sequence[NewItem]) -> set[tuple[str | None, str]]:
    return {(item.source_sha, item.label) for item in held}


@pytest.mark.slow
@pytest.mark.parametrize("template", ["classification", "lance"])
def test_control_items_that_come_with_more_images_are_others_than_those_there(
    workspace: Workspace, template: str
) -> None:
    object_runs(workspace, 12, 2)
    studies, disguise = workspace.studies, disguises(workspace)
    rules = replace(TEMPLATES[template].rules(), eligibility=Eligibility(quiz=4), controls=ControlPolicy(share=0.2))
    study = studies.create("Birds", rules)
    chosen = items_of(drawable(workspace, ItemDraw()), "random", MODEL, RunMasks(workspace))
    studies.add_items(study, chosen[::2])
    keep_in_step(studies, study, disguise)
    there = studies.items(study)
    added = for_more(studies.get(study), there, chosen[1::2], disguise)
    controls, quiz = ([item for item in there if item.kind == kind] for kind in ("control", "quiz"))
    assert (len(controls), len(quiz), len(added)) == (3, 4, 3)
    # There are 12 source images: enough for all to be different.
    assert len({item.source_sha for item in (*controls, *quiz, *added)}) == 10
    studies.add_items(study, (*chosen[1::2], *added))
    more = for_more(studies.get(study), studies.items(study), chosen[1::2], disguise)
    there = tuple(item for item in studies.items(study) if item.kind == "control")
    assert len(more) == 3 and len(pairs((*there, *more))) == 9, "no source image is left, but none comes as it was"


def test_control_items_that_come_with_images_of_one_class_can_be_wrong_too() -> None:
    rules = replace(CLASSIFICATION, controls=ControlPolicy(share=0.2))
    study = Study("id", "Birds", "running", rules, datetime.now(UTC), datetime.now(UTC))
    plain = items(40)
    new = tuple(NewItem(f"new-{number}", f"new-source-{number}", label="bird") for number in range(16))
    there = tuple(Item(**vars(item)) for item in (*plain, *made_controls(plain, rules)))
    added = for_more(study, there, new, lambda sha, number: f"{sha} {number}")
    assert Counter((item.label, item.expected["valid"]) for item in added) == {("bird", "yes"): 2, ("boat", "no"): 2}
    # Adding one at a time also gives both answers.
    few: list[Item] = list(there)
    for item in new[:6]:
        few += [Item(**vars(made)) for made in for_more(study, few, [item], lambda sha, number: f"{sha} {number}")]
    assert Counter(item.expected["valid"] for item in few[len(there) :]) == {"yes": 3, "no": 3}


def test_a_scene_that_does_not_show_a_class_may_be_one_that_was_there() -> None:
    rules = replace(PRESERVATION, controls=ControlPolicy(share=0.5))
    study = Study("id", "Roads", "running", rules, datetime.now(UTC), datetime.now(UTC))
    there = [Item(f"image-{number}", f"source-{number}", classes=("road",)) for number in range(4)]
    new = [NewItem(f"new-{number}", f"new-source-{number}", classes=("road", "vehicle")) for number in range(4)]
    added = for_more(study, there, new, lambda sha, number: f"{sha} {number}")
    wrong = [item for item in added if "no" in item.expected.values()]
    assert len(added) == 4 and len(wrong) == 2
    assert all(item.image_sha.startswith("source-") and item.expected == {"vehicles": "no"} for item in wrong)


# Problems that prevent a start


def fields(rules: Rules, held: tuple[NewItem, ...], *workers: Worker) -> dict[str, bool]:
    return {finding.field: finding.stops for finding in findings(rules, held, workers)}


def test_a_study_without_images_cannot_start() -> None:
    assert fields(replace(CLASSIFICATION, eligibility=Eligibility(min_finished=0)), ()) == {"items": True}


def test_a_study_with_all_it_needs_can_start() -> None:
    rules = replace(CLASSIFICATION, eligibility=Eligibility(quiz=4))
    plain = items(40)
    controls = made_controls(plain, rules)
    assert not findings(rules, (*plain, *controls, *made_quiz(plain, rules, controls)))


def test_items_that_are_asked_nothing_stop_a_start() -> None:
    scene = NewItem("a", "b", classes=("road",))
    rules = replace(PRESERVATION, controls=ControlPolicy(share=0), eligibility=Eligibility(min_finished=0))
    assert fields(rules, (scene,)) == {}
    assert fields(rules, (scene, NewItem("c", "d"))) == {"items": True}


def test_missing_controls_and_quiz_items_stop_a_start() -> None:
    rules = replace(CLASSIFICATION, eligibility=Eligibility(quiz=4))
    assert fields(rules, tuple(NewItem(f"image-{number}", label="bird") for number in range(9))) == {
        "share": True,
        "quiz": True,
    }


def test_a_control_item_without_an_answer_to_any_question_stops_a_start() -> None:
    rules = replace(CLASSIFICATION, questions=(Question("kept", "Is it there?", "yes-no", valid=("yes",)),))
    rules = replace(rules, eligibility=Eligibility(min_finished=0))
    old = tuple(NewItem(f"c{number}", kind="control", expected={"valid": "yes"}) for number in range(5))
    found = [finding for finding in findings(rules, (*items(9), *old)) if finding.stops]
    assert [finding.field for finding in found] == ["share"] and "no right answer" in found[0].text


def test_what_a_lead_should_know_does_not_stop_a_start() -> None:
    rules = replace(TEMPLATES["lance"].rules(), controls=ControlPolicy(share=0))
    record = Worker("heron-41", None, approved=80)  # type: ignore[arg-type]
    bare = tuple(NewItem(f"image-{number}") for number in range(3))
    assert fields(rules, bare, record) == {
        "items": False,
        "show_source": False,
        "show_captions": False,
        "min_finished": False,
    }
    words = [finding.text for finding in findings(rules, bare, [record]) if finding.field == "min_finished"]
    assert words[0].startswith("Only 1 of your workers has the required record")
    many = [replace(record, id=f"heron-{number}") for number in range(5)]
    assert "min_finished" not in fields(rules, bare, *many)
