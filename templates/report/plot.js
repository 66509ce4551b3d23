"use strict";
// What the pages of reports and of sweeps share.
async function unpacked() {
  const bytes = Uint8Array.from(atob(by("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const by = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function layout(more) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line") };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
    margin: { l: 64, r: 16, t: 12, b: 48 }, hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("ink") },
    hoverlabel: { bgcolor: colour("panel"), font: { color: colour("ink") } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}
