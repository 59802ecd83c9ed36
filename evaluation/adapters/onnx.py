"""Classifiers and segmenters in ONNX files, run by onnxruntime. Models that would open other files or load libraries
are refused. The image preparation is never guessed: the user or the file's metadata must give it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from core.data_files import DataTable
from core.errors import UserError, out_of_memory
from core.model_identity import Assumptions, ModelIdentity, Preprocessing
from core.model_identity import Output as Numbers
from core.settings import UnderTestSettings
from core.types import TaskKind
from evaluation.adapters import network as shared
from evaluation.adapters.base import NO_NUMBER, LocalAdapter, images_at_once
from evaluation.adapters.network import GIVEN

DOMAINS = frozenset(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"))
"""Operator domains that onnxruntime contains."""
READS_FILES = frozenset(("EPContext", "PyOp", "ExternalProgram"))
"""Operators that open files or run programs outside the model."""
_FLOATS: dict[str, Any] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
ROUNDING = 0.02
"""Maximum rounding error: probabilities may add up to 1 plus or minus this number. 16-bit numbers need it."""
_OPERATORS = DataTable(__file__, frozenset[str], "operators")
_TO_GIVE = DataTable(__file__, str, "to_give")


class OnnxAdapter(LocalAdapter):
    """Runs a model from an ONNX file, on the GPU if onnxruntime supports it."""

    def __init__(self, settings: UnderTestSettings) -> None:
        """Loads the file. Raises UserError if it cannot be used, or if it contradicts the settings."""
        file, weights = shared.file_of(settings)
        self._called, self._layout, content = file.name, settings.layout, file.read_bytes()
        header, self._made_by = _checked(content, file.name)
        self._session = _session(content, file.name)
        self._input, self._batch, size = self._read_input(settings, header)
        self._type = _FLOATS[self._input.type]
        named = shared.classes_given(settings)
        classes = named or tuple(map(str, shared.listed(header, "classes")))
        mean, std = (shared.numbers_given(getattr(settings, name), header, name) for name in ("mean", "std"))
        known = {"classes": bool(classes), "mean": len(mean) == 3, "std": len(std) == 3}
        if lacking := [name for name, is_known in known.items() if not is_known]:
            raise UserError(
                f"{file.name} lacks information that is needed to run it: give "
                f"{', and '.join(_TO_GIVE[name] for name in lacking)}.",
                field=lacking[0],
            )
        self.prepare = shared.squeezed(size, mean, std)
        values = shared.values_of(file.name, self.prepare, mean)
        try:
            output = self._find_output(size, classes)
        except MemoryError as error:
            raise UserError(
                f"There is not enough memory to run {file.name} on a picture of {size[0]} × {size[1]} pixels: free "
                "some memory, or choose a smaller size or model."
            ) from error
        self.kind: TaskKind = output.kind
        self._found = output
        shared.require_classes(file.name, self.kind, classes)
        assumed = Assumptions(shared.squeezed_words(size), values)
        shown = Preprocessing(size, mean, std, "bilinear", f"squeezed, {settings.layout}", assumed)
        origin = GIVEN if named else "the file"
        shown = shared.with_assumptions(shown, origin, classes, *output.remarks, output=output.numbers)
        self.identity = ModelIdentity("ONNX", weights, self.kind, shown, classes)
        gpu = "CUDAExecutionProvider" in self._session.get_providers()
        self.at_once = images_at_once(self.kind, gpu)

    def _logits(self, pixels: Sequence[Any]) -> Any:
        import torch

        return torch.from_numpy(self._found.logits(self._run(np.stack([one.numpy() for one in pixels]))))

    def _read_input(self, settings: UnderTestSettings, header: Mapping[str, str]) -> tuple[Any, int, tuple[int, int]]:
        """Return the model's input, its number of images (0 for any), and the (width, height) of prepared images."""
        inputs, who = self._session.get_inputs(), self._called
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in _FLOATS:
            has = "; ".join(f"{one.name}: {one.type} of {one.shape}" for one in inputs)[:200]
            raise UserError(
                f"{who} takes {has or 'nothing'}: export it with a single floating-point input of shape (images, 3, "
                "height, width)."
            )
        first = settings.layout == "channels first"
        batch, *sides = (side if isinstance(side, int) and side > 0 else 0 for side in inputs[0].shape)
        channels, height, width = sides if first else (sides[2], sides[0], sides[1])
        if channels not in (0, 3):
            other = "channels last" if first else "channels first"
            hint = f"choose {other} as layout" if sides[2 if first else 0] == 3 else "take one for images in colour"
            raise UserError(
                f"{who} takes images of {channels} channels with {settings.layout}: {hint}.", field="layout"
            )
        named = shared.size_given(settings.size or header.get("size", "")) or (0, 0)
        size = width or named[0], height or named[1]
        if any(named) and size != named:
            raise UserError(
                f"{who} takes images of {width or 'any width'} × {height or 'any height'} pixels, and not of "
                f"{named[0]} × {named[1]}: correct the size, or leave it empty.",
                field="size",
            )
        if not all(size):
            raise UserError(
                f"{who} takes images of any size: give the size to which images are scaled, such as 224.", field="size"
            )
        return inputs[0], batch, size

    def _find_output(self, size: tuple[int, int], classes: tuple[str, ...]) -> _Answers:
        """Run the model on plain colours and noise. Return the form of the output with one number for each class."""
        noise = np.random.default_rng(0).integers(0, 256, (2, size[1], size[0], 3), np.uint8)
        plain = [Image.new("RGB", size, colour) for colour in ("red", "green", "blue", "black", "white")]
        trials = [Image.fromarray(noise[0]), *plain, Image.fromarray(noise[1])]
        pictures = [self.prepare(image).numpy() for image in trials]
        fitting: list[_Answers] = []
        shapes: list[str] = []
        single = False
        for name in [output.name for output in self._session.get_outputs()]:
            self._output = [name]
            found = self._run(pictures[0][None])
            shapes.append(f"{name}: {found.shape}")
            if not np.issubdtype(found.dtype, np.floating):
                continue
            answers = _shape_of(found, len(classes))
            if answers is None:
                single |= found.size == 1 or (found.ndim == 4 and 1 in (found.shape[1], found.shape[3]))
                continue
            if not fitting:
                # Each pixel of a segmenter is a trial of its own, so two pictures are enough.
                some = pictures[1:] if answers.kind == "classification" else pictures[1:2]
                rows = [answers.rows(one) for one in (found, *(self._run(one[None]) for one in some))]
                answers = replace(answers, numbers=self._numbers(np.concatenate(rows), name))
            fitting.append(replace(answers, name=name))
        if not fitting:
            hint = (
                "It answers one number, as a model that tells two classes apart by a single score: export it with one "
                "output for each of the two classes, as logits or with a softmax"
                if single
                else "Correct the list of classes, or export the model with its logits as (images, classes) or "
                "(images, classes, height, width)"
            )
            raise UserError(
                f"{self._called} answers with {'; '.join(shapes)[:200]}, which does not fit {len(classes)} "
                f"class{'es' if len(classes) > 1 else ''}. {hint}.",
                field="classes",
            )
        first = fitting[0]
        self._output = [first.name]
        if len(fitting) > 1:
            others = ", ".join(f"“{one.name}”" for one in fitting[1:])
            remark = f"It has {len(fitting)} outputs that fit; “{first.name}” was taken, and not {others}."
            first = replace(first, remarks=(remark,))
        return first

    def _numbers(self, rows: np.ndarray, output: str) -> Numbers:
        """Return the kind of numbers, such as "logits". `rows` is (answers, classes). Raises UserError if none fits."""
        rows = rows[np.isfinite(rows).all(1)].astype(np.float64)
        if not len(rows):
            raise UserError(NO_NUMBER)
        made_by, total = self._made_by.get(output, ""), rows.sum(1)
        least, largest = float(rows.min()), float(rows.max())
        if made_by in _OPERATORS["unbounded"]:
            return "logits"
        if made_by not in _OPERATORS["bounded"]:
            if least >= -1e-6 and np.abs(total - 1).max() <= ROUNDING:
                return "softmax"
            if least >= -1e-4 and np.abs(total - 100).max() <= 100 * ROUNDING:
                return "percentages"
            if largest <= 1e-3 and np.abs(np.exp(rows).sum(1) - 1).max() <= ROUNDING:
                return "log softmax"
            if made_by != "Softmax" and not (least >= 0 and largest <= 1):
                return "logits"
        why = "its softmax is not over the classes" if made_by == "Softmax" else "as with a sigmoid for each class"
        raise UserError(
            f"{self._called} answers with numbers from {least:.3g} to {largest:.3g} that do not add up to 1 over its "
            f"{rows.shape[1]} classes ({why}): a model under test must choose one class. Export it with its "
            "logits, or with a softmax over the classes."
        )

    def _run(self, pixels: np.ndarray) -> np.ndarray:
        """Return the output for images (n, 3, height, width); floating-point numbers become float32."""
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
        except Exception as error:  # onnxruntime has one error class for each error code
            why = " ".join(str(error).split())
            if out_of_memory(error) or "Failed to allocate memory" in why or "bad allocation" in why:
                raise MemoryError(why) from error
            sides = " × ".join(map(str, pixels.shape))
            raise UserError(
                f"{self._called} cannot be run on images of {sides}: {why.rpartition(' : ')[2][:200].rstrip('.')}. "
                "Correct the size and layout, or export the model again.",
                field="size",
            ) from error


