// Shared by the lead's pages: updating of parts, polling, posting, files, confirmation windows, copying. Pages add
// their own functions to `window.study`. After patch.js.
(() => {
  "use strict";
  const study = (window.study = { afterFit: [], keeps: undefined });

  // Update parts by their ids, then call the listeners with each.
  study.fit = (parts = {}) => {
    for (const part of patch.parts(parts, study.keeps)) for (const hook of study.afterFit) hook(part);
  };

  // Show an error beside its field; "" removes it. Returns true if there is such a place.
  study.tell = (field, text) => {
    const places = [...document.querySelectorAll("[data-problem]")].filter((one) => one.dataset.problem === field);
    for (const place of places) place.textContent = text;
    return places.length > 0;
  };
  // Show an error beside its field, or else in the general place of `root`. Returns true if there is such a place.
  study.refuse = (error, root = document) => {
    const places = [...root.querySelectorAll("[data-problem]")];
    const at = places.find((one) => error.field && one.dataset.problem === error.field) ?? places.find((one) => one.dataset.problem === "");
    if (!at) return false;
    at.textContent = error.message;
    at.closest("details")?.setAttribute("open", "");
    at.scrollIntoView({ block: "nearest" });
    return true;
  };
  study.clear = (root = document) => { for (const place of root.querySelectorAll("[data-problem]")) place.textContent = ""; };

  // Poll for changes and show them. `get` gets the revision of the page. `pause` returns the milliseconds to the next
  // poll, 0 for none. `rests` returns true while the page must not change.
  study.following = ({ get, show, pause, rests = () => document.hidden, refused = () => {} }) => {
    let timer = null, looks = 0;
    const following = {
      busy: 0, revision: "", ready: false,   // ready: something was shown
      // A caller who polls `now` gets the error.
      async look(now = false) {
        clearTimeout(timer);
        const mine = ++looks;
        try {
          if (now || !(following.busy || rests())) {
            const said = await get(following.revision);
            document.body.classList.remove("lost");
            if (mine === looks && !following.busy && !said.same) following.shown(said);
          }
        } catch (error) {
          document.body.classList.toggle("lost", Boolean(error.lost));
          if (now) throw error;
          if (!error.lost) refused(error);
        } finally { if (mine === looks && pause()) timer = setTimeout(following.look, pause()); }
      },
      shown(said) {
        Object.assign(following, { revision: said.revision ?? "", ready: true });
        show(said);
      },
      // The page does not poll while something is being sent, since earlier answers would be outdated.
      async during(act) {
        following.busy++;
        looks++;
        clearTimeout(timer);
        try { await act(); } finally { following.busy--; }
        following.look();
      },
    };
    document.addEventListener("visibilitychange", () => { if (!document.hidden) following.look(); });
    return following;
  };

  // Send forms by `act`, which gets the form and its fields. The button stays disabled until then, or for good if `act`
  // returns true.
  study.submits = (what, act) => patch.on("submit", what, async (form, event) => {
    const button = event.submitter ?? form.querySelector("[type=submit]"), fields = Object.fromEntries(new FormData(form, button));
    event.preventDefault();
    study.clear(form);
    button.disabled = true;
    button.disabled = Boolean(await act(form, fields));
  });
  // A form with an address posts its fields there. The reply is another page, or parts of this one.
  study.submits("form[data-post]", async (form, fields) => {
    try {
      const done = await wire.post(form.dataset.post, fields);
      if (done.go) { location.assign(wire.at(done.go)); return true; }
      form.reset();
      study.fit(done.parts);
      document.querySelector("[autofocus]")?.focus();
    } catch (error) { study.refuse(error, form); }
    return false;
  });

  // Buttons with `data-send` send this command with the fields of `data`. The reply is a page, or a state to show.
  study.sends = (api, data, following) => patch.on("click", "[data-send]", (button, event) => {
    if (button.form && !button.form.reportValidity()) return;
    event.preventDefault();   // the button of a form sends here, and not to another page
    button.disabled = true;
    study.tell("", "");
    following.during(async () => {
      try {
        const said = await wire.post(api(button.dataset.send), data(button));
        if (said.go) location.assign(wire.at(said.go)); else following.shown(said);
      } catch (error) { study.tell("", error.message); following.revision = ""; }
      button.disabled = false;
      document.querySelector("details.cancel[open]")?.removeAttribute("open");
    });
  });

  // Fields for a file: the function that sends it, by the id of the field. Beside the field is a note on its progress.
  study.takes = {
    async restore(file, note) {
      note.textContent = `Restoring ${file.name} …`;
      const { said, go } = await wire.sendFile("/study/restored", file);
      note.replaceChildren(`${said} `, patch.make("a", { href: wire.at(go) }, "Open it"));
    },
  };
  document.addEventListener("change", async ({ target: field }) => {
    const send = study.takes[field.id], file = send && field.files[0];
    if (!file) return;
    const note = document.getElementById(`${field.id}-note`);
    study.tell(field.id, "");
    note.textContent = `Sending ${file.name} …`;
    field.disabled = true;   // one file after the other
    try { await send(file, note); } catch (error) { note.textContent = ""; study.tell(field.id, error.message); }
    field.disabled = false;
    field.value = "";   // so that the same file can be chosen again
  });

  // Show the progress of work in `place`: words, the finished share (null if unknown), and a button that stops it.
  study.progress = (place, words, share, stop) => {
    const { make } = window.patch, line = make("i");
    const bar = make("div", { className: share === null ? "bar unsure" : "bar" }, line);
    line.style.width = `${Math.round(100 * share)}%`;
    place.replaceChildren(make("span", {}, words), bar, stop);
    place.hidden = false;
  };

  // A window that informs or asks. `yes` calls `act`, whose error it shows. Returns the result of `act`, or null.
  study.ask = ({ title, content, yes = "", bad = false, no = "Not now", act }) => new Promise((resolve) => {
    const { make, button } = window.patch;
    let given = null;
    const problem = make("p", { className: "wrong", role: "alert" });
    const go = make("button", { type: "submit", className: `btn p${bad ? " bad" : ""}`, id: "confirm-go", autofocus: true }, yes);
    const form = make("form", {}, make("h2", {}, title), ...content, problem,
      make("div", { className: "acts" }, yes ? go : null, button(no, () => asked.close(), { id: "confirm-no" })));
    const asked = make("dialog", { className: "window small", id: "confirm", ariaLabel: title }, form);
    form.onsubmit = async (event) => {
      event.preventDefault();
      go.disabled = true;
      try { given = await act(); asked.close(); } catch (error) { problem.textContent = error.message; }
      go.disabled = false;
    };
    asked.onclose = () => { asked.remove(); resolve(given); };
    document.querySelector(".studio").append(asked);
    asked.showModal();
  });

  study.copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: use the old way */ }
    const focus = document.activeElement, area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);   // elements outside an open dialog cannot be used
    area.focus({ preventScroll: true });
    area.select();
    const done = document.activeElement === area && document.execCommand("copy");
    area.remove();
    focus?.focus({ preventScroll: true });
    return done;
  };
  // The button says for a moment that it has copied. If copying fails, the text of `from` is selected.
  study.copied = (button, done, from) => {
    button.dataset.words ??= button.textContent;
    button.textContent = done ? "Copied" : "Selected: copy it now";
    if (done) setTimeout(() => { button.textContent = button.dataset.words; }, 1600);
    else getSelection().selectAllChildren(from);
  };

  patch.on("click", "[data-copy-from]", async (target) => {
    const from = document.querySelector(target.dataset.copyFrom);
    study.copied(target, await study.copy(from.textContent), from);
  });
})();
