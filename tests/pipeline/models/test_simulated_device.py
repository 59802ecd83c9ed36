"""The simulated GPU itself: it refuses programs that a real GPU refuses, and computes right ones as the CPU does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.simulated_device import OnGpu, simulated_gpu

pytestmark = pytest.mark.slow
MIXED = "Expected all tensors to be on the same device"


@pytest.fixture
def gpu() -> Iterator[None]:
    with simulated_gpu():
        yield


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Small(nn.Module):  # type: ignore[misc]
    """A network with a convolution, normalisation, attention, a buffer and a table of embeddings."""

    def __init__(self, careless: bool = False) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.to_q, self.table = nn.Linear(8, 8), nn.Embedding(5, 8)
        if careless:
            self.scale = torch.full((8,), 2.0)  # no buffer, so it does not move with the network
        else:
            self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)

    def forward(self, pixels: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        tokens = functional.silu(self.norm(self.conv(pixels))).flatten(2).transpose(1, 2)
        words = self.table(ids)
        mask = torch.ones(tokens.shape[1], words.shape[1], dtype=torch.bool, device=tokens.device)
        seen = functional.scaled_dot_product_attention(self.to_q(tokens), words, words, mask)
        return functional.interpolate((seen * self.scale).transpose(1, 2), scale_factor=2.0)


def small(careless: bool = False) -> Small:
    torch.manual_seed(0)
    return Small(careless).eval()


@pytest.mark.parametrize("keep", [torch.no_grad, torch.inference_mode])
def test_a_right_program_gives_what_the_cpu_gives(keep: Callable[[], Any]) -> None:
    pixels, ids = numbers(2, 3, 6, 4), torch.tensor([[0, 1, 4], [2, 2, 3]])
    with keep():
        expected = small()(pixels, ids)
        with simulated_gpu():
            network = small().to("cuda")
            assert {one.device for one in (*network.parameters(), *network.buffers())} == {torch.device("cuda:0")}
            found = network(pixels.to("cuda"), ids.cuda())
            assert isinstance(found, OnGpu) and found.is_cuda and str(found.device) == "cuda:0"
            back = network.to("cpu")(pixels, ids)
            assert torch.allclose(found.cpu(), expected, atol=1e-5) and torch.allclose(back, expected, atol=1e-5)
            assert found.cpu().detach().numpy().shape == (2, 8, 48) and found[0, 0, 0].item() == float(found[0, 0, 0])


def test_a_tensor_that_was_left_behind_is_refused(gpu: None) -> None:
    pixels, ids = numbers(2, 3, 6, 4).cuda(), torch.tensor([[0, 1, 4], [2, 2, 3]])
    with torch.no_grad():
        small().cuda()(pixels, ids.cuda())
        with pytest.raises(RuntimeError, match=MIXED):
            small().cuda()(pixels, ids)
        with pytest.raises(RuntimeError, match=MIXED):
            small().cuda()(pixels.cpu(), ids.cuda())
        with pytest.raises(RuntimeError, match=MIXED):
            small(careless=True).cuda()(pixels, ids.cuda())


MIXES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda gpu: gpu + numbers(3, 3),
    "sum of the CPU's": lambda gpu: numbers(3, 3) + gpu,
    "number of the GPU": lambda gpu: numbers(3, 3) * gpu.sum(),
    "in place": lambda gpu: numbers(3, 3).add_(gpu),
    "in place, a number": lambda gpu: numbers().add_(gpu.sum()),
    "product": lambda gpu: gpu @ numbers(3, 3),
    "joined": lambda gpu: torch.cat([gpu, numbers(3, 3)]),
    "joined numbers": lambda gpu: torch.stack([gpu.sum(), numbers()]),
    "chosen": lambda gpu: torch.where(numbers(3, 3) > 0, gpu, gpu),
    "masked": lambda gpu: gpu.masked_fill(numbers(3, 3) > 0, 0.0),
    "gathered": lambda gpu: gpu.gather(1, torch.zeros(3, 1, dtype=torch.long)),
    "index of the GPU": lambda gpu: numbers(3, 3)[gpu.argmax(0)],
    "set at an index": lambda gpu: gpu.__setitem__(torch.tensor([0]), numbers(1, 3)),
    "put": lambda gpu: gpu.index_put_((torch.tensor([0]),), numbers(3)),
    "into": lambda gpu: torch.add(gpu, gpu, out=numbers(3, 3)),
    "linear": lambda gpu: functional.linear(gpu, numbers(3, 3)),
    "numpy": lambda gpu: gpu.numpy(),
}


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("keep", [torch.no_grad, torch.inference_mode])
def test_a_mix_is_refused(gpu: None, name: str, keep: Callable[[], Any]) -> None:
    with keep(), pytest.raises((RuntimeError, TypeError), match=f"{MIXED}|can't convert cuda:0 device type tensor"):
        MIXES[name](numbers(3, 3).cuda())


def _set(tensor: torch.Tensor) -> torch.Tensor:
    tensor[0], tensor[1, :2] = numbers(3), 4
    tensor[torch.tensor([2])] = torch.tensor(5.0)
    tensor[tensor > 1] *= 2
    return ~(tensor > 0)


RIGHT: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda one, move: one * 2 + move(numbers(3, 3)),
    "a number of the CPU": lambda one, move: torch.tensor(2.0) * one + one.sum(),
    "an index of the CPU": lambda one, move: one[torch.tensor([True, False, True]), torch.tensor([0, 1])],
    "put at an index of the CPU": lambda one, move: one.clone().index_put_((torch.tensor([1]),), torch.tensor(7.0)),
    "set": lambda one, move: _set(one.clone()),
    "copied in": lambda one, move: torch.zeros_like(one).copy_(numbers(3, 3, seed=1)),
    "copied out": lambda one, move: torch.zeros(3, 3).copy_(one),
    "made there": lambda one, move: torch.arange(3.0, device=one.device) + torch.tensor([1.0, 2, 3], device=one.device),
    "made of numbers": lambda one, move: torch.tensor([one.max(), one.min()], device=one.device),
    "made like it": lambda one, move: torch.full_like(one, 2) + one.new_tensor([3.0]) + one.new_ones(3, 1),
    "views": lambda one, move: one.clone()[1:].view(-1).unflatten(0, (2, 3)).t().add_(1).contiguous(),
    "in place": lambda one, move: one.clone().mul_(2).masked_fill_(one > 0, 1).clamp_(max=2),
    "sorted": lambda one, move: one.sort(dim=1, descending=True).values + one.topk(2).indices.sum(),
    "channels last": lambda one, move: one.view(1, 1, 3, 3).to(memory_format=torch.channels_last).exp(),
    "half": lambda one, move: (one.half() @ one.half()).float() + one.to(torch.bfloat16),
    "reshaped in place": lambda one, move: one.clone().unsqueeze_(0).squeeze_().t_(),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("keep", [torch.no_grad, torch.inference_mode])
def test_what_a_gpu_allows_is_computed(gpu: None, name: str, keep: Callable[[], Any]) -> None:
    program = RIGHT[name]
    with keep():
        expected, found = (program(move(numbers(3, 3)), move) for move in (torch.clone, lambda one: one.to("cuda")))
    assert found.is_cuda is (name != "copied out") and found.shape == expected.shape
    assert found.stride() == expected.stride() and torch.allclose(found.cpu(), expected)


def test_a_generator_draws_on_its_own_device_only(gpu: None) -> None:
    there, at_home = (torch.Generator(device).manual_seed(3) for device in ("cuda", "cpu"))
    shares = torch.full((2, 4), 0.25)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randn(3, generator=at_home, device="cuda")
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.multinomial(shares.cuda(), 1, generator=at_home)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.randn(3, generator=there)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.multinomial(shares, 1, generator=there)
    one, other = (torch.Generator("cuda").manual_seed(3) for _ in range(2))
    assert torch.randn(3, generator=one, device="cuda").equal(torch.randn(3, generator=other, device="cuda"))


def test_other_threads_have_the_gpu_too(gpu: None) -> None:
    def work(number: int) -> torch.Tensor:
        moved: torch.Tensor = numbers(3, 3, seed=number).to("cuda")
        with pytest.raises(RuntimeError, match=MIXED):
            moved + numbers(3, 3)
        return moved.sum()

    with ThreadPoolExecutor(2) as pool:
        assert all(one.is_cuda for one in pool.map(work, range(4)))


def test_afterwards_the_machine_is_as_it_was() -> None:
    from diffusers.utils.torch_utils import get_device
    from transformers.utils import is_torch_cuda_available

    def machine() -> tuple[Any, ...]:
        return (
            torch.cuda.is_available(),
            get_device(),
            is_torch_cuda_available(),
            torch.Generator,
            torch.cuda._lazy_init,
        )

    before = machine()
    with simulated_gpu():
        assert machine()[:3] == (True, "cuda", True)
        left = numbers(3, 3).to("cuda")
    assert machine() == before and str(left.device) == "cuda:0"
    if not torch.cuda.is_available():
        with pytest.raises((RuntimeError, AssertionError)):
            numbers(3, 3).to("cuda")
