"""The look of every page: Gradio's own pieces in our colours, and the style sheet and script that go with them.

Fonts are those of the system: nothing is fetched from anywhere.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parent / "assets"
FAVICON = ASSETS / "favicon.svg"
STYLE_SHEETS = ("studio.css", "text.css", "files.css", "runs.css", "results.css", "drawing.css")
SCRIPTS = (
    "idiomorph.min.js",
    "wire.js",
    "fields.js",
    "patch.js",
    "studio.js",
    "gestures.js",
    "text.js",
    "files.js",
    "runs.js",
    "results.js",
    "drawing.js",
    "keys.js",
)
"""In the order in which they are read: each builds on those before it."""
BUNDLES = {"explore.css": STYLE_SHEETS, "explore.js": SCRIPTS}
"""What the explore page asks for: two files, since Gradio lets it ask only when half of the way to its first paint is
gone, and fourteen would take turns with Gradio's own."""
SYSTEM_FONTS = ("Inter", "system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> Any:
    """A `gradio.themes.Base`, light and dark, with the tokens of `assets/studio.css`."""
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
    """What goes into the head of the page. The stamps make a browser fetch a file again only when it was changed."""
    return (
        f'<link rel="stylesheet" href="/ui/{_stamped("explore.css")}">'
        f'<script src="/ui/{_stamped("explore.js")}"></script>'
    )


@cache
def bundle(name: str) -> bytes:
    """The files of one of `BUNDLES`, one after the other, as they were when they were first asked for."""
    return b"\n".join((ASSETS / part).read_bytes() for part in BUNDLES[name])


def _stamped(name: str) -> str:
    return f"{name}?v={sha256(bundle(name)).hexdigest()[:12]}"
