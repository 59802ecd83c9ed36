// A model of one's own, sent as a file from the form that names a model under test: in Explore and on the page Evaluate.
// After wire.js.
(() => {
  "use strict";
  document.addEventListener("change", async (event) => {
    const picker = event.target.closest("[data-model-file]");
    if (!picker?.files.length) return;
    const form = picker.closest(".model-fields"), file = picker.files[0], note = picker.closest(".with-upload").querySelector("[data-sent]");
    const set = (name, value) => {
      const field = form.querySelector(`[name=${name}]`);
      field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    picker.disabled = true;
    note.classList.remove("wrong");
    note.textContent = `Sending ${file.name}, ${(file.size / 1e6).toFixed(1)} MB …`;
    try {
      const said = await wire.sendFile(`/evaluate/files/model?${new URLSearchParams({ name: file.name })}`, file);
      set("source", said.source);
      set("file", said.file);
      note.textContent = `${file.name} is in the workspace.`;
    } catch (error) {
      note.classList.add("wrong");
      note.textContent = error.message;
    }
    picker.value = "";   // the same file may be sent again once it was put right
    picker.disabled = false;
  });
})();
