"""Prompt sets: the content of the shipped sets, and the messages about broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UserError
from pipeline.prompting import (
    PROMPTS_FOLDER,
    Prompt,
    PromptError,
    prompts_from_plain,
    prompts_to_plain,
)
from pipeline.recipes import DILLEMA

GOOD = {
    "keywords": "Task: $task\nCaption: $caption\n",
    "alternatives": "$task $caption $keywords",
    "counterfactuals": "$task $caption $edits",
    "diffusion": "$caption $kept",
}


def write_set(folder: Path, **changed: str) -> Path:
    """Write a prompt set "mine" into `folder`, with other texts for the files in `changed`. Return the folder."""
    (folder / "mine").mkdir()
    for stage, template in GOOD.items():
        text = changed.get(stage, f"template = '''{template}'''\n")
        (folder / "mine" / f"{stage}.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", sorted(path.name for path in PROMPTS_FOLDER.iterdir() if path.is_dir()))
def test_every_shipped_set_names_task_and_caption(name: str) -> None:
    prompts = DILLEMA.prompts(name)
    values: dict[str, str | int] = {
        "task": "TASK-1",
        "caption": "CAPTION-1",
        "keywords": "KEY-1",
        "edits": "a -> b",
        "count": 3,
    }
    for stage, own in (("keywords", ()), ("alternatives", ("KEY-1",)), ("counterfactuals", ("a -> b",))):
        text = prompts[stage].evaluate(**values)
        for expected in ("TASK-1", "CAPTION-1", *own):
            assert expected in text
        assert "$" not in text
    assert "bird" in prompts["diffusion"].evaluate(caption="A house.", kept="bird", shown="bird")


def test_the_paper_set_asks_the_questions_of_the_paper_with_one_example() -> None:
    prompts = DILLEMA.prompts("paper")
    question = "what are the key elements that can be modified in the caption so that the ground truth"
    assert question in prompts["keywords"].template
    assert "what are the possible alternatives for these keywords" in prompts["alternatives"].template
    assert "modify the caption by applying the transformations" in prompts["counterfactuals"].template
    for prompt in (prompts["keywords"], prompts["alternatives"], prompts["counterfactuals"]):
        assert prompt.template.count("Example\n") == 1
        assert "[INST]" not in prompt.template  # the profile holds the chat template


def test_the_demo_diffusion_prompt_is_what_it_was_trained_on() -> None:
    prompt = DILLEMA.prompts("demo")["diffusion"]
    assert prompt.evaluate(caption="A red bird.", kept="bird") == "A red bird. Keep: bird."


def test_a_line_break_in_a_value_cannot_end_its_field(tmp_path: Path) -> None:
    prompts = DILLEMA.prompts("mine", write_set(tmp_path))
    assert prompts["keywords"].evaluate(task="t", caption="One.\n\nTwo.") == "Task: t\nCaption: One. Two.\n"


def test_a_missing_value_is_named(tmp_path: Path) -> None:
    prompts = DILLEMA.prompts("mine", write_set(tmp_path))
    with pytest.raises(PromptError, match=r"mine/alternatives needs \$keywords: give it a value"):
        prompts["alternatives"].evaluate(task="t", caption="c")


@pytest.mark.parametrize(
    ("stage", "content", "message"),
    [
        ("keywords", "template = '$task $captoin $caption'", r"uses \$captoin, which nothing fills"),
        ("keywords", "template = '$caption'", r"does not use \$task"),
        ("diffusion", "template = '$kept'", r"does not use \$caption"),
        ("diffusion", "template = '$caption $label'", r"uses \$label.*may use \$caption, \$shown, \$kept"),
        ("keywords", "template = '$task $caption costs 3$'", "stray"),
        ("keywords", "template = ", "cannot be read"),
        ("keywords", "text = '$task $caption'", "unknown entry 'text'"),
        ("keywords", "stop = ['a']", "no template"),
        ("keywords", "template = '$task $caption'\nstop = 'x'", "wrong stop"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, stage: str, content: str, message: str) -> None:
    with pytest.raises(PromptError, match=message) as caught:
        DILLEMA.prompts("mine", write_set(tmp_path, **{stage: content}))
    assert f"mine/{stage}" in str(caught.value)


def test_an_unknown_set_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    with pytest.raises(UserError, match="no prompt set 'other': choose one of mine"):
        DILLEMA.prompts("other", folder)
    (folder / "mine" / "edits.toml").touch()
    (folder / "mine" / "counterfactuals.toml").unlink()
    with pytest.raises(UserError, match="mine/counterfactuals is missing"):
        DILLEMA.prompts("mine", folder)


def test_a_set_comes_back_from_plain_data(tmp_path: Path) -> None:
    prompts = DILLEMA.prompts("mine", write_set(tmp_path, keywords="template = '$task $caption'\nstop = ['#']"))
    assert prompts_from_plain(prompts_to_plain(prompts), DILLEMA.prompt_slots) == prompts
    assert prompts["keywords"].stop == ("#",)
    data = prompts_to_plain(prompts)
    del data["diffusion"]
    with pytest.raises(PromptError):
        prompts_from_plain(data, DILLEMA.prompt_slots)


def test_two_dollars_are_one() -> None:
    assert Prompt("x", "$$5 for $task").evaluate(task="it") == "$5 for it"


@pytest.mark.parametrize(
    "template",
    [
        "A photo with $shown. $caption",
        "$caption Keep: ${shown}.",
        "$shown: $caption",
        "$caption",
        "With $shown.\n$caption",
    ],
)
def test_what_stands_around_nothing_falls_away(template: str) -> None:
    assert Prompt("x", template).without("shown").evaluate(caption="A bus. It is red.") == "A bus. It is red."
