"""A person's edits of the values of the text stages. Each edit is both a pure function and a command.

Each raises UserError if the edit is not possible, with a sentence that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import Field

from core.errors import UserError
from core.stored_runs import Run
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    EditType,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageName,
    Task,
    failed,
)
from core.words import find_phrase, is_protected, tokens
from pipeline.checks.texts import alternative_checks, caption_checks, counterfactual_checks, keyword_checks, require
from pipeline.recipes import recipe_of
from pipeline.stages.counterfactuals import merged
from services.commands import command_of
from services.edit_conflicts import ValueEdit


class ProtectedKeyword(UserError):
    """Raised for a keyword that the task protects. A person may insist on the edit."""


EDITS: dict[type[ValueEdit], Callable[..., Any]] = {}
"""The function of each edit command. Its arguments are the stage's latest value, the run and the command's fields."""
Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item", Keyword, Alternative)

_KeywordText = Annotated[str, Field(description="The keyword")]
_CaptionWords = Annotated[str, Field(description="Words of the caption")]
_EditType = Annotated[EditType, Field(description="Edit type of a change to this keyword")]
_Force = Annotated[bool, Field(description="True to add the keyword even if the task protects it")]
_AlternativeText = Annotated[str, Field(description="The alternative")]
_NewAlternative = Annotated[str, Field(description="The new words for the keyword")]
_WholeCaption = Annotated[str, Field(description="The whole caption")]
_Place = Annotated[int, Field(ge=0, le=10_000, description="Position of the caption in the list, from 0")]
_SeenText = Annotated[str, Field(description="Text of the caption as the person saw it")]


def edit(name: str, stage: StageName) -> Callable[[Function], Function]:
    """Register a function as the command `name`, which edits the value of a stage."""

    def add(function: Function) -> Function:
        command = command_of(function, ValueEdit, "value", "run", name=name, stage_of_command=stage)
        EDITS[command] = function
        return function

    return add


@edit("caption", "caption")
def write_caption(value: Caption, run: Run, text: _WholeCaption) -> Caption:
    """Write the caption."""
    text = " ".join(text.split())
    require(caption_checks(text, run.task)[:1])  # a caption without the label is accepted, and the page warns of it
    return Caption(text)


@edit("keyword-use", "keywords")
def use_keyword(
    value: Keywords,
    run: Run,
    text: _KeywordText,
    used: Annotated[bool, Field(description="True to tick the keyword, so that captions may change it")],
) -> Keywords:
    """Tick or untick a keyword."""
    return Keywords(_put(value.items, text, replace(_named(value.items, text, "keyword"), used=used)))


@edit("keyword-add", "keywords")
def add_keyword(value: Keywords, run: Run, new: _CaptionWords, edit_type: _EditType, force: _Force = False) -> Keywords:
    """Add a keyword. Raises ProtectedKeyword if the task protects it, unless `force` is set."""
    text = _fit_keyword(value, new, run, force)
    keyword = Keyword(text, edit_type, forced=force and is_protected(text, run.task))
    return _in_caption_order((*value.items, keyword), caption_of(run))


@edit("keyword-reword", "keywords")
def reword_keyword(
    value: Keywords,
    run: Run,
    text: Annotated[str, Field(description="The present keyword")],
    new: _CaptionWords,
    edit_type: _EditType,
    force: _Force = False,
) -> Keywords:
    """Change a keyword's words or edit type. Without `force`, raises ProtectedKeyword for words the task protects."""
    before = _named(value.items, text, "keyword")
    rest = Keywords(_put(value.items, text))
    # A forced keyword stays forced while only its edit type changes.
    force = force or (before.forced and tokens(new) == tokens(text))
    new = _fit_keyword(rest, new, run, force)
    reworded = replace(before, text=new, edit_type=edit_type, forced=force and is_protected(new, run.task))
    return _in_caption_order(_put(value.items, text, reworded), caption_of(run))


