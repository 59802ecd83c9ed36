// Requests to the studio, for all pages but the annotators'. A request returns its reply, or throws an Error with a
// sentence for a person, its `field` if it has one, the HTTP `status` of a refusal, and `lost` if there was no answer.
(() => {
  "use strict";
  const wire = (window.wire = {});

  // The path below which a proxy serves the studio, or "". Requests of this file get it; other addresses by `wire.at`.
  const own = document.currentScript.src;
  wire.root = own ? new URL(own).pathname.replace(/\/ui\/[^/]*$/, "") : "";
  wire.at = (address) => (address.startsWith("/") ? wire.root + address : address);

  // Return the result if it comes in time; a later one is ignored.
  wire.within = (milliseconds, asked) => {
    const late = wire.pause(milliseconds).then(() => { throw new Error("No answer from the studio."); });
    return Promise.race([asked, late]);
  };

  // Return the result of a function of the server. For a failed call, Gradio returns nothing and no reason.
  wire.answered = async (asked) => {
    const reply = await asked;
    if (reply === undefined) throw new Error("No answer from the studio.");
    return reply;
  };

  wire.pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));
  // Ask again and again while `shown` returns true for the answer.
  wire.until = async (ask, shown, pause = 500) => { while (shown(await ask())) await wire.pause(pause); };

  const lost = () => Object.assign(new Error("No answer from the studio: is it running? Nothing was changed."), { lost: true });
  const reached = async (path, how) => { try { return await fetch(wire.at(path), how); } catch { throw lost(); } };
  const told = async (reply) => {
    let said;
    if (reply.status === 401) signedOut();
    try { said = await reply.json(); } catch { throw reply.ok ? lost() : Object.assign(new Error(`The studio answered with an error (${reply.status}). Please reload the page.`), { status: reply.status }); }
    if (!reply.ok) throw Object.assign(new Error(said.error || `The studio refused the request (${reply.status}).`), { field: said.field, status: reply.status });
    return said;
  };
  // Return the JSON of a reply.
  wire.ask = async (path, how) => told(await reached(path, how));
  // Return the reply itself if it is not JSON.
  wire.bytes = async (path) => {
    const reply = await reached(path);
    if (!reply.ok) await told(reply);
    try { return await reply.arrayBuffer(); } catch { throw lost(); }
  };
  wire.get = (path, query = {}) => wire.ask(Object.keys(query).length ? `${path}?${new URLSearchParams(query)}` : path);
  // Wait for an answer, and ask less and less often. `unheard` gets a message for the person each time.
  wire.patient = async (path, query = {}, unheard = () => {}) => {
    for (let pause = 500; ; pause = Math.min(2 * pause, 5000)) {
      try { return await wire.get(path, query); } catch (error) {
        if (!error.lost) throw error;
        unheard("The studio does not answer: is it running? The page keeps trying.");
      }
      await wire.pause(pause);
    }
  };
  // A running request is not sent again, as after a double click: both callers get the same answer. With `lasting` it
  // continues when the page is left. A browser allows 64 KiB of such requests together: the running one and the last.
  const underWay = new Map();   // path and body -> the promise of the answer
  wire.post = (path, data = {}, lasting = false) => {
    const body = JSON.stringify(data), what = `${path} ${body}`;
    if (!underWay.has(what)) {
      const how = { method: "POST", keepalive: lasting && new Blob([body]).size < 30000, headers: { "content-type": "application/json", "x-studio": "1" }, body };
      underWay.set(what, wire.atWork(wire.ask(path, how)).finally(() => underWay.delete(what)));
    }
    return underWay.get(what);
  };
  // Send a file unchanged, with its type if the browser cannot guess it.
  wire.sendFile = (path, file, kind = "application/octet-stream") =>
    wire.atWork(wire.ask(path, { method: "POST", headers: { "content-type": kind, "x-studio": "1" }, body: file }));

  // Return the files of dropped folders, each with its path. An unreadable file is null.
  wire.filesIn = async (entries, most = Infinity, found = []) => {
    for (const entry of entries) {
      if (found.length >= most) break;
      const path = entry.fullPath.replace(/^\//, "");
      try {
        if (entry.isFile) found.push({ path, file: await new Promise((take, refuse) => entry.file(take, refuse)) });
        else {
          const reader = entry.createReader();
          // the browser returns a hundred entries at a time
          for (let some; (some = await new Promise((take, refuse) => reader.readEntries(take, refuse))).length;) await wire.filesIn(some, most, found);
        }
      } catch { found.push({ path }); }
    }
    return found;
  };

  // The pressed button shows that it is at work until the answer has come.
  let pressed = null;
  const press = (button) => { pressed = button; setTimeout(() => { pressed = null; }, 0); };
  document.addEventListener("click", (event) => press(event.target.closest?.("button") ?? null), true);
  document.addEventListener("submit", (event) => press(event.submitter), true);
  wire.atWork = (asked, button = pressed) => {
    button?.setAttribute("aria-busy", "true");
    return wire.awaited(asked).finally(() => button?.removeAttribute("aria-busy"));
  };
  // While an action takes long, a line moves below the header.
  const SLOW = 800;   // milliseconds
  let slow = 0;
  const awaits = (by) => { slow += by; document.body.classList.toggle("awaits", slow > 0); };
  wire.awaited = (asked) => {
    let told = false;
    const timer = setTimeout(() => { told = true; awaits(1); }, SLOW);
    return asked.finally(() => { clearTimeout(timer); if (told) awaits(-1); });
  };

  // After a failed call of Gradio, check whether the person is still signed in.
  wire.failed = async () => {
    const looked = await fetch(wire.at("/ui/favicon.svg"), { cache: "no-store" }).catch(() => null);
    if (looked?.status === 401) signedOut();
  };

  // The sign-in of this page has ended, or the studio was restarted with a password since the page was opened.
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
