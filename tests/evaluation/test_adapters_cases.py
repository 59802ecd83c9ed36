"""Models under test as users have them: unusual ONNX files, folders of transformers, checkpoints and names.

Each is read correctly, or refused in one sentence.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax

from core.errors import UserError
from core.settings import UnderTestSettings
from evaluation.models import ModelUnderTest
from tests.support.model_cases import CLASSES, COLOURS, picture, transformers_folder, wanted

pytestmark = pytest.mark.slow  # torch and transformers are loaded

RED = Image.new("RGB", (48, 64), (200, 30, 30))
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
Change = Callable[[dict[str, Any]], object]


def onnx_case(
    folder: Path,
    shape: Sequence[str | int],
    half: bool = False,
    bytes_: bool = False,
    last: bool = False,
    argmax: str = "",
) -> UnderTestSettings:
    """Write an ONNX model whose logits are four times the mean of each channel. With `argmax` "pixels" it returns
    the class of each pixel, with "image" that of the image. Return its settings.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    number = np.float16 if half else np.float32
    axes = np.array([1, 2] if last else [2, 3])
    held = {"axes": axes, "weights": 4 * np.eye(3, dtype=number), "bias": np.zeros(3, number)}
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    nodes = [helper.make_node("Cast", ["x"], ["image"], to=kind)]
    if argmax != "pixels":
        nodes.append(helper.make_node("ReduceMean", ["image", "axes"], ["means"], keepdims=0))
        nodes.append(helper.make_node("MatMul", ["means", "weights"], ["product"]))
        nodes.append(helper.make_node("Add", ["product", "bias"], ["y"]))
    if argmax:
        nodes.append(helper.make_node("ArgMax", ["image" if argmax == "pixels" else "y"], ["said"], axis=1, keepdims=0))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8 if bytes_ else kind, list(shape))],
        [helper.make_tensor_value_info("said" if argmax else "y", TensorProto.INT64 if argmax else kind, None)],
        [numpy_helper.from_array(values, name) for name, values in held.items()],
    )
    file = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    given = {"classes": ", ".join(COLOURS), "mean": "0.485, 0.456, 0.406", "std": "0.229, 0.224, 0.225"}
    return wanted("onnx", file=str(file), **given)


@pytest.mark.parametrize(
    ("how", "given"),
    [
        ({"shape": ("n", 3, 32, 32)}, {}),
        ({"shape": ("n", "c", "h", "w")}, {"size": "32"}),
        ({"shape": (-1, 3, -1, -1)}, {"size": "32"}),
        ({"shape": (2, 3, 32, 32)}, {}),
        ({"shape": ("n", 3, 32, 32), "half": True}, {}),
        ({"shape": (1, 32, 32, 3), "last": True}, {"layout": "channels last"}),
    ],
)
def test_red_is_red_whatever_the_form_of_an_onnx_file(
    tmp_path: Path, how: dict[str, Any], given: dict[str, str]
) -> None:
    model = ModelUnderTest(onnx_case(tmp_path, **how).model_copy(update=given))
    (batch,) = model.predict_many([RED, picture(0), RED])
    own = softmax(4 * (np.array([200, 30, 30]) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225))
    assert batch.probabilities is not None and np.allclose(batch.probabilities[[0, 2]], own, atol=0.01)
    assert batch.predictions[0].top[0].label == "red"


