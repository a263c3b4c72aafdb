"use strict";
// Opens runs and filters them. All can be read without it.
(() => {
  const runs = [...document.querySelectorAll("details.run")];

  // A link to a run opens it; to something inside of one, too.
  function follow() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const run = target && target.closest("details.run");
    if (!run) return;
    run.hidden = false;
    run.open = true;
    run.scrollIntoView();
  }

  function filter(form) {
    const words = form.elements.words.value.toLowerCase().split(/\s+/);
    for (const run of runs) {
      const text = `${run.dataset.hosts} ${run.querySelector("summary").textContent}`.toLowerCase();
      run.hidden = !words.every((word) => text.includes(word));
    }
    form.querySelector("output").textContent = `${runs.filter((run) => !run.hidden).length} of ${runs.length} runs`;
  }

  function start_filter(form) {
    form.hidden = false;
    form.addEventListener("input", () => filter(form));
    form.addEventListener("submit", (event) => event.preventDefault());
    const button = form.elements.open;
    button.addEventListener("click", () => {
      const opening = runs.some((run) => !run.hidden && !run.open);
      runs.filter((run) => !run.hidden).forEach((run) => { run.open = opening; });
      button.textContent = opening ? "Close all" : "Open all";
    });
    filter(form);
  }

  const form = document.querySelector(".filter");
  if (form) start_filter(form);
  addEventListener("hashchange", follow);
  follow();
  document.documentElement.dataset.ready = "yes";
})();
