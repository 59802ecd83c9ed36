// The keys of the annotators' page. With one question, a single key answers and sends. With several questions, arrows
// move between questions and answers, and Enter sends. In a text field, only Escape and Ctrl+Enter are commands.
(() => {
  "use strict";
  const annotate = window.annotate;
  annotate.KEYS = [
    ["y / n", "yes or no"],
    ["1 to 9", "the answer with this number"],
    ["← →", "the answer before or after"],
    ["↑ ↓", "the question before or after"],
    ["Enter", "send, when there are several questions (Ctrl Enter from a text too); go on after a training answer"],
    ["u", "take back the last answer"],
    ["c", "write a comment (Esc leaves it)"],
    ["p", "pause"],
    ["?", "these instructions"],
  ];

  const isField = (element) => Boolean(element?.matches?.("textarea, input"));

  const DOES = {
    ArrowLeft: (view) => view.slide(-1),
    ArrowRight: (view) => view.slide(1),
    ArrowUp: (view) => view.move(-1),
    ArrowDown: (view) => view.move(1),
    u: (view) => view.undo(),
    c: (view) => view.comments(),
    p: (view) => view.pause(),
    "?": (view) => view.help(),
  };

  function answerOf(question, pressed) {
    if (!question) return undefined;
    if (question.kind === "yes-no") return { y: "yes", n: "no" }[pressed];
    return /^[1-9]$/.test(pressed) ? question.options[Number(pressed) - 1] : undefined;
  }

  addEventListener("keydown", (event) => {
    const view = annotate.view;
    if (!view || event.isComposing || event.altKey || document.querySelector("dialog[open]")) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (pressed === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!event.repeat) view.send();
      return;
    }
    if (event.ctrlKey || event.metaKey) return;
    if (isField(event.target)) {
      if (pressed === "Escape") { event.target.blur(); view.root.focus(); }
      return;
    }
    if (pressed === "Enter") {
      // A focused button handles Enter itself; anywhere else Enter sends.
      const own = event.target.closest?.("button:not(.answer)");
      if (view.single || own || event.repeat) return;
      event.preventDefault();
      view.send();
      return;
    }
    const isArrow = pressed.startsWith("Arrow");
    if (event.repeat && !isArrow) return;
    const question = view.at();
    const answer = answerOf(question, pressed);
    if (answer !== undefined) { event.preventDefault(); view.choose(question, answer); return; }
    if (DOES[pressed]) { event.preventDefault(); DOES[pressed](view); }
  });

  document.addEventListener("visibilitychange", () => annotate.view?.clock());
  addEventListener("pagehide", () => annotate.view?.leave());
})();
