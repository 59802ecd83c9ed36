// The page Evaluate: a model is loaded, it predicts images, and its figures are shown. After study.js.
(() => {
  "use strict";
  const QUICK = 500;   // milliseconds between two polls while a model is at work
  const api = (name) => `/evaluate/api/${name}`;
  const head = document.getElementById("evaluation");
  const query = new URLSearchParams(head ? head.dataset.query : location.search);
  const place = () => {
    const said = Object.fromEntries(query);
    for (const name of ["version", "other"]) if (name in said) said[name] = Number(said[name]);
    return said;
  };
  window.evaluate = { query, place };

  // ---- Updates

  let atWork = false;
  const state = study.following({
    get: () => wire.get(`${api("state")}?${query}`),
    show(said) {
      const over = atWork && !said.at_work, hadReport = document.getElementById("report");
      atWork = said.at_work;
      study.fit(said.parts);
      // The header and the ranking belong to the latest figures.
      if (said.ready && !said.at_work && (over || !hadReport)) location.reload();
    },
    pause: () => (atWork ? QUICK : 0),
    rests: () => !head || document.hidden,
    refused: (error) => study.tell("", error.message),
  });
  // Wait until work is over. The loading of a model reports no progress.
  async function followed(said) {
    while (said.active) {
      await wire.pause(QUICK);
      said = { ...said, ...await wire.patient(api("work"), { number: said.work }) };
    }
    return said;
  }
  const work = () => document.getElementById("part-work");
  async function lookAtModel() {
    try { await followed(await wire.post(api("look"), place())); } catch { /* the part shows the error */ }
    await state.look();
  }
  // These parts take longer than the figures. While they are worked on, they show the progress.
  async function follow(name) {
    try {
      for (let part; (part = document.querySelector(`#part-${name}:is([data-wanted], [data-work])`)); ) {
        if ("work" in part.dataset) await wire.pause(QUICK);
        study.fit((await wire.patient(`${api(name)}?${query}`)).parts);
      }
    } catch (error) { document.getElementById(`${name}-said`).textContent = error.message; }
  }
  follow("ranking").then(() => {
    follow("likeness").then(() => follow("factors"));
    follow("focus");
    follow("evidence");
  });

  // A control set is being drawn: show its progress, and then its figures.
  async function watchDrawing() {
    try {
      for (let part; (part = document.querySelector("#control[data-work]")); ) {
        const said = await wire.patient(api("drawing"), { number: part.dataset.work });
        if (!said.active) break;
        study.fit(said.parts);
        await wire.pause(QUICK);
      }
    } catch { /* the work is unknown by now: the page shows what there is */ }
    location.reload();
  }
  if (document.querySelector("#control[data-work]")) watchDrawing();

  if (head) {
    atWork = "atWork" in work().dataset;
    if ("look" in work().dataset) lookAtModel();
    else if (atWork) state.look();
    study.sends(api, ({ dataset: { work } }) => ({ ...place(), ...(work && { work: Number(work) }) }), state);
  }

  // ---- Presses

  patch.on("click", "[data-tab]", (tab) => {
    const box = tab.closest("section");
    fields.choose(box.querySelectorAll("[data-tab]"), (one) => one === tab);
    for (const one of box.querySelectorAll("[data-table]")) one.hidden = one.dataset.table !== tab.dataset.tab;
  });
  patch.on("click", "[data-again]", lookAtModel);

  // ---- Another model

  const NAMES = ["source", "model", "file", "classes", "mean", "std", "size", "layout"];
  study.submits("#model-form", async (form) => {
    const note = document.getElementById("looking");
    study.clear();
    const data = { ...place() };
    delete data.key;   // the key of a model that was chosen before
    for (const name of NAMES) {
      const field = form.elements[name];
      if (field.checkVisibility()) data[name] = field.value;   // only the fields of this kind of model
    }
    note.textContent = "Loading it …";
    await goTo(data);
    note.textContent = "";
  });
  async function goTo(data) {
    try { location.assign(wire.at((await followed(await wire.post(api("look"), data))).go)); }
    catch (error) { study.refuse(error, document.getElementById("wrong-model").closest("section")); }
  }
  patch.on("click", "[data-trained]", async (trained) => {
    const note = trained.querySelector("span:last-child"), words = note.textContent;
    trained.disabled = true;
    note.textContent = "Loading it …";
    await goTo({ ...place(), key: "", mapping: "", trained: Number(trained.dataset.trained), arm: trained.dataset.arm });
    note.textContent = words;
    trained.disabled = false;
  });
})();
