(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("studio-theme"); } catch { /* storage is blocked: the system decides */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  const early = [], sent = new Set();
  const press = (event) => {
    const button = event.target.closest("button[type=button]");
    if (!button) return;
    const { detail, shiftKey, ctrlKey, metaKey } = event;
    const same = new MouseEvent("click", { bubbles: true, cancelable: true, detail, shiftKey, ctrlKey, metaKey });
    early.push(() => button.disabled || button.dispatchEvent(same));
  };
  const key = (event) => {
    const { key, code, shiftKey } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || /^(Enter|Tab|Shift| )$/.test(key)) return;
    if (event.target.matches("input, textarea, select")) return;
    const same = new KeyboardEvent("keydown", { bubbles: true, cancelable: true, key, code, shiftKey });
    early.push(() => document.activeElement.dispatchEvent(same));
  };
  const send = (event) => {
    const { target: form, submitter } = event;
    if (form.hasAttribute("action")) return;
    event.preventDefault();
    if (!sent.has(form)) early.push(() => form.requestSubmit(submitter));   // once, however often it was pressed
    sent.add(form);
  };
  const missing = () => {
    if (document.querySelector(".missing")) return;
    const words = document.createElement("p");
    Object.assign(words, { className: "problem missing", role: "alert", textContent: "MISSING_WORDS" });
    document.querySelector(".studio").prepend(words);
  };
  addEventListener("error", ({ target }) => {
    if (!(target instanceof HTMLScriptElement)) return;
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", missing); else missing();
  }, true);
  const heard = { click: press, keydown: key, submit: send };
  for (const name in heard) document.addEventListener(name, heard[name], true);
  document.addEventListener("DOMContentLoaded", () => {
    for (const name in heard) document.removeEventListener(name, heard[name], true);
    for (const again of early) again();
  });
})();
