// The list of runs: search, renaming, deletion and restoring.
(() => {
  "use strict";
  const studio = window.studio;
  const { send, say } = studio;
  const refused = (problem) => say(problem, "bad");

  patch.on("click", "[data-remove-run], [data-remove-picked], [data-keep-run], [data-rename-run], #column-runs [data-do]", (target) => {
    if ("removeRun" in target.dataset) remove(target.dataset.removeRun, target.dataset.name);
    else if ("removePicked" in target.dataset) removePicked();
    else if ("renameRun" in target.dataset) rename(target.dataset.renameRun);
    // A person who keeps the run stays in its menu.
    const parts = "keepRun" in target.dataset ? "details.ask" : "details:is(.ask, .menu)";
    for (const part of document.querySelectorAll(parts)) if (part.contains(target)) part.open = false;
  });

  function remove(run, name) {
    const back = () => send({ name: "restore-run", fields: { run }, refused });
    if (picked.has(run)) toggle(run, false);
    send({ name: "delete-run", fields: { run }, refused, done: () => say(`“${name}” was deleted.`, "", { word: "Undo", do: back }) });
  }

  function removePicked() {
    const runs = [...picked.keys()], back = () => send({ name: "restore-runs", fields: { runs }, refused });
    const said = runs.length === 1 ? "One run was deleted." : `${runs.length} runs were deleted.`;
    const done = () => { pick(false); say(said, "", { word: "Undo", do: back }); };
    send({ name: "delete-runs", fields: { runs }, refused, done });
  }

  function rename(run) {
    // The field exists once the run has arrived: its parts come with the same reply, right after this.
    const show = () => setTimeout(() => { const field = document.getElementById("run-name"); field?.focus(); field?.select(); }, 0);
    document.body.classList.remove("runs-open");   // the list would cover the field
    send({ name: "open", fields: { run }, done: show });
  }

  // ---- Selection of several runs: kept in this script, also during a search

  const picked = new Map(remembered().map((run) => [run, 0]));   // id -> number of its accepted images
  function remembered() {
    const asked = new URLSearchParams(location.search).get("picked");   // runs that a plan has begun
    if (asked) kept.browser.set("studio-picked", JSON.stringify(asked.split(",").filter((run) => /^[0-9a-f]{16}$/.test(run))));
    try { return JSON.parse(kept.browser.get("studio-picked") ?? "[]").map(String); } catch { return []; }
  }
  const picking = () => "picking" in document.body.dataset;

  const acceptedOf = (box) => Number(box?.closest(".pick").dataset.accepted ?? 0);

  function pick(on) {
    if (on) document.body.dataset.picking = ""; else { delete document.body.dataset.picking; picked.clear(); }
    changed();
  }

  // The start page shows the selected runs together.
  function together(runs) {
    picked.clear();
    for (const run of runs) picked.set(run, 0);
    changed();
  }

  function changed() {
    kept.browser.set("studio-picked", JSON.stringify([...picked.keys()]));
    showPicked();
    if (document.body.dataset.view === "start") send({ name: "poll" });
  }

  function showPicked() {
    document.getElementById("select-runs")?.setAttribute("aria-pressed", String(picking()));
    for (const box of document.querySelectorAll("[data-pick-run]")) {
      box.checked = picked.has(box.dataset.pickRun);
      if (box.checked) picked.set(box.dataset.pickRun, acceptedOf(box));
    }
    const open = document.getElementById("open-picked");
    document.getElementById("delete-picked")?.toggleAttribute("hidden", !picked.size);
    if (open) open.hidden = !picked.size || document.body.dataset.view === "start";
    const count = document.getElementById("picked-count"), save = document.getElementById("save-picked");
    if (!count) return;
    const accepted = [...picked.values()].reduce((sum, one) => sum + one, 0);
    count.textContent = picked.size ? `${picked.size} selected` : "None selected";
    save.lastChild.textContent = accepted ? `Save ${accepted} accepted` : "Save accepted";
    save.toggleAttribute("aria-disabled", !accepted);
    if (accepted) save.href = `download/accepted.zip?${new URLSearchParams([...picked.keys()].map((run) => ["run", run]))}`;
    else save.removeAttribute("href");
  }

  function toggle(run, on) {
    const box = document.querySelector(`[data-pick-run="${CSS.escape(run)}"]`);
    if (on) picked.set(run, acceptedOf(box)); else picked.delete(run);
    changed();
  }

  Object.assign(studio, { picked, pick, together });
  studio.afterPatch.push((root) => { if (root.querySelector(".runs")) showPicked(); });

  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-select-runs]")) pick(!picking());
    else if (event.target.closest?.("[data-pick-all]")) {
      for (const box of document.querySelectorAll("[data-pick-run]")) picked.set(box.dataset.pickRun, acceptedOf(box));
      changed();
    } else if (event.target.closest?.("[data-unpick]")) toggle(event.target.closest("[data-unpick]").dataset.unpick, false);
    else if (event.target.closest?.("[data-close-together]")) pick(false);
    else if (picking() && event.target.closest?.(".run-item .run[data-run]")) {
      event.preventDefault();
      event.stopPropagation();   // the run is selected, not opened
      const { run } = event.target.closest(".run").dataset;
      toggle(run, !picked.has(run));
    }
  }, true);
  patch.on("change", "[data-pick-run]", (box) => toggle(box.dataset.pickRun, box.checked));

  // ---- Shares of changed values: loaded while that part is open
  document.addEventListener("toggle", (event) => {
    if (event.target.id === "edited-values" && studio.view.edited !== event.target.open) studio.look({ edited: event.target.open });
  }, true);

  // ---- Search

  patch.on("input", "#find-run", patch.rested(150, ({ value }) => { studio.find = value; send({ name: "poll" }); }));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.target.id !== "find-run" || !event.target.value) return;
    event.target.value = studio.find = "";
    event.stopPropagation();
    send({ name: "poll" });
  }, true);
})();
