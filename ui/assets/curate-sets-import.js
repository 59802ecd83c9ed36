// The page of imports. It sends the chosen or dropped files as one archive, and polls the progress. After study.js.
(() => {
  "use strict";
  const { make, button: makeButton } = window.patch;

  const form = document.getElementById("import-form");
  if (!form) return;
  const imports = (window.imports = { busy: 0 });
  const drop = document.getElementById("drop"), begin = document.getElementById("begin"), place = document.getElementById("upload");
  const ARCHIVE = /\.(zip|tar|tgz|tar\.(gz|xz|bz2)|tbz2|txz)$/i;
  let chosen = [];      // { name, file }

  const clear = () => study.clear(form), refuse = (error) => study.refuse(error, form);

  // ---- The chosen files

  function choose(files) {
    chosen = files.filter((one) => !/(^|\/)\./.test(one.name));   // an empty file is sent too, and the report names it
    clear();
    const bytes = chosen.reduce((sum, one) => sum + one.file.size, 0);
    if (!bytes) chosen = [];
    const size = bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.ceil(bytes / 1e3)} kB`;
    const named = chosen.length === 1 ? chosen[0].name : `${chosen.length.toLocaleString("en")} files`;
    document.getElementById("chosen").textContent = chosen.length ? `${named}, ${size}` : "";
    begin.disabled = !chosen.length;
    if (files.length && !chosen.length) refuse({ field: "file", message: "These files are empty or hidden: choose other files." });
  }
  for (const name of ["files", "folder"]) {
    const field = document.getElementById(`choose-${name}`);
    field.addEventListener("change", () => {
      choose([...field.files].map((file) => ({ name: file.webkitRelativePath || file.name, file })));
      field.value = "";   // so that the same files can be chosen again
    });
  }

  for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", async (event) => {
    event.preventDefault();
    const { items, files } = event.dataTransfer, entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const found = entries.length ? await wire.filesIn(entries) : [...files].map((file) => ({ path: file.name, file }));
    if (found.every(({ file }) => file)) choose(found.map(({ path, file }) => ({ name: path, file })));
    else refuse({ field: "file", message: "This cannot be read: choose the files instead." });
  });

  // ---- Several files as one tar: blocks of 512 bytes, first the header of a file, then its content

  const BLOCK = 512, LONGEST = 100;   // bytes: the size of a block, and the longest path that fits into a header
  const toBytes = (text) => new TextEncoder().encode(text);
  const filling = (size) => new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
  function head(path, size, kind) {
    const block = new Uint8Array(BLOCK), put = (at, text) => block.set(toBytes(text), at);
    block.set(path.slice(0, LONGEST));
    put(100, "0000644");
    put(124, size.toString(8).padStart(11, "0"));
    put(136, "0".repeat(11));   // the earliest date of a tar
    put(148, " ".repeat(8));    // the checksum is computed with spaces in its own field
    put(156, kind);
    put(257, "ustar\x0000");
    put(148, `${block.reduce((sum, byte) => sum + byte).toString(8).padStart(6, "0")}\0`);
    return block;
  }
  function packed(files) {
    const parts = files.flatMap(({ name, file }) => {
      const path = toBytes(name);
      const long = path.length > LONGEST ? [head(toBytes("././@LongLink"), path.length, "L"), path, filling(path.length)] : [];
      return [...long, head(path, file.size, "0"), file, filling(file.size)];
    });
    return new Blob([...parts, new Uint8Array(2 * BLOCK)]);
  }

  // ---- Sending

  let sending = null;
  const stop = makeButton("Stop", () => sending.abort(), { className: "btn s" });
  const sent = (address, body) => new Promise((go, no) => {
    const lost = Object.assign(new Error("No answer from the studio: is it running? Nothing was imported."), { lost: true });
    sending = new XMLHttpRequest();
    sending.open("POST", wire.at(address));
    sending.setRequestHeader("content-type", "application/octet-stream");
    sending.setRequestHeader("x-studio", "1");
    sending.upload.addEventListener("progress", ({ loaded, total }) => {
      const words = `Sending ${(loaded / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`;
      study.progress(place, words, loaded / total, stop);
    });
    sending.addEventListener("load", () => {
      let said = {};
      try { said = JSON.parse(sending.responseText); } catch { no(lost); return; }
      if (sending.status < 300) go(said);
      else no(Object.assign(new Error(said.error || `The studio refused the import (${sending.status}).`), { field: said.field }));
    });
    sending.addEventListener("error", () => no(lost));
    sending.addEventListener("abort", () => no(new Error("The upload was interrupted: nothing was imported.")));
    sending.send(body);
  });

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!chosen.length || imports.busy) return;
    clear();
    imports.busy++;
    begin.disabled = true;
    try {
      const fields = form.elements, alone = chosen.length === 1 && ARCHIVE.test(chosen[0].name);
      const first = chosen[0].name.split("/");
      const named = alone ? chosen[0].name : `${first.length > 1 ? first[0] : "pictures"}.tar`;
      const query = new URLSearchParams({ file: named });
      for (const name of ["name", "layout", "labels", "classes"]) if (fields[name].value.trim()) query.set(name, fields[name].value.trim());
      if (fields.as_set.checked) query.set("test_set", fields.test_set.value.trim());
      await wire.get("/curate/api/import-ready", { layout: fields.layout.value, classes: fields.classes.value.trim() });
      const body = alone ? chosen[0].file : packed(chosen);
      const said = await sent(`/curate/files/import?${query}`, body);
      patch.parts(said.parts);
      choose([]);
      watch();
    } catch (error) { refuse(error); }
    place.hidden = true;
    begin.disabled = !chosen.length;
    imports.busy--;
  });

  // ---- Progress

  let watching = false;
  async function watch() {
    if (watching) return;
    watching = true;
    const unheard = (words) => document.querySelector("#part-import .mut")?.replaceChildren(words);
    const shown = (said) => { patch.parts(said.parts); return said.active; };
    try { await wire.until(() => wire.patient("/curate/api/import", {}, unheard), shown); }
    catch (error) { refuse(error); }
    watching = false;
  }
  patch.on("click", "[data-stop-import]", (button) => {
    button.disabled = true;
    wire.post("/curate/api/stop-import").then(watch, refuse);
  });

  const ofSet = form.querySelector(".of-set"), asSet = form.elements.as_set;
  const fit = () => { ofSet.hidden = !asSet.checked; };
  asSet.addEventListener("change", fit);
  fit();
  if (document.querySelector("#part-import[data-state=running]")) watch();
  imports.ready = true;
})();
