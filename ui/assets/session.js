// Read only where a sign-in is asked for, after wire.js. Shows the way out, and tells a person whose sign-in has ended, on
// a page that asks for nothing but data: it would stay silent for ever.
(() => {
  "use strict";
  document.documentElement.classList.add("locked");
  window.wire.signedOut = () => {
    if (document.getElementById("signed-out")) return;
    const bar = document.createElement("div");
    bar.id = "signed-out";
    bar.className = "studio";
    bar.setAttribute("role", "alert");
    bar.style.cssText = "position: fixed; inset: auto 0 22px; z-index: 1000; display: flex; justify-content: center; padding: 0 16px;";
    const card = document.createElement("div");
    card.className = "card";
    card.style.cssText = "display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; padding: 12px 16px; box-shadow: var(--s-pop);";
    const words = document.createElement("span");
    words.textContent = "You are signed out, so nothing here is saved any more. Copy what you have just typed, then sign in again.";
    const way = document.createElement("a");
    way.className = "btn p";
    way.textContent = "Sign in";
    way.href = `/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
    card.append(words, way);
    bar.append(card);
    document.body.append(bar);
  };
})();
