"""The commands that change a run's settings and prompts: set a value, apply a preset, or restore the profile's values.

A change always applies to the latest state of a run, even if the person saw an earlier one: see `edit_conflicts`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from core.errors import UserError
from core.settings import Settings
from core.validation_messages import reason
from pipeline.methods import method_of
from pipeline.recipes import Recipe, recipe_of, section_card
from services import edit_conflicts
from services.commands import KnownStage, does, parts_of
from services.runs.life_cycle import RunService, case_of
from services.runs.state import StageNotes

Plain = dict[str, Any]
SettingName = Annotated[str, Field(max_length=100, description="Section and name, such as generation.steps")]
SettingValue = Annotated[
    bool | int | float | str, Field(description="The new value; a text is converted to the type of the setting")
]
Sections = Annotated[
    tuple[str, ...],
    Field(max_length=20, description="The sections, as a list or with commas between"),
    BeforeValidator(parts_of),
]
PresetName = Annotated[str, Field(max_length=100, description="The name of the preset")]


class ChangeSetting(edit_conflicts.StateEdit):
    """Command to change one setting."""

    setting: SettingName
    value: SettingValue

    @classmethod
    def about(cls, data: Mapping[str, Any]) -> str:
        """Return the stage whose card shows the setting."""
        return section_card(str(data.get("setting") or "").partition(".")[0]) or ""


class DefaultSettings(edit_conflicts.StateEdit):
    """Command to reset sections of the settings."""

    sections: Sections

    @classmethod
    def about(cls, data: Mapping[str, Any]) -> str:
        """Return the stage whose card shows the first of the sections to reset."""
        sections = parts_of(data.get("sections"))
        return section_card(str(sections[0])) or "" if isinstance(sections, list | tuple) and sections else ""


class PromptEdit(edit_conflicts.StateEdit):
    """An edit of a prompt template."""

    stage: KnownStage
    prompt: str = Field(
        "",
        max_length=100,
        description="Name of the prompt, for a stage with several; empty for the stage's main prompt",
    )


class RunSettings:
    """The commands to change settings and prompts of runs. All methods may be called from any thread."""

    def __init__(self, runs: RunService, notes: StageNotes) -> None:
        self._workspace, self._runs, self._driver, self._notes = runs.workspace, runs, runs.driver, notes
        self._profile = runs.profile
        self.writes = edit_conflicts.PageWrites()

    @does("setting", ChangeSetting)
    def change_setting(self, sent: ChangeSetting) -> None:
        """Change one setting. Raises UserError if the setting is unknown or unused, or the value invalid."""
        section, _, field = sent.setting.partition(".")
        self._require_read(sent.run, sent.setting)

        def change(plain: Plain) -> None:
            if field not in plain.get(section, {}):
                raise UserError(f"There is no setting {section}.{field}: choose a setting of the run.", field="setting")
            plain[section][field] = sent.value

        self.change(sent, change)

    def _require_read(self, run_id: str, setting: str) -> None:
        recipe = recipe_of(self._workspace.runs.get(run_id).recipe)
        if not recipe.reads(setting):
            message = f"The recipe “{recipe.title}” does not read {setting}: its own settings are on the last card."
            raise UserError(message, field="setting")

    @does("default-settings", DefaultSettings)
    def put_defaults_back(self, sent: DefaultSettings) -> None:
        """Reset sections of the settings to the profile's values. Raises UserError for an unknown section."""
        recipe = recipe_of(self._workspace.runs.get(sent.run).recipe)
        defaults = recipe.settings_in(self._profile).model_dump(mode="json")
        for section in sent.sections:
            if section not in defaults:
                raise UserError(f"There is no section {section!r}: choose one of the run's settings.", field="sections")
        self.change(sent, lambda plain: plain.update({name: defaults[name] for name in sent.sections}))

    @does("preset", edit_conflicts.StateEdit, stage_of_command="generation")
    def take_preset(self, sent: edit_conflicts.StateEdit, preset: PresetName) -> None:
        """Apply a preset of the profile. Settings that the preset does not name stay as they are. Raises UserError if
        the profile has no such preset, or if the run's recipe has no settings for it.
        """
        presets = self._profile.presets
        if preset not in presets:
            raise UserError(f"There is no preset {preset!r}: choose {', '.join(presets) or 'none'}.")
        self._require_read(sent.run, "generation.steps")
        self.change(sent, lambda plain: plain["generation"].update(self._profile.preset(preset)))

    @does("reuse-seed", edit_conflicts.StateEdit, stage_of_command="generation")
    def reuse_seed(self, sent: edit_conflicts.StateEdit, case: edit_conflicts.CaseId) -> None:
        """Use the seed of a test case for the next images. Raises UserError for a test case of another run."""
        fixed = {"seed_mode": "fixed", "seed": case_of(self._workspace, sent.run, case).lineage.seed}
        self.change(sent, lambda plain: plain["generation"].update(fixed))

    def change(self, command: edit_conflicts.StateEdit, change: Callable[[Plain], None]) -> None:
        """Apply `change` to the run's latest settings and save the result. A lock keeps other pages out.

        If another page changed settings on the same card in the meantime, this card shows a message about the other
        change. Raises UserError, and saves nothing, if the changed settings are invalid.
        """
        with self._runs.changing:
            run = self._workspace.runs.get(command.run)
            recipe, before = recipe_of(run.recipe), self._runs.settings(run)
            old = before.model_dump(mode="json")
            changed = copy.deepcopy(old)
            change(changed)
            settings = self._valid(recipe, changed, before).model_dump(mode="json")
            mine = edit_conflicts.changed_settings(old, settings)
            states = self._workspace.runs.states(command.run, command.state) if command.state else ()
            others = edit_conflicts.settings_by_others(states, self.writes.by(command.tab))
            number = self._workspace.runs.set_settings(command.run, {**run.settings, **settings})
            stages = [stage for section, _ in mine if (stage := recipe.section_card(section)) is not None]
            # Also if the value is unchanged: the message about an earlier, refused value is then out of date.
            self._notes.solved(command.run, command.about(command.model_dump()), *stages)
            if number is None:
                return
            self.writes.note(number, command.tab)
            for stage in dict.fromkeys(stages):
                news = [other for other in others if recipe.section_card(other.section) == stage]
                if news:
                    self._notes.tell(command.run, stage, edit_conflicts.settings_conflict(news, mine))

    def _valid(self, recipe: Recipe, plain: Plain, before: Settings) -> Settings:
        """Convert values to settings. Raises UserError if a value is invalid, or if the change prevents drawing."""
        try:
            settings = recipe.settings.model_validate(plain)
        except ValidationError as error:
            section, name = (*map(str, error.errors()[0]["loc"]), "", "")[:2]
            value = getattr(getattr(before, section, None), name, None)
            stays = f" It stays at {value}." if isinstance(value, int | float) and not isinstance(value, bool) else ""
            why = reason(error, recipe.settings)
            raise UserError(f"“{name.replace('_', ' ')}” was not changed: {why}.{stays}", field="value") from error
        method = method_of(recipe.method)
        drawing = method.settings_of(settings)
        refused = method.refused(self._profile, drawing)
        if refused and drawing != method.settings_of(before):
            raise UserError(refused, field="value")
        return settings

    @does("prompt-save", PromptEdit)
    def save_prompt(
        self,
        sent: PromptEdit,
        template: Annotated[str, Field(description="The template, with the variables that its stage fills in")],
    ) -> None:
        """Save an edited prompt template for a stage that asks a language model. Raises an error that names a wrong or
        missing variable.
        """
        template = template.replace("\r\n", "\n")
        recipe = recipe_of(self._workspace.runs.get(sent.run).recipe)
        name = _prompt_name(recipe, sent)
        self._driver.prompts(recipe, {name: template})
        default = self._driver.prompts(recipe).get(name)
        self._set_prompt(sent, "" if default is not None and template.strip() == default.template.strip() else template)

    @does("prompt-back", PromptEdit)
    def put_prompt_back(self, sent: PromptEdit) -> None:
        """Reset the prompt of a stage to the profile's."""
        self._set_prompt(sent, "")

    def _set_prompt(self, command: PromptEdit, template: str) -> None:
        """Save a prompt template; "" restores the profile's template. A notice reports a change by another page."""
        with self._runs.changing:
            run = self._workspace.runs.get(command.run)
            name = _prompt_name(recipe_of(run.recipe), command)
            prompts = {slot: text for slot, text in run.prompts.items() if slot != name}
            prompts |= {name: template} if template else {}
            states = self._workspace.runs.states(command.run, command.state) if command.state else ()
            other = edit_conflicts.prompt_by_others(states, self.writes.by(command.tab), name)
            number = self._workspace.runs.set_prompts(command.run, prompts)
            self._notes.solved(command.run, command.stage)
            if number is None:
                return
            self.writes.note(number, command.tab)
            if other is not None:
                self._notes.tell(command.run, command.stage, edit_conflicts.prompt_conflict(other))


def _prompt_name(recipe: Recipe, command: PromptEdit) -> str:
    """Return the name of the command's prompt. Raises UserError if the stage has no such prompt."""
    names = [slot.name for slot in recipe.stage(command.stage).prompt_slots] if command.stage in recipe.names else []
    if not names:
        raise UserError("This stage asks no language model: there is no prompt to edit.", field="stage")
    name = command.prompt or command.stage
    if name not in names:
        raise UserError(f"This stage has no prompt {name[:80]!r}: it has {', '.join(names)}.", field="prompt")
    return name
