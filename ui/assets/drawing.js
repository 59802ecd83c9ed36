// The control image while thresholds move, and the preview of the image that is being drawn.
(() => {
  "use strict";
  const studio = window.studio;

  // ---- The control image is redrawn in each frame in which a slider has moved, with the latest values

  let loading = null, wanted = "";

  function addressOf(panel) {
    const saved = panel.querySelector("[data-control-url]")?.dataset.controlUrl;
    if (!saved) return "";
    const [path, query] = saved.split("?"), asked = new URLSearchParams(query);
    for (const field of panel.querySelectorAll("[data-control]"))
      asked.set(field.dataset.control, field.type === "checkbox" ? field.checked : field.value);
    // Request no more pixels than the screen shows, in steps, so that not every resize requests a picture.
    const place = panel.querySelector(".pair figure").getBoundingClientRect();
    asked.set("longest", Math.ceil(Math.max(place.width, place.height) * devicePixelRatio / 128) * 128);
    return `${path}?${asked}`;
  }

  function redraw(panel) {
    const image = panel.querySelector("#control-preview");
    if (!image || !panel.closest(".panel.shown")) return;
    const address = addressOf(panel);
    if (!address || (image.dataset.shown === address && wanted === address)) return;
    wanted = address;
    if (!loading) load(panel);
  }

  function load(panel) {
    const image = panel.querySelector("#control-preview"), address = wanted;
    if (!image) return;
    loading = address;
    const next = new Image();
    const over = (found) => {
      loading = null;
      if (found) { image.src = address; image.dataset.shown = address; }
      image.classList.toggle("broken", !found);
      if (wanted !== address) load(panel);
    };
    next.onload = () => (next.decode ? next.decode() : Promise.resolve()).then(() => over(true), () => over(true));
    next.onerror = () => over(false);
    next.src = address;
  }

  let framed = false;
  patch.on("input", "[data-control]", (field) => {
    const shown = field.closest("label").querySelector("output");
    if (field.type === "checkbox") shown.textContent = field.checked ? "on" : "off";
    else shown.textContent = field.dataset.control === "median" && field.value <= 1 ? "off" : field.value;
    if (framed) return;
    framed = true;
    requestAnimationFrame(() => {
      framed = false;
      const panel = field.closest(".conditioning");   // null if an update has replaced the field meanwhile
      if (panel) redraw(panel);
    });
  });

  const redrawAll = () => { for (const panel of document.querySelectorAll(".studio .conditioning")) redraw(panel); };
  studio.afterPatch.push((root) => { if (root.querySelector(".conditioning")) redrawAll(); });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-panel-of]")) setTimeout(redrawAll, 0);
    // The view of the image in progress stays on when the next image begins.
    if (event.target.closest(".studio [data-follow]")) studio.look({ mode: "drawing", case: null, follow: false });
  });
})();
