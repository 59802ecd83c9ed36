// A model of one's own: sent as a file from the form that names a model under test, in Explore and on the page Evaluate; or
// trained here, in Explore. After wire.js.
(() => {
  "use strict";
  const setIn = (form) => (name, value) => {
    const field = form.querySelector(`[name=${name}]`);
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("change", async (event) => {
    const picker = event.target.closest("[data-model-file]");
    if (!picker?.files.length) return;
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
    picker.value = "";   // the same file may be sent again once it was put right
    picker.disabled = false;
  });

  // The weights of retrainings are asked for when the form is opened.
  document.addEventListener("toggle", async ({ target }) => {
    const place = target.open && target.querySelector("[data-trained-of]");
    if (!place) return;
    try { place.innerHTML = (await wire.get("/evaluate/api/trained", { kind: place.dataset.trainedOf })).html; }
    catch { /* the form takes all other models without them */ }
  }, true);
  document.addEventListener("click", async (event) => {
    const line = event.target.closest("[data-trained-of] [data-trained]");
    if (!line) return;
    const form = line.closest("[data-form]"), set = setIn(form), note = line.querySelector("span:last-child");
    line.disabled = true;
    try {
      const said = await wire.post("/evaluate/api/keep-trained", { trained: Number(line.dataset.trained), arm: line.dataset.arm });
      for (const name of ["model", "classes", "mean", "std", "size"]) set(name, "");   // its file says them
      set("source", said.source);
      set("file", said.file);
      form.querySelector("[data-submit]").click();
    } catch (error) { note.textContent = error.message; }
    line.disabled = false;
  });
})();
