// A model of the person's own: a file uploaded in the form that names a model under test, in Explore and on the page
// Evaluate; or, in Explore, a model trained here. After wire.js.
(() => {
  "use strict";
  const setIn = (form) => (name, value) => {
    const field = form.querySelector(`[name=${name}]`);
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  patch.on("change", "[data-model-file]", async (picker) => {
    if (!picker.files.length) return;
    const form = picker.closest(".model-fields"), file = picker.files[0], note = picker.closest(".with-upload").querySelector("[data-sent]");
    const set = setIn(form);
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
    picker.value = "";   // so that the same file can be sent again after a correction
    picker.disabled = false;
  });

  // The weights of retrainings are requested when the form is opened.
  document.addEventListener("toggle", async ({ target }) => {
    const place = target.open && target.querySelector("[data-trained-of]");
    if (!place) return;
    try { place.innerHTML = (await wire.get("/evaluate/api/trained", { kind: place.dataset.trainedOf })).html; }
    catch { /* the form works without them */ }
  }, true);
  patch.on("click", "[data-trained-of] [data-trained]", async (line) => {
    const form = line.closest("[data-form]"), set = setIn(form), note = line.querySelector("span:last-child");
    line.disabled = true;
    try {
      const said = await wire.post("/evaluate/api/keep-trained", { trained: Number(line.dataset.trained), arm: line.dataset.arm });
      for (const name of ["model", "classes", "mean", "std", "size"]) set(name, "");   // the model's file has these values
      set("source", said.source);
      set("file", said.file);
      form.querySelector("[data-submit]").click();
    } catch (error) { note.textContent = error.message; }
    line.disabled = false;
  });
})();
