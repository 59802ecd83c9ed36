// What a person does with the mouse and in fields: each becomes an action that `studio.send` takes, or stays in here.
(() => {
  "use strict";
  const studio = window.studio;

  const { send, fitHeight, markTyped } = studio;
  const UNANSWERED = 20000;   // milliseconds
  const CONTROL = new Set(["do", "draft", "key", "edit", "form", "own", "server", "fresh", "lines"]);
  // What is said of the element, and which version of its stage's value it was shown with.
  const dataOf = (element) => {
    const said = Object.fromEntries(Object.entries(element.dataset).filter(([name]) => !CONTROL.has(name)));
    const version = element.closest(".stage")?.dataset.version;
    return version ? { version, ...said } : said;
  };

  document.addEventListener("click", (event) => {
    const target = event.target.closest(
      "[data-go], [data-panel-of], [data-edit], [data-submit], [data-view-mode], [data-view-case], [data-theme-switch], [data-toggle-runs], button[data-do]",
    );
    if (!event.target.closest(".pop, [data-edit]")) closeEditors(null);
    if (!event.target.closest("#column-runs, [data-toggle-runs]")) document.body.classList.remove("runs-open");
    if (!target || target.disabled || !target.closest(".studio")) return;
    const data = target.dataset;
    if ("go" in data) {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      document.body.classList.remove("runs-open");
      send(data.go === "open" ? { name: "open", run: data.run } : { name: "new" });
    } else if ("panelOf" in data) togglePanel(target);
    else if ("edit" in data) edit(target.closest(".chip, .line, .add-caption"));
    else if ("submit" in data) submit(target.closest("[data-form]"));
    else if ("viewMode" in data) look({ mode: data.viewMode });
    else if ("viewCase" in data) look({ case: Number(data.viewCase) });
    else if ("themeSwitch" in data) switchTheme();
    else if ("toggleRuns" in data) document.body.classList.toggle("runs-open");
    else send({ name: data.do, ...dataOf(target) });
  });

  document.addEventListener("change", (event) => {
    const field = event.target;
    if (!field.matches("input[data-do], textarea[data-do]") || !field.closest(".studio")) return;
    const name = field.dataset.do;
    if (name === "task") return void send(taskAction(field.closest("[data-task-form]")));
    const action = { name, ...dataOf(field) };
    if (name === "counterfactual-use") action.used = field.checked;
    else if (field.type === "checkbox") action.value = field.checked;
    else action.value = field.value;
    if (field.type === "checkbox") awaitAnswer(field, action);
    send(action);
  });

  // Until a tick is answered, or given up, the replies to what was sent before it do not take it back.
  function awaitAnswer(field, action) {
    const until = field.ticked = performance.now() + UNANSWERED;
    action.done = action.refused = () => { if (field.ticked === until) field.ticked = 0; };
  }

  function taskAction(form) {
    return {
      name: "task",
      kind: form.querySelector("[name=kind]:checked").value,
      label: form.querySelector("[name=label]").value,
      protected: form.querySelector("[name=protected]").value,
    };
  }

  function submit(form) {
    const action = { name: form.dataset.form, ...dataOf(form) };
    for (const field of form.querySelectorAll("[name]")) action[field.name] = field.value;
    action.done = () => {
      for (const field of form.querySelectorAll("[data-fresh]")) { field.value = ""; field.server = ""; }
      closeEditors(null);
    };
    send(action);
  }

  function edit(holder) {
    const opening = !("editing" in holder.dataset);
    closeEditors(null);
    if (!opening) return;
    holder.dataset.editing = "";
    const field = holder.querySelector(".pop input, .pop textarea, textarea.in-place");
    if (field) { fitHeight(field); field.focus(); if (field.setSelectionRange) field.setSelectionRange(field.value.length, field.value.length); }
  }

  function closeEditors(except) {
    for (const holder of document.querySelectorAll(".studio [data-editing]")) if (holder !== except) delete holder.dataset.editing;
  }

  function togglePanel(toggle) {
    const card = toggle.closest(".stage"), name = toggle.dataset.panelOf;
    if (card.dataset.open === name) delete card.dataset.open; else card.dataset.open = name;
    markPanels(card);
  }

  function markPanels(card) {
    for (const panel of card.querySelectorAll(".panel")) panel.classList.toggle("shown", panel.dataset.panel === card.dataset.open);
    for (const toggle of card.querySelectorAll("[data-panel-of]")) toggle.setAttribute("aria-expanded", String(toggle.dataset.panelOf === card.dataset.open));
  }

  function look(view) {
    Object.assign(studio.view, view);
    send({ name: "poll" });
  }

  document.addEventListener("input", (event) => {
    const field = event.target;
    if (!field.closest(".studio")) return;
    if (field.matches("textarea")) { fitHeight(field); markTyped(field); }
    if (field.matches(".wipe")) field.parentElement.style.setProperty("--cut", `${field.value}%`);
  });

  document.addEventListener("focusout", (event) => {
    const line = event.target.closest?.(".line[data-editing]");
    if (line && event.target.matches("textarea.in-place")) setTimeout(() => { if (!line.contains(document.activeElement)) delete line.dataset.editing; }, 0);
  });

  studio.afterPatch.push((root) => { for (const card of root.querySelectorAll("[data-open]")) markPanels(card); });
  Object.assign(studio, { submit, closeEditors, look });

  // ---- Light and dark: the system decides until the person does

  function switchTheme() {
    const dark = document.body.classList.toggle("dark");
    localStorage.setItem("studio-theme", dark ? "dark" : "light");
  }

  function rememberTheme() {
    const chosen = localStorage.getItem("studio-theme");
    if (chosen && !new URLSearchParams(location.search).get("__theme")) document.body.classList.toggle("dark", chosen === "dark");
  }
  function keepTheme() {
    rememberTheme();
    // Gradio sets a theme of its own when it is ready, which on a slow machine is late.
    new MutationObserver(rememberTheme).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }
  if (document.body?.dataset.view) keepTheme(); else window.addEventListener("studio-ready", keepTheme, { once: true });
})();
