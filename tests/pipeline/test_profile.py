"""Profiles as data: read, validated, and refused with the invalid key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from core.errors import CannotLoad, UserError
from core.model_sections import ROOT, SentenceModel, Weights, in_bytes
from pipeline.models import Models, load_models
from pipeline.models.weights import unreadable
from pipeline.profiles.profile import PROFILES, Profile, load_profile, profile_names
from pipeline.profiles.text_sections import ChatLanguage, GgufLanguage
from pipeline.recipes import DILLEMA
from services.runs.state import model_names


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_load_with_their_prompts(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name and profile.title and profile.licence
    assert DILLEMA.prompts(profile.prompts).name == profile.prompts
    assert profile.tasks.labels and profile.tasks.protected


def test_both_profiles_have_the_same_sections() -> None:
    demo, paper = (tomllib.loads((PROFILES / f"{n}.toml").read_text()) for n in ("demo", "paper"))
    sections = {key for key, value in paper.items() if isinstance(value, dict)}
    assert sections == {
        key for key, value in demo.items() if isinstance(value, dict) and key not in ("recipes", "segmenter")
    }


def test_demo_is_local_and_paper_says_size_and_licence() -> None:
    assert all(weights.local() for weights in load_profile("demo").weights().values())
    assert load_profile("demo").samples_folder() == ROOT / "demo/samples"
    for weights in load_profile("paper").weights().values():
        in_a_package = isinstance(weights, SentenceModel) and weights.package
        assert weights.licence
        if not in_a_package:
            assert weights.hub and weights.bytes and 0 < weights.memory_half <= weights.memory_full
            assert weights.size_in_words.startswith("about ") and weights.size_in_words.endswith((" GB", " MB"))


def test_a_profile_says_what_is_pinned_and_how_much_is_fetched() -> None:
    paper = load_profile("paper").weights()
    assert {role for role, weights in paper.items() if weights.hub and not weights.pinned} == {
        "captioner",
        "ControlNet for segmentation",
        "preview VAE",
    }, "known for certain of the others; docs/models.md names these three"
    assert [in_bytes(n) for n in (31e9, 2.742e9, 29_444_406, 999.9e6, 1.2e12)] == [
        "31 GB",
        "2.7 GB",
        "29 MB",
        "1 GB",
        "1200 GB",
    ]
    assert Weights(hub="a/b", size="some 3 GB").size_in_words == "some 3 GB", "as profiles of before have it"
    assert Weights(hub="a/b").size_in_words == "size unknown"


def test_the_paper_profile_is_as_near_to_the_released_code_as_it_can_be() -> None:
    """HED, UniPC, guidance 7.5, up to three random edits, five test cases per image, temperature 0.1 and top-p 0.85.
    Its five steps are a preset. docs/paper-and-here.md has the rest.
    """
    paper = load_profile("paper")
    held, preset = paper.settings, paper.preset("paper")
    assert (held.conditioning.kind, held.generation.guidance, held.generation.short_side) == ("soft edges", 7.5, 512)
    assert paper.generator.scheduler is not None and paper.generator.scheduler.name == "UniPCMultistepScheduler"
    assert (preset["steps"], preset["guidance"], preset["short_side"]) == (5, 7.5, 512)
    counted = held.counterfactuals
    assert (counted.edits_at_once, counted.combinations, counted.captions) == (3, "at random", 5)
    for stage in (held.keywords, held.alternatives, held.counterfactuals):
        assert (stage.temperature, stage.top_p) == (0.1, 0.85)


@pytest.mark.parametrize("name", ["fast", "sdxl", "modern", "edit", "cpu"])
def test_the_language_models_sample_as_their_authors_say(name: str) -> None:
    profile = load_profile(name)
    assert isinstance(profile.language, ChatLanguage)
    assert (profile.language.top_k, profile.language.thinking) == (20, 0)
    held = profile.settings
    for stage in (held.keywords, held.alternatives, held.counterfactuals):
        assert (stage.temperature, stage.top_p) == (0.7, 0.8)


def test_pictures_are_drawn_and_captioned_as_the_authors_of_the_models_say() -> None:
    fast, sdxl, edit, cpu, paper = (load_profile(name) for name in ("fast", "sdxl", "edit", "cpu", "paper"))
    assert [one.settings.generation.guidance for one in (fast, edit)] == [7.5, 7.5]
    assert [one.preset("full")["steps"] for one in (fast, edit)] == [20, 20]
    assert [one.settings.generation.steps for one in (sdxl, cpu)] == [30, 4] and sdxl.preset("balanced")["steps"] == 30
    assert (cpu.settings.generation.guidance, cpu.settings.generation.control_strength) == (1.0, 0.8)
    assert [one.settings.caption.beams for one in (cpu, paper)] == [3, 5]
    assert isinstance(paper.language, GgufLanguage) and paper.language.repetition_penalty == 1


@pytest.mark.parametrize("name", sorted(set(profile_names()) - {"demo", "laptop"}))
def test_values_of_the_authors_name_their_source_and_the_day_it_was_read(name: str) -> None:
    text = (PROFILES / f"{name}.toml").read_text()
    for table in ("caption", "keywords", "generation"):
        (part,) = (part for part in text.split("\n\n") if f"[settings.{table}]" in part.splitlines())
        if re.search(r"^(steps|guidance|temperature|beams) =", part, re.MULTILINE):
            assert re.search(r"\(.*read\s(# )?\d{4}-\d\d-\d\d", part, re.DOTALL), part


def test_the_table_of_models_is_that_of_the_profile() -> None:
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs/models.md").read_text().splitlines()]
    told = {row[0]: row[1:] for row in rows if len(row) == 6}
    for role, weights in load_profile("paper").weights().items():
        if weights.hub:
            half, full = in_bytes(weights.memory_half), in_bytes(weights.memory_full)
            revision = weights.revision[:12] if weights.pinned else "not pinned: the newest is taken"
            memory = full if half == full else f"{half} or {full}"
            assert told[role] == [weights.hub, revision, weights.licence, in_bytes(weights.bytes), memory]


def test_the_models_of_the_other_profiles_are_told_as_about() -> None:
    """The table has a row for each model, except for the paper's, and no row for any other."""

    def row(role: str, weights: Weights) -> tuple[str, ...]:
        half, full = in_bytes(weights.memory_half), in_bytes(weights.memory_full)
        revision = weights.revision[:12] if weights.pinned else "not pinned: the newest is taken"
        memory = full if half == full else f"{half} or {full}"
        disk = in_bytes(weights.bytes)
        return role, weights.hub, revision, weights.licence, f"about {disk}", f"about {memory}"

    of_paper = {row("", weights) for weights in load_profile("paper").weights().values()}
    expected: dict[tuple[str, ...], list[str]] = {}
    for name in ("fast", "sdxl", "modern", "edit", "lance", "cpu"):
        for role, weights in load_profile(name).weights().items():
            if weights.hub and row("", weights) not in of_paper:
                assert weights.bytes and 0 < weights.memory_half <= weights.memory_full
                expected.setdefault(row(role, weights), []).append(f"`{name}`")
    lines = [line.strip("| ").split(" | ") for line in (ROOT / "docs/models.md").read_text().splitlines()]
    told = {tuple(line[1:]): line[0] for line in lines if len(line) == 7 and line[0].startswith("`")}
    assert told == {one: ", ".join(names) for one, names in expected.items()}
    assert {"demo", "paper", "fast", "sdxl", "modern", "edit", "lance", "cpu", "laptop"} == set(profile_names())


