"""What a person can do to the values of the text stages: pure functions from a value to the next one.

Each raises UserError, in one sentence that says what to do, for what would make no sense; the value is then as it was.
"""

from __future__ import annotations

from dataclasses import replace

from core.errors import UserError
from core.types import (
    EDIT_TYPES,
    Alternative,
    Alternatives,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    EditType,
    Keyword,
    KeywordAlternatives,
    Keywords,
    Task,
    failed,
)
from core.words import find_phrase, is_protected, tokens
from pipeline.checks.texts import alternative_checks, caption_checks, counterfactual_checks, keyword_checks, require
from pipeline.stages.counterfactuals import merged


class ProtectedKeyword(UserError):
    """The task protects the word: only a person who insists may have it changed."""


def write_caption(text: str, task: Task) -> Caption:
    """A caption without its label is taken: the page warns of it."""
    text = " ".join(text.split())
    require(caption_checks(text, task)[:1])
    return Caption(text)


def use_keyword(value: Keywords, text: str, used: bool) -> Keywords:
    _held(value, text)
    return Keywords(tuple(replace(item, used=used) if item.text == text else item for item in value.items))


def add_keyword(value: Keywords, text: str, edit_type: str, caption: str, task: Task, force: bool = False) -> Keywords:
    """One more, in caption order. Raises ProtectedKeyword for what the task protects, unless it is forced."""
    text = _fit_keyword(value, text, caption, task, force)
    keyword = Keyword(text, _edit_type(edit_type), forced=force and is_protected(text, task))
    return _in_caption_order((*value.items, keyword), caption)


def reword_keyword(
    value: Keywords, old: str, text: str, edit_type: str, caption: str, task: Task, force: bool = False
) -> Keywords:
    """Other words or another edit type for one that is there. Raises ProtectedKeyword as `add_keyword` does."""
    before = _held(value, old)
    rest = Keywords(tuple(item for item in value.items if item.text != old))
    # One that was forced stays so while only its edit type is changed.
    force = force or (before.forced and tokens(text) == tokens(old))
    new = _fit_keyword(rest, text, caption, task, force)
    reworded = replace(before, text=new, edit_type=_edit_type(edit_type), forced=force and is_protected(new, task))
    items = (reworded if item.text == old else item for item in value.items)
    return _in_caption_order(tuple(items), caption)


def delete_keyword(value: Keywords, text: str) -> Keywords:
    _held(value, text)
    return Keywords(tuple(item for item in value.items if item.text != text))


def use_alternative(value: Alternatives, keyword: Keyword, text: str, used: bool) -> Alternatives:
    item = _of(value, keyword)
    _option(item, text)
    options = tuple(replace(option, used=used) if option.text == text else option for option in item.options)
    return _with(value, replace(item, options=options))


def add_alternative(value: Alternatives, keyword: Keyword, text: str, task: Task) -> Alternatives:
    """One more for a keyword; the keyword need not have any yet."""
    item = _of(value, keyword)
    return _with(value, replace(item, options=(*item.options, Alternative(_fit_alternative(item, text, task)))))


def reword_alternative(value: Alternatives, keyword: Keyword, old: str, text: str, task: Task) -> Alternatives:
    """Other words for one that is there; how close they come is to be measured anew."""
    item = _of(value, keyword)
    _option(item, old)
    others = replace(item, options=tuple(option for option in item.options if option.text != old))
    new = _fit_alternative(others, text, task)
    options = tuple(Alternative(new, option.used) if option.text == old else option for option in item.options)
    return _with(value, replace(item, options=options))


def delete_alternative(value: Alternatives, keyword: Keyword, text: str) -> Alternatives:
    item = _of(value, keyword)
    _option(item, text)
    return _with(value, replace(item, options=tuple(option for option in item.options if option.text != text)))


def use_counterfactual(value: CounterfactualCaptions, place: int, was: str, used: bool) -> CounterfactualCaptions:
    """Tick or untick the one at a place. `was` is its text as the person saw it."""
    return _at(value, place, was, used=used)


