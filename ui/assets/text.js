// The text stages: the version that a person began to edit, undo by key, and prompts of several lines.
(() => {
  "use strict";
  const studio = window.studio;
  const { typed } = window.fields;

  // A card names the version that it shows. While somebody types, another page may save a newer version, which the card
  // then shows around the field. The action must still name the version from the start of the typing.
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
    else if (name === "undo") document.getElementById("said-act")?.click();   // such as the deletion of a run
  });

  function turned(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return "";
    const key = event.key.toLowerCase();
    if (key === "z") return event.shiftKey ? "redo" : "undo";
    return key === "y" && !event.shiftKey ? "redo" : "";
  }

  // A field in use has an undo of its own. A field that only has the focus has nothing to undo.
  let typedIn = null;
  document.addEventListener("input", (event) => { if (event.target.matches(fields.TYPED_IN)) typedIn = event.target; });
  document.addEventListener("focusout", () => { typedIn = null; });

  // A refused value that is forced now need not be typed again: its field is emptied.
  patch.on("click", ".studio .stage [data-force]", (force) => {
    for (const field of force.closest(".stage").querySelectorAll("[data-fresh]")) field.value = field.server;
  });

  // In a prompt, Enter begins a new line; elsewhere it saves (`keys.js`).
  document.addEventListener("keydown", (event) => {
    const lines = event.target.matches?.("[data-lines]");
    if (lines && event.key === "Enter" && !event.ctrlKey && !event.metaKey) event.stopPropagation();
  }, true);
})();
