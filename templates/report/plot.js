"use strict";
// Functions for the pages of studies and of sweeps.
async function gunzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function unpacked() {
  return JSON.parse(await gunzipped(Uint8Array.from(atob(by("data").textContent), (letter) => letter.charCodeAt(0))));
}

// The digits of base 85 as in RFC 1924, but with " instead of <.
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;\"=>?@^_`{|}~";

async function plotlyLoaded() {
  const text = by("plotly").textContent, value = new Uint8Array(128);
  for (let digit = 0; digit < DIGITS.length; digit++) value[DIGITS.charCodeAt(digit)] = digit;
  const groups = Math.ceil(text.length / 5), bytes = new DataView(new ArrayBuffer(4 * groups));
  for (let group = 0; group < groups; group++) {
    let sum = 0;
    for (let at = 5 * group; at < 5 * group + 5; at++) sum = 85 * sum + (at < text.length ? value[text.charCodeAt(at)] : 84);
    bytes.setUint32(4 * group, sum);
  }
  const script = document.createElement("script");
  script.textContent = await gunzipped(bytes.buffer.slice(0, Math.floor(text.length * 4 / 5)));
  document.head.append(script);
}

const by = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Names and messages from targets and hosts are text, but Plotly would read them as markup.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("\n", "<br>");

// Return the data with all text escaped, because Plotly would read the text as markup. Hover templates contain markup,
// so they are not escaped.
function plainTexts(value, key) {
  if (typeof value === "string") return key === "hovertemplate" ? value : plain(value);
  if (Array.isArray(value)) return value.map((item) => plainTexts(item, key));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plainTexts(item, name)]));
}

// Label each decade and, if the axis spans few decades, also 2 and 5 times each decade.
function logAxis(values, mostDecades) {
  const exponents = values.filter((value) => value > 0).map(Math.log10);
  if (!exponents.length) return { type: "log" };
  const from = Math.floor(exponents.reduce((a, b) => Math.min(a, b)));
  const to = Math.ceil(exponents.reduce((a, b) => Math.max(a, b)));
  const steps = to - from <= mostDecades ? [1, 2, 5] : [1];
  const tickvals = Array.from({ length: to - from + 1 }, (_, decade) => steps.map((step) => step * 10 ** (from + decade))).flat();
  return { type: "log", tickvals, ticktext: tickvals.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 3 })) };
}

function layout(more) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), tickformat: "," };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
    margin: { l: 64, r: 16, t: 12, b: 48 }, hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("ink") },
    hoverlabel: { bgcolor: colour("panel"), font: { color: colour("ink") } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, automargin: true, ...yaxis },
    ...rest,
  };
}
