// The images of a batch while it goes on: how many more there are by now. They are shown when somebody asks for them, so
// that no image moves under a person who decides. After curate.js.
(() => {
  "use strict";
  const GROWS = 3000, RESTS = 15_000;   // milliseconds between two looks: while a batch of the view is at work, or none is
  const { gallery } = window, button = document.getElementById("came");
  if (!gallery || !button) return;
  let timer = null;

  async function look() {
    clearTimeout(timer);
    const { view } = gallery;
    let pause = RESTS;
    if (!document.hidden && new URLSearchParams(view).has("batch")) {
      try {
        const said = await wire.get("/curate/api/grown", { view });
        if (said.grows) pause = GROWS;
        // A view that is held keeps its images; one that was left is another matter.
        if (view === gallery.view && !gallery.held) tell(said.count - gallery.fits);
      } catch { /* the next look may be answered */ }
    }
    clearTimeout(timer);
    timer = setTimeout(look, pause);
  }
  function tell(more) {
    button.hidden = more <= 0;
    if (more > 0) button.textContent = `${more.toLocaleString("en-US")} more`;
  }
  button.addEventListener("click", () => {
    button.hidden = true;
    gallery.go(gallery.view, { push: false });
  });
  gallery.hooks.went.push(() => { button.hidden = true; look(); });
  document.addEventListener("visibilitychange", look);
  look();
})();
