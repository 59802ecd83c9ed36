"""Checks of texts, pure: each returns `Check`s with sentences for the page. `require` raises UserError if one fails."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache

from core.errors import UserError
from core.types import Check, CounterfactualCaption, Edit, Task, failed
from core.words import (
    classes_in,
    contains,
    find_phrase,
    find_run,
    is_protected,
    protected_words_in,
    says_something,
    singular,
    tokens,
)
from pipeline.checks.contradictions import new_contradictions
from pipeline.checks.text_defects import lost_sentences, lost_things, repeated

SCENE_WIDE = ("weather", "time of day", "domain")
"""Edit types that affect the whole image. No occurrence of their keyword may stay in the caption."""
WITH_CONSEQUENCES = (*SCENE_WIDE, "background")
"""Edit types that may change more words than their keyword: where it snows, the ground is no longer green."""


FEW_CONSEQUENCES, MOST_CONSEQUENCES = 4, 0.4
"""Limits for an edit `WITH_CONSEQUENCES`: the number of other content words that may change, and their share of the
source's content words. The larger limit applies. A caption with more changes describes another scene."""


def task_checks(task: Task) -> tuple[Check, ...]:
    """Check that the task has a label or protected classes."""
    if task.kind == "classification":
        note = "A classification task needs a label: say what the image shows, such as bird."
        return (check_of("label given", bool(tokens(task.label)), note),)
    note = "A segmentation task needs protected classes: name what must stay in place, such as road, vehicle."
    return (check_of("protected classes given", any(tokens(name) for name in task.protected), note),)


def caption_checks(text: str, task: Task) -> tuple[Check, ...]:
    """Check that the caption is not empty and names the label, or at least one of the protected classes."""
    if not tokens(text):
        return (check_of("caption not empty", False, "The caption is empty: write one, or caption the image again."),)
    written = check_of("caption not empty", True)
    if task.kind == "classification":
        note = f"The caption does not name the label “{task.label}”: nothing in it can be protected. Add the word."
        return (written, check_of("label named", bool(classes_in(text, task)), note))
    note = f"The caption names none of the protected classes ({', '.join(task.protected)}). Add what the image shows."
    return (written, check_of("protected classes named", bool(classes_in(text, task)), note))


def keyword_checks(keyword: str, caption: str, task: Task, forced: bool = False) -> tuple[Check, ...]:
    """Check that a keyword is in the caption and not protected by the task. A `forced` keyword may be protected."""
    if not tokens(keyword):
        return (check_of("keyword not empty", False, "A keyword is empty: fill it in, or remove it."),)
    missing = f"“{keyword}” is not in the caption: use words exactly as the caption has them."
    protected = f"“{keyword}” is protected by the task ({task.describe()}): choose something else."
    return (
        check_of("keyword in the caption", contains(caption, keyword), missing),
        check_of("keyword not protected", forced or not is_protected(keyword, task), protected),
    )


def may_change(keyword: str, caption: str, task: Task) -> bool:
    """Return True if a keyword passes all of `keyword_checks`. Faster for many phrases, as it gives no reasons."""
    return bool(tokens(keyword)) and contains(caption, keyword) and not is_protected(keyword, task)


def alternative_checks(keyword: str, alternative: str, task: Task, forced: bool = False) -> tuple[Check, ...]:
    """Check that an alternative changes its keyword and neither drops (unless `forced`) nor adds protected words."""
    if not tokens(alternative):
        note = f"An alternative of “{keyword}” is empty: fill it in, or remove it."
        return (check_of("alternative not empty", False, note),)
    same = f"“{alternative}” is the same as its keyword: choose something else."
    lost = [word for word in protected_words_in(keyword, task) if not forced and not contains(alternative, word)]
    checks = [
        check_of("alternative differs", tokens(keyword) != tokens(alternative), same),
        check_of(_kept_name(task), not lost, f"“{alternative}” drops {_quoted(lost)}, which is protected by the task."),
    ]
    if task.kind == "segmentation":
        checks.append(_nothing_added(keyword, alternative, task))
    else:
        named = bool(classes_in(alternative, task)) and not classes_in(keyword, task)
        note = f"“{alternative}” names the label “{task.label}”, so it cannot replace “{keyword}”."
        checks.append(check_of("label not named instead", not named, note))
    return tuple(checks)


