"""Initial weights of a small LLaMA, which can copy text before any training.

Rewriting a caption is mostly copying. From random weights, a model this small needs millions of tokens to learn it.
Copying takes two kinds of attention heads: some look at the previous token, others look for what followed the same
token earlier. Here the first two layers start with such heads, which training may change.

An embedding has four parts: a constant (for heads that look back a fixed distance), the token itself, the token before
it, and the one before that.
"""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

SPREAD = 0.5
"""Standard deviation of the numbers in embeddings. It is large compared with one optimizer step."""
CONSTANT = 6.0
"""First coordinate of every token's embedding, in units of `SPREAD`."""
DISTANCE_SHARPNESS = 60.0
MATCH_SHARPNESS = 2.2
COPY_STRENGTH = 2.0
OUTPUT_SPREAD = 0.12


def _orthogonal(size: int, generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=generator))[0]


def _turns(head: int, theta: float) -> torch.Tensor:
    """Return rotation angles: by how much each pair of a head's numbers turns from one position to the next."""
    return theta ** (-torch.arange(head // 2) / (head // 2))


@torch.no_grad()
def start_copying(model: LlamaForCausalLM, seed: int = 0) -> None:
    """Let an untrained model copy text: set embeddings, output, layers 0 and 1. A layer needs at least four heads."""
    generator = torch.Generator().manual_seed(seed)
    width, heads = model.config.hidden_size, model.config.num_attention_heads
    head = width // heads
    half, tokens = head // 2, width - 2 * head
    token = slice(1, tokens)
    before, before_that = slice(tokens, tokens + head), slice(tokens + head, width)

    embeddings = model.model.embed_tokens.weight
    embeddings[:, token] = SPREAD * torch.randn(embeddings.shape[0], tokens - 1, generator=generator)
    embeddings[:, 0] = SPREAD * CONSTANT
    embeddings[:, tokens:] = 0
    for layer in model.model.layers:
        # the output of a layer starts at zero, so that it does not hide these weights
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()

    seen = _orthogonal(tokens - 1, generator)[:head]
    first = model.model.layers[0].self_attn
    turns = _turns(head, model.config.rope_parameters["rope_theta"])
    quick = torch.arange(4)
    for number, (distance, place) in enumerate(((1, before), (2, before_that))):
        rows = slice(number * head, (number + 1) * head)
        query, key = torch.zeros(head), torch.zeros(head)
        size = (DISTANCE_SHARPNESS**0.5) / CONSTANT
        query[quick] = size
        # a key rotated by the distance ahead equals the query at that distance
        key[quick], key[quick + half] = (
            size * torch.cos(turns[quick] * distance),
            size * torch.sin(turns[quick] * distance),
        )
        for projection, values in ((first.q_proj, query), (first.k_proj, key)):
            projection.weight[rows] = 0
            projection.weight[rows, 0] = values
        first.v_proj.weight[rows] = 0
        first.v_proj.weight[rows, token] = seen
        first.o_proj.weight[place, rows] = SPREAD * torch.eye(head)

    second = model.model.layers[1].self_attn
    copied, turned = _orthogonal(tokens - 1, generator), _orthogonal(tokens - 1, generator)
    slow = torch.arange(half // 2, half)
    slow = torch.cat((slow, slow + half))
    for number in range(4):
        rows = torch.arange(number * head, (number + 1) * head)
        second.q_proj.weight[rows] = 0
        second.k_proj.weight[rows] = 0
        second.v_proj.weight[rows] = 0
        chosen = torch.arange(head)[number % 2 :: 2]
        for i, (dim, row) in enumerate(zip(slow, chosen, strict=True)):
            if number < 2 or i % 2:
                # compares the current token with the token before each position
                second.q_proj.weight[rows[dim], token] = MATCH_SHARPNESS * seen[row]
                second.k_proj.weight[rows[dim], tokens + row] = MATCH_SHARPNESS
            else:
                # compares the token before with the token two before each position
                second.q_proj.weight[rows[dim], tokens + row] = MATCH_SHARPNESS
                second.k_proj.weight[rows[dim], tokens + head + row] = MATCH_SHARPNESS
        part = copied[number * head : (number + 1) * head]
        second.v_proj.weight[rows[: len(part)], token] = part
        second.o_proj.weight[token, rows[: len(part)]] = COPY_STRENGTH * SPREAD * turned @ part.T
    model.lm_head.weight.zero_()
    model.lm_head.weight[:, token] = OUTPUT_SPREAD / SPREAD * embeddings[:, token] @ turned.T
