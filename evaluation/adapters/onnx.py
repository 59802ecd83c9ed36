"""Classifiers and segmenters in ONNX files, through onnxruntime.

The graph is read before it is run: what would open other files or load libraries is refused. A file says little of how
images are prepared for it, and nothing of that is guessed: the person says it, or the file's metadata do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core.errors import UserError, out_of_memory
from core.model_identity import ModelIdentity, Preprocessing, files_hash
from core.settings import UnderTestSettings
from evaluation.adapters.base import Output, images_at_once, output_of
from evaluation.adapters.network import Kind, checkpoint_path, classes_given, listed, require_few_classes, squeezed

DOMAINS = frozenset(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"))
"""Whose operators onnxruntime has itself."""
READS_FILES = frozenset(("EPContext", "PyOp", "ExternalProgram"))
"""Operators that open files or run programs beside the model."""
_FLOATS: dict[str, Any] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_LOG_ZERO = 1e-30
"""Least probability, so that a logarithm of it is a number."""


class OnnxAdapter:
    """A model in an ONNX file, on the GPU where onnxruntime was built for it."""

    def __init__(self, wanted: UnderTestSettings) -> None:
        """Loads it. Raises UserError for a file that cannot be taken, or does not fit what is said of it."""
        file = checkpoint_path(wanted.file)
        if not wanted.file or not file.is_file():
            raise UserError(
                f"There is no file {wanted.file or 'named'}: give the path of an ONNX file on the machine that serves "
                "this.",
                field="file",
            )
        self._called, self._layout = file.name, wanted.layout
        try:
            content = file.read_bytes()
        except OSError as error:
            raise UserError(f"{file.name} cannot be read: {error.strerror or 'it is damaged'}.") from error
        header = _checked(content, file.name)
        self._session = _session(content, file.name)
        self._input, self._batch, size = self._read_input(wanted, header)
        self._type = _FLOATS[self._input.type]
        classes = classes_given(wanted) or tuple(map(str, listed(header, "classes")))
        if not classes:
            raise UserError(
                f"{file.name} does not say its classes: give their names in order, with commas between.",
                field="classes",
            )
        mean, std = _numbers(wanted.mean, header, "mean"), _numbers(wanted.std, header, "std")
        if len(mean) != 3 or len(std) != 3:
            raise UserError(
                f"{file.name} does not say how the pixels of an image are to be normalised: give mean and std of the "
                "three channels, such as 0.485, 0.456, 0.406 and 0.229, 0.224, 0.225.",
                field="mean" if len(mean) != 3 else "std",
            )
        self.prepare = squeezed(size, mean, std)
        self._logits = self._find_output(size, classes)
        self.kind: Kind = self._kind
        require_few_classes(file.name, self.kind, classes)
        shown = Preprocessing(size, mean, std, "bilinear", f"squeezed, {wanted.layout}")
        self.identity = ModelIdentity("ONNX", files_hash([file]), self.kind, shown, classes)
        gpu = "CUDAExecutionProvider" in self._session.get_providers()
        self.at_once = images_at_once(self.kind, gpu)

    def answer(self, prepared: Sequence[Any], sizes: Sequence[tuple[int, int]]) -> Output:
        def ask(pixels: Sequence[Any]) -> Any:
            import torch

            return torch.from_numpy(self._logits(self._run(np.stack([one.numpy() for one in pixels]))))

        return output_of(self.kind, self.identity.classes, prepared, sizes, ask)

    def _read_input(self, wanted: UnderTestSettings, header: Mapping[str, str]) -> tuple[Any, int, tuple[int, int]]:
        """The input, its number of images (0: any), and the width and height to which images are scaled."""
        inputs, who = self._session.get_inputs(), self._called
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in _FLOATS:
            has = "; ".join(f"{one.name}: {one.type} of {one.shape}" for one in inputs)[:200]
            raise UserError(
                f"{who} takes {has or 'nothing'}, and not one input of images as floating-point numbers (images, 3, "
                "height, width): export it with that one."
            )
        first = wanted.layout == "channels first"
        batch, *sides = (side if isinstance(side, int) and side > 0 else 0 for side in inputs[0].shape)
        channels, height, width = sides if first else (sides[2], sides[0], sides[1])
        if channels not in (0, 3):
            other = "channels last" if first else "channels first"
            hint = f"choose {other} as layout" if sides[2 if first else 0] == 3 else "take one for images in colour"
            raise UserError(f"{who} takes images of {channels} channels with {wanted.layout}: {hint}.", field="layout")
        given = _size(wanted.size or header.get("size", ""))
        for own, said in zip((width, height), given or (0, 0), strict=True):
            if own and said and own != said:
                raise UserError(
                    f"{who} takes images of {width or 'any width'} × {height or 'any height'} pixels, and not of "
                    f"{given[0]} × {given[1]}: correct the size, or leave it empty.",  # type: ignore[index]
                    field="size",
                )
        size = (width or (given[0] if given else 0), height or (given[1] if given else 0))
        if not all(size):
            raise UserError(
                f"{who} takes images of any size: say to which they are to be scaled, such as 224.", field="size"
            )
        return inputs[0], batch, size

    def _find_output(self, size: tuple[int, int], classes: tuple[str, ...]) -> Callable[[np.ndarray], np.ndarray]:
        """Find the output and `_kind` by a picture of noise; returns what makes logits of it. Sets `_output`, too."""
        names = [output.name for output in self._session.get_outputs()]
        noise = np.random.default_rng(0).standard_normal((1, 3, size[1], size[0])).astype(np.float32)
        self._output = names
        shapes = []
        for name in names:
            self._output = [name]
            found = self._run(noise)
            shapes.append(f"{name}: {found.shape}")
            if not np.issubdtype(found.dtype, np.floating):
                continue
            if found.ndim == 2 and found.shape[1] == len(classes):
                self._kind: Kind = "classification"
                if (found >= 0).all() and np.allclose(found.sum(1), 1, atol=1e-3):
                    # There is a softmax in the model: logits whose softmax is the same.
                    return lambda rows: np.log(np.maximum(rows, _LOG_ZERO))
                return lambda rows: rows
            if found.ndim == 4 and len(classes) in (found.shape[1], found.shape[3]):
                self._kind = "segmentation"
                if found.shape[1] == len(classes):
                    return lambda maps: maps
                return lambda maps: np.ascontiguousarray(maps.transpose(0, 3, 1, 2))
        raise UserError(
            f"{self._called} answers with {'; '.join(shapes)[:200]}, which does not fit {len(classes)} classes: "
            "correct the list of classes, or export the model with its logits as (images, classes) or (images, "
            "classes, height, width).",
            field="classes",
        )

    def _run(self, pixels: np.ndarray) -> np.ndarray:
        """The output for images (n, 3, height, width), as float32 where it is of floating point."""
        if self._layout == "channels last":
            pixels = pixels.transpose(0, 2, 3, 1)
        pixels = np.ascontiguousarray(pixels, self._type)
        step, found = self._batch or len(pixels), []
        for start in range(0, len(pixels), step):
            part = pixels[start : start + step]
            full = part if len(part) == step else np.concatenate([part, np.repeat(part[-1:], step - len(part), 0)])
            found.append(np.asarray(self._once(full))[: len(part)])
        whole = np.concatenate(found)
        return whole.astype(np.float32) if np.issubdtype(whole.dtype, np.floating) else whole

    def _once(self, pixels: np.ndarray) -> Any:
        try:
            return self._session.run(self._output, {self._input.name: pixels})[0]
        except Exception as error:  # onnxruntime has a class of its own for each of its codes
            said = " ".join(str(error).split())
            if out_of_memory(error) or "Failed to allocate memory" in said or "bad allocation" in said:
                raise MemoryError(said) from error
            sides = " × ".join(map(str, pixels.shape))
            raise UserError(
                f"{self._called} cannot be run on images of {sides}: {said.rpartition(' : ')[2][:200].rstrip('.')}. "
                "Correct size and layout, or export it anew.",
                field="size",
            ) from error


def _checked(content: bytes, who: str) -> dict[str, str]:
    """The metadata of a model. Raises UserError for what is none, or needs more than itself."""
    import onnx

    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own class, which is nobody's business here
        raise UserError(f"{who} cannot be read as an ONNX file: it is damaged, or no such file.") from error
    if not model.graph.node:
        raise UserError(f"{who} cannot be read as an ONNX file: it is damaged, or no such file.")
    own = {(function.domain, function.name) for function in model.functions}
    for message in _messages(model):
        if isinstance(message, onnx.TensorProto):
            if message.data_location == onnx.TensorProto.EXTERNAL or message.external_data:
                raise UserError(
                    f"{who} keeps weights in other files, which are not opened: save it as one file "
                    "(onnx.save_model with save_as_external_data=False)."
                )
        elif isinstance(message, onnx.NodeProto):
            foreign = message.domain not in DOMAINS and (message.domain, message.op_type) not in own
            if foreign or message.op_type in READS_FILES:
                raise UserError(
                    f"{who} uses the operator {message.domain[:60]}:{message.op_type[:60]}, which would load a library "
                    "or a file of its own, and that is not done: export it with the operators of ONNX alone."
                )
    return {entry.key: entry.value for entry in model.metadata_props}


def _messages(message: Any) -> Iterator[Any]:
    """A message of a model and all in it: its nodes, those of graphs within nodes and of functions, its tensors."""
    waiting = [message]
    while waiting:
        found = waiting.pop()
        yield found
        for field, held in found.ListFields():
            if field.message_type is not None:
                waiting.extend([held] if hasattr(held, "ListFields") else held)


def _session(content: bytes, who: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it says is told in a sentence
    there = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in there]
    try:
        return onnxruntime.InferenceSession(content, options, providers=providers)
    except Exception as error:  # onnxruntime has a class of its own for each of its codes
        if out_of_memory(error):
            raise UserError(f"There is not enough memory for {who}: free some, or take a smaller one.") from error
        said = " ".join(str(error).split()).rpartition(" : ")[2]
        raise UserError(f"{who} cannot be run by onnxruntime: {said[:200].rstrip('.')}.") from error


def _size(text: str) -> tuple[int, int] | None:
    """Width and height; None for what says none."""
    sides = [int(side) for side in text.lower().split("x") if side.strip().isdigit()]
    return (sides[0], sides[-1]) if len(sides) in (1, 2) and all(sides) else None


def _numbers(typed: str, header: Mapping[str, str], name: str) -> tuple[float, ...]:
    if typed:
        return tuple(float(number) for number in typed.split(","))
    try:
        return tuple(float(number) for number in json.loads(header.get(name, "[]")))
    except (ValueError, TypeError):
        return ()
