// Updates a page with markup of the server, for all pages but the annotators'. idiomorph changes existing elements, so
// that focus, scroll position and a pressed button survive. This script keeps the person's input. After fields.js.
(() => {
  "use strict";
  const { given, recall, ticked } = window.fields;
  const FIELDS = "textarea, input, select";
  const OWN = new Set(["style", "data-open", "data-editing", "data-more", "data-began-version", "data-began-state", "aria-busy", "aria-invalid", "aria-errormessage", "aria-sort", "open", "inert"]);
  const NOBODY = () => false;

  // Return the nodes of markup. Scripts in them do not run.
  const nodes = (markup) => {
    const holder = document.createElement("template");
    holder.innerHTML = markup;
    return holder.content;
  };

  // A key is unique among its neighbours only, but idiomorph needs unique ids.
  function nameKeys(root) {
    for (const one of root.querySelectorAll("[data-key]:not([id])")) one.id = `${one.parentElement?.closest("[id]")?.id ?? ""}/${one.dataset.key}`;
  }

  // An element with another key, or with text typed for another run, is a different element, even with the same id.
  function dropOthers(root, fresh) {
    for (const want of fresh.querySelectorAll("[id][data-key], [id][data-draft]")) {
      const old = root.querySelector(`#${CSS.escape(want.id)}`);
      if (old && (old.dataset.key !== want.dataset.key || old.dataset.draft !== want.dataset.draft)) old.remove();
    }
  }

  function fit(root, fresh, keeps) {
    const picked = new Map();   // chosen values before their options changed
    nameKeys(root);
    nameKeys(fresh);
    dropOthers(root, fresh);

    function before(old, want) {
      if (old.nodeType !== 1) return true;
      if (old.hasAttribute("data-own") && want.hasAttribute("data-own")) return false;
      const other = old.id !== want.id;   // idiomorph makes a new element for one without an id
      if (other) for (const name of OWN) old.removeAttribute(name);
      if (!old.matches(FIELDS)) return true;
      if (other) { old.value = given(old); delete old.server; }
      old.server ??= given(old);
      picked.set(old, old.value);
      return true;
    }

    function attribute(name, old, how) {
      if (how === "remove" && OWN.has(name)) return false;
      if (name === "checked" || name === "selected") return false;
      return !(name === "value" && old.matches(FIELDS) && !ticked(old));   // `after` sets the value of each field
    }

    function after(old, want) {
      if (old.nodeType === 1 && old.matches(FIELDS) && old.type !== "file") settle(old, want);
    }

    function settle(field, want) {
      if (ticked(field)) {
        const shown = field.checked;
        field.defaultChecked = want.defaultChecked;
        field.checked = keeps(field) ? shown : want.defaultChecked;
        return;
      }
      const server = want.value, before = field.server, shown = picked.get(field) ?? field.value;
      field.server = server;
      if (field.tagName === "SELECT") {
        [...field.options].forEach((option, place) => {
          const wanted = want.options[place].defaultSelected;
          if (option.defaultSelected !== wanted) option.defaultSelected = wanted;
        });
      } else if (field.defaultValue !== server) field.defaultValue = server;
      // After a refusal, or before sending, typed text stays. And a field in use is not changed.
      const stays = keeps(field) || (shown !== before && (server === before || document.activeElement === field));
      const value = stays ? shown : server;
      if (field.value !== value) field.value = value;
    }

    // Called for each new node, also for one around existing nodes.
    function born(node) {
      if (node.nodeType !== 1) return;
      for (const field of node.matches(FIELDS) ? [node] : node.querySelectorAll(FIELDS)) {
        if (field.server !== undefined || ticked(field) || field.type === "file") continue;
        field.server = field.value;
        recall(field);
      }
    }

    // Messages that the page itself has put beside a field.
    const removed = (node) => !(node.of && root.contains(node.of));

    window.Idiomorph.morph(root, fresh, {
      callbacks: { beforeNodeRemoved: removed, beforeNodeMorphed: before, afterNodeMorphed: after, afterNodeAdded: born, beforeAttributeUpdated: attribute },
    });
  }

  // Update `root` to `markup`. `keeps` returns true for a field whose input stays in any case.
  const patch = (window.patch = (root, markup, keeps = NOBODY) => {
    const content = nodes(markup), fresh = content.ownerDocument.importNode(root, false);
    fresh.append(...content.childNodes);
    content.append(fresh);   // in a separate document, where no script runs and no picture loads
    fit(root, fresh, keeps);
  });
  // Update parts by their ids, each as a whole. Returns those that are on the page.
  patch.parts = (parts, keeps = NOBODY) => {
    const shown = [];
    for (const [id, markup] of Object.entries(parts)) {
      const root = document.getElementById(id);
      if (!root) continue;
      fit(root, nodes(markup).firstElementChild, keeps);
      shown.push(document.getElementById(id));
    }
    return shown;
  };
  patch.nodes = nodes;

  // Listen for events in elements that match `what`, also in later ones. `act` gets the element and the event.
  patch.on = (kind, what, act, capture = false) => document.addEventListener(kind, (event) => {
    const found = event.target.closest?.(what);
    if (found && !found.disabled) act(found, event);
  }, capture);
  // Return a function that calls `act` once, this time after its last call.
  patch.rested = (milliseconds, act) => {
    let timer = null;
    return (...given) => { clearTimeout(timer); timer = setTimeout(act, milliseconds, ...given); };
  };

  // Make an element with properties and content. Text is never parsed as markup.
  patch.make = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children.filter((child) => child !== null));
    return made;
  };
  patch.button = (words, onclick, properties = {}) => patch.make("button", { type: "button", className: "btn", onclick, ...properties }, words);
})();
