"""Tests for an adapter's assumptions about a model under test: right and stated, or refused before any prediction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.special import log_softmax, softmax
from scipy.stats import entropy

from core.errors import UserError
from core.model_identity import Assumptions, ModelIdentity, Preprocessing
from core.predictions import decode_map
from core.settings import UnderTestSettings
from evaluation.models import ModelUnderTest
from services.evaluation.model_choice import NamesModel, chosen_model
from services.runs.predictions import model_key
from tests.support.model_cases import (
    CLASSES,
    COLOURS,
    MEAN,
    STD,
    ModelServer,
    Step,
    onnx_of_steps,
    picture,
    serving,
    transformers_folder,
    wanted,
)

pytestmark = pytest.mark.slow  # torch, torchvision, timm and transformers are loaded

RED = Image.new("RGB", (48, 40), (255, 0, 0))
BUSY = picture(3)
SOFTMAX: Step = ("Softmax", {"axis": 1}, ())
SIGMOID: Step = ("Sigmoid", {}, ())
HUNDRED: Step = ("Mul", {}, (np.float32(100),))
ONE_BY_ONE: Step = ("Unsqueeze", {}, (np.array([2, 3]),))
SIGMOID_BY_HAND: tuple[Step, ...] = (
    ("Neg", {}, ()),
    ("Exp", {}, ()),
    ("Add", {}, (np.float32(1),)),
    ("Reciprocal", {}, ()),
)


def told(model: ModelUnderTest) -> dict[str, str]:
    return dict(model.identity.assumptions)


def red_as_given() -> np.ndarray:
    """Return the logits of `onnx_of_steps` for a plain red picture: four times (1, -1, -1)."""
    return np.array([4.0, -4.0, -4.0])


# What the values of an ONNX file mean


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ((), "logits"),
        ((ONE_BY_ONE,), "logits"),
        ((("Relu", {}, ()),), "logits"),
        ((SOFTMAX,), "ends in a softmax"),
        ((SOFTMAX, ONE_BY_ONE), "ends in a softmax"),
        ((("LogSoftmax", {"axis": 1}, ()),), "logarithms of probabilities"),
        ((SOFTMAX, HUNDRED), "percentages"),
        ((SOFTMAX, HUNDRED, ONE_BY_ONE), "percentages"),
    ],
)
def test_a_classifier_gives_its_own_probabilities_whatever_it_ends_in(
    tmp_path: Path, steps: tuple[Step, ...], answer: str
) -> None:
    model = ModelUnderTest(onnx_of_steps(tmp_path / "model.onnx", *steps))
    assert model.kind == "classification" and answer in told(model)["Answer"]
    logits = red_as_given()
    own = softmax(np.maximum(logits, 0) if ("Relu", {}, ()) in steps else logits)
    (batch,) = model.predict_many([RED])
    assert batch.probabilities is not None and np.allclose(batch.probabilities, own, atol=2e-3)
    assert batch.predictions[0].top[0].label == "red"


@pytest.mark.parametrize(
    ("steps", "answer"),
    [((), "logits"), ((SOFTMAX,), "ends in a softmax"), ((SOFTMAX, HUNDRED), "percentages")],
)
def test_a_segmenter_is_as_sure_as_it_says_whatever_it_ends_in(
    tmp_path: Path, steps: tuple[Step, ...], answer: str
) -> None:
    model = ModelUnderTest(onnx_of_steps(tmp_path / "model.onnx", *steps, per_pixel=True))
    (batch,) = model.predict_many([RED])
    assert model.kind == "segmentation" and answer in told(model)["Answer"]
    assert batch.doubts[0].entropy == pytest.approx(entropy(softmax(red_as_given())), rel=0.02)
    assert batch.doubts[0].entropy < 0.01, "a plain red picture leaves no doubt"
    assert not np.asarray(decode_map(batch.predictions[0].class_map)).any(), "all of it is red"


@pytest.mark.parametrize(
    ("steps", "per_pixel"),
    [
        ((SIGMOID,), False),
        ((SIGMOID, ONE_BY_ONE), False),
        ((SIGMOID, HUNDRED), False),
        (SIGMOID_BY_HAND, False),
        ((SIGMOID,), True),
        ((("Softmax", {"axis": 2}, ()),), True),
        ((("Softmax", {"axis": 0}, ()),), False),
    ],
)
def test_numbers_that_do_not_choose_one_class_of_all_are_refused(
    tmp_path: Path, steps: tuple[Step, ...], per_pixel: bool
) -> None:
    fits = onnx_of_steps(tmp_path / "model.onnx", *steps, per_pixel=per_pixel)
    with pytest.raises(UserError, match=r"do not add up to 1 over its 3 classes .*must choose one class"):
        ModelUnderTest(fits)


def test_raw_scores_that_all_happen_to_be_small_are_raw_scores(tmp_path: Path) -> None:
    bias = (0.2, 0.5, 0.4)
    model = ModelUnderTest(onnx_of_steps(tmp_path / "model.onnx", scale=0.05, bias=bias))
    (batch,) = model.predict_many([RED])
    own = softmax(np.array([0.05, -0.05, -0.05]) + bias)
    assert batch.probabilities is not None and np.allclose(batch.probabilities, own, atol=1e-3)


@pytest.mark.parametrize("classes", ["tumour", "no tumour, tumour"])
@pytest.mark.parametrize(("steps", "per_pixel"), [((), False), ((SIGMOID,), False), ((SIGMOID,), True)])
def test_a_single_number_for_two_classes_is_refused(
    tmp_path: Path, classes: str, steps: tuple[Step, ...], per_pixel: bool
) -> None:
    fits = onnx_of_steps(tmp_path / "model.onnx", *steps, classes=1, per_pixel=per_pixel)
    with pytest.raises(UserError, match=r"answers one number.*one output for each of the two classes"):
        ModelUnderTest(fits.model_copy(update={"classes": classes}))


def test_one_of_several_outputs_that_fit_is_named(tmp_path: Path) -> None:
    import onnx

    fits = onnx_of_steps(tmp_path / "model.onnx", SOFTMAX)
    held = onnx.load(fits.file)
    held.graph.output.insert(0, onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
    onnx.save(held, fits.file)
    model = ModelUnderTest(fits)
    assert told(model)["Note"] == "It has 2 outputs that fit; “y” was taken, and not “z0”."
    assert "logits" in told(model)["Answer"]


# Pixel values


@pytest.mark.parametrize(
    ("mean", "std", "said"),
    [
        ("123.675, 116.28, 103.53", "58.395, 57.12, 57.375", "pixels from 0 to 255, .*divide each number by 255"),
        ("123.675, 116.28, 103.53", "0.229, 0.224, 0.225", "divide each number by 255"),
        ("0, 0, 0", "255, 255, 255", "values from 0 to 0.00392"),
        ("0.5, 0.5, 0.5", "0.001, 0.001, 0.001", "values from -500 to 500"),
    ],
)
@pytest.mark.parametrize("source", ["onnx", "file"])
def test_a_mean_and_a_std_that_no_model_has_are_refused(
    tmp_path: Path, source: str, mean: str, std: str, said: str
) -> None:
    fits = onnx_of_steps(tmp_path / "model.onnx") if source == "onnx" else checkpoint(tmp_path)
    with pytest.raises(UserError, match=said):
        ModelUnderTest(fits.model_copy(update={"mean": mean, "std": std}))


@pytest.mark.parametrize(("mean", "std"), [("0, 0, 0", "1, 1, 1"), ("0, 0, 0", "0.00392157, 0.00392157, 0.00392157")])
def test_values_from_0_to_1_and_from_0_to_255_can_be_meant(tmp_path: Path, mean: str, std: str) -> None:
    given = {"mean": mean, "std": std}
    values = told(ModelUnderTest(onnx_of_steps(tmp_path / "model.onnx").model_copy(update=given)))["Pixel values"]
    assert values.startswith("0 to 1;" if "1, 1" in std else "0 to 255;")


def test_a_processor_that_takes_a_mean_of_bytes_off_fractions_is_refused(tmp_path: Path) -> None:
    model = transformers_folder(tmp_path)
    config = tmp_path / "preprocessor_config.json"
    held = json.loads(config.read_text())
    config.write_text(json.dumps({**held, "image_mean": [123.7, 116.3, 103.5], "image_std": [58.4, 57.1, 57.4]}))
    with pytest.raises(UserError, match="divide each number by 255"):
        ModelUnderTest(model)


# Size, mean and std of a checkpoint


def checkpoint(folder: Path, name: str = "squeezenet1_1", net: Any = None, **given: str) -> UnderTestSettings:
    """Save a checkpoint of `net`, or of torchvision's architecture `name` with random weights. Return its settings."""
    import torch
    import torchvision

    torch.manual_seed(0)
    net = net if net is not None else torchvision.models.get_model(name, num_classes=3)
    torch.save(net.state_dict(), folder / "model.pt")
    return wanted("file", file=str(folder / "model.pt"), **{"name": name, "classes": ", ".join(CLASSES), **given})


