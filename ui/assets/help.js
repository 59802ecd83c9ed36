// The help window: "?" opens and closes it, and an element with an explanation shows it there. Before the scripts of a
// page.
(() => {
  "use strict";
  const helpWindow = () => document.getElementById("keys-window");

  // Return the explanation with this name.
  function explain(name) {
    const shown = helpWindow(), words = document.getElementById(`explains-${name.replaceAll(" ", "-")}`);
    if (!shown.open) shown.showModal();
    words?.scrollIntoView({ block: "center" });
    for (const one of shown.querySelectorAll(".sought")) one.classList.remove("sought");
    words?.classList.add("sought");
  }

  document.addEventListener("click", (event) => {
    const shown = helpWindow(), pressed = (what) => event.target.closest(what);
    // A press outside a window hits the dialog itself, since its content fills it. A window with unsaved text stays
    // open.
    if (event.target.matches("dialog:not(#ask, :has(#dialog-reason))")) event.target.close();
    if (!shown) return;
    const sought = pressed("[data-explain]");
    if (sought) { event.preventDefault(); explain(sought.dataset.explain); }
    else if (pressed("[data-keys-open]")) shown.showModal();
    else if (pressed("[data-keys-close]")) shown.close();
    else if (pressed("#keys-window [data-scroll-to]")) document.getElementById(pressed("[data-scroll-to]").dataset.scrollTo)?.scrollIntoView({ block: "start" });
  });

  document.addEventListener("keydown", (event) => {
    const shown = helpWindow();
    if (!shown || event.key !== "?" || event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.(fields.TYPED_IN)) return;
    if (shown.open) shown.close();
    else if (!document.querySelector("dialog[open]")) { event.preventDefault(); shown.showModal(); }
  });
})();