@edit("delete-keyword", "keywords")
def delete_keyword(value: Keywords, run: Run, text: _KeywordText) -> Keywords:
    """Delete a keyword."""
    _named(value.items, text, "keyword")
    return Keywords(_put(value.items, text))


@edit("alternative-use", "alternatives")
def use_alternative(
    value: Alternatives,
    run: Run,
    keyword: _KeywordText,
    text: _AlternativeText,
    used: Annotated[bool, Field(description="True to tick the alternative, so that captions may use it")],
) -> Alternatives:
    """Tick or untick an alternative."""
    item = _of(value, run, keyword)
    option = replace(_named(item.options, text, "alternative"), used=used)
    return _with(value, replace(item, options=_put(item.options, text, option)))


@edit("alternative-add", "alternatives")
def add_alternative(value: Alternatives, run: Run, keyword: _KeywordText, new: _NewAlternative) -> Alternatives:
    """Add an alternative."""
    item = _of(value, run, keyword)  # the keyword may have no alternatives yet
    return _with(value, replace(item, options=(*item.options, Alternative(_fit_alternative(item, new, run.task)))))


@edit("alternative-reword", "alternatives")
def reword_alternative(
    value: Alternatives,
    run: Run,
    keyword: _KeywordText,
    text: Annotated[str, Field(description="The present alternative")],
    new: _NewAlternative,
) -> Alternatives:
    """Change the words of an alternative."""
    item = _of(value, run, keyword)
    used = _named(item.options, text, "alternative").used
    new = _fit_alternative(replace(item, options=_put(item.options, text)), new, run.task)
    # A new Alternative has no similarity, so that the similarity of the new words is measured.
    return _with(value, replace(item, options=_put(item.options, text, Alternative(new, used))))


@edit("delete-alternative", "alternatives")
def delete_alternative(value: Alternatives, run: Run, keyword: _KeywordText, text: _AlternativeText) -> Alternatives:
    """Delete an alternative."""
    item = _of(value, run, keyword)
    _named(item.options, text, "alternative")
    return _with(value, replace(item, options=_put(item.options, text)))


@edit("counterfactual-use", "counterfactuals")
def use_counterfactual(
    value: CounterfactualCaptions,
    run: Run,
    place: _Place,
    text: _SeenText,
    used: Annotated[bool, Field(description="True to tick the caption, so that images are made of it")],
) -> CounterfactualCaptions:
    """Tick or untick a counterfactual caption."""
    if used and not tokens(text):
        raise UserError("This caption is empty: write it, then tick it.")
    return _at(value, place, text, used=used)


@edit("counterfactual-write", "counterfactuals")
def write_counterfactual(
    value: CounterfactualCaptions, run: Run, place: _Place, text: _SeenText, new: _WholeCaption
) -> CounterfactualCaptions:
    """Change the text of a counterfactual caption."""
    new, source = " ".join(new.split()), caption_of(run)
    require(counterfactual_checks(source, CounterfactualCaption(new, ()), run.task)[:1])
    # Without a source caption, the edits name the place and time of the old text, so they are dropped.
    return merged(_at(value, place, text, text=new, checks=(), **({} if source else {"edits": ()})), source)


@edit("counterfactual-add", "counterfactuals")
def add_counterfactual(value: CounterfactualCaptions, run: Run, new: _WholeCaption) -> CounterfactualCaptions:
    """Add a counterfactual caption."""
    added, source = CounterfactualCaption(" ".join(new.split()), ()), caption_of(run)  # no known edits
    require(counterfactual_checks(source, added, run.task)[:1])
    if tokens(added.text) == tokens(source):
        raise UserError("This is the caption of the source: change what should differ in the new image.")
    if any(tokens(added.text) == tokens(item.text) for item in value.items):
        raise UserError("The list has this caption already: change the new caption, or tick the caption in the list.")
    return CounterfactualCaptions((*value.items, added))


