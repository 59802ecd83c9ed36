// The steps of the annotators' page: sign-in, consent, one item after the other, and messages when there is no item.
// The server decides on the next step; this script only shows it.
(() => {
  "use strict";
  const annotate = window.annotate;
  const { make, button, key, paragraphs } = annotate;
  const LOOK_AGAIN = 15000;
  const app = document.getElementById("app");
  annotate.preview = document.body.dataset.preview ?? "";
  annotate.view = null;
  let study = null;              // the server's data of the open study
  let studies = [];
  let saved = "";                // text of the pill: "saved" only after the server has confirmed it
  let again = null, shownNumber = 1;
  let visit = 0;                 // number of moves of the person to a study, the list, an invitation or the sign-out

  // A reply to a request from before the latest move comes too late and is ignored. An answer that was being sent then
  // is kept, and sent again with the same key.
  const inTime = async (asking) => {
    const of = visit, reply = await asking;
    return of === visit ? reply : new Promise(() => {});
  };
  const get = (name) => inTime(annotate.get(name));
  const post = (name, body, keeps) => inTime(annotate.post(name, body, keeps));
  // The next request is the latest. Until it is answered, the page does not poll by itself.
  const goOn = () => { clearTimeout(again); visit += 1; };

  const lost = make("div", { class: "lost", role: "alert", hidden: true });
  const told = make("div", { class: "told notice", role: "status", hidden: true });
  document.body.append(lost, told);

  // The button stays the same element while the seconds count down, since it may have the focus.
  let tryNow = null;
  const losing = make("span");
  lost.append(losing, button("Try now", () => tryNow(), { class: "s" }));
  annotate.onLost = (state) => {
    lost.hidden = !state;
    if (!state) return;
    tryNow = state.now;
    const what = state.status ? "The server has a problem." : "No connection to the server.";
    const where = annotate.keepsNothing ? "in this page alone: keep it open. It is" : "on this device and";
    const kept = state.keeps ? ` Your answer is kept ${where} sent again` : " It is tried again";
    losing.textContent = `${what}${kept} in ${state.left} s.`;
  };

  let untell = null;
  function tell(text) {
    clearTimeout(untell);
    told.textContent = text;
    told.hidden = !text;
    if (text) untell = setTimeout(() => tell(""), 12000);
  }

  function put(...content) {
    clearTimeout(again);
    annotate.view?.leave();
    annotate.view = null;
    app.replaceChildren(...content);
    scrollTo(0, 0);
  }

  function sheet(title, ...content) {
    const heading = make("h1", { tabindex: -1 }, title);
    put(make("main", { class: "sheet" }, make("section", { class: "card" }, heading, content), foot()));
    (app.querySelector("[data-first]") ?? heading).focus({ preventScroll: true });
  }

  const previewed = () => make("span", { class: "pill warn" }, "Preview: nothing is recorded");

  function foot() {
    const theme = button("Light or dark", annotate.switchTheme, { class: "q s" });
    if (annotate.preview) return make("footer", {}, previewed(), theme);
    if (!annotate.worker) return make("footer", {}, theme);
    return make("footer", {}, make("span", { class: "mut" }, "You are ", make("b", { id: "worker" }, annotate.worker)),
      button("Sign out", signOut, { class: "q s", id: "sign-out" }), theme);
  }

  // Parameters that a panel has added to the link. One of them may identify the participant.
  const came = Object.fromEntries([...new URLSearchParams(location.search)].slice(0, 20));

  // ---- Sign-in

  function signIn(link = "", said = "") {
    annotate.worker = "";
    const field = make("input", { id: "code", type: "text", autocomplete: "off", autocapitalize: "characters", spellcheck: "false", maxlength: 80, "data-first": true });
    const problem = make("p", { class: "problem", role: "alert" }, said);
    const form = make("form", { class: "stack" }, make("label", { for: "code" }, "Your personal code"), field, problem,
      make("button", { type: "submit", class: "btn p" }, "Sign in"));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("submit", annotate.once(async () => {
      if (!field.value.trim()) { problem.textContent = "Please type the code that you were given."; field.focus(); return; }
      await enter(field.value, link, (text) => { problem.textContent = text; field.select(); });
    }));
    sheet("Sign in", make("p", { class: "mut" }, "Whoever invited you has given you a code, such as 7K2M-9QXT-… It is your name here; nobody asks for another one."), form);
  }

  async function enter(code, link, refuse) {
    const reply = await post("sign-in", { code });
    if (!reply.ok) { refuse(reply.data.error); return; }
    history.replaceState(null, "", location.pathname);
    if (link) await join(link); else await arrived(reply.data);
  }

  function invited(link) {
    const joining = () => join(link);
    const named = Object.keys(came).length > 0;   // the link may identify another participant than the signed-in one
    if (annotate.worker && !named) {
      sheet("You are invited to a study", make("p", {}, "You are signed in as ", make("b", {}, annotate.worker), "."),
        make("div", { class: "row" }, button(`Take part as ${annotate.worker}`, joining, { class: "p", "data-first": true, id: "join" }),
          button("I am somebody else", async () => { await post("sign-out", {}); annotate.worker = ""; invited(link); })));
      return;
    }
    sheet("You are invited to judge images", make("p", {}, "You will see pictures and answer short questions about them. You can stop whenever you like and go on later."),
      make("p", { class: "mut" }, named ? "You take part under a made-up worker name." : "You get a made-up worker name. Neither your name nor your address is asked for."),
      make("div", { class: "row" }, button("Take part", joining, { class: "p", "data-first": true, id: "join" }),
        named && annotate.worker ? null : button("I have a code already", () => signIn(link), { id: "have-code" })));
  }

  async function join(link) {
    const reply = await annotate.post("join", { link, parameters: came });   // never ignored as too late: a code is shown only this once
    history.replaceState(null, "", location.pathname);   // do not keep an invitation that was used or is void
    if (!reply.ok) {
      // A signed-in worker has other studies to go on with.
      if (annotate.worker) { tell(reply.data.error); await start(); } else signIn("", reply.data.error);
      return;
    }
    const go = () => arrived(reply.data, reply.data.study);
    if (reply.data.code) { annotate.worker = reply.data.worker; keepCode(reply.data.code, go, reply.data.earlier ? link : ""); } else await go();
  }

  // `earlier` is the link, if another worker name has taken part in this study from this browser.
  function keepCode(code, go, earlier = "") {
    const shown = make("output", { id: "own-code", class: "own-code", tabindex: 0 }, code);
    const copy = button("Copy", async () => {
      getSelection().selectAllChildren(shown);
      try { await navigator.clipboard.writeText(code); copy.textContent = "Copied"; } catch { copy.textContent = "Selected: copy it now"; }
    }, { id: "copy-code" });
    sheet(`Welcome, ${annotate.worker}`, make("p", {}, "This is your personal code. It is shown only once: please keep it. With it you can go on later, or on another device, under the same name."),
      make("div", { class: "row" }, shown, copy),
      earlier ? make("div", { class: "notice stack", id: "earlier" },
        make("p", {}, "Somebody has taken part in this study from this browser before. If that was you, please go on under the name that you had: whoever leads the study sees that two names share a browser."),
        button("Sign in with my earlier code", async () => { await post("sign-out", {}); signIn(earlier); }, { class: "s", id: "earlier-code" })) : null,
      make("div", { class: "row" }, button("I have kept it: go on", go, { class: "p", id: "code-kept", "data-first": true })));
  }

  async function signOut() {
    goOn();
    await post("sign-out", {});
    annotate.worker = "";
    signIn();
  }

  // ---- The list of studies

  async function arrived(state, wanted = "") {
    annotate.worker = state.worker;
    studies = state.studies;
    const resent = await sendKept();
    const only = studies.length === 1 ? studies[0].id : "";
    if (annotate.worker === "") return;
    if (wanted || resent || only) await open(wanted || resent || only); else choose();
  }

  function choose() {
    if (!studies.length) {
      sheet("There is no study for you at the moment", make("p", {}, "Whoever invited you can add you to one. Nothing is lost by leaving this page."),
        make("div", { class: "row" }, button("Look again", start, { "data-first": true })));
      return;
    }
    const WORDS = { draft: "not started yet", paused: "paused", closed: "closed" };
    const lines = studies.map((one, place) => button([
      make("b", {}, one.name), make("span", { class: "mut" }, WORDS[one.state] ?? (one.left ? `${one.done} done, ${one.left} left` : `${one.done} done`)),
    ], () => open(one.id), { class: "study-line", "data-study": one.id, "data-first": place === 0 }));
    sheet("Your studies", make("div", { class: "stack" }, lines));
  }

  // The person opens another study, or a study that has changed meanwhile.
  async function start() {
    goOn();
    const reply = await get("state");
    if (reply.ok) { annotate.worker = reply.data.worker; studies = reply.data.studies; choose(); } else signIn();
  }

  async function open(id, answered = {}) {
    await follow(() => (annotate.preview ? inTime(annotate.previewed(shownNumber, answered)) : post("next", { study: id })), id);
  }

  // Show the next step that the server has sent, or the reason why there is none.
  async function follow(ask, id) {
    goOn();
    const reply = await ask();
    if (reply.ok) { show(reply.data, id); return true; }
    if (reply.status === 401 && !annotate.preview) { signIn("", "You are no longer signed in. Please sign in again: your place is kept."); return false; }
    if (annotate.view) { annotate.view.lock(false); annotate.view.tell(reply.data.error); } else nothing("This study cannot be shown", reply.data.error, id);
    return false;
  }

  function show(step, id) {
    study = { ...step.study, id };
    if (step.assignment) { judge(step); return; }
    const back = step.undo ? button(["Take back the last answer", key("U")], undo, { id: "undo" }) : null;
    const looks = () => open(id);
    switch (step.status) {
      case "consent": consent(step); return;
      case "person": aboutYou(step); return;
      case "done": nothing("All done: thank you", step.text, id, ...completion(step), back); break;
      case "waiting": nothing("Waiting for others", step.text, id, button("Look again", looks, { id: "look-again" }), back); break;
      case "paused": nothing("This study is paused", step.text, id, button("Look again", looks, { id: "look-again" })); break;
      case "closed": nothing("This study is closed", step.text, id, ...completion(step)); break;
      case "excluded": nothing("This study ends here for you", step.text, id); break;
      default: nothing("You cannot take part in this study", step.text, id);
    }
    if (step.status === "waiting" || step.status === "paused") again = setTimeout(looks, LOOK_AGAIN);
  }

  function nothing(title, text, id, ...actions) {
    const others = studies.filter((one) => one.id !== id).length ? button("My other studies", start, { id: "others" }) : null;
    sheet(title, make("p", { id: "why" }, text), saved ? make("p", {}, make("span", { class: "pill ok", id: "saved" }, "Your last answer is saved")) : null,
      make("div", { class: "row" }, actions, others));
    saved = "";
  }

  // ---- Before the first item

  function instructions() {
    const examples = (study.examples ?? []).map(({ image, answer, why }) => make("figure", { class: "example" },
      make("img", { src: annotate.imageAddress(image), alt: "", loading: "lazy" }), make("figcaption", {}, make("b", {}, answer), why ? ` ${why}` : "")));
    return [...paragraphs(study.instructions), examples.length ? make("div", { class: "examples" }, examples) : null];
  }

  function consent(step) {
    const agree = async () => {
      yes.disabled = true;
      if (annotate.preview) { shownNumber += 1; await open(study.id); } else await follow(() => post("consent", { study: study.id }), study.id);
    };
    const yes = button(["I agree: begin", key("Enter")], agree, { class: "p", id: "agree" });
    sheet(study.name, make("p", { class: "mut" }, step.text), study.instructions || study.examples?.length ? [make("h2", {}, "What to do"), ...instructions()] : null,
      study.consent ? [make("h2", {}, "What you agree to"), ...paragraphs(study.consent)] : null, make("div", { class: "row" }, yes));
  }

  // The completion code and the link back to a panel.
  function completion(step) {
    const { code, address } = step.completion ?? {};
    return [
      code ? make("p", { class: "completion" }, "Your completion code: ", make("output", { id: "completion", class: "own-code", tabindex: 0 }, code)) : null,
      address ? make("a", { href: address, class: "btn p", id: "go-back" }, "Go back to the site that sent you") : null,
    ];
  }

  function aboutYou(step) {
    const fields = step.person.map(({ text, options }, place) => {
      const label = make("label", { for: `person-${place}` }, text);
      const field = options.length
        ? make("select", { id: `person-${place}` }, make("option", { value: "" }, "(no answer)"), options.map((option) => make("option", { value: option }, option)))
        : make("input", { id: `person-${place}`, type: "text", maxlength: 200, autocomplete: "off" });
      return { text, label, field };
    });
    const problem = make("p", { class: "problem", role: "alert" });
    const form = make("form", { class: "stack" }, fields.map(({ label, field }) => make("div", { class: "stack" }, label, field)), problem,
      make("div", { class: "row" }, make("button", { type: "submit", class: "btn p", id: "person-go" }, "Go on")));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("submit", annotate.once(async () => {
      const answers = Object.fromEntries(fields.map(({ text, field }) => [text, field.value]));
      const reply = await post("person", { study: study.id, answers });
      if (reply.ok) show(reply.data, study.id); else problem.textContent = reply.data.error;
    }));
    sheet("A few questions about you", make("p", { class: "mut" }, "Each may be left open. What you say is kept apart from your answers to the images."), form);
  }

  function help() {
    const shut = () => windowed.close();
    const keys = make("dl", { class: "keys" }, annotate.KEYS.map(([names, does]) => [make("dt", {}, make("kbd", {}, names)), make("dd", {}, does)]));
    const windowed = make("dialog", { class: "studio help", "aria-label": "Instructions", onclose: () => windowed.remove(), onclick: (event) => event.target === windowed && shut() },
      make("div", { class: "stack" }, make("h1", {}, study.name), ...instructions(), make("div", { class: "keys-part" }, make("h2", {}, "Keys"), keys),
        make("div", { class: "row" }, button("Close", shut, { class: "p", autofocus: true }), button("Light or dark", annotate.switchTheme, { class: "q" }))));
    document.body.append(windowed);
    windowed.showModal();
  }

  // ---- One item after the other

  function judge(step) {
    const view = annotate.judge(step, { send, goOn: readOn, undo, pause, help, again: () => open(study.id) }, saved);
    const note = step.text ? make("p", { class: "quiz-note notice" }, step.text) : null;
    if (note) view.root.querySelector(".looking").prepend(note);
    put(view.root);
    annotate.view = view;
    view.root.focus({ preventScroll: true });
    if (annotate.preview) view.root.querySelector(".progress").prepend(previewed());
  }

  async function send(body) {
    const view = annotate.view;
    tell("");
    view.tell("");
    view.lock(true);
    if (annotate.preview) { shownNumber += 1; await open(study.id, body.answers); return; }
    view.say("saving…");
    const sent = { study: study.id, body: { ...body, key: annotate.newKey() } };
    annotate.keepOutbox(sent);
    const reply = await post("submit", sent.body, true);
    if (reply.ok) { acknowledged(sent); show(reply.data.next, sent.study); return; }
    saved = "";
    view.say("");
    if (reply.status === 401) { signIn("", "You are no longer signed in. Please sign in again: your answer is kept and sent then."); return; }
    annotate.keepOutbox(null);
    view.lock(false);
    if (reply.status === 400 || reply.status === 429) { view.tell(reply.data.error); return; }
    refused(sent, reply);
    await open(sent.study);
  }

  // The person has read the feedback on a training answer.
  async function readOn(assignment) {
    annotate.view.lock(true);
    saved = "";
    if (annotate.preview) { shownNumber += 1; await open(study.id); return; }
    await follow(() => post("go-on", { assignment }), study.id);
  }

  function acknowledged(sent) {
    annotate.keepOutbox(null);
    annotate.view = null;        // do not keep the sent answer as a draft
    annotate.dropDraft(sent.body.assignment);
    saved = "saved";
  }

  // The server has refused the answer. The input stays a draft and comes back with its item, if still needed.
  function refused(sent, reply) {
    annotate.keepOutbox(null);
    saved = "";
    if (["full", "answered"].includes(reply.data.kind) || reply.status === 410) {
      annotate.view = null;      // otherwise the answer would become a draft again
      annotate.dropDraft(sent.body.assignment);
      tell(reply.data.error);
    } else tell(`${reply.data.error} What you have filled in is kept.`);
  }

  // Send the answer again that was being sent when the page was left. Returns the study that it belongs to.
  async function sendKept() {
    const sent = annotate.outbox();
    if (!sent) return "";
    const reply = await post("submit", sent.body, true);
    if (reply.status === 401) { signIn("", "Please sign in again: your answer is kept and sent then."); annotate.worker = ""; return ""; }
    if (reply.ok) acknowledged(sent); else refused(sent, reply);
    return sent.study;
  }

  async function undo() {
    if (annotate.preview) { shownNumber = Math.max(1, shownNumber - 1); await open(study.id); return; }
    annotate.view?.lock(true);
    saved = "";
    await follow(() => post("undo", { study: study.id }), study.id);
  }

  async function pause() {
    if (annotate.preview) { tell("Here an annotator can pause and go on later; the place is kept."); return; }
    const view = annotate.view, words = view.root.querySelector("#place").textContent;
    view.lock(true);
    goOn();
    await post("pause", { study: study.id });
    const id = study.id;
    const was = saved;
    saved = "";
    put();
    nothing("Paused", `Your place is kept (${words}). You can close this page and come back whenever you like${was ? "; all that you have sent is saved" : ""}.`, id,
      button("Go on", () => open(id), { class: "p", id: "go-on", "data-first": true }));
  }

  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "u" || annotate.view || event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, textarea")) return;
    document.getElementById("undo")?.click();
  });

  // Enter agrees, also while the focus is at the top of long instructions.
  addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog[open]") || event.target.closest?.("button, a, input, textarea, summary")) return;
    document.getElementById("agree")?.click();
  });

  // ---- Begin

  async function begin() {
    if (annotate.preview) { await open(annotate.preview); return; }
    if (!navigator.cookieEnabled) {
      sheet("This browser blocks cookies", make("p", {}, "The page needs one cookie, which says who you are from one image to the next. Allow cookies for this address, then reload the page."));
      return;
    }
    // The content of an invitation is behind the #, so no server and no log ever gets it.
    const fragment = new URLSearchParams(location.hash.slice(1));
    const link = fragment.get("join") ?? "", code = fragment.get("code") ?? "";
    if (code) { await enter(code, link, (text) => signIn(link, text)); return; }
    const reply = await get("state");
    if (reply.ok) annotate.worker = reply.data.worker;
    if (link) invited(link);
    else if (reply.ok && reply.data.code) keepCode(reply.data.code, () => arrived(reply.data));   // the page was reloaded
    else if (reply.ok) await arrived(reply.data);
    else signIn("", reply.status === 401 ? "" : reply.data.error);
  }
  // Handle an invitation that is opened while this page is open already, and at the start of the page.
  addEventListener("hashchange", () => { goOn(); put(); begin(); });
  begin();
})();
