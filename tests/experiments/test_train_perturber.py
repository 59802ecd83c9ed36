"""Train a LoRA on a tiny LLaMA with the real peft, transformers and ctransformers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from sentencepiece import SentencePieceProcessor
from transformers import LlamaConfig, LlamaForCausalLM

from core.model_sections import ROOT
from core.settings import LanguageSettings
from demo.train.gguf_export import export
from demo.train.llama import train_pieces
from demo.train.llama_scores import load
from experiments import train_perturber
from experiments.perturber_pairs import Pair, drawn_pairs, held_out, read_pairs, write_pairs
from pipeline.models.language import GgufModel, which_build
from pipeline.profiles.profile import load_profile
from pipeline.recipes import LANCE
from pipeline.seams import LanguageRequest

pytestmark = pytest.mark.slow
STEPS = 300
BAD = (
    "A red bird in sunny weather.",
    '{"caption": "A red bird by day.", "changed": "A red bird at night.", "type": "hour", "label": "bird"}',
    '{"caption": "A red bird by day.", "changed": "A blue bird at night.", "type": "weather", "label": "bird"}',
    '{"caption": "A red bird by day.", "changed": "A red bird at night.", "type": "time of day"}',
    '{"caption": "A red bird by day.", "changed": "A red cat by day.", "type": "subject", "label": "bird"}',
)


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a call of the program."""

    code: int
    printed: str


def call(*words: str | Path) -> Ended:
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = train_perturber.main([str(word) for word in words])
    return Ended(code, printed.getvalue())


def save_base(pieces: SentencePieceProcessor, file: Path, seed: int, layers: int = 2) -> None:
    """Save a tiny LLaMA of random weights as GGUF, and in a folder beside it for transformers."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(pieces), hidden_size=64, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=400, rms_norm_eps=1e-5, tie_word_embeddings=False,
        initializer_range=0.2, rope_parameters={"rope_type": "default", "rope_theta": 50_000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    export(model, pieces, file, "tiny")
    model.half().save_pretrained(file.with_suffix(""))
    (file.with_suffix("") / "tokenizer.model").write_bytes(pieces.serialized_model_proto())


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the models "own", "other" (other weights) and "deeper", and the file of pairs."""
    folder = tmp_path_factory.mktemp("bases")
    pairs = drawn_pairs(20)
    write_pairs(pairs, folder / "pairs.jsonl")
    lines = (f"{pair.task.describe()}\n{pair.type}\n{pair.caption}\n{pair.reply}" for pair in pairs)
    pieces = SentencePieceProcessor(model_proto=train_pieces(iter("\n".join(lines).split("\n")), 500))
    save_base(pieces, folder / "own.gguf", 0)
    save_base(pieces, folder / "other.gguf", 1)
    save_base(pieces, folder / "deeper.gguf", 0, layers=3)
    return folder


@pytest.fixture(scope="module")
def often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_perturber, "EVALUATE_EVERY", 5)
        patch.setattr(train_perturber, "PATIENCE", 2)
        yield


@pytest.fixture(scope="module")
def trained(bases: Path, often: None) -> tuple[Path, Ended]:
    """Train on pairs with some invalid lines. Return the folder of the training, and the program's output."""
    text = (bases / "pairs.jsonl").read_text(encoding="utf-8")
    (bases / "brought.jsonl").write_text(f"{BAD[0]}\n{text}\n" + "\n".join(BAD[1:]), encoding="utf-8")
    return bases / "trained", train(bases)


def train(bases: Path, *more: str | Path) -> Ended:
    out = ("--out", bases / "trained", "--pairs", bases / "brought.jsonl", "--base", bases / "own.gguf")
    return call(*out, "--steps", str(STEPS), "--learning-rate", "2e-2", *more)


