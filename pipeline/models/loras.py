"""LoRAs, such as those that let a model draw in few steps: added to the weights once, when the model is loaded.

diffusers reads the files and maps their names, in every format that it knows. This module computes the sum W + weight *
alpha / rank * (B A) itself. `load_lora_weights` and `fuse_lora` of diffusers need a further package for it, peft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.errors import CannotLoad, UserError
from pipeline.models.weights import LOAD_ERRORS, locate, unreadable
from pipeline.profiles.image_sections import Lora

if TYPE_CHECKING:
    import torch


def fuse(pipe: Any, lora: Lora) -> None:
    """Add a LoRA to the denoising network of a pipeline. Raises UserError if it does not fit."""
    from diffusers.utils.state_dict_utils import convert_unet_state_dict_to_peft

    file = locate("LoRA", lora)
    network = pipe.unet_name
    model = getattr(pipe, network)
    try:
        # Files for Stable Diffusion XL number blocks differently, which the network's configuration resolves.
        read = pipe.lora_state_dict(
            str(file.parent), weight_name=file.name, local_files_only=True, unet_config=model.config
        )
        state, alphas = read if isinstance(read, tuple) else (read, None)
        state, scales = (convert_unet_state_dict_to_peft(named or {}) for named in (state, alphas))
    except UserError:
        raise
    except (*LOAD_ERRORS, AttributeError) as error:
        raise unreadable("LoRA", lora, error) from error
    pairs = {key.removesuffix(".lora_A.weight"): weights for key, weights in state.items() if ".lora_A." in key}
    others = {key.split(".")[0] for key in pairs} - {network}
    if others or not pairs:
        what = f"changes the {min(others).replace('_', ' ')} too" if others else "has no layers that are known here"
        raise CannotLoad(f"The LoRA {lora.title} {what}: use a LoRA for the {network} alone.")
    for name, down in pairs.items():
        up = state[f"{name}.lora_B.weight"]
        # The alpha of an attention layer is named after its weights, that of others after the layer.
        alpha = float(scales.get(f"{name}.lora_A.weight.alpha", scales.get(f"{name}.alpha", len(down))))
        try:
            layer = model.get_submodule(name.removeprefix(f"{network}."))
            add(layer.weight, down, up, lora.weight * alpha / len(down))
        except (AttributeError, RuntimeError) as error:
            raise CannotLoad(
                f"The LoRA {lora.title} does not fit this image generator ({name}): use one that was made for it."
            ) from error


def add(weights: torch.Tensor, down: torch.Tensor, up: torch.Tensor, factor: float) -> None:
    """Add `factor` times the product of `up` and `down` to the weights of a linear or convolution layer."""
    import torch

    with torch.no_grad():
        left, right = (part.to(weights.device).flatten(1).float() for part in (up, down))
        product = (left @ right).reshape(weights.shape)
        weights.copy_(weights.float() + factor * product)
