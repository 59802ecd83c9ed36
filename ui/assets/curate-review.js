// Decisions in the gallery: keys, selection, actions on many images at once, undo. After curate.js.
//
// A decision shows at once and is sent in the background, one after the other. Until the studio has confirmed it, it
// waits in the browser's storage, so that neither a closed page nor a stopped studio loses a decision.
(() => {
  "use strict";
  const gallery = window.gallery;
  if (!gallery) return;
  const byId = (id) => document.getElementById(id), { make, button } = window.patch;
  const grid = byId("grid"), WAITING = `curate-waiting${wire.root}:`, NAME = "curate-name";
  const own = `${WAITING}${Math.random().toString(36).slice(2)}`;   // each window has its own key
  const REASONS = {
    classification: ["label no longer right", "edit does not show", "not realistic", "other"],
    segmentation: ["protected class lost", "edit does not show", "not realistic", "other"],
  };
  // `undoable` are decisions of this page that can be undone, the latest last: { ticket, decision, entry }. `decision`
  // is 0 until the studio has given its number; `entry` is its image, or 0 for several images.
  const review = (gallery.review = { saved: 0, waiting: [], undoable: [], session: 0, repeat: 0, repeating: null });
  let safe = true;   // true if this browser keeps waiting decisions after the page is left
  function keepWaiting() {
    safe = !review.waiting.length || kept.browser.set(own, JSON.stringify(review.waiting), true);
    if (!review.waiting.length) kept.browser.remove(own);
  }
  addEventListener("beforeunload", (event) => { if (!safe) event.preventDefault(); });
  const author = () => kept.browser.get(NAME) ?? "";

  // ---- Sending: in order, each decision until it is answered

  let sending = false, unsaved = false;   // unsaved: the page says that the studio does not save, until all is saved
  async function send() {
    if (sending) return;
    sending = true;
    const whole = await sendAll();
    sending = false;
    if (!whole) return;
    gallery.totals();
    if (review.session) figures();
  }
  // Return true if everything was answered.
  async function sendAll() {
    let pause = 700;
    while (review.waiting.length) {
      const { name, fields, quiet, ticket } = review.waiting[0];
      try {
        await hold();
        const { result } = await wire.post(`/curate/api/${name}`, fields);
        pause = 700;
        review.waiting.shift();
        keepWaiting();
        review.saved += 1;
        if (ticket) numbered(ticket, result.decision);
        if (result.repeat) review.repeat = result.repeat;
        byId("undo").disabled = false;
        if (!quiet) gallery.say(result.said);
        else if (unsaved && !review.waiting.length) gallery.say("");
        if (!review.waiting.length) unsaved = false;
        if (name !== "decide" || fields.filter !== undefined) await gallery.again();
        else if (fields.entries.includes(gallery.now()?.id)) gallery.panelAgain();
        if (name === "undo-decision" && !fields.decision && result.entry) await back(result.entry);
      } catch (error) {
        const number = review.waiting.length;
        if (error.status === 401) {
          gallery.refuse(`${number} not saved yet: sign in again to save them.`);
          return false;
        }
        if (unanswered(error)) {
          unsaved = true;
          const stay = safe ? "" : " Keep this page open: the browser’s storage is full or blocked.";
          gallery.refuse(`${number} not saved yet: ${error.lost ? "the studio does not answer." : "the studio had an error, and the page tries again."}${stay}`);
          await new Promise((go) => setTimeout(go, pause));
          if (!error.lost) pause = Math.min(10_000, 2 * pause);
          continue;
        }
        review.waiting.shift();   // it was refused, and would be refused again
        if (ticket) numbered(ticket, 0);
        keepWaiting();
        gallery.refuse(error.message);
        await gallery.again();
      }
    }
    return true;
  }
  // Do not report the sent decision: it is sent again.
  const unanswered = (error) => error.lost || error.status >= 500 || error.status === 429;
  // From the first decision on, the view is held: no image moves or disappears because of a decision.
  async function hold() {
    const { view } = gallery;
    if (gallery.held) return;
    let held = "", count = 0;
    try { ({ held, count } = await wire.post("/curate/api/hold", { view })); } catch (error) { if (unanswered(error) || error.status === 401) throw error; }
    if (!held || view !== gallery.view) return;
    const by = await gallery.holdsNow(held, count);
    if (anchor !== null) anchor += by;
  }
  function post(name, fields, quiet, rest = {}) {
    gallery.busy();
    const key = `${own.slice(WAITING.length)} ${(tickets += 1)}`;   // the key lets the studio ignore a repeated request
    if (UNDONE.has(name)) {
      rest = { ticket: key };
      review.undoable.push({ ticket: rest.ticket, decision: 0, entry: fields.entries?.length === 1 ? fields.entries[0] : 0 });
    }
    review.waiting.push({ name, fields: name === "answer-repeat" ? fields : { ...fields, author: author(), key }, quiet, ...rest });
    keepWaiting();
    send();
  }
  const UNDONE = new Set(["decide", "tag-images", "relabel-images"]);
  let tickets = 0;
  // The decision has its number now, or 0 if nothing was changed and nothing can be undone.
  function numbered(ticket, decision) {
    const done = review.undoable.findIndex((one) => one.ticket === ticket), undoing = review.waiting.findIndex((one) => one.of === ticket);
    if (done >= 0) { if (decision) review.undoable[done].decision = decision; else review.undoable.splice(done, 1); }
    if (undoing >= 0 && decision) review.waiting[undoing].fields.decision = decision;
    else if (undoing >= 0) { review.waiting.splice(undoing, 1); gallery.say("Nothing was changed, so there is nothing to take back."); }
    keepWaiting();
  }

  // ---- The images concerned: the selected ones, else the current image

  const meant = () => (review.repeating ? [review.repeating.id] : gallery.chosen.size ? [...gallery.chosen.keys()] : gallery.now() ? [gallery.now().id] : []);
  function mark(ids, change) {
    const wanted = new Set(ids);
    gallery.each((cell) => { if (wanted.has(cell.id)) change(cell); });
    gallery.draw();
  }

  function decide(verdict, reason = "", ids = meant()) {
    if (review.repeating) return void again(verdict, reason);
    if (!ids.length) return;
    const several = gallery.chosen.size > 0;
    mark(ids, (cell) => { cell.verdict = verdict; });
    post("decide", { entries: ids, verdict, reason, ...(review.session ? { session: review.session } : {}) }, !several);
    if (several) clear(); else step(1);
  }

  // ---- The window that asks for a reason, a tag or a label, with the most frequent answers as digits

  const ask = byId("ask");
  function question({ title, words = "", choices = [], text = "", yes = "", empty = false, value = "", digits = true, act }) {
    byId("ask-title").textContent = title;
    byId("ask-words").textContent = words;
    byId("ask-problem").textContent = "";
    const field = byId("ask-text");
    field.hidden = byId("ask-label").hidden = !text;
    byId("ask-label").textContent = text;
    field.value = value;
    byId("ask-do").textContent = yes;
    byId("ask-do").hidden = !yes;
    byId("ask-choices").replaceChildren(...choices.map((choice, place) => {
      const chip = button(`${choice} `, () => (digits ? done(choice) : done(field.value.trim(), choice)), { className: "chip" });
      if (digits && place < 9) chip.append(make("kbd", {}, place + 1));
      return chip;
    }));
    ask.onkeydown = (event) => {
      // Digits choose an answer only while no text is typed.
      const choice = digits && choices[Number(event.key) - 1];
      if (choice && !(text && field.value)) { event.preventDefault(); done(choice); }
    };
    const done = (said, choice) => {
      if (!said && !empty) { byId("ask-problem").textContent = "Write something, or cancel."; return; }
      ask.close();
      toPage();
      act(said, choice);
    };
    ask.querySelector("form").onsubmit = (event) => { event.preventDefault(); done(field.value.trim()); };
    ask.showModal();
    (text ? field : yes ? byId("ask-do") : byId("ask-choices").firstElementChild).focus();
  }
  // An invisible field must not keep the keys: a hidden grid takes no focus, and browsers return the focus late.
  const toPage = () => { document.activeElement?.blur(); (gallery.large ? byId("large") : grid).focus({ preventScroll: true }); };
  ask.addEventListener("close", () => { if (!ask.open) toPage(); });   // this event comes late, when the next question may be open already

  const words = (number) => (number === 1 ? "1 image" : `${number.toLocaleString("en-US")} images`);
  const many = (ids) => words(ids.length);
  // An image that is shown again must be decided first, since other actions would concern an image that nobody sees.
  const atOnce = (act) => () => { if (review.repeating) gallery.say("Accept or reject this image first."); else act(); };
  const kind = () => byId("detail").dataset.kind || "classification";
  function reject() {
    const ids = meant();
    if (!ids.length) return;
    const title = gallery.chosen.size ? `Reject ${many(ids)}: why?` : "Why is it rejected?";
    question({ title, text: "Another reason, or none", choices: REASONS[kind()], yes: "Reject", empty: true, act: (reason) => decide("rejected", reason, ids) });
  }
  const tagsInUse = () => [...document.querySelectorAll('#filters [data-key^="tag:"] span')].map((one) => one.textContent).slice(0, 9);
  function tag() {
    const ids = meant();
    if (!ids.length) return;
    const title = gallery.chosen.size ? `Tag ${many(ids)}` : "Tag this image";
    question({ title, text: "Tag", choices: tagsInUse(), yes: "Tag", act: (said) => post("tag-images", { entries: ids, tag: said }) });
  }
  function label() {
    const ids = meant();
    if (!ids.length) return;
    if (!gallery.chosen.size && kind() !== "classification") { gallery.say("An image of a segmentation has no label."); return; }
    const known = [...document.querySelectorAll('#filters [data-key^="class:"] span')].map((one) => one.textContent).slice(0, 9);
    const why = "What the image really shows, if the label that it was made for is wrong.";
    question({ title: gallery.chosen.size ? `Label of ${many(ids)}` : "Label of this image", words: why, text: "Label", choices: known, yes: "Give this label",
      act: (said) => post("relabel-images", { entries: ids, label: said }) });
  }

  // ---- A review: images one after the other, with figures. On request some images are shown again, unmarked

  const figureWords = (one) => [
    `${one.images} decided`, one.an_hour === null ? "" : `${Math.round(one.an_hour).toLocaleString("en-US")} an hour`,
    one.repeats ? `${one.same} of ${one.repeats} as before` : "",
  ].filter(Boolean).join(" · ");
  async function figures() {
    try {
      const { result } = await wire.post("/curate/api/review-figures", { session: review.session });
      byId("review-figures").textContent = figureWords(result);
      byId("review-figures").title = result.repeats ? `Judged once more as before: ${result.words}.` : "";
      return result;
    } catch { return null; }   // the figures come with the next decision
  }
  function begin() {
    if (review.session) return void end();
    question({
      title: "Review one after the other", words: "Your name is saved with your decisions. One in twenty of the images that you have decided can come again, to measure how consistent you are.",
      text: "Your name, or none", yes: "Begin with repeats", choices: ["Begin without repeats"], empty: true, value: author(), digits: false,
      act: async (said, choice) => {
        kept.browser.set(NAME, said.slice(0, 60));
        try {
          const { result } = await wire.post("/curate/api/begin-review", { author: author(), repeats: choice ? 0 : 0.05 });
          review.session = result.session;
          byId("review").textContent = "End review";
          gallery.enlarge(true);
          await toFirstOpen();
        } catch (error) { gallery.refuse(error.message); }
      },
    });
  }
  // Return the image to begin with: the first undecided one from here on, else the current image.
  async function toFirstOpen() {
    let place = gallery.current ?? 0;
    while (place < gallery.count && gallery.cell(place) && gallery.cell(place).verdict !== "open") place += 1;
    if (gallery.cell(place)) { gallery.pick(place); return; }
    const open = new URLSearchParams(gallery.view);
    open.delete("review");
    open.append("review", "open");
    const { cells } = await wire.get("/curate/api/cells", { view: open.toString(), n: 1 });
    if (cells.length && await gallery.pickEntry(cells[0][0])) return;
    gallery.pick(gallery.current ?? 0);
    gallery.say("All of these images are decided already. Go through them with the arrows.");
  }
  async function end() {
    const one = await figures();
    review.session = review.repeat = 0;
    review.repeating = null;
    placed();
    byId("review").textContent = "Review";
    byId("review-figures").textContent = "";
    gallery.enlarge(false);
    if (one) gallery.say(`${figureWords({ ...one, repeats: 0 })}${one.repeats ? `. Of those that came once more you judged as before: ${one.words}.` : "."}`);
  }
  // Show the repeated image in the place of the next one, without its verdict.
  async function showAgain() {
    const entry = review.repeat;
    review.repeat = 0;
    try {
      const { cell } = await wire.get("/curate/api/cell", { entry });
      if (!gallery.large || !review.session) return;   // the repetition comes at another time
      const [id, sha, , , , told, source] = cell;
      review.repeating = { id };
      gallery.showOnly({ id, sha, words: told, source });
    } catch (error) { gallery.refuse(error.message); gallery.showOnly(null); }
  }
  gallery.hooks.restored.push(() => { review.repeating = null; });
  function again(verdict, reason) {
    const entry = review.repeating.id;
    gallery.showOnly(null);
    post("answer-repeat", { session: review.session, entry, verdict, reason }, true);
  }

  // The undone image is shown again at once. The undo waits for earlier decisions to be sent.
  function undo() {
    const last = review.undoable.pop();
    if (last?.entry) back(last.entry);
    post("undo-decision", { decision: last?.decision ?? 0 }, false, last && !last.decision ? { of: last.ticket } : {});
  }
  function back(entry) {
    if (review.repeating) { review.repeat = review.repeating.id; gallery.showOnly(null); }   // the repetition comes at another time
    return gallery.pickEntry(entry);
  }

  // The position of the review among its images.
  function placed() {
    const place = byId("review-place"), number = (one) => one.toLocaleString("en-US");
    const words = review.session && gallery.current !== null ? `${number(gallery.current + 1)} of ${number(gallery.count)}` : "";
    if (place.textContent !== words) place.textContent = words;
  }
  gallery.hooks.picked.push(placed);
  gallery.hooks.drawn.push(placed);

  // ---- Selecting

  let anchor = null;
  function clear() { gallery.chosen.clear(); selected(); }
  function toggle(place, on) {
    const cell = gallery.cell(place);
    if (!cell) return;
    if (on ?? !gallery.chosen.has(cell.id)) gallery.chosen.set(cell.id, place); else gallery.chosen.delete(cell.id);
  }
  function range(from, to) { for (let place = Math.min(from, to); place <= Math.max(from, to); place += 1) toggle(place, true); }
  function selected() {
    byId("selection").hidden = !gallery.chosen.size;
    byId("selected-count").textContent = `${gallery.chosen.size.toLocaleString("en-US")} selected`;
    gallery.draw();
  }
  patch.on("click", "#grid .cell", ({ place }, event) => {
    if (event.shiftKey && (anchor ?? gallery.current) !== null) { range(anchor ?? gallery.current, place); selected(); }
    else if (event.ctrlKey || event.metaKey) { toggle(place); anchor = place; selected(); }
    else anchor = place;
    gallery.pick(place);
    toPage();
  });
  grid.addEventListener("dblclick", () => gallery.enlarge(true));

  // All images of the filter. The action is refused if their number, which the window shows, has changed.
  async function all() {
    let count = gallery.fits, what = { filter: gallery.view, expected: count };
    // Images that no filter describes, such as a part of the map, are named one by one.
    if (!gallery.isFilter) {
      try { what = { entries: (await wire.get("/curate/api/ids", { view: gallery.view, held: gallery.held })).ids }; } catch (error) { gallery.refuse(error.message); return; }
      count = what.entries.length;
    }
    if (!count) { gallery.say("None of them fits the filter any more."); return; }
    const counted = words(count);
    const every = (verdict, button) => question({
      title: `${button} ${counted}?`, text: verdict === "rejected" ? "Another reason, or none" : "", choices: verdict === "rejected" ? REASONS[kind()] : [], empty: true, yes: button,
      words: "All images of this filter, also those out of sight. One undo takes all of it back.",
      act: (reason) => { if (what.entries) mark(what.entries, (cell) => { cell.verdict = verdict; }); post("decide", { ...what, verdict, reason: reason || "" }); },
    });
    question({
      title: `What do you want to do with ${counted}?`, empty: true,
      choices: ["Accept all", "Reject all", "Tag all", "Add all to a test set"],
      act: (choice) => {
        if (choice === "Accept all") every("accepted", "Accept");
        else if (choice === "Reject all") every("rejected", "Reject");
        else if (choice === "Tag all") question({ title: `Tag ${counted}`, text: "Tag", choices: tagsInUse(), yes: "Tag", act: (said) => { post("tag-images", { ...what, tag: said }); } });
        else if (choice) addToSet(what, count);
      },
    });
  }

  // ---- Adding to a test set: to an existing draft, or to a new set

  async function addToSet(what, count) {
    let sets;
    try { sets = (await wire.get("/curate/api/drafts")).sets; } catch (error) { gallery.refuse(error.message); return; }
    question({
      title: `Add ${words(count)} to a test set`, words: "A test set is a list: images that match this filter later are not added.",
      choices: sets.map((one) => one.name), text: "Name of a new test set", yes: "Add to a new set", digits: sets.length > 0,
      act: async (name) => {
        try {
          let set = sets.find((one) => one.name === name);
          if (!set) { const { result } = await wire.post("/curate/api/create-test-set", { title: name }); set = { id: result.test_set, draft: true, name }; }
          if (!set.draft) await wire.post("/curate/api/draft-test-set", { version: set.id });
          const { result } = await wire.post("/curate/api/add-to-test-set", { test_set: set.id, ...what });
          const link = make("a", { href: wire.at(`/curate/sets/${set.id}`) }, `Open “${name}”`);
          const already = result.already === 1 ? "1 was" : `${result.already.toLocaleString("en-US")} were`;
          gallery.say(`Added ${result.added.toLocaleString("en-US")}${result.already ? `, ${already} in it` : ""}${result.left_out ? `, ${result.left_out.toLocaleString("en-US")} could not be added` : ""}. `, link);
          clear();
        } catch (error) { gallery.refuse(error.message); }
      },
    });
  }

  // ---- Keys

  const step = (by) => {
    if (review.repeat && gallery.large && by === 1) showAgain();
    const place = (gallery.current ?? -1) + by; if (place >= 0 && place < gallery.count) gallery.pick(place); else gallery.panelAgain();
  };
  const move = (by, extend) => {
    if (review.repeating) { gallery.say("Accept or reject this image first."); return; }
    const from = gallery.current ?? 0;
    step(by);
    if (extend) { range(from, gallery.current); selected(); }
  };
  const ACTS = { accept: () => decide("accepted"), reject, tag: atOnce(tag), label: atOnce(label) };
  const KEYS = {
    a: ACTS.accept, r: reject, t: ACTS.tag, l: ACTS.label, u: undo,
    x: atOnce(() => { if (gallery.current !== null) { toggle(gallery.current); selected(); } }),
    "/": () => { byId("search").focus(); byId("search").select(); },
    Enter: () => gallery.enlarge(!gallery.large),
    Escape: () => { if (gallery.large) gallery.enlarge(false); else if (gallery.chosen.size) clear(); },
    Home: () => gallery.pick(0), End: () => gallery.pick(gallery.count - 1),
    PageDown: () => step(Math.min(gallery.columns() * gallery.visibleRows(), gallery.count - 1 - (gallery.current ?? 0))),
    PageUp: () => step(-Math.min(gallery.columns() * gallery.visibleRows(), gallery.current ?? 0)),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = event.target.matches?.("input[type=text], textarea, select");
    if (typing) { if (event.key === "Escape") toPage(); return; }
    if (event.key === " " && event.target.matches?.("a[role=button]")) { event.preventDefault(); event.target.click(); return; }
    if (event.target.matches?.("button, a, summary, input") && ["Enter", " "].includes(event.key)) return;
    if (event.target.matches?.("input[type=range]") && event.key.startsWith("Arrow")) return;
    const arrows = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -gallery.columns(), ArrowDown: gallery.columns() };
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.key in arrows) {
      event.preventDefault();
      const by = gallery.large && Math.abs(arrows[event.key]) > 1 ? Math.sign(arrows[event.key]) : arrows[event.key];
      move(by, event.shiftKey);
    } else if (Object.hasOwn(KEYS, name)) { event.preventDefault(); KEYS[name](); }
  });

  document.addEventListener("click", (event) => {
    const act = event.target.closest("[data-act]"), bulk = event.target.closest("[data-bulk]"), untag = event.target.closest("[data-untag]");
    if (act) { clear(); ACTS[act.dataset.act](); }
    if (bulk && review.repeating) gallery.say("Accept or reject this image first.");
    else if (bulk && bulk.dataset.bulk in ACTS) ACTS[bulk.dataset.bulk]();
    else if (bulk) addToSet({ entries: meant() }, gallery.chosen.size);
    if (untag && review.repeating) gallery.say("Accept or reject this image first.");
    else if (untag) post("tag-images", { entries: [Number(byId("detail").dataset.entry)], tag: untag.dataset.untag, put: false });
  });
  byId("select-none").addEventListener("click", clear);
  byId("select-all").addEventListener("click", all);
  byId("undo").addEventListener("click", undo);
  byId("review").addEventListener("click", begin);

  // Decisions that a closed page could not send are sent by this page. A lock tells whether a page is closed, if the
  // browser has locks (not over plain http from another machine).
  navigator.locks?.request(own, () => new Promise(() => {})).catch(() => {});   // refused if storage is blocked
  for (const key of kept.browser.names().filter((one) => one.startsWith(WAITING) && one !== own)) {
    const adopt = () => {
      review.waiting.push(...JSON.parse(kept.browser.get(key) ?? "[]"));
      keepWaiting();
      kept.browser.remove(key);
      if (review.waiting.length) send();
    };
    if (navigator.locks) navigator.locks.request(key, adopt); else adopt();
  }
})();