def test_pairs_come_back_from_their_file_and_bad_lines_are_named(tmp_path: Path) -> None:
    pairs = drawn_pairs(20)
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    assert read_pairs(tmp_path / "pairs.jsonl") == (pairs, [])
    assert any(pair.reply == "none" for pair in pairs) and any(" -> " in pair.reply for pair in pairs)
    (tmp_path / "bad.jsonl").write_text("\n".join(BAD), encoding="utf-8")
    assert read_pairs(tmp_path / "bad.jsonl") == (
        [],
        [
            "line 1: it is no JSON object",
            "line 2, type: choose subject, object, attribute, background, weather, time of day or domain",
            "line 3: 2 places of the caption are changed: change only one",
            "line 4: give either label or protected, which is a list of classes",
            "line 5: the changed caption fails the check “label kept”: “bird” is no longer in the caption, but "
            "protected by the task",
        ],
    )


def test_the_edit_of_a_pair_is_what_differs_unless_it_is_given() -> None:
    plain = {"caption": "A red bird by day.", "changed": "A red bird at night.", "type": "time of day", "label": "bird"}
    assert Pair.model_validate(plain).reply == "by day -> at night | A red bird at night."
    with pytest.raises(ValueError, match="edit must look like"):
        Pair.model_validate({**plain, "edit": "by week -> at night"})


def test_all_pairs_of_a_caption_are_on_one_side() -> None:
    pairs = drawn_pairs(30)
    train_side, out = held_out([*pairs, *pairs])
    assert len(train_side) + len(out) == 60 and len(out) == 6
    assert not {pair.caption for pair in train_side} & {pair.caption for pair in out}


def test_the_loss_falls_and_the_training_stops_early(trained: tuple[Path, Ended]) -> None:
    folder, ended = trained
    assert ended.code == 0, ended.printed
    last = max(folder.glob("checkpoints/*/trainer_state.json"), key=lambda file: file.stat().st_mtime)
    state = json.loads(last.read_text(encoding="utf-8"))
    losses = {one["step"]: one["eval_loss"] for one in state["log_history"] if "eval_loss" in one}
    assert min(losses.values()) < 0.9 * losses[0], losses
    assert max(losses) < STEPS, "it ended before its last step"
    best = min(losses, key=lambda step: losses[step])
    assert f"after step {best} of {max(losses)}, which is kept" in ended.printed


def test_bad_lines_are_counted_and_named(trained: tuple[Path, Ended]) -> None:
    printed = trained[1].printed
    assert "5 of 25 lines of" in printed and "line 1: it is no JSON object" in printed and "line 26" in printed


def test_the_merged_file_gives_the_tokens_of_the_merged_model(bases: Path, trained: tuple[Path, Ended]) -> None:
    base = train_perturber.load_base(bases / "own.gguf")
    before = {name: weights.clone() for name, weights in base.model.state_dict().items()}
    model = train_perturber.with_adapter(base, trained[0] / "adapter").merge_and_unload()
    changed = {name for name, weights in model.state_dict().items() if not torch.equal(weights, before[name])}
    assert changed == {f"model.layers.{n}.self_attn.{layer}_proj.weight" for n in (0, 1) for layer in "qkv"}
    ids = [base.pieces.bos_id(), *base.pieces.encode("Caption: A red bird in sunny weather by day.\nReply:")]
    file, told = load(trained[0] / "model.gguf"), 0
    for _ in range(40):
        file.eval(file.prepare_inputs_for_generation(ids, reset=True))
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        if first - second > 0.02:  # half precision may change the order of nearly equal logits
            assert int(np.argmax(file.logits)) == int(logits.argmax())
            told += 1
        ids.append(int(logits.argmax()))
    assert told > 20


def test_the_tokenizer_read_from_gguf_is_that_of_the_file(bases: Path) -> None:
    pieces = train_perturber.load_base(bases / "own.gguf").pieces
    llm = load(bases / "own.gguf")
    for text in ("A red bird in sunny weather.\nReply:", "two  spaces, 12 numbers; ünknown létters 日本"):
        assert [pieces.bos_id(), *pieces.encode(text)] == GgufModel._tokenize_bytes(  # type: ignore[arg-type]
            type("Held", (), {"_llm": llm})(), text.encode()
        )


