// The page of a running study: a chosen file with images or votes is described first, and imported after a second
// press. After study-acts.js.
(() => {
  "use strict";
  const { study } = window, id = document.querySelector("[data-study]").dataset.study;
  const byId = (name) => document.getElementById(name);

  // `look` describes a file: what is `said`, its `problems`, the words of the `button`, the `count` to import.
  function takes(name, field, look, send) {
    const go = byId(`${name}-go`), ready = byId(`${name}-ready`), note = byId(`${name}-note`);
    if (!ready) return;
    let file = null, found = null, looks = 0;

    function tell(text, wrong = "", offered = false) {
      note.textContent = text;
      study.tell(name, wrong);
      ready.hidden = !offered;
    }

    field.addEventListener("change", async () => {
      const mine = ++looks;
      file = field.files[0] ?? null;
      tell(file ? `Looking at ${file.name} …` : "");
      if (!file) return;
      try {
        found = await look(file);
        if (mine !== looks) return;   // another file was chosen meanwhile
        tell(found.said, found.problems, found.count > 0);
        go.textContent = found.button;
      } catch (error) { if (mine === looks) tell("", error.message); else return; }
      field.value = "";   // so that the same file can be chosen again
    });

    go.addEventListener("click", async () => {
      go.disabled = field.disabled = true;
      tell(`Sending ${file.name} …`);
      try { tell((await send(file, found)).said); }
      catch (error) { tell(error.lost ? found.said : "", error.message, error.lost); }   // a lost file can be sent again
      go.disabled = field.disabled = false;
    });
  }

  const votes = (file, name) => wire.sendFile(`/study/votes/${id}?name=${name}`, file, "text/csv");
  takes("votes", byId("votes-file"), async (file) => {
    const found = await votes(file, "look");
    return { ...found, button: found.problems ? `Bring in the other ${found.count.toLocaleString("en")}` : "Bring them in" };
  }, (file, found) => votes(file, found.problems ? "even-so" : ""));

  takes("bring", byId("bring"), (file) => ({
    said: `${file.name}, ${Math.ceil(file.size / 1000).toLocaleString("en")} KB: its images are added at once.`, problems: "", button: "Add them", count: 1,
  }), (file) => wire.sendFile(`/study/files/${id}?name=${encodeURIComponent(file.name)}`, file));
})();
