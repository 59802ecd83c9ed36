// The controls that choose the images of a gallery: search, filters, order, a picture of the person's own. After
// curate.js.
//
// All choices are part of the address. A press changes the latest requested view, which may not have arrived yet.
(() => {
  "use strict";
  const gallery = window.gallery;
  if (!gallery) return;
  const byId = (id) => document.getElementById(id);

  const WAYS = ["text", "edited", "like"];
  // The search field shows the current search, however the person got to this view.
  gallery.hooks.went.push(toField, toMap);
  function toField() {
    const query = new URLSearchParams(gallery.view), field = byId("search");
    if (document.activeElement === field) return;
    const way = WAYS.find((name) => query.has(name));
    if (way) byId("search-in").value = way;
    field.value = query.get(byId("search-in").value) ?? "";
  }
  // Search a moment after the last typed letter, or at once after Enter.
  const searched = () => {
    const query = new URLSearchParams(gallery.aimed), words = byId("search").value.trim(), way = byId("search-in").value;
    for (const name of WAYS) query.delete(name);
    if (way === "like" && words) { query.delete("near"); query.delete("picture"); }
    if (words) query.set(way, words);
    if (query.toString() !== new URLSearchParams(gallery.aimed).toString()) gallery.go(query.toString());
  };
  // The studio stores a picture of the person's own, and the address names it.
  byId("like-picture").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    gallery.say("Looking at the picture …");
    try {
      const view = gallery.aimed, { picture } = await wire.sendFile("/curate/like-picture", file);
      if (view !== gallery.aimed) return;   // the person has gone to another view meanwhile
      const query = new URLSearchParams(view);
      for (const name of ["like", "near"]) query.delete(name);
      query.set("picture", picture);
      await gallery.go(query.toString());
      gallery.say(`Images that look most like ${file.name} come first. `);
    } catch (error) { gallery.refuse(error.message); } finally { event.target.value = ""; }
  });
  byId("search").addEventListener("input", patch.rested(180, searched));
  byId("search-in").addEventListener("change", searched);
  byId("search-form").addEventListener("submit", (event) => { event.preventDefault(); searched(); });

  patch.on("click", "a[data-view]", (link, event) => {
    if (event.ctrlKey || event.metaKey || event.button) return;
    event.preventDefault();
    if (event.shiftKey && !link.dataset.other) return;
    const way = event.shiftKey ? "other" : "view";
    if (!link.closest("#filters") || (gallery.filtersOf === gallery.aimed && gallery.aimed === gallery.view)) gallery.go(link.dataset[way]);
    else pressing = gallery.whole(pressing.then(() => follow(link, way)));
  });
  // The counts bring the addresses of the filters. A person who is quicker waits for them.
  let pressing = Promise.resolve();
  async function countsAreThere() {
    await gallery.going;
    if (gallery.aimed === gallery.view && gallery.filtersOf !== gallery.aimed) await gallery.totals();
    return gallery.filtersOf === gallery.aimed && gallery.aimed === gallery.view;
  }
  async function follow(link, way) {
    const { key } = link.dataset, words = link.textContent;
    for (let tries = 0; tries < 5 && !(await countsAreThere()); tries += 1);
    const now = [...document.querySelectorAll("#filters a[data-view]")].find((one) => (key ? one.dataset.key === key : one.textContent === words));
    if (now) await gallery.go(now.dataset[way]);
  }
  patch.on("change", "#order", ({ value }) => {
    const query = new URLSearchParams(gallery.aimed), order = new URLSearchParams(value);
    for (const name of ["sort", "falling"]) { query.delete(name); if (order.has(name)) query.set(name, order.get(name)); }
    gallery.go(query.toString());
  });
  byId("filters").parentElement.addEventListener("toggle", (event) => {
    if (event.target.matches("details.check") && event.target.open && event.target.querySelector(".waits")) gallery.totals();
  }, true);
  patch.on("input", "[data-find]", ({ value, parentElement }) => {
    for (const chip of parentElement.querySelectorAll(".chip")) chip.hidden = !chip.textContent.toLowerCase().includes(value.trim().toLowerCase());
  });
  patch.on("input", ".histogram", (range) => { range.querySelector(".range-words").textContent = ends(range).map((end) => end.toFixed(2)).join(" to "); });
  const ends = (range) => [...range.querySelectorAll("input")].map((one) => Number(one.value)).sort((one, other) => one - other);
  patch.on("change", ".histogram", (range, event) => {
    const [low, high] = ends(range), [least, largest] = [Number(event.target.min), Number(event.target.max)];
    const query = new URLSearchParams(gallery.aimed), check = range.dataset.range;
    const some = low > least || high < largest;
    if (range.dataset.score) {   // one range of scores replaces all earlier choices of scores
      query.delete("score");
      query.delete("none", "score");
      if (some) query.append("score", `${low > least ? low : ""}:${high < largest ? high : ""}`);
    } else {
      const checkOf = (one) => one.slice(0, one.lastIndexOf(":", one.lastIndexOf(":") - 1));
      for (const one of query.getAll("range")) if (checkOf(one) === check) query.delete("range", one);
      if (some) query.append("range", `${check}:${low > least ? low : -1000}:${high < largest ? high : 1000}`);
    }
    gallery.go(query.toString());
  });

  // Score all images at once; the filters then show the result.
  patch.on("click", "#score-images", async (press) => {
    press.disabled = true;
    gallery.say("Learning from the votes …");
    try {
      const { result } = await wire.post("/curate/api/score-images", {});
      await gallery.again();
      gallery.say(`${result.images.toLocaleString("en-US")} images are scored.`);
    } catch (error) { gallery.refuse(error.message); } finally { press.disabled = false; }
  });

  // Let the judge answer in the background, and show how far it is.
  const JUDGING = 1500;   // milliseconds between two looks
  patch.on("click", "#judge-images, #stop-judging", async (press) => {
    press.disabled = true;
    try {
      await wire.post(`/curate/api/${press.id}`, press.id === "judge-images" ? { filter: press.dataset.filter } : {});
      await gallery.totals();
      followJudge();
    } catch (error) { gallery.refuse(error.message); } finally { press.disabled = false; }
  });
  const judges = () => document.querySelector("#judging[data-working]");
  let following = false;
  async function followJudge() {
    if (following) return;
    for (following = true; judges();) {
      await wire.pause(JUDGING);
      if (!document.hidden) await (judges() ? gallery.totals() : null);
      if (!judges()) await gallery.again();
    }
    following = false;
  }
  followJudge();

  // On a phone the filters are below the images. Without this, the link would add a step to the history.
  document.querySelector(".to-filter").addEventListener("click", (event) => { event.preventDefault(); byId("filter").scrollIntoView(); });

  // The map shows the images of the same filter as the grid.
  function toMap() {
    const query = new URLSearchParams(gallery.view);
    for (const name of ["sort", "falling", "near", "like", "picture", "alike", "region", "colours"]) query.delete(name);
    document.querySelector('[data-page="map"]').href = wire.at(`/curate/map${query.size ? `?${query}` : ""}`);
  }
  toMap();
})();
