// The text stages: which version a person began to edit, undo by key, and prompts of several lines.
(() => {
  "use strict";
  const studio = window.studio;
  const { typed } = window.fields;

  // A card says which version it shows. While somebody types, another page may save a newer one, which the card then
  // shows around the field: what is sent must still name the version that the typing began on.
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (!field.closest?.(".studio .stage") || field.type === "checkbox") return;
    const holder = field.closest("[data-form]") ?? field, version = field.closest(".stage").dataset.version;
    holder.dataset.beganState ??= studio.state;  // of the run's settings and prompts
    if (version) holder.dataset.beganVersion ??= version;
  });

  const isOpen = (holder) => Boolean(holder.closest("[data-editing]"));

  studio.afterPatch.push((root) => {
    for (const holder of root.querySelectorAll("[data-began-version], [data-began-state]")) {
      const fields = holder.matches("[data-form]") ? [...holder.querySelectorAll("input, textarea")] : [holder];
      const editing = holder.matches(".pop") ? isOpen(holder) : fields.some(typed);
      if (!editing) { delete holder.dataset.beganVersion; delete holder.dataset.beganState; }
    }
  });

  document.addEventListener("keydown", (event) => {
    const name = turned(event);
    if (!name || event.target === typedIn || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    if (studio.run) studio.send({ name });
    else if (name === "undo") document.getElementById("said-act")?.click();   // such as a run that was just deleted
  });

  function turned(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return "";
    const key = event.key.toLowerCase();
    if (key === "z") return event.shiftKey ? "redo" : "undo";
    return key === "y" && !event.shiftKey ? "redo" : "";
  }

  // A field that is being typed in has an undo of its own; one that only has the focus has nothing to take back.
  let typedIn = null;
  document.addEventListener("input", (event) => { if (event.target.matches(fields.TYPED_IN)) typedIn = event.target; });
  document.addEventListener("focusout", () => { typedIn = null; });

  // What was refused and is now forced need not be typed again: the field that held it is emptied.
  document.addEventListener("click", (event) => {
    const force = event.target.closest?.(".studio .stage [data-force]");
    for (const field of force?.closest(".stage").querySelectorAll("[data-fresh]") ?? []) field.value = field.server;
  });

  // In a prompt Enter begins a new line; elsewhere it saves (`keys.js`).
  document.addEventListener("keydown", (event) => {
    const lines = event.target.matches?.("[data-lines]");
    if (lines && event.key === "Enter" && !event.ctrlKey && !event.metaKey) event.stopPropagation();
  }, true);
})();