def test_a_size_and_a_mean_that_are_given_for_a_checkpoint_are_used(tmp_path: Path) -> None:
    import torch
    import torchvision
    from torchvision.transforms import v2

    given = {"size": "96x64", "mean": MEAN, "std": STD}
    model, plain = ModelUnderTest(checkpoint(tmp_path, **given)), ModelUnderTest(checkpoint(tmp_path))
    assert model.identity.preprocessing.size == (96, 64) and model.identity.preprocessing.mean == (0.4, 0.5, 0.6)
    assert "96 × 64 pixels" in told(model)["Picture"] and "mean 0.4, 0.5, 0.6" in told(model)["Pixel values"]
    assert model.identity.digest != plain.identity.digest and model.input_picture(BUSY).size == (96, 64)
    net = torchvision.models.squeezenet1_1(num_classes=3)
    net.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    prepare = v2.Compose(
        [
            v2.PILToTensor(),
            v2.Resize((64, 96)),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.25, 0.3]),
        ]
    )
    with torch.inference_mode():
        own = net.eval()(prepare(BUSY)[None])[0].softmax(0).numpy()
    (batch,) = model.predict_many([BUSY])
    assert batch.probabilities is not None and np.allclose(batch.probabilities[0], own, atol=1e-4)


def test_what_a_person_gives_comes_before_what_a_file_says(tmp_path: Path) -> None:
    import torch
    import torchvision
    from safetensors.torch import save_file

    torch.manual_seed(0)
    header = {"architecture": "squeezenet1_1", "classes": json.dumps(CLASSES), "size": "80x64", "mean": f"[{MEAN}]"}
    file = tmp_path / "says.safetensors"
    state = {
        key: value.contiguous() for key, value in torchvision.models.squeezenet1_1(num_classes=3).state_dict().items()
    }
    save_file(state, file, {**header, "std": f"[{STD}]"})
    own = ModelUnderTest(wanted("file", file=str(file))).identity
    assert own.preprocessing.size == (80, 64) and dict(own.assumptions)["Class names"] == "3, from the file"
    given = wanted("file", file=str(file), size="72", std="0.5, 0.5, 0.5", classes="a, b, c")
    identity = ModelUnderTest(given).identity
    assert identity.preprocessing.size == (72, 72) and identity.preprocessing.std == (0.5, 0.5, 0.5)
    assert identity.preprocessing.mean == (0.4, 0.5, 0.6) and identity.classes == ("a", "b", "c")
    assert dict(identity.assumptions)["Class names"] == "3, from the list that was given"


