// What is told of an answer to a training item: whether it was right, what is right of each question, and why.
(() => {
  "use strict";
  const annotate = window.annotate;
  const { make } = annotate;
  const WORDS = { yes: "Yes", no: "No" };
  const words = (answer) => WORDS[answer] ?? answer;

  function line({ question, given, expected, right }, several) {
    const mark = several && right !== null ? make("span", { class: `pill ${right ? "ok" : "warn"}` }, right ? "✓ right" : "✗ not right") : null;
    const said = make("dd", { class: "said" }, make("span", {}, "Your answer: "), make("b", {}, given ? words(given) : "none"), mark);
    const told = right === null ? make("dd", { class: "mut" }, "Here no answer is right or wrong.")
      : right ? null : make("dd", {}, make("span", {}, "Right is: "), make("b", {}, words(expected)));
    return make("div", { class: "told-line" }, make("dt", {}, question), said, told);
  }

  annotate.feedbackPart = ({ right, answers, why }) => make("div", { class: "feedback", role: "status" },
    make("h2", { id: "verdict", class: right ? "right" : "wrong" }, right ? "Right" : "Not right"),
    make("dl", {}, answers.map((told) => line(told, answers.length > 1))),
    why ? make("p", { class: "why" }, make("b", {}, "Why: "), why) : null);
})();
