// The lead's pages of a started study: parts that are updated, decisions with a confirmation, sorting, and the keys of
// adjudication. Builds on study.js.
(() => {
  "use strict";
  const study = window.study;

  // ---- Parts that are updated
  const live = document.querySelector("[data-live]");
  // Do not update while a menu is open or text is selected.
  const rests = () => document.hidden || document.querySelector(".menu[open], dialog[open]") || !getSelection().isCollapsed;
  const every = Number(live?.dataset.every ?? 0);
  const following = live && study.following({
    get: (revision) => wire.get(live.dataset.live, { view: live.dataset.view, revision }),
    show(said) {
      if (said.state !== live.dataset.state) return location.reload();
      for (const [name, part] of Object.entries(said.parts)) {
        const slot = live.querySelector(`[data-part="${name}"]`);
        if (!slot || slot.dataset.stamp === part.stamp) continue;
        slot.dataset.stamp = part.stamp;
        patch(slot, part.html);
        const sorted = slot.querySelector("th[aria-sort]");
        if (sorted) sort(sorted, sorted.ariaSort === "ascending");
      }
    },
    pause: () => every, rests,
  });
  study.refresh = () => following.look(true);
  if (every) setTimeout(following.look, every);

  // ---- Decisions
  const { make } = window.patch;
  const tell = (title, ...content) => study.ask({ title, content, no: "Close" });
  function why(title, words) {
    const text = make("textarea", { rows: 3, maxLength: 500, id: "dialog-reason", autofocus: true });
    const act = () => {
      if (text.value.trim()) return { reason: text.value.trim() };
      text.focus();
      throw new Error("Please give the reason in a few words.");
    };
    return study.ask({ title, content: [words, make("label", { htmlFor: "dialog-reason" }, "Reason"), text], yes: title, no: "Cancel", act });
  }

  const act = async (button) => {
    const { decide: path, ask, title, reason } = button.dataset;
    const data = {};
    for (const [name, value] of Object.entries(button.dataset)) {
      if (name.startsWith("send")) data[name.slice(4, 5).toLowerCase() + name.slice(5)] = value;
    }
    const ways = [button, button.closest(".menu, tr")?.querySelector("summary")];
    button.closest(".menu")?.removeAttribute("open");
    const words = make("p", {}, ask ?? "");
    const given = !ask ? {} : reason ? await why(title, words) : await study.ask({ title, content: [words], yes: title, no: "Cancel", act: () => ({}) });
    if (given) {
      button.disabled = true;
      await send(path, { ...data, ...given }, title);
      button.disabled = false;
    }
    // Return the focus to the button, or to the menu of its row, unless the person has moved it meanwhile.
    for (const way of ways) if (document.activeElement === document.body) way?.focus();
  };
  const send = async (path, data, title) => {
    let said;
    try { said = await wire.post(path, data); } catch (error) { await tell("Not done", make("p", {}, error.message)); return; }
    if (said.code) {
      const copy = patch.button("Copy", null, { autofocus: true });
      copy.dataset.copyFrom = "#dialog-code";
      await tell(title, make("p", {}, said.words), make("code", { id: "dialog-code" }, said.code), copy);
    }
    try { if (live) await study.refresh(); else location.reload(); } catch {
      await tell("Done", make("p", {}, "The change is saved, but this page could not show it. Please reload the page."));
    }
  };
  patch.on("click", "[data-decide]", (button) => act(button));
  patch.on("click", ".sortable thead th:not([data-fixed])", (head) => sort(head, head.ariaSort === "descending"));

  // ---- Sorting
  const sort = (head, up) => {
    if (!head) return;
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.ariaSort = up ? "ascending" : "descending";
    const value = (row) => {
      const cell = row.cells[head.cellIndex];
      return cell.dataset.sort !== undefined ? Number(cell.dataset.sort) : cell.textContent.toLowerCase();
    };
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].sort((a, b) => { const [x, y] = [value(a), value(b)]; return x < y ? -1 : x > y ? 1 : 0; });
    const focused = document.activeElement;
    body.append(...(up ? rows : rows.reverse()));
    if (focused !== document.activeElement) focused.focus({ preventScroll: true });   // moving an element takes its focus away
  };

  // ---- Adjudication: one question after the other, by keys
  const deciding = document.getElementById("adjudicating");
  if (deciding?.dataset.send) {
    const reason = document.getElementById("reason"), peers = document.getElementById("peers");
    const draft = `studio-adjudication ${location.pathname} ${reason.dataset.keep}`;
    reason.value = kept.tab.get(draft) ?? reason.value;
    reason.addEventListener("input", () => kept.tab.set(draft, reason.value));
    // Nobody may decide on an unseen image: keys are ignored while the image loads.
    const pictures = [...deciding.querySelectorAll("img")], answers = deciding.querySelectorAll("button[data-answer]");
    const look = () => { for (const one of answers) one.disabled = pictures.some((image) => !image.complete); };
    for (const image of pictures) for (const name of ["load", "error"]) image.addEventListener(name, look);
    look();
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });   // the case may be decided by now
    let sending = false;
    const decide = async (answer) => {
      if (sending) return;
      sending = true;
      try {
        const { item, question, send } = deciding.dataset;
        const said = await wire.post(send, { item: Number(item), question, answer, reason: reason.value });
        kept.tab.remove(draft);
        location.assign(wire.at(said.next));
      } catch (error) {
        const refused = document.getElementById("refused");
        refused.textContent = error.message;
        refused.hidden = false;
        sending = false;
      }
    };
    patch.on("click", "#adjudicating [data-answer]", (button) => decide(button.dataset.answer));
    document.addEventListener("keydown", (event) => {
      if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.target.closest("input, textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
      const target = [...deciding.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
      if (target) target.click();
      else if (event.key === "r") reason.focus();
      else if (event.key === "v") peers.open = !peers.open;
      else return;
      event.preventDefault();
    });
  }
})();
