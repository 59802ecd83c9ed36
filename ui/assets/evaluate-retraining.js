// The part of the page Evaluate on retraining: fetched once the page is there, followed while a model is trained.
// After evaluate.js.
(() => {
  "use strict";
  const head = document.getElementById("evaluation");
  if (!head || !document.getElementById("part-retraining")) return;
  const retraining = (window.retraining = { ready: false, atWork: false });
  const PAUSE = 1000;   // milliseconds between two looks
  const query = new URLSearchParams(head.dataset.query);
  const place = () => {
    const said = Object.fromEntries(query);
    if ("version" in said) said.version = Number(said.version);
    delete said.beside;
    delete said.other;
    return said;
  };
  const NUMBERS = ["seeds", "updates", "batch", "rate", "split_seed"], CHOICES = ["preset", "augmentation", "unseen"];
  let timer = null, looks = 0, busy = 0;

  function show(said) {
    retraining.atWork = said.at_work;
    study.fit(said.parts);
    retraining.ready = true;
  }
  async function look() {
    clearTimeout(timer);
    const mine = ++looks;
    try {
      const said = await wire.get(`/evaluate/api/retraining?${query}`);
      if (mine === looks && !busy) show(said);
    } catch (error) {
      if (!error.lost) document.querySelector("#part-retraining .mut").textContent = error.message;
    }
    if (mine === looks && (retraining.atWork || !retraining.ready)) timer = setTimeout(look, PAUSE);
  }
  async function send(name, data) {
    busy++;
    looks++;   // what was asked for before it is old
    clearTimeout(timer);
    for (const one of ["retraining", "arms", "shift", ...NUMBERS, ...CHOICES]) study.tell(one, "");
    try { show(await wire.post(`/evaluate/api/${name}`, { ...place(), ...data })); }
    catch (error) {
      const field = (error.field ?? "").split(".")[0];
      if (!field || !study.tell(field, error.message)) study.tell("retraining", error.message);
    } finally { busy--; }
    if (retraining.atWork) look();
  }
  function filled(form) {
    const data = { arms: [...form.querySelectorAll("[data-arm]:checked")].map((one) => one.dataset.arm) };
    for (const name of NUMBERS) {
      const typed = form.elements[name].value.trim().replace(",", ".");
      data[name] = typed === "" || Number.isNaN(Number(typed)) ? typed : Number(typed);
    }
    const shift = form.elements.shift?.value;   // there where there is another test set
    if (shift) data.shift = Number(shift);
    for (const name of CHOICES) data[name] = form.elements[name].value;
    return data;
  }
  // How long it takes follows what is chosen.
  let asked = 0;
  document.addEventListener("input", async (event) => {
    const form = event.target.closest("#retraining-form"), mine = ++asked;
    if (!form) return;
    try {
      const said = await wire.get(`/evaluate/api/retraining-time?${new URLSearchParams({ ...place(), ...filled(form) })}`);
      if (mine === asked) study.fit(said.parts);
    } catch { /* the next change asks again */ }
  });
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.id !== "retraining-form") return;
    event.preventDefault();
    const data = filled(form);
    const button = document.getElementById("begin-retraining");
    button.disabled = true;
    await send("begin-retraining", data);
    if (button.isConnected) button.disabled = false;
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-retrain=cancel]");
    if (!button) return;
    button.disabled = true;
    send("cancel-retraining", { work: Number(button.dataset.work) });
  });
  look();
})();
