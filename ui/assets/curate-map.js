// The map: points drawn by WebGL (or a plain canvas without WebGL), which can be moved, coloured, hidden by the legend,
// and selected with a lasso. A selection is an address with the corners of its region, and the studio finds the images
// in it.
(() => {
  "use strict";
  const main = document.querySelector("main.curate.map");
  if (!main) return;
  const byId = (id) => document.getElementById(id), { make } = window.patch;
  const first = JSON.parse(byId("first").content.textContent);
  const stage = byId("stage"), points = byId("points"), [outline, ring] = byId("over").children;
  const FULL = 65535, CELLS = 256, CORNERS = 90, REACH = 14, RIGHT = 2;
  const TONES = { accepted: "good", rejected: "bad", open: "quiet", right: "good", "newly wrong": "bad", wrong: "warn", valid: "good", invalid: "bad", others: "rest", none: "quiet" };
  const words = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
  const map = (window.map = { ready: false, frames: 0, renderer: "", counts: [], picked: 0 });

  let data = { count: 0, entries: new Uint32Array(0), places: new Uint16Array(0), categories: new Uint8Array(0), legend: [], missing: 0 };
  let which = "pca", hidden = new Set(), colours = [], state = first.state, version = 0;
  let view = { x: 0.5, y: 0.5, zoom: 1 };          // the middle of the view, from 0 to 1, and pixels for the whole width
  let width = 1, height = 1, ratio = 1;
  let region = null, drawing = null, lasso = false, pointed = -1;

  // ---- Drawing: one buffer of positions and categories, and a colour for each category

  const SHAPE = `attribute vec2 place; attribute float category; uniform vec2 middle, scale; uniform mediump float size; uniform vec4 colours[16]; varying vec4 colour;
    void main() { colour = colours[int(category + .5)]; gl_Position = vec4((place - middle) * scale, 0., 1.); if (colour.a == 0.) gl_Position.x = 9.; gl_PointSize = size; }`;
  const DOT = `precision mediump float; varying vec4 colour; uniform float size;
    void main() { float far = length(gl_PointCoord - .5) * size, edge = clamp(size * .5 - far, 0., 1.); gl_FragColor = vec4(colour.rgb, 1.) * colour.a * edge; }`;

  function webgl() {
    const gl = points.getContext("webgl", { antialias: false, premultipliedAlpha: true, preserveDrawingBuffer: true });
    if (!gl) return null;
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, SHAPE], [gl.FRAGMENT_SHADER, DOT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    const at = (name) => gl.getUniformLocation(program, name);
    const uniforms = Object.fromEntries(["middle", "scale", "size", "colours"].map((name) => [name, at(name)]));
    const buffers = ["place", "category"].map((name) => [gl.getAttribLocation(program, name), gl.createBuffer()]);
    return {
      name: "webgl",
      load() {
        for (const [[place, buffer], list, parts, kind] of [[buffers[0], data.places, 2, gl.UNSIGNED_SHORT], [buffers[1], data.categories, 1, gl.UNSIGNED_BYTE]]) {
          gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
          gl.bufferData(gl.ARRAY_BUFFER, list, gl.STATIC_DRAW);
          gl.enableVertexAttribArray(place);
          gl.vertexAttribPointer(place, parts, kind, parts === 2, 0, 0);
        }
      },
      draw(size) {
        gl.viewport(0, 0, points.width, points.height);
        gl.clearColor(0, 0, 0, 0);
        gl.clear(gl.COLOR_BUFFER_BIT);
        if (!data.count) return;
        gl.uniform2f(uniforms.middle, view.x, view.y);
        gl.uniform2f(uniforms.scale, (2 * view.zoom) / width, (-2 * view.zoom) / height);
        gl.uniform1f(uniforms.size, size * ratio);
        const flat = new Float32Array(64);
        colours.forEach((colour, place) => { if (!hidden.has(place)) flat.set([...colour, alpha()], 4 * place); });
        gl.uniform4fv(uniforms.colours, flat);
        gl.drawArrays(gl.POINTS, 0, data.count);
      },
    };
  }

  function plain() {
    const context = points.getContext("2d");
    return {
      name: "canvas",
      load() {},
      draw(size) {
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.clearRect(0, 0, width, height);
        context.globalAlpha = alpha();
        for (let colour = 0; colour < data.legend.length; colour += 1) {
          if (hidden.has(colour)) continue;
          context.fillStyle = `rgb(${colours[colour].map((part) => Math.round(part * 255)).join(" ")})`;
          for (let point = 0; point < data.count; point += 1) {
            if (data.categories[point] !== colour) continue;
            const x = toX(data.places[2 * point] / FULL), y = toY(data.places[2 * point + 1] / FULL);
            if (x > -size && y > -size && x < width + size && y < height + size) context.fillRect(x - size / 2, y - size / 2, size, size);
          }
        }
      },
    };
  }

  const alpha = () => (data.count > 40000 ? 0.55 : data.count > 5000 ? 0.72 : 0.88);
  const side = () => {  // larger points if there are few, or after zooming in
    const crowd = data.count > 40000 ? 2.6 : data.count > 5000 ? 3.6 : data.count > 500 ? 6 : 9;
    return Math.min(14, crowd * Math.sqrt(Math.max(1, view.zoom / fitted())));
  };
  const fitted = () => Math.max(50, Math.min(width, height) * 0.98);
  const toX = (x) => (x - view.x) * view.zoom + width / 2, toY = (y) => (y - view.y) * view.zoom + height / 2;
  const fromX = (x) => (x - width / 2) / view.zoom + view.x, fromY = (y) => (y - height / 2) / view.zoom + view.y;

  let renderer = null, waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      renderer.draw(side());
      trace();
      map.frames += 1;
    });
  }

  // The lasso, its selection, and the point under the pointer.
  function trace() {
    outline.setAttribute("points", (drawing ?? region ?? []).map(([x, y]) => `${toX(x)},${toY(y)}`).join(" "));
    outline.classList.toggle("drawing", drawing !== null);
    ring.toggleAttribute("hidden", pointed < 0);
    if (pointed < 0) return;
    const at = { cx: toX(data.places[2 * pointed] / FULL), cy: toY(data.places[2 * pointed + 1] / FULL), r: side() / 2 + 3 };
    for (const [name, value] of Object.entries(at)) ring.setAttribute(name, value);
  }

  function resized() {
    width = stage.clientWidth; height = stage.clientHeight; ratio = window.devicePixelRatio || 1;
    points.width = Math.max(1, Math.round(width * ratio));
    points.height = Math.max(1, Math.round(height * ratio));
    if (!resized.before) { resized.before = true; view.zoom = fitted(); }
    draw();
  }

  // ---- The points, and an index to find them by position

  let starts = null, order = null;
  function sort() {
    starts = new Uint32Array(CELLS * CELLS + 1); order = new Uint32Array(data.count);
    const cell = (point) => (data.places[2 * point + 1] >> 8) * CELLS + (data.places[2 * point] >> 8);
    for (let point = 0; point < data.count; point += 1) starts[cell(point) + 1] += 1;
    for (let place = 0; place < CELLS * CELLS; place += 1) starts[place + 1] += starts[place];
    const next = starts.slice();
    for (let point = 0; point < data.count; point += 1) order[next[cell(point)]++] = point;
  }

  function nearest(x, y) {
    let found = -1, best = REACH * REACH;
    const cell = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(value * CELLS)));
    const low = [cell(fromX(x - REACH)), cell(fromY(y - REACH))], high = [cell(fromX(x + REACH)), cell(fromY(y + REACH))];
    for (let row = low[1]; row <= high[1]; row += 1) {
      for (let at = starts[row * CELLS + low[0]]; at < starts[row * CELLS + high[0] + 1]; at += 1) {
        const point = order[at];
        if (hidden.has(data.categories[point])) continue;
        const far = (toX(data.places[2 * point] / FULL) - x) ** 2 + (toY(data.places[2 * point + 1] / FULL) - y) ** 2;
        if (far < best) { best = far; found = point; }
      }
    }
    return found;
  }

  async function load() {
    const mine = (version += 1);
    const query = new URLSearchParams({ view: first.view, map: which, colour: byId("colour").value });
    map.ready = false;
    let bytes;
    try {
      bytes = await wire.bytes(`/curate/api/map-points?${query}`);
    } catch (error) {
      if (mine !== version) return;
      tell(error.message);
      if (error.lost) setTimeout(() => { if (mine === version) load(); }, 2000);
      return;
    }
    if (mine !== version) return;
    const length = new DataView(bytes).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    const at = 4 + length, { count } = header;
    data = { ...header, by: query.get("colour"), entries: new Uint32Array(bytes, at, count), places: new Uint16Array(bytes, at + 4 * count, 2 * count), categories: new Uint8Array(bytes, at + 8 * count, count) };
    pointed = -1;
    hidden = new Set();
    sort();
    renderer.load();
    legend();
    paint();
    byId("point-count").textContent = count.toLocaleString("en");
    byId("point-words").textContent = `${count === 1 ? "image" : "images"} on the map${data.missing ? `, ${data.missing.toLocaleString("en")} not yet` : ""}`;
    tell(count ? "" : data.missing ? "The images are being embedded: the map fills while you wait." : first.pairs.length ? "No image fits the filter." : "There are no images yet.");
    pick(region);
    map.ready = true;
    map.counts = data.legend.map((one) => [one.name, one.count]);
  }

  const tell = (text) => { byId("empty").hidden = !text; byId("empty").textContent = text; };

  // ---- The legend: colours, counts, and hidden categories

  function legend() {
    const parts = data.legend.map((one, place) => {
      if (!one.count) return null;
      const dot = make("i"), line = make("button", { type: "button", ariaPressed: "true", title: "Show or hide; with Shift only this" },
        dot, make("span", {}, one.name), make("small", {}, one.count.toLocaleString("en")));
      line.dataset.place = place;
      dot.style.setProperty("--dot", `var(--${tone(one, place)})`);
      return line;
    });
    byId("legend").replaceChildren(...parts.filter(Boolean));
  }
  const tone = (one, place) => (one.value && !/^(review|study|model:.*)$/.test(data.by) ? `c${place}` : TONES[one.name] || `c${place % 11}`);

  function paint() {
    const styles = getComputedStyle(main);
    colours = data.legend.map((one, place) => {
      const hex = styles.getPropertyValue(`--${tone(one, place)}`).trim();
      return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
    });
    draw();
  }

  patch.on("click", "#legend button", (line, event) => {
    const place = Number(line.dataset.place), all = [...byId("legend").querySelectorAll("button")];
    if (event.shiftKey) {
      const alone = !hidden.has(place) && all.every((other) => other === line || hidden.has(Number(other.dataset.place)));
      hidden = new Set(alone ? [] : all.map((other) => Number(other.dataset.place)).filter((other) => other !== place));
    } else if (!hidden.delete(place)) hidden.add(place);
    for (const other of all) other.setAttribute("aria-pressed", String(!hidden.has(Number(other.dataset.place))));
    pick(region);
    draw();
  });

  // ---- Selection: a region, the number of images in it, and their address

  function pick(corners) {
    region = corners;
    const bar = byId("picked");
    if (!corners) { bar.hidden = true; map.picked = 0; return draw(); }
    let count = 0;
    const xs = corners.map(([x]) => x), ys = corners.map(([, y]) => y);
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    for (let point = 0; point < data.count; point += 1) {
      if (hidden.has(data.categories[point])) continue;
      const x = data.places[2 * point] / FULL, y = data.places[2 * point + 1] / FULL;
      if (x < low[0] || y < low[1] || x > high[0] || y > high[1]) continue;
      let inside = false;
      for (let at = 0, before = corners.length - 1; at < corners.length; before = at, at += 1) {
        const [x1, y1] = corners[before], [x2, y2] = corners[at];
        if ((y1 > y) !== (y2 > y) && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
      }
      count += inside;
    }
    map.picked = count;
    byId("picked-count").textContent = words(count, "image", "images");
    byId("open-picked").href = address(corners);
    bar.hidden = false;
    draw();
  }

  function address(corners) {
    const query = new URLSearchParams(first.pairs);
    query.set("region", corners.map(([x, y]) => `${(x + (which === "umap" ? RIGHT : 0)).toFixed(4)},${y.toFixed(4)}`).join(" "));
    // An image may have several values, so only the colours in their order tell which points were visible.
    if (hidden.size) {
      query.append("colours", data.by);
      data.legend.forEach(({ name, value }, place) => {
        const shown = !hidden.has(place);
        if (value) query.append("colours", `${shown ? "+" : "-"}${value}`);
        else if (shown) query.append("colours", name);
      });
    }
    return wire.at(`/curate/?${query}`);
  }

  function closed(corners) {  // reduce the line to as many corners as an address can hold
    const step = Math.max(1, corners.length / CORNERS);
    const kept = [];
    for (let at = 0; at < corners.length; at += step) kept.push(corners[Math.floor(at)]);
    return kept.length > 2 ? kept : null;
  }

  // ---- Pointer, wheel, keys

  const where = (event) => { const box = stage.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  let dragged = null;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button || event.target.closest(".picked")) return;
    const [x, y] = where(event);
    stage.setPointerCapture(event.pointerId);
    point(-1);
    if (lasso || event.shiftKey) drawing = [[fromX(x), fromY(y)]];
    else { dragged = [x, y]; stage.classList.add("dragging"); }
  });
  stage.addEventListener("pointermove", (event) => {
    const [x, y] = where(event);
    if (drawing) {
      const [before, above] = drawing[drawing.length - 1];
      if (Math.hypot(toX(before) - x, toY(above) - y) >= 4) drawing.push([fromX(x), fromY(y)]);
      return draw();
    }
    if (dragged) { move((dragged[0] - x) / view.zoom, (dragged[1] - y) / view.zoom); dragged = [x, y]; return; }
    if (event.target.closest(".picked")) return point(-1);
    point(starts ? nearest(x, y) : -1);
  });
  const end = () => {
    stage.classList.remove("dragging");
    dragged = null;
    if (drawing) { const corners = closed(drawing); drawing = null; pick(corners); }
  };
  stage.addEventListener("pointerup", end);
  stage.addEventListener("pointercancel", end);
  stage.addEventListener("pointerleave", () => point(-1));
  stage.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...where(event)); }, { passive: false });

  function move(x, y) { view.x = Math.min(1.2, Math.max(-0.2, view.x + x)); view.y = Math.min(1.2, Math.max(-0.2, view.y + y)); draw(); }
  function zoom(by, x = width / 2, y = height / 2) {
    const held = [fromX(x), fromY(y)];
    view.zoom = Math.min(400 * fitted(), Math.max(fitted() / 2, view.zoom * by));
    view.x += held[0] - fromX(x);
    view.y += held[1] - fromY(y);
    draw();
  }
  const fit = () => { view = { x: 0.5, y: 0.5, zoom: fitted() }; draw(); };
  const useLasso = (on) => { lasso = on; stage.classList.toggle("lasso", on); byId("lasso").setAttribute("aria-pressed", String(on)); };
  const pickSight = () => { const [l, r, t, b] = [fromX(0), fromX(width), fromY(0), fromY(height)]; pick([[l, t], [r, t], [r, b], [l, b]]); };

  const KEYS = {
    ArrowLeft: () => move(-0.1 * width / view.zoom, 0), ArrowRight: () => move(0.1 * width / view.zoom, 0),
    ArrowUp: () => move(0, -0.1 * height / view.zoom), ArrowDown: () => move(0, 0.1 * height / view.zoom),
    "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: fit,
    l: () => useLasso(!lasso), v: pickSight, Escape: () => { drawing = null; useLasso(false); pick(null); },
    Enter: () => { if (region) location.assign(byId("open-picked").href); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, input, summary, dialog")) return;
    if (event.key === "Enter" && event.target.closest("button, a")) return;
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act) { event.preventDefault(); act(); }
  });
  byId("lasso").addEventListener("click", () => useLasso(!lasso));
  byId("nearer").addEventListener("click", () => zoom(1.5));
  byId("further").addEventListener("click", () => zoom(1 / 1.5));
  byId("fit").addEventListener("click", fit);
  byId("pick-none").addEventListener("click", () => pick(null));

  // ---- The picture under the pointer

  let asking = null;
  const known = new Map();
  function point(found) {
    if (found === pointed) return;
    pointed = found;
    draw();
    clearTimeout(asking);
    if (found < 0) { byId("shown").hidden = true; return; }
    const entry = data.entries[found];
    if (known.has(entry)) show(entry);
    else asking = setTimeout(() => wire.get("/curate/api/map-image", { entry }).then((said) => { known.set(entry, said); show(entry); }, () => {}), 60);
  }
  function show(entry) {
    if (pointed < 0 || data.entries[pointed] !== entry) return;
    const card = byId("shown"), said = known.get(entry);
    card.querySelector("img").src = wire.at(`/thumbs/${said.sha}.webp`);
    card.querySelector("figcaption").textContent = said.words.join(" · ");
    card.hidden = false;
    const x = toX(data.places[2 * pointed] / FULL), y = toY(data.places[2 * pointed + 1] / FULL);
    const left = x + 14 + card.offsetWidth > width ? x - 14 - card.offsetWidth : x + 14;
    const top = Math.min(Math.max(6, y - card.offsetHeight / 2), height - card.offsetHeight - 6);
    card.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  // ---- The chosen map, and its progress

  // Estimate the remaining time from the progress since this page first saw the work.
  const seen = {};
  function left(work, done, total) {
    const now = performance.now() / 1000;
    if (!(done >= seen[work]?.done)) seen[work] = { done, now };
    const since = seen[work], seconds = ((now - since.now) / (done - since.done)) * (total - done);
    if (!Number.isFinite(seconds) || done >= total) return "";
    return `, ${seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`} left`;
  }

  function told() {
    const umap = which === "umap", none = umap && !state.umap, share = /(\d+) %/.exec(state.note);
    fields.choose(document.querySelectorAll("[data-map]"), (tab) => tab.dataset.map === which);
    const newer = state.embedded - state.umap;
    byId("about-map").textContent = !umap ? "The plane in which the images differ most. This map is ready at once."
      : state.failed || (state.making ? `Making the map: ${state.note}${share ? left("placing", Number(share[1]), 100) : ""}.` : !state.available ? "UMAP is not installed: pip install umap-learn, and start the studio again."
      : none ? "Keeps images that look alike together. Making it takes minutes; you can go on working."
      : newer > 0 ? `Made of ${state.umap.toLocaleString("en")} images; ${newer.toLocaleString("en")} are newer.` : "Keeps images that look alike together.");
    byId("making").hidden = !umap || !state.available || (!state.making && !none && newer <= 0 && !state.failed);
    byId("make-map").hidden = state.making;
    byId("make-map").textContent = none ? "Make it" : "Make it again";
    byId("stop-map").hidden = !state.making;
    const bar = byId("map-progress");
    bar.hidden = !umap || !state.making;
    if (share) bar.value = Number(share[1]); else bar.removeAttribute("value");
    byId("embedding").textContent = state.problem || (state.embedded < state.total ? `Looked at ${state.embedded.toLocaleString("en")} of ${words(state.total, "image", "images")}${left("looking", state.embedded, state.total)}.` : "");
  }

  const maps = study.following({
    get: () => wire.get("/curate/api/map-state"),
    show(said) {
      const before = state;
      state = said;
      told();
      const more = which === "pca" ? state.embedded - before.embedded : before.making && !state.making;
      // Reload the points if many are new or the work is done, since each reload reads all points.
      if (which === "pca" && more && (!state.filling || state.embedded > 1.2 * data.count)) load();
      else if (which === "umap" && more && state.umap) load();
    },
    pause: () => (state.filling || state.making ? 1500 : 0),
  });

  patch.on("click", ".map-side .tabs [data-map]", (tab) => {
    if (tab.dataset.map === which) return;
    which = tab.dataset.map;
    pick(null);
    fit();
    told();
    if (which === "umap" && !state.umap) {
      version += 1;
      data = { ...data, count: 0, entries: new Uint32Array(0), places: new Uint16Array(0), categories: new Uint8Array(0) };
      sort();
      renderer.load();
      draw();
      tell("There is no UMAP map yet.");
    } else load();
  });
  patch.on("click", "#make-map, #stop-map", async ({ id }) => {
    try { await wire.post(`/curate/api/${id}`); } catch (error) { byId("about-map").textContent = error.message; return; }
    maps.look();
  });
  byId("colour").addEventListener("change", load);

  renderer = webgl() || plain();
  map.renderer = renderer.name;
  new ResizeObserver(resized).observe(stage);
  new MutationObserver(paint).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
  resized();
  told();
  load();
  if (state.filling || state.making) setTimeout(maps.look, 1000);
})();
