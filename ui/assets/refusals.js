// Errors beside their fields, until they are corrected there. Errors that the server shows at a card are not handled
// here.
(() => {
  "use strict";
  const studio = window.studio, { typed } = window.fields;
  let number = 0;

  // The place of the message: after the field, below its container.
  const place = (field) => field.closest("label, .caption-box") ?? field;

  studio.refuse = (field, said) => {
    if (!field.isConnected) { studio.say(said, "bad"); return; }   // the field is in a part that is gone by now
    const line = field.closest(".line");
    if (line && field.matches(".in-place")) line.dataset.editing = "";   // otherwise the message would be hidden
    studio.accept(field);
    const words = patch.make("p", { className: "refusal", id: `refusal-${++number}`, role: "alert", of: field }, said);
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-errormessage", words.id);
    if (place(field) === field) field.after(words); else place(field).append(words);
  };

  studio.accept = (field) => {
    const words = document.getElementById(field.getAttribute("aria-errormessage") ?? "");
    if (words?.of === field) words.remove();
    for (const name of ["aria-invalid", "aria-errormessage"]) field.removeAttribute(name);
  };

  // The field was typed in, reset or removed: remove its error.
  document.addEventListener("input", (event) => { if (event.target.closest(".studio")) studio.accept(event.target); });
  studio.afterPatch.push((root) => {
    for (const words of root.querySelectorAll(".refusal")) {
      if (!words.of) continue;
      if (!words.of.isConnected || words.of.getAttribute("aria-errormessage") !== words.id) words.remove();
      else if (!typed(words.of)) studio.accept(words.of);
    }
  });
})();
