// The state of fields, for the lead's pages: the value from the server and the text typed since then, also after a
// reload. Also heights that fit the text.
(() => {
  "use strict";
  const fields = (window.fields = {});

  fields.ticked = (field) => field.type === "checkbox" || field.type === "radio";

  // A slider or a checkbox has no typed text.
  fields.TYPED_IN = "textarea, select, input:not([type=range], [type=checkbox], [type=radio]), [contenteditable=true]";

  // The value that the markup gives a field.
  fields.given = (field) => {
    if (field.tagName !== "SELECT") return field.defaultValue;
    return ([...field.options].find((option) => option.defaultSelected) ?? field.options[0])?.value ?? "";
  };

  fields.typed = (field) =>
    fields.ticked(field) ? field.checked !== field.defaultChecked : field.value !== (field.server ?? fields.given(field));

  // Unsaved text in a field with a draft comes back after a reload.
  fields.recall = (field) => {
    const draft = field.dataset.draft && kept.tab.get(`draft:${field.dataset.draft}`);
    if (draft) field.value = draft;
  };
  fields.mark = (field) => {
    if (!field.dataset.draft) return;
    const open = fields.typed(field);
    field.classList.toggle("typed", open);
    if (open) kept.tab.set(`draft:${field.dataset.draft}`, field.value);
    else kept.tab.remove(`draft:${field.dataset.draft}`);
  };

  // Mark one of several buttons, such as the button of the shown picture.
  fields.choose = (buttons, isOn) => {
    for (const one of buttons) {
      one.classList.toggle("on", isOn(one));
      one.setAttribute("aria-pressed", String(isOn(one)));
    }
  };

  fields.fitHeight = (area) => {
    if (!area.offsetParent) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
  };
})();
