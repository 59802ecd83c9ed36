// The browser's side of `ui.explore.page`: sends the person's actions, one batch after the other, and updates the parts
// of the page without touching a field in use. No rule of the studio is in this script.
(() => {
  "use strict";
  const AT_FIRST = { case: null, mode: "result", only: "", follow: false, edited: false };
  const POLL_BUSY = 400, POLL_PREDICTING = 1000, POLL_IDLE = 4000, LOST = 20000;
  const TAB = Math.random().toString(36).slice(2);   // identifies this page among others when it saves
  const studio = { run: "", state: 0, start: "", revision: "", server: null, upload: null, view: { ...AT_FIRST }, find: "", cases: [], strip: [], active: false, idle: false, lost: false, held: null, afterPatch: [], onSend: {} };
  window.studio = studio;
  const parts = {};            // name -> stamp (hash) of the shown part
  const roots = {};            // name -> the element of the part
  const early = {};            // name -> markup that arrived before its element
  const queue = [];            // actions that wait for the reply to earlier ones
  let flying = null, pointerDown = false, presses = 0, pollTimer = null;

  // ---- Gradio: one component brings the functions of the server, each other one is the place of a part

  studio.connect = (server, upload) => {
    Object.assign(studio, { server, upload });
    // A person who returns to the start page wants the start page, whatever was open since.
    const asked = new URLSearchParams(location.search).get("run");
    const wanted = asked ?? history.state?.run ?? kept.browser.get("studio-run") ?? "";
    // The last run of this browser may be of another workspace: then it is not an error.
    send({ name: "open", fields: { run: wanted }, image: here().image, unasked: asked === null });
  };

  studio.part = (element) => {
    const root = element.querySelector("[data-part]");
    roots[root.dataset.part] = root;
    if (root.dataset.part in early) show({ [root.dataset.part]: early[root.dataset.part] });
  };

  // Insert all changed parts first and measure afterwards, so that the browser lays out the page only once.
  function show(changed) {
    const fitted = [];
    studio.fitting = true;   // an element that loses the focus now was not left by the person
    for (const [name, text] of Object.entries(changed)) {
      if (!roots[name]) { early[name] = text; continue; }
      const stamp = /^<!--(\w+)-->/.exec(text);
      patch(roots[name], text.slice(stamp[0].length), (field) => field.ticked > performance.now());   // the reply is older than the tick
      parts[name] = stamp[1];
      fitted.push(roots[name]);
    }
    studio.fitting = false;
    fitted.forEach(afterPatch);
  }

  // ---- Sending

  // Return true if a person's change is unanswered, so that the page does not show its effect yet.
  const LOOKS = ["poll", "open", "new"];
  const changing = () => [...(flying ?? []), ...queue].some(({ name, fields }) => !LOOKS.includes(name) && !("shown" in (fields ?? {})));

  function send(action) {
    // A person who goes elsewhere leaves the field in use, and its text belongs to this run.
    if (action?.name === "open" || action?.name === "new") document.activeElement?.closest("textarea, input")?.blur();
    if (action?.name in studio.onSend) studio.onSend[action.name](action);
    // An approval concerns the images shown when it was given, and the person's own latest changes.
    if (action?.fields && "shown" in action.fields && changing()) action.fields.shown = "";
    // Send the state of the settings and prompts that the person saw: another page may change them meanwhile.
    if (action) queue.push({ state: studio.state, ...action });
    studio.idle = false;
    // A field may be left between press and release. Its text must be sent before the button's action.
    if (!pointerDown) pump();
  }

  async function pump() {
    if (!studio.server || flying || !queue.length) return;
    const mine = flying = queue.splice(0);
    clearTimeout(pollTimer);
    const batch = { do: mine.map(({ done, refused, lost, image, unasked, ...plain }) => plain), tab: TAB, run: studio.run, view: viewAfter(mine), find: studio.find, picked: [...studio.picked.keys()].slice(0, 200), seen: { ...parts }, revision: studio.revision };
    let reply;
    const asked = wire.within(LOST, wire.answered(studio.server.answer(batch)));
    try { reply = await (mine.every(({ name }) => name === "poll") ? asked : wire.awaited(asked)); } catch { giveUp(); return; }
    // The element under a pressed pointer must not change before the release.
    if (pointerDown) studio.held = reply; else onReply(reply);
  }

  function giveUp() {
    for (const action of flying) if (action.lost) action.lost();
    // Opening a run twice does no harm. For other actions nobody knows whether they were done.
    queue.unshift(...flying.filter((action) => action.name === "open"));
    flying = null;
    setLost(true);
    wire.failed();
    schedule();
  }

  function onReply(reply) {
    // The server was restarted: nothing on this page needs to match it.
    if (studio.start && reply.start && reply.start !== studio.start) { location.reload(); return; }
    setLost(false);
    if (reply.same) { flying = null; settle(); return; }
    const arriving = !studio.start;
    studio.start = reply.start;
    studio.revision = reply.revision;
    const batch = flying;
    flying = null;
    const moved = reply.run !== studio.run;
    // A refused action ends its batch: the later ones were not tried.
    batch.forEach((action, place) => {
      if (place < reply.ended) action.done?.();
      else if (reply.problem && place === reply.ended) action.refused?.(reply.problem, reply.field, reply.where);
      else (action.lost ?? action.refused)?.(reply.problem, "", "");
    });
    const view = viewAfter(batch);
    if (moved) studio.view = view === studio.view ? { ...AT_FIRST, edited: studio.view.edited } : view;
    const followed = studio.view.follow && reply.cases.length > studio.cases.length;
    if (followed) Object.assign(studio.view, { case: null, follow: false });
    // Show a new image as soon as it exists, unless the person has selected another.
    if (reply.cases.length > studio.cases.length && studio.view.case === studio.cases.at(-1)) studio.view.case = null;
    studio.run = reply.run;
    studio.state = reply.state;
    studio.cases = reply.cases;
    studio.strip = reply.strip;
    studio.active = reply.active;
    studio.predicting = reply.predicting;
    document.body.dataset.view = reply.run ? "run" : "start";
    kept.browser.set("studio-run", reply.run, true);
    const there = here().run;
    // After Back or Forward the address is right already. While another run is still to be opened, its address counts.
    if (!queue.some((action) => action.name === "open")) mark(there === reply.run);
    const onlyPolled = batch.every((action) => action.name === "poll");
    show(reply.parts);
    for (const where of ["start", "upload", "source", "mask"]) {
      const said = reply.problem && reply.where === where && !batch.some(({ unasked }) => unasked) ? reply.problem : "";
      if (said || !onlyPolled) tell(where, said);
    }
    if (reply.undone) studio.say(reply.undone.said, "", { word: reply.undone.again === "redo" ? "Redo" : "Undo", do: () => send({ name: reply.undone.again }) });
    // A selected run starts at its top. After a reload, Back or Forward, the position stays.
    if (moved && !arriving && there !== reply.run) for (const place of [window, document.getElementById("part-pictures")]) place?.scrollTo(0, 0);
    if (followed) queue.push({ name: "poll" });   // the new image, in place of the one shown before
    settle();
  }

  // Idle: all actions are answered and their results are shown.
  function settle() {
    setTimeout(() => { if (queue.length) pump(); else schedule(); studio.idle = !queue.length && !flying; }, 0);
  }

  const untold = {};   // where -> a problem whose place is not on the page yet
  function tell(where, problem) {
    const place = document.getElementById(`${where}-problem`);
    if (place) { place.textContent = problem; place.className = problem ? "problem" : ""; }
    if (problem && !place) untold[where] = problem; else delete untold[where];
  }

  // ---- The address: start page, run, image. A click that opens one adds a step for Back

  const here = () => {
    const query = new URLSearchParams(location.search);
    return { run: query.get("run") ?? "", image: Number(query.get("image")) || null };
  };
  // The view after these actions: another run with its newest image, or with the requested one.
  const viewAfter = (actions) => {
    const opened = actions.findLast((action) => action.name === "open");
    return opened && opened.fields.run !== studio.run ? { ...AT_FIRST, edited: studio.view.edited, case: opened.image ?? null } : studio.view;
  };

  // Set the address to what is shown; with `stay`, without a step for Back.
  function mark(stay) {
    const { run, view } = studio, there = here();
    if (history.state && there.run === run && there.image === view.case) return;
    const query = run ? `?run=${run}${view.case ? `&image=${view.case}` : ""}` : location.pathname;
    history[stay || !history.state ? "replaceState" : "pushState"]({ run }, "", keepTheme(query));
  }

  const keepTheme = (address) => {
    const theme = new URLSearchParams(location.search).get("__theme");
    return theme ? `${address}${address.includes("?") ? "&" : "?"}__theme=${theme}` : address;
  };

  function schedule() {
    clearTimeout(pollTimer);
    pollTimer = setTimeout(() => {
      if (document.hidden && !studio.active) { schedule(); return; }
      if (!flying && !queue.length) send({ name: "poll" }); else pump();
    }, studio.active ? POLL_BUSY : studio.predicting ? POLL_PREDICTING : POLL_IDLE);
  }

  function setLost(lost) {
    studio.lost = lost;
    document.body.classList.toggle("lost", lost);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && !flying) send({ name: "poll" }); });
  window.addEventListener("popstate", () => {
    const { run, image } = here();
    if (run !== studio.run) return void send({ name: "open", fields: { run }, image });
    Object.assign(studio.view, { case: image, follow: false });
    send({ name: "poll" });
  });

  function afterPatch(root) {
    for (const area of root.querySelectorAll("textarea")) { fields.fitHeight(area); fields.mark(area); }
    for (const [where, problem] of Object.entries(untold)) tell(where, problem);
    for (const hook of studio.afterPatch) hook(root);
  }

  // The click is handled first. If the pointer is down again by then, its next release counts.
  const release = () => {
    const mine = presses;
    setTimeout(() => {
      if (mine !== presses) return;
      pointerDown = false;
      const reply = studio.held;
      studio.held = null;
      if (reply) onReply(reply);
      pump();
    }, 0);
  };
  document.addEventListener("pointerdown", (event) => {
    pointerDown = event.button === 0;
    presses += 1;
    if (!pointerDown) release();   // a menu of the system may hide the events that follow
  }, true);
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, release, true);
  window.addEventListener("blur", release);   // the pointer was released over another window

  Object.assign(studio, { send, tell, mark });

  const ready = () => { document.body.dataset.view ??= "start"; window.dispatchEvent(new Event("studio-ready")); };
  // If the page was ready before the scripts, it waits for all scripts, since later ones are not loaded yet.
  if (document.body) queueMicrotask(ready); else document.addEventListener("DOMContentLoaded", ready);
})();