def test_a_network_of_one_size_gets_it_and_refuses_another(tmp_path: Path) -> None:
    import timm

    name = "vit_tiny_patch16_384"
    fits = checkpoint(tmp_path, name, timm.create_model(name, num_classes=3))
    model = ModelUnderTest(fits)
    assert model.identity.preprocessing.size == (384, 384)
    assert {guess.label for guess in model.predict(BUSY).top} == set(CLASSES)
    with pytest.raises(UserError, match=r"cannot take images of 224 × 224 pixels.*Correct the size"):
        ModelUnderTest(fits.model_copy(update={"size": "224"}))


# Which library


def test_an_architecture_of_timm_is_not_lost_to_torchvision(tmp_path: Path) -> None:
    import timm

    from evaluation.adapters.architectures import find_network

    name = "efficientnet_b1"
    plain = checkpoint(tmp_path, name, timm.create_model(name, num_classes=3))
    found = ModelUnderTest(plain).identity
    assert found.name == f"timm:{name}"
    assert dict(found.assumptions)["Note"] == (
        f"torchvision and timm both have an architecture {name}; these weights fit timm's alone."
    )
    named = find_network(plain.model_copy(update={"name": f"timm:{name}"})).identity
    assert named.name == found.name and "Note" not in dict(named.assumptions)
    with pytest.raises(UserError, match=f"does not fit torchvision:{name}"):
        find_network(plain.model_copy(update={"name": f"torchvision:{name}"}))
    with pytest.raises(UserError, match="no classifier or segmenter 'squeezenet1_1' in timm"):
        find_network(plain.model_copy(update={"name": "timm:squeezenet1_1"}))


