"""The reply that a stage expects: a JSON schema, and the same content in lines.

The prompts ask for lines, which small models write better than JSON; servers constrain their replies to JSON. So a
schema of one of five forms also describes lines:

- an object with one text: that text, in one line;
- an object with one edit (type, from, to, caption): `from -> to | caption`, in one line;
- an object with one list of objects: a line for each object, its texts joined by " | ";
- an object with one list of lists of texts: a line for each list, its texts joined by "; ";
- an object of lists of texts: a line for each list, its name, a colon, and its texts joined by commas.

Pure functions. Code that constrains a model uses `grammar`; code that reads a reply calls `as_lines` first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.types import EDIT_TYPES, EditType, Task
from pipeline.checks.texts import may_change

Schema = Mapping[str, Any]

MOST_KEYWORDS = 16
LONGEST_KEYWORD = 6
"""Maximum number of words of a keyword."""
LONGEST_ALTERNATIVE = 60
"""Maximum number of characters of an alternative."""
NO_EDIT = "none"
"""Reply of a model if the caption allows no edit of the requested type."""
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_OPENINGS = (
    "sure|certainly|of course|absolutely|here|the following|below|based on|given|as requested|as an ai|please|"
    "let me know|sorry|great[!,.]|yes[!,.]|i (hope|have|cannot|can|am|apologi[sz]e)|i['’](ve|m)|"
    r"(ok|okay|note)[^\p{L}\n]"
)
"""Pattern of openings in which the model talks about its reply."""


def keywords_schema(caption: str, task: Task) -> Schema | None:
    """Return the schema of keywords: phrases of the caption that may change, with edit types. None if no phrase may."""
    free = [text for text in _phrases(caption) if may_change(text, caption, task)]
    if not free:
        return None
    each = object_schema(
        {"keyword": {"type": "string", "enum": free}, "edit_type": {"type": "string", "enum": list(EDIT_TYPES)}}
    )
    return object_schema({"keywords": _array(each, MOST_KEYWORDS)})


def alternatives_schema(keywords: Sequence[str], count: int) -> Schema:
    """Return the schema of at most `count` alternatives for each of the keywords."""
    return object_schema({" ".join(keyword.split()): _alternatives(count) for keyword in keywords})


def edits_schema(edits: Sequence[tuple[str, str]], captions: int, at_once: int) -> Schema:
    """Return the schema of edits (keyword, alternative) for `captions` captions, each with at most `at_once` edits."""
    one = {"type": "string", "enum": [edit_text(*edit) for edit in edits]}
    each = _array(one, at_once)
    return object_schema({"captions": _array(each, captions)})


def edit_text(keyword: str, alternative: str) -> str:
    """Return an edit in the form that prompts and replies use."""
    return " ".join(f"{keyword} -> {alternative}".split())


def caption_schema(source: str) -> Schema:
    """Return the schema of the new text for a caption: one line, of limited length compared with the source."""
    return object_schema({"caption": text_schema(3, 200 + 2 * len(source))})


def perturbation_schema(caption: str, task: Task, edit_type: EditType) -> Schema:
    """Return the schema of a reply: the edit type, the old words or "none", the new words, and the new caption."""
    free = [text for text in _phrases(caption) if may_change(text, caption, task)]
    return object_schema(
        {
            "type": {"type": "string", "enum": [edit_type]},
            "from": {"type": "string", "enum": [*free, NO_EDIT]},
            "to": text_schema(1, LONGEST_ALTERNATIVE),
            **caption_schema(caption)["properties"],
        }
    )


def together_schema(caption: str, task: Task, count: int, captions: int, at_once: int) -> Schema | None:
    """Return the schema of a reply with keywords, up to `count` alternatives per keyword, up to `captions` captions,
    and up to `at_once` edits per caption. The reply can only be JSON, not lines. None if no word may change.
    """
    keywords_alone = keywords_schema(caption, task)
    if keywords_alone is None:
        return None
    keywords = keywords_alone["properties"]["keywords"]
    keyword = object_schema({**keywords["items"]["properties"], "alternatives": _alternatives(count)})
    edit = text_schema(6, 2 * LONGEST_ALTERNATIVE)
    new = object_schema({"edits": _array(edit, at_once), **caption_schema(caption)["properties"]})
    return object_schema({"keywords": {**keywords, "items": keyword}, "captions": _array(new, captions)})


def as_lines(reply: str, schema: Schema | None) -> str:
    """Return the reply in lines if it is JSON of the schema's form, else unchanged."""
    parts = _parts(schema)
    start, end = reply.find("{"), reply.rfind("}")
    if parts is None or not 0 <= start < end:
        return reply
    try:
        data = json.loads(reply[start : end + 1])
    except ValueError:
        return reply
    if not isinstance(data, dict):
        return reply
    lines: list[str] = []
    if "from" in parts:
        old, new, text = (" ".join(str(data.get(name, "")).split()) for name in ("from", "to", "caption"))
        return NO_EDIT if old == NO_EDIT else f"{old} -> {new} | {text}" if text else reply
    for name, section in parts.items():
        content = data.get(name)
        if section["type"] == "string" and isinstance(content, str):
            lines.append(" ".join(content.split()))
        elif section["type"] == "array" and isinstance(content, list):
            items = section["items"]
            if items["type"] == "object":
                fields = list(items["properties"])
                lines += [
                    " | ".join(str(one.get(key, "")) for key in fields) for one in content if isinstance(one, dict)
                ]
            elif items["type"] == "array":
                lines += ["; ".join(map(str, one)) for one in content if isinstance(one, list)]
            else:
                lines.append(f"{name}: {', '.join(str(one) for one in content)}")
    return "\n".join(lines) or reply


