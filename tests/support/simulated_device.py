"""A simulated GPU for machines without one: its tensors are computed by the CPU, and refuse to be mixed with others.

On a CPU no test notices a tensor that nobody moved to the GPU. Within `simulated_gpu` the device "cuda" exists. Its
tensors keep their numbers in main memory and report "cuda:0". As on a real GPU, these raise an error:
- an operation on tensors of both devices, except for a single number of the CPU, and except for copies and indices;
- `numpy()` of a tensor that was not moved to the CPU;
- a random generator of one device that draws a tensor of the other.

Speed, memory and the results of a GPU's own kernels are not simulated. Operations of many parts (attention, linear
layers) run part by part, and fused ones are switched off. There are no gradients: torch would ask the driver for the
stream of each tensor that needs one, and without a driver it ends the process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda:0")
FREE = 80_000_000_000
"""Default number of free bytes, enough for every small model."""
_ops: Any = torch.ops.aten
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
"""Operations whose indices may be on the CPU."""


class OnGpu(torch.Tensor):
    """A tensor on the simulated GPU."""

    numbers: torch.Tensor
    """The numbers, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, data: torch.Tensor, requires_grad: bool = False) -> Any:
        """Return a parameter. Libraries call the class of an earlier parameter like this."""
        return torch.nn.Parameter(data, requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})

    @property
    def requires_grad(self) -> bool:
        return False

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None: ...

    def requires_grad_(self, _wanted: bool = True) -> OnGpu:
        return self

    def data_ptr(self) -> int:
        return int(self.numbers.data_ptr())

    # torch's own versions of these methods call the driver.

    def __getitem__(self, index: Any) -> Any:
        return on_gpu(self.numbers[_mapped(_numbers, index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        chosen = index if isinstance(index, tuple) else (index,)
        if any(isinstance(one, torch.Tensor | list) for one in chosen):
            _refuse_mixed(_ops.index_put_.default, (self, (), value), [value])
        self.numbers[_mapped(_numbers, index)] = _numbers(value)

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> Any:
        return _copy(self, source)

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
        numbers = self.numbers.contiguous(memory_format=memory_format)
        return self if numbers is self.numbers else on_gpu(numbers)

    def new_tensor(self, data: Any, dtype: torch.dtype | None = None, **more: Any) -> Any:
        return torch.tensor(data, **{"device": GPU, "dtype": dtype or self.dtype, **more})

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        places = _compute(_ops.nonzero.default, (self,), {})
        return places.unbind(1) if as_tuple else places

    def type(self, dtype: Any = None, **_options: Any) -> Any:
        return "torch.cuda.Tensor" if dtype is None else self.to(dtype)

    def item(self) -> Any:
        return self.numbers.item()

    def tolist(self) -> Any:
        return self.numbers.tolist()

    def numpy(self, **_options: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it to the CPU first."
        )

    def __array__(self, *_given: Any) -> Any:
        return self.numpy()

    def __bool__(self) -> bool:
        return bool(self.numbers)

    def __int__(self) -> int:
        return int(self.numbers)

    def __index__(self) -> int:
        return self.numbers.__index__()

    def __float__(self) -> float:
        return float(self.numbers)

    def __invert__(self) -> Any:
        return torch.bitwise_not(self)

    def __repr__(self, **_options: Any) -> str:
        return f"OnGpu({self.numbers!r})"


class _Generator(torch.Generator):
    """A generator that draws the same numbers on both devices, and says on which it may draw."""

    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made: _Generator = super().__new__(cls, "cpu")
        made._device = GPU if torch.device(device).type == "cuda" else torch.device(device)
        return made

    @property
    def device(self) -> torch.device:
        return self._device


class _WatchedDraws(TorchFunctionMode):
    """Raises an error if a generator of one device draws a tensor of the other, in the thread that enters this mode."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        generator = (kwargs or {}).get("generator")
        if generator is not None and isinstance(result, torch.Tensor) and generator.device.type != result.device.type:
            raise RuntimeError(
                f"Expected a '{result.device.type}' device type for generator but found '{generator.device.type}'"
            )
        return result


def on_gpu(numbers: torch.Tensor) -> Any:
    """Return a tensor of the simulated GPU that shares its memory with `numbers`."""
    with torch.inference_mode(False):  # a view of a weight is no inference tensor, wherever it is made
        made: Any = torch.Tensor._make_wrapper_subclass(
            OnGpu,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=GPU,
        )
    made.numbers = numbers
    return made


def _numbers(value: Any) -> Any:
    return value.numbers if isinstance(value, OnGpu) else value


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return `value` with `change` applied to each part of its lists, tuples and dicts.

    torch's own `tree_map` takes half of the time of a test on this device.
    """
    if isinstance(value, list | tuple):
        return type(value)([_mapped(change, part) for part in value])
    if isinstance(value, dict):
        return {name: _mapped(change, part) for name, part in value.items()}
    return change(value)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation with at least one tensor of the GPU."""
    by_parts = func.decompose(*args, **kwargs)
    if by_parts is not NotImplemented:
        return by_parts
    tensors = list(_tensors((args, kwargs)))
    _refuse_mixed(func, args, tensors)
    target = torch.device(kwargs.get("device") or GPU)
    plain_args, plain = _mapped(_numbers, args), _mapped(_numbers, kwargs)
    if plain.get("device") is not None and target.type == "cuda":
        plain["device"] = torch.device("cpu")
    given = {id(_numbers(one)): one for one in tensors}

    def placed(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        if id(result) in given:  # an operation in place
            return given[id(result)]
        return on_gpu(result) if target.type == "cuda" else result

    result = _mapped(placed, func(*plain_args, **plain))
    if torch.Tag.inplace_view in func.tags:
        with torch._C._DisableTorchDispatch():  # the tensor itself has a shape too, which has to follow
            func(*args, **kwargs)
    for one in tensors if func._schema.is_mutable else ():
        if one.shape != _numbers(one).shape:
            raise NotImplementedError(f"The simulated GPU cannot change the shape of a tensor by {func}.")
    return result


def _refuse_mixed(func: Any, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
    """Raise an error if an operation gets tensors of the CPU that it would not take on a GPU."""
    name = func._schema.name.removeprefix("aten::")
    strangers = [one for one in tensors if not isinstance(one, OnGpu)]
    if name in _INDEXING and isinstance(args[0], OnGpu):
        strangers = [one for one in _tensors(args[2:]) if one.dim()]
        strangers = [one for one in strangers if not isinstance(one, OnGpu)]
    elif name == "copy_":
        return
    elif torch.Tag.pointwise in func.tags and not (func._schema.is_mutable and args[0] in strangers):
        single = len(strangers) == 1 and strangers[0].dim() == 0 and strangers[0].device.type == "cpu"
        strangers = [] if single else strangers
    if strangers:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{GPU} and {strangers[0].device}! (in {func})"
        )


def _copy(to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _numbers(to).copy_(_numbers(source))
    return to


def _indexed(move: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of torch take "cuda" for "cuda:0". torch itself would ask the driver for the present GPU."""

    def named(value: Any) -> Any:
        if isinstance(value, list | tuple):  # numbers, some of them on the GPU
            return _mapped(_numbers, value)
        return GPU if isinstance(value, str | torch.device) and str(value) == "cuda" else value

    @wraps(move)
    def moved(*args: Any, **kwargs: Any) -> Any:
        return move(*map(named, args), **{name: named(value) for name, value in kwargs.items()})

    return moved


def _factory(overload: Any) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        return on_gpu(overload(*args, **kwargs | {"device": torch.device("cpu"), "pin_memory": False}))

    return make


def _factories() -> Iterator[tuple[str, Any]]:
    """Yield name and operation of everything in torch that makes a tensor on a device from no other tensor."""
    for full_name in torch._C._dispatch_get_all_op_names():
        space, _, name = full_name.partition("::")
        if space != "aten" or torch._C._dispatch_has_kernel_for_dispatch_key(full_name, "CompositeImplicitAutograd"):
            continue
        schema = torch._C._get_schema(full_name.partition(".")[0], name.partition(".")[2])
        arguments = {one.name: str(one.type) for one in schema.arguments}
        if {"device", "pin_memory"} <= arguments.keys() and not any("Tensor" in kind for kind in arguments.values()):
            yield name, getattr(getattr(_ops, name.partition(".")[0]), name.partition(".")[2] or "default")


@contextmanager
def simulated_gpu(free: int = FREE) -> Iterator[None]:
    """Let torch have a GPU with `free` bytes within the context. A real GPU is not used then."""
    from diffusers.pipelines import pipeline_utils
    from diffusers.utils.torch_utils import TorchDeviceBackend
    from transformers.utils import import_utils

    if torch.cuda.is_available():
        torch.cuda.init()  # not later, as torch asks only once whether this is done
    known = [TorchDeviceBackend._detect_device_type, *vars(import_utils).values()]
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "_lazy_init": None,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "a simulated GPU",
        "get_device_capability": (8, 0),
        "is_bf16_supported": True,
        "mem_get_info": (free, free),
        "memory_reserved": 0,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "reset_peak_memory_stats": None,
        "empty_cache": None,
        "synchronize": None,
    }
    kernels = torch.library.Library("aten", "IMPL", "CUDA")
    with ExitStack() as stack:
        stack.callback(kernels._destroy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells that its own kernels are replaced
            kernels.impl("copy_", _copy)
            for name, overload in _factories():
                kernels.impl(name, _factory(overload))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, answer in answers.items():
            patch.setattr(torch.cuda, name, lambda *_given, _answer=answer, **_more: _answer)
        for place, name in ((torch.Tensor, "to"), (torch, "tensor"), (torch, "as_tensor"), (torch, "asarray")):
            patch.setattr(place, name, _indexed(getattr(place, name)))
        nonzero = torch.nonzero

        def nonzero_on_gpu(tensor: Any, **options: Any) -> Any:
            return tensor.nonzero(**options) if isinstance(tensor, OnGpu) else nonzero(tensor, **options)

        patch.setattr(torch, "nonzero", nonzero_on_gpu)
        patch.setattr(torch.Tensor, "cuda", lambda tensor, *_given, **_more: tensor.to(GPU))
        patch.setattr(torch.accelerator, "is_available", lambda: True)
        patch.setattr(torch.accelerator, "current_accelerator", lambda *_given: torch.device("cuda"))
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(pipeline_utils, "SUPPORTED_DEVICE_MAP", [*pipeline_utils.SUPPORTED_DEVICE_MAP, "cuda"])
        patch.setattr(torch.cuda, "default_generators", (_Generator("cuda"),))
        # Modules get new parameters when they are moved. The data of a parameter of the CPU cannot become an `OnGpu`.
        stack.callback(
            torch.__future__.set_overwrite_module_params_on_conversion,
            torch.__future__.get_overwrite_module_params_on_conversion(),
        )
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_WatchedDraws())
        for remembering in known:
            if forget := getattr(remembering, "cache_clear", None):
                forget()
                stack.callback(forget)
        yield