def test_a_name_of_both_libraries_whose_weights_fit_both_is_told(tmp_path: Path) -> None:
    identity = ModelUnderTest(checkpoint(tmp_path, "resnet18")).identity
    assert identity.name == "resnet18", "as it was called before"
    note = dict(identity.assumptions)["Note"]
    assert "these weights fit both, and torchvision's was taken. Name timm:resnet18 for the other." in note


def test_weights_that_were_trained_of_timms_are_timms_again(tmp_path: Path) -> None:
    import timm
    import torch
    from safetensors.torch import save_file

    from evaluation.adapters.architectures import find_network, header_of, untrained

    name = "resnet18"
    torch.manual_seed(0)
    net = timm.create_model(name, num_classes=3)
    identity = ModelIdentity(name, "hub", "classification", Preprocessing(), CLASSES)
    file = tmp_path / "trained.safetensors"
    save_file(net.state_dict(), file, header_of(identity, "timm"))
    network = find_network(wanted("file", file=str(file)))
    assert isinstance(network.net, timm.models.ResNet) and "crop_pct" in network.identity.preprocessing.more
    again = find_network(wanted("file", file=str(file)))
    assert isinstance(untrained(again, wanted("file", file=str(file))), timm.models.ResNet)
    assert isinstance(untrained(replace(again, identity=identity), wanted("timm", name=name)), timm.models.ResNet)
    # A file trained from such a file still states how its images are prepared.
    further = header_of(again.identity, "file")
    save_file(net.state_dict(), file, further)
    assert find_network(wanted("file", file=str(file))).identity.preprocessing == again.identity.preprocessing
    with pytest.raises(UserError, match=r"timm prepares the images of .*leave “size” empty"):
        find_network(wanted("file", file=str(file), size="96"))


def test_a_tag_that_timm_does_not_have_is_told_with_those_that_it_has() -> None:
    for name in ("resnet18.no_such_tag", "resnet18.a9_in1k"):
        with pytest.raises(UserError, match=rf"no weights '{name[9:]}' for resnet18: it has a1_in1k, a2_in1k"):
            ModelUnderTest(wanted("timm", name=name))
    with pytest.raises(UserError, match="could not be fetched"):  # the tests' HF_HUB_OFFLINE forbids it
        ModelUnderTest(wanted("timm", name="resnet18.a1_in1k"))


# transformers


def configured(folder: Path, name: str, **fields: Any) -> UnderTestSettings:
    """Save a model of transformers, and set other fields in its file `name`. Return the model's settings."""
    model = transformers_folder(folder)
    held = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**held, **fields}))
    return model


