// The pages of batches. They poll for changes and send the person's actions. After study.js.
(() => {
  "use strict";
  const QUICK = 1000, SLOW = 4000;   // milliseconds between two polls: while a batch is at work, and otherwise
  const page = document.getElementById("batch"), list = document.getElementById("part-list");
  const number = page ? Number(page.dataset.batch) : 0;
  const api = (name) => `/batches/api/${name}`;

  // ---- Polling

  let atWork = false;
  const batches = (window.batches = study.following({
    get: (revision) => wire.get(api(page ? "state" : "list"), page ? { batch: number, revision } : { revision }),
    show(said) {
      study.fit(said.parts);
      atWork = page ? said.at_work : "atWork" in document.getElementById("part-list").dataset;
    },
    pause: () => (page || list ? (atWork ? QUICK : SLOW) : 0),
    rests: () => document.hidden || !(page || list),
  }));
  batches.look();

  // ---- Actions on the page of a batch

  const fieldsOf = (form) => (form ? Object.fromEntries(new FormData(form)) : {});
  study.sends(api, ({ form, dataset }) => ({ batch: number, reason: dataset.reason, ...fieldsOf(form) }), batches);

  // ---- A new batch

  const form = document.getElementById("plan-form");
  if (form) {
    const text = form.elements.plan;
    async function follow(said) {
      while (!said.go) {
        study.fit(said.parts);
        if (!said.active) return;
        await wire.pause(500);
        said = await wire.get(api("planning"), { work: said.work });
      }
      location.assign(wire.at(said.go));
    }
    study.submits("#plan-form", async () => {
      try { await follow(await wire.post(api("plan-batch"), { plan: text.value })); }
      catch (error) { study.refuse(error); document.getElementById("part-planning").replaceChildren(); }
    });
    patch.on("click", "#plan-form [data-stop-planning]", ({ dataset: { stopPlanning: work } }) =>
      wire.post(api("stop-planning"), { work: Number(work) }).catch((error) => study.refuse(error)));
    // Replace the text: at once if nobody has typed, otherwise after a confirmation.
    const ask = document.getElementById("ask-replace"), choices = [...form.querySelectorAll("[data-start]")];
    let given = text.defaultValue, offered = null;
    const chosen = (value) => {
      fields.choose(choices, (one) => one.dataset.start === value);
      document.getElementById("start-words").textContent = choices.find((one) => one.dataset.start === value)?.dataset.words ?? "";
    };
    function put(value) {
      text.value = given = value;
      offered = null;
      ask.hidden = true;
      chosen(value);
      study.clear(form);
      const empty = /^root = "(?=")/m.exec(value);   // a value that the person must fill in
      const at = empty ? empty.index + empty[0].length : 0;
      text.focus();
      text.setSelectionRange(at, at);
      text.scrollTop = 0;
    }
    function offer(value, name) {
      if ([value, given].includes(text.value) || !text.value.trim()) return put(value);
      offered = value;
      ask.hidden = false;   // before its text is set: hidden text is not read aloud
      document.getElementById("ask-words").textContent = `What you have written would be replaced by “${name}”.`;
      document.getElementById("keep").focus();
    }
    for (const one of choices) one.addEventListener("click", () => offer(one.dataset.start, one.textContent));
    document.getElementById("replace").addEventListener("click", () => put(offered));
    document.getElementById("keep").addEventListener("click", () => { ask.hidden = true; text.focus(); });
    const picker = document.getElementById("plan-file");
    async function take() {
      const [file] = picker.files;
      if (file) offer(await file.text(), file.name);
      picker.value = "";   // so that the same file can be chosen again
    }
    picker.addEventListener("change", take);
    if (picker.files.length) take();   // chosen before this script had loaded
    if (text.value !== given) chosen(text.value);   // the browser has restored text from before
  }
  batches.ready = true;
})();
