// Painting of a region over the source image. The region is the text of a hidden field, which is sent, stored and
// refused like any other field. The canvas shows the region. `core/regions.py` defines the format of the text.
(() => {
  "use strict";
  const studio = window.studio;
  const PAINT = "rgb(45, 212, 191)", PIXEL = 0xffbfd42d;   // the same colour as the canvas stores a pixel
  const CLOSEST = 16;

  // ---- Run lengths, column by column, as `core/rle.py` packs them

  function packed(counts) {
    let text = "";
    counts.forEach((count, place) => {
      let step = place > 2 ? count - counts[place - 2] : count, more = true;
      while (more) {
        const bits = step & 31;
        step >>= 5;
        more = bits & 16 ? step !== -1 : step !== 0;
        text += String.fromCharCode(48 + (more ? bits | 32 : bits));
      }
    });
    return text;
  }

  function unpacked(text) {
    const counts = [];
    for (let place = 0; place < text.length;) {
      let step = 0, shift = 0, bits;
      do {
        bits = text.charCodeAt(place++) - 48;
        step |= (bits & 31) << shift;
        shift += 5;
      } while (bits & 32 && shift < 30);
      if (bits & 16 && shift < 32) step |= -1 << shift;
      counts.push(counts.length > 2 ? step + counts[counts.length - 2] : step);
    }
    return counts;
  }

  // Return the run lengths of a mask, column by column: pixels outside, inside, outside, and so on.
  function countsOf(mask) {
    const counts = [];
    for (let at = 0, now = 0; at < mask.length; now = 1 - now) {
      const next = mask.indexOf(1 - now, at), end = next < 0 ? mask.length : next;
      counts.push(end - at);
      at = end;
    }
    return counts;
  }

  const painted = (counts) => counts.reduce((sum, count, place) => sum + (place % 2 ? count : 0), 0);

  // Return the text of run lengths; "" for the whole picture, and also if nothing is painted.
  function textOf(counts, width, height) {
    const sum = painted(counts);
    return sum && sum < width * height ? `${width}x${height} ${packed(counts)}` : "";
  }

  // Return the run lengths of a text: none for the whole picture, null if the text is no region of this size.
  function countsIn(text, width, height) {
    if (!text) return [];
    const [size, lengths = ""] = text.split(" "), counts = unpacked(lengths);
    const sum = counts.reduce((all, count) => (count < 0 ? NaN : all + count), 0);
    return size === `${width}x${height}` && sum === width * height ? counts : null;
  }

  // ---- A brush is made once for each frame, which is never patched

  function begin(root) {
    const frame = root.querySelector(".brush-frame"), canvas = frame.querySelector("canvas"), { width, height } = canvas;
    const size = root.querySelector(".brush-size input"), sheet = frame.querySelector(".sheet"), ring = frame.querySelector(".ring");
    const paint = canvas.getContext("2d", { willReadFrequently: true });
    const field = () => root.querySelector("textarea");
    const cursor = { x: width / 2, y: height / 2 }, pointers = new Map();
    const mask = new Uint8Array(width * height);   // column by column; empty if the whole picture is meant
    let shown = null;       // the text that canvas and mask show now
    let stroke = null;      // during a stroke: the pixels it has touched, and the version at its start
    let tool = "brush", zoom = 1, left = 0, top = 0, gesture = null;
    let corner = null;      // while a box is drawn or a point is pressed: the position of the start

    // ---- The painted region

    function show(text) {
      const counts = countsIn(text, width, height);
      mask.fill(0);
      paint.clearRect(0, 0, width, height);
      paint.fillStyle = PAINT;
      let at = 0;
      counts?.forEach((count, place) => { if (place % 2) fill(at, count); at += count; });
      tell(text, counts);
    }

    // Fill one run of pixels: parts of columns, and whole columns at once.
    function fill(at, count) {
      mask.fill(1, at, at + count);
      for (const end = at + count; at < end;) {
        const x = Math.floor(at / height), y = at % height, columns = y ? 0 : Math.floor((end - at) / height);
        const length = columns * height || Math.min(end - at, height - y);
        paint.fillRect(x, y, columns || 1, columns ? height : length);
        at += length;
      }
    }

    function tell(text, counts) {
      const percent = Math.min(Math.max((100 * painted(counts ?? [])) / mask.length, 0.1), 99.9).toFixed(1);
      const what = !text ? "The whole picture" : counts ? `${percent} % of the picture` : "A region that cannot be shown";
      const said = document.getElementById(`painted-${field().dataset.stage}`), words = (!text && frame.dataset.empty) || `${what} ${frame.dataset.words}.`;
      if (said.textContent !== words) said.textContent = words;
      shown = text;
    }

    // Move the pixels of a stroke from the canvas into the mask. A pixel is inside if at least half of it is painted.
    function take({ left, top, right, bottom }) {
      const x = Math.max(0, Math.floor(left)), y = Math.max(0, Math.floor(top));
      const wide = Math.min(width, Math.ceil(right)) - x, high = Math.min(height, Math.ceil(bottom)) - y;
      const image = paint.getImageData(x, y, wide, high), pixels = new Uint32Array(image.data.buffer);
      for (let row = 0, at = 0; row < high; row++) for (let column = 0; column < wide; column++, at++) {
        const inside = pixels[at] >>> 31;
        mask[(x + column) * height + y + row] = inside;
        pixels[at] = inside ? PIXEL : 0;
      }
      paint.putImageData(image, x, y);
    }

    // Put the mask into the field, as if it had been typed.
    function save(version = root.closest(".stage").dataset.version) {
      const counts = countsOf(mask), text = textOf(counts, width, height);
      if (text) tell(text, counts); else show("");
      const place = field();
      if (text === place.value && !window.fields.typed(place)) return;
      place.value = text;
      if (version) place.dataset.beganVersion ??= version;
      for (const name of ["input", "change"]) place.dispatchEvent(new Event(name, { bubbles: true }));
    }

    // ---- Strokes

    function start() {
      if (stroke) return;
      stroke = { version: root.closest(".stage").dataset.version, left: width, top: height, right: 0, bottom: 0 };
      paint.globalCompositeOperation = "source-over";
      paint.fillStyle = paint.strokeStyle = PAINT;
      if (!shown && tool === "erase" && !frame.dataset.empty) fill(0, mask.length);   // erase from the whole picture
      if (tool === "erase") paint.globalCompositeOperation = "destination-out";
      Object.assign(paint, { lineCap: "round", lineWidth: Number(size.value) });
      paint.beginPath();
      paint.arc(cursor.x, cursor.y, size.value / 2, 0, 2 * Math.PI);
      paint.fill();
      touched(cursor);
    }

    function touched({ x, y }) {
      const by = size.value / 2 + 2;
      Object.assign(stroke, { left: Math.min(stroke.left, x - by), right: Math.max(stroke.right, x + by) });
      Object.assign(stroke, { top: Math.min(stroke.top, y - by), bottom: Math.max(stroke.bottom, y + by) });
    }

    function line(to) {
      paint.beginPath();
      paint.moveTo(cursor.x, cursor.y);
      paint.lineTo(to.x, to.y);
      paint.stroke();
      touched(to);
    }

    function end(keep = true) {
      if (!stroke) return;
      const done = stroke;
      stroke = null;
      paint.globalCompositeOperation = "source-over";
      if (!keep) return void show(field().value);
      take(done);
      save(done.version);
    }

    function adopt() {
      if (!stroke && field().value !== shown) show(field().value);
    }

    // ---- A box or a point is a setting of the stage, which then finds the subject there

    const find = (name, value) => {
      const stage = field().dataset.stage;
      studio.send({ name: "setting", fields: { setting: `${stage}.${name}`, value } });
      studio.send({ name: "run", fields: { stage, force: true } });
    };
    const pixel = ({ x, y }) => [Math.min(Math.floor(x), width - 1), Math.min(Math.floor(y), height - 1)];
    const point = (beside) => find("points", [root.dataset.points, (beside ? "-" : "") + pixel(cursor).join(" ")].filter(Boolean).join(", "));

    function box(done) {
      const [x, right] = [corner.x, cursor.x].map(Math.round).sort((one, other) => one - other);
      const [y, bottom] = [corner.y, cursor.y].map(Math.round).sort((one, other) => one - other);
      show(field().value);
      if (!done) {
        Object.assign(paint, { strokeStyle: PAINT, lineWidth: Math.max(1, width / 200) });
        paint.strokeRect(x, y, right - x, bottom - y);
      } else if (right > x && bottom > y) find("box", [x, y, right, bottom].join(" "));
    }

    function put(at) {
      const to = { x: Math.min(Math.max(at.x, 0), width), y: Math.min(Math.max(at.y, 0), height) };
      if (stroke) line(to);
      Object.assign(cursor, to);
      if (corner && tool === "box") box(false);
      ringed();
    }

    const ringed = () => Object.assign(ring.style, { left: `${(100 * cursor.x) / width}%`, top: `${(100 * cursor.y) / height}%`, width: `${(100 * size.value) / width}%` });

    function sized(value) {
      size.value = value;
      root.querySelector(".brush-size output").textContent = size.value;
      ringed();
    }

    function choose(name) {
      end();
      tool = name;
      frame.dataset.tool = name;
      fields.choose(root.querySelectorAll(".chip[data-brush]"), (one) => one.dataset.brush === name);
    }

    // ---- Zoom: the point of the frame at (x, y), in pixels of the page, keeps its place

    function look(to, x = frame.clientWidth / 2, y = frame.clientHeight / 2, movedX = 0, movedY = 0) {
      to = Math.min(Math.max(to, 1), CLOSEST);
      left = x + movedX - ((x - left) * to) / zoom;
      top = y + movedY - ((y - top) * to) / zoom;
      zoom = to;
      left = Math.min(Math.max(left, frame.clientWidth * (1 - zoom)), 0);
      top = Math.min(Math.max(top, frame.clientHeight * (1 - zoom)), 0);
      sheet.style.transform = `translate(${left}px, ${top}px) scale(${zoom})`;
      sheet.style.setProperty("--zoom", zoom);
      frame.toggleAttribute("data-near", (zoom * frame.clientWidth) / width > 3);
      root.querySelector(".zoomed").textContent = `${Math.round(100 * zoom)} %`;
    }

    // The keyboard's cursor stays within the visible part.
    function follow() {
      const x = left + (cursor.x / width) * frame.clientWidth * zoom, y = top + (cursor.y / height) * frame.clientHeight * zoom;
      const back = (at, room) => (at < 0 ? -at : at > room ? room - at : 0);
      look(zoom, undefined, undefined, back(x, frame.clientWidth), back(y, frame.clientHeight));
    }

    // ---- Mouse, pen and fingers

    function at(event) {
      const place = canvas.getBoundingClientRect();
      return { x: ((event.clientX - place.left) * width) / place.width, y: ((event.clientY - place.top) * height) / place.height };
    }

    // Return the distance of the fingers on the screen, and their middle in the frame.
    function pinched() {
      const [one, two] = [...pointers.values()], place = frame.getBoundingClientRect(), other = two ?? one;
      const x = (one.clientX + other.clientX) / 2 - place.left, y = (one.clientY + other.clientY) / 2 - place.top;
      return { x, y, apart: Math.max(1, Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY)) };
    }

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button > 1) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true, focusVisible: false });
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      if (pointers.size > 1 || event.button === 1 || tool === "move") { end(false); gesture = pinched(); return; }
      Object.assign(cursor, at(event));
      ringed();
      if (tool === "box" || tool === "point") corner = { ...cursor }; else start();
    });

    canvas.addEventListener("pointermove", (event) => {
      if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event);
      if (!gesture) { for (const one of event.getCoalescedEvents?.().concat(event) ?? [event]) put(at(one)); return; }
      if (!pointers.has(event.pointerId)) return;
      const now = pinched(), before = gesture;
      gesture = now;
      look((zoom * now.apart) / before.apart, before.x, before.y, now.x - before.x, now.y - before.y);
    });

    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
      pointers.delete(event.pointerId);
      if (gesture) gesture = pointers.size ? pinched() : null;
      else if (!corner) end(name === "pointerup");
      else if (tool === "box") box(name === "pointerup");
      else if (name === "pointerup") point(event.shiftKey);
      corner = null;
    });

    // Without the focus, the wheel scrolls the page. The wheel with Ctrl is the pinch of a touchpad.
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const place = frame.getBoundingClientRect();
      look(zoom * Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 500)), event.clientX - place.left, event.clientY - place.top);
    }, { passive: false });

    // ---- Keys and buttons

    const ACTS = {
      brush: () => choose("brush"), erase: () => choose("erase"), move: () => choose("move"),
      box: () => choose("box"), point: () => choose("point"),
      closer: () => look(zoom * 1.5), farther: () => look(zoom / 1.5), all: () => look(1),
      invert: () => { end(); if (shown) { show(textOf(countsOf(mask.map((one) => 1 - one)), width, height)); save(); } },
      clear: () => { end(); show(""); save(); },
      save: () => save(),
      swap: () => choose(tool === "erase" ? "brush" : "erase"),
      smaller: () => sized(Math.min(size.value - 1, Math.round(size.value / 1.25))),
      larger: () => sized(Math.max(Number(size.value) + 1, Math.round(size.value * 1.25))),
    };
    const KEYS = { "[": "smaller", "]": "larger", "+": "closer", "=": "closer", "-": "farther", 0: "all", x: "swap" };
    const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

    function pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      const act = KEYS[event.key.toLowerCase()], arrow = ARROWS[event.key];
      if (act) ACTS[act]();
      else if (event.target !== canvas) return false;
      else if (arrow) {
        const step = Math.max(1, Math.round(size.value / 3)) * (event.shiftKey ? 4 : 1);
        put({ x: cursor.x + step * arrow[0], y: cursor.y + step * arrow[1] });
        follow();
      } else if (event.key === " " && tool === "point") point(event.shiftKey);
      else if (event.key === " ") start();
      else if (event.key === "Escape" && stroke) end(false);
      else return false;
      return true;
    }

    root.addEventListener("keydown", (event) => {
      if (event.target.matches("summary") || !pressed(event)) return;
      event.preventDefault();
      event.stopPropagation();   // the same keys have other meanings on the page
    });
    canvas.addEventListener("keyup", (event) => { if (event.key === " ") end(); });
    canvas.addEventListener("blur", () => end());
    root.addEventListener("click", (event) => ACTS[event.target.closest("[data-brush]")?.dataset.brush]?.());
    size.addEventListener("input", () => sized(size.value));

    if (field().value || frame.dataset.empty) root.open = true;
    sized(size.value);
    choose("brush");
    look(1);
    return { adopt };
  }

  studio.afterPatch.push((part) => {
    for (const root of part.querySelectorAll(".brush")) {
      const frame = root.querySelector(".brush-frame");
      frame.brush ??= begin(root);
      frame.brush.adopt();
    }
  });
})();
