// Looking at a result and judging it: full window, one to one, the reasons of a rejection, back to its caption.
(() => {
  "use strict";
  const studio = window.studio;
  const byId = (id) => document.getElementById(id);

  function toggle(name) {
    document.body.classList.toggle(name);
    mark();
  }

  function mark() {
    const full = document.body.classList.contains("full-view"), real = document.body.classList.contains("zoom-real");
    byId("tool-full")?.setAttribute("aria-pressed", String(full));
    byId("tool-zoom")?.setAttribute("aria-pressed", String(real));
    byId("reject")?.setAttribute("aria-expanded", String("editing" in (byId("review")?.dataset ?? {})));
    if (full && !byId("viewer")) document.body.classList.remove("full-view");   // such as on the start page
  }

  function askWhy() {
    const review = byId("review");
    if (!byId("reject")) return;
    const opening = !("editing" in review.dataset);
    studio.closeEditors(null);
    if (opening) {
      review.dataset.editing = "";
      review.querySelector(".reason").focus({ preventScroll: true });
      review.querySelector(".why").scrollIntoView({ block: "nearest" });
    }
    mark();
  }

  // Back to the caption that a result was drawn from: its editor opens, or that of a new caption with its words.
  function again(text) {
    document.body.classList.remove("full-view");
    const card = byId("stage-counterfactuals");
    if (!card) { document.querySelector("#column-stages .stage textarea[data-do]")?.focus(); return mark(); }
    const lines = [...card.querySelectorAll(".line")];
    const line = lines.find((held) => [...held.querySelectorAll("[data-text]")].some((part) => part.dataset.text === text));
    const holder = line ?? card.querySelector(".add-caption");
    if (!holder) return;
    if (!("editing" in holder.dataset)) holder.querySelector("button[data-edit]").click();
    const field = holder.querySelector("textarea");
    if (!line) { field.value = text; fields.fitHeight(field); }
    holder.scrollIntoView({ block: "center" });
    field.focus({ preventScroll: true });
    mark();
  }

  // Before the page's own listener, which closes what is open wherever else is clicked.
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-tool], [data-reject], [data-again]");
    if (!target || target.disabled) return;
    event.stopPropagation();
    if ("tool" in target.dataset) toggle(target.dataset.tool === "full" ? "full-view" : "zoom-real");
    else if ("reject" in target.dataset) askWhy();
    else again(target.dataset.again);
  }, true);

  document.addEventListener("click", (event) => {
    if (event.target.closest(".why [data-do]")) studio.closeEditors(null);
    mark();
  });

  studio.afterPatch.push(mark);
  Object.assign(studio, { toggle, askWhy });
})();
