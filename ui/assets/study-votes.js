// The page of a running study: a file with images or votes is taken at a second yes; what is in one with votes is told
// before. After study-acts.js.
(() => {
  "use strict";
  const field = document.getElementById("votes-file");
  if (!field) return;
  const go = document.getElementById("votes-go"), ready = document.getElementById("votes-ready");
  const note = document.getElementById("votes-note"), problem = document.getElementById("votes-problem");
  let file = null, how = "", looks = 0;

  const { study } = document.querySelector("[data-study]").dataset;
  const send = (name) => wire.sendFile(`/study/votes/${study}?name=${name}`, file, "text/csv");

  function tell(text, wrong) {
    note.textContent = text;
    problem.textContent = wrong;
  }

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
    } catch (error) { if (mine === looks) tell("", error.message); else return; }
    field.value = "";   // so that the same file can be chosen again
  });

  go.addEventListener("click", async () => {
    go.disabled = field.disabled = true;
    try {
      const done = await send(how);
      tell(done.said, "");
      ready.hidden = true;
      file = null;
    } catch (error) { tell("", error.message); }
    go.disabled = field.disabled = false;
  });
})();

(() => {
  "use strict";
  const field = document.getElementById("bring"), ready = document.getElementById("bring-ready");
  if (!ready) return;
  const go = document.getElementById("bring-go"), note = document.getElementById("bring-note");
  const problem = document.querySelector("[data-problem=bring]");
  const { study } = document.querySelector("[data-study]").dataset;
  let file = null;

  function tell(text, wrong = "") {
    note.textContent = text;
    problem.textContent = wrong;
    ready.hidden = !file;
  }
  const offer = (wrong = "") =>
    tell(file ? `${file.name}, ${Math.ceil(file.size / 1000).toLocaleString("en")} KB: its images come in at once.` : "", wrong);

  field.addEventListener("change", () => {
    file = field.files[0] ?? file;
    field.value = "";   // so that the same file can be chosen again
    offer();
  });

  go.addEventListener("click", async () => {
    const sent = file;
    file = null;
    field.disabled = true;
    tell(`Sending ${sent.name} …`);
    try { tell((await wire.sendFile(`/study/files/${study}?name=${encodeURIComponent(sent.name)}`, sent)).said); }
    catch (error) {
      if (error.lost) file = sent;   // it can be sent again
      offer(error.message);
    }
    field.disabled = false;
  });
})();
