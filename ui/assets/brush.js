// Painting a region over the source image. What is painted is the text of a hidden field, which is sent, kept and refused
// as that of any other; the canvas shows it. `core/regions.py` says what the text means.
(() => {
  "use strict";
  const studio = window.studio;
  const PAINT = "rgb(45, 212, 191)", PIXEL = 0xffbfd42d;   // the same, as the canvas holds a pixel
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

  // The text of what is inside, "" for the whole picture; nothing inside is the whole picture too.
  function textOf(inside, width, height) {
    const counts = [];
    let now = 0, length = 0, painted = 0;
    for (let x = 0; x < width; x++) {
      for (let y = 0, at = x; y < height; y++, at += width) {
        if (inside[at] !== now) { counts.push(length); length = 0; now = inside[at]; }
        length += 1;
        painted += now;
      }
    }
    counts.push(length);
    return painted && painted < width * height ? `${width}x${height} ${packed(counts)}` : "";
  }

  // What is inside, or null for the whole picture and for what is no region of this size.
  function insideOf(text, width, height) {
    const [size, lengths = ""] = text.split(" "), counts = unpacked(lengths);
    const sum = counts.reduce((all, count) => (count < 0 ? NaN : all + count), 0);
    if (size !== `${width}x${height}` || sum !== width * height) return null;
    const columns = new Uint8Array(sum), inside = new Uint8Array(sum);
    let at = 0;
    counts.forEach((count, place) => { if (place % 2) columns.fill(1, at, at + count); at += count; });
    for (let x = 0, from = 0; x < width; x++) for (let y = 0; y < height; y++) inside[y * width + x] = columns[from++];
    return inside;
  }

  // ---- A brush: made once for each frame, which is never patched

  function begin(root) {
    const frame = root.querySelector(".brush-frame"), canvas = frame.querySelector("canvas"), { width, height } = canvas;
    const size = root.querySelector(".brush-size input"), sheet = frame.querySelector(".sheet"), ring = frame.querySelector(".ring");
    const paint = canvas.getContext("2d", { willReadFrequently: true });
    const field = () => root.querySelector("textarea");
    const cursor = { x: width / 2, y: height / 2 }, pointers = new Map();
    let shown = null;       // the text that the canvas shows
    let stroke = null;      // { tool, version } while something is painted
    let tool = "brush", zoom = 1, left = 0, top = 0, gesture = null;

    // ---- What is painted

    function show(text) {
      const inside = text ? insideOf(text, width, height) : null, image = paint.createImageData(width, height);
      const pixels = new Uint32Array(image.data.buffer);
      let painted = 0;
      for (let at = 0; inside && at < inside.length; at++) if (inside[at]) { painted += 1; pixels[at] = PIXEL; }
      paint.putImageData(image, 0, 0);
      const percent = Math.min(Math.max((100 * painted) / (width * height), 0.1), 99.9).toFixed(1);
      const what = inside ? `${percent} % of the picture` : text ? "A region that cannot be shown" : "The whole picture";
      const said = document.getElementById(`painted-${field().dataset.stage}`), words = `${what} ${frame.dataset.words}.`;
      if (said.textContent !== words) said.textContent = words;
      shown = text;
    }

    function inside() {
      const pixels = new Uint32Array(paint.getImageData(0, 0, width, height).data.buffer);
      return Uint8Array.from(pixels, (pixel) => pixel >>> 31);   // at least half painted
    }

    // Into the field, as if it had been typed.
    function save(text, version = root.closest(".stage").dataset.version) {
      const place = field();
      show(text);
      if (text === place.value && !window.fields.typed(place)) return;
      place.value = text;
      if (version) place.dataset.beganVersion ??= version;
      for (const name of ["input", "change"]) place.dispatchEvent(new Event(name, { bubbles: true }));
    }

    // ---- Strokes

    function start() {
      if (stroke) return;
      stroke = { tool, version: root.closest(".stage").dataset.version };
      paint.globalCompositeOperation = "source-over";
      paint.fillStyle = paint.strokeStyle = PAINT;
      if (!shown && tool === "erase") paint.fillRect(0, 0, width, height);   // from the whole picture
      if (tool === "erase") paint.globalCompositeOperation = "destination-out";
      Object.assign(paint, { lineCap: "round", lineWidth: Number(size.value) });
      paint.beginPath();
      paint.arc(cursor.x, cursor.y, size.value / 2, 0, 2 * Math.PI);
      paint.fill();
    }

    function line(to) {
      paint.beginPath();
      paint.moveTo(cursor.x, cursor.y);
      paint.lineTo(to.x, to.y);
      paint.stroke();
    }

    function end(keep = true) {
      if (!stroke) return;
      const { version } = stroke;
      stroke = null;
      paint.globalCompositeOperation = "source-over";
      if (keep) save(textOf(inside(), width, height), version); else show(shown);
      adopt();
    }

    function adopt() {
      if (!stroke && field().value !== shown) show(field().value);
    }

    function put(at) {
      const to = { x: Math.min(Math.max(at.x, 0), width), y: Math.min(Math.max(at.y, 0), height) };
      if (stroke) line(to);
      Object.assign(cursor, to);
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
      for (const one of root.querySelectorAll(".chip[data-brush]")) {
        one.classList.toggle("on", one.dataset.brush === name);
        one.setAttribute("aria-pressed", String(one.dataset.brush === name));
      }
    }

    // ---- Zoom: the point of the frame at (x, y), in pixels of the page, stays where it is

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

    // The cursor of the keyboard never leaves what is seen.
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

    // Of the fingers that are down: how far apart, and where their middle is in the frame.
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
      start();
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
      if (gesture) gesture = pointers.size ? pinched() : null; else end(name === "pointerup");
    });

    // Without the focus the wheel scrolls the page. With Ctrl it is the pinch of a touchpad.
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const place = frame.getBoundingClientRect();
      look(zoom * Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 500)), event.clientX - place.left, event.clientY - place.top);
    }, { passive: false });

    // ---- Keys and buttons

    const ACTS = {
      brush: () => choose("brush"), erase: () => choose("erase"), move: () => choose("move"),
      closer: () => look(zoom * 1.5), farther: () => look(zoom / 1.5), all: () => look(1),
      invert: () => { end(); if (shown) save(textOf(inside().map((one) => 1 - one), width, height)); },
      clear: () => { end(); save(""); },
      save: () => save(field().value),
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
      } else if (event.key === " ") start();
      else if (event.key === "Escape" && stroke) end(false);
      else return false;
      return true;
    }

    root.addEventListener("keydown", (event) => {
      if (event.target.matches("summary") || !pressed(event)) return;
      event.preventDefault();
      event.stopPropagation();   // the same keys mean something else on the page
    });
    canvas.addEventListener("keyup", (event) => { if (event.key === " ") end(); });
    canvas.addEventListener("blur", () => end());
    root.addEventListener("click", (event) => ACTS[event.target.closest("[data-brush]")?.dataset.brush]?.());
    size.addEventListener("input", () => sized(size.value));

    if (field().value) root.open = true;
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
