// The retraining section of the page Evaluate. It is loaded after the page, and updated while a model trains. After
// evaluate.js.
(() => {
  "use strict";
  if (!document.getElementById("evaluation") || !document.getElementById("part-retraining")) return;
  const PAUSE = 1000;   // milliseconds between two polls
  const { query } = window.evaluate;
  const place = () => { const { beside, other, ...said } = window.evaluate.place(); return said; };
  const NUMBERS = ["seeds", "updates", "batch", "rate", "split_seed"], CHOICES = ["preset", "augmentation", "unseen"];
  let atWork = false;
  const retraining = (window.retraining = study.following({
    get: () => wire.get(`/evaluate/api/retraining?${query}`),
    show(said) {
      atWork = said.at_work;
      study.fit(said.parts);
    },
    pause: () => (atWork || !retraining.ready ? PAUSE : 0),
    refused: (error) => { document.querySelector("#part-retraining .mut").textContent = error.message; },
  }));
  const send = async (name, data) => {
    study.clear(document.getElementById("part-retraining"));
    try { await retraining.during(async () => retraining.shown(await wire.post(`/evaluate/api/${name}`, { ...place(), ...data }))); }
    catch (error) {
      const field = (error.field ?? "").split(".")[0];
      if (!field || !study.tell(field, error.message)) study.tell("retraining", error.message);
      if (atWork) retraining.look();   // otherwise the form would be drawn again without the error
    }
  };
  function filled(form) {
    const data = { arms: [...form.querySelectorAll("[data-arm]:checked")].map((one) => one.dataset.arm) };
    for (const name of NUMBERS) {
      const typed = form.elements[name].value.trim().replace(",", ".");
      data[name] = typed === "" || Number.isNaN(Number(typed)) ? typed : Number(typed);
    }
    const shift = form.elements.shift?.value;   // present only if there is another test set
    if (shift) data.shift = Number(shift);
    for (const name of CHOICES) data[name] = form.elements[name].value;
    return data;
  }
  // The expected time is updated when the form changes.
  let asked = 0;
  patch.on("input", "#retraining-form", async (form) => {
    const mine = ++asked;
    try {
      const said = await wire.get(`/evaluate/api/retraining-time?${new URLSearchParams({ ...place(), ...filled(form) })}`);
      if (mine === asked) study.fit(said.parts);
    } catch { /* the next change tries again */ }
  });
  study.submits("#retraining-form", (form) => send("begin-retraining", filled(form)));
  patch.on("click", "[data-retrain=cancel]", (button) => {
    button.disabled = true;
    send("cancel-retraining", { work: Number(button.dataset.work) });
  });
  retraining.look();
})();
