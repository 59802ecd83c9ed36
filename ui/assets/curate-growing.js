// The images of a batch while it goes on: how many more there are by now. They are shown when somebody asks for them, so
// that no image moves under a person who decides. After curate.js.
(() => {
  "use strict";
  const GROWS = 3000, RESTS = 15_000;   // milliseconds between two looks: while a batch of the view is at work, or none is
  const { gallery } = window, button = document.getElementById("came");
  if (!gallery || !button) return;
  let view = "", pause = RESTS;

  const batch = study.following({
    get: () => wire.get("/curate/api/grown", { view: (view = gallery.view) }),
    show(said) {
      pause = said.grows ? GROWS : RESTS;
      // A view that is held keeps its images; one that was left is another matter.
      if (view === gallery.view && !gallery.held) tell(said.count - gallery.fits);
    },
    pause: () => pause,
    rests: () => document.hidden || !new URLSearchParams(gallery.view).has("batch"),
  });
  function tell(more) {
    button.hidden = more <= 0;
    if (more > 0) button.textContent = `${more.toLocaleString("en-US")} more`;
  }
  button.addEventListener("click", () => {
    button.hidden = true;
    gallery.go(gallery.view, { push: false });
  });
  gallery.hooks.went.push(() => { button.hidden = true; pause = RESTS; batch.look(); });
  batch.look();
})();