@pytest.mark.parametrize(
    ("how", "given", "said"),
    [
        ({"shape": ("n", "c", "h", "w")}, {}, "images of any size: give the size to which images are scaled"),
        ({"shape": (1, 32, 32, 3), "last": True}, {}, "choose channels last as layout"),
        ({"shape": ("n", "h", "w", "c"), "last": True}, {"size": "32"}, "Correct the size and layout"),
        ({"shape": (1, 3, 32, 32), "bytes_": True}, {}, "export it with a single floating-point input"),
        ({"shape": ("n", 3, 32, 32), "argmax": "image"}, {}, "which does not fit 3 classes"),
        ({"shape": ("n", 3, 32, 32), "argmax": "pixels"}, {}, "which does not fit 3 classes"),
        ({"shape": ("n", 3, 32, 32)}, {"classes": '"red, crimson", green, blue'}, "which does not fit 4 classes"),
    ],
)
def test_an_onnx_file_of_another_form_is_refused(
    tmp_path: Path, how: dict[str, Any], given: dict[str, str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        ModelUnderTest(onnx_case(tmp_path, **how).model_copy(update=given))


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    transformers_folder(folder)
    return folder


def changed(path: Path, change: Change) -> None:
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


def numbered(names: Mapping[str, str]) -> Change:
    return lambda held: held.update(
        id2label=dict(names), label2id={name: int(number) for number, name in names.items()}
    )


def old_extractor(held: dict[str, Any]) -> None:
    held.pop("image_processor_type", None)
    held["feature_extractor_type"] = "ViTFeatureExtractor"


@pytest.mark.parametrize(
    ("config", "processor", "classes"),
    [
        (numbered({"0": "281", "1": "282", "2": "283"}), None, ("281", "282", "283")),
        (numbered({"2": "fox", "0": "cat", "1": "dog"}), None, ("cat", "dog", "fox")),
        (
            lambda held: (held.pop("id2label"), held.pop("label2id"), held.update(num_labels=3)),
            None,
            "LABEL_0 LABEL_1 LABEL_2",
        ),
        (None, lambda held: held.update(size=32), CLASSES),
        (None, old_extractor, CLASSES),
    ],
)
def test_classes_of_a_folder_belong_to_their_outputs(
    tmp_path: Path, vit: Path, config: Change | None, processor: Change | None, classes: tuple[str, ...] | str
) -> None:
    plain = ModelUnderTest(wanted("transformers", file=str(vit)))
    folder = Path(shutil.copytree(vit, tmp_path / "model"))
    if config is not None:
        changed(folder / "config.json", config)
    if processor is not None:
        changed(folder / "preprocessor_config.json", processor)
    model = ModelUnderTest(wanted("transformers", file=str(folder)))
    assert model.identity.classes == (tuple(classes.split()) if isinstance(classes, str) else classes)
    (batch,), (own,) = model.predict_many([RED]), plain.predict_many([RED])
    assert batch.probabilities is not None and own.probabilities is not None
    assert np.allclose(batch.probabilities, own.probabilities, atol=1e-5)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_of_half_precision_say_the_same(tmp_path: Path, vit: Path, kind: str) -> None:
    import torch
    from transformers import AutoModelForImageClassification

    folder = Path(shutil.copytree(vit, tmp_path / "model"))
    net = AutoModelForImageClassification.from_pretrained(vit)
    net.to(getattr(torch, kind)).save_pretrained(folder)
    model = ModelUnderTest(wanted("transformers", file=str(folder)))
    (batch,), (own,) = (
        model.predict_many([RED]),
        ModelUnderTest(wanted("transformers", file=str(vit))).predict_many([RED]),
    )
    assert batch.probabilities is not None and own.probabilities is not None
    assert np.allclose(batch.probabilities, own.probabilities, atol=0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda folder: changed(folder / "config.json", lambda held: held.update(id2label={"cat": 0})),
            "invalid literal",
        ),
        (lambda folder: changed(folder / "config.json", lambda held: held.pop("architectures")), "of no stated kind"),
        (lambda folder: (folder / "model.safetensors").write_text(LFS), "cannot be loaded by transformers"),
    ],
)
def test_a_folder_that_is_no_such_model_is_refused(
    tmp_path: Path, vit: Path, change: Callable[[Path], object], said: str
) -> None:
    folder = Path(shutil.copytree(vit, tmp_path / "model"))
    change(folder)
    with pytest.raises(UserError, match=said):
        ModelUnderTest(wanted("transformers", file=str(folder)))


