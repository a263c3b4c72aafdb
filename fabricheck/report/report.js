"use strict";
// Opens runs, filters them, and draws the figures. What is not PASS can be read without it.
(() => {
  const root = document.documentElement;
  const runs = [...document.querySelectorAll("details.run")];
  const paperWidth = 680;
  // Named one by one: plotly's own choice has a button that sends the figure's data to another host.
  const toolbar = [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]];
  let figures = [], bodies = [];

  async function unpack(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (one) => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  function themed(layout) {
    const style = getComputedStyle(root);
    const [ink, line, paper] = ["--ink", "--line", "--paper"].map((name) => style.getPropertyValue(name).trim());
    const axis = (own) => ({gridcolor: line, linecolor: line, zerolinecolor: line, ...own});
    return {...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {color: ink, size: 12, family: "system-ui, sans-serif"}, hoverlabel: {bgcolor: paper, font: {color: ink}},
      ...Object.fromEntries(Object.keys(layout).filter((key) => /^[xy]axis/.test(key)).map((key) => [key, axis(layout[key])])),
      ...(root.classList.contains("printing") ? {width: paperWidth} : {autosize: true})};
  }

  const places = (inside) => [...inside.querySelectorAll(".plot")];
  const isOpen = (place) => !place.closest("details.run:not([open])");

  function draw(place) {
    const {data, layout} = figures[Number(place.dataset.figure)];
    if (!("drawn" in place.dataset)) place.replaceChildren();
    place.dataset.drawn = "";
    Plotly.react(place, data, themed(layout), {responsive: true, displaylogo: false,
      plotlyServerURL: "", modeBarButtons: toolbar, displayModeBar: matchMedia("(max-width: 40rem)").matches ? false : "hover"})
      // Dragging and zooming is for mice, and the table says the same: the keyboard has one stop at a figure, not seven.
      .then(() => place.querySelectorAll(".modebar-btn:not([data-title^=Download])").forEach((one) => { one.tabIndex = -1; }));
  }

  const redraw = () => places(document).filter((place) => "drawn" in place.dataset).forEach(draw);

  const near = "IntersectionObserver" in window && new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, {rootMargin: "800px"});

  // Figures draw when they come near, and their tables close then.
  function prepare(inside) {
    for (const place of places(inside)) {
      place.closest("figure").querySelector("details").open = false;
      near.observe(place);
    }
  }

  function show(run) {
    if (!run.dataset.packed) return;
    const body = document.createElement("div");
    body.innerHTML = bodies[Number(run.dataset.packed)];
    run.querySelector(".undrawn").replaceWith(body);
    delete run.dataset.packed;
    prepare(body);
  }

  // What is closed is not printed, and of what is open nothing is drawn later.
  function print() {
    root.classList.add("printing");
    runs.filter((run) => run.open).forEach(show);
    places(document).filter(isOpen).forEach(draw);
  }

  function printed() {
    root.classList.remove("printing");
    redraw();
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
    figures = JSON.parse(await unpack("figures"));
    bodies = JSON.parse(await unpack("packed"));
    const script = document.createElement("script");
    script.textContent = await unpack("plotly");
    document.head.append(script);
    const last = Math.max(-1, ...places(document).map((place) => Number(place.dataset.figure)));
    if (last >= figures.length || !("Plotly" in window)) throw new Error("the page is damaged");
    prepare(document);
    runs.forEach((run) => run.addEventListener("toggle", () => run.open && show(run)));
    runs.filter((run) => run.open).forEach(show);
    start_filter();
    addEventListener("hashchange", follow);
    follow();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    addEventListener("beforeprint", print);
    addEventListener("afterprint", printed);
    root.dataset.drawn = "yes";
  }

  start().catch((error) => {
    root.dataset.drawn = "no";
    for (const note of document.querySelectorAll(".plot .undrawn")) {
      note.textContent = `This browser cannot draw the figure (${error.message}); the table below says the same.`;
    }
    document.querySelectorAll("figure details").forEach((table) => { table.open = true; });
  });
})();
