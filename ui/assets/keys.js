// The keys of the page; `ui/explore/page_frame.toml` lists them for the help window (`help.js`).
(() => {
  "use strict";
  const studio = window.studio;
  const { submit, closeEditors, look, toggle, askWhy } = studio, { fitHeight, mark } = window.fields, { make, button: makeButton } = window.patch;
  const byId = (id) => document.getElementById(id);
  const press = (id) => () => { const button = byId(id); if (button && !button.disabled) button.click(); };

  const KEYS = {
    a: press("accept"),
    r: askWhy,
    u: press("take-back"),
    s: press("regenerate"),
    e: press("edit-caption"),
    f: () => { if (byId("viewer")) toggle("full-view"); },
    z: () => { if (byId("viewer")) toggle("zoom-real"); },
    g: askToGenerate,
    n: press("next-unreviewed"),
    b: () => { if (byId("viewer")) toggle("alone"); },
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
  };

  // A letter is pressed by mistake easily: away from the gate, G asks first, and G again or Enter confirms.
  function askToGenerate() {
    const button = byId("generate"), open = byId("ask-generate");
    if (!button || button.disabled) { open?.close(); return; }
    if (open?.open || document.activeElement?.closest("#stage-generation")) { open?.close(); button.click(); return; }
    const words = `${byId("gate-count").textContent}: generate now?`;
    const asked = open ?? document.body.appendChild(make("dialog", { id: "ask-generate", className: "studio" }));
    asked.ariaLabel = words;
    asked.replaceChildren(make("p", {}, words), make("div", { className: "acts" },
      makeButton("Generate", () => { asked.close(); byId("generate")?.click(); }, { className: "btn p" }), makeButton("Not now", () => asked.close())));
    asked.showModal();
  }

  // The newest result is first, so the right arrow goes back in time.
  function step(by) {
    const shown = Number(document.querySelector(".pictures")?.dataset.case), { cases, strip } = studio;
    const here = strip.indexOf(studio.view.case ?? shown);
    // The filter may hide the shown result; the arrows then start before the strip.
    const next = here < 0 ? strip[0] : strip[here + by];
    if (next !== undefined && cases.includes(next)) look({ case: next, follow: false });
  }

  function digit(number) {
    const reasons = document.querySelectorAll("#review[data-editing] .reason");
    if (reasons.length) reasons[number - 1]?.click();
    else document.querySelector(`.tab[data-digit="${number}"]`)?.click();
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;   // the key accepts or rejects the proposal of an input method
    const field = event.target.closest?.("input, textarea, select");
    const inside = field?.closest(".studio");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const wanted = byId(event.shiftKey ? "run-all" : "generate");
      if (inside) field.blur();
      if (wanted && !wanted.disabled) { event.preventDefault(); if (!event.repeat) wanted.click(); }
    } else if (inside && event.key === "Enter" && !event.shiftKey && field.tagName !== "SELECT") {
      const form = field.closest("[data-form]");
      if (form) { event.preventDefault(); submit(form); }
      else if (field.dataset.do) { event.preventDefault(); field.blur(); }
    } else if (event.key === "Escape") {
      escape(field, inside);
    } else if (!event.target.matches?.(fields.TYPED_IN) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      plain(event, field);
    }
  });

  function plain(event, field) {
    if (event.repeat && !event.key.startsWith("Arrow")) return;
    if (document.querySelector("dialog[open]")) {
      if (event.key.toLowerCase() === "g" && byId("ask-generate")?.open) askToGenerate();
      return;
    }
    if (field && event.key.startsWith("Arrow")) return;   // sliders and checkboxes use the arrows themselves
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act && !/^[1-9]$/.test(event.key)) return;
    event.preventDefault();
    if (act) act(); else digit(Number(event.key));
  }

  // Dismiss a refused change.
  function back(field) {
    studio.accept(field);
    field.value = field.server ?? field.value;
    mark(field);
  }

  // Close the innermost open part first.
  function escape(field, inside) {
    if (document.querySelector("dialog[open]")) return;               // a dialog closes itself
    if (document.body.classList.contains("runs-open")) document.body.classList.remove("runs-open");
    else if (inside || document.querySelector(".studio [data-editing]")) {
      for (const words of document.querySelectorAll(".studio [data-editing] .refusal")) back(words.of);
      if (field && inside) studio.accept(field);
      if (field && field.server !== undefined) { field.value = field.server; mark(field); if (field.matches("textarea")) fitHeight(field); }
      closeEditors();
      field?.blur();
    } else if (document.body.classList.contains("full-view")) toggle("full-view");
  }
})();
