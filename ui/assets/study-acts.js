// Shared by the set-up and the page of a running study: the confirmation window, the filter that draws images,
// invitations. After study.js.
(() => {
  "use strict";
  const study = window.study;
  const page = document.querySelector("[data-study]");
  if (!page) return;
  const api = (name) => `/study/api/${encodeURIComponent(page.dataset.study)}/${name}`;

  const { make, button } = window.patch;
  const valueOf = (name) => document.getElementsByName(name)[0]?.value ?? "";
  // The gaps of the sentence and the address of the gallery are parts of one filter.
  study.drawn = () => {
    const standings = valueOf("draw.verdict").split(",").filter(Boolean);
    const models = standings.map((standing) => `model=${encodeURIComponent(`${valueOf("draw.model")}:${standing}`)}`);
    const others = valueOf("draw.filter").trim().replace(/^[^?]*[?]/, "");
    const parts = ["reviewed", "kind", "recipe"].map((gap) => valueOf(`draw.${gap}`)).concat(models, others);
    return { filter: parts.filter(Boolean).join("&"), how: valueOf("draw.how"), count: valueOf("draw.count"), group: valueOf("draw.group") };
  };
  study.api = api;

  // ---- Confirmation

  let asking = false;

  // A double click asks only once: a second question would replace the first.
  async function ask(act) {
    if (asking) return;
    asking = true;
    try { await before(act); } finally { asking = false; }
  }

  // The values of the page that a command needs, and the places for its errors.
  const taken = {
    "add-items": () => study.drawn(),
    "make-codes": () => ({ codes: valueOf("codes") }),
    "ask-for-votes": () => ({ votes: valueOf("more.votes"), consensus: valueOf("more.consensus") }),
    "set-panel": () => Object.fromEntries(["parameter", "code", "address", "questions"].map((name) => [name, valueOf(name)])),
    "enrol-workers": () => ({ workers: [...document.querySelectorAll("[name='known-worker']:checked")].map((box) => box.value) }),
  };
  const placeOf = (field) => ({ votes: "more.votes", consensus: "more.consensus" })[field] ?? (["filter", "how", "count", "group"].includes(field) ? "draw" : field);

  async function before(act) {
    const data = taken[act]?.() ?? {};
    for (const field of ["draw", "codes", "workers", "more.votes", "more.consensus", "parameter", "code", "address", "questions"]) study.tell(field, "");
    let told;
    try {
      await study.settled?.();
      told = await wire.post(api(`before/${act}`), data);
    } catch (error) {
      if (!(error.field && study.tell(placeOf(error.field), error.message))) refuse(error.message);
      return;
    }
    // Codes cannot be shown again, and each of these actions redraws the page without them.
    const codesGo = document.getElementById("codes-table") ? ["The codes on this page are not shown again: print or copy them first."] : [];
    const list = make("ul", {}, ...[...told.words, ...codesGo].map((words) => make("li", {}, words)));
    await study.ask({ title: told.title, content: [list], yes: told.button, bad: told.bad, act: async () => {
      const done = await wire.post(api(act), data);
      if (done.go) location.assign(wire.at(done.go));
      else if (done.reload) location.reload();
      else { study.fit(done.parts); document.getElementById("part-codes")?.scrollIntoView({ block: "nearest" }); }
    } });
  }

  const refuse = (text) => study.ask({ title: "This cannot be done", content: [make("p", {}, text)], no: "Close" });
  study.cannot = refuse;

  // ---- Drawing: the number of matching images is shown while the filter is typed

  const PATIENCE = 600000;
  let ticket = 0, asked = 0;
  // Images that the model under test has not read: it reads them on request, and the page polls until it is done.
  function modelPart(unread) {
    if (asked && Date.now() - asked < PATIENCE) { setTimeout(study.noteDraw, 4000); return [`The model is reading these images: ${unread} to go.`]; }
    return [button("Let the model read them", async (event) => {
      event.currentTarget.disabled = true;
      try { await wire.post(api("ask-model"), study.drawn()); asked = Date.now(); study.noteDraw(); }
      catch (error) { study.tell("draw", error.message); }
    }, { className: "btn s", id: "ask-model" })];
  }

  study.noteDraw = patch.rested(300, async () => {
    const mine = ++ticket;
    if (!document.getElementById("draw-note")) return;
    try {
      const said = await wire.post(api("describe-filter"), study.drawn());
      const note = document.getElementById("draw-note");   // the note may be in a new part by now
      if (mine !== ticket || !note) return;
      study.tell("draw", "");
      note.replaceChildren(said.note);
      if (said.unread) note.append(" ", ...modelPart(said.unread));
      else asked = 0;
    } catch (error) {
      if (mine !== ticket) return;
      document.getElementById("draw-note")?.replaceChildren();
      study.tell("draw", error.message);
    }
  });
  for (const name of ["input", "change"]) patch.on(name, "[data-draw]", study.noteDraw);

  // ---- Clicks

  patch.on("click", "[data-act], [data-draw-now], [data-print], [data-copy-table], [data-go-to], [data-like]", async (target) => {
    const data = target.dataset;
    if (data.act) await ask(data.act);
    else if ("drawNow" in data) { if (study.draw) await study.draw(); else await ask("add-items"); }
    else if (data.like) {
      target.disabled = true;
      try { location.assign(wire.at((await wire.post(`/study/api/${encodeURIComponent(data.like)}/copy-rules`, { images: "images" in data })).go)); }
      catch (error) { refuse(error.message); target.disabled = false; }
    } else if ("print" in data) print();
    else if (data.copyTable) {
      const table = document.querySelector(data.copyTable);
      const lines = [...table.tBodies[0].rows].map((line) => [...line.cells].map((cell) => cell.textContent.trim()).join("\t"));
      study.copied(target, await study.copy(lines.join("\n")), table.tBodies[0]);
    } else if (data.goTo) {
      const place = document.getElementById(`f-${data.goTo.replaceAll(".", "-")}`) ?? document.querySelector(`[data-problem="${CSS.escape(data.goTo)}"]`);
      place?.closest("details")?.setAttribute("open", "");
      place?.scrollIntoView({ block: "center", behavior: "smooth" });
      place?.focus?.({ preventScroll: true });
    }
  });

  // ---- Addresses for annotators: those by which this browser reaches the studio

  function tellAddresses() {
    for (const place of document.querySelectorAll("[data-annotate]")) {
      place.textContent = `${location.origin}${wire.at("/annotate/")}${place.dataset.annotate}`;
      place.hidden = false;
    }
    const here = document.getElementById("here-only");
    if (here) here.hidden = !/^(localhost|127\.|\[::1\])/.test(location.host);
  }

  // ---- Votes that arrive while the page is open

  const EVERY = 5000;   // milliseconds
  if ("watch" in page.dataset) {
    const votes = study.following({ get: (revision) => wire.get(api("progress"), { revision }), show: (said) => study.fit(said.parts), pause: () => EVERY });
    setTimeout(votes.look, EVERY);
  }

  study.afterFit.push(tellAddresses);
  tellAddresses();
  study.noteDraw();
})();
