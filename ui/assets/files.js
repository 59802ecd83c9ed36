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
    if (action) line.append(pressed(action.word, () => { say(""); action.do(); }, "said-act"));
    line.append(pressed("Close", () => say("")));
    if (tone !== "bad") fading = setTimeout(() => say(""), 12000);
  }

  function pressed(word, act, id = "") {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn s";
    button.textContent = word;
    if (id) button.id = id;
    button.addEventListener("click", act);
    return button;
  }

  // ---- Sending

  const LARGEST = 200000000;   // bytes, as the server has it

  // Gradio takes the file, and a function of this page looks at what was taken.
  async function give(name, file, more = {}) {
    if (file.size > LARGEST) return { problem: `The file is larger than ${LARGEST / 1000000} MB: save it smaller.` };
    try {
      const { path } = await studio.upload(file);
      return await wire.answered(studio.server[name]({ path, name: file.name, ...more }));
    } catch {
      wire.failed();
      return { problem: "The file did not reach the server: is it running?" };
    }
  }

  // ---- Pictures: one that carries its run opens it, any other begins a new one

  async function givePicture(file) {
    const reply = await give("take_picture", file);
    if (reply.problem) say(reply.problem, "bad"); else taken(reply);
  }

  async function giveRun(file) {
    const reply = await give("take_run", file);
    const anew = { word: "Begin a run with this picture", do: () => givePicture(file) };
    if (reply.problem) say(reply.problem, "bad", reply.offer === "new" ? anew : null);
    else taken(reply);
  }

  // From Gradio's own field, which has sent the file already.
  studio.chosen = async ({ path, orig_name: name }) => {
    let reply;
    try { reply = await wire.answered(studio.server.take_picture({ path, name })); }
    catch { wire.failed(); reply = { problem: "The studio did not answer: is it running?" }; }
    if (reply.problem) studio.tell("start", reply.problem); else taken(reply);
  };

  function taken(reply) {
    say(reply.said);
    const show = () => { if (reply.case_id != null) setTimeout(() => studio.look({ case: reply.case_id }), 0); };
    send({ name: "open", fields: { run: reply.run_id }, done: show });
  }

  // ---- Masks

  let waiting = null;   // a mask that was refused: once its classes are named it is given again

  async function giveMask(file, run) {
    const place = () => document.getElementById("mask-problem");
    const classes = document.getElementById("mask-classes");
    const reply = await give("give_mask", file, { run, classes: classes ? classes.value : "" });
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
    } else if (field.matches?.("input[data-file=run]") && field.files[0]) {
      giveRun(field.files[0]);
      field.value = "";
    } else if (field.id === "mask-classes" && waiting && waiting.run === studio.run) giveMask(waiting.file, waiting.run);
  });

  document.addEventListener("click", (event) => {
    const picture = event.target.closest?.("[data-larger]");
    if (picture) picture.toggleAttribute("data-open");
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.id === "mask-classes" && event.key === "Enter" && !event.isComposing) { event.preventDefault(); event.target.blur(); }
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.(".classes")) for (const area of event.target.querySelectorAll("textarea")) fields.fitHeight(area);
  }, true);

  // ---- Dropping, anywhere on the page

  let dragging = 0;   // a drag enters and leaves every element that it crosses
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (on) => { dragging = on ? dragging : 0; document.body.classList.toggle("dropping", on); };

  document.addEventListener("dragenter", (event) => { if (carries(event)) { dragging += 1; mark(true); } }, true);
  document.addEventListener("dragleave", (event) => { if (carries(event) && (dragging -= 1) <= 0) mark(false); }, true);
  document.addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); }, true);
  document.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    event.stopPropagation();
    mark(false);
    const files = [...event.dataTransfer.files];
    if (!files.length) return;
    if (files.length > 1) return void say("Drop one file at a time.", "bad");
    const mask = event.target.closest?.("[data-mask-of]");
    if (mask) giveMask(files[0], mask.dataset.maskOf);
    else if (document.body.dataset.view === "run") giveRun(files[0]);
    else givePicture(files[0]);
  }, true);

  Object.assign(studio, { say, taken, giveMask });
})();
