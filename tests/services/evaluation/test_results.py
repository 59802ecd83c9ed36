"""From a workspace to the figures of a model: figures equal the predictions, every figure opens its images, and the
page explains missing figures.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from core.errors import UserError
from core.image_filter import ImageFilter
from core.masks import MASK_KEPT, NamedMask, resized
from core.predictions import decode_map
from core.settings import UnderTestSettings
from core.studies import NewItem
from core.test_sets import SetEntry
from core.thresholds import Band
from core.types import Task
from demo.scene import PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES
from evaluation.class_mapping import map_classes
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG
from evaluation.metrics import kept_checks, kept_in_mask
from evaluation.models import ModelUnderTest
from evaluation.segmentation import segmentation_effect
from pipeline.profiles.profile import CheckSettings, load_profile
from services.commands import Malformed
from services.evaluation.facts import SUFFIXES, facts_of, file_of
from services.evaluation.model_outcomes import RunMasks, verdict_with_masks
from services.evaluation.results import without_blas_threads
from services.evaluation.segmented import ITSELF, NOBODY
from services.evaluation.service import EvaluationService
from services.evaluation.types import EDIT_TABLES, Cell, EvaluationQuestion, Subject
from services.runs.predictions import model_key
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.evaluation_cases import (
    BIRDS,
    CLASSIFIER,
    OBJECTS,
    ROADS,
    SEGMENTER,
    STREETS,
    fill,
    pixels_of,
    read_all,
    scenes_that_are_read,
    service_of,
)
from tests.support.made_once import MadeOnce
from tests.support.set_cases import picture, run_of
from tests.support.study_desk import crew, rules, vote
from ui.evaluate.comparing import comparison_part
from ui.evaluate.result import result_part
from ui.evaluate.words import Links, Place

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[EvaluationService]:
    """Service on a workspace of both tasks that both models of the demo have read. Tests save nothing in it."""
    with Workspace(scenes_that_are_read(made_once, tmp_path_factory.mktemp("whole"))) as workspace:
        made = service_of(workspace)
        yield made
        made.close()


def test_the_threads_of_linear_algebra_come_back_when_the_last_evaluation_is_done() -> None:
    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    def another() -> None:
        with without_blas_threads():
            assert threads() == {1}

    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        with ThreadPoolExecutor(1) as beside, without_blas_threads():
            beside.submit(another).result()
            assert threads() == {1}
        assert threads() == {2}
        with pytest.raises(ValueError, match="given up"), without_blas_threads():
            raise ValueError("given up")
        assert threads() == {2}


def test_errors_are_those_of_the_model_asked_image_by_image(whole: EvaluationService) -> None:
    found, cases = whole.evaluate(BIRDS).effectiveness, whole.cases(OBJECTS)
    assert found is not None
    model, load = ModelUnderTest(CLASSIFIER), whole._workspace.images.load

    def wrong(images: object) -> np.ndarray:
        says = [model.predict(load(sha)).top[0].label for sha in images.shas]  # type: ignore[attr-defined]
        labels = [cases.labels[number] for number in images.label]  # type: ignore[attr-defined]
        return np.array([one != label for one, label in zip(says, labels, strict=True)])

    assert found.error_original.value == pytest.approx(wrong(cases.originals).mean())
    assert found.error_generated.value == pytest.approx(wrong(cases.generated).mean())
    assert found.error_reconstructed.value == pytest.approx(wrong(cases.controls).mean())
    assert (found.sources, found.cases, found.left_out) == (14, 140, 0)


def test_every_number_opens_its_images(whole: EvaluationService) -> None:
    evaluated, cases = whole.evaluate(BIRDS), whole.cases(OBJECTS)
    found = evaluated.effectiveness
    assert found is not None and found.error_generated.value is not None

    def number(kind: str, name: str = "", said: str = "") -> int:
        return len(whole.entries(BIRDS, Cell(kind, name, said)))  # type: ignore[arg-type]

    assert number("generated") == 140 and number("controls") == 14
    assert number("wrong") == round(found.error_generated.value * 140) and number("wrong") + number("right") == 140
    assert number("newly wrong") == found.flips.newly_wrong and number("newly right") == found.flips.newly_right
    for of_class in found.classes:
        assert len(whole.entries(BIRDS, Cell("class", of_class.label, only_wrong=True))) == of_class.wrong_cases
    assert sum(of_class.wrong_cases for of_class in found.classes) == number("wrong"), "newly wrong or not"
    together = found.together
    assert number("all wrong") == 10 * together.all_wrong and number("none wrong") == 10 * together.none_wrong
    assert number("some wrong") == 10 * together.some_wrong
    for at, label in enumerate(evaluated.labels):
        row = found.confusion[1]
        cells = [number("confusion", label, said) for said in (*evaluated.labels, "")]
        assert sum(cells) == number("class", label) == row.images[at]
        if cells and sum(cells):
            np.testing.assert_allclose(np.array(cells) / sum(cells), row.shares[at])
        # Each source has ten test cases, so counts are ten times those of the originals with this prediction.
        first = found.confusion[0]
        before = [number("confusion before", label, said) for said in (*evaluated.labels, "")]
        np.testing.assert_allclose(np.array(before), 10 * first.images[at] * np.nan_to_num(first.shares[at]))
    for table in EDIT_TABLES:
        for one in evaluated.edits[table]:
            entries = whole.entries(BIRDS, one.cell)
            assert len(entries) == one.row.n and set(one.worst) <= set(entries)
    foggy = whole.entries(BIRDS, Cell("alternative", "foggy"))
    catalogue = whole._workspace.catalogue
    by_facet = ImageFilter(facets={"weather": ("foggy",), "kind": ("classification",)})
    assert foggy == catalogue.ids(by_facet)
    assert set(evaluated.thumbnails.values()) <= set(cases.generated.shas)


def test_edits_are_measured_against_reconstructions(whole: EvaluationService) -> None:
    evaluated, cases = whole.evaluate(BIRDS), whole.cases(OBJECTS)
    assert evaluated.against_control
    model, load = ModelUnderTest(CLASSIFIER), whole._workspace.images.load
    classes = model.identity.classes

    def true(sha: str, label: int) -> float:
        (batch,) = model.predict_many([load(sha)])
        assert batch.probabilities is not None
        return float(batch.probabilities[0][classes.index(cases.labels[label])])

    drawn = {
        int(source): true(sha, int(cases.originals.label[source]))
        for sha, source in zip(cases.controls.shas, cases.controls.source, strict=True)
    }
    weather = [row for row in evaluated.edits["edit type"] if row.row.name == "weather"]
    entries = set(whole.entries(BIRDS, weather[0].cell))
    change = [
        true(sha, int(label)) - drawn[int(source)]
        for sha, label, source, row in zip(
            cases.generated.shas, cases.generated.label, cases.generated.source, cases.generated.row, strict=True
        )
        if int(cases.table.entry[row]) in entries
    ]
    assert weather[0].row.change.value == pytest.approx(np.mean(change), abs=2e-3), "kept as float16"


def test_a_segmenter_is_measured_by_the_masks(whole: EvaluationService) -> None:
    evaluated, cases = whole.evaluate(ROADS), whole.cases(STREETS)
    found = evaluated.segmentation
    assert found is not None and evaluated.effectiveness is None
    model, load = ModelUnderTest(SEGMENTER), whole._workspace.images.load
    mapping = map_classes(cases.labels, model.identity.classes, "segmentation")
    pixels = []
    for images in cases.all_images:
        masks = [
            NamedMask(load(sha), {int(number): name for number, name in json.loads(names).items()})
            for sha, names in images.masks
        ]
        predictions = [model.predict(load(sha)) for sha in images.shas]
        pixels.append(pixels_of(mapping, masks, predictions, images.source))
    kept = np.zeros(len(cases.generated), bool)
    expected = segmentation_effect(pixels[0], pixels[1], pixels[2], kept, mapping.group_names, cases.split)
    assert found.miou_generated == expected.miou_generated and found.classes == expected.classes
    assert found.excess == expected.excess
    assert evaluated.answer.startswith("segmenter.safetensors reaches a mIoU of ")


def test_a_segmenter_is_wrong_where_the_studio_says_so_of_each_image(whole: EvaluationService) -> None:
    workspace, found = whole._workspace, whole.result(ROADS)
    stored = whole.predicting.stored(SEGMENTER)
    assert stored is not None
    generated, table, masks = found.cases.generated, found.cases.table, RunMasks(workspace)
    of_case = table.test_case[generated.row]
    verdicts = {
        one.test_case: verdict_with_masks(one, stored.key, masks)
        for one in workspace.test_cases.candidates(sorted(of_case.tolist()))
    }
    known = {None: UNKNOWN, True: RIGHT, False: WRONG}
    said = [known[verdicts[case][1]] for case in of_case.tolist()]
    before = [known[verdicts[case][0]] for case in of_case.tolist()]
    assert found.right.tolist() == said and found.before[generated.source].tolist() == before
    assert {RIGHT, WRONG} <= set(said)

    def curated(*standing: Any) -> set[int]:
        facets: dict[Any, tuple[str, ...]] = {"kind": ("segmentation",), "recipe": ("dillema",)}
        return set(workspace.catalogue.ids(ImageFilter(facets=facets, models={stored.key: standing})))

    assert set(whole.entries(ROADS, Cell("wrong"))) == curated("wrong", "newly wrong")
    assert set(whole.entries(ROADS, Cell("newly wrong"))) == curated("newly wrong")
    assert set(whole.entries(ROADS, Cell("right"))) == curated("right")
    assert set(whole.entries(ROADS, Cell("left out"))) == curated("cannot tell")


def test_every_number_of_a_segmenter_opens_its_images(whole: EvaluationService) -> None:
    evaluated, found = whole.evaluate(ROADS), whole.result(ROADS)
    effect, losses, cases = evaluated.segmentation, evaluated.losses, found.cases
    assert effect is not None and losses is not None and losses.generated.value is not None

    def number(kind: str, name: str = "", said: str = "", only_wrong: bool = False) -> int:
        return len(whole.entries(ROADS, Cell(kind, name, said, only_wrong)))  # type: ignore[arg-type]

    assert number("wrong") == round(losses.generated.value * losses.cases) > 0
    assert number("wrong") + number("right") == losses.cases and number("left out") == losses.left_out
    assert number("newly wrong") == losses.newly_wrong and number("kept") == effect.kept
    together = losses.together
    assert number("all wrong") == 10 * together.all_wrong and number("some wrong") == 10 * together.some_wrong
    assert losses.missed.value is not None and number("missed before") == 10 * round(losses.missed.value * 4)

    # Counted pixel by pixel from the masks and the predictions.
    model, load = ModelUnderTest(SEGMENTER), whole._workspace.images.load
    mapping = map_classes(cases.labels, model.identity.classes, "segmentation")
    counts = []
    for images in (cases.originals, cases.generated):
        masks = [
            NamedMask(load(sha), {int(key): name for key, name in json.loads(names).items()})
            for sha, names in images.masks
        ]
        counts.append(
            pixels_of(mapping, masks, [model.predict(load(sha)) for sha in images.shas], images.source).counts
        )
    entry, source = cases.table.entry[cases.generated.row], cases.generated.source
    for kind, held, shares in (
        ("confusion before", counts[0], effect.confusion_original),
        ("confusion", counts[1], effect.confusion_generated),
    ):
        own = held / held.sum(axis=2, keepdims=True).clip(1)
        for i, name in enumerate(evaluated.labels):
            for j, said in enumerate([*evaluated.labels, ""]):
                images = (own[:, i, j] >= shares[i, j] - 1e-12) & (held[:, i, j] > 0)
                wanted = entry[images[source] if kind == "confusion before" else images]
                opened = whole.entries(ROADS, Cell(kind, name, said))  # type: ignore[arg-type]
                assert set(opened) == set(wanted.tolist()) and bool(opened) == (shares[i, j] > 0)
    for i, name in enumerate(evaluated.labels):
        assert number("class", name) == (counts[1][:, i].sum(axis=1) > 0).sum()
    lost = {one.name: one for one in losses.classes}
    assert set(lost) == {"road", "pavement", "lane marking", "vehicle", "pedestrian"}
    for name, one in lost.items():
        assert number("class", name, only_wrong=True) == one.lost and one.cases >= one.lost
    assert sum(one.lost for one in lost.values()) >= number("wrong")


def test_masks_hold_where_the_segmenter_of_the_checks_finds_them(whole: EvaluationService) -> None:
    evaluated, found = whole.evaluate(ROADS), whole.result(ROADS)
    checks = load_profile("demo").checks
    wanted = checks.own_segmenter()
    assert wanted is not None and evaluated.segmentation is not None
    model, load, cases = ModelUnderTest(wanted), whole._workspace.images.load, found.cases
    said = {sha: model.predict(load(sha)) for sha in {*cases.originals.shas, *cases.generated.shas}}
    images, figure = cases.generated, dict[int, float | None]()
    for at, source in enumerate(images.source.tolist()):
        before, after = (said[sha] for sha in (cases.originals.shas[source], images.shas[at]))
        mask, names = images.masks[at]
        named = {int(number): name for number, name in json.loads(names).items()}
        maps = decode_map(before.class_map), decode_map(after.class_map)
        truth = resized(load(mask), maps[0].size)
        pieces = kept_in_mask(*maps, before.classes, truth, named, PROTECTED_ROAD_CLASSES, ())
        (check,) = [one for one in kept_checks(pieces, checks.bands) if one.name == MASK_KEPT]
        figure[int(cases.table.entry[images.row[at]])] = check.value
    line = float(np.median([value for value in figure.values() if value is not None]))
    strict = checks.model_copy(update={"bands": {MASK_KEPT: Band(failed_below=0.1, passed_from=line)}})
    stricter = EvaluationService(
        whole._profile.model_copy(update={"checks": strict}), whole._workspace, lambda wanted: None
    )
    for service, least in ((whole, checks.bands[MASK_KEPT].passed_from), (stricter, line)):
        kept = {entry for entry, value in figure.items() if value is not None and value >= least}
        assert set(service.entries(ROADS, Cell("kept"))) == kept
    assert 0 < len(kept) < len(images)
    stricter.close()
    kept = set(whole.entries(ROADS, Cell("kept")))
    assert evaluated.segmentation.kept == len(kept) and evaluated.segmentation.miou_where_kept.value is not None
    assert evaluated.unchecked == 0 and not [note for note in evaluated.notes if "which masks still fit" in note]
    # The checking model is no model under test, but Explore finds its predictions.
    assert len(whole.models(STREETS)) == 1
    assert whole._workspace.predictions.latest(images.shas[0], model_key(wanted)) is not None


def test_masks_that_nobody_checked_are_told_and_what_hinders_the_checks_stops_no_evaluation(
    workspace: Workspace, service: EvaluationService
) -> None:
    fill(workspace, 1, road=True)
    cases, load = service.cases(STREETS), service.predicting.load
    checker = load_profile("demo").checks.own_segmenter()
    assert checker is not None

    def without_checker(wanted: UnderTestSettings) -> Any:
        if wanted.file == checker.file:
            raise UserError("Its file is damaged.")
        return load(wanted)

    def counted(done: int, total: int) -> None:
        seen.append((done, total))

    seen = list[tuple[int, int]]()
    service.predicting.load = without_checker
    read = service.read(SEGMENTER, cases, counted)
    assert read.note == "The masks could not be checked: Its file is damaged."
    evaluated = service.evaluate(ROADS)
    assert evaluated.unchecked == 10 and evaluated.segmentation is not None and evaluated.segmentation.kept == 0
    assert "10 masks of test cases are not checked yet: whether they hold is not known." in evaluated.notes
    assert evaluated.segmentation.miou_generated.value is not None
    service.predicting.load = load
    assert service.read(SEGMENTER, cases, counted).note == ""
    assert service.evaluate(ROADS).unchecked == 0 and seen[-1][0] <= seen[-1][1] == 24
    # The checking model cannot check itself.
    itself = EvaluationQuestion(STREETS, checker)
    read_all(service, itself)
    assert service.evaluate(itself).notes.count(ITSELF) == 1
    nobody = service._profile.model_copy(update={"checks": CheckSettings()})
    other = EvaluationService(nobody, workspace, lambda wanted: None)
    assert NOBODY in other.evaluate(ROADS).notes and other.evaluate(ROADS).unchecked == 0
    other.close()


def test_a_mask_of_an_image_that_cannot_be_read_waits_for_no_check(
    workspace: Workspace, service: EvaluationService
) -> None:
    fill(workspace, 1, road=True)
    cases = service.cases(STREETS)
    workspace.images.path(cases.generated.shas[3]).unlink()
    assert service.read(SEGMENTER, cases, lambda done, total: None).note.startswith("1 image could not be read")
    evaluated = service.evaluate(ROADS)
    assert (evaluated.unchecked, evaluated.pending.unreadable) == (0, 1)
    assert evaluated.segmentation is not None and evaluated.segmentation.cases == 9 >= evaluated.segmentation.kept > 0


def test_edits_of_a_segmenter_are_measured_by_right_pixels(whole: EvaluationService) -> None:
    evaluated, found = whole.evaluate(ROADS), whole.result(ROADS)
    assert evaluated.against_control and set(evaluated.edits) == {"edit type", "keyword", "alternative"}
    cases, model, load = found.cases, ModelUnderTest(SEGMENTER), whole._workspace.images.load
    names = list(model.identity.classes)

    def right(sha: str, mask: str) -> float:
        said, true = np.asarray(decode_map(model.predict(load(sha)).class_map)), np.asarray(load(mask))
        return float(np.mean([names[one] for one in said.ravel()] == np.array(SEMANTIC_CLASSES)[true.ravel()]))

    drawn = {
        int(source): right(sha, mask)
        for sha, source, (mask, _) in zip(cases.controls.shas, cases.controls.source, cases.controls.masks, strict=True)
    }
    (weather,) = [one for one in evaluated.edits["edit type"] if one.row.name == "weather"]
    entries = set(whole.entries(ROADS, weather.cell))
    images = cases.generated
    held = list(zip(images.shas, images.masks, images.source.tolist(), images.row.tolist(), strict=True))
    change = [
        right(sha, mask) - drawn[source]
        for sha, (mask, _), source, row in held
        if int(cases.table.entry[row]) in entries
    ]
    assert weather.row.change.value == pytest.approx(np.mean(change)) and weather.row.n == len(entries)
    lost = whole.entries(ROADS, Cell("edit type", "weather", only_wrong=True))
    assert weather.row.newly_wrong == len(lost) / len(entries) and set(lost) <= set(whole.entries(ROADS, Cell("wrong")))
    assert weather.worst and set(weather.worst) <= entries
    assert set(evaluated.thumbnails.values()) <= set(images.shas)


def test_a_version_of_streets_has_the_figures_of_its_images(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 1, road=True)
    sets = workspace.test_sets
    version = sets.get(sets.create("Streets")).versions[-1].number
    of_streets = ImageFilter(facets={"kind": ("segmentation",), "recipe": ("dillema",)})
    held = sets.cases(workspace.catalogue.test_cases(workspace.catalogue.ids(of_streets)))
    sets.add(version, [SetEntry(one.image, source=one.source, test_case=one.id) for one in held])
    of_version = EvaluationQuestion(Subject(version=version), SEGMENTER)
    read_all(service, of_version)
    one, other = service.evaluate(of_version), service.evaluate(ROADS)
    assert one.segmentation is not None and one.segmentation.cases == 10
    assert one.losses == other.losses and one.edits == other.edits and one.answer == other.answer
    for cell in (Cell("wrong"), Cell("class", "road", only_wrong=True), Cell("confusion", "road", "road")):
        assert service.entries(of_version, cell) == service.entries(ROADS, cell)


def test_two_sets_of_a_segmenter_stand_side_by_side(whole: EvaluationService) -> None:
    foggy = ImageFilter(facets={"kind": ("segmentation",), "weather": ("foggy",)})
    pair = whole.evaluate(ROADS), whole.evaluate(EvaluationQuestion(Subject(filter=foggy), SEGMENTER))
    shown = comparison_part(pair, (Place(filter="kind=segmentation"), Place(filter="weather=foggy")))
    losses = [one.losses for one in pair]
    assert losses[0] is not None and losses[1] is not None
    for held in losses:
        for figure in (held.generated, held.reconstructed):  # type: ignore[union-attr]
            assert figure.value is not None and f"<b>{100 * figure.value:.1f} %</b>" in shown
    assert "test cases that lose a class" in shown and "IoU generated less original" in shown
    assert "Which edits hurt, by edit type" in shown and "nan" not in shown.lower()


def test_a_filter_has_the_figures_of_its_images_alone(whole: EvaluationService) -> None:
    foggy = EvaluationQuestion(
        Subject(filter=ImageFilter(facets={"kind": ("classification",), "weather": ("foggy",)})), CLASSIFIER
    )
    evaluated = whole.evaluate(foggy)
    assert evaluated.effectiveness is not None
    of_all = set(whole.entries(BIRDS, Cell("wrong"))) & set(whole.entries(foggy, Cell("generated")))
    assert set(whole.entries(foggy, Cell("wrong"))) == of_all
    assert evaluated.effectiveness.sources == evaluated.subject.sources == len(whole.cases(foggy.subject).controls)


def test_what_is_unmapped_is_told_before_and_a_file_has_the_last_word(whole: EvaluationService) -> None:
    label = whole.cases(OBJECTS).labels[0]
    usual = whole.mapping(BIRDS)
    assert usual is not None and not usual.report.unmapped and not usual.problem
    without = EvaluationQuestion(OBJECTS, CLASSIFIER, f"label,model class\n{label},\n")
    told = whole.mapping(without)
    assert told is not None and [row.label for row in told.report.unmapped] == [label]
    found = whole.evaluate(without).effectiveness
    assert found is not None and found.left_out > 0
    said = f"No class of the model is mapped to “{label}”: images with this label count in no figure."
    assert said in whole.evaluate(without).notes and said not in whole.evaluate(BIRDS).notes
    assert set(whole.entries(without, Cell("left out"))) == set(whole.entries(BIRDS, Cell("class", label)))
    toml = EvaluationQuestion(OBJECTS, CLASSIFIER, f'[labels]\n"{label}" = []\n')
    assert facts_of(whole.evaluate(toml))["figures"] == facts_of(whole.evaluate(without))["figures"]
    with pytest.raises(UserError, match="line 2"):
        whole.mapping(EvaluationQuestion(OBJECTS, CLASSIFIER, "label,model class\nbird\n"))


@pytest.mark.parametrize(("asked", "does"), [(BIRDS, "is wrong on most originals"), (ROADS, "reaches a mIoU of only")])
def test_a_model_that_does_badly_on_most_originals_is_told_to_be_checked(
    workspace: Workspace, service: EvaluationService, asked: EvaluationQuestion, does: str
) -> None:
    """For example, a model with its classes in another order. Its figures alone look like those of a weak model."""
    fill(workspace, 6, road=asked is ROADS, fair=True)
    read_all(service, asked)
    right = service.evaluate(asked)
    assert right.doubt == "" and "Check how" not in str(result_part(right, Links()))
    taken = [(row.label, row.classes[0]) for row in right.mapping.mapped]
    moved = zip([label for label, _ in taken], [*(one for _, one in taken[1:]), taken[0][1]], strict=True)
    lines = [f"{label},{one}" for label, one in moved]
    wrong = service.evaluate(replace(asked, mapping="\n".join(["label,model class", *lines])))
    assert wrong.doubt.startswith(f"The model {does}") and "Check its input (size" in wrong.doubt
    assert str(result_part(wrong, Links())).count("Check its input") == 1
    assert wrong.doubt in file_of(wrong, "markdown").decode()


def test_files_say_the_same_and_hold_no_nan(whole: EvaluationService) -> None:
    for asked in (BIRDS, ROADS):
        evaluated = whole.evaluate(asked)
        files = {kind: file_of(whole.evaluate(asked), kind) for kind in SUFFIXES}
        assert not any(b"nan" in file.lower().split() for kind, file in files.items() if kind != "parquet")
        facts = json.loads(files["json"])
        table = pyarrow.parquet.read_table(io.BytesIO(files["parquet"])).to_pylist()
        lines = list(csv.DictReader(io.StringIO(files["csv"].decode())))
        assert facts == facts_of(evaluated) and len(facts["figures"]) == len(table) == len(lines) > 20
        for figure, row, line in zip(facts["figures"], table, lines, strict=True):
            assert figure == row and (line["value"] == "") == (row["value"] is None)
        assert evaluated.answer in files["markdown"].decode().replace("\\", "")
    evaluated = whole.evaluate(ROADS)
    losses, figures = evaluated.losses, facts_of(evaluated)["figures"]
    assert losses is not None
    said = {(row["part"], row["name"], row["figure"]): row["value"] for row in figures}
    assert said["all", "", "generated images on which it loses a class"] == losses.generated.value
    for table, rows in evaluated.edits.items():
        for one in rows:
            assert said[table, one.row.name, "change of the share of right pixels"] == one.row.change.value
            assert said[table, one.row.name, "loses a class"] == one.row.newly_wrong
    assert all(said["protected", one.name, "lost on generated images"] == one.share for one in losses.classes)


def test_what_a_segmenter_says_later_is_added_to_what_was_held(
    workspace: Workspace, service: EvaluationService
) -> None:
    for seed in (5, 6):
        fill(workspace, 1, road=True, seed=seed)
        assert service.pending(ROADS).left == 12
        read_all(service, ROADS)
        held, anew = service.evaluate(ROADS), service_of(workspace)
        assert service.pending(ROADS).left == 0
        assert facts_of(held) == facts_of(anew.evaluate(ROADS))
        anew.close()
    assert held.segmentation is not None and held.segmentation.sources == 2


def judged(workspace: Workspace, cases: dict[int, str]) -> None:
    """Create a study in which two people gave these answers about the images of these test cases."""
    studies = workspace.studies
    study = studies.create("Birds", rules())
    items = [NewItem(workspace.test_cases.get(case).image_sha, label="bird", test_case=case) for case in cases]
    numbers = dict(zip(studies.add_items(study, items), cases.values(), strict=True))
    studies.start(study)
    for worker in crew(studies, study, 2):
        while (claimed := studies.assignments.claim(study, worker, "item")) is not None:
            vote(studies, claimed, numbers[claimed.item.id])


def test_votes_say_how_many_faults_are_valid(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 6)
    read_all(service, BIRDS)
    before = service.evaluate(BIRDS)
    assert before.validity is None and any(note.startswith("No study has judged") for note in before.notes)
    found, cases = service.result(BIRDS), service.cases(OBJECTS)
    test_case = cases.table.test_case[cases.generated.row]
    wrong, right = (test_case[found.right == standing].tolist() for standing in (WRONG, RIGHT))
    assert len(wrong) >= 8 and len(right) >= 8
    # All wrong images and half of the right ones are judged. Half of the wrong images are found valid.
    answers = {case: "yes" if place % 2 else "no" for place, case in enumerate(wrong)}
    judged(workspace, answers | dict.fromkeys(right[::2], "yes"))
    validity = service.evaluate(BIRDS).validity
    assert validity is not None and validity.judged == len(wrong) + len(right[::2])
    valid = sum(answer == "yes" for answer in answers.values())
    assert validity.by_strata.value == pytest.approx(valid / 60), "all wrong ones are judged: nothing is guessed"
    assert validity.as_measured.value == pytest.approx(len(wrong) / 60)
    assert validity.by_strata.low is not None and validity.by_strata.low < valid / 60
    told = "Images were judged in the study “Birds”."
    assert told in service.evaluate(BIRDS).notes and told in file_of(service.evaluate(BIRDS), "markdown").decode()
    assert "are wrong and valid" in service.evaluate(BIRDS).answer


def test_a_subject_that_says_little_is_told_and_breaks_nothing(
    workspace: Workspace, service: EvaluationService
) -> None:
    with pytest.raises(UserError, match="It has no test case"):
        service.begin(BIRDS)
    run_of(workspace, 1, [10], "bird")
    with pytest.raises(UserError, match="This model is not loaded"):
        service.evaluate(BIRDS)
    read_all(service, BIRDS)
    evaluated = service.evaluate(BIRDS)
    found = evaluated.effectiveness
    assert found is not None and (found.sources, found.cases) == (1, 1)
    assert found.error_generated.why == "no interval, since there is one source only"
    assert evaluated.labels == ("bird",) and not evaluated.against_control and evaluated.validity is None
    assert any("no reconstructions" in note for note in evaluated.notes)
    json.dumps(facts_of(evaluated), allow_nan=False)
    run_of(workspace, 2, [20], "gearbox")
    read_all(service, BIRDS)
    mapping = service.mapping(BIRDS)
    assert mapping is not None and [row.label for row in mapping.report.unmapped] == ["gearbox"]
    assert service.evaluate(BIRDS).effectiveness.left_out == 2  # type: ignore[union-attr]
    only = EvaluationQuestion(Subject(filter=ImageFilter(facets={"class": ("gearbox",)})), CLASSIFIER)
    assert service.mapping(only).problem.startswith("None of the labels is a class")  # type: ignore[union-attr]
    nothing = service.evaluate(only)
    assert "cannot tell" in nothing.answer
    json.dumps(facts_of(nothing), allow_nan=False)


def test_figures_among_the_classes_of_the_labels_say_so(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 3)
    read_all(service, BIRDS)
    found = service.evaluate(replace(BIRDS, among_labels=True))
    classes = len(service.evaluate(BIRDS).labels)
    words = f"choosing among {classes} of its {classes + len(found.mapping.left_over)} classes"
    assert found.mapping.left_over and found.model.endswith(words) and words in found.answer
    for kind in SUFFIXES:
        assert kind in ("csv", "parquet") or words in file_of(found, kind).decode()
    before, after = (one.effectiveness for one in (service.evaluate(BIRDS), found))
    assert before is not None and after is not None
    errors = [one.error_generated.value or 0.0 for one in (before, after)]
    assert after.confusion[1].shares[:, -1].sum() == 0 and errors[1] <= errors[0]


def test_masks_that_are_missing_are_told(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 1, road=True)
    street = Task("segmentation", protected=("road",))
    run = workspace.runs.create(picture(1), street, "demo", "No mask", {})
    workspace.test_cases.append(run, None, made_case(picture(2), task=street))
    read_all(service, ROADS)
    evaluated = service.evaluate(ROADS)
    assert evaluated.segmentation is not None and evaluated.segmentation.cases == 10
    assert "1 of 11 test cases have no mask." in evaluated.notes and not evaluated.pending.left


def test_models_of_one_name_are_told_apart(workspace: Workspace, service: EvaluationService) -> None:
    """For example a file used first with a wrong mean, and then with the right one."""
    fill(workspace, 3)
    read_all(service, BIRDS)
    assert service.evaluate(BIRDS).model == "classifier.safetensors"
    other = replace(BIRDS, model=CLASSIFIER.model_copy(update={"mean": "0.1, 0.1, 0.1", "std": "0.9, 0.9, 0.9"}))
    read_all(service, other)
    titles = {one.title for one in service.models(OBJECTS)}
    assert titles == {
        "classifier.safetensors (mean of the file, std of the file)",
        "classifier.safetensors (mean 0.1, 0.1, 0.1, std 0.9, 0.9, 0.9)",
    }
    pair = service.evaluate(BIRDS), service.evaluate(other)
    assert {one.model for one in pair} == titles, "in answers and reports too"
    page = str(comparison_part(pair, (Place(), Place())))
    assert all(title in page for title in titles)


def test_a_model_of_another_kind_is_refused(workspace: Workspace, service: EvaluationService) -> None:
    run_of(workspace, 1, [10], "bird")
    asked = EvaluationQuestion(OBJECTS, SEGMENTER)
    done = service.work.wait(service.begin(asked).id, 60)
    assert done.state == "failed" and "choose a classifier" in done.error
    with pytest.raises(UserError, match="choose a classifier"):
        service.evaluate(asked)


def test_figures_follow_what_is_read_and_what_is_decided(workspace: Workspace, service: EvaluationService) -> None:
    first, second = run_of(workspace, 1, [10, 11], "bird", accepted=False)
    read_all(service, BIRDS)
    assert service.evaluate(BIRDS).effectiveness.cases == 2  # type: ignore[union-attr]
    run_of(workspace, 2, [20], "bird", accepted=False)
    evaluated = service.evaluate(BIRDS)
    assert evaluated.pending.left == 2 and "2 of 5 images are not read yet: the figures leave them out." in (
        evaluated.notes
    )
    workspace.test_cases.review(first, "accepted")
    good = EvaluationQuestion(Subject(filter=ImageFilter(facets={"review": ("accepted",)})), CLASSIFIER)
    assert service.evaluate(good).effectiveness.cases == 1  # type: ignore[union-attr]
    workspace.test_cases.review(second, "accepted")
    assert service.evaluate(good).effectiveness.cases == 2  # type: ignore[union-attr]


def test_predictions_of_before_there_were_identities_are_used(workspace: Workspace, service: EvaluationService) -> None:
    from services.runs.predictions import model_key

    run_of(workspace, 1, [10, 11], "bird")
    model, asked = ModelUnderTest(CLASSIFIER), BIRDS
    for sha in service.cases(OBJECTS).pictures:
        workspace.predictions.append(sha, model_key(CLASSIFIER), model.predict(workspace.images.load(sha)))
    service.predicting.identify(CLASSIFIER)
    assert service.pending(asked).left == 0
    evaluated = service.evaluate(asked)
    assert evaluated.effectiveness is not None and evaluated.effectiveness.cases == 2
    assert any(note.startswith("Of 3 images only the likeliest classes are kept") for note in evaluated.notes)
    found = service.result(asked)
    says = [model.predict(workspace.images.load(sha)).top[0].label for sha in service.cases(OBJECTS).generated.shas]
    assert found.right.tolist() == [RIGHT if one == "bird" else WRONG for one in says]


def test_by_commands_a_script_reads_the_same(studio: Studio) -> None:
    fill(studio.workspace, 2)
    listed = studio.commands.send("list-models-under-test", {"filter": "kind=classification"})
    (model,) = listed["models"]
    assert listed["subject"]["test_cases"] == 20 and model["from_profile"] and model["predicted"] == 0
    sent = {"filter": "kind=classification", "key": model["key"]}
    work = studio.commands.send("begin-predictions", sent)["work"]
    assert studio.evaluations.work.wait(work, 60).state == "done"
    told = studio.commands.send("show-evaluation", sent)
    assert told == facts_of(studio.evaluations.evaluate(BIRDS))
    (model,) = studio.commands.send("list-models-under-test", {"filter": "kind=classification"})["models"]
    assert model["assumptions"] == told["identity"]["assumptions"]
    assert {"name": "Class names", "value": "11, from the file"} in model["assumptions"]
    with pytest.raises(UserError, match="profile's own model does not use a name"):
        studio.commands.send("show-evaluation", {"filter": "kind=classification", "model": "resnet50"})
    assert studio.commands.send("list-evaluation-subjects", {}) == {"subjects": []}
    for wrong in ({"filter": "like=fog"}, {"key": "none"}, {"source": "file", "file": "/nowhere.safetensors"}):
        with pytest.raises(UserError):
            studio.commands.send("show-evaluation", {**sent, "key": "", **wrong})
    with pytest.raises(Malformed):
        studio.commands.send("show-evaluation", {"source": "pickle"})
