// Shared functions of the annotators' page: theme, making of elements, storage of this browser, and requests to the
// server. The browser keeps an answer until the server has confirmed that it is saved. After a lost connection the
// answer is sent again with the same key, so it can never count twice.
(() => {
  "use strict";
  // The path below which a proxy serves the studio, or "". It comes before the address of this script.
  const ROOT = new URL(document.currentScript.src).pathname.replace(/\/annotate\/assets\/[^/]*$/, "");
  const API = `${ROOT}/annotate/api/`, KEPT = `annotate${ROOT}-`;   // other studios on this host have keys of their own
  const ANSWER_WITHIN = 20000, LONGEST_WAIT = 15, DRAFTS = 40, SAVE_DRAFT = 600;
  const annotate = { worker: "", preview: "", keepsNothing: false, onLost: () => {} };
  window.annotate = annotate;

  // ---- Light and dark: the system decides until the person chooses

  const isDark = () => {
    const chosen = kept("theme");
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  annotate.showTheme = () => document.documentElement.classList.toggle("dark", isDark());
  annotate.switchTheme = () => { keep("theme", isDark() ? "light" : "dark"); annotate.showTheme(); };

  // ---- Elements: text in them is never parsed as markup

  function make(name, properties = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (key === "class") element.className = value;
      else element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }
  // A request is not sent again before its answer has come: a double click would join twice.
  const once = (act) => {
    let busy = false;
    return async (event) => {
      if (busy) return;
      busy = true;
      try { await act(event); } finally { busy = false; }
    };
  };
  const button = (words, onclick, properties = {}) =>
    make("button", { type: "button", onclick: once(onclick), ...properties, class: `btn ${properties.class ?? ""}`.trim() }, words);
  const key = (name) => make("kbd", { "aria-hidden": "true" }, name);
  const paragraphs = (text) => text.split(/\n{2,}/).filter((part) => part.trim()).map((part) => make("p", {}, part.trim()));

  // ---- Kept in this browser (`kept.js`)

  const { browser } = window.kept;
  function kept(name) {
    try { return JSON.parse(browser.get(`${KEPT}${name}`)); } catch { return null; /* not our data */ }
  }
  // Return true if the browser keeps the value beyond this page.
  function keep(name, value) {
    if (value !== null) return browser.set(`${KEPT}${name}`, JSON.stringify(value), true);
    browser.remove(`${KEPT}${name}`);
    return true;
  }

  // Unsent input is kept here at once and on the server a moment later. The later of the two versions counts.
  let unsaved = null, saving = null;
  annotate.draft = (id, there) => {
    const here = kept("drafts")?.[id] ?? null;
    return here && there ? (here.at >= there.at ? here : there) : here ?? there ?? null;
  };
  annotate.keepDraft = (id, draft) => {
    if (annotate.preview) return;
    const before = kept("drafts")?.[id] ?? null, said = (of) => JSON.stringify([of?.answers, of?.comment]);
    store(id, draft);
    if (said(before) === said(draft)) return;
    unsaved = { assignment: id, ...(draft ?? { answers: {}, comment: "", seconds: 0, at: Date.now() }) };
    clearTimeout(saving);
    saving = setTimeout(annotate.saveDraft, SAVE_DRAFT);
  };
  // Remove the draft: it was sent, or can no longer be sent.
  annotate.dropDraft = (id) => {
    if (unsaved?.assignment === id) { clearTimeout(saving); unsaved = null; }
    if (!annotate.preview) store(id, null);
  };
  annotate.saveDraft = () => {
    clearTimeout(saving);
    if (!unsaved || !annotate.worker) return;
    const body = unsaved;
    unsaved = null;
    ask("POST", `${API}draft`, body, true);    // if this request is lost, this browser still has the draft
  };
  function store(id, draft) {
    const drafts = kept("drafts") ?? {};
    delete drafts[id];             // the latest drafts come last
    if (draft) drafts[id] = draft;
    keep("drafts", Object.fromEntries(Object.entries(drafts).slice(-DRAFTS)));
  }
  // The answer that was sent but not confirmed, by worker, since another worker may sign in here meanwhile.
  annotate.outbox = () => kept("outbox")?.[annotate.worker] ?? null;
  annotate.keepOutbox = (sent) => {
    if (annotate.preview) return;
    const all = kept("outbox") ?? {};
    delete all[annotate.worker];
    if (sent) all[annotate.worker] = sent;
    annotate.keepsNothing = !keep("outbox", Object.keys(all).length ? all : null);
  };
  addEventListener("beforeunload", (event) => { if (annotate.keepsNothing) event.preventDefault(); });
  annotate.newKey = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

  // ---- The server

  // Status 0 means no answer, or an answer from another server.
  async function ask(method, address, body, leaving = false) {
    try {
      const reply = await fetch(address, {
        method,
        headers: { "x-studio": "1", ...(body ? { "content-type": "application/json" } : {}) },
        body: body && JSON.stringify(body),
        cache: "no-store",
        keepalive: leaving,        // the request continues when the page is left
        signal: AbortSignal.timeout(ANSWER_WITHIN),
      });
      return { status: reply.status, data: await reply.json() };
    } catch { return { status: 0, data: {} }; }
  }

  // Try until there is an answer. `keeps` is true if an answer to an item is being sent.
  async function patiently(method, address, body, keeps) {
    for (let tries = 0; ; tries += 1) {
      const reply = await ask(method, address, body);
      if (reply.status && reply.status < 500) {
        if (tries) annotate.onLost(null);
        const ok = reply.status < 400;
        if (!ok && !reply.data.error) reply.data = { error: `The server refused the request (${reply.status}).` };
        return { ok, ...reply };
      }
      await waiting(Math.min(LONGEST_WAIT, 2 ** tries), keeps, reply.status);
    }
  }

  function waiting(seconds, keeps, status) {
    return new Promise((resolve) => {
      let left = seconds;
      const go = () => { clearInterval(timer); removeEventListener("online", go); resolve(); };
      const say = () => annotate.onLost({ left, keeps, status, now: go });
      const timer = setInterval(() => { left -= 1; if (left <= 0) go(); else say(); }, 1000);
      addEventListener("online", go);
      say();
    });
  }

  annotate.get = (name) => patiently("GET", API + name);
  annotate.post = (name, body, keeps = false) => patiently("POST", API + name, body, keeps);
  annotate.previewed = (number, answers = {}) => patiently("POST", `${ROOT}/study/api/${encodeURIComponent(annotate.preview)}/preview-step`, { number, answers });
  annotate.imageAddress = (image) => ROOT + (image.startsWith("/") ? image : `/annotate/image/${encodeURIComponent(image)}`);

  Object.assign(annotate, { make, button, once, key, paragraphs, kept, keep });
  annotate.showTheme();
})();
