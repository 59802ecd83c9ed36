// The gallery: a grid of any number of images, of which only the visible part exists, the filters beside it, and one
// image with its facts. Decisions are in curate-review.js. No rule of the studio is in this script.
(() => {
  "use strict";
  const GAP = 10, MARGIN = 1.5, MOST_HEIGHT = 8_000_000, MOST_ASKED = 180, MOST_THUMBS = 800, SLOW = 600, OWN = ["at", "image", "large"];
  const byId = (id) => document.getElementById(id);
  const grid = byId("grid"), space = byId("cells"), main = document.querySelector("main.curate.images");
  if (!main) return;
  const first = JSON.parse(byId("first").content.textContent);
  const asked = new URLSearchParams(location.search);
  const gallery = (window.gallery = {
    view: first.view, count: first.count, current: null, chosen: new Map(), large: false, idle: false, held: "",
    fits: first.count,          // number of images of the filter now; `count` is the number in the grid
    isFilter: first.filter, hooks: { picked: [], drawn: [], restored: [], went: [] },
  });

  // ---- Cells by their place: known cells and requested ones

  const cells = new Map();      // place -> { id, sha, verdict, wrong, failed, words, source }
  const stale = new Set();      // places whose old cell is shown until a new one has arrived
  const coming = new Map();     // first place of a request -> its controller, and the place after its last
  let wanted = null, generation = 0, saying = null, unanswered = false;
  const read = ([id, sha, verdict, wrong, failed, words, source]) => ({ id, sha, verdict, wrong, failed, words, source });
  const keep = (at, { cells: list, thumbs = [] }) => {
    list.forEach((one, place) => { cells.set(at + place, read(one)); stale.delete(at + place); });
    thumbs.forEach((data, place) => { if (data) thumbIs(cells.get(at + place).sha, `data:image/webp;base64,${data}`); });
  };
  const there = (place) => cells.has(place) && !stale.has(place);
  gallery.cell = (place) => cells.get(place);
  gallery.placeOf = (id) => { for (const [place, cell] of cells) if (cell.id === id) return place; return null; };
  gallery.each = (act) => { for (const cell of cells.values()) act(cell); };

  // Thumbnails come with their cells; the latest are kept.
  const thumbs = new Map();     // name of an image -> address of its thumbnail
  function thumbIs(sha, address) {
    thumbs.delete(sha);
    thumbs.set(sha, address);
    if (thumbs.size > MOST_THUMBS) thumbs.delete(thumbs.keys().next().value);
  }

  // Cancel requests for places that are out of sight by now.
  function only(from, to) {
    for (const [at, { request, end }] of coming) if (end < from || at > to) { request.abort(); coming.delete(at); }
    need(from, to);
  }
  // Ignore running requests from now on, by a new number for later ones.
  function letGo() {
    for (const { request } of coming.values()) request.abort();
    coming.clear();
    return (generation += 1);
  }
  // Request the missing cells of these places, each only once.
  function need(from, to) {
    for (let place = from; place < to; place += 1) {
      if (there(place) || [...coming].some(([at, { end }]) => place >= at && place < end)) continue;
      const n = Math.min(MOST_ASKED, to - place);
      ask(place, n);
      place += n - 1;
    }
  }

  // Return how many of these places, from the first on, need a thumbnail: up to the last unknown one.
  function unknown(at, n) {
    let end = at + n;
    while (end > at && cells.has(end - 1)) end -= 1;
    return end - at;
  }

  async function ask(at, n) {
    const mine = generation, request = new AbortController();
    const held = { request, end: at + n };
    coming.set(at, held);
    const query = { view: gallery.view, at, n, thumbs: unknown(at, n), ...(gallery.held ? { held: gallery.held } : {}) };
    try {
      const said = await wire.ask(`/curate/api/cells?${new URLSearchParams(query)}`, { signal: request.signal });
      if (mine !== generation) return;
      if (said.forgotten) { if (query.held === gallery.held) forgotten(); else draw(); return; }
      if (unanswered) { unanswered = false; saidIs([], false); }
      keep(at, said);
      // The view has become shorter: remove cells beyond its end.
      if (said.cells.length < n) for (let place = at + said.cells.length; place < at + n; place += 1) { cells.delete(place); stale.delete(place); }
      draw();
    } catch (error) {
      if (!request.signal.aborted && mine === generation) { unanswered = true; gallery.refuse(error.message); setTimeout(draw, 1000); }
    } finally { if (coming.get(at) === held) coming.delete(at); settle(); }
  }

  // ---- The grid. Browsers allow no element as high as a million images. Above a height, the scroll bar stands for the
  // whole grid, and short moves (wheel, keys, a finger) scroll by their own length

  let columns = 1, side = 160, row = 170, rows = 0, height = 0, scale = 1, top = 0, last = 0, resting = null;
  const shown = new Map();      // place -> element
  const spare = [];

  function measure() {
    if (!grid.clientHeight) return;   // hidden behind the large picture: keep it as it is
    const width = space.clientWidth, size = Number(byId("size").value);
    columns = Math.max(1, Math.floor((width + GAP) / (size + GAP)));
    side = (width - GAP * (columns - 1)) / columns;
    row = side + GAP;
    rows = Math.ceil(gallery.count / columns);
    height = grid.clientHeight;
    const full = rows * row, low = Math.min(full, MOST_HEIGHT);
    scale = full > low ? (full - height) / (low - height) : 1;
    space.style.height = `${Math.max(0, low - (rows ? GAP : 0))}px`;
    grid.style.setProperty("--side", `${side}px`);
  }

  const most = () => Math.max(0, rows * row - height);
  function scrolled() {
    const now = grid.scrollTop, moved = now - last;
    if (scale === 1) top = now;
    else top = Math.abs(moved) < height ? Math.min(most(), Math.max(0, top + moved)) : now * scale;
    last = now;
    draw();
    clearTimeout(resting);
    resting = setTimeout(() => { if (scale !== 1) grid.scrollTop = last = top / scale; remember(); draw(); }, 160);
  }
  const scrollTo = (where) => {
    top = Math.min(most(), Math.max(0, where));
    grid.scrollTop = last = top / scale;
    last = grid.scrollTop;
    draw();
  };
  gallery.showPlace = (place) => {
    const at = Math.floor(place / columns) * row;
    if (at < top) scrollTo(at);
    else if (at + side > top + height) scrollTo(at + row - height);
    else draw();
  };

  let drawing = false;
  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; lay(); });
  }
  gallery.draw = draw;

  // Load the visible cells and pictures first, and those around them afterwards.
  const inSight = () => [Math.floor(top / row) * columns, Math.min(gallery.count, Math.ceil((top + height) / row) * columns)];
  gallery.inSight = () => {
    const [from, to] = inSight(), found = [];
    for (let place = from; place < to; place += 1) if (shown.has(place)) found.push(shown.get(place));
    return found.length === to - from ? found : [];
  };
  const seen = () => { const all = gallery.inSight(); return all.length > 0 && all.every((one) => one.matches(".there, .broken")); };
  let whenSeen = [], waited = null;
  const afterSeen = (act) => {
    whenSeen.push(act);
    clearTimeout(waited);
    waited = setTimeout(wasSeen, 500);   // at the latest, even if a picture is slow
    pictureCame();
  };
  function wasSeen() {
    clearTimeout(waited);
    const acts = whenSeen;
    whenSeen = [];
    for (const act of acts) act();
    settle();
  }
  // Show the next frame before any other work.
  let painting = false;
  function pictureCame() {
    if (painting || !seen()) return;
    painting = true;
    // Of two frames, the first begins before the cells are painted.
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
      painting = false;
      if (!seen()) return;   // the grid has moved on
      if (whenSeen.length) wasSeen();
      draw();
    }, 0)));
  }

  function lay() {
    const from = Math.max(0, Math.floor((top - MARGIN * height) / row)) * columns;
    const to = Math.min(gallery.count, (Math.ceil((top + (1 + MARGIN) * height) / row) + 1) * columns);
    for (const [place, element] of shown) if (place < from || place >= to) { shown.delete(place); spare.push(element); element.hidden = true; }
    const offset = scale === 1 ? 0 : grid.scrollTop - top, [first, end] = inSight();
    let calm = true;
    for (let place = first; place < end; place += 1) calm = setCell(place, offset, true) && calm;
    for (let place = from; place < to; place += 1) if (place < first || place >= end) setCell(place, offset, calm);
    if (calm && whenSeen.length) pictureCame();
    // During fast scrolling, request nothing that will be out of sight when it arrives.
    clearTimeout(wanted);
    wanted = setTimeout(() => (calm ? only(from, to) : only(first, end)), coming.size ? 50 : 0);
    for (const hook of gallery.hooks.drawn) hook();
    settle();
  }

  // Put one cell into its place, and return true if its picture is there. `now`: request the picture at once.
  function setCell(place, offset, now) {
    const element = shown.get(place) ?? fresh(place);
    const where = `translate(${(place % columns) * row}px, ${Math.floor(place / columns) * row + offset}px)`;
    if (element.where !== where) element.style.transform = element.where = where;
    fill(element, place, now);
    return element.classList.contains("there");
  }

  function fresh(place) {
    const element = spare.pop() ?? made();
    element.hidden = false;
    element.place = place;
    shown.set(place, element);
    return element;
  }

  function made() {
    const element = document.createElement("div");
    element.className = "cell";
    element.setAttribute("role", "option");
    element.innerHTML = '<img alt="" decoding="async" draggable="false"><span class="badge"></span><span class="signs"></span>';
    const image = element.firstChild;
    image.addEventListener("load", () => { element.classList.add("there"); pictureCame(); });
    image.addEventListener("error", () => { element.classList.add("broken"); pictureCame(); });
    space.append(element);
    return element;
  }

  function picture(element, sha) {
    element.later = "";
    element.firstChild.src = thumbs.get(sha) ?? wire.at(`/thumbs/${sha}.webp`);
  }
  function fill(element, place, now) {
    const cell = cells.get(place), sha = cell?.sha ?? "";
    if (element.sha !== sha) {
      element.sha = sha;
      element.later = "";
      element.classList.remove("there", "broken");
      if (!sha) element.firstChild.removeAttribute("src");
      else if (now) picture(element, sha);
      else { element.firstChild.removeAttribute("src"); element.later = sha; }
    } else if (now && element.later) picture(element, element.later);
    const state = cell ? `${cell.id} ${cell.verdict} ${cell.wrong} ${cell.failed} ${gallery.chosen.has(cell.id)} ${place === gallery.current}` : "";
    if (element.state === state && element.place === place && element.placed === place) return;
    Object.assign(element, { state, placed: place });
    element.id = `cell-${place}`;
    element.dataset.entry = cell?.id ?? "";
    element.dataset.verdict = cell?.verdict ?? "";
    element.classList.toggle("current", place === gallery.current);
    element.classList.toggle("chosen", Boolean(cell) && gallery.chosen.has(cell.id));
    element.setAttribute("aria-selected", Boolean(cell) && gallery.chosen.has(cell.id));
    element.setAttribute("aria-label", cell ? `${cell.words}: ${cell.verdict}` : "");
    element.setAttribute("aria-posinset", place + 1);
    element.setAttribute("aria-setsize", gallery.count);
    element.title = cell?.words ?? "";
    element.children[1].textContent = cell?.verdict ?? "";
    const signs = [];
    if (cell?.wrong) signs.push("model wrong");
    if (cell?.failed) signs.push(cell.failed === 1 ? "1 check failed" : `${cell.failed} checks failed`);
    element.children[2].textContent = signs.join(" · ");
  }

  // ---- The current image: its panel loads a moment later, and the next pictures are loaded ahead

  let panelTimer = null, panelAsked = 0;
  gallery.columns = () => columns;
  gallery.visibleRows = () => Math.max(1, Math.floor(height / row));
  gallery.pick = (place, quiet = false, later = false) => {
    if (!gallery.count) return;
    gallery.current = Math.min(gallery.count - 1, Math.max(0, place));
    grid.setAttribute("aria-activedescendant", `cell-${gallery.current}`);
    gallery.showPlace(gallery.current);
    const cell = cells.get(gallery.current);
    if (cell) shows(cell); else need(gallery.current, gallery.current + 1);
    clearTimeout(panelTimer);
    if (later) afterSeen(panel); else panelTimer = setTimeout(panel, 50);
    if (!quiet) remember();
    for (const hook of gallery.hooks.picked) hook();
  };
  gallery.now = () => (gallery.current === null ? null : cells.get(gallery.current) ?? null);

  // In the large view, another image may take the place of the current one for a moment.
  let instead = null;
  gallery.showOnly = (cell) => {
    instead = cell;
    if (!cell) for (const hook of gallery.hooks.restored) hook();
    const shown = cell ?? gallery.now();
    if (shown) shows(shown, true);
    gallery.panelAgain();
  };
  function shows(cell, asked = false) {
    if (!gallery.large || (instead && !asked)) return;
    const result = byId("large-result"), source = byId("large-source");
    if (result.dataset.sha !== cell.sha) { result.dataset.sha = cell.sha; result.src = wire.at(`/images/${cell.sha}.png`); result.alt = cell.words; }
    if (source.dataset.sha !== cell.source) { source.dataset.sha = cell.source; if (cell.source) source.src = wire.at(`/images/${cell.source}.png`); }
    source.parentElement.hidden = !cell.source;
    ahead();
  }

  const fetched = new Map();    // pictures that were requested ahead
  function ahead() {
    for (let step = 1; step <= 3; step += 1) {
      const cell = cells.get(gallery.current + step);
      if (!cell) { need(gallery.current + 1, Math.min(gallery.count, gallery.current + 4)); continue; }
      for (const sha of [cell.sha, cell.source]) {
        if (!sha || fetched.has(sha)) continue;
        const image = new Image();
        image.src = wire.at(`/images/${sha}.png`);
        fetched.set(sha, image);
        if (fetched.size > 12) fetched.delete(fetched.keys().next().value);
      }
    }
  }

  async function panel() {
    const cell = instead ?? gallery.now();
    if (!cell) { panelTimer = setTimeout(panel, 60); return; }
    shows(cell, true);
    const mine = ++panelAsked;
    try {
      const said = await wire.get("/curate/api/detail", { entry: cell.id, ...(instead ? { undecided: true } : {}) });
      if (mine === panelAsked) put(said.parts);
    } catch (error) { if (mine === panelAsked) gallery.refuse(error.message); }
    settle();
  }
  gallery.panelAgain = () => { clearTimeout(panelTimer); panelTimer = setTimeout(panel, 0); };

  function put(parts) {
    const way = document.querySelector("#detail .tab.on")?.dataset.way, open = document.querySelector("#detail [data-origin]")?.open;
    const other = byId("detail").dataset.entry;
    patch.parts({ detail: parts.detail });
    const panel = byId("detail"), origin = panel.querySelector("[data-origin]");
    if (way) look(way);
    if (!open || !origin) return;
    if (panel.dataset.entry === other) tellOrigin(origin); else origin.open = false;
  }
  async function tellOrigin(origin) {
    const entry = origin.dataset.origin;
    let told;
    try { told = await wire.get("/curate/api/origin", { entry }); } catch (error) { told = error; }
    if (!origin.isConnected || origin.dataset.origin !== entry) return;   // another image is current by now
    if (told.parts) patch.parts(told.parts); else byId("origin").textContent = told.message;
  }

  function look(way) {
    const panel = byId("detail"), there = [...panel.querySelectorAll("[data-shows]")];
    if (!there.some((one) => one.dataset.shows === way)) way = "result";
    for (const one of there) one.hidden = one.dataset.shows !== way;
    fields.choose(panel.querySelectorAll("[data-way]"), (tab) => tab.dataset.way === way);
  }

  gallery.enlarge = (large) => {
    if (!large && instead) gallery.showOnly(null);
    gallery.large = large;
    main.classList.toggle("large-on", large);
    byId("large").hidden = !large;
    if (large) { const cell = gallery.now(); if (cell) shows(cell); } else { measure(); if (gallery.current !== null) gallery.showPlace(gallery.current); }
    remember();
  };

  // ---- The view and its address

  // Moving within a view adds no step to the browser's history. The position is written after a pause, or before the
  // page is left, since browsers limit the number of writes.
  let remembering = null;
  function remember() { clearTimeout(remembering); remembering = setTimeout(rememberNow, 300); }
  function rememberNow() {
    clearTimeout(remembering);
    const query = new URLSearchParams(gallery.view);
    const at = Math.round(top / row) * columns;
    if (at) query.set("at", at);
    const cell = gallery.now();
    if (cell) query.set("image", cell.id);
    if (gallery.large) query.set("large", 1);
    const text = query.toString();
    history.replaceState({}, "", text ? `?${text}` : location.pathname);
  }
  addEventListener("beforeunload", rememberNow);

  let totalsAsked = 0, counting = 0;
  gallery.filtersOf = first.view;   // the view that the filters beside the grid belong to
  const open = () => [...document.querySelectorAll("#filters details.check[open]")].map((one) => one.dataset.check).slice(0, 12);
  async function totals() {
    const mine = ++totalsAsked, { view } = gallery, query = new URLSearchParams({ view });
    counting += 1;
    gallery.busy();
    for (const check of open()) query.append("check", check);
    try {
      const said = await wire.get(`/curate/api/totals?${query}`);
      if (mine !== totalsAsked || view !== gallery.view) return;
      patch.parts(said.parts);
      counted(said.count);
      gallery.filtersOf = view;
      gallery.isFilter = said.filter;
      waits(said.note, said.waiting, mine);
    } catch (error) { if (mine === totalsAsked) gallery.refuse(error.message); } finally { counting -= 1; settle(); }
  }
  // Some images cannot be compared yet: check again later.
  function waits(note, waiting, mine) {
    if (!waiting) return;
    if (note && !byId("said").parentElement.matches(".bad")) gallery.say(note);
    setTimeout(() => { if (mine === totalsAsked) gallery.again(); }, 4000);
  }
  gallery.totals = totals;

  function counted(count) {
    gallery.fits = count;
    // A held view keeps its images, even if other images match its filter by now.
    if (count !== gallery.count && !gallery.held) {
      gallery.count = count;
      measure();
      draw();
      if (!count) nothing(); else if (gallery.current === null || gallery.current >= count) gallery.pick(Math.min(gallery.current ?? 0, count - 1), true);
    }
    const words = count.toLocaleString("en-US");
    byId("count").textContent = words;
    byId("count-words").textContent = count === 1 ? "image" : "images";
    for (const one of document.querySelectorAll("[data-count]")) one.textContent = words;
    byId("select-all").disabled = !count;
    byId("part-empty").toggleAttribute("hidden", gallery.count > 0);
  }

  // Show another view. `aimed` is the latest requested view, which presses in the meantime change further.
  Object.assign(gallery, { aimed: first.view, going: Promise.resolve() });
  gallery.go = (view, how = {}) => (gallery.going = whole(goTo(view, how)));
  // While this goes on, the page is not idle.
  gallery.whole = whole;
  function whole(act) {
    counting += 1;
    gallery.busy();
    return act.finally(() => { counting -= 1; settle(); });
  }
  async function goTo(view, { push = true, at = 0, pick = null }) {
    gallery.aimed = view;
    const mine = letGo();
    const some = columns * (Math.ceil(height / row) + 1);
    const query = { view, at: Math.max(0, at), n: Math.min(MOST_ASKED, Math.max(12, some)), thumbs: Math.min(MOST_ASKED, some) };
    const meaning = /(^|&)(like|near|picture|alike)=/.test(view);
    const slow = setTimeout(() => saidIs([meaning ? "Looking at what the images show; the first time takes some seconds …" : "Looking …"], false), SLOW);
    let said;
    try {
      said = await wire.get("/curate/api/cells", query);
      // The view has become shorter since the address was written.
      if (!said.cells.length && query.at) said = await wire.get("/curate/api/cells", { ...query, at: (query.at = at = 0) });
    } catch (error) { if (mine === generation) { gallery.aimed = gallery.view; gallery.refuse(error.message); } return; } finally { clearTimeout(slow); }
    if (mine !== generation) return;
    if (push) rememberNow();
    saidIs([], false);
    gallery.view = view;
    gallery.held = "";
    gallery.current = null;
    cells.clear();
    stale.clear();
    keep(query.at, said);
    if (push) history.pushState({}, "", view ? `?${view}` : location.pathname);
    for (const hook of gallery.hooks.went) hook();
    if (said.cells.length < query.n) gallery.count = query.at + said.cells.length;   // the view ends here
    else gallery.count = Math.max(gallery.count, query.at + said.cells.length);
    measure();
    scrollTo(Math.floor(at / columns) * row);
    lay();
    if (gallery.count) gallery.pick(pick ?? at, true, true); else nothing();
    if (gallery.count) afterSeen(totals); else totals();
  }
  // Return the place of an image in a view, or null if it is not in the view.
  const placeIn = async (view, entry, held = gallery.held) => {
    try { return (await wire.get("/curate/api/place", { entry, view, ...(held ? { held } : {}) })).place; } catch { return null; }
  };
  // Go to an image of the view, or to none if it is not in the view.
  gallery.pickEntry = async (entry) => {
    const { view } = gallery, place = gallery.placeOf(entry) ?? await placeIn(view, entry);
    if (place === null || view !== gallery.aimed) return false;
    gallery.pick(place);
    return true;
  };
  // Hold the images of the view in the studio from now on. Images may have come or gone since the page loaded them, so
  // the current image gets its new place. Returns the number of places by which it has moved.
  gallery.holdsNow = async (held, count) => {
    const { view } = gallery;
    const known = [...cells].filter(([place]) => place <= gallery.current).sort(([one], [other]) => other - one);
    let by = 0;
    for (const [place, { id }] of known.slice(0, 3)) {   // somebody else may have decided the first of them
      const now = await placeIn(view, id, held);
      if (now !== null) { by = now - place; break; }
    }
    if (view !== gallery.view) return 0;
    gallery.held = held;
    if (!by && count === gallery.count) return 0;
    letGo();
    const before = [...cells];
    cells.clear();
    stale.clear();
    for (const [place, cell] of before) if (place + by >= 0) { cells.set(place + by, cell); stale.add(place + by); }
    for (const [id, place] of gallery.chosen) gallery.chosen.set(id, place + by);
    gallery.count = count;
    measure();
    draw();
    if (gallery.current !== null) gallery.pick(gallery.current + by, true);
    return by;
  };
  // The studio was restarted, or held too many other views: it no longer knows the images of this one.
  async function forgotten() {
    const { view } = gallery, known = [...cells.keys()].filter((place) => place <= gallery.current);
    gallery.held = "";
    const before = known.length ? Math.max(...known) : 0;   // the cell of the current image may be missing
    const place = known.length ? await placeIn(view, cells.get(before).id) : null;
    if (view !== gallery.aimed) return;
    if (place === before) {   // all images have kept their places, and the decisions continue
      for (const each of cells.keys()) stale.add(each);
      draw();
      await totals();
      return;
    }
    await gallery.go(view, { push: false, at: place === null ? 0 : place + gallery.current - before });
  }
  // Select no image.
  function nothing() {
    clearTimeout(panelTimer);
    panelAsked += 1;
    gallery.current = null;
    const panel = byId("detail");
    panel.replaceChildren();
    for (const name of ["entry", "verdict", "kind"]) delete panel.dataset[name];
    panel.classList.add("none");
  }
  // Load the same view again, with decisions made elsewhere or undone.
  gallery.again = () => whole(readAgain());
  async function readAgain() {
    await gallery.going;
    letGo();
    for (const place of cells.keys()) stale.add(place);   // a person who decides meanwhile sees and means the old cells
    draw();
    await totals();
    gallery.panelAgain();
  }

  // ---- Presses, sizes, messages

  patch.on("click", "#detail [data-way]", (tab) => look(tab.dataset.way));
  patch.on("click", "#detail .shown img", () => gallery.enlarge(true));
  patch.on("click", "#large figure", () => gallery.enlarge(false));
  document.addEventListener("toggle", (event) => {
    if (event.target instanceof HTMLElement && event.target.matches("details[data-origin]") && event.target.open) tellOrigin(event.target);
  }, true);

  // A message about an action disappears after a moment. An error stays until another message or view replaces it.
  function saidIs(words, bad) {
    clearTimeout(saying);
    const said = byId("said");
    said.replaceChildren(...words);
    said.parentElement.hidden = !said.textContent;
    said.parentElement.classList.toggle("bad", bad);
  }
  byId("said-close").addEventListener("click", () => saidIs([], false));
  gallery.say = (...words) => { saidIs(words, false); saying = setTimeout(() => saidIs([], false), 8000); };
  gallery.refuse = (...words) => saidIs(words, true);
  gallery.busy = () => { gallery.idle = false; };
  function settle() { gallery.idle = !coming.size && !counting && !whenSeen.length && [...shown.keys()].every(there); }

  const size = byId("size");
  size.value = kept.browser.get("curate-size") ?? size.value;
  size.addEventListener("input", () => {
    const at = Math.round(top / row) * columns;
    kept.browser.set("curate-size", size.value);
    measure();
    scrollTo(Math.floor(at / columns) * row);
  });
  grid.addEventListener("scroll", scrolled, { passive: true });
  new ResizeObserver(() => { if (gallery.large) return; const at = Math.floor(top / row) * columns; measure(); scrollTo(Math.floor(at / columns) * row); }).observe(grid);
  window.addEventListener("popstate", async () => {
    const query = new URLSearchParams(location.search), [at, image, large] = OWN.map((name) => Number(query.get(name)) || 0);
    for (const name of OWN) query.delete(name);
    const view = (gallery.aimed = query.toString());
    clearTimeout(remembering);
    const pick = image ? await placeIn(view, image) : null;
    if (view !== gallery.aimed) return;
    await gallery.go(view, { push: false, at, pick });
    if (view === gallery.aimed && Boolean(large) !== gallery.large) gallery.enlarge(Boolean(large));
  });

  keep(0, first);
  counted(first.count);
  measure();
  const at = Math.min(Number(asked.get("at")) || 0, Math.max(0, first.count - 1));
  scrollTo(Math.floor(at / columns) * row);
  lay();
  // Go to the image that the address names. Until its place is known, show the first images.
  const image = Number(asked.get("image")) || 0, near = image ? gallery.placeOf(image) : null;
  if (gallery.count) gallery.pick(near ?? at, true, true);
  if (asked.has("large")) gallery.enlarge(true);
  if (document.querySelector("#filters details[open] .waits")) afterSeen(totals);
  if (image && near === null) placeIn(first.view, image).then((place) => { if (place !== null && gallery.aimed === first.view) gallery.pick(place, true); });
  if (first.waiting) afterSeen(totals);
})();
