// The lead's pages: parts that come again, copying. Each page's own doings hang on `window.study`. After patch.js.
(() => {
  "use strict";
  const study = (window.study = { afterFit: [], keeps: undefined });

  // Parts by their ids; then a look at each by whoever wants one.
  study.fit = (parts = {}) => {
    for (const part of patch.parts(parts, study.keeps)) for (const hook of study.afterFit) hook(part);
  };

  // What is wrong stands beside its field; "" clears what was said there. Whether there is such a place.
  study.tell = (field, text) => {
    const places = [...document.querySelectorAll("[data-problem]")].filter((one) => one.dataset.problem === field);
    for (const place of places) place.textContent = text;
    return places.length > 0;
  };

  study.copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: the old way */ }
    const focus = document.activeElement, area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);   // all outside a window is out of reach
    area.focus({ preventScroll: true });
    area.select();
    const done = document.activeElement === area && document.execCommand("copy");
    area.remove();
    focus?.focus({ preventScroll: true });
    return done;
  };
  // A button says for a moment that it has copied; or on which text `from` it was asked to, which is marked then.
  study.copied = (button, done, from) => {
    button.dataset.words ??= button.textContent;
    button.textContent = done ? "Copied" : "Selected: copy it now";
    if (done) setTimeout(() => { button.textContent = button.dataset.words; }, 1600);
    else getSelection().selectAllChildren(from);
  };

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("[data-copy-from]");
    if (!target) return;
    const from = document.querySelector(target.dataset.copyFrom);
    study.copied(target, await study.copy(from.textContent), from);
  });
})();

// ---- The page on which a new study is named
(() => {
  const form = document.getElementById("new-study-form");
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { tell } = window.study;
    for (const field of ["name", "template", ""]) tell(field, "");
    const button = form.querySelector("#create");
    button.disabled = true;
    try {
      const said = await wire.post("/study/api/create-study", { title: form.elements.name.value, template: form.elements.template.value });
      location.assign(wire.at(said.go));
    } catch (error) { tell(error.field === "title" ? "name" : error.field ?? "", error.message); button.disabled = false; }
  });
})();

// ---- The list: a study comes back from its file
(() => {
  const field = document.getElementById("restore"), note = document.getElementById("restore-note");
  field?.addEventListener("change", async () => {
    const [file] = field.files;
    if (!file) return;
    field.disabled = true;
    window.study.tell("restore", "");
    note.textContent = `Restoring ${file.name} …`;
    try {
      const { said, go } = await wire.sendFile("/study/restored", file);
      const link = document.createElement("a");
      link.href = wire.at(go);
      link.textContent = "Open it";
      note.replaceChildren(`${said} `, link);
    } catch (error) { note.textContent = ""; window.study.tell("restore", error.message); }
    field.disabled = false;
    field.value = "";   // so that the same file can be chosen again
  });
})();
