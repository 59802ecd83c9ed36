"""Train your own perturber: `python -m experiments.train_perturber --out FOLDER`.

A perturber is a language model that makes one edit of a requested type in a caption. This program trains a LoRA for the
language model of a profile, or for another LLaMA. The LoRA learns from pairs of captions, from a file or drawn scenes.
Training stops once the loss on held-out captions no longer falls. Then the program merges the LoRA into the model, and
writes the model as GGUF and a profile that uses it. The same command resumes a stopped training.

`--adapter FOLDER` trains nothing: it merges a LoRA that is there already.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import torch
from gguf import GGUFReader
from sentencepiece import SentencePieceProcessor
from sentencepiece import sentencepiece_model_pb2 as proto_buffers
from transformers import EarlyStoppingCallback, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from core.errors import UserError
from demo.train.common import device
from demo.train.gguf_export import export
from experiments.perturber_pairs import Pair, drawn_pairs, held_out, read_pairs, write_pairs
from pipeline.models.weights import LOAD_ERRORS, locate
from pipeline.profiles.profile import PROFILES, Profile, load_profile
from pipeline.profiles.text_sections import GgufLanguage
from pipeline.recipes import LANCE

if TYPE_CHECKING:
    from peft import PeftModel

DRAWN = 6000
LAYERS = ("q_proj", "k_proj", "v_proj")
"""Names of the layers that the LoRA changes, as in LANCE."""
DROPOUT = 0.05
EVALUATE_EVERY = 25
"""Number of training steps between two evaluations of the loss on the held-out pairs."""
PATIENCE = 5
"""Training stops after this many evaluations in a row without a lower held-out loss."""
IGNORED = -100
MOST_NAMED = 10
"""Maximum number of invalid lines whose problems are printed one by one."""
BASE_FILE = "base.json"
"""Name of a file in a LoRA's folder. The file names the language model that the LoRA was trained on."""
LONGEST_CONTEXT = 4096

Encoded = Mapping[str, list[int]]


@dataclass(frozen=True)
class Base:
    """A loaded language model to train a LoRA on."""

    name: str
    model: LlamaForCausalLM
    pieces: SentencePieceProcessor

    def fingerprint(self) -> str:
        """Return a hash of the model's weights at half precision."""
        digest = hashlib.sha256()
        for name, weights in sorted(self.model.state_dict().items()):
            digest.update(name.encode() + weights.detach().half().cpu().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Plan:
    """The settings of a training."""

    steps: int
    """Maximum number of training steps."""
    batch: int
    rank: int
    learning_rate: float


def load_base(file: Path) -> Base:
    """Load a LLaMA from a GGUF file or a transformers folder. Raises UserError if ctransformers cannot run it."""
    kind = torch.bfloat16 if device().type == "cuda" else torch.float32
    try:
        if file.is_dir():
            config = LlamaConfig.from_pretrained(file)
            pieces = SentencePieceProcessor(model_file=str(file / "tokenizer.model"))
            family = json.loads((file / "config.json").read_text(encoding="utf-8")).get("model_type")
            model = LlamaForCausalLM.from_pretrained(file, dtype=kind) if family == "llama" else None
        else:
            fields = GGUFReader(str(file)).fields
            family = fields["general.architecture"].contents()
            pieces = pieces_of(fields)
            is_llama = family == fields["tokenizer.ggml.model"].contents() == "llama"
            model = LlamaForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=kind) if is_llama else None
            config = model.config if model is not None else None
    except (*LOAD_ERRORS, IndexError) as error:
        raise UserError(
            f"The language model {file} cannot be loaded: give a LLaMA in GGUF, or a folder of transformers with its "
            f"tokenizer.model ({error})."
        ) from error
    plain = model is not None and not (config.attention_bias or config.mlp_bias)
    if (
        model is None
        or not plain
        or config.rope_parameters["rope_type"] != "default"
        or len(pieces) != config.vocab_size
    ):
        raise UserError(
            f"ctransformers cannot run the language model {file}. Use the option --base to name another model: one "
            "like LLaMA 1 or 2 that has a sentencepiece tokenizer."
        )
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer.remove_quantization_config(model)  # once loaded, weights of a GGUF file are plain numbers
    model.name_or_path = ""  # peft asks the hub about a model that has a name
    return Base(str(file), model.eval(), pieces)


