// The page's side of `ui.explore`: sends what a person does, one batch after the other, and fits the parts that come
// back into the page without touching a field that is being typed in. No rule of the studio is kept here.
(() => {
  "use strict";
  const POLL_BUSY = 400, POLL_IDLE = 4000, LOST = 20000;
  const studio = { run: "", view: { case: null, mode: "result" }, cases: [], active: false, idle: false, lost: false };
  window.studio = studio;
  const parts = {};            // name -> stamp of what is shown
  const queue = [];            // actions that wait for the reply to the ones before
  let trigger = null, flying = null, ticket = 0, pointerDown = false, pollTimer = null, lostTimer = null;

  // ---- Gradio: one component sends and gets the replies, the others hold a part each

  studio.bus = (_element, props, watch, fire) => {
    trigger = fire;
    watch("value", () => { if (props.value) onReply(JSON.parse(props.value)); });
    const wanted = new URLSearchParams(location.search).get("run") ?? localStorage.getItem("studio-run") ?? "";
    send({ name: "open", run: wanted });
  };

  studio.inbox = (_element, props, watch) => {
    watch("value", () => {
      const said = JSON.parse(props.value || "{}");
      if (said.run) send({ name: "open", run: said.run });
      else if (said.problem) tell("start", said.problem);
    });
  };

  studio.part = (element, props, watch) => {
    const root = element.querySelector("[data-part]");
    const show = () => {
      const text = props.value || "";
      const stamp = /^<!--(\w+)-->/.exec(text);
      const fresh = document.createElement("div");
      fresh.innerHTML = stamp ? text.slice(stamp[0].length) : text;
      patchChildren(root, fresh);
      parts[root.dataset.part] = stamp ? stamp[1] : "";
      afterPatch(root);
    };
    watch("value", show);
    show();
  };

  // ---- Sending

  function send(action) {
    if (action) queue.push(action);
    studio.idle = false;
    // Between press and release a field may have been left; what it says must go out before what the button does.
    if (!pointerDown) pump();
  }

  function pump() {
    if (!trigger || flying || !queue.length) return;
    flying = queue.splice(0).map(resolve);
    clearTimeout(pollTimer);
    clearTimeout(lostTimer);
    lostTimer = setTimeout(() => { flying = null; setLost(true); schedule(); }, LOST);
    trigger("click", { do: flying.map(({ done, ...plain }) => plain), run: studio.run, view: studio.view, seen: { ...parts }, ticket: ++ticket });
  }

  const resolve = (action) => (typeof action === "function" ? action() : action);

  function onReply(reply) {
    clearTimeout(lostTimer);
    setLost(false);
    if (reply.ticket !== ticket || !flying) { schedule(); return; }   // too late: it was given up already
    const batch = flying;
    flying = null;
    const moved = reply.run !== studio.run;
    if (!reply.problem) for (const action of batch) if (action.done) action.done();
    if (moved) studio.view = { case: null, mode: "result" };
    // A new image is shown as it comes, unless another one was picked.
    if (reply.cases.length > studio.cases.length && studio.view.case === studio.cases.at(-1)) studio.view.case = null;
    studio.run = reply.run;
    studio.cases = reply.cases;
    studio.active = reply.active;
    document.body.dataset.view = reply.run ? "run" : "start";
    localStorage.setItem("studio-run", reply.run);
    const address = reply.run ? `?run=${reply.run}` : location.pathname;
    if (moved || !new URLSearchParams(location.search).get("run") !== !reply.run) {
      const first = !history.state;
      history[first ? "replaceState" : "pushState"]({ run: reply.run }, "", keepTheme(address));
      if (moved && !first) window.scrollTo(0, 0);
    }
    const onlyPolled = batch.every((action) => action.name === "poll");
    for (const where of ["start", "source"]) {
      const said = reply.problem && reply.where === where ? reply.problem : "";
      if (said || !onlyPolled) tell(where, said);
    }
    // The parts are outputs of the same event: they are fitted in before this line's turn comes.
    setTimeout(() => {
      studio.idle = !queue.length && !flying;
      if (queue.length) pump(); else schedule();
    }, 0);
  }

  function tell(where, problem) {
    const place = document.getElementById(`${where}-problem`);
    if (place) { place.textContent = problem; place.className = problem ? "problem" : ""; }
  }

  const keepTheme = (address) => {
    const theme = new URLSearchParams(location.search).get("__theme");
    return theme ? `${address}${address.includes("?") ? "&" : "?"}__theme=${theme}` : address;
  };

  function schedule() {
    clearTimeout(pollTimer);
    pollTimer = setTimeout(() => {
      if (document.hidden && !studio.active) { schedule(); return; }
      if (!flying && !queue.length) send({ name: "poll" });
    }, studio.active ? POLL_BUSY : POLL_IDLE);
  }

  function setLost(lost) {
    studio.lost = lost;
    document.body.classList.toggle("lost", lost);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && !flying) send({ name: "poll" }); });
  window.addEventListener("popstate", () => {
    send({ name: "open", run: new URLSearchParams(location.search).get("run") || "" });
  });

  // ---- Fitting markup in: nodes stay, so that focus, what is typed, and a press on a button survive

  const OWN = ["style", "data-open", "data-editing", "open"];
  const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || "" : "");
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  function patchChildren(old, fresh) {
    const keyed = new Map();
    for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
    let cursor = old.firstChild;
    for (const want of [...fresh.childNodes]) {
      const key = keyOf(want);
      let have = key ? keyed.get(key) : cursor;
      if (!have || !alike(have, want)) have = null;
      if (!have) { old.insertBefore(want, cursor); born(want); continue; }
      if (have === cursor) cursor = cursor.nextSibling; else old.insertBefore(have, cursor);
      patch(have, want);
    }
    while (cursor) { const next = cursor.nextSibling; cursor.remove(); cursor = next; }
  }

  function patch(old, want) {
    if (old.nodeType !== 1) { if (old.data !== want.data) old.data = want.data; return; }
    if (old.hasAttribute("data-own")) return;
    for (const { name } of [...old.attributes]) if (!want.hasAttribute(name) && !OWN.includes(name)) old.removeAttribute(name);
    for (const { name, value } of want.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    if (old.matches("textarea, input, select")) { patchField(old, want); return; }
    patchChildren(old, want);
  }

  function patchField(old, want) {
    if (old.type === "checkbox" || old.type === "radio") { old.checked = want.hasAttribute("checked"); return; }
    if (old.tagName === "SELECT") { if (document.activeElement !== old) old.value = want.value; return; }
    const server = want.value, before = old.server ?? old.defaultValue;
    const typed = old.value !== before;
    old.server = server;
    if (old.tagName === "TEXTAREA") old.defaultValue = server;
    if (typed && document.activeElement === old) return;
    if (typed && server === before) return;              // refused, or not sent yet: what was typed stays
    if (old.value !== server) old.value = server;
  }

  function born(node) {
    if (node.nodeType !== 1) return;
    const fields = node.matches("textarea, input") ? [node] : [...node.querySelectorAll("textarea, input")];
    for (const field of fields) {
      if (field.type !== "checkbox" && field.type !== "radio") field.server = field.value;
      const draft = field.dataset.draft && sessionStorage.getItem(`draft:${field.dataset.draft}`);
      if (draft) field.value = draft;
    }
  }

  const typed = (field) => field.value !== (field.server ?? field.defaultValue);

  function afterPatch(root) {
    for (const area of root.querySelectorAll("textarea")) { fitHeight(area); markTyped(area); }
    for (const card of root.querySelectorAll("[data-open]")) markPanels(card);
  }

  function fitHeight(area) {
    if (!area.offsetParent) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
  }

  function markTyped(field) {
    if (!field.dataset.draft) return;
    const open = typed(field);
    field.classList.toggle("typed", open);
    if (open) sessionStorage.setItem(`draft:${field.dataset.draft}`, field.value);
    else sessionStorage.removeItem(`draft:${field.dataset.draft}`);
  }

  // ---- What a person does

  const CONTROL = new Set(["do", "draft", "key", "edit", "form", "own", "server", "fresh"]);
  const dataOf = (element) => Object.fromEntries(Object.entries(element.dataset).filter(([name]) => !CONTROL.has(name)));

  document.addEventListener("pointerdown", () => { pointerDown = true; }, true);
  for (const name of ["pointerup", "pointercancel"])
    document.addEventListener(name, () => { setTimeout(() => { pointerDown = false; pump(); }, 0); }, true);

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
    else if ("viewCase" in data) look({ case: Number(data.viewCase), mode: studio.view.mode === "slider" ? "slider" : "result" });
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
    send(action);
  });

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

  document.addEventListener("keydown", (event) => {
    const field = event.target.closest?.("input, textarea, select");
    const inside = field?.closest(".studio");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const wanted = document.getElementById(event.shiftKey ? "run-all" : "generate");
      if (inside) field.blur();
      if (wanted && !wanted.disabled) { event.preventDefault(); wanted.click(); }
    } else if (inside && event.key === "Enter" && !event.shiftKey && field.tagName !== "SELECT") {
      const form = field.closest("[data-form]");
      if (form) { event.preventDefault(); submit(form); }
      else if (field.dataset.do) { event.preventDefault(); field.blur(); }
    } else if (event.key === "Escape" && document.body.classList.contains("runs-open")) {
      document.body.classList.remove("runs-open");
    } else if (inside && event.key === "Escape") {
      if (field.server !== undefined) { field.value = field.server; markTyped(field); fitHeight(field); }
      closeEditors(null);
      field.blur();
    } else if (!field && (event.key === "ArrowLeft" || event.key === "ArrowRight") && studio.cases.length > 1) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const shown = studio.cases.indexOf(studio.view.case ?? studio.cases.at(-1));
      // The newest stands first, so right goes back in time.
      const next = studio.cases[shown + (event.key === "ArrowLeft" ? 1 : -1)];
      if (next !== undefined) { event.preventDefault(); look({ case: next }); }
    }
  });

  // ---- Light and dark: the system decides until the person does

  function switchTheme() {
    const dark = document.body.classList.toggle("dark");
    localStorage.setItem("studio-theme", dark ? "dark" : "light");
  }

  function rememberTheme() {
    const chosen = localStorage.getItem("studio-theme");
    if (chosen && !new URLSearchParams(location.search).get("__theme")) document.body.classList.toggle("dark", chosen === "dark");
  }
  window.addEventListener("studio-ready", () => { rememberTheme(); setTimeout(rememberTheme, 500); });

  const ready = () => { document.body.dataset.view ??= "start"; window.dispatchEvent(new Event("studio-ready")); };
  if (document.body) ready(); else document.addEventListener("DOMContentLoaded", ready);
})();
