"""Batch plans as data: read, validated, written, and refused with the invalid key and the possible values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.errors import UserError
from core.settings import SettingsWithPerturbations
from core.types import Task
from pipeline.profiles.profile import load_profile
from services.batches.estimate import images_at_most
from services.batches.plan_file import PLANS, BatchPlan, most_captions, plan_from_text, read_plan, settings_of

SMALL = """
[data]
root = "images"
layout = "imagefolder"

[task]
kind = "classification"

[make]
profile = "demo"
"""
WHOLE = """
name = "rain"
note = "What “wet” does"
data = { root = "/sets/streets", layout = "coco", split = "val", options = { label = "largest" } }
task = { kind = "segmentation", protected = ["road", "vehicle"] }
choose = { classes = ["a", "b"], a_class = 3, number = 5, attributes = { city = ["ulm"] }, keys = ["k/1"], seed = 4 }
make = { profile = "demo", seed = 9, settings = { "caption.beams" = 2, "generation.guidance" = 3 } }
edits = { types = { weather = 3, "time of day" = 1 }, most_share_of_a_word = 0.25, captions_a_source = 2 }
images = { seeds_a_caption = 2, checks = ["edges kept", "label kept"], tries = 2 }
cost = { price_an_hour = 1.5, currency = "EUR" }
run = { workers = 4 }
"""


def plan_of(text: str, folder: Path = Path("/plans")) -> BatchPlan:
    return plan_from_text(text, folder / "small.toml")


def refused(text: str, folder: Path = Path("/plans")) -> UserError:
    with pytest.raises(UserError) as caught:
        plan_of(text, folder)
    assert str(folder / "small.toml") in str(caught.value), "a person has several plans"
    return caught.value


def test_a_plan_of_three_sections_takes_all_and_has_the_name_of_its_file() -> None:
    plan = plan_of(SMALL)
    assert plan.name == "small" and plan.make.recipe == "dillema"
    assert not plan.choose.model_dump(exclude_none=True, exclude_defaults=True)
    assert not plan.edits.types and plan.images.seeds_a_caption == 1


def test_paths_are_relative_to_the_plan(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/keys.txt").write_bytes("b/2.png\r\n\n a/1 ü.png\n".encode())
    (tmp_path / "own.toml").write_text((Path("pipeline/profiles/demo.toml")).read_text(encoding="utf-8"))
    text = SMALL.replace('"demo"', '"own.toml"') + '[choose]\nkeys = "lists/keys.txt"\n'
    (tmp_path / "small.toml").write_text(text)
    plan = read_plan(tmp_path / "small.toml")
    assert plan.data.root == str(tmp_path / "images")
    assert plan.choose.keys == ("b/2.png", " a/1 ü.png"), "a key a line, and names may begin with a space"
    assert plan.make.profile == str(tmp_path / "own.toml") and settings_of(plan)


@pytest.mark.parametrize("text", [SMALL, WHOLE, SMALL.replace("images", 'C:\\\\a \\"b\\"\\u007f\\n')])
def test_what_is_written_reads_as_the_same_plan_wherever_it_lies(text: str) -> None:
    plan = plan_of(text)
    written = plan.toml_text()
    again = plan_from_text(written, Path("/elsewhere/other.toml"))
    assert again == plan and again.digest == plan.digest and again.toml_text() == written


def test_the_digest_is_of_what_is_made() -> None:
    plan = plan_of(WHOLE)
    for before, after in (
        ("rain", "wet"),
        ("wet” does", "x"),
        ("1.5", "2"),
        ("EUR", "USD"),
        ("workers = 4", "workers = 8"),
    ):
        assert plan_of(WHOLE.replace(before, after)) != plan
        assert plan_of(WHOLE.replace(before, after)).digest == plan.digest, before
    for before, after in (
        ("/sets/streets", "/sets/roads"),
        ('"road", ', ""),
        ("seed = 4", "seed = 5"),
        ("seed = 9", "seed = 8"),
        ('beams" = 2', 'beams" = 3'),
        ("weather = 3", "weather = 2"),
        ('"edges kept", ', ""),
        ("k/1", "k/2"),
    ):
        assert plan_of(WHOLE.replace(before, after)).digest != plan.digest, before


def test_settings_are_the_profiles_with_those_of_the_plan_however_they_are_written() -> None:
    own = load_profile("demo").settings
    quoted = plan_of(SMALL + 'settings = { "generation.steps" = 7, "caption.temperature" = 1 }')
    tables = plan_of(SMALL + "[make.settings]\ngeneration.steps = 7\ncaption.temperature = 1")
    assert tables == quoted
    settings = settings_of(quoted)
    assert settings.generation.steps == 7 != own.generation.steps and settings.caption.temperature == 1
    assert settings.alternatives == own.alternatives and settings.generation.guidance == own.generation.guidance


def test_what_the_plan_says_becomes_settings() -> None:
    settings = settings_of(
        plan_of(SMALL + '[edits.types]\n"time of day" = 1\nweather = 1\n[images]\nseeds_a_caption = 3')
    )
    assert settings.keywords.edit_types == "weather, time of day", "no keyword of another type is ticked"
    assert settings.generation.images_per_caption == 3 and settings.generation.seed_mode == "next"
    own = '[make.settings]\n"keywords.edit_types" = "weather"\n[edits.types]\nweather = 1\nobject = 1'
    assert settings_of(plan_of(SMALL + own)).keywords.edit_types == "weather", "what a person says holds"


def test_typed_edits_of_lance_are_asked_for_and_counted() -> None:
    lance = SMALL.replace('"demo"', '"demo"\nrecipe = "lance"')
    typed = plan_of(lance + '[edits]\ntypes = { weather = 3, "time of day" = 1 }\n')
    settings = settings_of(typed)
    assert isinstance(settings, SettingsWithPerturbations)
    assert settings.perturbations.edit_types == "weather, time of day" and settings.keywords.edit_types == ""
    assert most_captions(typed, settings) == 2 * settings.perturbations.per_type
    with pytest.raises(UserError, match=r"or raise perturbations\.per_type under make\.settings"):
        settings_of(plan_of(lance + "[edits]\ncaptions_a_source = 99"))
    with pytest.raises(UserError, match=r"counterfactuals\.captions"):
        settings_of(plan_of(lance + "[make.settings]\ncounterfactuals.captions = 3"))


def test_what_the_inverted_source_cannot_give_is_refused() -> None:
    own = 'generation.start = "inverted"\ngeneration.fresh_noise = 0\ngeneration.fresh_noise_by_type = ""\n'
    inverted = f"{SMALL}[make.settings]\n{own}"
    assert settings_of(plan_of(inverted)).generation.inverted
    with pytest.raises(UserError, match=r"seeds_a_caption is 2\. .*all images of a caption are equal") as several:
        settings_of(plan_of(inverted + "[images]\nseeds_a_caption = 2"))
    assert several.value.field == "images.seeds_a_caption"
    settings_of(plan_of(inverted.replace("noise = 0", "noise = 0.2") + "[images]\nseeds_a_caption = 2"))
    with pytest.raises(UserError, match="Z-Image cannot be inverted") as refused:
        settings_of(plan_of(inverted.replace('"demo"', '"modern"')))
    assert refused.value.field == "make.settings"


def test_subjects_of_a_batch_are_found_by_a_model_or_by_a_place_in_the_plan() -> None:
    text = SMALL.replace('"demo"', '"laptop"\nrecipe = "aga"') + "[make.settings]\nbackgrounds.captions = 2\n"
    with pytest.raises(UserError, match=r"no model that finds things by a word.*set subject\.box") as refused:
        settings_of(plan_of(text))
    assert refused.value.field == "make.settings"
    assert settings_of(plan_of(text + 'subject.box = "10 10 60 60"')) and settings_of(
        plan_of(text.replace('"laptop"', '"demo"'))
    )


def test_tasks_come_from_the_plan_and_from_items() -> None:
    plan = plan_of(SMALL)
    assert plan.task_of("goldfinch") == Task("classification", label="goldfinch")
    with pytest.raises(UserError, match=r"no label.*task\.label"):
        plan.task_of("")
    for_all = plan_of(SMALL.replace('classification"', 'classification"\nlabel = "bird"'))
    assert for_all.task_of("goldfinch") == for_all.task_of("") == Task("classification", label="bird")
    assert plan_of(WHOLE).task_of("a") == Task("segmentation", protected=("road", "vehicle"))


@pytest.mark.parametrize(
    ("before", "after", "field", "said"),
    [
        ("layout =", "layot =", "data.layot", r"unknown key: data\.layot\. Known keys: layout, "),
        ("[task]", "[taks]", "taks", r"unknown key: taks\. Known keys: task, "),
        ('root = "images"', "", "data.root", r"lacks data\.root"),
        ('[task]\nkind = "classification"', "", "task", r"lacks the section \[task\]: add it with kind"),
        ('"classification"', '"regression"', "task.kind", '“?"regression".*: choose classification or segmentation'),
        ('"classification"', '"segmentation"', "task", "needs protected, such as"),
        ('classification"', 'classification"\nprotected = ["road"]', "task", "protected belongs to"),
        ('"images"', "3", "data.root", r"3 at data\.root: it has to be a text"),
        ('"demo"', '"dmo"', "make.profile", r"no profile 'dmo'.*Choose one of: demo, "),
        ('"demo"', '"demo"\nrecipe = "dilema"', "make.recipe", r"no recipe 'dilema'.*Choose one of: dillema, "),
        ('"demo"', '"demo"\nrecipe = "dillema-instruct"', "make.recipe", "has no editor"),
        ('"demo"', '"demo"\nseed = "1"', "make.seed", r'"1" at make\.seed: it has to be a whole number from 0'),
        ('"demo"', '"demo"\nseed = true', "make.seed", r"true at make\.seed: it has to be a whole number"),
        ('"demo"', '"demo"\nsettings = 3', "make.settings", r"3 at make\.settings: it has to be a table"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_what_there_is(before: str, after: str, field: str, said: str) -> None:
    assert before in SMALL
    error = refused(SMALL.replace(before, after, 1))
    assert error.field == field
    assert re.search(said, str(error)), str(error)


@pytest.mark.parametrize(
    ("more", "field", "said"),
    [
        ("[choose]\na_class = 0", "choose.a_class", r"0 at choose\.a_class: it has to be a whole number of at least 1"),
        ("[choose]\nshare = 0.5\nnumber = 3", "choose", "share and number both limit the items"),
        ("[choose]\nclasses = []", "choose.classes", "too few"),
        ('[choose]\nclasses = ["a", 3]', "choose.classes.1", r"3 at choose\.classes\.1: it has to be a text"),
        ('[choose]\nkeys = ["a", "a"]', "choose.keys", "“a” is listed twice"),
        ('[choose]\nkeys = "none.txt"', "choose.keys", r"/plans/none\.txt.* cannot be read"),
        ('[choose]\nattributes = { city = "ulm" }', "choose.attributes.city", '"ulm" at .*: it has to be a list'),
        ("[choose]\nseed = 1979-05-27", "choose.seed", "it has to be a whole number"),
        ("[edits]\ntypes = { wether = 1 }", "edits.types", "no edit type “wether”; there are: weather, "),
        ("[edits]\ntypes = { weather = 0 }", "edits.types", "share of weather has to be above 0"),
        ("[edits]\ntypes = { weather = inf }", "edits.types.weather", "it has to be a number"),
        ("[edits]\nmost_share_of_a_word = 1.5", "edits.most_share_of_a_word", "a number above 0, of at most 1"),
        ("[edits]\ncaptions_a_source = 9", "edits.captions_a_source", "at most 4 captions are written"),
        (
            '[make.settings]\ncounterfactuals.combinations = "factorial"\n[edits]\nmost_share_of_a_word = 0.5',
            "edits.most_share_of_a_word",
            "would leave out combinations of the factorial experiment",
        ),
        ('[images]\nchecks = ["edges kep"]', "images.checks", "no check “edges kep”; there are: edges kept, "),
        ('[images]\nchecks = ["shapes kept"]', "images.checks", "is named “edges kept”"),
        ("[images]\nseeds_a_caption = 9", "images.seeds_a_caption", "a whole number from 1 to 8"),
        ("[cost]\nprice_an_hour = -1", "cost.price_an_hour", "a number of at least 0"),
        ("[run]\nworkers = 0", "run.workers", "a whole number from 1 to"),
        ("[make.settings]\ngeneration.step = 3", "make.settings", "'generation.step'.*one of: generation.steps, "),
        ("[make.settings]\ngeneration.steps = 0", "make.settings", "generation.steps .* cannot be 0: .* from 1 to 150"),
        ('[make.settings]\ngeneration.steps = "5"', "make.settings", 'cannot be "5": it has to be a whole number'),
        ("[make.settings]\ngeneration.steps = true", "make.settings", "cannot be true: it has to be a whole number"),
        ("[make.settings]\ngeneration.seed = 3", "make.settings", "is set by make.seed"),
        ("[make.settings]\nediting.steps = 3", "make.settings", "no setting 'editing.steps'"),
        ("[make.settings]\ncaption.beams = [1]", "make.settings", "caption.beams has to be a number, a text"),
        ("[make", "", "is not valid TOML"),
    ],
)
def test_so_it_is_in_the_sections_that_may_be_missing(more: str, field: str, said: str) -> None:
    error = refused(SMALL + more)
    assert error.field == field
    assert re.search(said, str(error)), str(error)


def test_a_recipe_without_edits_takes_none() -> None:
    text = SMALL.replace('"demo"', '"demo"\nrecipe = "reconstruction"')
    assert images_at_most(plan_of(text), settings_of(plan_of(text)), 7) == 7, "its only caption is the source's"
    error = refused(text + "[edits.types]\nweather = 1")
    assert error.field == "edits.types" and "makes no edits" in str(error)


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_plan(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xfc"')
    with pytest.raises(UserError, match="not UTF-8"):
        read_plan(tmp_path / "latin.toml")


def test_the_layout_is_one_of_those_there_are() -> None:
    with pytest.raises(UserError, match=r"no layout 'imagefoldr'.*Choose one of: imagefolder, ") as caught:
        plan_of(SMALL.replace('"imagefolder"', '"imagefoldr"'))
    assert caught.value.field == "data.layout"


def test_the_docs_name_every_key_there_is() -> None:
    page = Path("docs/batches.md").read_text(encoding="utf-8")
    example = plan_of(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    assert example.task.kind == "segmentation" and example.data.split == "train"
    shown = example.model_dump(exclude_unset=True, exclude={"name"})
    section, told = "", {f"{name}.{key}" for name, part in shown.items() for key in part}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| ") and len(cells) in (2, 3) and "`" in line:
            section = next(iter(re.findall(r"`\[(\w+)\]`", cells[0])), section)
            told |= {f"{section}.{key}".strip(".") for key in re.findall(r"`(\w+)`", cells[-2])}
    sections = BatchPlan.model_fields
    known = {"name", "note"}
    for name in sections.keys() - known:
        known |= {f"{name}.{key}" for key in getattr(sections[name].annotation, "model_fields", {})}
    assert told == known


def test_the_papers_set_ups_ship_with_its_figures() -> None:
    imagenet, shift = (read_plan(PLANS / f"{name}.toml") for name in ("imagenet", "shift"))
    assert imagenet.choose.a_class == 25 and imagenet.task.kind == "classification" and not imagenet.task.label
    assert images_at_most(imagenet, settings_of(imagenet), 25 * 1000) == 125_000
    assert shift.choose.number is not None and shift.task.protected == ("road", "vehicle", "pedestrian")
    assert images_at_most(shift, settings_of(shift), shift.choose.number) == 10_000
    for plan in (imagenet, shift):
        assert plan.make.profile == "paper" and plan.data.split == "train"
        assert settings_of(plan).generation.steps == 5 and settings_of(plan).conditioning.kind == "soft edges"
        assert plan.with_root(Path("/sets")).data.root == "/sets" and plan.with_root(Path("/sets")).make == plan.make
    assert {path.stem for path in PLANS.glob("*.toml")} == {"imagenet", "shift"}, "another one needs a test of its own"
