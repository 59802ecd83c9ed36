// Viewing and reviewing a result: full window, one-to-one size, reasons for a rejection, back to its caption.
(() => {
  "use strict";
  const studio = window.studio;
  const byId = (id) => document.getElementById(id);

  const TOOLS = { full: "full-view", zoom: "zoom-real", beside: "alone", open: "all-open" };
  // These view settings are kept for later visits and other runs: CSS classes of the page.
  const KEPT = { alone: "studio-alone", "all-open": "studio-all-open" }, GO_ON = "studio-go-on";
  const dress = () => { for (const [name, key] of Object.entries(KEPT)) document.body.classList.toggle(name, kept.browser.get(key) === "1"); };
  if (document.body) dress(); else document.addEventListener("DOMContentLoaded", dress);

  function toggle(name) {
    const on = document.body.classList.toggle(name);
    if (name in KEPT) kept.browser.set(KEPT[name], on ? "1" : "");
    if (name === "all-open") for (const area of document.querySelectorAll(".studio textarea")) fields.fitHeight(area);
    mark();
  }

  // ---- From one result to the next

  // The verdict is sent together with the next result to show, so that one reply brings both.
  studio.onSend.review = (action) => {
    const next = Number(byId("review")?.dataset.next);
    if (action.fields.verdict === "open" || !byId("go-on-next")?.checked || !next) return;
    lookUntilRefused(action, { case: next, follow: false });
  };

  // The image of a new seed is shown while it is drawn, and afterwards.
  studio.onSend.regenerate = (action) => lookUntilRefused(action, { follow: true });

  function lookUntilRefused(action, view) {
    const before = { ...studio.view }, { refused } = action;
    Object.assign(studio.view, view);
    action.refused = (...told) => { Object.assign(studio.view, before); refused?.(...told); };
  }

  patch.on("change", "#go-on-next", ({ checked }) => kept.browser.set(GO_ON, checked ? "1" : ""));

  function mark() {
    const looks = document.body.classList;
    for (const [tool, name] of Object.entries(TOOLS)) {
      const pressed = looks.contains(name) !== (name === "alone");   // pressed "beside" means that no picture is alone
      byId(`tool-${tool}`)?.setAttribute("aria-pressed", String(pressed));
    }
    byId("reject")?.setAttribute("aria-expanded", String("editing" in (byId("review")?.dataset ?? {})));
    if (!byId("viewer")) looks.remove("full-view");   // such as on the start page
  }

  function askWhy() {
    const review = byId("review");
    if (!byId("reject")) return;
    const opening = !("editing" in review.dataset);
    studio.closeEditors();
    if (opening) {
      review.dataset.editing = "";
      review.querySelector(".reason").focus({ preventScroll: true });
      review.querySelector(".why").scrollIntoView({ block: "nearest" });
    }
    mark();
  }

  // ---- After "Run all": go to the next step, which is the approval, or the stage that failed

  let leading = false;
  studio.onSend["run-all"] = () => { leading = true; };
  // A person who goes elsewhere meanwhile stays there.
  for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) document.addEventListener(name, () => { leading = false; }, { capture: true, passive: true });

  function lead() {
    if (!leading || studio.active) return;
    const next = document.querySelector("#column-stages .stage.is-failed") ?? byId("generate")?.closest(".stage");
    if (!next) return;
    leading = false;
    const { top, bottom } = next.getBoundingClientRect();
    if (top < 0 || bottom > innerHeight) next.scrollIntoView({ block: bottom - top > innerHeight ? "start" : "end" });
  }

  // Go back to the caption of a result: open its editor, or the editor of a new caption with its words.
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

  // Before the page's own listener, which closes open parts on any other click.
  patch.on("click", "[data-tool], [data-reject], [data-again]", (target, event) => {
    event.stopPropagation();
    if ("tool" in target.dataset) toggle(TOOLS[target.dataset.tool]);
    else if ("reject" in target.dataset) askWhy();
    else again(target.dataset.again);
  }, true);

  document.addEventListener("click", (event) => {
    if (event.target.closest(".why [data-do]")) studio.closeEditors();
    mark();
  });

  studio.afterPatch.push(mark, lead, () => {
    const goOn = byId("go-on-next");
    if (goOn) goOn.checked = kept.browser.get(GO_ON) === "1";
  });
  Object.assign(studio, { toggle, askWhy });
})();
