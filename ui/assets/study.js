// The lead's pages: the theme, sending, copying. Each page's own doings hang on `window.study`.
(() => {
  "use strict";
  const study = (window.study = {});

  // Sends JSON; gives what came back, or throws an Error with a sentence for a person (and `field`, where it has one).
  study.post = async (path, data = {}) => {
    let reply, said;
    try {
      reply = await fetch(path, { method: "POST", headers: { "content-type": "application/json", "x-studio": "1" }, body: JSON.stringify(data) });
    } catch { throw new Error("No answer from the studio: is it running? Nothing was changed."); }
    try { said = await reply.json(); } catch { throw new Error(`The studio answered with an error (${reply.status}). Please reload the page.`); }
    if (!reply.ok) throw Object.assign(new Error(said.error || `The studio refused it (${reply.status}).`), { field: said.field });
    return said;
  };

  study.copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: the old way */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("[data-theme-switch], [data-copy], [data-copy-from]");
    if (!target) return;
    if ("themeSwitch" in target.dataset) {
      const dark = document.documentElement.classList.toggle("dark");
      localStorage.setItem("studio-theme", dark ? "dark" : "light");
      return;
    }
    const from = target.dataset.copyFrom && document.querySelector(target.dataset.copyFrom);
    const before = target.textContent;
    const done = await study.copy(from ? from.value ?? from.textContent : target.dataset.copy);
    target.textContent = done ? "Copied" : "Please select and copy it yourself";
    setTimeout(() => { target.textContent = before; }, 1600);
  });
})();

// ---- The page on which a new study is named
(() => {
  const form = document.getElementById("new-study-form");
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const tell = (field, text) => { form.querySelector(`[data-problem="${field}"]`).textContent = text; };
    for (const field of ["name", "template", ""]) tell(field, "");
    const button = form.querySelector("#create");
    button.disabled = true;
    try {
      const said = await window.study.post("/study/api/create", { name: form.elements.name.value, template: form.elements.template.value });
      location.assign(said.go);
    } catch (error) { tell(error.field ?? "", error.message); button.disabled = false; }
  });
})();
