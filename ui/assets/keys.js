// The keys of the page.
(() => {
  "use strict";
  const studio = window.studio;
  const { fitHeight, markTyped, submit, closeEditors, look } = studio;

  document.addEventListener("keydown", (event) => {
    const field = event.target.closest?.("input, textarea, select");
    const inside = field?.closest(".studio");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const wanted = document.getElementById(event.shiftKey ? "run-all" : "generate");
      if (inside) field.blur();
      if (wanted && !wanted.disabled) { event.preventDefault(); wanted.click(); }
    } else if (inside && event.key === "Enter" && !event.shiftKey && field.tagName !== "SELECT") {
      const form = field.closest("[data-form]");
      if (form) { event.preventDefault(); submit(form); }
      else if (field.dataset.do) { event.preventDefault(); field.blur(); }
    } else if (event.key === "Escape" && document.body.classList.contains("runs-open")) {
      document.body.classList.remove("runs-open");
    } else if (inside && event.key === "Escape") {
      if (field.server !== undefined) { field.value = field.server; markTyped(field); fitHeight(field); }
      closeEditors(null);
      field.blur();
    } else if (!field && (event.key === "ArrowLeft" || event.key === "ArrowRight") && studio.cases.length > 1) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const shown = studio.cases.indexOf(studio.view.case ?? studio.cases.at(-1));
      // The newest stands first, so right goes back in time.
      const next = studio.cases[shown + (event.key === "ArrowLeft" ? 1 : -1)];
      if (next !== undefined) { event.preventDefault(); look({ case: next }); }
    }
  });
})();
