"""Trains the embedded language model: a small LLaMA with its own tokenizer, shipped as one GGUF file.

`python -m demo.train.llama` makes the tokenizer, trains on `demo.train.corpus`, exports the model, and scores the
exported file through ctransformers. The prompt counts a little in the loss, which teaches copying early. Batches hold
examples of similar length, so that little of them is padding.

The shipped model was first trained without perturbations. Two further trainings (`--go-on`) added them, with examples
of all stages: 1,609 steps at a learning rate of 1e-3, then 1,845 at 5e-4 with more alternatives. The shipped weights
are the mean of the models after these two trainings. The mean forgot less than either model.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import sentencepiece
import torch
from gguf import GGUFReader
from torch.nn import functional
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

from demo.train.common import TRAIN_SEEDS, Run, arguments, carried_over, device, half_precision
from demo.train.copying import start_copying
from demo.train.corpus import Example, load_templates, random_example
from demo.train.gguf_export import export
from demo.train.llama_scores import score

CONTEXT = 512
VOCABULARY = 1280
SENTENCES = 20_000
"""Number of examples from which the tokenizer is trained."""
WORDING_SHARES = {"keywords": 2, "alternatives": 2, "counterfactuals": 6}
"""Relative numbers of examples by stage for training the tokenizer. These stages contain all words that are needed."""
SHARES = {**WORDING_SHARES, "alternatives": 3, "perturbations": 5}
POOL = 1024
"""Number of examples that are sorted by length together, and then cut into batches."""
NONSENSE = 0.25
"""Share of counterfactual examples that are short nonsense. From these the model learns copying fastest."""
PROMPT_WEIGHT = 0.1
IGNORED = -100


def short_attention(
    module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: object, scaling: float, **__: object
) -> tuple[torch.Tensor, None]:
    """Compute causal attention from (batch, heads, length, width) to (batch, length, heads, width), in plain steps. On
    a CPU with such short texts, this is a quarter faster than the fused kernel, including the backward pass.
    """
    future = torch.full((q.shape[2], q.shape[2]), float("-inf"), dtype=q.dtype).triu(1)
    scores = torch.matmul(q * scaling, k.transpose(2, 3)) + future
    return torch.matmul(torch.softmax(scores, -1).to(v.dtype), v).transpose(1, 2).contiguous(), None


def new_model() -> LlamaForCausalLM:
    """Return a model of 3 million parameters. A larger one would see too few examples in the training time."""
    AttentionInterface.register("short", short_attention)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=6,
            num_attention_heads=6,
            num_key_value_heads=6,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            bos_token_id=1,
            eos_token_id=2,
            attn_implementation="short" if device().type == "cpu" else "sdpa",
        )
    )


def random_examples(rng: random.Random, count: int, shares: Mapping[str, int] = SHARES) -> list[Example]:
    """Return examples of all stages, in the proportions `shares`, for scenes that are reserved for training."""
    stages = rng.choices(list(shares), list(shares.values()), k=count)
    seeds = [rng.randrange(TRAIN_SEEDS, 2 * TRAIN_SEEDS) for _ in stages]
    return [random_example(rng, stage, seed, nonsense=NONSENSE) for stage, seed in zip(stages, seeds, strict=True)]


def train_pieces(lines: Iterator[str], vocabulary: int) -> bytes:
    """Return a sentencepiece BPE model with byte fallback, trained on `lines`. Like llama.cpp, it changes no text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        model_type="bpe",
        vocab_size=vocabulary,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.9999,
        split_digits=True,
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


