// Talking to the studio, for all its pages but the annotators': what is asked comes back, or an Error with a sentence for
// a person (and `field`, where it has one; `status`, the HTTP one of a refusal; and `lost` where nobody answered).
(() => {
  "use strict";
  const wire = (window.wire = {});

  // The path below which a proxy serves the studio, or "": it stands before the address of this script. All that this
  // file asks for gets it; other scripts put it before addresses with `wire.at`, once. A script within a page has none.
  const own = document.currentScript.src;
  wire.root = own ? new URL(own).pathname.replace(/\/ui\/[^/]*$/, "") : "";
  wire.at = (address) => (address.startsWith("/") ? wire.root + address : address);

  // What was asked, if it comes in time: what comes later is nobody's any more.
  wire.within = (milliseconds, asked) => {
    let timer = null;
    const late = new Promise((_, refuse) => { timer = setTimeout(() => refuse(new Error("No answer from the studio.")), milliseconds); });
    return Promise.race([asked, late]).finally(() => clearTimeout(timer));
  };

  // What a function of the server gave. Of a call that failed Gradio gives nothing, and does not say why.
  wire.answered = async (asked) => {
    const reply = await asked;
    if (reply === undefined) throw new Error("No answer from the studio.");
    return reply;
  };

  wire.pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

  const lost = () => Object.assign(new Error("No answer from the studio: is it running? Nothing was changed."), { lost: true });
  const reached = async (path, how) => { try { return await fetch(wire.at(path), how); } catch { throw lost(); } };
  const told = async (reply) => {
    let said;
    if (reply.status === 401) signedOut();
    try { said = await reply.json(); } catch { throw reply.ok ? lost() : Object.assign(new Error(`The studio answered with an error (${reply.status}). Please reload the page.`), { status: reply.status }); }
    if (!reply.ok) throw Object.assign(new Error(said.error || `The studio refused it (${reply.status}).`), { field: said.field, status: reply.status });
    return said;
  };
  // The JSON that came back.
  wire.ask = async (path, how) => told(await reached(path, how));
  // What came back as it is, for what is no JSON.
  wire.bytes = async (path) => {
    const reply = await reached(path);
    if (!reply.ok) await told(reply);
    try { return await reply.arrayBuffer(); } catch { throw lost(); }
  };
  wire.get = (path, query = {}) => wire.ask(Object.keys(query).length ? `${path}?${new URLSearchParams(query)}` : path);
  // What a page waits for, however long that takes: while nobody answers it is asked for again, less and less often, and
  // `unheard` is told each time what to say meanwhile.
  wire.patient = async (path, query = {}, unheard = () => {}) => {
    for (let pause = 500; ; pause = Math.min(2 * pause, 5000)) {
      try { return await wire.get(path, query); } catch (error) {
        if (!error.lost) throw error;
        unheard("The studio does not answer: is it running? The page keeps trying.");
      }
      await wire.pause(pause);
    }
  };
  // What is under way is not sent again, as by a double click: both get the one answer. `lasting`: it goes on when the
  // page is left. A browser holds 64 KiB of such requests, all together: one that is under way and the last.
  const underWay = new Map();   // path and body -> the answer to come
  wire.post = (path, data = {}, lasting = false) => {
    const body = JSON.stringify(data), what = `${path} ${body}`;
    if (!underWay.has(what)) {
      const how = { method: "POST", keepalive: lasting && new Blob([body]).size < 30000, headers: { "content-type": "application/json", "x-studio": "1" }, body };
      underWay.set(what, wire.atWork(wire.ask(path, how)).finally(() => underWay.delete(what)));
    }
    return underWay.get(what);
  };
  // A file as it is, with its kind where that is not to be guessed.
  wire.sendFile = (path, file, kind = "application/octet-stream") =>
    wire.atWork(wire.ask(path, { method: "POST", headers: { "content-type": kind, "x-studio": "1" }, body: file }));

  // The files of dropped folders, each with its path; one that cannot be read has no file.
  wire.filesIn = async (entries, most = Infinity, found = []) => {
    for (const entry of entries) {
      if (found.length >= most) break;
      const path = entry.fullPath.replace(/^\//, "");
      try {
        if (entry.isFile) found.push({ path, file: await new Promise((take, refuse) => entry.file(take, refuse)) });
        else {
          const reader = entry.createReader();
          // It gives a hundred at a time.
          for (let some; (some = await new Promise((take, refuse) => reader.readEntries(take, refuse))).length;) await wire.filesIn(some, most, found);
        }
      } catch { found.push({ path }); }
    }
    return found;
  };

  // The button that was just pressed says that it is at work until the answer has come.
  let pressed = null;
  const press = (button) => { pressed = button; setTimeout(() => { pressed = null; }, 0); };
  document.addEventListener("click", (event) => press(event.target.closest?.("button") ?? null), true);
  document.addEventListener("submit", (event) => press(event.submitter), true);
  wire.atWork = (asked, button = pressed) => {
    button?.setAttribute("aria-busy", "true");
    return wire.awaited(asked).finally(() => button?.removeAttribute("aria-busy"));
  };
  // While something takes longer that a person asked for, a line moves below the header.
  const SLOW = 800;   // milliseconds
  let slow = 0;
  const awaits = (by) => { slow += by; document.body.classList.toggle("awaits", slow > 0); };
  wire.awaited = (asked) => {
    let told = false;
    const timer = setTimeout(() => { told = true; awaits(1); }, SLOW);
    return asked.finally(() => { clearTimeout(timer); if (told) awaits(-1); });
  };

  // After a call of Gradio's failed: perhaps nobody is signed in any more.
  wire.failed = async () => {
    const looked = await fetch(wire.at("/ui/favicon.svg"), { cache: "no-store" }).catch(() => null);
    if (looked?.status === 401) signedOut();
  };

  // The sign-in of this page has ended, or the studio was started with a password since the page was opened.
  function signedOut() {
    if (document.getElementById("signed-out")) return;
    const locked = document.documentElement.classList.contains("locked");
    const why = locked ? "You are signed out" : "This studio asks for a password now";
    const { make } = window.patch;
    const way = make("a", { className: "btn p", href: wire.at(`/sign-in?next=${encodeURIComponent(location.pathname.slice(wire.root.length) + location.search)}`) }, "Sign in");
    const words = make("span", {}, `${why}, so nothing here is saved any more. Copy what you have just typed, then sign in${locked ? " again" : ""}.`);
    document.body.append(make("div", { id: "signed-out", className: "studio", role: "alert" }, make("div", { className: "card" }, words, way)));
  }
})();
