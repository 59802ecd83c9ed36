// The list of runs: finding, naming, deleting and putting back.
(() => {
  "use strict";
  const studio = window.studio;
  const { send, say } = studio;
  const refused = (problem) => say(problem, "bad");

  document.addEventListener("click", (event) => {
    const target = event.target.closest?.("[data-remove-run], [data-keep-run], [data-rename-run], #column-runs [data-do]");
    const menu = event.target.closest?.(".menu");
    for (const open of document.querySelectorAll(".run-item .menu[open]")) if (open !== menu) close(open);
    if (!target || target.disabled) return;
    if ("removeRun" in target.dataset) remove(target.dataset.removeRun, target.dataset.name);
    else if ("renameRun" in target.dataset) rename(target.dataset.renameRun);
    if (menu && !("keepRun" in target.dataset)) close(menu);
    const asked = target.closest(".ask");
    if (asked) asked.open = false;
  });

  function close(menu) {
    for (const inner of menu.querySelectorAll("details")) inner.open = false;
    menu.open = false;
  }

  function remove(run, name) {
    const back = () => send({ name: "run-restore", fields: { run }, refused });
    send({ name: "run-remove", fields: { run }, refused, done: () => say(`“${name}” was deleted.`, "", { word: "Undo", do: back }) });
  }

  function rename(run) {
    // The field is there once the run is: its parts come with the same reply, right after this.
    const show = () => setTimeout(() => { const field = document.getElementById("run-name"); field?.focus(); field?.select(); }, 0);
    send({ name: "open", fields: { run }, done: show });
  }

  // ---- Finding

  let searching = null;
  document.addEventListener("input", (event) => {
    if (event.target.id !== "find-run") return;
    clearTimeout(searching);
    searching = setTimeout(() => { studio.find = event.target.value; send({ name: "poll" }); }, 150);
  });
  document.addEventListener("keydown", (event) => {
    const open = event.target.closest?.(".run-item .menu[open]");
    if (event.key === "Escape" && event.target.id === "find-run" && event.target.value) {
      event.target.value = studio.find = "";
      event.stopPropagation();
      send({ name: "poll" });
    } else if (event.key === "Escape" && open) {
      event.stopPropagation();
      close(open);
      open.querySelector("summary").focus();
    }
  }, true);
})();
