// The lead's pages of a study that has started: parts that follow the study, decisions with a question before them,
// sorting, and the keys of adjudication. Builds on study.js.
(() => {
  "use strict";
  const study = window.study;
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]");

  // ---- Parts that follow the study
  const live = document.querySelector("[data-live]");
  let asked = 0, revision = "";
  study.refresh = async () => {
    const mine = ++asked;
    const said = await wire.get(live.dataset.live, { view: live.dataset.view, revision });
    if (said.same || mine !== asked) return;   // a later reply is on its way, or here already
    if (said.state !== live.dataset.state) return location.reload();
    revision = said.revision;
    for (const [name, part] of Object.entries(said.parts)) {
      const slot = live.querySelector(`[data-part="${name}"]`);
      if (!slot || slot.dataset.stamp === part.stamp) continue;
      slot.dataset.stamp = part.stamp;
      patch(slot, part.html);
      const sorted = slot.querySelector("th[aria-sort]");
      if (sorted) sort(sorted, sorted.ariaSort === "ascending");
    }
  };
  const watch = async () => {
    // Nothing is redrawn under a person's hands: not while a menu is open, and not while a text is marked.
    const busy = document.querySelector(".menu[open], dialog[open]") || !getSelection().isCollapsed;
    if (!document.hidden && !busy) {
      try { await study.refresh(); document.body.classList.remove("lost"); } catch { document.body.classList.add("lost"); }
    }
    setTimeout(watch, Number(live.dataset.every));
  };
  if (live?.dataset.every) setTimeout(watch, Number(live.dataset.every));

  // ---- Decisions
  const make = (name, fields = {}, ...children) => {
    const made = Object.assign(document.createElement(name), fields);
    made.append(...children);
    return made;
  };
  const dialog = (title, words, { reason = false, code = "", told = false } = {}) => new Promise((resolve) => {
    const text = make("textarea", { rows: 3, maxLength: 500, id: "dialog-reason" });
    const refused = make("p", { className: "problem", hidden: true });
    refused.setAttribute("role", "alert");
    const no = make("button", { type: "button", className: "btn", textContent: code || told ? "Close" : "Cancel" });
    const yes = make("button", { type: "submit", className: "btn p", textContent: title });
    const copy = make("button", { type: "button", className: "btn", textContent: "Copy" });
    copy.dataset.copyFrom = "#dialog-code";
    const label = make("label", { htmlFor: "dialog-reason", textContent: "Reason" });
    const form = make("form", {}, make("h2", { textContent: title }), make("p", { textContent: words }),
      ...(code ? [make("code", { id: "dialog-code", textContent: code })] : []), ...(reason ? [label, text] : []), refused,
      make("div", { className: "acts" }, no, ...(told ? [] : [code ? copy : yes])));
    const asked = make("dialog", { className: "ask" }, form);
    document.querySelector(".studio").append(asked);
    const end = (value) => { asked.close(); asked.remove(); resolve(value); };
    no.onclick = () => end(null);
    asked.oncancel = (event) => { event.preventDefault(); end(null); };
    form.onsubmit = (event) => {
      event.preventDefault();
      if (reason && !text.value.trim()) {
        refused.textContent = "Please give the reason in a few words.";
        refused.hidden = false;
        text.focus();
        return;
      }
      end({ reason: text.value.trim() });
    };
    asked.showModal();
    (reason ? text : code ? copy : told ? no : yes).focus();
  });

  const act = async (button) => {
    const { decide: path, ask, title, reason } = button.dataset;
    const data = {};
    for (const [name, value] of Object.entries(button.dataset)) {
      if (name.startsWith("send")) data[name.slice(4, 5).toLowerCase() + name.slice(5)] = value;
    }
    const ways = [button, button.closest(".menu, tr")?.querySelector("summary")];
    button.closest(".menu")?.removeAttribute("open");
    const given = ask ? await dialog(title, ask, { reason: Boolean(reason) }) : {};
    if (given) {
      if (given.reason) data.reason = given.reason;
      button.disabled = true;
      await send(path, data, title);
      button.disabled = false;
    }
    // The focus goes back to the button, or to the menu of its row, unless the person has put it elsewhere meanwhile.
    for (const way of ways) if (document.activeElement === document.body) way?.focus();
  };
  const send = async (path, data, title) => {
    let said;
    try { said = await wire.post(path, data); } catch (error) { await dialog("Not done", error.message, { told: true }); return; }
    if (said.code) await dialog(title, said.words, { code: said.code });
    try { if (live) await study.refresh(); else location.reload(); } catch {
      await dialog("Done", "It is done, but this page could not be drawn anew. Please reload it.", { told: true });
    }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-decide]");
    if (button) return void act(button);
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    const head = event.target.closest(".sortable thead th:not([data-fixed])");
    if (head) sort(head, head.ariaSort === "descending");
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll(".menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); }
  });

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
    if (focused !== document.activeElement) focused.focus({ preventScroll: true });   // what is moved loses it
  };

  // ---- Adjudication: one question after the other, by keys
  const deciding = document.getElementById("adjudicating");
  if (deciding?.dataset.send) {
    const reason = document.getElementById("reason"), peers = document.getElementById("peers");
    const draft = `studio-adjudication ${location.pathname} ${reason.dataset.keep}`;
    reason.value = kept.tab.get(draft) ?? reason.value;
    reason.addEventListener("input", () => kept.tab.set(draft, reason.value));
    // Nobody decides what they have not seen: no key that was meant for the image before counts while this one loads.
    const pictures = [...deciding.querySelectorAll("img")], answers = deciding.querySelectorAll("button[data-answer]");
    const look = () => { for (const one of answers) one.disabled = pictures.some((image) => !image.complete); };
    for (const image of pictures) for (const name of ["load", "error"]) image.addEventListener(name, look);
    look();
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });   // it may be decided by now
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
    deciding.addEventListener("click", (event) => {
      const button = event.target.closest("[data-answer]");
      if (button) decide(button.dataset.answer);
    });
    document.addEventListener("keydown", (event) => {
      if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (typing(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
      const target = [...deciding.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
      if (target) target.click();
      else if (event.key === "r") reason.focus();
      else if (event.key === "v") peers.open = !peers.open;
      else return;
      event.preventDefault();
    });
  }
})();
