"""Two pages change settings or a prompt of a run: the later page learns of the other's change, and both changes
stay.
"""

from __future__ import annotations

import threading

import pytest

from core.errors import UserError
from services.studio import Studio
from tests.support.scripted import perform
from tests.ui.explore.test_ui_studio import new_run, part

FIRST, SECOND = "Name what may change ($task): $caption", "What else could this be ($task)? $caption"


class Page:
    """Page that shows the run as of its last update."""

    def __init__(self, studio: Studio, run_id: str, tab: str) -> None:
        self.studio, self.run_id, self.tab = studio, run_id, tab
        self.look()

    def look(self) -> None:
        self.showed = self.studio.workspace.runs.get(self.run_id).state

    def do(self, name: str, **data: object) -> str:
        """Perform an action. Return the notice at the card of generation or of the keywords, or ""."""
        assert not perform(self.studio, self.run_id, name, tab=self.tab, state=self.showed, **data).problem
        notices = self.studio.states.of(self.run_id).notices
        return notices.get("generation") or notices.get("keywords") or ""

    def set(self, setting: str, value: object) -> str:
        return self.do("setting", setting=setting, value=value)


@pytest.fixture
def pages(studio: Studio) -> tuple[Page, Page]:
    run_id = new_run(studio)
    return Page(studio, run_id, "one"), Page(studio, run_id, "two")


def held(page: Page) -> dict[str, object]:
    return page.studio.runs.settings(page.studio.workspace.runs.get(page.run_id)).model_dump(mode="json")["generation"]  # type: ignore[no-any-return]


def test_changes_of_different_settings_are_both_kept(pages: tuple[Page, Page]) -> None:
    one, two = pages
    assert one.set("generation.steps", 10) == ""
    said = two.set("generation.guidance", 4.5)
    assert "changed elsewhere in the meantime" in said and "steps to 10" in said and "Both changes are kept." in said
    assert (held(two)["steps"], held(two)["guidance"]) == (10, 4.5)
    assert said in part(two.studio, two.run_id, "generation")
    two.look()
    assert two.set("generation.steps", 11) == "", "what a page has seen is no news"


def test_of_the_same_setting_the_later_page_is_told_what_it_replaced(pages: tuple[Page, Page]) -> None:
    one, two = pages
    one.set("generation.steps", 10)
    one.set("conditioning.low", 55)
    said = two.set("generation.steps", 20)
    assert "steps to 10" in said and "low to 55" in said and "Yours was saved last" in said
    assert held(two)["steps"] == 20


def test_a_page_is_not_told_of_itself_nor_of_other_cards(pages: tuple[Page, Page]) -> None:
    one, two = pages
    one.set("generation.steps", 10)
    assert one.set("generation.steps", 12) == "", "its second change was made before it saw the first one saved"
    two.look()
    one.set("keywords.temperature", 0.3)
    one.do("rename", title="another name")
    assert two.set("generation.steps", 20) == "", "the keywords have a card of their own"
    one.look()
    one.set("generation.guidance", 3.0)
    assert two.set("generation.guidance", 3.0) == "", "what is so already changes nothing"


def test_presets_and_seeds_are_told_of_too(pages: tuple[Page, Page]) -> None:
    one, two = pages
    one.set("generation.negative_prompt", "blurry")
    said = two.do("preset", preset=next(iter(two.studio.profile.presets)))
    assert "negative prompt to “blurry”" in said and held(two)["negative_prompt"] == "blurry"


def test_a_page_that_does_not_say_what_it_showed_is_told_nothing(pages: tuple[Page, Page]) -> None:
    one, two = pages
    one.set("generation.steps", 10)
    for number, unknown in enumerate((0, 10**9)):
        two.showed = unknown  # type: ignore[assignment]
        assert two.set("generation.steps", 20 + number) == ""
    for wrong in ("x", -1, "²", 10**30, "9" * 4001):
        change = {"run": two.run_id, "state": wrong, "setting": "generation.steps", "value": 40}
        with pytest.raises(UserError) as refusal:
            two.studio.commands.send("setting", change)
        assert refusal.value.field == "state" and held(two)["steps"] == 21, "refused, and nothing changed"


def test_of_two_prompts_the_earlier_one_can_be_brought_back(pages: tuple[Page, Page]) -> None:
    one, two = pages
    assert one.do("prompt-save", stage="keywords", template=FIRST) == ""
    said = two.do("prompt-save", stage="keywords", template=SECOND)
    assert "prompt was changed elsewhere in the meantime" in said
    run = two.studio.workspace.runs.get(two.run_id)
    assert run.prompts == {"keywords": SECOND}
    shown = part(two.studio, two.run_id, "keywords")
    assert "Earlier prompts of this run (1)" in shown and FIRST in shown
    two.look()
    assert two.do("prompt-save", stage="keywords", template=FIRST) == ""
    assert SECOND in part(two.studio, two.run_id, "keywords")
    said = one.do("prompt-back", stage="keywords")
    assert "prompt was changed elsewhere" in said
    assert "Earlier prompts of this run (2)" in part(one.studio, one.run_id, "keywords")


def test_prompts_of_two_stages_do_not_get_into_each_others_way(pages: tuple[Page, Page]) -> None:
    one, two = pages
    others = "Write others ($task): $caption $keywords"
    one.do("prompt-save", stage="alternatives", template=others)
    assert two.do("prompt-save", stage="keywords", template=SECOND) == ""
    assert two.studio.workspace.runs.get(two.run_id).prompts == {"alternatives": others, "keywords": SECOND}


def test_no_change_is_lost_when_many_come_at_once(studio: Studio) -> None:
    run_id = new_run(studio)
    changes = {"generation.steps": 9, "generation.guidance": 4.0, "conditioning.low": 41, "keywords.temperature": 0.4}
    changes |= {"alternatives.temperature": 0.5, "counterfactuals.captions": 5, "caption.temperature": 0.6}
    threads = [
        threading.Thread(target=perform, args=(studio, run_id, "setting"), kwargs={"setting": name, "value": value})
        for name, value in changes.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain = studio.runs.settings(studio.workspace.runs.get(run_id)).model_dump(mode="json")
    assert {name: plain[name.split(".")[0]][name.split(".")[1]] for name in changes} == changes