def make_tokenizer(path: Path) -> None:
    """Train the tokenizer on examples of the corpus and save it. Each word of the demo's captions becomes one token."""
    templates = load_templates()
    examples = random_examples(random.Random(0), SENTENCES, WORDING_SHARES)
    lines = (line for e in examples for line in f"{e.prompt(templates)} {e.reply}".split("\n"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(train_pieces(lines, VOCABULARY))


class Batches:
    """Endless batches of at most `tokens` tokens: token ids, next ids and loss weights, each (examples, length)."""

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor, seed: int, tokens: int) -> None:
        self._pieces, self._rng, self._tokens = pieces, random.Random(seed), tokens
        self._templates = load_templates()

    def _encode(self, example: Example) -> tuple[list[int], int]:
        prompt = [self._pieces.bos_id(), *self._pieces.encode(example.prompt(self._templates))]
        # sentencepiece itself adds the space before the reply's first word
        return prompt + self._pieces.encode(example.reply) + [self._pieces.eos_id()], len(prompt)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        while True:
            encoded = [self._encode(e) for e in random_examples(self._rng, POOL)]
            encoded = sorted((e for e in encoded if len(e[0]) <= CONTEXT), key=lambda e: len(e[0]))
            groups: list[list[tuple[list[int], int]]] = [[]]
            for item in encoded:
                if (len(groups[-1]) + 1) * len(item[0]) > self._tokens:
                    groups.append([])
                groups[-1].append(item)
            self._rng.shuffle(groups)
            for group in groups:
                yield self._tensors(group)

    def _tensors(self, group: list[tuple[list[int], int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        length = max(len(ids) for ids, _ in group) - 1
        inputs = torch.zeros(len(group), length, dtype=torch.long)
        targets = torch.full((len(group), length), IGNORED)
        weights = torch.zeros(len(group), length)
        for row, (ids, prompt) in enumerate(group):
            inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
            targets[row, : len(ids) - 1] = torch.tensor(ids[1:])
            weights[row, : prompt - 1] = PROMPT_WEIGHT
            weights[row, prompt - 1 : len(ids) - 1] = 1
        return inputs, targets, weights


def load_finished(path: Path, model: LlamaForCausalLM, pieces: sentencepiece.SentencePieceProcessor) -> None:
    """Load the weights of a GGUF file into a new model, whose vocabulary may differ."""
    state = LlamaForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).state_dict()
    tokens = GGUFReader(str(path)).fields["tokenizer.ggml.tokens"].contents()
    before = {token: row for row, token in enumerate(tokens)}
    vocabulary = {pieces.id_to_piece(row): row for row in range(pieces.vocab_size())}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = carried_over(model.state_dict()[name], vocabulary, state[name], before)
    model.load_state_dict(state)


def main() -> None:
    options = arguments("language model", 90, can_go_on=True)
    torch.manual_seed(0)
    tokenizer_file = options.work / "llama-tokenizer.model"
    if options.fresh or not tokenizer_file.exists():
        make_tokenizer(tokenizer_file)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer_file))
    model = new_model()
    out = options.out / "llama" / "model.gguf"
    if options.go_on:
        load_finished(out, model, pieces)
    else:
        start_copying(model)
    model = model.to(device())
    speed = 5e-4 if options.go_on else 2e-3  # a high rate would destroy what was learnt
    optimizer = torch.optim.AdamW(model.parameters(), lr=speed, weight_decay=0.05, betas=(0.9, 0.98), fused=True)
    run = Run("llama", options, optimizer, model=model)
    batches = iter(Batches(pieces, run.step, tokens=1536 if device().type == "cpu" else 16384))
    for _ in run:
        inputs, targets, weights = (part.to(device()) for part in next(batches))
        with half_precision():
            # causal attention needs no mask: the padding is on the right
            hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden)
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
        )
        flat = weights.flatten()
        loss = (losses * flat).sum() / flat.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        reply = flat == 1
        with torch.no_grad():
            right = (logits.flatten(0, 1)[reply].argmax(-1) == targets.flatten()[reply]).float().mean()
        run.report(loss=loss.item(), reply=losses[reply].mean().item(), right=right.item())
    export(model, pieces, out, "demo-llama")
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
    score(out)


if __name__ == "__main__":
    main()
