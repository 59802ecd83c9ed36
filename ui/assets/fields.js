// What a field says, for the pages of the studio: what the server gave it and what was typed since, also over a reload;
// and heights that fit their texts.
(() => {
  "use strict";
  const fields = (window.fields = {});

  fields.ticked = (field) => field.type === "checkbox" || field.type === "radio";

  // A slider or a tick is no place to type.
  fields.TYPED_IN = "textarea, select, input:not([type=range], [type=checkbox], [type=radio]), [contenteditable=true]";

  // What the markup of a field gives it.
  fields.given = (field) => {
    if (field.tagName !== "SELECT") return field.defaultValue;
    return ([...field.options].find((option) => option.defaultSelected) ?? field.options[0])?.value ?? "";
  };

  fields.typed = (field) =>
    fields.ticked(field) ? field.checked !== field.defaultChecked : field.value !== (field.server ?? fields.given(field));

  // What is typed in a field with a draft and not saved comes back with the page.
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

  // Of several buttons some are on, such as the one of what is shown.
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