def test_the_profile_runs_the_new_model(trained: tuple[Path, Ended]) -> None:
    assert f"python app.py --profile {trained[0] / 'profile.toml'}" in trained[1].printed
    profile, demo = load_profile(str(trained[0] / "profile.toml")), load_profile("demo")
    assert profile.name == "demo-own"
    section = profile.language
    assert section.model_copy(update={"path": demo.language.path}) == demo.language  # type: ignore[union-attr]
    assert profile.model_copy(update={"language": demo.language, "name": "demo"}) == demo
    prompt = LANCE.prompts(profile.prompts)["perturbations"]
    asked = prompt.evaluate(task="image classification with the label bird", type="weather", caption="A red bird.")
    model = GgufModel(section, section.path, which_build(0))  # type: ignore[arg-type, union-attr]
    assert model.complete(LanguageRequest(asked, 0, ()), LanguageSettings(max_new_tokens=8))


def test_the_same_command_trains_no_second_time(bases: Path, trained: tuple[Path, Ended]) -> None:
    before = (trained[0] / "model.gguf").read_bytes()
    again = train(bases)
    assert again.code == 0 and "Held-out loss" not in again.printed
    assert (trained[0] / "model.gguf").read_bytes() == before


def test_a_training_that_was_stopped_goes_on_from_its_checkpoint(bases: Path, trained: tuple[Path, Ended]) -> None:
    before = (trained[0] / "model.gguf").read_bytes()
    shutil.rmtree(trained[0] / "adapter")
    again = train(bases)
    assert again.code == 0 and "Held-out loss" in again.printed
    assert (trained[0] / "model.gguf").read_bytes() == before, "its best state is the one of before"


def test_other_settings_do_not_go_on_with_a_training(bases: Path, trained: tuple[Path, Ended]) -> None:
    refused = train(bases, "--rank", "4")
    assert refused.code == 2
    assert f"{trained[0]} holds a training with other settings: remove this folder" in refused.printed


@pytest.mark.parametrize(("base", "noted"), [("other", True), ("deeper", True), ("deeper", False)])
def test_a_lora_of_another_model_is_refused(
    bases: Path, trained: tuple[Path, Ended], tmp_path: Path, base: str, noted: bool
) -> None:
    adapter = tmp_path / "adapter"
    shutil.copytree(trained[0] / "adapter", adapter)
    if not noted:  # as in LoRAs of other programs
        (adapter / train_perturber.BASE_FILE).unlink()
    refused = call("--adapter", adapter, "--base", bases / f"{base}.gguf", "--out", tmp_path / "out")
    assert refused.code == 2
    assert f"The LoRA {adapter} was made for another language model than {bases / base}.gguf" in refused.printed
    assert not (tmp_path / "out").exists()


def test_a_lora_alone_is_merged_into_its_model_in_a_folder_of_transformers(
    bases: Path, trained: tuple[Path, Ended], tmp_path: Path
) -> None:
    merged = call("--adapter", trained[0] / "adapter", "--base", bases / "own", "--out", tmp_path)
    assert merged.code == 0, merged.printed
    assert (tmp_path / "model.gguf").read_bytes() == (trained[0] / "model.gguf").read_bytes()


def test_what_is_no_model_is_refused_in_a_sentence(bases: Path, tmp_path: Path) -> None:
    refused = call("--base", bases / "pairs.jsonl", "--out", tmp_path / "out")
    assert refused.code == 2 and "cannot be loaded: give a LLaMA in GGUF" in refused.printed
    refused = call("--adapter", bases, "--base", bases / "own.gguf", "--out", tmp_path / "out")
    assert refused.code == 2 and "has no LoRA in peft's format" in refused.printed


def test_the_pairs_of_the_docs_are_pairs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "pairs.jsonl").write_text(example, encoding="utf-8")
    pairs, faults = read_pairs(tmp_path / "pairs.jsonl")
    assert faults == [] and [pair.reply.partition(" | ")[0] for pair in pairs] == [
        "sunny -> foggy",
        "at dusk -> at night",
        "none",
    ]