@pytest.mark.parametrize(
    ("file", "fields", "said"),
    [
        ("config.json", {"id2label": {"0": "cat", "5": "dog", "2": "fox"}}, "3 classes the numbers 0, 2, 5: number"),
        ("config.json", {"problem_type": "multi_label_classification"}, "does not choose exactly one class"),
        ("preprocessor_config.json", {"size": {"longest_edge": 32}}, "cannot prepare an image of .*Correct the size"),
        ("preprocessor_config.json", {"do_rescale": False}, "no model was trained with such values"),
    ],
)
def test_a_folder_of_transformers_that_cannot_be_meant_is_refused(
    tmp_path: Path, file: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        ModelUnderTest(configured(tmp_path, file, **fields))


def test_a_single_output_of_transformers_is_refused(tmp_path: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTForImageClassification(ViTConfig(**small, image_size=32, patch_size=16, num_labels=1)).save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has 1 class, so its answer would be the same for every image"):
        ModelUnderTest(wanted("transformers", file=str(tmp_path)))


@pytest.mark.parametrize("fields", [{"do_resize": False}, {"size": {"shortest_edge": 32}}])
def test_images_that_a_processor_leaves_at_other_sizes_are_told_with_their_size(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    model = ModelUnderTest(configured(tmp_path, "preprocessor_config.json", **fields))
    assert model.predict(picture(0, (32, 32))).top, "one that needs no scaling is read"
    with pytest.raises(UserError, match=r"images of \d+ × \d+ pixels.*preprocessor_config.json"):
        model.predict(BUSY)


def test_names_that_a_model_has_twice_are_told_and_stay_apart(tmp_path: Path) -> None:
    names = {"0": "door", "1": "door", "2": "wall"}
    model = ModelUnderTest(configured(tmp_path, "config.json", id2label=names, label2id={"door": 1, "wall": 2}))
    assert model.identity.classes == ("door", "door", "wall")
    assert "several of its classes “door”" in told(model)["Note"]


# No given setting is ignored


@pytest.mark.parametrize(
    ("source", "given", "field", "said"),
    [
        ("torchvision", {"size": "256"}, "size", "does not use a size"),
        ("torchvision", {"model": "resnet18", "mean": MEAN}, "mean", "torchvision prepares its images"),
        ("timm", {"model": "resnet18", "std": STD}, "std", "timm prepares its images"),
        ("timm", {"model": "resnet18", "file": "/models/mine.pt"}, "file", "does not use a file"),
        ("transformers", {"model": "a/b", "size": "256"}, "size", "preprocessor_config.json says"),
        (
            "transformers",
            {"model": "a/b", "file": "/models/b"},
            "file",
            "Both a repository, a/b, and a folder, /models/b",
        ),
        ("file", {"file": "/m.pt", "layout": "channels last"}, "layout", "does not use a layout"),
        ("http", {"model": "http://127.0.0.1:9", "mean": MEAN}, "mean", "its server prepares its images"),
        ("profile", {"model": "resnet18"}, "source", "profile's own model does not use a name"),
    ],
)
def test_what_a_source_does_not_read_is_refused_and_not_ignored(
    source: str, given: dict[str, str], field: str, said: str
) -> None:
    with pytest.raises(UserError, match=said) as refused:
        chosen_model(NamesModel.of({"source": source, **given}))
    assert refused.value.field == field
    if source != "profile":
        names = {"model": "address" if source == "http" else "name"}
        plain = {names.get(name, name): value for name, value in given.items()}
        with pytest.raises(UserError, match=said):
            ModelUnderTest(wanted(source, **plain))


def test_a_class_that_is_given_twice_is_refused_whatever_the_source(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    server = ModelServer(card=lambda: (404, b"", {}), answer=lambda _: (404, b"", {}))
    with serving(server):
        models = (
            onnx_of_steps(tmp_path / "model.onnx"),
            checkpoint(tmp_path),
            transformers_folder(tmp_path / "hf"),
            wanted("http", address=server.url),
        )
        for model in models:
            with pytest.raises(UserError, match="class “red” is given twice") as refused:
                ModelUnderTest(model.model_copy(update={"classes": "red, green, red"}))
            assert refused.value.field == "classes"


def test_models_that_are_asked_for_otherwise_are_looked_up_otherwise() -> None:
    for source in ("transformers", "http", "timm", "file"):
        plain = wanted(source, name="one/model")
        assert model_key(plain.model_copy(update={"classes": "a, b"})) != model_key(plain)
    file = wanted("file", name="resnet18", file="/m.pt")
    keys = {model_key(file.model_copy(update=one)) for one in ({}, {"size": "96"}, {"mean": MEAN}, {"std": STD})}
    assert len(keys) == 4


# Messages about assumptions


def test_a_picture_is_shown_as_the_model_gets_it(tmp_path: Path) -> None:
    image = Image.new("RGB", (90, 30), (255, 0, 0))
    image.paste((0, 0, 255), (45, 0, 90, 30))
    (tmp_path / "hf").mkdir()
    for model in (
        onnx_of_steps(tmp_path / "model.onnx"),
        transformers_folder(tmp_path / "hf"),
        checkpoint(tmp_path, size="32", mean=MEAN, std=STD),
    ):
        shown = ModelUnderTest(model).input_picture(image)
        assert shown.size == (32, 32)
        pixels = np.asarray(shown).astype(int)
        assert abs(pixels[16, 4] - (255, 0, 0)).max() <= 2 and abs(pixels[16, 28] - (0, 0, 255)).max() <= 2


def test_a_crop_is_seen_and_said(tmp_path: Path) -> None:
    import timm
    import torch
    from safetensors.torch import save_file

    name, file = "mobilenetv3_small_050", tmp_path / "trained.safetensors"
    torch.manual_seed(0)
    header = {"architecture": name, "classes": json.dumps(CLASSES), "prepared_by": "timm"}
    save_file(timm.create_model(name, num_classes=3).state_dict(), file, header)
    model = ModelUnderTest(wanted("file", file=str(file)))
    assert told(model)["Picture"] == "shorter side scaled to 256 pixels, then the middle 224 × 224 taken"
    image = Image.new("RGB", (900, 300), (255, 0, 0))
    image.paste((0, 0, 255), (300, 0, 600, 300))
    assert abs(np.asarray(model.input_picture(image)).astype(int) - (0, 0, 255)).max() <= 4, "the sides are cut off"


def test_a_server_is_sent_the_image_as_it_is() -> None:
    card = {"classes": list(COLOURS)}
    with serving(ModelServer(card=lambda: (200, card, {}), answer=lambda _: (404, b"", {}))) as server:
        model = ModelUnderTest(wanted("http", address=server.url))
    assert told(model) == {
        "Picture": "sent as it is; the server prepares it",
        "Answer": "probabilities, used as the server sends them",
        "Class names": "3, from the server",
    }
    assert np.array_equal(np.asarray(model.input_picture(BUSY)), np.asarray(BUSY))


def test_what_is_assumed_does_not_make_another_model_unless_it_answers_otherwise() -> None:
    prepared = {"size": [32, 32], "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear", "more": "squeezed"}
    plain = {
        "name": "ONNX",
        "weights": "sha256:1",
        "kind": "segmentation",
        "preprocessing": prepared,
        "classes": ["a", "b"],
    }
    before = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    def digest(output: Any, kind: Any = "segmentation") -> str:
        shown = Preprocessing(
            (32, 32), (0.5,) * 3, (0.5,) * 3, "bilinear", "squeezed", Assumptions("x", (0, 1), output)
        )
        return ModelIdentity("ONNX", "sha256:1", kind, shown, ("a", "b")).digest

    assert digest("logits") == digest("log softmax") == digest("") == before, "as version 0.1 called it"
    assert len({digest("logits"), digest("softmax"), digest("percentages")}) == 3
    assert digest("softmax", "classification") == digest("logits", "classification")


def test_a_log_softmax_is_what_scipy_calls_it(tmp_path: Path) -> None:
    model = ModelUnderTest(onnx_of_steps(tmp_path / "model.onnx", ("LogSoftmax", {"axis": 1}, ()), per_pixel=True))
    (batch,) = model.predict_many([RED])
    own = np.exp(log_softmax(red_as_given()))
    assert batch.doubts[0].gini == pytest.approx(1 - (own**2).sum(), rel=0.02)