def test_the_own_profile_of_the_docs_loads_and_says_what_it_lacks(tmp_path: Path) -> None:
    _, text = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/models.md").read_text(), re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    mine = load_profile(str(tmp_path / "mine.toml"))
    assert mine.name == "mine" and DILLEMA.prompts(mine.prompts).name == "paper"
    assert list(mine.weights())[:2] == ["captioner", "language model"] and mine.weights()["captioner"].pinned
    with pytest.raises(CannotLoad, match=r"language model are missing: there is nothing at /models/llama-2-7b-chat"):
        load_models(mine).check()


def test_the_few_steps_of_the_docs_are_ones_that_a_profile_can_have() -> None:
    few_steps = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/models.md").read_text(), re.DOTALL)[0]
    wanted, data = tomllib.loads(few_steps), tomllib.loads((PROFILES / "fast.toml").read_text())
    data["generator"] |= wanted["generator"]
    data["settings"]["generation"] |= wanted["settings"]["generation"]
    profile = Profile.model_validate(data)
    (lora,) = profile.generator.loras
    assert profile.weights()["LoRA"] == lora and lora.file.endswith(".safetensors")
    assert profile.generator.scheduler is not None and profile.generator.scheduler.name == "DDIMScheduler"
    assert (profile.settings.generation.steps, profile.settings.generation.guidance) == (8, 5.0)


def test_what_undoes_a_difference_to_the_paper_is_there() -> None:
    """Check each setting and each key of the profile that docs/paper-and-here.md names."""
    paper = load_profile("paper")
    text = (ROOT / "docs/paper-and-here.md").read_text()
    settings = set(re.findall(r"`settings\.(\w+)\.(\w+)", text))
    assert len(settings) > 15
    for stage, name in settings:
        assert name in type(getattr(paper.settings, stage)).model_fields, (stage, name)
    keys = set(re.findall(r"`(captioner|language|generator)\.(\w+)", text))
    assert {section for section, _ in keys} == {"captioner", "language", "generator"}
    for section, name in keys:
        assert name in type(getattr(paper, section)).model_fields, (section, name)


