// Files that a person chooses or drops: each goes to the server as it is, and the page says what became of it.
(() => {
  "use strict";
  const studio = window.studio;
  const { send } = studio;

  // ---- A line at the bottom that says what happened

  let fading = null;

  function say(text, tone, action) {
    let line = document.getElementById("said");
    if (!line) {
      line = document.createElement("div");
      line.id = "said";
      line.className = "studio";
      line.setAttribute("role", "status");
      document.body.append(line);
    }
    line.replaceChildren();
    clearTimeout(fading);
    line.dataset.tone = tone || "";
    if (!text) return;
    const words = document.createElement("span");
    words.textContent = text;
    line.append(words);
    if (action) line.append(pressed(action.word, () => { say(""); action.do(); }));
    line.append(pressed("Close", () => say("")));
    if (tone !== "bad") fading = setTimeout(() => say(""), 12000);
  }

  function pressed(word, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn s";
    button.textContent = word;
    button.addEventListener("click", act);
    return button;
  }

  // ---- Sending

  async function post(path, file) {
    try {
      const reply = await fetch(path, { method: "POST", body: file, headers: { "X-Studio": "1" } });
      if (!reply.ok) return { problem: `The server refused the file (${reply.status}).` };
      return await reply.json();
    } catch {
      return { problem: "The file did not reach the server: is it running?" };
    }
  }

  // ---- Masks

  let waiting = null;   // a mask that was refused: once its classes are named it is given again

  async function giveMask(file, run) {
    const place = () => document.getElementById("mask-problem");
    const classes = document.getElementById("mask-classes");
    const reply = await post(`runs/${run}/mask?classes=${encodeURIComponent(classes ? classes.value : "")}`, file);
    waiting = reply.problem ? { file, run } : null;
    if (place()) { place().textContent = reply.problem; place().className = reply.problem ? "problem" : ""; }
    if (reply.problem && classes) classes.closest("details").open = true;
    if (!reply.problem && reply.said.length) say(reply.said.join(" "));
    send({ name: "poll" });
  }

  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field.matches?.("input[data-file=mask]") && field.files[0]) {
      giveMask(field.files[0], field.closest("[data-mask-of]").dataset.maskOf);
      field.value = "";
    } else if (field.id === "mask-classes" && waiting && waiting.run === studio.run) giveMask(waiting.file, waiting.run);
  });

  Object.assign(studio, { say, post, giveMask });
})();
