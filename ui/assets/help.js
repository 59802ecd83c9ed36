// The window of help: "?" opens and closes it, and what has an explanation shows it there. Before the scripts of a page.
(() => {
  "use strict";
  const helpWindow = () => document.getElementById("keys-window");
  // A slider or a tick is no place to type.
  const isTyping = (element) => element.matches?.("textarea, select, input:not([type=range], [type=checkbox], [type=radio]), [contenteditable=true]");

  // What is said of one thing, by its name.
  function explain(name) {
    const shown = helpWindow(), words = document.getElementById(`explains-${name.replaceAll(" ", "-")}`);
    if (!shown.open) shown.showModal();
    words?.scrollIntoView({ block: "center" });
    for (const one of shown.querySelectorAll(".sought")) one.classList.remove("sought");
    words?.classList.add("sought");
  }

  document.addEventListener("click", (event) => {
    const shown = helpWindow(), pressed = (what) => event.target.closest(what);
    if (!shown) return;
    const sought = pressed("[data-explain]");
    if (sought) { event.preventDefault(); explain(sought.dataset.explain); }
    else if (pressed("[data-keys-open]")) shown.showModal();
    // A click beside the window lies on the dialog itself, whose content fills it.
    else if (pressed("[data-keys-close]") || event.target === shown) shown.close();
    else if (pressed("#keys-window [data-scroll-to]")) document.getElementById(pressed("[data-scroll-to]").dataset.scrollTo)?.scrollIntoView({ block: "start" });
  });

  document.addEventListener("keydown", (event) => {
    const shown = helpWindow();
    if (!shown || event.key !== "?" || event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (shown.open) shown.close();
    else if (!document.querySelector("dialog[open]")) { event.preventDefault(); shown.showModal(); }
  });
})();
