// One item: its pictures, its questions, the comment, and the answers so far. No answer is preselected. This browser
// keeps each answer until the server has saved it.
(() => {
  "use strict";
  const annotate = window.annotate;
  const { make, button, key } = annotate;
  const SETTLE = 200;            // ms after the pictures have loaded in which no input counts as an answer: it was meant for the last item
  const TAPS = 600;              // ms after a vote by tap or click in which no input counts as an answer: fingers tap twice
  const GAP = 14, WORDS_HEIGHT = 24;     // px between the pictures, and px of the text line below each of two pictures
  const RETRY_PICTURE = 3000, LONGEST_COMMENT = 2000, LONGEST_TEXT = 2000;
  const WORDS = { yes: "Yes", no: "No" };
  const words = (answer) => WORDS[answer] ?? answer;

  // ---- Feedback on an answer to a training item: whether it was right, the right answers, and why

  function toldLine({ question, given, expected, right }, several) {
    const mark = several && right !== null ? make("span", { class: `pill ${right ? "ok" : "warn"}` }, right ? "✓ right" : "✗ not right") : null;
    const said = make("dd", { class: "said" }, make("span", {}, "Your answer: "), make("b", {}, given ? words(given) : "none"), mark);
    const told = right === null ? make("dd", { class: "mut" }, "This question has no right or wrong answer.")
      : right ? null : make("dd", {}, make("span", {}, "Right is: "), make("b", {}, words(expected)));
    return make("div", { class: "told-line" }, make("dt", {}, question), said, told);
  }

  const feedbackPart = ({ right, answers, why }) => make("div", { class: "feedback", role: "status" },
    make("h2", { id: "verdict", class: right ? "right" : "wrong" }, right ? "Right" : "Not right"),
    make("dl", {}, answers.map((told) => toldLine(told, answers.length > 1))),
    why ? make("p", { class: "why" }, make("b", {}, "Why: "), why) : null);

  let tapped = -Infinity;        // time of the tap or click that sent the last vote
  const byTap = (event) => { if (event.detail) tapped = performance.now(); };   // a key press has no detail

  // `step` is the server's reply. `act` has send(body), goOn(id), undo(), pause(), help(), again(). `saved` is the text
  // of the pill. With feedback there is no question: the picture is shown again beside the feedback.
  annotate.judge = (step, act, saved) => {
    const item = step.assignment, feedback = step.feedback ?? null, questions = feedback ? [] : item.questions;
    const draft = feedback ? { answers: {}, comment: "" } : annotate.draft(item.id, item.draft);
    const single = questions.length === 1 && questions[0].kind !== "text";
    const view = {
      single, questions, current: 0, busy: false, settled: false,
      answers: { ...(draft?.answers ?? (single ? {} : item.answers)) },
      comment: draft?.comment ?? item.comment,
      seconds: draft?.seconds ?? 0, since: null, waitingFor: 0,
    };
    const parts = new Map();       // question id -> its element and its answers

    // ---- Time: it counts only while the pictures are loaded and the page is visible

    const ready = () => view.waitingFor === 0;
    const looked = () => view.seconds + (view.since === null ? 0 : (performance.now() - view.since) / 1000);
    view.clock = () => {
      view.seconds = looked();
      view.since = ready() && !document.hidden ? performance.now() : null;
    };
    const keepDraft = () => {
      if (feedback) return;
      if (Object.keys(view.answers).length || view.comment) {
        annotate.keepDraft(item.id, { answers: { ...view.answers }, comment: view.comment, seconds: looked(), at: Date.now() });
      } else annotate.keepDraft(item.id, null);
    };

    // ---- Questions

    const asked = () => {
      const given = new Set();
      return questions.filter((question) => {
        const due = !question.follows || (given.has(question.follows) && view.answers[question.follows] === question.follows_answer);
        if (due) given.add(question.id);
        return due;
      });
    };
    const isOpen = (question) => question.required && !(view.answers[question.id] ?? "").trim();
    view.open = () => asked().filter(isOpen);
    view.at = () => { const all = asked(); return all[Math.min(view.current, all.length - 1)]; };

    function questionPart(question) {
      const name = `words-${question.id}`;
      const words = make("p", { id: name, class: "words" }, question.text, question.required ? "" : make("small", {}, " (may be left open)"));
      const buttons = new Map();
      let field = null;
      if (question.kind === "text") {
        field = make("textarea", { "aria-labelledby": name, maxlength: LONGEST_TEXT, rows: 2, oninput: () => { view.answers[question.id] = field.value; changed(); }, onfocus: () => view.go(question) });
        field.value = view.answers[question.id] ?? "";
      }
      const options = question.options.map((option, place) => {
        const sign = question.kind === "yes-no" ? option[0].toUpperCase() : String(place + 1);
        const shown = question.kind === "scale" ? option : WORDS[question.kind === "yes-no" ? option : ""] ?? option;
        const hint = question.kind === "scale" && shown === sign ? null : key(sign);
        const low = question.kind === "scale" && place === 0 ? question.low : "";
        const high = question.kind === "scale" && place === question.options.length - 1 ? question.high : "";
        const said = [shown, low || high].filter(Boolean).join(": ");
        const earlier = single && item.answers[question.id] === option ? make("small", { class: "earlier" }, "your answer before") : null;
        const one = make("button", {
          type: "button", class: "answer", "data-answer": option, "aria-label": hint || !(low || high) ? null : said,
          role: single ? null : "radio", onclick: (event) => { if (single) byTap(event); view.choose(question, option); },
        }, make("span", {}, shown), hint, earlier);
        buttons.set(option, one);
        return one;
      });
      const ends = question.low || question.high ? make("p", { class: "ends", "aria-hidden": "true" }, make("span", {}, question.low), make("span", {}, question.high)) : null;
      const kind = `answers ${question.kind}${question.kind === "choice" && question.options.some((option) => option.length > 24) ? " long" : ""}`;
      const group = field ?? make("div", { class: kind, role: single ? "group" : "radiogroup", "aria-labelledby": name }, options);
      const skip = single && !question.required ? button("Leave open", (event) => { byTap(event); view.answers = {}; view.send(); }, { class: "q leave-open" }) : null;
      const element = make("div", { class: "question", "data-question": question.id, onclick: (event) => { if (!event.target.closest("button")) view.go(question); } }, words, group, ends, skip);
      parts.set(question.id, { element, buttons, field });
      return element;
    }

    view.choose = (question, answer) => {
      if (!view.awake()) return;
      if (single) { view.answers = { [question.id]: answer }; view.send(); return; }
      if (view.answers[question.id] === answer && !question.required) delete view.answers[question.id];
      else view.answers[question.id] = answer;
      view.go(question);
      changed();
      const all = asked(), here = all.indexOf(question);
      const next = [...all.slice(here + 1), ...all.slice(0, here)].find((one) => !(one.id in view.answers));
      if (next && question.id in view.answers) view.go(next, true);
      else if (!view.open().length) sendButton.focus({ preventScroll: true });
    };
    // Arrows choose an answer as for radio buttons. For a single question, an arrow only moves the focus.
    view.slide = (by) => {
      const question = view.at();
      if (!question || !question.options.length || !view.awake()) return;
      const buttons = [...parts.get(question.id).buttons.values()];
      const chosen = single ? buttons.indexOf(document.activeElement) : question.options.indexOf(view.answers[question.id]);
      const to = chosen < 0 ? (by > 0 ? 0 : buttons.length - 1) : Math.max(0, Math.min(buttons.length - 1, chosen + by));
      buttons[to].focus({ preventScroll: true });
      if (single) return;
      view.answers[question.id] = question.options[to];
      changed();
    };
    view.go = (question, focus = false) => {
      const place = asked().indexOf(question);
      if (place < 0) return;
      view.current = place;
      update();
      const part = parts.get(question.id);
      part.element.scrollIntoView({ block: "nearest" });
      if (focus) (part.field ?? root).focus({ preventScroll: true });
    };
    view.move = (by) => {
      const all = asked(), to = all[view.current + by];
      if (to) view.go(to, true);
    };

    // ---- Sending

    // True if a key or a click may answer: the pictures were visible, and no answer is being sent.
    view.awake = () => !view.busy && view.settled;
    view.send = () => {
      if (!view.awake()) return;
      if (feedback) { act.goOn(item.id); return; }
      const [first] = view.open();
      if (first) { view.go(first, true); return; }
      view.clock();
      const answers = Object.fromEntries(asked().map(({ id }) => [id, (view.answers[id] ?? "").trim()]).filter(([, text]) => text));
      keepDraft();
      act.send({ assignment: item.id, answers, comment: view.comment.trim(), seconds: Math.round(looked() * 100) / 100 });
    };
    view.lock = (busy) => { view.busy = busy; update(); };
    view.tell = (text) => { problem.textContent = text; };
    view.say = (text) => { pill.textContent = text; pill.hidden = !text; pill.className = `pill ${text === "saved" ? "ok" : "acc"}`; };
    view.comments = () => {
      if (feedback) return;
      const opened = commentBox.hidden;
      commentBox.hidden = !opened && !view.comment;
      if (opened || view.comment) commentBox.querySelector("textarea").focus();
    };
    Object.assign(view, { undo: () => view.busy || step.undo === false || act.undo(), pause: () => view.busy || act.pause(), help: act.help });

    function changed() { problem.textContent = ""; keepDraft(); update(); }

    function update() {
      const all = asked(), at = view.at();
      for (const question of questions) {
        const { element, buttons } = parts.get(question.id);
        element.hidden = !all.includes(question);
        element.classList.toggle("current", question === at);
        element.classList.toggle("answered", Boolean((view.answers[question.id] ?? "").trim()));
        for (const [option, one] of buttons) {
          const chosen = view.answers[question.id] === option;
          one.classList.toggle("chosen", chosen && (!single || view.busy));
          if (!single) one.setAttribute("aria-checked", String(chosen));
          one.disabled = !view.awake();
        }
      }
      const open = view.open().length;
      sendButton.disabled = !view.awake() || open > 0;
      count.textContent = feedback ? "For training only: this answer does not count." : open ? `${open} to answer` : "";
      place.textContent = `${all.indexOf(at) + 1} of ${all.length}`;
      back.disabled = view.current <= 0;
      on.disabled = view.current >= all.length - 1;
      undoButton.disabled = view.busy || step.undo === false;
      root.classList.toggle("complete", !open);
      root.setAttribute("aria-busy", String(!view.awake()));
    }

    // ---- Pictures

    function picture(image, words) {
      view.waitingFor += 1;
      const shown = make("img", { alt: words || "The image to judge", draggable: "false" });
      const note = make("p", { class: "loading", role: "status" }, "The image is on its way…");
      const figure = make("figure", { class: "picture loading" }, shown, note, words ? make("figcaption", {}, words) : null);
      let tries = 0;
      const load = () => { shown.src = annotate.imageAddress(image) + (tries ? `?again=${tries}` : ""); };
      shown.addEventListener("load", () => {
        figure.classList.remove("loading");
        note.remove();
        view.waitingFor -= 1;
        view.clock();
        fit();
        if (view.waitingFor) return;
        fetchAhead();
        setTimeout(() => { view.settled = true; update(); }, Math.max(SETTLE, tapped + TAPS - performance.now()));
      }, { once: true });
      shown.addEventListener("error", () => {
        tries += 1;
        note.textContent = "The image did not load. The page tries again; your place is kept.";
        // Later the item is requested again, as the picture may have another address by now.
        setTimeout(() => { if (figure.isConnected) { if (tries > 1) act.again(); else load(); } }, RETRY_PICTURE);
      });
      load();
      return figure;
    }
    // Load the probable next pictures while this item is judged. The browser caches them under the same address.
    const ahead = [];
    function fetchAhead() {
      for (const token of step.ahead ?? []) ahead.push(Object.assign(new Image(), { src: annotate.imageAddress(token) }));
    }
    // Make the pictures as large as the space allows, side by side or one above the other.
    function fit() {
      const shown = pictures.map((figure) => figure.querySelector("img"));
      const looking = exhibit.parentElement;
      if (!looking || shown.some((one) => !one.naturalWidth)) return;
      const others = [...looking.children].filter((one) => one !== exhibit);
      const height = looking.clientHeight - others.reduce((sum, one) => sum + one.offsetHeight + GAP, 0);
      const width = looking.clientWidth, many = shown.length, words = many > 1 ? WORDS_HEIGHT : 0;
      const ratio = Math.max(...shown.map((one) => one.naturalWidth / one.naturalHeight));
      const beside = Math.min((width - (many - 1) * GAP) / many, (height - words) * ratio);
      const above = Math.min(width, ((height - (many - 1) * GAP) / many - words) * ratio);
      const stacked = many > 1 && above > beside;
      exhibit.classList.toggle("above", stacked);
      const wide = Math.max(40, Math.floor(stacked ? above : beside));
      for (const one of shown) {
        one.style.width = `${wide}px`;
        one.style.height = `${Math.round((wide * one.naturalHeight) / one.naturalWidth)}px`;
      }
    }

    function captions() {
      const line = (words, marked) => make("p", {}, make("b", {}, words), " ", marked.map(([text, kind]) =>
        kind === "added" ? make("ins", {}, text) : kind === "removed" ? make("del", {}, text) : text));
      const lines = [
        item.caption && line("Original:", item.caption),
        item.counterfactual && line("Edited:", item.counterfactual),
        item.label && make("p", {}, make("b", {}, "Label:"), ` ${item.label}`),
      ].filter(Boolean);
      return lines.length ? make("div", { class: "captions card" }, lines) : null;
    }

    // ---- The whole page of an item

    const pictures = item.source === null || item.source === undefined ? [picture(item.image, "")]
      : item.side === "left" ? [picture(item.image, "to judge"), picture(item.source, "original")]
        : [picture(item.source, "original"), picture(item.image, "to judge")];
    const exhibit = make("div", { class: "exhibit" }, pictures);
    const called = { quiz: "Quiz", training: "Training", feedback: "Training" }[step.status] ?? "Image";
    const total = step.done + step.left, number = Math.min(step.done + 1, Math.max(total, 1));
    const share = total ? Math.round((100 * step.done) / total) : 0;
    const pill = make("span", { id: "saved", class: "pill", role: "status", hidden: true });
    const filled = make("i");
    filled.style.width = `${share}%`;
    const top = make("header", { class: "progress" },
      make("b", { id: "place" }, `${called} ${number} of ${total}`),
      make("span", { class: "bar", role: "progressbar", "aria-label": "judged", "aria-valuenow": share }, filled),
      pill, button("Pause", () => view.pause(), { id: "pause" }));
    const problem = make("p", { class: "problem", role: "alert" });
    const commentField = make("textarea", { id: "comment", rows: 2, maxlength: LONGEST_COMMENT, placeholder: "A comment on this image, if you like", "aria-label": "Comment",
      oninput: () => { view.comment = commentField.value; keepDraft(); } });
    commentField.value = view.comment;
    const commentBox = make("div", { class: "comment", hidden: !view.comment }, commentField);
    const sendButton = button([feedback ? "Go on" : "Send", key("Enter")], (event) => { byTap(event); view.send(); }, { id: "send", class: "p" });
    const count = make("span", { class: "mut small" });
    const back = button("‹", () => view.move(-1), { class: "q", "aria-label": "The question before" });
    const on = button("›", () => view.move(1), { class: "q", "aria-label": "The next question" });
    const place = make("span", { class: "mut small" });
    const undoButton = button(["Undo", key("U")], () => view.undo(), { id: "undo", class: "q" });
    const several = !single;
    const panel = make("section", { class: "panel-card card", "aria-label": feedback ? "What is right" : "Questions" },
      feedback ? feedbackPart(feedback)
        : make("div", { class: "questions" }, questions.length ? questions.map(questionPart) : make("p", { class: "words" }, "There is no question about this image.")),
      problem, commentBox,
      several ? make("div", { class: "sending" }, questions.length > 1 ? make("span", { class: "stepper" }, back, place, on) : null, count, sendButton) : null,
      make("div", { class: "tools" }, feedback ? null : undoButton,
        feedback ? null : button(["Comment", key("C")], () => view.comments(), { id: "to-comment", class: "q" }),
        button(["Instructions", key("?")], () => view.help(), { id: "to-help", class: "q" })));
    const root = make("main", { class: `judge ${(feedback ? feedback.answers.length > 1 : several) ? "several" : "single"}${feedback ? " told-of" : ""}${pictures.length > 1 ? " pair" : ""}`, tabindex: -1 },
      top, make("div", { class: "looking" }, exhibit, captions()), panel);
    const firstOpen = asked().findIndex((question) => !(question.id in view.answers));
    view.current = Math.max(0, firstOpen);
    view.say(saved);
    update();
    new ResizeObserver(fit).observe(exhibit.parentElement);   // the window, or the height of the questions, has changed
    view.root = root;
    view.leave = () => { view.clock(); keepDraft(); annotate.saveDraft(); };
    return view;
  };
})();