def grammar(schema: Schema) -> str | None:
    """Return a grammar of the reply in lines, in llguidance's dialect of Lark. None if the reply can only be JSON. A
    reply of one text may not begin with a remark about itself. The first item of a list may not begin with the list's
    name. Later items may: stages drop such items, and to forbid them would make the model invent words.
    """
    parts = _parts(schema)
    if parts is None:
        return None
    if "from" in parts:
        return _one_edit(parts)
    section = next(iter(parts.values()))
    if section["type"] == "string":
        return _one_text()
    items = section["items"]
    if items["type"] == "object":
        choices = [" | ".join(map(_literal, field["enum"])) for field in items["properties"].values()]
        return _lines_of(section, r" / ?\| ?/ ".join(f"({choice})" for choice in choices))
    if items["type"] == "array":
        texts, more = items["items"]["enum"], items.get("maxItems", 100) - 1
        return _lines_of(section, f"TEXT (/; ?/ TEXT){{0,{more}}}", f"TEXT: {' | '.join(map(_literal, texts))}")
    return _lists(parts)


def text_schema(shortest: int, longest: int) -> Schema:
    """Return the schema of a text of `shortest` to `longest` characters."""
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def _array(items: Schema, most: int) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": most, "items": items}


def _alternatives(count: int) -> Schema:
    return _array(text_schema(1, LONGEST_ALTERNATIVE), count)


def object_schema(properties: Mapping[str, Any]) -> Schema:
    """Return the schema of an object with exactly these properties."""
    names = list(properties)
    return {"type": "object", "properties": dict(properties), "required": names, "additionalProperties": False}


def _parts(schema: Schema | None) -> dict[str, Any] | None:
    """Return the properties of a schema if its replies can be written in lines, else None."""
    if schema is None or schema.get("type") != "object" or not schema.get("properties"):
        return None
    parts: dict[str, Any] = schema["properties"]
    if list(parts) == ["type", "from", "to", "caption"]:
        return parts
    kinds = [(part.get("type"), part.get("items", {}).get("type")) for part in parts.values()]
    if len(kinds) == 1 and kinds[0] == ("string", None):
        return parts
    if len(kinds) == 1 and kinds[0] == ("array", "object"):
        fields = next(iter(parts.values()))["items"].get("properties", {}).values()
        return parts if fields and all("enum" in field for field in fields) else None
    if len(kinds) == 1 and kinds[0] == ("array", "array"):
        return parts if "enum" in next(iter(parts.values()))["items"].get("items", {}) else None
    return parts if all(kind == ("array", "string") for kind in kinds) else None