@dataclass(frozen=True)
class _Answers:
    kind: TaskKind
    last: bool
    """True if the classes of a segmenter are the last axis of its output."""
    name: str = ""
    numbers: Numbers = "logits"
    remarks: tuple[str, ...] = ()

    def rows(self, found: np.ndarray) -> np.ndarray:
        """Return the output as (answers, classes): a row for each image, or for each pixel of a segmenter's image."""
        plain = self._plain(found)
        return plain if self.kind == "classification" else plain.transpose(0, 2, 3, 1).reshape(-1, plain.shape[1])

    def logits(self, found: np.ndarray) -> np.ndarray:
        """Return logits (images, classes) or (images, classes, h, w). Their softmax gives the model's probabilities."""
        plain = self._plain(found)
        if self.numbers in ("softmax", "percentages"):  # a softmax cancels the factor of 100
            return np.log(np.maximum(plain, 1e-30))  # never the logarithm of 0
        return np.ascontiguousarray(plain)

    def _plain(self, found: np.ndarray) -> np.ndarray:
        if self.kind == "classification":
            return found.reshape(len(found), -1)
        return found.transpose(0, 3, 1, 2) if self.last else found


def _shape_of(found: np.ndarray, classes: int) -> _Answers | None:
    """Return the form of an output for one image; None if it does not have this number of classes."""
    sides = [side for side in found.shape[1:] if side != 1]
    if len(found) == 1 and sides == [classes]:  # also (1, classes, 1, 1), from a classifier that does not flatten
        return _Answers("classification", False)
    if found.ndim == 4 and classes > 1 and classes in (found.shape[1], found.shape[3]):
        return _Answers("segmentation", found.shape[1] != classes)
    return None


