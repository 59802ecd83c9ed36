// Values that this browser keeps for the pages: `kept.browser` for all windows, `kept.tab` for this tab and its
// reloads. If the storage is full or blocked, the value lasts until the page is left. Before all other scripts.
(() => {
  "use strict";
  const kept = (window.kept = {});
  let told = false;   // the message in the header of the lead's pages (`ui/frame.py`) is shown once per page

  function store(which) {
    const memory = new Map();   // values that the browser could not store
    const wrote = (name, text) => { try { window[which].setItem(name, text); return true; } catch { return false; } };
    const remove = (name) => { try { window[which].removeItem(name); } catch { /* there is nothing to remove */ } };
    return {
      // Null if there is no value.
      get(name) {
        if (memory.has(name)) return memory.get(name);
        try { return window[which].getItem(name); } catch { return null; }
      },
      // Return true if the browser keeps the value beyond this page. If not, the page says so, unless `quiet` is set.
      set(name, text, quiet = false) {
        let done = wrote(name, text);
        if (!done) { remove(name); done = wrote(name, text); }   // an older value must not come back later
        if (done) memory.delete(name); else memory.set(name, text);
        if (!done && !quiet && !told) {
          told = true;
          document.documentElement.classList.add("keeps-nothing");
        }
        return done;
      },
      remove(name) { memory.delete(name); remove(name); },
      names() {
        let there = [];
        try { there = Object.keys(window[which]); } catch { /* storage is blocked */ }
        return [...new Set([...there, ...memory.keys()])];
      },
    };
  }
  kept.browser = store("localStorage");
  kept.tab = store("sessionStorage");

  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#keeps-nothing button")) document.documentElement.classList.remove("keeps-nothing");
  });
})();