def counterfactual_checks(source: str, counterfactual: CounterfactualCaption, task: Task) -> tuple[Check, ...]:
    """Check that a counterfactual caption has its edits, keeps every protected word (except one that a person insists
    on changing) and makes sense. If an edit has consequences, such as new weather, a few other words may change, and
    their check passes with a remark. If `source` is "", the text describes a background, which may name no protected
    class. Checks recorded in `counterfactual` come last; if it has such checks and no text, only they are returned.
    """
    if counterfactual.checks and not tokens(counterfactual.text):
        return counterfactual.checks
    return (*_text_checks(source, counterfactual, task), *counterfactual.checks)


@lru_cache(maxsize=512)  # a reply is checked when it arrives, and again when it is stored
def _text_checks(source: str, counterfactual: CounterfactualCaption, task: Task) -> tuple[Check, ...]:
    text = counterfactual.text
    if not tokens(text):
        return (check_of("caption not empty", False, "The counterfactual caption is empty: write it, or untick it."),)
    notes = [note for edit in counterfactual.edits if (note := undone(source, text, edit))]
    made = check_of("edits made", not notes, " ".join(notes))
    if not tokens(source):
        return (made, no_class_named(text, task.kept()), _no_repetition(source, text))
    forced = [edit for edit in counterfactual.edits if edit.forced]
    waived = {word for edit in forced for word in protected_words_in(edit.keyword, task)}
    lost = [word for word in protected_words_in(source, task) if word not in waived and not contains(text, word)]
    gone = f"{_quoted(lost)} {'is' if len(lost) == 1 else 'are'} no longer in the caption, but protected by the task."
    checks = [made, check_of(_kept_name(task), not lost, gone)]
    if forced:
        forced_keywords = _quoted([edit.keyword for edit in forced])
        note = f"{forced_keywords} is protected by the task and changed on purpose: a person insisted."
        checks.append(Check("protected changed on purpose", True, note=note))
    if task.kind == "segmentation":
        checks += [_named_as_often(source, text, task, waived), _nothing_added(source, text, task)]
    if counterfactual.edits:
        checks += [_nothing_unasked(source, counterfactual), _nothing_lost(source, counterfactual)]
    checks.append(_no_repetition(source, text))
    broken = new_contradictions(source, text)
    checks.append(check_of("no contradiction", not broken, " ".join(broken)))
    return tuple(checks)


def no_class_named(text: str, names: tuple[str, ...]) -> Check:
    """Check that `text`, which describes a background, names none of the protected classes `names`."""
    named = classes_in(text, Task("segmentation", protected=names))
    note = f"The background names {_quoted(list(named))}, which only the subject may show."
    return check_of("no class named", not named, note)


def require(checks: tuple[Check, ...]) -> None:
    """Raise UserError with the note of the first failed check."""
    for check in failed(checks):
        raise UserError(check.note)


def check_of(name: str, passed: bool, note: str = "") -> Check:
    """Return a check without a figure. Its note says why it failed, and is dropped if it passed."""
    return Check(name, passed, note="" if passed else note)


def _kept_name(task: Task) -> str:
    return "label kept" if task.kind == "classification" else "protected kept"


def _quoted(words: list[str]) -> str:
    return " and ".join(f"“{word}”" for word in words)


def _nothing_unasked(source: str, counterfactual: CounterfactualCaption) -> Check:
    """Check that no words changed except those of the edits. Words without content do not count, nor do plurals."""
    name = "nothing unasked changed"
    gone, came = unasked_words(source, counterfactual)
    if not gone and not came:
        return Check(name, True)
    parts = [f"{_few(gone)} {'is' if len(gone) == 1 else 'are'} gone"] if gone else []
    parts += [f"{_few(came)} came in"] if came else []
    follows_from_edit = any(edit.edit_type in WITH_CONSEQUENCES for edit in counterfactual.edits)
    content_words = sum(says_something(word) for word in tokens(source))
    few = max(len(gone), len(came)) <= max(FEW_CONSEQUENCES, round(MOST_CONSEQUENCES * content_words))
    expected = follows_from_edit and few
    follows = "as may follow from the edit" if expected else "which no edit asked for"
    if follows_from_edit and not few:
        follows = "more than can follow from the edit"
    return Check(name, expected, note=f"Beside the edits {' and '.join(parts)}, {follows}.")