def test_a_file_of_a_folder_is_not_the_folder(vit: Path) -> None:
    with pytest.raises(UserError, match=r"There is no folder .*config\.json"):
        ModelUnderTest(wanted("transformers", file=str(vit / "config.json")))


def prefixed(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": values for name, values in state.items()}


@pytest.mark.parametrize(
    ("held", "given", "said"),
    [
        (lambda net: net.state_dict(), {}, ""),
        (lambda net: {name: values.half() for name, values in net.state_dict().items()}, {}, ""),
        (
            lambda net: {"state_dict": prefixed("model.", net.state_dict()), "epoch": 3},
            {},
            "does not fit squeezenet1_1",
        ),
        (lambda net: prefixed("_orig_mod.", net.state_dict()), {}, "does not fit squeezenet1_1"),
        (lambda net: {"model": None, "ema": net.state_dict(), "epoch": 3}, {}, "contains no weights"),
        (lambda net: {"state_dict": net.state_dict(), "best": np.float64(0.9)}, {}, "more than weights"),
        (lambda net: {"state_dict": net.state_dict(), "args": argparse.Namespace(lr=1)}, {}, "more than weights"),
        (lambda net: net, {}, "more than weights"),
        (
            lambda net: net.state_dict(),
            {"classes": "cat, dog"},
            "does not fit squeezenet1_1 with 2 classes: 2 weights have another shape, such as classifier.1.bias. Give",
        ),
        (lambda net: net.state_dict(), {"name": "SqueezeNet1_1"}, "perhaps you mean squeezenet1_1"),
    ],
)
def test_a_checkpoint_is_read_or_refused(
    tmp_path: Path, held: Callable[[Any], object], given: dict[str, str], said: str
) -> None:
    import torch
    import torchvision

    torch.manual_seed(0)
    file = tmp_path / "model.pt"
    torch.save(held(torchvision.models.squeezenet1_1(num_classes=3)), file)
    model = wanted("file", **{"file": str(file), "name": "squeezenet1_1", "classes": "cat, dog, fox", **given})
    if said:
        with pytest.raises(UserError, match=said):
            ModelUnderTest(model)
    else:
        assert {guess.label for guess in ModelUnderTest(model).predict(RED).top} == {"cat", "dog", "fox"}


def test_a_torchscript_file_is_told_as_that(tmp_path: Path) -> None:
    import torch

    file = tmp_path / "model.pt"
    torch.jit.script(torch.nn.Linear(2, 2)).save(file)
    with pytest.raises(UserError, match="is a TorchScript file, which contains a program"):
        ModelUnderTest(wanted("file", file=str(file), name="squeezenet1_1", classes="cat, dog, fox"))


def test_a_pointer_of_git_lfs_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "lfs.safetensors").write_text(LFS)
    with pytest.raises(UserError, match="cannot be read as a checkpoint"):
        ModelUnderTest(wanted("file", file=str(tmp_path / "lfs.safetensors"), name="resnet18", classes="a, b"))


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("timm", "hf-hub:timm/resnet18.a1_in1k", "There is no classifier or segmenter .* in timm"),
        ("timm", "hf_hub:timm/resnet18.a1_in1k", "There is no classifier or segmenter .* in timm"),
        ("timm", "timm/resnet18.a1_in1k", "There is no classifier or segmenter .* in timm"),
        ("timm", "vit_tiny_patch16_18x2_224", "perhaps you mean vit_tiny_patch16_224"),
        ("timm", "ResNet18", "perhaps you mean resnet18"),
        ("torchvision", "ResNet18_Weights.IMAGENET1K_V1", "look the name up"),
        ("torchvision", "resnet-18", "perhaps you mean resnet18"),
        ("torchvision", "quantized_resnet18", "perhaps you mean resnet18"),
    ],
)
def test_a_name_that_is_nearly_right_helps_on(source: str, name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        ModelUnderTest(wanted(source, name=name))
