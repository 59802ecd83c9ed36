// The set-up of a draft: what is typed is saved as it is typed, one request after the other; what is wrong is told
// beside its field and stays as it was typed, also over a reload. After study-acts.js.
(() => {
  "use strict";
  const study = window.study;
  const form = document.getElementById("setup");
  if (!form) return;
  const KEPT = `study-typed:${form.dataset.study}`;
  const pill = document.getElementById("saved"), window_ = document.getElementById("window");
  let changed = form.dataset.changed, dirty = false, flying = null, timer = null, redraw = "", since = {}, broken = false;

  const quietly = (promise) => promise.catch(() => {});   // told on the page already

  // ---- The form as data

  const saved = (field) => field.name && !("noSave" in field.dataset);

  function collect() {
    const data = { questions: [], examples: [] };
    for (const field of form.elements) {
      if (!saved(field)) continue;
      const [name, place, part] = field.name.split(".");
      let holder = data, key = name;
      if (part) { holder = data[name][place] ??= {}; key = part; }
      if ("list" in field.dataset) { holder[key] ??= []; if (field.checked) holder[key].push(field.value); }
      else holder[key] = field.type === "checkbox" ? field.checked : field.value;
    }
    return data;
  }

  const planned = () => Object.fromEntries(["valid", "accuracy", "minutes", "width"].map((name) => [name, document.getElementsByName(`plan.${name}`)[0]?.value ?? ""]));

  // ---- Saving: one at a time, the latest state wins; a button's doing goes with it

  function say(words, tone) { pill.textContent = words; pill.className = `pill ${tone}`; }

  function later(milliseconds) {
    dirty = true;
    if (!broken) say("not saved yet", "warn");
    clearTimeout(timer);
    timer = setTimeout(() => { quietly(save()); }, milliseconds);
  }

  async function save(what = {}) {
    while (flying) await flying.catch(() => {});
    clearTimeout(timer);
    dirty = false;
    since = {};
    const body = { form: collect(), plan: planned(), based: changed, redraw, ...what };
    redraw = "";
    say("saving …", "");
    flying = study.post(study.api("save"), body);
    return take(flying, () => later(3000));
  }

  // Other doings of the page, which change the draft as well: what was typed goes first.
  async function change(name, data) {
    if (dirty) await save();
    while (flying) await flying.catch(() => {});
    flying = study.post(study.api(name), { ...data, form: collect(), plan: planned(), based: changed });
    return take(flying);
  }

  async function take(asking, again) {
    try {
      const said = await asking;
      changed = said.changed;
      broken = false;
      study.fit(said.parts);
      retype();
      if (said.problems) tellAll(said.problems);
      if (!dirty) say(...(said.unread ? ["saved, but for what is marked", "warn"] : ["saved", "ok"]));
      study.noteDraw();
      return said;
    } catch (error) {
      broken = true;
      say("not saved", "bad");
      pill.title = error.message;
      if (error.message.startsWith("No answer") && again) again();
      else if (!error.field) study.refuse(error.message);
      throw error;
    } finally { flying = null; }
  }

  study.settled = async () => { if (dirty) await save(); while (flying) await flying.catch(() => {}); };

  // What was typed while a part was on its way here is put into the part that replaced it.
  function retype() {
    for (const [name, value] of Object.entries(since)) {
      const field = form.elements[name];
      if (field && "value" in field && field.type !== "checkbox" && field.value !== value) field.value = value;
    }
  }

  function tellAll(problems) {
    for (const place of form.querySelectorAll("[data-problem]")) {
      const name = place.dataset.problem;
      if (name === "draw" || name === "bring") continue;
      place.textContent = problems[name] ?? "";
    }
    const typed = {};
    for (const field of form.elements)
      if (saved(field) && field.classList.contains("number") && problems[field.name]) typed[field.name] = field.value;
    if (Object.keys(typed).length) sessionStorage.setItem(KEPT, JSON.stringify(typed)); else sessionStorage.removeItem(KEPT);
    for (const field of form.elements) if (field.name) field.setAttribute("aria-invalid", problems[field.name] ? "true" : "false");
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (!saved(event.target)) return;
    if (event.target.type !== "checkbox") since[event.target.name] = event.target.value;
    fit(event.target);
    later(600);
  });
  form.addEventListener("change", (event) => {
    if (event.target.id === "bring") { bring(event.target); return; }
    if (!saved(event.target)) return;
    if (event.target.dataset.redraw) { redraw = event.target.dataset.redraw; quietly(save()); } else later(50);
  });
  const leave = () => {
    if (!dirty) return;
    dirty = false;
    clearTimeout(timer);
    fetch(study.api("save"), { method: "POST", keepalive: true, headers: { "content-type": "application/json", "x-studio": "1" }, body: JSON.stringify({ form: collect(), based: flying ? undefined : changed }) });
  };
  addEventListener("pagehide", leave);

  document.addEventListener("input", async (event) => {
    if (!event.target.closest("[data-plan]")) return;
    clearTimeout(planning);
    planning = setTimeout(async () => {
      for (const name of ["valid", "accuracy", "minutes", "width"]) study.tell(`plan.${name}`, "");
      try { study.fit((await study.post(study.api("plan"), { plan: planned() })).parts); }
      catch (error) { if (error.field) study.tell(error.field, error.message); }
    }, 300);
  });
  let planning = null;

  // ---- Buttons

  study.draw = async () => {
    const button = document.getElementById("draw-now");
    button.disabled = true;
    study.tell("draw", "");
    try { note((await change("draw", { draw: study.drawn() })).said); }
    catch (error) { if (error.field) { study.tell("draw", error.message); say("saved", "ok"); broken = false; } }
    button.disabled = false;
  };

  function note(text) {
    const place = document.getElementById("items-said");
    if (place) place.textContent = text ?? "";
  }

  async function bring(field) {
    const file = field.files[0];
    if (!file) return;
    const told = document.getElementById("bring-note");
    study.tell("bring", "");
    told.textContent = `Sending ${file.name} …`;
    await study.settled().catch(() => {});
    try {
      const reply = await fetch(`${study.api("files")}?name=${encodeURIComponent(file.name)}`, { method: "POST", headers: { "x-studio": "1", "content-type": "application/octet-stream" }, body: file });
      const said = await reply.json();
      if (!reply.ok) throw new Error(said.error);
      told.textContent = said.said ?? "";
      flying = study.post(study.api("refresh"), { form: collect(), plan: planned() });
      await take(flying);
    } catch (error) {
      told.textContent = "";
      study.tell("bring", error instanceof TypeError ? "No answer from the studio: is it running? Nothing was taken." : error.message);
    }
    field.value = "";
  }

  async function show(name, data) {
    try { window_.innerHTML = (await study.post(study.api(name), data)).html; } catch (error) { study.refuse(error.message); return; }
    if (!window_.open) window_.showModal();
  }

  const known = () => Object.fromEntries([...window_.querySelectorAll("[name^='expected.']")].map((field) => [field.name.slice(9), field.value]));

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("[data-question], [data-template], [data-item], [data-remove-item], [data-remove-group], [data-known], [data-more-items], [data-example-pick], [data-example-add], [data-example-remove]");
    if (!target) return;
    const data = target.dataset;
    if (data.question) {
      const said = await quietly(save({ act: "question", do: data.question, place: Number(data.place ?? -1) }));
      if (said && data.question === "add") form.querySelector("[data-question-line]:last-child textarea")?.focus();
    } else if ("template" in data) {
      await quietly(save({ act: "template", template: document.getElementsByName("template")[0].value }));
    } else if (data.item) await show("window", { item: Number(data.item) });
    else if (data.removeItem) { window_.close(); await quietly(change("remove", { item: Number(data.removeItem) })); }
    else if ("removeGroup" in data) await quietly(change("remove", { group: data.removeGroup }));
    else if (data.known) {
      try { await change("known", { item: Number(data.of), kind: data.known, expected: known() }); window_.close(); }
      catch (error) {
        if (error.field) { say("saved", "ok"); broken = false; for (const place of window_.querySelectorAll("[data-problem='known']")) place.textContent = error.message; }
      }
    } else if (data.moreItems) {
      const grid = target.parentElement;
      const said = await quietly(study.post(study.api("more"), { from: Number(data.moreItems) }));
      if (!said) return;
      const holder = document.createElement("template");
      holder.innerHTML = said.html;
      target.remove();
      grid.append(...holder.content.firstElementChild.childNodes);
    } else if ("examplePick" in data) await show("examples", {});
    else if (data.exampleAdd) { window_.close(); await quietly(save({ act: "example-add", sha: data.exampleAdd })); }
    else if (data.exampleRemove) await quietly(save({ act: "example-remove", place: Number(data.exampleRemove) }));
  });

  // ---- Heights that fit their texts

  const fit = (area) => {
    if (area.tagName !== "TEXTAREA") return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
  };
  study.afterFit = (root) => root.querySelectorAll("textarea").forEach(fit);
  study.afterFit(form);

  // What was typed before a reload and could not be read comes back as it was.
  try {
    const typed = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
    for (const [name, value] of Object.entries(typed)) if (form.elements[name]) form.elements[name].value = value;
    if (Object.keys(typed).length) later(0);
  } catch { /* nothing of ours */ }
  Object.defineProperty(study, "idle", { get: () => !dirty && !flying });
})();
