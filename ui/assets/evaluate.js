// The page Evaluate: a model is looked at, it reads images, and its figures come. After study.js.
(() => {
  "use strict";
  const evaluate = (window.evaluate = { ready: false, busy: 0, atWork: false });
  const QUICK = 500;   // milliseconds between two looks while a model is at work
  const api = (name) => `/evaluate/api/${name}`;
  const head = document.getElementById("evaluation");
  const query = new URLSearchParams(head ? head.dataset.query : location.search);
  const place = () => {
    const said = Object.fromEntries(query);
    for (const name of ["version", "other"]) if (name in said) said[name] = Number(said[name]);
    return said;
  };

  // ---- What is shown

  let timer = null, looks = 0;
  function show(said) {
    const over = evaluate.atWork && !said.at_work, hadReport = document.getElementById("report");
    evaluate.atWork = said.at_work;
    study.fit(said.parts);
    // What stands in the head, and in which order to look, is for this answer.
    if (said.ready && !said.at_work && (over || !hadReport)) location.reload();
  }
  async function look() {
    clearTimeout(timer);
    const mine = ++looks;
    try {
      if (!evaluate.busy) {
        const said = await wire.get(`${api("state")}?${query}`);
        if (mine === looks && !evaluate.busy) show(said);
      }
      document.body.classList.remove("lost");
    } catch (error) {
      document.body.classList.toggle("lost", Boolean(error.lost));
      if (!error.lost) study.tell("", error.message);
    }
    if (mine === looks && evaluate.atWork) timer = setTimeout(look, QUICK);
  }
  // Until work is over. A model that is looked at says nothing on its way.
  async function followed(said) {
    while (said.active) {
      await new Promise((go) => setTimeout(go, QUICK));
      said = { ...said, ...await wire.patient(api("work"), { number: said.work }) };
    }
    return said;
  }
  const work = () => document.getElementById("part-work");
  async function lookAtModel() {
    try { await followed(await wire.post(api("look"), place())); } catch { /* the part says it */ }
    await look();
  }
  // The order in which to look comes after the figures, as it takes longer.
  async function rank() {
    if (!document.querySelector("#part-ranking[data-wanted]")) return;
    try { study.fit((await wire.patient(`${api("ranking")}?${query}`)).parts); }
    catch (error) { document.getElementById("ranking-said").textContent = error.message; }
  }
  // So do the groups of edits and the likeness to originals; while models read for them, the part says how far they are.
  async function compareWithOriginals() {
    try {
      for (let part; (part = document.querySelector("#part-likeness:is([data-wanted], [data-work])")); ) {
        if ("work" in part.dataset) await new Promise((go) => setTimeout(go, QUICK));
        study.fit((await wire.patient(`${api("likeness")}?${query}`)).parts);
      }
    } catch (error) { document.getElementById("likeness-said").textContent = error.message; }
  }
  rank().then(compareWithOriginals);

  // A control set is drawn: how far it is, and then its figures.
  async function watchDrawing() {
    try {
      for (let part; (part = document.querySelector("#control[data-work]")); ) {
        const said = await wire.patient(api("drawing"), { number: part.dataset.work });
        if (!said.active) break;
        study.fit(said.parts);
        await new Promise((go) => setTimeout(go, QUICK));
      }
    } catch { /* nobody knows of it any more: the page says what there is */ }
    location.reload();
  }
  if (document.querySelector("#control[data-work]")) watchDrawing();

  if (head) {
    evaluate.atWork = "atWork" in work().dataset;
    if ("look" in work().dataset) lookAtModel();
    else if (evaluate.atWork) look();
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !evaluate.busy) look(); });
  }

  // ---- What is pressed

  document.addEventListener("click", async (event) => {
    const tab = event.target.closest("[data-tab]");
    if (tab) {
      const box = tab.closest("section");
      for (const one of box.querySelectorAll("[data-tab]")) {
        one.classList.toggle("on", one === tab);
        one.setAttribute("aria-pressed", String(one === tab));
      }
      for (const one of box.querySelectorAll("[data-table]")) one.hidden = one.dataset.table !== tab.dataset.tab;
      return;
    }
    if (event.target.closest("[data-again]")) return void lookAtModel();
    const button = event.target.closest("[data-send]");
    if (!button || !head) return;
    evaluate.busy++;
    looks++;   // what was asked for before it is old
    clearTimeout(timer);
    button.disabled = true;
    study.tell("", "");
    try {
      const data = place();
      if ("work" in button.dataset) data.work = Number(button.dataset.work);
      const said = await wire.post(api(button.dataset.send), data);
      if (said.go) return void location.assign(wire.at(said.go));
      show(said);
    } catch (error) { study.tell("", error.message); }
    finally { button.disabled = false; evaluate.busy--; }
    look();
  });
  // A menu goes when something else is pressed.
  const shut = (but) => { for (const one of document.querySelectorAll("details.menu-of[open]")) if (one !== but) one.removeAttribute("open"); };
  document.addEventListener("click", (event) => shut(event.target.closest("details.menu-of")));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") shut(null); });

  // ---- Another model

  const NAMES = ["source", "model", "file", "classes", "mean", "std", "size", "layout"];
  const form = document.getElementById("model-form");
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = document.getElementById("look"), note = document.getElementById("looking");
    for (const name of ["", ...NAMES]) study.tell(name, "");
    const data = { ...place() };
    delete data.key;   // of a model that was chosen before
    for (const name of NAMES) {
      const field = form.elements[name];
      if (field.checkVisibility()) data[name] = field.value;   // only what this kind of model has
    }
    button.disabled = true;
    note.textContent = "Loading it …";
    await goTo(data);
    note.textContent = "";
    button.disabled = false;
  });
  async function goTo(data) {
    try { location.assign(wire.at((await followed(await wire.post(api("look"), data))).go)); }
    catch (error) { if (!study.tell(error.field ?? "", error.message)) study.tell("", error.message); }
  }
  document.addEventListener("click", async (event) => {
    const trained = event.target.closest("[data-trained]");
    if (!trained) return;
    const note = trained.querySelector("span:last-child"), words = note.textContent;
    trained.disabled = true;
    note.textContent = "Loading it …";
    await goTo({ ...place(), key: "", mapping: "", trained: Number(trained.dataset.trained), arm: trained.dataset.arm });
    note.textContent = words;
    trained.disabled = false;
  });
  evaluate.ready = true;
})();
