// Clicks and changes of fields. Each becomes an action for `studio.send`, or is handled here.
(() => {
  "use strict";
  const studio = window.studio;

  const { send } = studio, { fitHeight, mark, typed } = window.fields;
  const OWN = new Set(["text", "number", "textarea", "range", "select-one"]);   // fields that show their own error
  const UNANSWERED = 20000;   // milliseconds
  const TEXTS = "textarea[data-do], input[data-do]:not([type=checkbox], [type=radio], [type=range])";
  const CONTROL = new Set(["do", "draft", "key", "edit", "form", "own", "server", "fresh", "lines", "control", "beganVersion", "beganState"]);
  // The command of an element: its data attributes are the fields. With it go the version of the stage's value and the
  // state of the run that the person saw, each from the start of the typing.
  function commandOf(element, name) {
    const { beganVersion, beganState } = element.dataset, command = { name };
    const fields = Object.entries(element.dataset).filter(([key]) => !CONTROL.has(key));
    command.fields = Object.fromEntries(fields.map(([key, value]) => [key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]));
    const version = beganVersion ?? element.closest(".stage")?.dataset.version;
    if (version) command.version = Number(version);
    if (beganState) command.state = Number(beganState);
    return command;
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest(
      "[data-go], [data-panel-of], [data-more-of], [data-edit], [data-submit], [data-view-mode], [data-view-case], [data-view-only], [data-toggle-runs], button[data-do]",
    );
    if (!event.target.closest(".pop, [data-edit], textarea.in-place")) closeEditors();
    if (!event.target.closest("#column-runs, [data-toggle-runs]")) document.body.classList.remove("runs-open");
    if (!target || target.disabled || !target.closest(".studio")) return;
    const data = target.dataset;
    if ("go" in data) {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      document.body.classList.remove("runs-open");
      send(data.go === "open" ? { name: "open", fields: { run: data.run } } : { name: "new" });
    } else if ("panelOf" in data) togglePanel(target);
    else if ("moreOf" in data) showMore(target);
    else if ("edit" in data) edit(target.closest(".chip, .line, .add-caption"));
    else if ("submit" in data) submit(target.closest("[data-form]"));
    else if ("viewMode" in data) look({ mode: data.viewMode, follow: false });
    else if ("viewCase" in data) {
      look({ case: Number(data.viewCase), follow: false });
      studio.mark(false);
    }
    else if ("viewOnly" in data) look({ only: data.viewOnly, case: Number(data.first), follow: false });
    else if ("toggleRuns" in data) document.body.classList.toggle("runs-open");
    else pressed(target);
  });

  // Do not send the same action again before it is answered, as after a double click.
  function pressed(button) {
    const command = commandOf(button, button.dataset.do), said = JSON.stringify(command);
    if (button.sent === said) return;
    button.sent = said;
    button.setAttribute("aria-busy", "true");
    command.done = command.refused = command.lost = () => {
      if (button.sent === said) delete button.sent;
      button.removeAttribute("aria-busy");
    };
    send(command);
  }

  patch.on("change", ".studio :is(input, textarea)[data-do]", (field) => save(field));

  // Browsers report no change for text that came back with the page or was unsaved when it was sent.
  document.addEventListener("focusout", (event) => {
    const field = event.target;
    if (studio.fitting || !field.matches(TEXTS) || !field.closest(".studio")) return;
    if (typed(field) && field.sent !== field.value) save(field);
  });

  function save(field) {
    const task = field.closest("[data-task-form]"), said = field.value;
    const command = task ? taskCommand(task) : commandOf(field, field.dataset.do);
    if (!task) command.fields[field.name || "value"] = field.type === "checkbox" ? field.checked : said;
    if (field.type !== "checkbox") {
      field.sent = said;
      command.lost = () => { if (field.sent === said) delete field.sent; };
      command.own = OWN.has(field.type);
      command.refused = (problem) => {
        command.lost();
        if (command.own) studio.refuse(field, problem);
      };
      command.done = () => { studio.accept(field); tryAgain(field); };
    }
    if (field.type === "checkbox" || field.hidden) awaitAnswer(field, command);
    send(command);
  }

  // Another refused field may be right now, such as a lower bound after the upper one was raised.
  function tryAgain(field) {
    for (const words of field.closest(".stage")?.querySelectorAll(".settings .refusal, .sliders .refusal, .fields .refusal") ?? [])
      if (words.of && words.of !== field && typed(words.of)) save(words.of);
  }

  // Until a tick or a brush stroke is answered or given up, replies to earlier actions do not undo it.
  function awaitAnswer(field, command) {
    const until = field.ticked = performance.now() + UNANSWERED, { done, refused, lost } = command;
    const over = (then) => (...told) => { if (field.ticked === until) field.ticked = 0; then?.(...told); };
    Object.assign(command, { done: over(done), refused: over(refused) }, lost && { lost: over(lost) });
  }

  function taskCommand(form) {
    const kind = form.querySelector("[name=kind]:checked").value, label = form.querySelector("[name=label]").value;
    return { name: "task", fields: { kind, label, protected: form.querySelector("[name=protected]").value } };
  }

  function submit(form) {
    const command = commandOf(form, form.dataset.form);
    for (const field of form.querySelectorAll("[name]")) {
      if (field.closest("[data-of]") && !field.checkVisibility()) continue;   // the field belongs to another kind of model
      command.fields[field.name] = field.value;
    }
    command.done = () => {
      for (const field of form.querySelectorAll("[data-fresh]")) field.value = field.server;
      closeEditors();
    };
    // An error names its field, or concerns the typed text.
    command.own = true;
    command.refused = (problem, name, where) => {
      const field = form.querySelector(`[name="${CSS.escape(name || "")}"]`) ?? form.querySelector("[name]");
      if (where === "field") studio.refuse(field, problem);
    };
    send(command);
  }

  function edit(holder) {
    const opening = !("editing" in holder.dataset);
    closeEditors();
    if (!opening) return;
    holder.dataset.editing = "";
    const field = holder.querySelector(".pop input, .pop textarea, textarea.in-place");
    if (field) { fitHeight(field); field.focus(); if (field.setSelectionRange) field.setSelectionRange(field.value.length, field.value.length); }
  }

  function closeEditors() {
    for (const holder of document.querySelectorAll(".studio [data-editing]")) delete holder.dataset.editing;
  }

  function togglePanel(toggle) {
    const card = toggle.closest(".stage"), name = toggle.dataset.panelOf;
    if (card.dataset.open === name) delete card.dataset.open; else card.dataset.open = name;
    markPanels(card);
  }

  // On a small screen, parts of a card are folded. Folding a card also closes what is open in it.
  const FOLDS = ".foldable, .unfolds";
  function showMore(toggle) {
    const card = toggle.closest(FOLDS), open = card.toggleAttribute("data-more");
    if (!open) { delete card.dataset.open; markPanels(card); }
    markMore(card);
    for (const area of card.querySelectorAll("textarea")) fitHeight(area);
  }

  function markMore(card) {
    for (const toggle of card.querySelectorAll("[data-more-of]")) if (toggle.closest(FOLDS) === card) toggle.setAttribute("aria-expanded", String("more" in card.dataset));
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
    if (field.matches("textarea")) { fitHeight(field); mark(field); }
    if (field.matches(".wipe")) field.parentElement.style.setProperty("--cut", `${field.value}%`);
  });

  document.addEventListener("focusout", (event) => {
    const line = event.target.closest?.(".line[data-editing]");
    if (line && event.target.matches("textarea.in-place")) setTimeout(() => { if (!line.contains(document.activeElement)) delete line.dataset.editing; }, 0);
  });

  let resized = null;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => { for (const area of document.querySelectorAll(".studio textarea")) fitHeight(area); });
  });

  studio.afterPatch.push((root) => {
    for (const card of root.querySelectorAll("[data-open]")) markPanels(card);
    for (const card of root.querySelectorAll(FOLDS)) markMore(card);
  });
  Object.assign(studio, { submit, closeEditors, look });
})();
