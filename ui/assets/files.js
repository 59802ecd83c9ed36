// Files that a person chooses or drops. Each is sent to the server unchanged, and the page reports the result.
(() => {
  "use strict";
  const studio = window.studio;
  const { send } = studio, { make, button } = window.patch;

  // ---- Messages in the header, where they cover nothing. An error has a line of its own until it is closed

  let fading = null;

  function say(text, tone, action) {
    const line = document.getElementById("said");
    if (!line) return;
    line.replaceChildren();
    clearTimeout(fading);
    line.dataset.tone = tone || "";
    if (text) {
      line.append(make("span", { title: text }, text));
      if (action) line.append(button(action.word, () => { say(""); action.do(); }, { className: "btn s", id: "said-act" }));
      line.append(button("Close", () => say(""), { className: "btn s" }));
      // A message with a button, such as Undo, waits for the person, even if the page takes long meanwhile.
      if (tone !== "bad" && !action) fading = setTimeout(() => say(""), 12000);
    }
    // Parts below the header move down if the header becomes higher.
    document.documentElement.style.setProperty("--s-top", text && tone === "bad" ? `${line.closest("header").offsetHeight}px` : "");
  }

  // ---- Sending

  const LARGEST = 200000000;   // bytes, the same limit as on the server

  // Gradio stores the file, and a function of this page then reads the stored file.
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

  // For a single file that takes long, say that it is being sent.
  async function giveOne(name, file, more) {
    const slow = setTimeout(() => say(`Sending ${file.name || "the picture"} …`), 400);
    const reply = await give(name, file, more);
    clearTimeout(slow);
    say("");
    return reply;
  }

  // ---- Pictures: one that contains its run opens the run, any other begins a new run. Several are shown together

  const MOST = 200;   // the same limit as on the server
  const IMAGE = /\.(png|jpe?g|webp|gif|bmp|tiff?)$/i;
  const MASK = /\.mask\.png$/i;
  const isPicture = (file) => (file.type.startsWith("image/") || IMAGE.test(file.name)) && !MASK.test(file.name);

  async function givePicture(file) {
    const reply = await giveOne("take_picture", file);
    if (reply.problem) refuse(reply.problem); else taken(reply);
  }

  // The place for messages on pictures: the field of uploads, or the header's line on the page of a run.
  function refuse(problem) {
    if (document.body.dataset.view !== "start") return void say(problem, "bad");
    say("");
    studio.tell("upload", problem);
    document.getElementById("upload-problem").scrollIntoView({ block: "nearest" });
  }

  const givePictures = (files, leftOut, labels = new Map()) =>
    takeAll(files, (file) => give("take_picture", file, { label: labels.get(file) ?? "" }), leftOut);

  // Send one after another, so that a folder of large pictures does not fill the memory of browser or server.
  async function takeAll(files, take, leftOut = []) {
    const runs = [], refused = [...leftOut];
    for (const [place, file] of files.slice(0, MOST).entries()) {
      say(`Taking picture ${place + 1} of ${Math.min(files.length, MOST)}…`);
      const reply = await take(file);
      if (reply.problem) refused.push(`${file.name ?? file.orig_name}: ${reply.problem}`); else runs.push(reply.run_id);
    }
    if (files.length > MOST) refused.push(`Only the first ${MOST} pictures were taken: add the others afterwards.`);
    say(runs.length > 1 ? `${runs.length} pictures were taken. Each begins a run.` : runs.length ? "One picture was taken." : "", "");
    if (runs.length) studio.together(runs);
    send({ name: "new", done: () => setTimeout(() => showRefused(refused), 0) });
  }

  function showRefused(refused) {
    const place = document.getElementById("together-refused");
    if (!place) { if (refused.length) say(refused.join(" "), "bad"); return; }
    place.className = refused.length ? "notice" : "";   // the other pictures were accepted
    place.replaceChildren(...refused.map((text) => make("div", {}, text)));
  }

  async function giveRun(file) {
    const reply = await giveOne("take_run", file);
    const anew = { word: "Begin a run with this picture", do: () => givePicture(file) };
    if (reply.problem) say(reply.problem, "bad", reply.offer === "new" ? anew : null);
    else taken(reply);
  }

  // Gradio's own field has sent the file already.
  studio.chosen = async (files) => {
    if (files.length > 1) return void takeAll(files, takeSent);
    const reply = await takeSent(files[0]);
    if (reply.problem) refuse(reply.problem); else taken(reply);
  };

  async function takeSent({ path, orig_name: name }) {
    try { return await wire.answered(studio.server.take_picture({ path, name })); }
    catch { wire.failed(); return { problem: "The studio did not answer: is it running?" }; }
  }

  function taken(reply) {
    say(reply.said);
    const show = () => { if (reply.case_id != null) setTimeout(() => studio.look({ case: reply.case_id }), 0); };
    send({ name: "open", fields: { run: reply.run_id }, done: show });
  }

  // ---- Masks

  let waiting = null;   // a mask that was refused, and is sent again once its classes are named

  async function giveMask(file, run) {
    const classes = document.getElementById("mask-classes");
    const reply = await giveOne("give_mask", file, { run, classes: classes ? classes.value : "" });
    waiting = reply.problem ? { file, run } : null;
    studio.tell("mask", reply.problem);
    if (reply.problem && classes) classes.closest("details").open = true;
    if (!reply.problem && reply.said.length) say(reply.said.join(" "));
    send({ name: "poll" });
  }

  const GIVEN = {
    mask: ([file], field) => giveMask(file, field.closest("[data-mask-of]").dataset.maskOf),
    run: ([file]) => giveRun(file),
    folder: (files) => giveFolder(files.map((file) => ({ file, path: file.webkitRelativePath }))),
  };
  patch.on("change", "input[data-file]", (field) => {
    if (field.files.length) GIVEN[field.dataset.file]([...field.files], field);
    field.value = "";
  });
  patch.on("change", "#mask-classes", () => { if (waiting?.run === studio.run) giveMask(waiting.file, waiting.run); });

  patch.on("click", "[data-larger]", (picture) => picture.toggleAttribute("data-open"));
  document.addEventListener("keydown", (event) => {
    if (event.target.id === "mask-classes" && event.key === "Enter" && !event.isComposing) { event.preventDefault(); event.target.blur(); }
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.(".classes")) for (const area of event.target.querySelectorAll("textarea")) fields.fitHeight(area);
  }, true);

  // ---- Dropping, anywhere on the page

  let dragging = 0;   // a drag enters and leaves every element on its way
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
    const mask = event.target.closest?.("[data-mask-of]");
    const files = [...event.dataTransfer.files];
    const folders = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory);
    if (folders.length) {
      const beside = files.filter(({ name }) => !folders.some((folder) => folder.name === name));
      return void wire.filesIn(folders, LOOKED_AT).then((inside) => giveFolder([...beside.map((file) => ({ file, path: file.name })), ...inside]));
    }
    if (!files.length) return;
    if (mask && files.length > 1) say("Drop one mask at a time.", "bad");
    else if (mask) giveMask(files[0], mask.dataset.maskOf);
    else if (document.body.dataset.view === "run" && files.length === 1) giveRun(files[0]);
    else given(files);
  }, true);

  function given(files) {
    if (files.length > 1) givePictures(files);
    else givePicture(files[0]);
  }

  // ---- Folders: pictures in them and in their subfolders are sent; all other files are named

  const LOOKED_AT = 5000, NAMED = 5;
  const OF_THE_SYSTEM = /(^|\/)(\.[^/]*|thumbs\.db|desktop\.ini)$/i;

  function giveFolder(found) {
    const shown = found.filter(({ path }) => !OF_THE_SYSTEM.test(path)).sort((one, other) => one.path.localeCompare(other.path));
    const pictures = shown.filter(({ file }) => file && isPicture(file));
    const others = shown.filter(({ file }) => file && !isPicture(file)), masks = others.filter(({ path }) => MASK.test(path));
    const leftOut = [
      ...named("no picture", others.filter(({ path }) => !MASK.test(path))),
      ...named("a mask is given to the run of its picture", masks),
      ...named("cannot be read", shown.filter(({ file }) => !file)),
      ...(found.length >= LOOKED_AT ? [`Only the first ${LOOKED_AT} files were looked at.`] : []),
    ];
    if (pictures.length) return void givePictures(pictures.map(({ file }) => file), leftOut, classesOf(pictures));
    refuse(["There is no picture in this folder: choose another one.", ...leftOut].join(" "));
  }

  // If every picture is in a folder of its class, as in CLASS/picture or SPLIT/CLASS/picture, the class is its label.
  const SPLIT = /^(train|training|val|valid|validation|dev|test|testing|eval)$/i;
  function classesOf(pictures) {
    const folders = pictures.map(({ path }) => path.split("/").slice(0, -1));
    const around = folders.every(([top]) => top === folders[0][0]) ? 1 : 0;   // the dropped folder itself
    const labels = folders.map((names) => {
      const inside = names.slice(around);
      return (inside.length > 1 && SPLIT.test(inside[0]) ? inside[1] : inside[0]) ?? "";
    });
    return labels.every(Boolean) ? new Map(pictures.map(({ file }, place) => [file, labels[place]])) : new Map();
  }

  function named(why, files) {
    if (!files.length) return [];
    const more = files.length > NAMED ? ` and ${files.length - NAMED} more` : "";
    return [`Left out (${why}): ${files.slice(0, NAMED).map(({ path }) => path).join(", ")}${more}.`];
  }

  // ---- Pasting: a copied picture, or files

  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])].filter(isPicture);
    if (!files.length || event.target.closest?.("input, textarea, [contenteditable]")) return;
    event.preventDefault();
    given(files);
  });

  studio.say = say;
})();
