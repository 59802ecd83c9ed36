// The coverage page: moving between cells by keys, finding a line while typing, and the window of a plan. Everything
// else is a link. After wire.js, patch.js and study.js.
(() => {
  "use strict";
  const table = document.getElementById("cells-table");
  const dialog = document.getElementById("plan-dialog");
  const columns = table ? [...table.tHead.rows[0].cells].map((cell) => cell.dataset.place) : [];

  // ---- Cells: Tab reaches one of them, and the arrows move on from there

  const main = (cell) => cell?.querySelector("a, button");
  // Name the cell of a button for people who cannot see its place.
  function name(cell) {
    const what = `${cell.parentElement.cells[0].firstChild.textContent} × ${table.tHead.rows[0].cells[cell.cellIndex].querySelector("a").textContent}`;
    const plan = cell.querySelector("[data-plan]");
    plan?.setAttribute("aria-label", cell.classList.contains("gone") ? `No images of ${what}: make some` : `Make more of ${what}`);
  }
  function enter(cell, focused) {
    name(cell);
    const old = table.querySelector("[data-here]");
    if (old) { delete old.dataset.here; for (const one of old.querySelectorAll("a, button")) one.tabIndex = -1; }
    cell.dataset.here = "";
    for (const one of cell.querySelectorAll("a, button")) one.tabIndex = 0;
    if (focused) main(cell)?.focus();
  }
  // Let Tab reach a visible cell.
  function enterFirst() {
    const first = [...table.tBodies[0].querySelectorAll("tr:not([hidden]) td")].find(main);
    if (first) enter(first, false);
  }
  if (table) {
    for (const one of table.tBodies[0].querySelectorAll("td > :is(a, button)")) one.tabIndex = -1;
    enterFirst();
    table.addEventListener("focusin", (event) => {
      const cell = event.target.closest("td");
      if (cell && !("here" in cell.dataset)) enter(cell, false);
    });
  }

  // Return the next cell with content in a direction. Hidden lines are skipped.
  function beside(cell, down, right) {
    let row = cell.parentElement, place = cell.cellIndex;
    for (;;) {
      place += right;
      if (down) do row = down > 0 ? row.nextElementSibling : row.previousElementSibling; while (row?.hidden);
      const next = row?.cells[place];
      if (!next || next.tagName !== "TD") return null;
      if (main(next)) return next;
    }
  }

  const WAYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const cell = event.target.closest?.("#cells-table td");
    if (event.key === "/" && !event.target.closest?.("input, select, textarea")) {
      event.preventDefault();
      document.getElementById("find-line")?.select();
    } else if (cell && WAYS[event.key]) {
      event.preventDefault();
      const next = beside(cell, ...WAYS[event.key]);
      if (next) { enter(next, true); next.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    } else if (cell && event.key.toLowerCase() === "m" && cell.querySelector("[data-plan]")) {
      event.preventDefault();
      plan(cell.parentElement.dataset.line, columns[cell.cellIndex]);
    }
  });

  // ---- Search: typing finds the lines on the page, Enter searches all lines

  const find = document.getElementById("find-line");
  find?.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    for (const row of table?.tBodies[0].rows ?? []) row.hidden = !row.dataset.line.toLowerCase().includes(wanted);
    if (table?.querySelector("[hidden] > [data-here]")) enterFirst();
  });
  document.getElementById("model")?.addEventListener("change", (event) => event.target.form.requestSubmit());

  // ---- A plan: its window first describes the runs that it would begin

  const SOURCES = 5;
  let asked = 0;
  async function plan(line, place, sources = SOURCES) {
    const mine = ++asked, cell = { grid: table.dataset.grid, line, place };
    try {
      const said = await wire.post("/curate/api/describe-cell-plan", { ...cell, sources });
      if (mine !== asked) return;
      window.study.fit(said.parts);
    } catch (error) {
      if (mine !== asked) return;
      refused(line, place, error.message);
    }
    if (!dialog.open) dialog.showModal();
  }

  function refused(line, place, sentence) {
    const part = document.getElementById("plan"), { make, button } = window.patch;
    const close = button("Close", () => dialog.close(), { className: "btn q", id: "plan-no" });
    const explore = make("a", { href: wire.at("/?run="), className: "btn p" }, "Open Explore");
    const acts = make("div", { className: "acts" }, close, explore);
    part.replaceChildren(make("h2", { id: "plan-title" }, "No plan for this cell"), make("p", {}, sentence), acts);
    Object.assign(part.dataset, { line, place });
  }

  patch.on("click", "[data-plan], [data-line][data-place]:is(button), #plan-go", (target) => {
    if (target.id === "plan-go") begin(target);
    else if ("plan" in target.dataset) plan(target.closest("tr").dataset.line, columns[target.closest("td").cellIndex]);
    else plan(target.dataset.line, target.dataset.place);
  });
  dialog.addEventListener("close", () => { asked += 1; });
  dialog.addEventListener("change", (event) => {
    if (event.target.id !== "plan-sources" || !event.target.validity.valid || !event.target.value) return;
    const { line, place } = document.getElementById("plan").dataset;
    plan(line, place, Number(event.target.value));
  });

  async function begin(button) {
    const { line, place } = document.getElementById("plan").dataset, field = document.getElementById("plan-sources");
    if (!field.reportValidity()) return;
    button.disabled = true;
    try {
      const said = await wire.post("/curate/api/plan-cell", { grid: table.dataset.grid, line, place, sources: Number(field.value) });
      location.assign(wire.at(said.go));
    } catch (error) {
      document.getElementById("plan-problem").textContent = error.message;
      button.disabled = false;
    }
  }
})();
