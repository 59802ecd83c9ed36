"""Colours of Gradio's components, and the style sheets and scripts of all pages. Fonts are those of the system."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ui.markup import el, join

ASSETS = Path(__file__).resolve().parent / "assets"
FAVICON = ASSETS / "favicon.svg"
STYLE_SHEETS = (
    "studio.css",
    "text.css",
    "files.css",
    "runs.css",
    "results.css",
    "drawing.css",
    "brush.css",
    "compact.css",
)
SHARED = ("kept.js", "idiomorph.min.js", "wire.js", "fields.js", "patch.js", "theme.js", "help.js")
SCRIPTS = (
    *SHARED,
    "studio.js",
    "refusals.js",
    "gestures.js",
    "text.js",
    "files.js",
    "model-form.js",
    "runs.js",
    "results.js",
    "drawing.js",
    "brush.js",
    "keys.js",
)
"""Scripts in loading order. Each may use those before it."""
LEAD = "lead.js"
BUNDLES = {"explore.css": STYLE_SHEETS, "explore.js": SCRIPTS, LEAD: (*SHARED, "study.js")}
"""Names of asset files, by the name of the one file that joins their contents. The Explore page loads `explore.css` and
`explore.js`. All other pages of the lead load `lead.js`. Fewer files make the first paint of a page faster."""
MISSING = "A part of this page did not load, so it does not work. Check the connection, then reload the page."
"""Message on a page if one of its scripts does not load."""
SYSTEM_FONTS = ("Inter", "system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> Any:
    """Return a `gradio.themes.Base` with the colours of `assets/studio.css`, for light and dark."""
    import gradio as gr

    return gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_lg,
        font=SYSTEM_FONTS,
        font_mono=MONO_FONTS,
    ).set(
        body_background_fill="#f6f7f9",
        body_background_fill_dark="#0f141b",
        body_text_color="#16202c",
        body_text_color_dark="#e7edf5",
        body_text_color_subdued="#667487",
        body_text_color_subdued_dark="#8fa0b5",
        block_background_fill="#ffffff",
        block_background_fill_dark="#171e28",
        block_border_color="#e2e7ee",
        block_border_color_dark="#28323f",
        border_color_primary="#e2e7ee",
        border_color_primary_dark="#28323f",
    )


def head() -> str:
    """Return HTML for the head of the Explore page: style sheet, script, and a message if the script fails to load."""
    style, script = asset_address("explore.css"), asset_address("explore.js")
    message = f"<div class='studio'><p class='problem missing' role='alert'>{MISSING}</p></div>"
    failed = f'document.body.insertAdjacentHTML("afterbegin", "{message}")'
    return join(el("link", rel="stylesheet", href=style), el("script", src=script, onerror=failed))


@cache
def bundle(name: str) -> bytes:
    """Return the joined files of a bundle in `BUNDLES`, as they were at the first request."""
    return b"\n".join((ASSETS / part).read_bytes() for part in BUNDLES[name])


def asset_address(name: str, folder: str = "/ui/") -> str:
    """Return the address of a bundle or a file in `ui/assets`. It changes with the file, so browsers fetch it again."""
    if name in BUNDLES:
        return f"{folder}{name}?v={sha256(bundle(name)).hexdigest()[:12]}"
    return f"{folder}{name}?v={int((ASSETS / name).stat().st_mtime)}"
