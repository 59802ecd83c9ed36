// The lead's pages: the theme, copying. Each page's own doings hang on `window.study`. After wire.js.
(() => {
  "use strict";
  const study = (window.study = { get: wire.get, post: wire.post });

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

  // How what has the focus is found again in a part that is drawn anew: by its id, its address, or what it unfolds.
  study.way = (one) => {
    const named = (name, value) => `[${name}="${CSS.escape(value)}"]`;
    if (one.id) return named("id", one.id);
    if (one.matches("a[href]")) return `a${named("href", one.getAttribute("href"))}`;
    const folded = one.matches("summary") ? one.parentElement : null;
    if (folded?.id) return `${named("id", folded.id)} > summary`;
    return folded?.dataset.keep ? `${named("data-keep", folded.dataset.keep)} > summary` : "";
  };

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("[data-theme-switch], [data-copy-from]");
    if (!target) return;
    if ("themeSwitch" in target.dataset) {
      const dark = document.documentElement.classList.toggle("dark");
      localStorage.setItem("studio-theme", dark ? "dark" : "light");
      return;
    }
    const from = document.querySelector(target.dataset.copyFrom);
    study.copied(target, await study.copy(from.textContent), from);
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
      const said = await window.study.post("/study/api/create-study", { title: form.elements.name.value, template: form.elements.template.value });
      location.assign(said.go);
    } catch (error) { tell(error.field === "title" ? "name" : error.field ?? "", error.message); button.disabled = false; }
  });
})();