def pieces_of(fields: Mapping[str, Any]) -> SentencePieceProcessor:
    """Return the tokenizer in the fields of a GGUF file. Like llama.cpp, it does not normalise the text."""
    kinds: Any = proto_buffers  # its names are made when it is imported
    proto = kinds.ModelProto()
    columns = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores", "token_type"))
    for piece, score, kind in zip(*columns, strict=True):
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.model_type = kinds.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.vocab_size = len(proto.pieces)
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=proto.SerializeToString())


def encoder(profile: Profile, base: Base) -> Any:
    """Return a function that turns a pair into tokens: first the studio's prompt, then the reply to learn."""
    section, prompt = profile.language, LANCE.prompts(profile.prompts)["perturbations"]
    template = Template(section.chat_template if isinstance(section, GgufLanguage) else "$prompt")
    pieces = base.pieces

    def encoded(pair: Pair) -> Encoded:
        question = prompt.evaluate(task=pair.task.describe(), type=pair.type, caption=pair.caption)
        text = template.substitute(prompt=question, system=getattr(section, "system", ""))
        start = [pieces.bos_id(), *pieces.encode(text)]
        reply = [*pieces.encode(pair.reply), pieces.eos_id()]
        return {"input_ids": start + reply, "labels": [IGNORED] * len(start) + reply}

    return encoded


def padded(examples: Sequence[Encoded]) -> dict[str, torch.Tensor]:
    """Return a batch of these examples, padded on the right to equal length."""
    longest = max(len(one["input_ids"]) for one in examples)

    def rows(name: str, fill: int) -> torch.Tensor:
        return torch.tensor([one[name] + [fill] * (longest - len(one[name])) for one in examples])

    ids = rows("input_ids", -1)
    return {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long(), "labels": rows("labels", IGNORED)}


