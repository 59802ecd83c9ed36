// Fitting markup of the server into a page, for all pages but the annotators': idiomorph moves and changes what is there,
// so that focus, scroll and a press on a button survive; here stands what is the person's. After fields.js.
(() => {
  "use strict";
  const { given, recall, ticked } = window.fields;
  const FIELDS = "textarea, input, select";
  const OWN = new Set(["style", "data-open", "data-editing", "data-more", "data-began-version", "data-began-state", "aria-busy", "aria-invalid", "aria-errormessage", "aria-sort", "open", "inert"]);
  const NOBODY = () => false;

  // Nodes of markup. Scripts in them do not run.
  const nodes = (markup) => {
    const holder = document.createElement("template");
    holder.innerHTML = markup;
    return holder.content;
  };

  // A key is unique among its neighbours only; idiomorph knows ids.
  function nameKeys(root) {
    for (const one of root.querySelectorAll("[data-key]:not([id])")) one.id = `${one.parentElement?.closest("[id]")?.id ?? ""}/${one.dataset.key}`;
  }

  // What has another key, or holds what is typed for another run, is another thing, though it has the same id.
  function dropOthers(root, fresh) {
    for (const want of fresh.querySelectorAll("[id][data-key], [id][data-draft]")) {
      const old = root.querySelector(`#${CSS.escape(want.id)}`);
      if (old && (old.dataset.key !== want.dataset.key || old.dataset.draft !== want.dataset.draft)) old.remove();
    }
  }

  function fit(root, fresh, keeps) {
    const picked = new Map();   // choices as they were before their options changed
    nameKeys(root);
    nameKeys(fresh);
    dropOthers(root, fresh);

    function before(old, want) {
      if (old.nodeType !== 1) return true;
      if (old.hasAttribute("data-own") && want.hasAttribute("data-own")) return false;
      const other = old.id !== want.id;   // idiomorph makes something new of what has no id
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
      return !(name === "value" && old.matches(FIELDS) && !ticked(old));   // each of them is settled by `after`
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
      // Refused, or not sent yet: what was typed stays. And nothing changes under the hands of who types.
      const stays = keeps(field) || (shown !== before && (server === before || document.activeElement === field));
      const value = stays ? shown : server;
      if (field.value !== value) field.value = value;
    }

    // Called of each node that came, also of one around nodes that were there before.
    function born(node) {
      if (node.nodeType !== 1) return;
      for (const field of node.matches(FIELDS) ? [node] : node.querySelectorAll(FIELDS)) {
        if (field.server !== undefined || ticked(field) || field.type === "file") continue;
        field.server = field.value;
        recall(field);
      }
    }

    // What the page itself says beside a field.
    const removed = (node) => !(node.of && root.contains(node.of));

    window.Idiomorph.morph(root, fresh, {
      callbacks: { beforeNodeRemoved: removed, beforeNodeMorphed: before, afterNodeMorphed: after, afterNodeAdded: born, beforeAttributeUpdated: attribute },
    });
  }

  // `root` holds what `markup` says. `keeps` says of a field that what its person put there stays, whatever comes.
  const patch = (window.patch = (root, markup, keeps = NOBODY) => {
    const content = nodes(markup), fresh = content.ownerDocument.importNode(root, false);
    fresh.append(...content.childNodes);
    content.append(fresh);   // in a document of its own, where nothing runs and no picture loads
    fit(root, fresh, keeps);
  });
  // Parts by their ids, each as a whole; gives those that are on the page.
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

  // An element with its properties and what it holds. Texts stay texts.
  patch.make = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children.filter((child) => child !== null));
    return made;
  };
  patch.button = (words, onclick, properties = {}) => patch.make("button", { type: "button", className: "btn", onclick, ...properties }, words);
})();