def _made_by(graph: Any, output: str) -> str:
    """Return the name of the operator that fixes the range of an output, such as Softmax; "" if unknown."""
    producer = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    for _ in range(len(graph.node)):
        node = producer.get(output)
        if node is None:
            return ""
        moved = [name for name in node.input if name not in constants]
        if node.op_type in _OPERATORS["keep the range"]:
            output = node.input[0]
        elif node.op_type in _OPERATORS["scale"] and len(moved) == 1:
            output = moved[0]
        else:
            return str(node.op_type)
    return ""


def _checked(content: bytes, who: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the metadata, and the operator behind each output. Raises UserError for invalid or unsafe models."""
    import onnx

    try:
        model = onnx.load_model_from_string(content)
        if not model.graph.node:
            raise ValueError("a graph without a node")
    except Exception as error:  # an error class of protobuf, which is not imported
        raise UserError(f"{who} cannot be read as an ONNX file: it is damaged or of another format.") from error
    own_functions = {(function.domain, function.name) for function in model.functions}
    for message in _messages(model):
        if isinstance(message, onnx.TensorProto):
            if message.data_location == onnx.TensorProto.EXTERNAL or message.external_data:
                raise UserError(
                    f"{who} keeps weights in other files, which are not opened: save it as one file "
                    "(onnx.save_model with save_as_external_data=False)."
                )
        elif isinstance(message, onnx.NodeProto):
            foreign = message.domain not in DOMAINS and (message.domain, message.op_type) not in own_functions
            if foreign or message.op_type in READS_FILES:
                raise UserError(
                    f"{who} uses the operator {message.domain[:60]}:{message.op_type[:60]}, which would load a library "
                    "or a file. This is not allowed: export the model with only ONNX's operators."
                )
    made_by = {output.name: _made_by(model.graph, output.name) for output in model.graph.output}
    return {entry.key: entry.value for entry in model.metadata_props}, made_by


def _messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages inside it, such as nodes and tensors, also in nested graphs."""
    waiting = [message]
    while waiting:
        current = waiting.pop()
        yield current
        for field, value in current.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if hasattr(value, "ListFields") else value)


def _session(content: bytes, who: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # no log, since errors are raised as UserError
    available = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    try:
        return onnxruntime.InferenceSession(content, options, providers=providers)
    except Exception as error:  # onnxruntime has one error class for each error code
        if out_of_memory(error):
            raise UserError(f"There is not enough memory for {who}: free some, or choose a smaller model.") from error
        why = " ".join(str(error).split()).rpartition(" : ")[2]
        raise UserError(f"{who} cannot be run by onnxruntime: {why[:200].rstrip('.')}.") from error
