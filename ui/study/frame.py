"""The frame of the pages that are rendered on the server: document, header with navigation, head of one study."""

from __future__ import annotations

from collections.abc import Sequence

from study.types import Study, StudyState
from ui.theme import ASSETS
from ui.views.markup import Child, Html, el, join
from ui.views.parts import Tone, icon, pill

NAVIGATION = (("explore", "Explore", "/"), ("study", "Study", "/study/"), ("scripts", "Scripts", "/scripts"))
"""The pages of the studio: name, words, address."""
TABS = (
    ("results", "Results", ""),
    ("workers", "Workers", "workers"),
    ("adjudication", "Adjudication", "adjudication"),
    ("run", "Invite and run", "run"),
    ("log", "Log", "log"),
)
"""The pages of a study that has started: name, words, the end of the address."""
STATE_WORDS: dict[StudyState, tuple[str, Tone]] = {
    "draft": ("draft", ""),
    "running": ("running", "ok"),
    "paused": ("paused", "warn"),
    "closed": ("closed", "acc"),
}

# Before the first paint, so that a dark page does not flash in white. The explore page writes the same key.
# And who is quick has pressed a button, or sent a form, before the scripts are there that know what it does: it is done
# again then. A form with an address of its own goes there without a script.
_FIRST = """(() => {
  const chosen = localStorage.getItem("studio-theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  let again = null;
  const press = (event) => {
    const button = event.target.closest("button[type=button]");
    if (button) again = () => button.isConnected && button.click();
  };
  const send = (event) => {
    const form = event.target;
    if (form.hasAttribute("action")) return;
    event.preventDefault();
    again = () => form.requestSubmit();
  };
  document.addEventListener("click", press, true);
  document.addEventListener("submit", send, true);
  document.addEventListener("DOMContentLoaded", () => {
    document.removeEventListener("click", press, true);
    document.removeEventListener("submit", send, true);
    again?.();
  });
})();"""


def document(
    title: str, *body: Child, sheets: Sequence[str] = (), scripts: Sequence[str] = (), assets: str = "/ui/"
) -> str:
    """A whole HTML document: `sheets` and `scripts` are names in `ui/assets`, read after those of every page.

    `assets` is the address under which they are served, "/" at its end.
    """

    def address(name: str) -> str:
        # The stamp makes a browser fetch a file again only when it was changed.
        return f"{assets}{name}?v={int((ASSETS / name).stat().st_mtime)}"

    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} · DILLEMA Studio" if title else "DILLEMA Studio"),
        el("link", rel="icon", href=address("favicon.svg")),
        [el("link", rel="stylesheet", href=address(name)) for name in ("studio.css", "study.css", *sheets)],
        el("script", Html(_FIRST)),
        [el("script", src=address(name), defer=True) for name in ("wire.js", "study.js", *scripts)],
    )
    page = el("body", el("div", join(*body), class_="studio paper"), class_="study-page")
    return f"<!doctype html>\n{el('html', head, page, lang='en')}"


def page(
    title: str,
    *content: Child,
    here: str = "study",
    ends: Child = None,
    signed_in: bool = False,
    sheets: Sequence[str] = (),
    scripts: Sequence[str] = (),
) -> str:
    """A page of the lead as a document: header, then `content` in its main part.

    `here` is a name of NAVIGATION, `ends` stands at the right end of the header; `signed_in` shows a way out.
    """
    return document(title, header(here, ends, signed_in), el("main", join(*content)), sheets=sheets, scripts=scripts)


def header(here: str = "study", ends: Child = None, signed_in: bool = False) -> Html:
    """Name, pages, and the switch of the theme."""
    return el(
        "header",
        el("b", "DILLEMA Studio", class_="name"),
        navigation(here),
        el("span", class_="grow"),
        ends,
        sign_out() if signed_in else None,
        theme_switch(),
        class_="top",
    )


def sign_out(**attributes: str) -> Html:
    """The way out, a POST to /sign-out."""
    leave = el("button", "Sign out", type="submit", class_="btn s q")
    return el("form", leave, method="post", action="/sign-out", id="sign-out", **attributes)


def navigation(here: str, **attributes: str) -> Html:
    """The links to the pages of the studio; `attributes` go to the one of `here`."""
    links = [
        el(
            "a",
            words,
            href=address,
            class_="on" if name == here else None,
            aria_current="page" if name == here else None,
            **(attributes if name == here else {}),
        )
        for name, words, address in NAVIGATION
    ]
    return el("nav", links, aria_label="Pages")


def theme_switch() -> Html:
    """The button for light or dark."""
    return el(
        "button",
        icon("half"),
        type="button",
        class_="btn s q icon-only",
        data_theme_switch=True,
        aria_label="Light or dark",
        title="Light or dark",
    )


def study_address(study_id: str, end: str = "") -> str:
    """The address of a page of a study."""
    return f"/study/{study_id}/{end}"


def study_head(study: Study, tab: str = "", *actions: Child) -> Html:
    """Name, state and rules of a study in a line, `actions` at its end; below it the tabs, once it has started."""
    words, tone = STATE_WORDS[study.state]
    rules = study.rules
    facts: list[Child] = [pill(words, tone, id="state")]
    if study.state != "draft":
        facts.append(
            pill(f"rules v{rules.version}", title="The rules are frozen; every change has a number of its own")
        )
        facts.append(pill(f"{rules.votes} votes an item · consensus {rules.consensus}"))
        facts.append(pill(f"{100 * rules.controls.share:.4g} % controls"))
    tabs = [
        el(
            "a",
            title,
            href=study_address(study.id, end),
            class_="on" if name == tab else None,
            aria_current="page" if name == tab else None,
        )
        for name, title, end in TABS
    ]
    return el(
        "div",
        el("p", el("a", "All studies", href="/study/"), class_="back small"),
        el("div", el("h1", study.name), facts, el("span", class_="grow"), join(*actions), class_="title"),
        el("nav", tabs, class_="tabs", aria_label="Pages of this study") if study.state != "draft" else None,
        class_="study-head",
    )
