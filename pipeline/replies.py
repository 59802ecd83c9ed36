"""Reads the answer in a reply, without the thoughts and the chat template's marks that models return too. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

REPAIRED = "The reply held JSON in another form than the one asked for. It was repaired: compare it with the reply."
_LONGEST_JSON = 100_000
"""Maximum number of characters of JSON that is repaired. No stage asks for more."""

_NAMES = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning|reflection|analysis)"
_TAG = re.compile(
    rf"(?P<begin><{_NAMES}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|channel>thought\b|<unused94>thought\b)"
    rf"|</{_NAMES}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<channel\|>|<unused95>",
    re.IGNORECASE,
)
"""Matches a tag at the beginning or the end of a model's thoughts."""
_CHANNEL = re.compile(
    r"<\|channel\|>\s*+(\w++)[^<]*+<\|message\|>(.*?)(?=<\|(?:end|start|channel|return|call)\|>|\Z)", re.DOTALL
)
"""Matches a message of the harmony format: the name of its channel, and its text. The answer's channel is "final"."""
_BARE_CHANNELS = re.compile(r"\A(?:assistant)?analysis(?=[A-Z])(.*?)(?:assistantfinal|\Z)", re.DOTALL)
"""Matches messages of the harmony format from which a tokenizer removed the special tokens."""

_WRAPPING = re.compile(r"</?answer>|<\|(?:begin|end)_of_(?:box|solution)\|>", re.IGNORECASE)
"""Matches marks that models put around an answer."""
_MARK = re.compile(
    r"<[|｜][^<>|｜\s]{1,40}[|｜]>|</?s>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|<\|turn>|<turn\|>|\[/?INST\]|<</?SYS>>"
)
"""Matches a special token of a chat template that reached the text."""
_HEAD = re.compile(
    rf"(?:(?:<\|(?:im_start|start|start_header_id|start_of_role|turn)\|?>|<start_of_turn>)\s*(?:assistant|model)\b"
    rf"|\s*(?:{_MARK.pattern})\s*)+"
)
"""Matches the beginning of a turn: special tokens, and the model's role after a token that begins a turn."""
_INVISIBLE = dict.fromkeys((0x200B, 0x2060, 0xFEFF, 0x00AD))
"""Characters without a width that split words: zero-width space, word joiner, byte order mark, soft hyphen."""

_STRAIGHT = str.maketrans(dict.fromkeys("“”„‟«»", '"'))
_REFUSAL = re.compile(
    r"(?:i(?:['’]m| am) sorry|i apologi[sz]e|sorry\b(?!-)|i cannot|i can['’]t|as an ai\b|i(?:['’]m| am) unable)", re.I
)


@dataclass(frozen=True)
class Reply:
    """A model's reply, separated into answer and thoughts."""

    answer: str
    """The answer, or "" if the model gave none."""
    thoughts: str


def read_reply(text: str) -> Reply:
    """Separate a reply into the answer and the model's thoughts. Thoughts are in tags such as `<think>` or `[THINK]`,
    or in channels of the harmony format. The opening tag is missing if the chat template contains it. The closing tag
    is missing if the reply was cut off. The answer ends where the model's turn ends.
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore").translate(_INVISIBLE)
    text, thoughts = _without_channels(text)
    text, tagged = _without_tags(text)
    text = _WRAPPING.sub("", text).strip()
    if head := _HEAD.match(text):
        text = text[head.end() :]
    if mark := _MARK.search(text):
        text = text[: mark.start()]
    return Reply(text.strip(), _MARK.sub("", "".join((*thoughts, *tagged))).strip())


def with_thoughts(thoughts: str, answer: str) -> str:
    """Join thoughts and an answer that a model gave separately into one reply for `read_reply`."""
    return f"<think>\n{thoughts.strip()}\n</think>\n\n{answer}" if thoughts.strip() else answer


def whole_letters(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate (half a character), which no file and no request accepts."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_refusal(answer: str) -> bool:
    """Return True if an answer begins like a refusal, such as "I'm sorry, but I cannot ..."."""
    return _REFUSAL.match(answer) is not None


def with_json_repaired(answer: str, names: Collection[str]) -> str:
    """Return an answer's JSON object, repaired (commas, quotes, Python's notation and the like) and taken out of other
    JSON around it. The object must have a property with one of these `names`. Return the answer unchanged if it has no
    such object, if its JSON breaks off, or if there is nothing to repair or to take out.
    """
    start, end = answer.find("{"), answer.rfind("}") + 1
    if not names or not 0 <= start < end <= start + _LONGEST_JSON:
        return answer
    try:
        data = json.loads(answer[start:end])
        json_object = _object_with(names, data)
        return answer if json_object is None or json_object is data else json.dumps(json_object, ensure_ascii=False)
    except RecursionError:
        return answer
    except ValueError:
        json_object = None if _is_cut(answer, start, end) else _object_with(names, _repaired(answer[start:end]))
        return answer if json_object is None else json.dumps(json_object, ensure_ascii=False)


def _without_channels(text: str) -> tuple[str, list[str]]:
    messages = list(_CHANNEL.finditer(text))
    if not messages:
        bare = _BARE_CHANNELS.match(text)
        return (text[bare.end() :], [bare[1]]) if bare else (text, [])
    before = text[: messages[0].start()]  # thoughts too: the chat template may begin with their channel
    thoughts = [message[2] for message in messages if message[1] != "final"]
    return "".join(message[2] for message in messages if message[1] == "final"), [before, *thoughts]


def _without_tags(text: str) -> tuple[str, list[str]]:
    answer, thoughts, at, inside = "", list[str](), 0, False
    for tag in _TAG.finditer(text):
        between, at = text[at : tag.start()], tag.end()
        if inside:
            thoughts.append(between)
        elif tag["begin"]:
            answer += between
        else:
            thoughts.append(answer + between)
            answer = ""
        inside = bool(tag["begin"])
    if inside:
        thoughts.append(text[at:])
    return answer if inside else answer + text[at:], thoughts


def _is_cut(answer: str, start: int, end: int) -> bool:
    """Return True if the JSON from `start` to `end` seems to continue, or if a bracket of it is not closed."""
    text = answer[start:end]
    return "{" in answer[end:] or any(text.count(first) != text.count(last) for first, last in ("{}", "[]"))


def _repaired(text: str) -> Any:
    from json_repair import repair_json

    try:
        return repair_json(text if '"' in text else text.translate(_STRAIGHT), return_objects=True)
    except (RecursionError, ValueError):
        return None


def _object_with(names: Collection[str], data: Any) -> dict[str, Any] | None:
    """Return the first object with one of these property names, or None. A list of objects counts as one object."""
    if isinstance(data, list):
        together = {name: value for item in data if isinstance(item, dict) for name, value in item.items()}
        data = together if not together.keys().isdisjoint(names) else data
    if isinstance(data, dict) and not data.keys().isdisjoint(names):
        return data
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return next((found for part in parts if (found := _object_with(names, part)) is not None), None)
