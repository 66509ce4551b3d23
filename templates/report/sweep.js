"use strict";
const PAINTS = 10;  // number of colours in the page's style: c0 to c9. Further series are dashed.
// Escape names from targets and hosts, because Plotly interprets markup in texts.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");

function trace(series, index, panel) {
  const line = { color: colour(`c${index % PAINTS}`), width: 1.8, dash: index < PAINTS ? "solid" : "dash" };
  return {
    name: plain(series.name), x: series.x, y: series.y, mode: "lines+markers", line, marker: { size: 6 },
    error_y: { type: "data", symmetric: false, array: series.above, arrayminus: series.below, thickness: 1, width: 0 },
    hovertemplate: `${plain(series.name)}: %{y:,.4~g} ${plain(panel.y)} at ${plain(panel.x)} %{x}<extra></extra>`,
  };
}

function drawPanel(panel, index) {
  Plotly.react(by(`figure-${index}`), panel.series.map((series, i) => trace(series, i, panel)), layout({
    margin: { l: 64, r: 16, t: 12, b: 48 }, showlegend: true, legend: { orientation: "h", y: -0.18, yanchor: "top" },
    xaxis: { title: { text: plain(panel.x) }, type: panel.words ? "category" : "linear", automargin: true },
    yaxis: { title: { text: plain(panel.y) }, ...(panel.log ? logAxis(panel.series.flatMap((series) => series.y), 2) : { rangemode: "tozero" }) },
  }), { responsive: true, displaylogo: false, displayModeBar: false });
}

Promise.all([unpacked(), plotlyLoaded()]).then(([{ panels }]) => {
  const drawAll = () => panels.forEach(drawPanel);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.drawn = "yes";
});
