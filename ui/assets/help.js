// The help window: "?" opens and closes it, and an element with an explanation shows it there. Menus, and links within
// a page. Before the scripts of a page.
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
    // A press outside a window hits the dialog itself. A window with unsaved text stays open.
    if (event.target.matches("dialog:not(#ask, :has(#dialog-reason))")) event.target.close();
    if (pressed("[data-close-window]")) pressed("dialog").close();
    if (!shown) return;
    const sought = pressed("[data-explain]");
    if (sought) { event.preventDefault(); explain(sought.dataset.explain); }
    else if (pressed("[data-keys-open]")) shown.showModal();
  });
  patch.on("click", "[data-scroll-to]", (target, event) => {
    event.preventDefault();
    document.getElementById(target.dataset.scrollTo)?.scrollIntoView({ block: "start" });
  });

  // Menus and attached windows close on a press elsewhere and by Escape, with what is open in them.
  const menus = () => document.querySelectorAll("details:is(.menu, .menu-of, .cancel)[open]");
  const shut = (menu) => { for (const one of [menu, ...menu.querySelectorAll("details")]) one.open = false; };
  document.addEventListener("click", (event) => {
    for (const menu of menus()) if (!menu.contains(event.target)) shut(menu);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus()) {
      event.stopPropagation();   // Escape closes the innermost open part only
      shut(menu);
      menu.querySelector("summary").focus();
    }
  }, true);

  document.addEventListener("keydown", (event) => {
    const shown = helpWindow();
    if (!shown || event.key !== "?" || event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.(fields.TYPED_IN)) return;
    if (shown.open) shown.close();
    else if (!document.querySelector("dialog[open]")) { event.preventDefault(); shown.showModal(); }
  });
})();
