// Light and dark, for all pages of the lead: the system decides until the person chooses. Gradio has its theme on the
// body and sets it when it is ready, which is late on a slow machine; other pages have it on the root.
(() => {
  "use strict";
  const KEY = "studio-theme";
  const holder = () => (document.body?.dataset.view ? document.body : document.documentElement);

  // The sign-in page has this script without the functions of the other pages.
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    kept.browser.set(KEY, holder().classList.toggle("dark") ? "dark" : "light");
  });

  function remember() {
    const chosen = kept.browser.get(KEY);
    if (chosen && !new URLSearchParams(location.search).get("__theme")) document.body.classList.toggle("dark", chosen === "dark");
  }
  function keep() {
    remember();
    new MutationObserver(remember).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }
  if (document.body?.dataset.view) keep(); else window.addEventListener("studio-ready", keep, { once: true });
})();