def _nothing_lost(source: str, counterfactual: CounterfactualCaption) -> Check:
    edited_words = _asked(counterfactual)
    things = lost_things(source, counterfactual.text, edited_words)
    sentences = lost_sentences(source, counterfactual.text, edited_words)
    parts = [f"{_few(things)} {'is' if len(things) == 1 else 'are'} no longer named"] if things else []
    parts += [f"nothing is left of the sentence {_few(sentences, 1)}"] if sentences else []
    joined = " and ".join(parts)
    return check_of("nothing lost", not parts, f"{joined[:1].upper()}{joined[1:]}, and no edit asked for that.")


def _no_repetition(source: str, text: str) -> Check:
    repetition = repeated(source, text)
    note = f"“{repetition[0]}” occurs {repetition[1]} times: the caption repeats itself." if repetition else ""
    return check_of("no repetition", repetition is None, note)


def _asked(counterfactual: CounterfactualCaption) -> set[str]:
    return {
        singular(word) for edit in counterfactual.edits for word in (*tokens(edit.keyword), *tokens(edit.alternative))
    }


def unasked_words(source: str, counterfactual: CounterfactualCaption) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the removed words and the added words that belong to no edit, in text order, each once."""
    before, after = tokens(source), tokens(counterfactual.text)
    gone: list[str] = []
    came: list[str] = []
    for what, a0, a1, b0, b1 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what != "equal":
            gone += before[a0:a1]
            came += after[b0:b1]
    edited_words = _asked(counterfactual)
    # A word that is gone from one place and added at another was only moved.
    moved = {singular(word) for word in gone} & {singular(word) for word in came}

    def left(words: list[str]) -> tuple[str, ...]:
        unasked = (word for word in words if says_something(word) and singular(word) not in edited_words | moved)
        return tuple(dict.fromkeys(unasked))

    return left(gone), left(came)


def _few(words: tuple[str, ...], most: int = 4) -> str:
    """Return the first `most` words quoted, and the number of others. A new caption may have too many to read."""
    rest = len(words) - most
    return _quoted(list(words)) if rest <= 0 else f"{', '.join(f'“{word}”' for word in words[:most])} and {rest} more"


def _named_as_often(before: str, after: str, task: Task, waived: set[str]) -> Check:
    """Check that no protected word in `after` occurs less often than in `before`. Words in `waived` are exempt."""
    words = [word for word in protected_words_in(before, task) if word not in waived and contains(after, word)]
    fewer = [word for word in words if len(find_phrase(after, word)) < len(find_phrase(before, word))]
    verb = "is" if len(fewer) == 1 else "are"
    note = f"{_quoted(fewer)} {verb} named less often than before: one may be lost."
    return check_of("protected named as often", not fewer, note)


def _nothing_added(before: str, after: str, task: Task) -> Check:
    """Check that the new text names no additional protected class. The kept mask would lack such a class."""
    new = [name for name in classes_in(after, task) if name not in classes_in(before, task)]
    return check_of("nothing protected added", not new, f"{_quoted(new)} was not named before, but the mask is kept.")


def undone(source: str, new: str, edit: Edit) -> str:
    """Return a sentence that tells how an edit is missing in the new text, or "" if the text has the edit. The two
    texts are aligned word by word, since counting would miss a swap (red becomes blue and blue becomes red).
    """
    before, after = tokens(source), tokens(new)
    keyword, alternative = tokens(edit.keyword), tokens(edit.alternative)
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    same_before = {block.a + i for block in blocks for i in range(block.size)}
    same_after = {block.b + i for block in blocks for i in range(block.size)}
    left = [set(range(at, at + len(keyword))) <= same_before for at in find_run(before, keyword)]
    put = [not set(range(at, at + len(alternative))) <= same_after for at in find_run(after, alternative)]
    # "trees" -> "palm trees" keeps the keyword, "dark red" -> "red" adds no new word.
    grows, shrinks = bool(find_run(alternative, keyword)), bool(find_run(keyword, alternative))
    if not put or not (any(put) or shrinks):
        return f"“{edit.alternative}” is not in the caption where “{edit.keyword}” was."
    stays = any(left) if edit.edit_type in SCENE_WIDE else all(left)
    if left and stays and not grows:
        return f"“{edit.keyword}” still stands where it was."
    return ""
