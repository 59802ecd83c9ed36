// The page of scripts: a token is made and shown once, or withdrawn. After study.js.
(() => {
  "use strict";
  const study = window.study;

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.id !== "token-form") return;
    event.preventDefault();
    const button = form.querySelector("[type=submit]"), given = Object.fromEntries(new FormData(form));
    button.disabled = true;
    try {
      const done = await wire.post("/scripts/make-token", { title: given.title, reads_only: given.reads_only !== "no", days: Number(given.days) });
      form.reset();
      study.fit(done.parts);
      document.getElementById("copy-token").focus();
    } catch (error) {
      for (const field of ["title", "reads_only", "days"]) study.tell(field, "");
      study.tell(error.field || "title", error.message);
      button.disabled = false;
    }
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-withdraw]");
    if (!button) return;
    button.disabled = true;
    try { study.fit((await wire.post("/scripts/withdraw-token", { token: Number(button.dataset.withdraw) })).parts); } catch (error) {
      button.disabled = false;
      button.previousElementSibling.textContent = error.message;
    }
  });
})();