@edit("delete-counterfactual", "counterfactuals")
def delete_counterfactual(
    value: CounterfactualCaptions, run: Run, place: _Place, text: _SeenText
) -> CounterfactualCaptions:
    """Delete a counterfactual caption."""
    _at(value, place, text)
    return CounterfactualCaptions(value.items[:place] + value.items[place + 1 :])


def keyword_of(run: Run, text: str) -> Keyword:
    """Return the keyword with this text from a run's alternatives or keywords. Raises UserError if neither has it."""
    for item in value_of(run, "alternatives").items:
        if item.keyword == text:
            return Keyword(item.keyword, item.edit_type, forced=item.forced)
    keyword = _named(value_of(run, "keywords").items, text, "keyword")
    return Keyword(keyword.text, keyword.edit_type, forced=keyword.forced)


def caption_of(run: Run) -> str:
    """Return the source caption of a run; "" if the run has none, or if its recipe reads none."""
    return recipe_of(run.recipe).source_caption({name: stored.value.value for name, stored in run.values.items()})


def value_of(run: Run, stage: StageName) -> Any:
    """Return the latest value of a stage, or an empty one."""
    return run.values[stage].value.value if stage in run.values else _EMPTY[stage]


_EMPTY: Mapping[StageName, Any] = {
    "caption": Caption(""),
    "keywords": Keywords(()),
    "alternatives": Alternatives(()),
    "counterfactuals": CounterfactualCaptions(()),
}


def _fit_keyword(value: Keywords, text: str, run: Run, force: bool) -> str:
    text, caption = " ".join(text.split()), caption_of(run)
    require(keyword_checks(text, caption, run.task, forced=True))
    if not force:
        for check in failed(keyword_checks(text, caption, run.task)):
            raise ProtectedKeyword(check.note)
    if any(tokens(item.text) == tokens(text) for item in value.items):
        raise UserError(f"The keyword “{text}” is there already.")
    return text


def _in_caption_order(items: tuple[Keyword, ...], caption: str) -> Keywords:
    # A keyword that is no longer in the caption goes to the end.
    return Keywords(tuple(sorted(items, key=lambda item: (find_phrase(caption, item.text) or [(len(caption), 0)])[0])))


def _named(items: tuple[Item, ...], text: str, what: str) -> Item:
    """Return the item with this text. Raises UserError if it is missing; `what` names the item in the message."""
    for item in items:
        if item.text == text:
            return item
    raise UserError(f"The {what} “{text}” is no longer there: the list has changed since.")


def _put(items: tuple[Item, ...], text: str, *new: Item) -> tuple[Item, ...]:
    """Return the items with the item of this text replaced by `new`, or removed if `new` is empty."""
    return tuple(one for item in items for one in (new if item.text == text else (item,)))


def _of(value: Alternatives, run: Run, text: str) -> KeywordAlternatives:
    keyword = keyword_of(run, text)
    for item in value.items:
        if item.keyword == keyword.text:
            return item
    return KeywordAlternatives(keyword.text, keyword.edit_type, (), keyword.forced)


def _fit_alternative(item: KeywordAlternatives, text: str, task: Task) -> str:
    text = " ".join(text.split())
    require(alternative_checks(item.keyword, text, task)[:1])
    if any(tokens(option.text) == tokens(text) for option in item.options):
        raise UserError(f"The alternative “{text}” of “{item.keyword}” is there already.")
    return text


def _with(value: Alternatives, item: KeywordAlternatives) -> Alternatives:
    items = {other.keyword: other for other in value.items} | {item.keyword: item}
    return Alternatives(tuple(items.values()))


def _at(value: CounterfactualCaptions, place: int, was: str, **changes: object) -> CounterfactualCaptions:
    if not 0 <= place < len(value.items) or value.items[place].text != was:
        raise UserError("This caption is no longer there: the list has changed since.")
    new = replace(value.items[place], **changes)  # type: ignore[arg-type]
    return CounterfactualCaptions((*value.items[:place], new, *value.items[place + 1 :]))
