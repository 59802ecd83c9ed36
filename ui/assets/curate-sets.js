// The pages of test sets: windows and forms, the selection in a draft, long work, an enlarged image. After study.js.
// After each action the page fetches itself again and shows the changes.
(() => {
  "use strict";
  const main = document.querySelector("main.curate.sets");
  const page = () => document.getElementById("set");
  if (!main) return;
  const sets = (window.sets = { picked: new Set(), busy: 0 });
  const api = (name) => `/curate/api/${name}`;
  const { make, button: makeButton } = window.patch;

  // ---- Messages and errors

  const said = main.appendChild(make("p", { id: "set-said", role: "status" }));
  // After the message comes a button or a link for the next step.
  const say = (words, bad = false, act = null) => {
    said.replaceChildren(words, ...(act ? [" ", act] : []));
    said.classList.toggle("bad", bad);
    said.dataset.number = String(Number(said.dataset.number ?? 0) + 1);
  };

  const refuse = (error, place) => { if (!study.refuse(error, place)) say(error.message, true); };

  // ---- The current page

  let asked = 0;
  sets.refresh = async () => {
    const mine = ++asked;
    let reply, text;
    try { reply = await fetch(location.href, { cache: "no-store" }); text = await reply.text(); } catch { return false; }
    if (mine !== asked || !page()) return true;
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("set");
    if (!reply.ok || !fresh) { location.assign(wire.at("/curate/sets")); return true; }   // the set is gone, or the person is signed out
    // Update an open window too, but keep typed text and errors in it.
    const refused = [...page().querySelectorAll("dialog[open] [data-problem]")].map((one) => [one, one.textContent]);
    patch(page(), fresh.innerHTML, (field) => field.closest("dialog[open]") !== null);
    for (const [place, words] of refused) if (words) place.textContent = words;
    showPicked();
    watchAll();
    return true;
  };

  // Follow the result of a command: go to another page, or update this one.
  let finished = 0, spoken = 0;
  async function done(reply) {
    if (reply.go) { location.assign(wire.at(reply.go)); return; }
    const mine = ++finished, fresh = await sets.refresh();
    const words = [reply.said, fresh ? "" : "The studio does not answer now: reload the page to see how it is."].filter(Boolean);
    if (!words.length || mine < spoken) return;   // or there is a later message already
    spoken = mine;
    say(words.join(" "), !fresh, reply.undo ? undoButton(reply.undo) : reply.open ? make("a", { href: wire.at(reply.open.address) }, reply.open.words) : null);
  }
  const undoButton = ({ name, fields }) => makeButton("Undo", (event) => {
    event.currentTarget.disabled = true;
    send(name, { ...about(), ...fields }, said);
  }, { className: "btn s", id: "undo-removal" });

  // An action waits for the action before it, so that actions are saved in their order.
  let before = Promise.resolve();
  function post(name, data) {
    const reply = before.then(() => wire.post(api(name), data));
    before = reply.catch(() => {});
    return reply;
  }

  async function send(name, data, place) {
    sets.busy++;
    study.clear(place);
    try { await done(await post(name, data)); return true; } catch (error) { refuse(error, place); return false; } finally { sets.busy--; }
  }

  // ---- Forms and windows

  const open = (name) => {
    const window_ = document.getElementById(name);
    study.clear(window_);
    window_.showModal();
    if (name === "split") preview();
  };
  const about = () => ({ test_set: page().dataset.set });
  const LONG = new Set(["split-test-set", "release-test-set"]);
  const fieldsOf = (form) => {
    const data = {};
    for (const field of form.elements) {
      if (!field.name || (field.type === "radio" && !field.checked)) continue;
      data[field.name] = field.type === "checkbox" ? field.checked : field.value;
    }
    return data;
  };

  // The result that a split would have, updated while its shares are typed.
  let previewed = 0;
  async function preview() {
    const mine = ++previewed, form = document.querySelector("#split form"), place = form.querySelector("[data-preview]");
    let words;
    try { ({ words } = await wire.get(api("set-split"), { ...about(), ...fieldsOf(form) })); } catch (error) { words = error.message; }
    if (mine === previewed) place.textContent = words;
  }
  patch.on("input", "#split form", patch.rested(150, preview));

  study.submits("form[data-send]", async (form) => {
    const name = form.dataset.send, fields = fieldsOf(form);
    if (name === "create-test-set") await send(name, fields, form);
    else if (LONG.has(name)) await begin({ kind: name, ...about(), ...fields }, form);
    else if (name === "export") await makeExport(fields, form);
    else {
      const images = name === "relabel-in-test-set" ? { images: chosen() } : {};
      if (await send(name, { ...about(), ...fields, ...images }, form)) form.closest("dialog")?.close();
    }
  });

  // ---- Long work

  const goesOn = ({ state }) => state === "waiting" || state === "running";
  function wordsOf({ state, done, total, left }) {
    if (state === "waiting") return "Waiting for earlier work";
    return total ? `${done.toLocaleString("en")} of ${total.toLocaleString("en")}${left}` : "Working";
  }

  // Follow work to its end. Returns its last state, or null if it was cancelled. Throws its error.
  async function follow(told, place) {
    const cancelled = () => wire.post(api("set-cancel"), { number: told.work }).catch(() => {});
    const stop = makeButton("Cancel", cancelled, { className: "btn s" });
    while (goesOn(told)) {
      study.progress(place, wordsOf(told), told.total ? told.done / told.total : null, stop);
      await wire.pause(400);
      told = await wire.patient(api("set-work"), { work: told.work }, (words) => place.firstChild?.replaceChildren(words));
    }
    place.hidden = true;
    place.replaceChildren();
    if (told.state === "failed") throw Object.assign(new Error(told.error), { field: told.field });
    return told.state === "done" ? told : null;
  }

  async function begin(data, form) {
    sets.busy++;
    study.clear(form);
    const place = form.querySelector(".working");
    try {
      const told = await follow(await post("set-work", data), place);
      if (told) { form.closest("dialog").close(); await done(told); } else await sets.refresh();
    } catch (error) { place.hidden = true; refuse(error, form); await sets.refresh(); } finally { sets.busy--; }
  }

  async function verify(button) {
    const place = document.getElementById("part-verify");
    button.disabled = true;
    sets.busy++;
    try {
      const line = make("div", { className: "working" });
      place.replaceChildren(line);
      const told = await follow(await post("set-work", { kind: "verify-test-set", version: page().dataset.version }), line);
      place.replaceChildren(...(told ? patch.nodes(told.html).childNodes : []));
    } catch (error) { place.replaceChildren(make("p", { className: "wrong" }, error.message)); }
    button.disabled = false;
    sets.busy--;
  }

  // Follow work that had begun before this page was opened.
  const watched = new Set();
  function watchAll() {
    for (const line of document.querySelectorAll("#part-work [data-work]")) watch(Number(line.dataset.work));
    if (document.querySelector("#part-exports [data-work]")) watchExports();
  }
  async function watch(work) {
    if (watched.has(work) || sets.busy) return;
    watched.add(work);
    try {
      let told;
      await wire.until(async () => (told = await heard("set-work", { work })), () => {
        const line = document.querySelector(`#part-work [data-work="${work}"] .bar i`);
        if (line && told.total) line.style.width = `${Math.round((100 * told.done) / told.total)}%`;
        return goesOn(told);
      });
      if (told.state === "failed") say(told.error, true);
      await done({ said: told.said, go: told.go });
    } catch (error) { watched.delete(work); say(error.message, true); }
  }
  // Poll something that runs by itself, and say so while the studio does not answer.
  async function heard(name, query) {
    let unheard = "";
    const reply = await wire.patient(api(name), query, (words) => { if (!unheard) say((unheard = words), true); });
    if (unheard && said.textContent === unheard) say("");
    return reply;
  }

  // ---- Exports

  async function makeExport(fields, form) {
    study.clear(form);
    sets.busy++;
    try {
      const reply = await wire.post(api("set-export"), { version: page().dataset.version, ...fields });
      form.closest("dialog").close();
      patch.parts(reply.parts);
      watchExports();
    } catch (error) { refuse(error, form); } finally { sets.busy--; }
  }
  let watching = false;
  async function watchExports() {
    if (watching) return;
    watching = true;
    const shown = (reply) => { patch.parts(reply.parts); return reply.active; };
    try { await wire.until(() => heard("set-exports", { version: page().dataset.version }), shown); }
    catch (error) { say(error.message, true); }
    watching = false;
  }
  async function cancel(button) {
    const of_export = button.closest("#part-exports") !== null;
    button.disabled = true;
    try {
      await wire.post(api("set-cancel"), { number: Number(button.dataset.cancel), export: of_export });
      if (of_export) await watchExports();
      else await sets.refresh();
    } catch (error) { say(error.message, true); }
    button.disabled = false;
  }

  // ---- Selection in a draft

  const shots = () => [...document.querySelectorAll("#shots .shot")];
  const isDraft = () => page()?.hasAttribute("data-draft") ?? false;
  let last = null;   // start of a range

  function showPicked() {
    const bar = document.getElementById("selection");
    if (!bar) return;
    const there = shots();
    for (const shot of there) shot.setAttribute("aria-pressed", String(sets.picked.has(shot.dataset.image)));
    const number = sets.picked.size;
    bar.hidden = number === 0;
    document.getElementById("picked").textContent = number === 1 ? "1 image picked" : `${number.toLocaleString("en")} images picked`;
    const found = Number(document.getElementById("shots")?.dataset.found ?? 0), more = document.getElementById("pick-found");
    more.hidden = found <= there.length || number >= found;
    more.textContent = `All ${found.toLocaleString("en")}`;
  }

  function pick(shot, range) {
    const there = shots(), from = there.findIndex((one) => one.dataset.image === last), to = there.indexOf(shot);
    if (range && from >= 0) for (const one of there.slice(Math.min(from, to), Math.max(from, to) + 1)) sets.picked.add(one.dataset.image);
    else if (!sets.picked.delete(shot.dataset.image)) sets.picked.add(shot.dataset.image);
    last = shot.dataset.image;
    showPicked();
  }

  const leaving = new Set();   // selected images that are about to be removed
  const chosen = () => [...sets.picked].filter((image) => !leaving.has(image));
  async function remove() {
    const images = chosen();
    if (!images.length) return;
    for (const image of images) leaving.add(image);
    const removed = await send("remove-from-test-set", { ...about(), images }, document.getElementById("selection"));
    for (const image of images) { leaving.delete(image); if (removed) sets.picked.delete(image); }
    if (images.includes(last) && removed) last = null;
    showPicked();
  }
  function setSplit(split) {
    const images = chosen();
    if (images.length) send("set-split-in-test-set", { ...about(), images, split }, document.getElementById("selection"));
  }

  async function pickFound() {
    const query = new URLSearchParams(location.search);
    query.set("version", page().dataset.version);
    try {
      const reply = await wire.ask(`${api("set-images")}?${query}`);
      for (const image of reply.images) sets.picked.add(image);
      showPicked();
    } catch (error) { refuse(error, document.getElementById("selection")); }
  }

  // ---- An enlarged image

  const large = () => document.getElementById("large");
  let looked = 0;   // number of the latest request, to ignore late replies
  async function enlarge(image) {
    const mine = ++looked;
    large().dataset.image = image;   // so that the next image can be found before this one is shown
    try {
      const { html } = await wire.get(api("set-image"), { version: page().dataset.version, image });
      if (mine !== looked) return;
      large().replaceChildren(...patch.nodes(html).childNodes);
      if (!large().open) large().showModal();
    } catch (error) { if (mine === looked) say(error.message, true); }
  }
  document.addEventListener("close", (event) => { if (event.target === large()) looked++; }, true);
  function step(by) {
    const there = shots(), next = there[there.findIndex((one) => one.dataset.image === large().dataset.image) + by];
    if (next) enlarge(next.dataset.image);
  }

  // ---- Clicks and keys

  patch.on("click", "button", (target, event) => {
    const data = target.dataset;
    if (data.openWindow) open(data.openWindow);
    else if (data.send === "draft-test-set") send(data.send, { version: data.versionOf }, target);
    else if (data.send === "add-to-test-set") send(data.send, { ...about(), filter: "review=accepted&test_cases=1" }, document.getElementById("before-release"));
    else if (data.send === "part-test-set") send(data.send, about(), document.getElementById("before-release"));
    else if (data.copyText) study.copy(data.copyText).then((copied) => study.copied(target, copied, document.getElementById("version-id")));
    else if ("verify" in data) verify(target);
    else if (data.cancel) cancel(target);
    else if ("pickAll" in data) { for (const shot of shots()) sets.picked.add(shot.dataset.image); showPicked(); }
    else if ("pickNone" in data) { sets.picked.clear(); showPicked(); }
    else if ("pickFound" in data) pickFound();
    else if ("relabel" in data) open("relabel");
    else if ("remove" in data) remove();
    else if (data.step) step(Number(data.step));
    else if (data.image && target.classList.contains("shot")) { if (isDraft() && event.detail !== 0) pick(target, event.shiftKey); else if (page()) enlarge(data.image); }
  });
  patch.on("dblclick", ".shot", (shot) => { if (isDraft()) enlarge(shot.dataset.image); });
  document.addEventListener("change", (event) => {
    if (event.target.name !== "set-split" || !event.target.value) return;
    const split = event.target.value;
    event.target.value = "";
    setSplit(split === "none" ? "" : split);
  });

  // Return the number of pictures in a row.
  const columns = (there) => Math.max(1, there.findIndex((one) => one.offsetTop > there[0].offsetTop));
  const MOVES = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: (there) => -columns(there), ArrowDown: columns };
  const SPLITS = { 1: "train", 2: "validation", 3: "test", 0: "" };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (large()?.open) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) { event.preventDefault(); step(by); }
      return;
    }
    if (event.key === "Escape") looked++;
    if (document.querySelector("dialog[open]")) return;
    const there = shots(), at = there.indexOf(document.activeElement);
    if (event.key in MOVES && at >= 0) {
      event.preventDefault();
      const next = there[at + MOVES[event.key](there)];
      if (!next) return;
      next.focus();
      next.scrollIntoView({ block: "nearest" });
      if (event.shiftKey && isDraft()) { sets.picked.add(there[at].dataset.image); sets.picked.add(next.dataset.image); last = next.dataset.image; showPicked(); }
    } else if (event.key === " " && at >= 0 && isDraft()) { event.preventDefault(); pick(there[at], event.shiftKey); }
    else if (!isDraft()) return;
    else if (event.key === "Escape" && sets.picked.size) { sets.picked.clear(); showPicked(); }
    else if ((event.key === "Delete" || event.key === "Backspace") && sets.picked.size) { event.preventDefault(); remove(); }
    else if (event.key.toLowerCase() === "u") document.getElementById("undo-removal")?.click();
    else if (event.key.toLowerCase() === "l" && sets.picked.size) { event.preventDefault(); open("relabel"); }
    else if (event.key in SPLITS && !event.repeat) setSplit(SPLITS[event.key]);
  });

  // Firefox presses a button when the space bar is released, even if the keydown event was cancelled.
  document.addEventListener("keyup", (event) => { if (event.key === " " && event.target.closest(".shot") && isDraft()) event.preventDefault(); });

  showPicked();
  watchAll();
  sets.ready = true;
})();
