"""Tests for every kind of model under test on many images at once: results as for each image alone, batches,
refusals.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.predictions import decode_map
from core.settings import UnderTestSettings
from evaluation.adapters.base import doubt
from evaluation.models import AHEAD, ModelUnderTest
from tests.support.model_cases import (
    CLASSES,
    MEAN,
    STD,
    onnx_file,
    onnx_that_says_all,
    picture,
    small_net,
    transformers_folder,
    wanted,
)

pytestmark = pytest.mark.slow  # torch and transformers are loaded

SIZES = ((60, 40), (40, 60), (90, 30), (60, 40), (700, 350), (60, 40), (33, 61))
IMAGES = [picture(seed, size) for seed, size in enumerate(SIZES)]


def checkpoint(folder: Path, kind: str = "classification", seed: int = 0) -> UnderTestSettings:
    import torch

    from evaluation.adapters.architectures import _empty

    name = "squeezenet1_1" if kind == "classification" else "small-unet"
    torch.manual_seed(seed)
    net, _ = _empty(name, len(CLASSES), auxiliary=False)
    if kind == "classification":
        net.classifier[1].weight.data *= 100  # so that the predictions differ between images
    torch.save(net.state_dict(), folder / "model.pt")
    return wanted("file", file=str(folder / "model.pt"), name=name, classes=", ".join(CLASSES))


def small_model(folder: Path, which: str) -> UnderTestSettings:
    source, _, rest = which.partition(" ")
    kind = "segmentation" if "segmentation" in rest else "classification"
    if source == "checkpoint":
        return checkpoint(folder, kind)
    if source == "transformers":
        return transformers_folder(folder, kind)
    return onnx_file(folder / "model.onnx", kind, batch=int("fixed" in rest), last="last" in rest)


@pytest.mark.parametrize(
    "which",
    [
        "checkpoint",
        "checkpoint segmentation",
        "transformers",
        "transformers segmentation",
        "onnx",
        "onnx fixed",
        "onnx last",
        "onnx segmentation",
        "onnx segmentation fixed last",
    ],
)
def test_an_image_alone_and_among_others_gets_the_same_answer(tmp_path: Path, which: str) -> None:
    model = ModelUnderTest(small_model(tmp_path, which))
    alone = [model.predict(image) for image in IMAGES]
    model.at_once = 3
    batches = list(model.predict_many(IMAGES))
    assert [len(batch.predictions) for batch in batches] == [3, 3, 1]
    together = [prediction for batch in batches for prediction in batch.predictions]
    assert len(together) == len(IMAGES)
    assert len({str(prediction) for prediction in together}) > 3, "it tells images apart"
    for one, other, image in zip(alone, together, IMAGES, strict=True):
        assert (one.kind, one.model, one.classes) == (other.kind, other.model, other.classes)
        if model.kind == "segmentation":
            assert one.classes == CLASSES
            maps = [np.asarray(decode_map(found.class_map)) for found in (one, other)]
            assert maps[0].shape == ((256, 512) if image.width == 700 else (image.height, image.width))
            assert np.mean(maps[0] != maps[1]) < 0.01
        else:
            assert [guess.label for guess in one.top] == [guess.label for guess in other.top]
            assert np.allclose([g.probability for g in one.top], [g.probability for g in other.top], atol=1e-5)
    if model.kind == "segmentation":
        for place, doubt in enumerate(doubt for batch in batches for doubt in batch.doubts):
            (own,) = next(iter(model.predict_many(IMAGES[place : place + 1]))).doubts
            assert np.allclose([doubt.entropy, doubt.gini], [own.entropy, own.gini], atol=1e-4)
            assert 0 < doubt.gini < doubt.entropy < np.log(len(CLASSES)) + 1e-6
        assert sum(len(batch.doubts) for batch in batches) == len(IMAGES)
    if model.kind == "classification":
        rows = np.concatenate([batch.probabilities for batch in batches if batch.probabilities is not None])
        assert rows.shape == (len(IMAGES), len(CLASSES)) and rows.dtype == np.float32
        assert np.allclose(rows.sum(1), 1, atol=1e-4)
        assert [CLASSES[place] for place in rows.argmax(1)] == [prediction.top[0].label for prediction in together]


def test_a_classifier_of_transformers_says_what_transformers_says(tmp_path: Path) -> None:
    import torch
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    model = ModelUnderTest(transformers_folder(tmp_path))
    (batch,) = model.predict_many(IMAGES)
    pixels = AutoImageProcessor.from_pretrained(tmp_path)(images=IMAGES, return_tensors="pt")
    with torch.inference_mode():
        own = AutoModelForImageClassification.from_pretrained(tmp_path)(**pixels).logits.softmax(1).numpy()
    assert batch.probabilities is not None and np.allclose(batch.probabilities, own, atol=1e-4)
    assert model.identity.preprocessing.size == (32, 32) and model.identity.preprocessing.mean == (0.4, 0.5, 0.6)


def test_a_segmenter_of_transformers_is_scaled_up_before_the_largest_is_taken(tmp_path: Path) -> None:
    import torch
    from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

    model = ModelUnderTest(transformers_folder(tmp_path, "segmentation"))
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    with torch.inference_mode():
        found = AutoModelForSemanticSegmentation.from_pretrained(tmp_path)(**processor(IMAGES[0], return_tensors="pt"))
    (own,) = processor.post_process_semantic_segmentation(found, target_sizes=[(40, 60)])
    assert len(np.unique(own)) > 1
    assert np.mean(np.asarray(decode_map(model.predict(IMAGES[0]).class_map)) != own.numpy()) < 0.01


def test_how_unsure_a_segmenter_is_of_an_image_is_the_mean_over_its_pixels(tmp_path: Path) -> None:
    import torch
    from scipy.stats import entropy
    from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

    (batch,) = ModelUnderTest(transformers_folder(tmp_path, "segmentation")).predict_many(IMAGES[:1])
    pixels = AutoImageProcessor.from_pretrained(tmp_path)(IMAGES[0], return_tensors="pt")
    with torch.inference_mode():
        (found,) = AutoModelForSemanticSegmentation.from_pretrained(tmp_path)(**pixels).logits
    said = found.softmax(0).flatten(1).numpy()
    (doubt,) = batch.doubts
    assert doubt.entropy == pytest.approx(entropy(said).mean(), rel=1e-3)
    assert doubt.gini == pytest.approx(1 - (said**2).sum(0).mean(), rel=1e-3)


def test_how_unsure_it_is_of_a_large_image_is_taken_at_some_pixels_all_over_it() -> None:
    import torch

    logits = torch.zeros(2, 300, 520)
    logits[0, :, :260] = 50.0  # sure about the left half of the pixels
    found = doubt(logits)
    assert found.entropy == pytest.approx(np.log(2) / 2, rel=0.05) and found.gini == pytest.approx(0.25, rel=0.05)
    logits[0] = 50.0
    found = doubt(logits)
    assert 0 <= found.entropy < 1e-6 and 0 <= found.gini < 1e-6


def by_hand(image: Image.Image, side: int = 32) -> Any:
    """Return the picture as pixels (1, 3, side, side), normalised with `MEAN` and `STD`."""
    import torch

    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    pixels = torch.nn.functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True, align_corners=False)
    mean, std = (torch.tensor([float(n) for n in said.split(",")])[:, None, None] for said in (MEAN, STD))
    return (pixels - mean) / std


@pytest.mark.parametrize("how", [{}, {"batch": 1}, {"batch": 4}, {"softmax": True}, {"last": True}])
def test_an_onnx_file_says_what_its_network_says(tmp_path: Path, how: dict[str, Any]) -> None:
    import torch

    model = ModelUnderTest(onnx_file(tmp_path / "model.onnx", **how))
    with torch.inference_mode():
        own = torch.cat([small_net("classification")(by_hand(image)) for image in IMAGES]).softmax(1).numpy()
    (batch,) = model.predict_many(IMAGES)
    # The tolerance is the rounding of pixels to bytes when an image is scaled.
    assert batch.probabilities is not None and np.allclose(batch.probabilities, own, atol=0.03)
    assert np.ptp(own, axis=0).max() > 0.1, "the images are told apart"


def test_an_onnx_file_without_a_size_takes_the_one_that_is_given(tmp_path: Path) -> None:
    open_size = onnx_file(tmp_path / "model.onnx", "segmentation", side=0)
    with pytest.raises(UserError, match="images of any size: give the size"):
        ModelUnderTest(open_size)
    model = ModelUnderTest(open_size.model_copy(update={"size": "64x32"}))
    assert model.identity.preprocessing.size == (64, 32)
    assert decode_map(model.predict(IMAGES[0]).class_map).size == (60, 40)


def test_an_onnx_file_may_say_everything_itself(tmp_path: Path) -> None:
    model, same = ModelUnderTest(onnx_that_says_all(tmp_path)), ModelUnderTest(onnx_file(tmp_path / "model.onnx"))
    assert model.identity.preprocessing == same.identity.preprocessing
    ours, theirs = model.predict(IMAGES[0]).top, same.predict(IMAGES[0]).top
    assert ours == theirs and model.identity.digest != same.identity.digest, "its bytes are others"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": "48"}, "takes images of 32 × 32 pixels, and not of 48 × 48"),
        ({"classes": "bird, boat"}, "does not fit 2 classes"),
        ({"classes": ""}, "give the names of its classes in order, with commas between[.]$"),
        ({"mean": ""}, "give the mean of the three channels, such as 0.485, 0.456, 0.406[.]$"),
        ({"classes": "", "mean": "", "std": ""}, "the names of its classes.*, and the mean .*, and their standard dev"),
        ({"layout": "channels last"}, "choose channels first as layout"),
        ({"file": "/nowhere/model.onnx"}, "There is no file /nowhere/model.onnx"),
    ],
)
def test_what_does_not_fit_an_onnx_file_is_said_in_a_sentence(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    fits = onnx_file(tmp_path / "model.onnx")
    with pytest.raises(UserError, match=said):
        ModelUnderTest(fits.model_copy(update=change))


def test_an_onnx_file_that_reaches_beyond_itself_is_refused(tmp_path: Path) -> None:
    import onnx

    fits, file = onnx_file(tmp_path / "model.onnx"), tmp_path / "model.onnx"
    held = onnx.load(file)

    def refused(said: str) -> None:
        with pytest.raises(UserError, match=said):
            ModelUnderTest(fits)

    secret = tmp_path / "secret.bin"
    for tensor in held.graph.initializer:
        if tensor.name == "first.weight":
            secret.write_bytes(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="secret.bin")
    file.write_bytes(held.SerializeToString())
    refused("keeps weights in other files")

    for domain, operator in (("com.example", "Load"), ("com.microsoft", "EPContext")):
        onnx_file(file)
        held = onnx.load(file)
        inner = onnx.helper.make_graph(
            [onnx.helper.make_node(operator, [], ["x"], domain=domain)],
            "inner",
            [],
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
        )
        yes = onnx.helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])
        held.graph.initializer.append(yes)
        held.graph.node.append(onnx.helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner))
        file.write_bytes(held.SerializeToString())
        refused(f"uses the operator {domain}:{operator}")

    whole = file.read_bytes()
    for damaged in (b"", b"dear reader, this is no model", whole[: len(whole) // 2]):
        file.write_bytes(damaged)
        refused("cannot be read as an ONNX file|keeps weights|cannot be run by onnxruntime")


def test_folders_of_transformers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    fits = transformers_folder(tmp_path / "fits")
    changed = tmp_path / "changed"

    def refused(said: str, change: Any, **given: str) -> None:
        shutil.copytree(tmp_path / "fits", changed)
        change()
        with pytest.raises(UserError, match=said):
            ModelUnderTest(fits.model_copy(update={"file": str(changed), **given}))
        shutil.rmtree(changed)

    def configured(**fields: Any) -> None:
        config = json.loads((changed / "config.json").read_text())
        (changed / "config.json").write_text(json.dumps({**config, **fields}))

    def weights(change: Any) -> None:
        held = load_file(changed / "model.safetensors")
        change(held)
        save_file(held, changed / "model.safetensors", {"format": "pt"})

    def pickled() -> None:
        torch.save(load_file(changed / "model.safetensors"), changed / "pytorch_model.bin")
        (changed / "model.safetensors").unlink()

    refused("no weights in safetensors, and other files could contain a program", pickled)
    refused("they lack classifier.bias", lambda: weights(lambda held: held.pop("classifier.bias")))
    renamed = lambda held: held.update(head=held.pop("classifier.weight"))  # noqa: E731
    refused("they lack classifier.weight", lambda: weights(renamed))
    smaller = lambda held: held.update({"classifier.bias": torch.zeros(2)})  # noqa: E731
    refused(r"they have another shape of classifier\.bias", lambda: weights(smaller))
    refused("cannot be loaded by transformers", lambda: (changed / "model.safetensors").write_bytes(b"no weights"))
    refused("has 3 classes, but 2 names are given", lambda: None, classes="bird, boat")
    refused("is a BertForMaskedLM, not a model for", lambda: configured(architectures=["BertForMaskedLM"]))
    own_code = {"AutoConfig": "mine.Config", "AutoModelForImageClassification": "mine.Net"}
    refused("its own program code", lambda: configured(auto_map=own_code, model_type="of-nobody"))
    refused("does not say how images are prepared", lambda: (changed / "preprocessor_config.json").unlink())
    refused("has no config.json", lambda: (changed / "config.json").write_text("{"))
    refused("There is no folder", lambda: None, file=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="could not be fetched"):  # the tests' HF_HUB_OFFLINE forbids it
        ModelUnderTest(wanted("transformers", name="nobody/has-this"))
    with pytest.raises(UserError, match="Give the name of the model under test on the hub"):
        ModelUnderTest(wanted("transformers"))


def test_where_memory_ends_the_batch_is_halved_for_good(tmp_path: Path) -> None:
    """The network reports that memory ran out for three images or more, like a GPU. No real GPU is tried here."""
    import torch

    model = ModelUnderTest(checkpoint(tmp_path))
    whole = [prediction for batch in model.predict_many(IMAGES) for prediction in batch.predictions]
    asked: list[int] = []
    adapter: Any = model._adapter
    net = adapter.net

    def small(pixels: Any) -> Any:
        asked.append(len(pixels))
        if len(pixels) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return net(pixels)

    adapter.net = small
    batches = list(model.predict_many(IMAGES))
    assert asked == [7, 3, 1, 1, 1, 1, 1, 1, 1] and model.at_once == 1
    assert [len(batch.predictions) for batch in batches] == [1] * 7
    again = [prediction for batch in batches for prediction in batch.predictions]
    assert [found.top[0].label for found in again] == [found.top[0].label for found in whole]

    def full(pixels: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    adapter.net = full
    with pytest.raises(UserError, match="not enough memory for a single image of 60 × 40"):
        model.predict(IMAGES[0])


def test_memory_that_ends_while_a_model_is_tried_is_told_with_the_image(tmp_path: Path) -> None:
    import torch

    from evaluation.adapters.architectures import find_network
    from evaluation.adapters.base import TorchAdapter

    class Full(torch.nn.Module):  # type: ignore[misc]
        def forward(self, pixels: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model = ModelUnderTest(checkpoint(tmp_path))
    model._adapter = TorchAdapter(replace(find_network(checkpoint(tmp_path)), net=Full()))
    with pytest.raises(UserError, match="not enough memory for a single image of 60 × 40"):
        model.predict(IMAGES[0])


def test_what_came_before_an_image_that_cannot_be_read_is_given(tmp_path: Path) -> None:
    model = ModelUnderTest(checkpoint(tmp_path))
    model.at_once = 3

    def broken() -> Image.Image:
        raise OSError("it is torn")

    given = model.predict_many([IMAGES[0], lambda: IMAGES[1], IMAGES[2], IMAGES[3], broken, IMAGES[5]])
    assert [len(next(given).predictions), len(next(given).predictions)] == [3, 1]
    with pytest.raises(OSError, match="it is torn"):
        next(given)


def test_numbers_that_are_none_are_told_and_never_kept(tmp_path: Path) -> None:
    import torch

    for kind in ("classification", "segmentation"):
        model = ModelUnderTest(checkpoint(tmp_path, kind))
        adapter: Any = model._adapter
        with torch.no_grad():
            for parameter in adapter.net.parameters():
                parameter.fill_(float("nan"))
        with pytest.raises(UserError, match="NaN or infinite numbers"):
            model.predict(IMAGES[0])


def test_whoever_stops_asking_has_cancelled_the_rest(tmp_path: Path) -> None:
    model, read = ModelUnderTest(checkpoint(tmp_path)), list[int]()

    def without_end() -> Iterator[Image.Image]:
        for number in itertools.count():
            read.append(number)
            yield IMAGES[0]

    model.at_once = 2
    batches = model.predict_many(without_end())
    assert [len(next(batches).predictions) for _ in range(3)] == [2, 2, 2]
    batches.close()  # type: ignore[attr-defined]
    assert 6 <= len(read) <= 2 * (3 + AHEAD)
    assert list(model.predict_many([])) == []


def test_other_bytes_or_classes_are_another_model(tmp_path: Path) -> None:
    first = checkpoint(tmp_path)
    identity = ModelUnderTest(first).identity
    assert identity.weights.startswith("sha256:") and identity.name == "squeezenet1_1" and not identity.note
    assert ModelUnderTest(first).identity.digest == identity.digest
    reordered = first.model_copy(update={"classes": "boat, bird, house"})
    assert ModelUnderTest(reordered).identity.digest != identity.digest
    moved = tmp_path / "moved.pt"
    shutil.copy(first.file, moved)
    assert ModelUnderTest(first.model_copy(update={"file": str(moved)})).identity.digest == identity.digest
    checkpoint(tmp_path, seed=1)
    assert ModelUnderTest(first).identity.digest != identity.digest


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    from core.model_identity import files_hash

    file = tmp_path / "model.bin"
    file.write_bytes(b"one")
    held = file.stat()
    first = files_hash([file])
    file.write_bytes(b"two")
    os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns))
    assert files_hash([file]) == first, "path, size and time are those of the file that was read"
    os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns + 1_000_000_000))
    assert files_hash([file]) != first
    (tmp_path / "other.bin").write_bytes(b"two")
    assert files_hash([file, tmp_path / "other.bin"]) not in (files_hash([file]), first)
