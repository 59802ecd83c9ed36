// The set-up of a draft: text is saved while it is typed, one request after the other. Errors are shown beside their
// fields, and wrong text stays, also after a reload. After study-acts.js.
(() => {
  "use strict";
  const study = window.study;
  const form = document.getElementById("setup");
  if (!form) return;
  const KEPT = `study-typed:${form.dataset.study}`, LEFT = `study-left:${form.dataset.study}`;
  const { fitHeight, typed } = window.fields;
  const pill = document.getElementById("saved"), window_ = document.getElementById("window");
  // Requests are numbered and name their page, so that repeated or late ones are not saved.
  let tab = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`, number = 0, sent = null;
  let based = form.dataset.state, dirty = false, flying = null, reshaping = [], timer = null, redraw = "", broken = false;
  const since = new Set();   // fields that were changed after the form was sent

  const quietly = (promise) => promise.catch(() => {});   // the page shows the error already

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

  // ---- Saving: one request at a time with the latest state, and the action of a button with it

  function say(words, tone) { pill.textContent = words; pill.className = `pill ${tone}`; }

  function later(milliseconds) {
    dirty = true;
    if (!broken) say("not saved yet", "warn");
    clearTimeout(timer);
    timer = setTimeout(() => { quietly(save()); }, milliseconds);
  }

  function state() {
    since.clear();
    return { form: collect(), based, tab, number: ++number, page: { plan: planned(), redraw } };
  }
  study.keeps = (field) => since.has(field);

  // One request at a time. Later ones wait, and send the state of the form when their turn comes.
  function send(name, body) {
    sent = { name, body };
    flying = wire.post(study.api(name), body, true);
    return flying;
  }

  // A command saves the form too: "save-draft", or the action of a button.
  async function save(name = "save-draft", what = {}) {
    while (flying) await flying.catch(() => {});
    clearTimeout(timer);
    dirty = false;
    const body = { ...state(), ...what };
    redraw = "";
    say("saving …", "");
    return take(send(name, body), () => { later(3000); return name === "save-draft"; });
  }

  // Other actions that change the draft: the form is sent first.
  async function change(name, data) {
    if (dirty) await save();
    while (flying) await flying.catch(() => {});
    return take(send(name, { ...state(), ...data }));
  }

  async function take(asking, again) {
    try {
      const said = await asking;
      based = said.state;
      broken = false;
      for (const field of form.elements) if (saved(field) && !since.has(field)) field.server = field.value;
      study.fit(said.parts);
      if (said.problems) tellAll(said.problems);
      if (!dirty) say(...(said.unread ? ["saved, except the marked fields", "warn"] : ["saved", "ok"]));
      study.noteDraw();
      return said;
    } catch (error) {
      broken = true;
      say("not saved", "bad");
      pill.title = error.message;
      const quiet = error.message.startsWith("No answer") && again?.();
      if (!quiet && !error.field) study.cannot(error.message);
      throw error;
    } finally { flying = null; }
  }

  study.settled = async () => { if (dirty) await save(); while (flying) await flying.catch(() => {}); };

  function tellAll(problems) {
    for (const place of form.querySelectorAll("[data-problem]")) {
      const name = place.dataset.problem;
      if (name === "draw" || name === "bring") continue;
      place.textContent = problems[name] ?? "";
    }
    const unread = {};
    for (const field of form.elements)
      if (saved(field) && field.classList.contains("number") && problems[field.name]) unread[field.name] = field.value;
    if (Object.keys(unread).length) kept.tab.set(KEPT, JSON.stringify(unread)); else kept.tab.remove(KEPT);
    for (const field of form.elements) if (field.name) field.setAttribute("aria-invalid", problems[field.name] ? "true" : "false");
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (!saved(event.target)) return;
    since.add(event.target);
    if (event.target.matches("textarea")) fitHeight(event.target);
    later(600);
  });
  form.addEventListener("change", (event) => {
    if (!saved(event.target)) return;
    if (event.target.dataset.redraw) { redraw = event.target.dataset.redraw; quietly(save()); } else later(50);
  });
  // A request that is running when the page is left continues, and the latest text is sent after it. Either may be
  // late, lost or refused. The page that comes next finds the text here and sends it once more.
  const leave = () => {
    clearTimeout(timer);
    if (dirty) {
      sent = { name: "save-draft", body: state() };
      dirty = false;
      quietly(wire.post(study.api("save-draft"), sent.body, true));
    } else if (!flying) return;
    kept.tab.remove(KEPT);
    kept.tab.set(LEFT, JSON.stringify(sent), true);
  };
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  let plans = 0;
  patch.on("input", "[data-plan]", patch.rested(300, async () => {
    for (const name of ["valid", "accuracy", "minutes", "width"]) study.tell(`plan.${name}`, "");
    const mine = ++plans;
    try {
      const said = await wire.get(study.api("plan"), planned());
      if (mine === plans) study.fit(said.parts);
    } catch (error) { if (mine === plans && error.field) study.tell(error.field, error.message); }
  }));

  // ---- Buttons

  study.draw = async () => {
    const button = document.getElementById("draw-now");
    button.disabled = true;
    study.tell("draw", "");
    try {
      const { said } = await change("draw-items", study.drawn());
      document.getElementById("items-said")?.replaceChildren(said ?? "");
    } catch (error) { if (error.field) { study.tell("draw", error.message); say("saved", "ok"); broken = false; } }
    button.disabled = false;
  };

  study.takes.bring = async (file, told) => {
    await quietly(study.settled());
    const address = `/study/files/${form.dataset.study}?name=${encodeURIComponent(file.name)}`;
    told.textContent = (await wire.sendFile(address, file)).said ?? "";
    await change("refresh-draft");
  };

  async function show(name, data) {
    try { window_.replaceChildren(patch.nodes((await wire.get(study.api(name), data)).html)); } catch (error) { study.cannot(error.message); return; }
    if (!window_.open) window_.showModal();
  }

  // A place is that of the form as it is shown. Until the form is redrawn, a second click would mean another line, and
  // typed text would land in another line. So these parts accept neither; afterwards the focus goes to the first of the
  // ids that can have it.
  async function reshape(parts, name, what, ids) {
    if (reshaping.length) return;
    const mark = (inert) => { for (const id of parts) document.getElementById(id).inert = inert; };
    reshaping = parts;
    mark(true);
    await quietly(save(name, what));
    reshaping = [];
    mark(false);
    const here = document.activeElement;
    if (here !== document.body && !parts.some((id) => document.getElementById(id).contains(here))) return;
    ids().map((id) => document.getElementById(id)).find((one) => one && !one.disabled)?.focus();
  }
  const nearby = (name, place, otherwise) => [`${name}-${place}`, `${name}-${place - 1}`, otherwise];
  const move = (way, place) => reshape(["part-questions"], "edit-questions", { do: way, place }, () => {
    if (way === "remove") return nearby("question-remove", place, "add-question");
    const to = place + (way === "up" ? -1 : 1);
    return [`question-${way}-${to}`, `question-${way === "up" ? "down" : "up"}-${to}`];
  });

  const known = () => Object.fromEntries([...window_.querySelectorAll("[name^='expected.']")].map((field) => [field.name.slice(9), field.value]));

  const ACTS = "[data-question], [data-template], [data-item], [data-remove-item], [data-remove-group], [data-known], [data-more-items], [data-example-pick], [data-example-add], [data-example-remove]";
  patch.on("click", ACTS, async (target) => {
    const data = target.dataset;
    if ("place" in data && data.question) await move(data.question, Number(data.place));
    else if (data.exampleRemove) await reshape(["part-texts"], "delete-example", { place: Number(data.exampleRemove) }, () => nearby("delete-example", Number(data.exampleRemove), "add-example"));
    else if (data.question) {
      const said = await quietly(save("edit-questions", { do: data.question, place: -1 }));
      if (said && data.question === "add") form.querySelector("[data-question-line]:last-child textarea")?.focus();
    } else if ("template" in data) {
      await reshape(["part-questions", "part-texts"], "take-template", { template: document.getElementsByName("template")[0].value }, () => ["take-template"]);
    } else if (data.item) await show("item", { item: Number(data.item) });
    else if (data.removeItem) { window_.close(); await quietly(change("delete-item", { item: Number(data.removeItem) })); }
    else if ("removeGroup" in data) await quietly(change("delete-sample", { sample: data.removeGroup }));
    else if (data.known) {
      try { await change("mark-item", { item: Number(data.of), kind: data.known, expected: known(), why: window_.querySelector("[name='why']")?.value ?? "" }); window_.close(); }
      catch (error) {
        if (error.field) { say("saved", "ok"); broken = false; for (const place of window_.querySelectorAll("[data-problem='expected']")) place.textContent = error.message; }
      }
    } else if (data.moreItems) {
      const grid = target.parentElement;
      target.disabled = true;
      const said = await quietly(wire.get(study.api("thumbs"), { start: data.moreItems }));
      if (!said) { target.disabled = false; return; }
      target.remove();
      grid.append(...patch.nodes(said.html).firstElementChild.childNodes);
    } else if ("examplePick" in data) await show("examples", {});
    else if (data.exampleAdd) { window_.close(); await quietly(save("add-example", { sha: data.exampleAdd })); }
  });

  // ---- Heights that fit their texts

  const fitAll = (root) => root.querySelectorAll("textarea").forEach(fitHeight);
  study.afterFit.push(fitAll);
  fitAll(form);

  // A quick person has typed before this script had loaded: save that text too.
  if ([...form.elements].some((field) => saved(field) && typed(field))) later(0);

  // Text from before a reload that could not be read comes back.
  try {
    const unread = JSON.parse(kept.tab.get(KEPT) ?? "{}");
    for (const [name, value] of Object.entries(unread)) if (form.elements[name]) form.elements[name].value = value;
    if (Object.keys(unread).length) later(0);
  } catch { /* not our data */ }

  // Show and send the text that was sent when this page was left, unless the page has it already.
  function put(data, wanted = () => true) {
    for (const field of form.elements) {
      if (!saved(field) || typed(field) || !wanted(field.name)) continue;
      const [name, place, part] = field.name.split(".");
      const value = part ? data[name]?.[place]?.[part] : data[name];
      if (value === undefined) continue;
      if ("list" in field.dataset) field.checked = value.includes(field.value);
      else if (field.type === "checkbox") field.checked = value;
      else { field.value = value; if (field.matches("textarea")) fitHeight(field); }
    }
  }
  const left = JSON.parse(kept.tab.get(LEFT) ?? "null");
  kept.tab.remove(LEFT);
  if (left && (left.name !== "save-draft" || JSON.stringify(left.body.form) !== JSON.stringify(collect()))) {
    ({ tab, number } = left.body);
    const missing = left.body.based === form.dataset.state;   // otherwise it is saved, or another window has changed the draft
    if (missing) put(left.body.form);
    say("saving …", "");
    const asking = send(left.name, left.body).then(
      (said) => { put(left.body.form, (name) => said.problems[name]); return said; },
      (error) => { put(left.body.form); throw error; },
    );
    flying = asking;
    quietly(take(asking, () => { later(3000); return true; })).then((said) => { if (said && !missing && said.state !== form.dataset.state) location.reload(); });
  }
  Object.defineProperty(study, "idle", { get: () => !dirty && !flying });
})();
