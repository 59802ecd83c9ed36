"""Tests for models under test: found by name or in a file, refused in one sentence, and their predictions measured."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.masks import UNLABELLED, NamedMask, colour, numbers_of
from core.predictions import LARGEST_MAP, ClassFigures, Guess, Prediction, coloured_map, decode_map, encode_map
from core.settings import UnderTestSettings
from core.thresholds import Band
from core.types import Task
from evaluation.answers import Numbers, pairs_of_images, pairs_of_pixels
from evaluation.metrics import class_figures, hold, iou, kept_checks, kept_in_mask, mask_check
from evaluation.outcomes import no_class_words, outcome_of

PROTECTED = ("road", "vehicle")


def halves(left: int, right: int, at: int = 8, size: tuple[int, int] = (16, 10)) -> Image.Image:
    pixels = np.full((size[1], size[0]), right, np.uint8)
    pixels[:, :at] = left
    return Image.fromarray(pixels)


@pytest.mark.parametrize(
    ("road", "pavement", "standing", "words"),
    [
        ((0.9, 0.9), (0.8, 0.75), "right", "model finds what is protected"),
        ((0.9, 0.6), (0.12, 0.1), "fails here", "model fails here: loses road"),
        ((0.9, 0.85), (0.12, 0.1), "wrong before too", "model misses pavement before and after"),
        ((0.9, 0.85), (0.4, 0.2), "wrong before too", "model misses pavement before and after"),
        ((0.9, 0.85), (0.4, 0.7), "right only here", "model finds pavement here alone"),
        ((None, None), (None, 0.3), "cannot tell", "model knows nothing that is protected"),
    ],
)
def test_a_segmenter_finds_what_is_protected_only_where_it_does(
    road: tuple[float | None, float | None], pavement: tuple[float | None, float | None], standing: str, words: str
) -> None:
    """A class that the segmenter misses on the source already does not count as found, although it fell no further."""
    figures = (ClassFigures("road", *road), ClassFigures("pavement", *pavement))
    seen = Prediction("segmentation", "m")
    outcome = outcome_of(Task("segmentation", protected=PROTECTED), seen, seen, figures, masked=True)
    assert (outcome.standing, outcome.words) == (standing, words)


@pytest.mark.slow  # torchvision is loaded
def test_a_classifier_is_right_by_the_classes_that_a_label_is_mapped_to() -> None:
    """Labels are mapped as in evaluations. By words alone, of ImageNet's birds only the “crane bird” would count as
    a bird.
    """
    from torchvision.models import ResNet50_Weights

    classes = tuple(ResNet50_Weights.DEFAULT.meta["categories"])

    def outcome(label: str, then: str, now: str) -> tuple[str, str]:
        guesses = [Prediction("classification", "m", (Guess(name, 0.9),)) for name in (then, now)]
        found = outcome_of(Task("classification", label=label), guesses[0], guesses[1], None, False, classes)
        return found.standing, found.words

    assert outcome("bird", "goldfinch", "robin") == ("right", "model right: robin 0.90")
    assert outcome("boat", "canoe", "robin")[0] == "fails here"
    cannot = "cannot tell", "model has no class for “person”: bow tie → suit 0.90"
    assert outcome("person", "bow tie", "suit") == cannot
    assert outcome("crane", "crane", "crane")[0] == "cannot tell", "a bird or a machine"
    assert "can mean" in no_class_words("crane", classes) and no_class_words("bird", classes) == ""
    assert no_class_words("person", ()) == "", "its classes are not known"


def test_a_class_map_survives_being_kept() -> None:
    kept = encode_map(halves(0, 1))
    assert np.array_equal(np.asarray(decode_map(kept)), np.asarray(halves(0, 1)))
    with Image.open(io.BytesIO(coloured_map(kept))) as picture:
        assert picture.convert("RGB").getpixel((0, 0)) == colour(0)
        assert picture.convert("RGB").getpixel((picture.width - 1, 0)) == colour(1)


def test_a_large_class_map_is_kept_smaller() -> None:
    kept = decode_map(encode_map(halves(3, 7, 600, (1200, 300))))
    assert max(kept.size) == LARGEST_MAP and set(np.unique(np.asarray(kept))) == {3, 7}


def test_iou_counts_pixels_of_either_and_of_both() -> None:
    assert iou(halves(1, 0, 8), halves(1, 0, 8), (1,), (1,)) == 1.0
    assert iou(halves(1, 0, 8), halves(1, 0, 4), (1,), (1,)) == 0.5
    assert iou(halves(1, 0), halves(1, 0), (5,), (5,)) is None
    assert iou(halves(1, 0, 8), halves(1, 0, 16, (32, 20)), (1,), (1,)) == 1.0, "sizes are made alike"


def test_classes_stand_for_what_is_protected() -> None:
    classes = ("road", "lane marking", "car", "bus", "person")
    assert numbers_of("road", classes) == (0,), "a lane marking is no road where there is a road"
    assert numbers_of("vehicle", classes) == (2, 3) and numbers_of("pedestrian", classes) == (4,)
    assert numbers_of("vehicle", {7: "vehicle", 9: "car"}) == (7,)
    assert numbers_of("sky", classes) == ()


def test_figures_against_a_mask_and_without_one() -> None:
    mask, classes = halves(1, 2), ("sky", "road", "vehicle")
    named = NamedMask(mask, {1: "road", 2: "vehicle"})
    same = class_figures(mask, mask, classes, PROTECTED, named)
    assert [(figure.name, figure.source, figure.generated) for figure in same] == [
        ("road", 1.0, 1.0),
        ("vehicle", 1.0, 1.0),
    ]
    lost = class_figures(mask, halves(1, 0), classes, PROTECTED, named)
    assert [figure.dropped for figure in lost] == [False, True]
    moved = class_figures(mask, halves(1, 2, 4), classes, PROTECTED)
    assert [(figure.name, figure.generated) for figure in moved] == [("road", 0.5), ("vehicle", pytest.approx(8 / 12))]
    assert class_figures(mask, mask, ("a", "b", "c"), PROTECTED, NamedMask(mask, {1: "road"})) == ()


def wanted(**given: str) -> UnderTestSettings:
    return UnderTestSettings.model_validate({"source": "file", **given})


def load(settings: UnderTestSettings) -> Prediction:
    from evaluation.models import ModelUnderTest

    picture = Image.effect_noise((60, 40), 60).convert("RGB")
    return ModelUnderTest(settings).predict(picture)


@pytest.mark.slow  # torchvision and timm are loaded
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mobilenet_v3_small", "classification"),
        ("test_resnet", "classification"),
        ("lraspp_mobilenet_v3_large", "segmentation"),
        ("small-unet", "segmentation"),
    ],
)
def test_any_architecture_of_torchvision_or_timm_from_a_checkpoint(tmp_path: Path, name: str, kind: str) -> None:
    import torch

    from evaluation.adapters.architectures import _empty

    net, _ = _empty(name, 3, auxiliary=False)
    file = tmp_path / "model.pt"
    torch.save({"state_dict": {f"module.{key}": value for key, value in net.state_dict().items()}}, file)
    prediction = load(wanted(name=name, file=str(file), classes="bird, boat, house"))
    assert prediction.kind == kind
    if kind == "classification":
        assert {guess.label for guess in prediction.top} == {"bird", "boat", "house"}
        assert sum(guess.probability for guess in prediction.top) == pytest.approx(1, abs=1e-3)
        assert [g.probability for g in prediction.top] == sorted((g.probability for g in prediction.top), reverse=True)
    else:
        assert decode_map(prediction.class_map).size == (60, 40) and prediction.classes == ("bird", "boat", "house")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"file": "/nowhere/model.pt"}, "There is no file /nowhere/model.pt"),
        ({"file": ""}, "Give the path"),
        ({"source": "torchvision", "name": "resnet5"}, "perhaps you mean"),
        ({"source": "torchvision", "name": "fasterrcnn_resnet50_fpn"}, "no classifier or segmenter"),
        ({"source": "timm", "name": "rezznet50"}, "in timm"),
        ({"source": "timm", "name": ""}, "Give the name"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_found_is_said_in_a_sentence(given: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load(wanted(**given))


@pytest.mark.slow
def test_files_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    import pickle

    import torch
    from safetensors.torch import save_file

    for name in ("letter.safetensors", "letter.pt"):
        (tmp_path / name).write_bytes(b"dear reader, this is no model at all")
        with pytest.raises(UserError, match=r"cannot be read|more than weights"):
            load(wanted(file=str(tmp_path / name), name="resnet18", classes="a, b"))
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(print))
    with pytest.raises(UserError, match=r"possibly a program|cannot be read"):
        load(wanted(file=str(tmp_path / "evil.pt"), name="resnet18", classes="a, b"))
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(UserError, match="contains no weights"):
        load(wanted(file=str(tmp_path / "empty.pt"), name="resnet18", classes="a, b"))
    save_file({"fc.weight": torch.zeros(2, 2)}, tmp_path / "bare.safetensors")
    bare = str(tmp_path / "bare.safetensors")
    with pytest.raises(UserError, match="does not say its architecture"):
        load(wanted(file=bare))
    with pytest.raises(UserError, match="does not say its classes"):
        load(wanted(file=bare, name="resnet18"))
    with pytest.raises(UserError, match="does not fit resnet18 with 2 classes"):
        load(wanted(file=bare, name="resnet18", classes="a, b"))


def test_pixels_without_a_class_do_not_count() -> None:
    mask, classes = halves(1, 255), ("sky", "road")
    everywhere = halves(1, 1)
    (road,) = class_figures(mask, everywhere, classes, PROTECTED, NamedMask(mask, {1: "road"}))
    assert (road.source, road.generated) == (1.0, 1.0), "what is beyond the mask may be road"


def test_a_model_of_its_own_tells_which_thing_is_gone() -> None:
    """One of two cars is gone. Most of the class is still found, and the check reports the missing part."""
    mask = np.zeros((40, 40), np.uint8)
    mask[2:22, 2:22], mask[30:36, 30:36] = 1, 1
    seen, gone = mask.copy(), mask.copy()
    gone[30:36, 30:36] = 0
    images = [Image.fromarray(pixels) for pixels in (seen, gone, mask)]
    kept = kept_in_mask(images[0], images[1], ("sky", "car"), images[2], {1: "vehicle"}, ("vehicle",), ("vehicle",))
    whole, things = kept_checks(kept, {})
    assert (whole.name, whole.outcome) == ("mask kept", "passed")
    assert (things.name, things.outcome, things.value) == ("things kept", "failed", 0.0) and "vehicle" in things.note
    blind = kept_in_mask(images[1], images[1], ("sky", "car"), images[2], {1: "vehicle"}, ("vehicle",), ("vehicle",))
    assert [check.outcome for check in kept_checks(blind, {})] == ["passed", "cannot tell"]


@pytest.mark.slow
def test_masks_of_many_images_hold_where_the_check_of_each_passes() -> None:
    from scipy import sparse

    chance, sides = np.random.default_rng(8), (24, 30)
    classes, named = (
        ("sky", "road", "car", "truck"),
        {0: "sky", 1: "road", 2: "vehicle", 3: "water", UNLABELLED: "nothing"},
    )
    protected, bands = ("road", "vehicle", "water"), {"mask kept": Band(failed_below=0.2, passed_from=0.6)}
    counted: dict[bool, list[tuple[Numbers, Numbers, Numbers]]] = {True: [], False: []}
    outcomes = list[str]()
    for number in range(200):
        mask = chance.choice([0, 1, 2, 3, UNLABELLED], sides, p=[0.3, 0.3, 0.2, 0.1, 0.1]).astype(np.uint8)
        if number % 4 == 0:
            mask[mask == 2] = 0  # no vehicle, except for one pixel
            mask[0, 0] = 2
        pair = list[Image.Image]()
        for is_source, wrong in ((True, chance.uniform(0, 0.6)), (False, chance.uniform(0, 0.6))):
            said = np.where(mask == 2, chance.integers(2, 4, sides), np.where(mask > 3, 0, mask)).astype(np.uint8)
            said = np.where(chance.random(sides) < wrong, chance.integers(0, 4, sides), said).astype(np.uint8)
            pair.append(Image.fromarray(said))
            told = Prediction("segmentation", "a checker", classes=classes, class_map=encode_map(pair[-1]))
            counted[is_source].append(pairs_of_pixels(Image.fromarray(mask), told))
        kept = kept_in_mask(pair[0], pair[1], classes, Image.fromarray(mask), named, protected, ())
        outcomes.append({one.name: one.outcome for one in kept_checks(kept, bands)}["mask kept"])
    sources, images = (
        sparse.csr_array(sparse.vstack([pairs_of_images(*held, [len(held[0])]) for held in one]))
        for one in (counted[True], counted[False])
    )
    found = hold(sources, images, classes, named, protected, bands)
    assert found.tolist() == [outcome == "passed" for outcome in outcomes]
    assert set(outcomes) == {"passed", "failed", "cannot tell"}
    assert not hold(sources, images, classes, named, ("water", "fence"), bands).any(), "what nobody knows holds nothing"


def test_what_stands_around_and_is_gone_is_told_unless_it_was_to_go() -> None:
    """One of two houses is gone, and no protected class is. A shed is too small to be reported."""
    mask = np.zeros((40, 40), np.uint8)
    mask[2:12, 2:12], mask[2:12, 25:35], mask[20:22, 30:32], mask[30:] = 2, 2, 2, 1
    gone = mask.copy()
    gone[2:12, 25:35], gone[20:22, 30:32] = 0, 0
    named = {0: "sky", 1: "road", 2: "building", UNLABELLED: "nothing"}
    seen, found, whole = (Image.fromarray(pixels) for pixels in (mask, gone, mask))

    def checks(result: Image.Image, *edited: str) -> dict[str, str]:
        kept = kept_in_mask(seen, result, ("sky", "road", "building"), whole, named, ("road",), (), edited)
        return {check.name: f"{check.outcome} {check.note}".strip() for check in kept_checks(kept, {})}

    assert checks(seen) == {"mask kept": "passed", "surroundings kept": "passed"}
    assert checks(found)["mask kept"] == "passed"
    assert checks(found)["surroundings kept"].startswith("failed A piece of the class “building”")
    assert checks(found, "brick houses")["surroundings kept"] == "passed", "the houses were to become something else"


def test_the_check_of_a_mask_is_the_mean_over_the_classes() -> None:
    fine = mask_check((ClassFigures("road", 0.9, 0.9), ClassFigures("vehicle", 0.7, 0.5)))
    assert fine is not None and fine.passed and fine.value == pytest.approx(0.7) and not fine.note
    lost = mask_check((ClassFigures("road", 0.9, 0.9), ClassFigures("vehicle", 0.7, 0.1)))
    assert lost is not None and "0.80" in lost.note and "0.50" in lost.note
    assert lost.outcome == "cannot tell", "the model under test fails, or the image is bad: it cannot say which"
    weak = mask_check((ClassFigures("road", 0.2, 0.2),))
    assert weak is not None and weak.outcome == "cannot tell", "a model that knew no better before vouches for nothing"
    assert mask_check(()) is None
