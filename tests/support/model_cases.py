"""Models under test of every kind at small size: files, folders and servers for tests."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from core.settings import UnderTestSettings

CLASSES = ("bird", "boat", "house")
COLOURS = ("red", "green", "blue")
MEAN, STD = "0.4, 0.5, 0.6", "0.2, 0.25, 0.3"


def picture(seed: int, size: tuple[int, int] = (60, 40)) -> Image.Image:
    """Return coarse noise. Even a network with random weights gives different results for two seeds."""
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def wanted(source: str, **fields: str | float) -> UnderTestSettings:
    return UnderTestSettings.model_validate({"source": source, **fields})


def small_net(kind: str, softmax: bool = False, last: bool = False, seed: int = 0) -> Any:
    """Return a convolutional network with random weights for any image size. With `last` its channels come last."""
    import torch
    from torch import nn

    class Small(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, len(CLASSES), 3)

        def forward(self, images: Any) -> Any:
            found = self.second(self.first(images.permute(0, 3, 1, 2) if last else images).relu()) * 4
            if kind == "segmentation":
                return found.permute(0, 2, 3, 1) if last else found
            found = found.mean((2, 3))
            return found.softmax(1) if softmax else found

    torch.manual_seed(seed)
    return Small().eval()


def onnx_file(
    file: Path, kind: str = "classification", batch: int = 0, side: int = 32, last: bool = False, **how: Any
) -> UnderTestSettings:
    """Write a small network as ONNX with torch's export. `batch` 0 and `side` 0 allow any. Return its settings."""
    import torch

    shape = (batch or 2, side or 48, side or 48, 3) if last else (batch or 2, 3, side or 48, side or 48)
    open_axes = ({} if batch else {0: "images"}) | ({} if side else {(1 if last else 2): "h", (2 if last else 3): "w"})
    names: dict[str, Any] = {"input_names": ["image"], "output_names": ["found"]}
    if open_axes:
        names["dynamic_axes"] = {"image": open_axes, "found": {0: "images"}}
    net = small_net(kind, last=last, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the newer export needs another package
        torch.onnx.export(net, (torch.zeros(shape),), str(file), dynamo=False, **names)
    layout = "channels last" if last else "channels first"
    return wanted("onnx", file=str(file), classes=", ".join(CLASSES), mean=MEAN, std=STD, layout=layout)


Step = tuple[str, Mapping[str, Any], Sequence[Any]]
"""An ONNX operator, its attributes, and the constants after its first input."""


def onnx_of_steps(
    file: Path, *steps: Step, classes: int = 3, per_pixel: bool = False, scale: float = 4.0, bias: Sequence[float] = ()
) -> UnderTestSettings:
    """Write an ONNX model with `steps` after `scale` times the mean of each colour channel, or of each pixel's
    channels with `per_pixel`. Its input is 32 × 32 pixels from -1 to 1. Return its settings.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    tensors: dict[str, Any] = {"axes": np.array([2, 3]), "bias": np.asarray(bias or [0.0] * classes, np.float32)}
    if per_pixel:
        tensors["weights"] = (scale * np.eye(classes, 3, dtype=np.float32))[:, :, None, None]
        nodes = [helper.make_node("Conv", ["image", "weights", "bias"], ["y"])]
    else:
        tensors["weights"] = scale * np.eye(3, classes, dtype=np.float32)
        nodes = [
            helper.make_node("ReduceMean", ["image", "axes"], ["means"], keepdims=0),
            helper.make_node("Gemm", ["means", "weights", "bias"], ["y"]),
        ]
    last = "y"
    for place, (operator, attributes, constants) in enumerate(steps):
        names = [f"constant{place}_{number}" for number in range(len(constants))]
        tensors |= {name: np.asarray(value) for name, value in zip(names, constants, strict=True)}
        nodes.append(helper.make_node(operator, [last, *names], [f"z{place}"], **attributes))
        last = f"z{place}"
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    half = "0.5, 0.5, 0.5"
    return wanted("onnx", file=str(file), classes=", ".join(COLOURS[:classes]), mean=half, std=half)


def onnx_that_says_all(folder: Path) -> UnderTestSettings:
    """Write a small ONNX classifier that states its classes and normalisation. Return its settings."""
    import onnx

    onnx_file(folder / "model.onnx")
    model = onnx.load(folder / "model.onnx")
    properties = {"classes": json.dumps(CLASSES), "mean": f"[{MEAN}]", "std": f"[{STD}]"}
    onnx.helper.set_model_props(model, properties)
    onnx.save(model, folder / "says.onnx")
    return wanted("onnx", file=str(folder / "says.onnx"))


def transformers_folder(folder: Path, kind: str = "classification") -> UnderTestSettings:
    """Save a real ViT or SegFormer with random weights and its image processor. Return its settings."""
    import torch
    from transformers import (
        SegformerConfig,
        SegformerForSemanticSegmentation,
        SegformerImageProcessor,
        ViTConfig,
        ViTForImageClassification,
        ViTImageProcessor,
    )

    torch.manual_seed(0)
    labels: dict[str, Any] = {"id2label": dict(enumerate(CLASSES)), "label2id": {n: i for i, n in enumerate(CLASSES)}}
    size = {"height": 32, "width": 32}
    if kind == "classification":
        body = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        net = ViTForImageClassification(ViTConfig(**body, image_size=32, patch_size=8, **labels))
        net.classifier.weight.data *= 50
        processor = ViTImageProcessor(size=size, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.25, 0.3])
    else:
        layers = {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 1, 1]}
        net = SegformerForSemanticSegmentation(SegformerConfig(**layers, decoder_hidden_size=8, **labels))
        net.decode_head.classifier.weight.data *= 50
        processor = SegformerImageProcessor(size={"height": 64, "width": 64})
    net.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return wanted("transformers", file=str(folder))


@dataclass
class ModelServer:
    """Server of a model, with its answers and the requests to it. Tests may replace its functions while it serves."""

    card: Callable[[], tuple[int, Any, dict[str, str]]]
    answer: Callable[[list[str]], tuple[int, Any, dict[str, str]]]
    asked: list[int] = field(default_factory=list)
    """Number of images in each request."""
    url: str = ""


@contextmanager
def serving(server: ModelServer) -> Iterator[ModelServer]:
    """Serve on a free port until the context ends. Answers are sent as JSON, except for bytes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def _reply(self, status: int, content: Any, headers: dict[str, str]) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._reply(*server.card())

        def do_POST(self) -> None:
            images = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["images"]
            server.asked.append(len(images))
            self._reply(*server.answer(images))

    class Threads(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None: ...  # the client has gone away

    with Threads(("127.0.0.1", 0), Handler) as opened:
        server.url = f"http://127.0.0.1:{opened.server_port}/model"
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            opened.shutdown()
            thread.join()
