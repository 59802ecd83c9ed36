// The page of a running study: a file with votes is looked at on the server, told in words, and taken at a second yes.
// After study-acts.js.
(() => {
  "use strict";
  const study = window.study;
  const field = document.getElementById("votes-file");
  if (!field) return;
  const go = document.getElementById("votes-go"), ready = document.getElementById("votes-ready");
  const note = document.getElementById("votes-note"), problem = document.getElementById("votes-problem");
  let file = null, how = "", looks = 0;

  async function send(name) {
    const reply = await fetch(`/study/votes/${document.querySelector("[data-study]").dataset.study}?name=${name}`, { method: "POST", headers: { "x-studio": "1", "content-type": "text/csv" }, body: file });
    const said = await reply.json();
    if (!reply.ok) throw new Error(said.error);
    return said;
  }

  function tell(text, wrong) {
    note.textContent = text;
    problem.textContent = wrong;
  }

  const words = (error) => error instanceof TypeError ? "No answer from the studio: is it running? Nothing was taken." : error.message;

  field.addEventListener("change", async () => {
    const mine = ++looks;
    file = field.files[0] ?? null;
    ready.hidden = true;
    tell("", "");
    if (!file) return;
    tell(`Looking at ${file.name} …`, "");
    try {
      const found = await send("look");
      if (mine !== looks) return;   // another file was chosen meanwhile
      how = found.problems ? "even-so" : "";
      tell(found.said, found.problems);
      go.textContent = found.problems ? `Bring in the other ${found.count.toLocaleString("en")}` : "Bring them in";
      ready.hidden = !found.count;
    } catch (error) { if (mine === looks) tell("", words(error)); else return; }
    field.value = "";   // so that the same file can be chosen again
  });

  go.addEventListener("click", async () => {
    go.disabled = field.disabled = true;
    try {
      const done = await send(how);
      tell(done.said, "");
      ready.hidden = true;
      file = null;
    } catch (error) { tell("", words(error)); }
    go.disabled = field.disabled = false;
  });
})();