def test_profiles_for_photographs_begin_with_the_edges_that_hed_finds() -> None:
    kinds = {name: load_profile(name).settings.conditioning.kind for name in profile_names()}
    of_hed = {name for name, kind in kinds.items() if kind == "soft edges"}
    assert of_hed == {"cpu", "fast", "sdxl", "modern", "paper"} and set(kinds.values()) == {"soft edges", "canny"}
    for name in of_hed:
        assert "detector of soft edges" in load_profile(name).weights()


def test_models_of_a_path_are_called_by_their_family() -> None:
    names = ["BLIP", "LLaMA", "PhraseNet", "Stable Diffusion", "ControlNet"]
    assert list(model_names(load_profile("demo")).values()) == names
    assert model_names(load_profile("paper")) == {}, "an id on the hub says enough"


def test_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(UserError, match=r"no profile 'nope'.*demo.* paper"):
        load_profile("nope")
    with pytest.raises(UserError, match="no profile"):
        load_profile("../profiles/demo")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "', 'titel = "x"\ntitle = "', r"unknown key: titel; is title meant\? Known there: captioner, "),
        ("context_length = 512", "context_length = 512\nwindow = 3", r"unknown key: language.window; take it out"),
        ("context_length = 512", 'context_length = "many"', r"'many' at language.context_length: .*whole"),
        ("canny]\n", "canny]\nrevisions = 1\n", r"key: generator.controlnets.canny.revisions; is revision meant\?"),
        ("controlnets.canny", "controlnets.edges", r"'edges' at generator.controlnets.edges: choose canny, soft"),
        ("safety_checker = false", 'safety_checker = "maybe"', r"generator.safety_checker: it has to be true or false"),
        ('kind = "blip"\n', 'kind = "blip"\ndtype = "int8"\n', r"'int8' at captioner.dtype: choose auto, float32"),
        ("steps = 5", "steps = 5000", r"settings.generation.steps: it has to be a whole number from 1 to 150\.$"),
        ('kind = "blip"', 'kind = "flamingo"', r"captioner: its kind is 'flamingo': choose blip, .*, openai\.$"),
        ("[embedder]", "[recipes.x.y]", r"mine.toml lacks embedder: add it\. Those in .*profiles show how\.$"),
        ('kind = "blip"', "", r"mine.toml lacks captioner.kind: add it\. It is one of blip, blip-2"),
        ("[presets.draft]", "[presets.draft]\nguidance = 99", r"value: presets.draft.guidance: it has to be a number"),
        ('path = "demo/weights/clip"', "", r"embedder: give either path"),
        ('path = "demo/weights/clip"', 'path = "a"\nhub = "b/c"', r"embedder: give either path"),
        ("context_length = 512", 'chat_template = "[INST]"', r"language.chat_template"),
        ("[captioner]", "[captioner", r"not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (PROFILES / "demo.toml").read_text()
    assert old in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=said) as caught:
        load_profile(str(file))
    assert "mine.toml" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_missing_weights_are_named_before_anything_loads(tmp_path: Path) -> None:
    text = (PROFILES / "demo.toml").read_text().replace("demo/weights", str(tmp_path / "weights"))
    (tmp_path / "mine.toml").write_text(text)
    models = load_models(load_profile(str(tmp_path / "mine.toml")))
    with pytest.raises(UserError, match=f"weights of the captioner are missing.*{tmp_path}/weights/captioner"):
        models.check()
    with pytest.raises(UserError, match=r"weights of the embedder are missing"):
        _ = models.embedder


@pytest.mark.slow  # transformers is loaded
def test_without_network_the_paper_profile_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    models = load_models(load_profile("paper"))
    models.check()
    with pytest.raises(UserError, match=r"captioner, Salesforce/blip2-opt-6.7b \(about 31 GB; licence: MIT.*network"):
        _ = models.captioner


def test_a_lack_of_memory_is_not_taken_for_damaged_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(_models: Models, _role: str) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 26 GiB")

    monkeypatch.setattr(Models, "load", too_large)
    with pytest.raises(CannotLoad, match="There is not enough memory to load the captioner: end other programs"):
        _ = load_models(load_profile("demo")).captioner
    weights = load_profile("demo").weights()["captioner"]
    full = unreadable("captioner", weights, RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    damaged = unreadable("captioner", weights, OSError("not a safetensors file"))
    assert "not enough memory" in str(full) and "get them again" not in str(full)
    assert "get them again" in str(damaged)
