"use strict";
// Opens runs and filters them. The worst can be read without it.
(() => {
  const root = document.documentElement;
  const runs = [...document.querySelectorAll("details.run")];
  let bodies = [];

  async function unpack(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (one) => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  function show(run) {
    if (!run.dataset.packed) return;
    const body = document.createElement("div");
    body.innerHTML = bodies[Number(run.dataset.packed)];
    run.querySelector(".undrawn").replaceWith(body);
    delete run.dataset.packed;
  }

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
    const wanted = Object.fromEntries(new FormData(form));
    const has = (text, part) => text.toLowerCase().includes(part.trim().toLowerCase());
    let shown = 0;
    for (const run of runs) {
      const own = run.dataset;
      run.hidden = Boolean((wanted.verdict && own.verdict !== wanted.verdict) || !has(own.hosts, wanted.host)
        || (wanted.transport && own.transport !== wanted.transport)
        || !has(`${own.check} ${run.querySelector("summary").textContent}`, wanted.check));
      shown += !run.hidden;
    }
    for (const row of document.querySelectorAll(".grid tr[data-hosts]")) {
      row.hidden = form.dataset.nodes === "many" && !has(row.dataset.hosts, wanted.host);
    }
    form.querySelector("output").textContent = `${shown} of ${runs.length} runs`;
  }

  function start_filter() {
    const form = document.querySelector(".filter");
    if (!form) return;
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

  async function start() {
    bodies = JSON.parse(await unpack("packed"));
    runs.forEach((run) => run.addEventListener("toggle", () => run.open && show(run)));
    runs.filter((run) => run.open).forEach(show);
    start_filter();
    addEventListener("hashchange", follow);
    follow();
    // What was opened is printed.
    addEventListener("beforeprint", () => runs.filter((run) => run.open).forEach(show));
    root.dataset.ready = "yes";
  }

  start().catch((error) => {
    root.dataset.ready = "no";
    for (const note of document.querySelectorAll(".undrawn")) note.prepend(`This browser cannot show it (${error.message}). `);
  });
})();
