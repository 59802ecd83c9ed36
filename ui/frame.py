"""The frame of every page of the lead: the header with the pages, and the document of those that the server renders."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from ui.explore.parts import button, here_link, icon
from ui.markup import Child, Html, el, join
from ui.theme import LEAD, MISSING, asset_address

NAVIGATION = (
    ("explore", "Explore", "/"),
    ("curate", "Curate", "/curate/"),
    ("batches", "Batches", "/batches/"),
    ("study", "Study", "/study/"),
    ("evaluate", "Evaluate", "/evaluate/"),
    ("scripts", "Scripts", "/scripts"),
)
"""The pages of the studio: name, words, address."""

# Before the first paint, so that a dark page does not flash in white. The explore page writes the same key.
# And who is quick has pressed buttons and keys, or sent a form, before the scripts are there that know what they do: it
# is done again then, in order. A form with an address of its own goes there without a script; what is typed into a
# field is there already; Enter, the space bar and Tab do what browsers do with them.
# A script that does not load is told at the top of the page.
_FIRST = """(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("studio-theme"); } catch { /* blocked: the system decides */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  const early = [], sent = new Set();
  const press = (event) => {
    const button = event.target.closest("button[type=button]");
    if (!button) return;
    const { detail, shiftKey, ctrlKey, metaKey } = event;
    const same = new MouseEvent("click", { bubbles: true, cancelable: true, detail, shiftKey, ctrlKey, metaKey });
    early.push(() => button.disabled || button.dispatchEvent(same));
  };
  const key = (event) => {
    const { key, code, shiftKey } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || /^(Enter|Tab|Shift| )$/.test(key)) return;
    if (event.target.matches("input, textarea, select")) return;
    const same = new KeyboardEvent("keydown", { bubbles: true, cancelable: true, key, code, shiftKey });
    early.push(() => document.activeElement.dispatchEvent(same));
  };
  const send = (event) => {
    const form = event.target;
    if (form.hasAttribute("action")) return;
    event.preventDefault();
    if (!sent.has(form)) early.push(() => form.requestSubmit());   // once, however often
    sent.add(form);
  };
  const missing = () => {
    if (document.querySelector(".missing")) return;
    const words = document.createElement("p");
    Object.assign(words, { className: "problem missing", role: "alert", textContent: "MISSING_WORDS" });
    document.querySelector(".studio").prepend(words);
  };
  addEventListener("error", ({ target }) => {
    if (!(target instanceof HTMLScriptElement)) return;
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", missing); else missing();
  }, true);
  const heard = { click: press, keydown: key, submit: send };
  for (const name in heard) document.addEventListener(name, heard[name], true);
  document.addEventListener("DOMContentLoaded", () => {
    for (const name in heard) document.removeEventListener(name, heard[name], true);
    for (const again of early) again();
  });
})();""".replace("MISSING_WORDS", MISSING)
_LOST = "The studio does not answer: is it running? It is asked again and again."
_KEEPS_NOTHING = (
    "This browser keeps nothing for this page, because its storage is full or blocked. What you choose or type here "
    "without saving it is gone when you leave the page."
)


def header(here: str, *status: Child, tools: Child = None, **attributes: str) -> Html:
    """Name, pages with `tools` after them, `status`, the way out, and the switch of the theme.

    `here` is a name of NAVIGATION, whose link takes `attributes`. The way out is seen on a page that is "locked".
    """
    return el(
        "header",
        el("b", "DILLEMA Studio", class_="name"),
        _navigation(here, **attributes),
        tools,
        el("span", class_="grow"),
        join(*status),
        _sign_out(),
        theme_switch(),
        el("div", _notices(), class_="notices"),
        class_="top",
    )


def document(
    title: str,
    *body: Child,
    sheets: Sequence[str] = (),
    scripts: Sequence[str] = (),
    assets: str = "/ui/",
    locked: bool = False,
) -> str:
    """A whole HTML document: `sheets` and `scripts` are names in `ui/assets`.

    `assets` is the address under which they are served, "/" at its end; `locked` says that somebody has signed in.
    """
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} · DILLEMA Studio" if title else "DILLEMA Studio"),
        el("link", rel="icon", href=asset_address("favicon.svg", assets)),
        [
            el("link", rel="stylesheet", href=asset_address(name, assets))
            for name in ("studio.css", "study.css", *sheets)
        ],
        el("script", Html(_FIRST)),
        [el("script", src=asset_address(name, assets), defer=True) for name in scripts],
    )
    shown = el("body", el("div", join(*body), class_="studio paper"), class_="study-page")
    return f"<!doctype html>\n{el('html', head, shown, lang='en', class_='locked' if locked else None)}"


def page(
    title: str,
    *content: Child,
    here: str = "study",
    ends: Child = None,
    signed_in: bool = False,
    sheets: Sequence[str] = (),
    scripts: Sequence[str] = (),
) -> str:
    """Return a page of the lead as a document. `here` is a name of NAVIGATION, `ends` the status in the header."""
    return document(
        title,
        el("noscript", el("p", "This page needs JavaScript: please switch it on for it.", class_="problem")),
        header(here, ends),
        el("main", join(*content)),
        sheets=sheets,
        scripts=(LEAD, *scripts),
        locked=signed_in,
    )


def not_there(words: str, signed_in: bool, back: tuple[str, str]) -> str:
    """A page that says why there is none, with a link `back`: its words and its address."""
    link = el("p", el("a", back[0], href=back[1]))
    content = el("section", el("h1", "Not there"), el("p", words), link, class_="card part")
    return page("Not there", content, here="", signed_in=signed_in)


def signed_in(request: Request) -> bool:
    """Whether the lead has signed in, so that pages show a way out: the guard says so."""
    return bool(getattr(request.state, "signed_in", False))


def _navigation(here: str, **attributes: str) -> Html:
    links = [
        here_link(words, address, name == here, current="page", **attributes if name == here else {})
        for name, words, address in NAVIGATION
    ]
    return el("nav", links, aria_label="Pages")


def _notices() -> list[Html]:
    """Notices that scripts show by a class: `lost` of the body, and `keeps-nothing` of the root (`kept.js`)."""
    close = button(icon("cross"), look="s q icon-only", aria_label="Close")
    return [
        el("p", _LOST, id="lost-told", role="alert"),
        el("div", el("span", _KEEPS_NOTHING), close, id="keeps-nothing", role="alert"),
    ]


def _sign_out() -> Html:
    """The way out, a POST to /sign-out."""
    leave = el("button", "Sign out", type="submit", class_="btn s q")
    return el("form", leave, method="post", action="/sign-out", id="sign-out", class_="where-locked")


def theme_switch() -> Html:
    """The button for light or dark."""
    return button(
        icon("half"), look="s q icon-only", data_theme_switch=True, aria_label="Light or dark", title="Light or dark"
    )
