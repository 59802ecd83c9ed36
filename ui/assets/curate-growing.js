// Counts the new images of a running batch. They are shown only when the person asks for them, so that no image moves
// during a decision. After curate.js.
(() => {
  "use strict";
  const GROWS = 3000, RESTS = 15_000;   // milliseconds between two polls: while a batch of the view is at work, and otherwise
  const { gallery } = window, button = document.getElementById("came");
  if (!gallery || !button) return;
  let view = "", pause = RESTS;

  const batch = study.following({
    get: () => wire.get("/curate/api/grown", { view: (view = gallery.view) }),
    show(said) {
      pause = said.grows ? GROWS : RESTS;
      // A held view keeps its images. Stop if the person has left the view.
      if (view !== gallery.view || gallery.held) return;
      const more = said.count - gallery.fits;
      button.hidden = more <= 0;
      button.textContent = `${more.toLocaleString("en-US")} more`;
    },
    pause: () => pause,
    rests: () => document.hidden || !new URLSearchParams(gallery.view).has("batch"),
  });
  button.addEventListener("click", () => {
    button.hidden = true;
    gallery.go(gallery.view, { push: false });
  });
  gallery.hooks.went.push(() => { button.hidden = true; pause = RESTS; batch.look(); });
  batch.look();
})();
