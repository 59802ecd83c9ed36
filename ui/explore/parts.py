"""Small HTML elements: labels, buttons, icons, fields of settings, help, marked differences, and times as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.data_files import DataTable
from core.model_identity import without_hashes
from ui.diff import Piece
from ui.markup import Attribute, Child, Html, el, join

Tone = Literal["", "ok", "warn", "bad", "acc"]
Size = tuple[int, int]
"""Width and height of a picture, in pixels."""

CONTROL = "drawing the control image"
"""Label for a job that only draws the control image, so it belongs to no stage."""

UNKNOWN_PICTURE = "not a drawn scene"
WORTH_A_MARK = 3
"""Minimum number of words to hide. A small window shows "…" in place of unchanged words far from any change."""
_POINTS = (".", ",", ";", ":", "!", "?")
_ICONS = DataTable(__file__, str, "icons")


def icon(name: str) -> Html:
    """Return the icon with this name, as high as the text around it."""
    return Html(f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{_ICONS[name]}</svg>')


def picture(src: str, size: Size, **attributes: Attribute) -> Html:
    """Return a picture with its size. The page can thus reserve the space of the picture before the picture loads."""
    return el("img", src=src, width=size[0], height=size[1], **attributes)


def image_url(sha: str) -> str:
    """Return the address of an image of the workspace."""
    return f"/images/{sha}.png"


def mask_url(sha: str) -> str:
    """Return the address of a mask of the workspace, as a coloured picture to lay over its image."""
    return f"/masks/{sha}.png"


def thumb_url(sha: str) -> str:
    """Return the address of the thumbnail of an image of the workspace: WebP, 256 pixels on the longer side."""
    return f"/thumbs/{sha}.webp"


def pill(text: Child, tone: Tone = "", **attributes: str | bool | None) -> Html:
    """Return a small label: text on a tinted background."""
    return el("span", text, class_=f"pill {tone}".strip(), **attributes)


def button(text: Child, do: str = "", look: str = "", **attributes: Attribute) -> Html:
    """Return a button. Its action `do` gets the `data_...` attributes. `look`: p(rimary), s(mall), q(uiet)."""
    return el("button", text, type="button", class_=f"btn {look}".strip(), data_do=do or None, **attributes)


def muted(*words: Child, **attributes: Attribute) -> Html:
    """Return a muted line of text."""
    return el("p", *words, class_="mut", **attributes)


def small(*words: Child, **attributes: Attribute) -> Html:
    """Return a muted line of small text."""
    return el("p", *words, class_="mut small", **attributes)


def more_line(title: Child, *content: Child, **attributes: Attribute) -> Html:
    """Return a line that shows more content when a person presses it."""
    return el("details", el("summary", title), *content, class_="more-line", **attributes)


def setting_input(section: str, name: str, settings: BaseModel, field_id: str, /, **more: Any) -> Html:
    """Return the input element for one setting. `more` are further HTML attributes."""
    field, value = type(settings).model_fields[name], getattr(settings, name)
    common: dict[str, Any] = {"id": field_id, "data_do": "setting", "data_setting": f"{section}.{name}", **more}
    if isinstance(value, bool):
        return el("input", type="checkbox", **{"checked": value, **common})
    if isinstance(value, str):
        return el("input", type="text", **{"value": value, "maxlength": _bound(field, "max_length"), **common})
    step = _bound(field, "multiple_of") or (1 if isinstance(value, int) else 0.05)
    low, high = _bound(field, "ge"), _bound(field, "le")
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return el("input", type="number", **{"value": shown, "min": low, "max": high, "step": step, **common})


def _bound(field: FieldInfo, name: str) -> Any:
    return next((getattr(rule, name) for rule in field.metadata if getattr(rule, name, None) is not None), None)


def help_window(words: str, links: Iterable[tuple[str, str]], *content: Child) -> Html:
    """Return the help window, closed; `assets/help.js` opens it. `links` are (id, title) of its sections."""
    close = button(icon("cross"), look="s q icon-only", data_close_window=True, aria_label="Close")
    ways = [button(name, look="s q", data_scroll_to=section) for section, name in links]
    head = el("header", el("h2", "Help"), ways, el("span", class_="grow"), close)
    return el("dialog", head, *content, id="keys-window", aria_label=words)


def help_button(title: str) -> Html:
    """Return the button that opens the help window."""
    named = {"id": "keys-button", "aria_label": "Help", "title": f"{title} (?)"}
    return button("?", look="s q icon-only", data_keys_open=True, **named)


def differences(pieces: tuple[Piece, ...], near: int | None = None) -> Html:
    """Return a text with its changes marked. With `near`, also mark the unchanged words that are more than `near` words
    from a change, so that small windows can hide them.
    """
    names = {"removed": "del", "added": "ins"}
    parts: list[Child] = []
    before = " "
    for place, piece in enumerate(pieces):
        text = piece.text
        if piece.kind != "same":
            text = text.rstrip()
            if not before.endswith(" ") and not text.startswith(_POINTS):
                parts.append(" ")
            parts.append(el(names[piece.kind], text))
            text = piece.text[len(text) :]
            # Removed words need a space before the next word, but none before punctuation.
            following = pieces[place + 1].text if place + 1 < len(pieces) else "."
            if piece.kind == "removed":
                text = "" if following.startswith(_POINTS) else " "
        far = near is not None and piece.kind == "same" and len(pieces) > 1
        parts.append(_far(text, near or 0, place > 0, place + 1 < len(pieces)) if far else text)
        before = text or "x"
    return join(parts)


def _far(text: str, near: int, follows: bool, precedes: bool) -> Child:
    """Return unchanged text with a mark around its words that are more than `near` words from a change. `follows` is
    True if a change comes before the text, `precedes` if a change comes after the text.
    """
    words = re.findall(r"\S+\s*|^\s+", text)
    start, end = near * follows, len(words) - near * precedes
    if end - start < WORTH_A_MARK:
        return text
    return ["".join(words[:start]), el("span", "".join(words[start:end]), class_="far"), "".join(words[end:])]


def seconds(value: float) -> str:
    """Return seconds as text, such as 0.04 s, 0.3 s, 11 s, 2 min 5 s."""
    if value < 0.095:
        return f"{value:.2f} s"
    if value < 9.95:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole} s" if whole < 90 else f"{whole // 60} min {whole % 60} s"


def left(value: float | None) -> str:
    """Return the time left as text, after a separating dot; "" if it is unknown."""
    if value is None:
        return ""
    whole = max(1, round(value))
    return f" · {whole} s left" if whole < 90 else f" · {round(whole / 60)} min left"


def about(value: float) -> str:
    """Return an estimated time as text, rounded, such as "about 11 s"."""
    if value < 1.5:
        return "about a second"
    return f"about {round(value)} s" if value < 90 else f"about {round(value / 60)} min"


def short_model(name: str, known: Mapping[str, str]) -> str:
    """Return a model's short name: from `known`, or the end of its id. Names joined by " + " are each shortened."""
    parts = without_hashes(name).split(" + ")
    return " + ".join(known.get(part, part.rsplit("/", 1)[-1]) for part in parts)
