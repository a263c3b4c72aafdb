"use strict";
// Draws the figures. All that they show is in the page without them.
(() => {
  const root = document.documentElement;
  const places = [...document.querySelectorAll(".plot")];
  const tables = places.map((place) => place.closest("figure").querySelector("details"));
  const paperWidth = 680;
  // Named one by one: plotly's own choice has a button that sends the figure's data to another host.
  const toolbar = [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]];
  let figures = [];

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
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
      ...(root.classList.contains("printing") ? {width: paperWidth} : {autosize: true})};
  }

  function draw(place) {
    const {data, layout} = figures[places.indexOf(place)];
    if (!("drawn" in place.dataset)) place.replaceChildren();
    place.dataset.drawn = "";
    Plotly.react(place, data, themed(layout), {responsive: true, displaylogo: false,
      plotlyServerURL: "", modeBarButtons: toolbar});
  }

  const redraw = () => places.filter((place) => "drawn" in place.dataset).forEach(draw);

  // On paper there is nothing to open, and nothing that would be drawn later.
  function print() {
    root.classList.add("printing");
    places.forEach(draw);
  }

  function printed() {
    root.classList.remove("printing");
    redraw();
  }

  async function start() {
    tables.forEach((table) => { table.open = false; });
    const script = document.createElement("script");
    script.textContent = await unpack("plotly");
    document.head.append(script);
    figures = JSON.parse(await unpack("figures"));
    if (figures.length !== places.length || !("Plotly" in window)) throw new Error("the page is damaged");
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        near.unobserve(entry.target);
        draw(entry.target);
      }
    }, {rootMargin: "800px"});
    places.forEach((place) => near.observe(place));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    addEventListener("beforeprint", print);
    addEventListener("afterprint", printed);
    root.dataset.drawn = "yes";
  }

  start().catch((error) => {
    root.dataset.drawn = "no";
    tables.forEach((table) => { table.open = true; });
    for (const note of document.querySelectorAll(".undrawn")) {
      note.textContent = `This browser cannot draw the figure (${error.message}); the table below says the same.`;
    }
  });
})();