def _phrases(caption: str) -> list[str]:
    """Return the caption's words, and runs of words without punctuation. Each also occurs with a small first letter."""
    phrases: dict[str, None] = {}
    words = list(_WORD.finditer(caption))
    for i, first in enumerate(words):
        for before, last in zip([first, *words[i:]], words[i : i + LONGEST_KEYWORD], strict=False):
            if last is not first and caption[before.end() : last.start()].strip():
                break
            text = " ".join(caption[first.start() : last.end()].split())
            phrases.setdefault(text)
            phrases.setdefault(text[:1].lower() + text[1:])
    return list(phrases)


def _one_text() -> str:
    label = r"([\p{L}]+ ){0,4}(caption|answer|output|reply) *:[^\n]*"
    # Up to the end of the line: if only the first word were excluded, the model would write a longer, senseless one.
    talk = rf"(?i:({_OPENINGS})[^\n]*|{label})"
    # No limit on the length, since counting letters makes the grammar slow. The longest reply limits it.
    body = rf"BODY: /[\p{{L}}\p{{N}}][^\n]* [\p{{L}}\p{{N}}][^\n]*/ & ~/{talk}/"
    return "\n".join(("start: TEXT", r"TEXT: /[ \n]{0,4}/ BODY", body))


def _one_edit(parts: Mapping[str, Any]) -> str:
    old = " | ".join(_literal(text) for text in parts["from"]["enum"] if text != NO_EDIT)
    new = rf"/ ?-> ?[\p{{L}}\p{{N}}][^\n|>]{{0,{parts['to']['maxLength'] - 1}}}\|/"
    caption = r"/ ?[\p{L}\p{N}][^\n]* [\p{L}\p{N}][^\n]*/"
    edit = f"({old}) {new} {caption}" if old else caption
    return "\n".join(("start: REPLY", rf"REPLY: /[ \n]{{0,4}}/ ({_literal(NO_EDIT)} | {edit})"))


def _lines_of(section: Mapping[str, Any], line: str, *rules: str) -> str:
    more = section.get("maxItems", 100) - 1
    return "\n".join(
        (
            f"start: FIRST (MORE){{0,{more}}}",
            f"LINE: {line}",
            r"FIRST: /[ \n]{0,4}/ LINE",
            r"MORE: /\n {0,2}/ LINE",
            *rules,
        )
    )


def _lists(parts: Mapping[str, Any]) -> str:
    rules, names = [], []
    for number, (name, section) in enumerate(parts.items()):
        longest, more = section["items"].get("maxLength", 200), section.get("maxItems", 100) - 1
        lead = r"/[ \n]{0,4}/" if number == 0 else r"/\n {0,2}/"
        own_name = rf"(?i:((or|and) +)?({_escaped(name)}|none|n\/a)[^\n]*)"
        item = rf"[\p{{L}}\p{{N}}][^\n,;|:=\[\]\(\)\{{\}}\"<>]{{0,{longest - 1}}}"
        rules += [rf"FIRST_{number}: /{item}/ & ~/{own_name}/", f"ITEM_{number}: /{item}/"]
        line = f"{lead} {_literal(name)} /: ?/ FIRST_{number} (/, ?/ ITEM_{number}){{0,{more}}}"
        rules.append(f"LINE_{number}: {line}")
        names.append(f"LINE_{number}")
    return "\n".join((f"start: {' '.join(names)}", *rules))


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter == " " else rf"\x{{{ord(letter):x}}}" for letter in text)