def write_counterfactual(
    value: CounterfactualCaptions, place: int, was: str, text: str, source: str, task: Task
) -> CounterfactualCaptions:
    """Reword the caption at a place, also where words are lost. It is merged with one of the same words."""
    text = " ".join(text.split())
    require(counterfactual_checks(source, CounterfactualCaption(text, ()), task)[:1])
    return merged(_at(value, place, was, text=text, checks=()), source)


def add_counterfactual(value: CounterfactualCaptions, text: str, source: str, task: Task) -> CounterfactualCaptions:
    """One more, written by hand: nothing is known of its edits."""
    new = CounterfactualCaption(" ".join(text.split()), ())
    require(counterfactual_checks(source, new, task)[:1])
    if tokens(new.text) == tokens(source):
        raise UserError("This is the caption as it was: change what the new image should show differently.")
    if any(tokens(new.text) == tokens(item.text) for item in value.items):
        raise UserError("This caption is there already: change it, or tick the one that is there.")
    return CounterfactualCaptions((*value.items, new))


def delete_counterfactual(value: CounterfactualCaptions, place: int, was: str) -> CounterfactualCaptions:
    _at(value, place, was)
    return CounterfactualCaptions(value.items[:place] + value.items[place + 1 :])


def _fit_keyword(value: Keywords, text: str, caption: str, task: Task, force: bool) -> str:
    text = " ".join(text.split())
    require(keyword_checks(text, caption, task, forced=True))
    if not force:
        for check in failed(keyword_checks(text, caption, task)):
            raise ProtectedKeyword(check.note)
    if any(tokens(item.text) == tokens(text) for item in value.items):
        raise UserError(f"The keyword “{text}” is there already.")
    return text


def _edit_type(name: str) -> EditType:
    for known in EDIT_TYPES:
        if name == known:
            return known
    raise UserError(f"There is no edit type {name!r}: choose one of {', '.join(EDIT_TYPES)}.")


def _in_caption_order(items: tuple[Keyword, ...], caption: str) -> Keywords:
    # A keyword that is no longer in the caption keeps to the end.
    return Keywords(tuple(sorted(items, key=lambda item: (find_phrase(caption, item.text) or [(len(caption), 0)])[0])))


def _held(value: Keywords, text: str) -> Keyword:
    for item in value.items:
        if item.text == text:
            return item
    raise UserError(f"The keyword “{text}” is no longer there: the list was changed meanwhile.")


def _of(value: Alternatives, keyword: Keyword) -> KeywordAlternatives:
    for item in value.items:
        if item.keyword == keyword.text:
            return item
    return KeywordAlternatives(keyword.text, keyword.edit_type, (), keyword.forced)


def _option(item: KeywordAlternatives, text: str) -> Alternative:
    for option in item.options:
        if option.text == text:
            return option
    raise UserError(f"The alternative “{text}” is no longer there: the list was changed meanwhile.")


def _fit_alternative(item: KeywordAlternatives, text: str, task: Task) -> str:
    text = " ".join(text.split())
    require(alternative_checks(item.keyword, text, task)[:1])
    if any(tokens(option.text) == tokens(text) for option in item.options):
        raise UserError(f"The alternative “{text}” of “{item.keyword}” is there already.")
    return text


def _with(value: Alternatives, item: KeywordAlternatives) -> Alternatives:
    if any(other.keyword == item.keyword for other in value.items):
        return Alternatives(tuple(item if other.keyword == item.keyword else other for other in value.items))
    return Alternatives((*value.items, item))


def _at(value: CounterfactualCaptions, place: int, was: str, **changes: object) -> CounterfactualCaptions:
    if not 0 <= place < len(value.items) or value.items[place].text != was:
        raise UserError("This caption is no longer there: the list was changed meanwhile.")
    new = replace(value.items[place], **changes)  # type: ignore[arg-type]
    return CounterfactualCaptions((*value.items[:place], new, *value.items[place + 1 :]))
