// The page's side of `ui.explore.page`: sends what a person does, one batch after the other, and fits the parts that come
// back into the page without touching a field that is being typed in. No rule of the studio is kept here.
(() => {
  "use strict";
  const AT_FIRST = { case: null, mode: "result", only: "", follow: false, edited: false };
  const POLL_BUSY = 400, POLL_PREDICTING = 1000, POLL_IDLE = 4000, LOST = 20000;
  const TAB = Math.random().toString(36).slice(2);   // tells this page from others, in what it saves
  const studio = { run: "", state: 0, start: "", revision: "", server: null, upload: null, view: { ...AT_FIRST }, find: "", cases: [], strip: [], active: false, idle: false, lost: false, held: null, afterPatch: [], onSend: {} };
  window.studio = studio;
  const parts = {};            // name -> stamp of what is shown
  const roots = {};            // name -> the element that holds it
  const early = {};            // name -> what came before its element was there
  const queue = [];            // actions that wait for the reply to the ones before
  let flying = null, pointerDown = false, presses = 0, pollTimer = null;

  // ---- Gradio: one component brings the functions of the server, the others are the places of a part each

  studio.connect = (server, upload) => {
    Object.assign(studio, { server, upload });
    // Who comes back to the start page wants the start page, whatever was looked at since.
    const asked = new URLSearchParams(location.search).get("run");
    const wanted = asked ?? history.state?.run ?? kept.browser.get("studio-run") ?? "";
    // The last run of this browser may be of another workspace: nobody has asked for it.
    send({ name: "open", fields: { run: wanted }, image: here().image, unasked: asked === null });
  };

  studio.part = (element) => {
    const root = element.querySelector("[data-part]");
    roots[root.dataset.part] = root;
    if (root.dataset.part in early) show({ [root.dataset.part]: early[root.dataset.part] });
  };

  // All that changed is fitted in first and looked at afterwards, so that the browser lays the page out once.
  function show(changed) {
    const fitted = [];
    studio.fitting = true;   // what loses the focus now, nobody has left
    for (const [name, text] of Object.entries(changed)) {
      if (!roots[name]) { early[name] = text; continue; }
      const stamp = /^<!--(\w+)-->/.exec(text);
      patch(roots[name], text.slice(stamp[0].length), (field) => field.ticked > performance.now());   // older than the tick
      parts[name] = stamp[1];
      fitted.push(roots[name]);
    }
    studio.fitting = false;
    fitted.forEach(afterPatch);
  }

  // ---- Sending

  // Whether a person's change is not answered yet, so that the page does not show what they made of it.
  const LOOKS = ["poll", "open", "new"];
  const changing = () => [...(flying ?? []), ...queue].some(({ name, fields }) => !LOOKS.includes(name) && !("shown" in (fields ?? {})));

  function send(action) {
    // Who goes elsewhere leaves the field that is typed in, and what it says belongs here.
    if (action?.name === "open" || action?.name === "new") document.activeElement?.closest("textarea, input")?.blur();
    if (action?.name in studio.onSend) studio.onSend[action.name](action);
    // A yes is to what was shown when it was said, and to what its person has just changed themselves.
    if (action?.fields && "shown" in action.fields && changing()) action.fields.shown = "";
    // Which settings and prompts the person looked at who did this: another page may change them before it is sent.
    if (action) queue.push({ state: studio.state, ...action });
    studio.idle = false;
    // Between press and release a field may have been left; what it says must go out before what the button does.
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
    // What is under a pressed pointer must not become something else before it is released.
    if (pointerDown) studio.held = reply; else onReply(reply);
  }

  function giveUp() {
    for (const action of flying) if (action.lost) action.lost();
    // To open a run twice does no harm; of anything else nobody knows whether it was done.
    queue.unshift(...flying.filter((action) => action.name === "open"));
    flying = null;
    setLost(true);
    wire.failed();
    schedule();
  }

  function onReply(reply) {
    // Another start of the server: nothing of this page need fit it.
    if (studio.start && reply.start && reply.start !== studio.start) { location.reload(); return; }
    setLost(false);
    if (reply.same) { flying = null; settle(); return; }
    const arriving = !studio.start;
    studio.start = reply.start;
    studio.revision = reply.revision;
    const batch = flying;
    flying = null;
    const moved = reply.run !== studio.run;
    // One that was refused ends its batch: those behind it were not tried.
    batch.forEach((action, place) => {
      if (place < reply.ended) action.done?.();
      else if (reply.problem && place === reply.ended) action.refused?.(reply.problem, reply.field, reply.where);
      else (action.lost ?? action.refused)?.(reply.problem, "", "");
    });
    const view = viewAfter(batch);
    if (moved) studio.view = view === studio.view ? { ...AT_FIRST, edited: studio.view.edited } : view;
    const followed = studio.view.follow && reply.cases.length > studio.cases.length;
    if (followed) Object.assign(studio.view, { case: null, follow: false });
    // A new image is shown as it comes, unless another one was picked.
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
    // Who goes back or forward is there already; and while another run is still to be opened, its address counts.
    if (!queue.some((action) => action.name === "open")) mark(there === reply.run);
    const onlyPolled = batch.every((action) => action.name === "poll");
    show(reply.parts);
    for (const where of ["start", "upload", "source", "mask"]) {
      const said = reply.problem && reply.where === where && !batch.some(({ unasked }) => unasked) ? reply.problem : "";
      if (said || !onlyPolled) tell(where, said);
    }
    if (reply.undone) studio.say(reply.undone.said, "", { word: reply.undone.again === "redo" ? "Redo" : "Undo", do: () => send({ name: reply.undone.again }) });
    // What was picked begins at its top. Who reloads, or goes back or forward, is where they were.
    if (moved && !arriving && there !== reply.run) for (const place of [window, document.getElementById("part-pictures")]) place?.scrollTo(0, 0);
    if (followed) queue.push({ name: "poll" });   // what it has made, in place of what was looked at before
    settle();
  }

  // Idle: all that was done has come back, and is shown.
  function settle() {
    setTimeout(() => { if (queue.length) pump(); else schedule(); studio.idle = !queue.length && !flying; }, 0);
  }

  const untold = {};   // where -> a problem whose place is not on the page yet
  function tell(where, problem) {
    const place = document.getElementById(`${where}-problem`);
    if (place) { place.textContent = problem; place.className = problem ? "problem" : ""; }
    if (problem && !place) untold[where] = problem; else delete untold[where];
  }

  // ---- The address: start page, run, image. What was gone to by a click has a place of its own for Back

  const here = () => {
    const query = new URLSearchParams(location.search);
    return { run: query.get("run") ?? "", image: Number(query.get("image")) || null };
  };
  // What is looked at once these are done: another run from its newest image on, or from the one that was asked for.
  const viewAfter = (actions) => {
    const opened = actions.findLast((action) => action.name === "open");
    return opened && opened.fields.run !== studio.run ? { ...AT_FIRST, edited: studio.view.edited, case: opened.image ?? null } : studio.view;
  };

  // The address becomes that of what is shown; with `stay` without a step for Back.
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

  // What is clicked comes first; and when the pointer is down again by then, it is its next release that counts.
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
    if (!pointerDown) release();   // a menu of the system may swallow what follows
  }, true);
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, release, true);
  window.addEventListener("blur", release);   // released over another window

  Object.assign(studio, { send, tell, mark });

  const ready = () => { document.body.dataset.view ??= "start"; window.dispatchEvent(new Event("studio-ready")); };
  // Where the page was there before the scripts, it waits for all of them: those after this one are not read yet.
  if (document.body) queueMicrotask(ready); else document.addEventListener("DOMContentLoaded", ready);
})();