def learn(base: Base, train: list[Encoded], out: list[Encoded], plan: Plan, folder: Path) -> PeftModel:
    """Train a LoRA with early stopping and keep its best state in `folder/adapter`. Resumes from the last checkpoint.
    `out` holds the held-out examples. Raises UserError if the folder has a training with another model, pairs or
    settings.
    """
    from peft import LoraConfig, get_peft_model

    adapter, fingerprint = folder / "adapter", base.fingerprint()
    _require_same(folder, {"base": fingerprint, "pairs": _digest([train, out]), "settings": vars(plan)})
    if (adapter / BASE_FILE).exists():
        return with_adapter(base, adapter)
    torch.manual_seed(0)
    config = LoraConfig(
        r=plan.rank,
        lora_alpha=2 * plan.rank,
        lora_dropout=DROPOUT,
        target_modules=list(LAYERS),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base.model, config)
    checkpoints = folder / "checkpoints"
    arguments = TrainingArguments(
        str(checkpoints),
        max_steps=plan.steps,
        per_device_train_batch_size=plan.batch,
        per_device_eval_batch_size=plan.batch,
        learning_rate=plan.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=min(20, plan.steps // 10),
        train_sampling_strategy="group_by_length",
        eval_strategy="steps",
        save_strategy="steps",
        logging_strategy="steps",
        eval_steps=EVALUATE_EVERY,
        save_steps=EVALUATE_EVERY,
        logging_steps=EVALUATE_EVERY,
        eval_on_start=True,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        restore_callback_states_from_checkpoint=True,
        label_names=["labels"],
        dataloader_pin_memory=False,
        report_to="none",
        use_cpu=device().type == "cpu",
        bf16=device().type == "cuda",
    )
    trainer = Trainer(
        model,
        arguments,
        padded,
        train,
        out,
        callbacks=[EarlyStoppingCallback(PATIENCE)],
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None)
    losses = {int(entry["step"]): entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    before = losses.pop(0)
    best = min(losses, key=lambda step: losses[step])
    print(f"Held-out loss: {before:.3f} before, {losses[best]:.3f} after step {best} of {max(losses)}, which is kept.")
    if losses[best] >= before:
        print("It did not fall: these pairs teach the model nothing that it does not know.")
    model.save_pretrained(str(adapter))
    _write(adapter / BASE_FILE, {"name": base.name, "sha256": fingerprint})
    return model


def with_adapter(base: Base, folder: Path) -> PeftModel:
    """Return the model with the LoRA from a folder. Raises UserError if none exists, or if it was trained on another
    model.
    """
    from peft import LoraConfig, PeftConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from peft.utils import load_peft_weights

    try:
        config = PeftConfig.from_pretrained(str(folder))
        weights = load_peft_weights(str(folder), device="cpu")
        if not isinstance(config, LoraConfig):
            raise ValueError(f"it holds {config.peft_type}")
    except (*LOAD_ERRORS, TypeError) as error:
        raise UserError(f"The folder {folder} has no LoRA in peft's format ({error}): give another folder.") from error
    note, named = folder / BASE_FILE, config.base_model_name_or_path or "not known"
    config.base_model_name_or_path = None
    noted = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {"name": named}
    same = noted.get("sha256") in (None, base.fingerprint())
    try:
        model = get_peft_model(base.model, config) if same else None
    except ValueError:  # the model has no layers with the LoRA's names
        model = None
    if model is None or _shapes(weights) != _shapes(get_peft_model_state_dict(model)):
        raise UserError(
            f"The LoRA {folder} was made for another language model than {base.name}: give its language model, "
            f"{noted['name']}, with --base."
        )
    set_peft_model_state_dict(model, weights)
    return model.eval()


def _shapes(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def _require_same(folder: Path, training: Mapping[str, Any]) -> None:
    file = folder / "training.json"
    if not file.exists():
        _write(file, training)
        return
    recorded = json.loads(file.read_text(encoding="utf-8"))
    names = {"base": "another language model", "pairs": "other pairs", "settings": "other settings"}
    others = [difference for name, difference in names.items() if recorded.get(name) != training[name]]
    if others:
        raise UserError(
            f"{folder} holds a training with {' and '.join(others)}: remove this folder, or give another with --out."
        )


def _write(file: Path, data: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(file)


def write_profile(profile: Profile, source: Path, base: Base, gguf: Path, file: Path) -> None:
    """Write a profile that uses the language model `gguf`. It is otherwise a copy of the profile file `source`."""
    section = profile.language
    language: dict[str, Any] = {"kind": "llama-gguf", "path": str(gguf.resolve())}
    if isinstance(section, GgufLanguage):
        places = {"path", "hub", "revision", "file", "files", "bytes", "memory_half", "memory_full", "size"}
        language |= section.model_dump(mode="json", exclude_unset=True, exclude=places | {"kind"})
    else:
        language["context_length"] = min(base.model.config.max_position_embeddings, LONGEST_CONTEXT)
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in language.items())
    text = re.sub(
        r"^\[language\]\n.*?(?=^\[|\Z)",
        lambda _: f"[language]\n{table}\n",
        source.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    text = re.sub(r"^name = .*$", f'name = "{profile.name}-own"', text, count=1, flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")
    load_profile(str(file))


def base_file(profile: Profile, named: Path | None) -> Path:
    """Return the path of the language model to train a LoRA on: `named`, or else the profile's. Raises UserError if the
    profile's model is no LLaMA in GGUF.
    """
    if named is not None:
        return named
    if not isinstance(profile.language, GgufLanguage):
        raise UserError(
            f"The language model of the profile {profile.name} is no LLaMA in GGUF: give a LLaMA with --base, in GGUF "
            "or as a folder of transformers."
        )
    return locate("language model", profile.language)


def given_pairs(file: Path) -> list[Pair]:
    """Return the valid pairs of a file. Print the number of invalid lines, and the problems of the first ones."""
    pairs, faults = read_pairs(file)
    if faults:
        more = f"\n  and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        listed = "".join(f"\n  {fault}" for fault in faults[:MOST_NAMED])
        lines = len(faults) + len(pairs)
        print(f"{len(faults)} of {lines} lines of {file} are left out:{listed}{more}", file=sys.stderr)
    return pairs


def fitting(pairs: Sequence[Pair], encoded: Any, context: int) -> list[Encoded]:
    """Return the tokens of each pair that has at most `context` tokens. Print the number of longer pairs."""
    tokens = [encoded(pair) for pair in pairs]
    fits = [one for one in tokens if len(one["input_ids"]) <= context]
    if len(fits) < len(tokens):
        print(f"{len(tokens) - len(fits)} pairs are left out: longer than {context} tokens.", file=sys.stderr)
    if not fits:
        raise UserError(f"All pairs exceed the language model's limit of {context} tokens: shorten the captions.")
    return fits


def make(options: argparse.Namespace) -> Path:
    """Train or merge a LoRA as the command line asks, and return the file of the new profile. Raises UserError."""
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing", FutureWarning)  # peft uses the old name
    if find_spec("peft") is None:
        raise UserError(
            "The package peft is not installed: run .venv/bin/python -m pip install -r requirements-dev.txt."
        )
    profile = load_profile(options.profile)
    source = Path(options.profile) if options.profile.endswith(".toml") else PROFILES / f"{options.profile}.toml"
    folder: Path = options.out
    base = load_base(base_file(profile, options.base))
    if options.adapter is not None:
        model = with_adapter(base, options.adapter)
        folder.mkdir(parents=True, exist_ok=True)
    else:
        train, out = held_out(given_pairs(options.pairs) if options.pairs is not None else drawn_pairs(options.drawn))
        print(f"{len(train)} pairs to train on, {len(out)} held out, in {folder}.")
        folder.mkdir(parents=True, exist_ok=True)
        write_pairs(train, folder / "pairs.jsonl")
        write_pairs(out, folder / "held_out.jsonl")
        plan = Plan(options.steps, options.batch, options.rank, options.learning_rate)
        context = base.model.config.max_position_embeddings
        examples, tests = (fitting(side, encoder(profile, base), context) for side in (train, out))
        model = learn(base, examples, tests, plan, folder)
    gguf, file = folder / "model.gguf", folder / "profile.toml"
    export(model.merge_and_unload(), base.pieces, gguf, f"{profile.name}-own")
    write_profile(profile, source, base, gguf, file)
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.train_perturber", description=__doc__)
    parser.add_argument("--pairs", type=Path, help="pairs of captions, a JSON object per line (default: drawn scenes)")
    parser.add_argument(
        "--drawn", type=int, default=DRAWN, help="how many pairs of drawn scenes (default: %(default)s)"
    )
    parser.add_argument("--profile", default="demo", help="its language model and prompts (default: %(default)s)")
    parser.add_argument("--base", type=Path, help="another LLaMA: a GGUF file, or a folder of transformers")
    parser.add_argument("--adapter", type=Path, help="merge the LoRA of this folder, and train nothing")
    parser.add_argument("--out", type=Path, default=Path("build/perturber"), help="folder (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=600, help="most steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=10, help="pairs a step (default: %(default)s)")
    parser.add_argument("--rank", type=int, default=8, help="rank of the LoRA (default: %(default)s)")
    parser.add_argument(
        "--learning-rate", type=float, default=3e-3, help="3e-4 for a model of billions (default: %(default)s)"
    )
    try:
        profile = make(parser.parse_args(arguments))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"The model and its profile are written. Use them with:\n  python app.py --profile {profile}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
