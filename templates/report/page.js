"use strict";
let data;

const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const rate = (value) => value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
const fromZero = () => (data.unit.from_zero ? "tozero" : "normal");
const minutes = (seconds) => seconds / 60;

function draw(id, traces, shape) {
  const section = by(id);
  const drawable = traces.some((trace) => (trace.x || trace.dimensions || trace.labels || []).length);
  section.hidden = !drawable;
  if (!drawable) return;
  const plot = section.querySelector(".plot");
  Plotly.react(plot, traces, shape, {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    displayModeBar: matchMedia("(hover: none)").matches ? false : "hover",
  });
}

const SIDES = [["baseline", "stock", "dot"], ["best", "accent", "solid"]];

function drawLatency() {
  const traces = [];
  const quantiles = Object.keys(data.latency.baseline || data.latency.best || {}).filter((key) => /^p\d/.test(key));
  for (const [side, paint, dash] of SIDES) {
    const curve = data.latency[side];
    if (!curve) continue;
    quantiles.forEach((quantile, index) => traces.push({
      name: `${side} ${quantile}`, x: curve.rate, y: curve[quantile], customdata: curve.requests,
      mode: "lines+markers", connectgaps: false, legendgroup: side,
      visible: quantile === "p50" || quantile === data.slo.percentile ? true : "legendonly",
      line: { color: colour(paint), dash: quantile === data.slo.percentile ? "solid" : dash === "solid" ? "dash" : "dot", width: quantile === data.slo.percentile ? 3 : 1.5 },
      marker: { size: 4 + index }, opacity: 0.6 + 0.4 * (quantile === data.slo.percentile),
      hovertemplate: `${side} ${quantile}: %{y:.3g} ms at %{x:,.0f}/s (%{customdata:,} requests)<extra></extra>`,
    }));
  }
  draw("latency", traces, layout({
    xaxis: { title: { text: "offered rate, requests/s" }, rangemode: "tozero" },
    yaxis: { title: { text: "latency, ms" }, ...logAxis([data.slo.limit, ...traces.flatMap((trace) => trace.y)], 4) },
    shapes: [limitLine()], annotations: [limitLabel()],
  }));
}

// Labels in full, and no more of them than there is room for: 2 and 5 only between few decades.
function logAxis(values, mostDecades) {
  const exponents = values.filter((value) => value > 0).map(Math.log10);
  if (!exponents.length) return { type: "log" };
  const from = Math.floor(exponents.reduce((a, b) => Math.min(a, b)));
  const to = Math.ceil(exponents.reduce((a, b) => Math.max(a, b)));
  const steps = to - from <= mostDecades ? [1, 2, 5] : [1];
  const tickvals = Array.from({ length: to - from + 1 }, (_, decade) => steps.map((step) => step * 10 ** (from + decade))).flat();
  return { type: "log", tickvals, ticktext: tickvals.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 3 })) };
}

function limitLine() {
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: data.slo.limit, y1: data.slo.limit, line: { color: colour("bad"), width: 1.5, dash: "dash" } };
}
function limitLabel() {
  return { xref: "paper", x: 1, xanchor: "right", y: Math.log10(data.slo.limit), yanchor: "bottom", showarrow: false, text: data.slo.said, font: { color: colour("bad") } };
}

function atRate(curve, quantile, wanted) {
  const points = curve.rate.map((x, i) => [x, curve[quantile][i]]).filter(([x]) => x !== null);
  const after = points.findIndex(([x]) => x >= wanted);
  if (after < 0 || (after === 0 && points[0][0] > wanted)) return undefined;
  const [x1, y1] = points[after];
  if (after === 0 || x1 === wanted) return y1;
  const [x0, y0] = points[after - 1];
  if (y0 === null || y1 === null) return null;
  return y0 + (y1 - y0) * (wanted - x0) / (x1 - x0);
}

function sayAtRate() {
  const wanted = Number(by("rate").value);
  if (!wanted) { by("at-rate").textContent = ""; return; }
  by("at-rate").textContent = SIDES.filter(([side]) => data.latency[side]).map(([side]) => {
    const found = atRate(data.latency[side], data.slo.percentile, wanted);
    const said = found === undefined ? "not measured there" : found === null ? "beyond all answers" : `${found.toPrecision(3)} ms`;
    return `${side} ${data.slo.percentile}: ${said}`;
  }).join(" · ");
}

function drawProgress() {
  const groups = [
    ["baseline", "stock", (p) => p.trial === data.baseline || p.of === data.baseline],
    ["best", "accent", (p) => p.trial === data.best || p.of === data.best],
    ["other trials", "soft", () => true],
  ];
  const taken = new Set();
  const traces = groups.map(([name, paint, belongs]) => {
    const mine = data.peaks.filter((p) => p.peak !== null && !taken.has(p.trial) && belongs(p));
    mine.forEach((p) => taken.add(p.trial));
    return {
      name, mode: "markers", opacity: paint === "soft" ? 0.6 : 1, x: mine.map((p) => minutes(p.at)), y: mine.map((p) => p.peak), text: mine.map((p) => p.says),
      marker: { color: colour(paint), size: 8, symbol: mine.map((p) => data.counted.includes(p.phase) ? "circle" : "diamond") },
      error_y: { type: "data", symmetric: false, array: mine.map((p) => p.high - p.peak), arrayminus: mine.map((p) => p.peak - p.low), color: colour(paint), thickness: 1, width: 2 },
      hovertemplate: "%{text}<extra></extra>",
    };
  });
  traces.push({
    name: "highest so far", mode: "lines", line: { shape: "hv", color: colour("good"), width: 2 }, hoverinfo: "skip",
    x: data.steps.map((s) => minutes(s.at)).concat(data.peaks.length ? [minutes(data.peaks[data.peaks.length - 1].at)] : []),
    y: data.steps.map((s) => s.peak).concat(data.steps.length ? [data.steps[data.steps.length - 1].peak] : []),
  });
  const failed = data.peaks.filter((p) => p.peak === null);
  const floor = data.unit.from_zero ? 0 : Math.min(...data.peaks.map((p) => p.peak).filter((peak) => peak !== null));
  traces.push({
    name: "failed", mode: "markers", x: failed.map((p) => minutes(p.at)), y: failed.map(() => floor), text: failed.map((p) => p.says),
    marker: { color: colour("bad"), symbol: "x", size: 9 }, hovertemplate: "%{text}<extra></extra>",
  });
  draw("progress", traces.filter((t) => t.x.length), layout({
    xaxis: { title: { text: data.time }, rangemode: "tozero" }, yaxis: { title: { text: `${data.quantity}, ${data.unit.name}` }, rangemode: fromZero() },
  }));
}

const STATES = [["met", "good", "circle"], ["broken", "soft", "circle-open"], ["disturbed", "bad", "x"], ["limited", "stock", "triangle-down"]];

function drawReadings() {
  const all = data.readings;
  const traces = [];
  for (const [state, paint, symbol] of STATES) {
    const mine = all.at.map((_, i) => i).filter((i) => all.state[i] === state);
    if (!mine.length) continue;
    const pick = (column) => mine.map((i) => all[column][i]);
    const marks = { color: colour(paint), symbol, size: 6 };
    const text = mine.map((i) => `trial ${all.trial[i]}${all.warm[i] ? ", warm-up" : ""}: ${rate(all.rate[i])}/s, ${all.late[i] === null ? "no " + data.slo.percentile : data.slo.percentile + " " + all.late[i] + " ms"}, ${all.bad[i]} % late or failed`);
    const x = pick("at").map(minutes);
    const common = { mode: "markers", x, text, hovertemplate: "%{text}<extra></extra>", marker: marks, legendgroup: state };
    traces.push({ ...common, name: state, y: pick("rate"), yaxis: "y" });
    traces.push({ ...common, showlegend: false, name: state, y: pick("late"), yaxis: "y2" });
    traces.push({ ...common, showlegend: false, name: state, y: pick("bad"), yaxis: "y3" });
  }
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line") };
  draw("readings", traces, layout({
    xaxis: { title: { text: data.time }, anchor: "y3", rangemode: "tozero" },
    yaxis: { title: { text: "offered, 1/s" }, domain: [0.7, 1], rangemode: "tozero" },
    yaxis2: { ...axis, title: { text: `${data.slo.percentile}, ms` }, domain: [0.36, 0.64], ...logAxis(all.late, 1) },
    yaxis3: { ...axis, title: { text: "SLO violations, %" }, domain: [0, 0.3], rangemode: "tozero" },
  }));
}

function drawImportance() {
  const found = data.importance || { rows: [], pairs: [], edges: [] };
  const rows = found.rows.slice(0, 15).reverse();
  draw("importance", [{
    type: "bar", orientation: "h", x: rows.map((r) => r.share), y: rows.map((r) => r.name),
    marker: { color: colour("accent") }, hovertemplate: "%{y}: %{x:.0%}<extra></extra>",
  }], layout({ margin: { l: 230, r: 16, t: 12, b: 48 }, xaxis: { title: { text: "share of what the model explains" }, tickformat: ".0%" }, yaxis: { automargin: true } }));
  const pairs = found.pairs.map((p) => `${p.first} and ${p.second} interact: together ${(100 * p.effect).toFixed(0)} % beyond the sum of both`);
  by("importance").querySelector("ul").replaceChildren(...[...pairs, ...found.edges].map((text) => element("li", text)));
}

const parameter = (name) => data.parameters.parameters.find((p) => p.name === name);
const axisOf = (p) => ({ title: { text: p.unit ? `${p.name}, ${p.unit}` : p.name }, type: p.choices ? "category" : p.log ? "log" : "linear" });

function fillSelects() {
  const ranked = data.importance ? data.importance.rows.map((r) => r.name) : [];
  const place = (name) => { const at = ranked.indexOf(name); return at < 0 ? ranked.length : at; };
  const names = data.parameters.parameters.map((p) => p.name).sort((a, b) => place(a) - place(b));
  for (const [id, first] of [["slice", null], ["slice2", "–"]]) {
    const select = by(id);
    const had = select.value;
    select.replaceChildren(...[...(first ? [first] : []), ...names].map((name) => new Option(name, name)));
    if (had) select.value = had;
    select.onchange = drawSlices;
  }
}

function drawSlices() {
  const one = parameter(by("slice").value), two = parameter(by("slice2").value);
  const { trials, peaks, lows, highs } = data.parameters;
  if (!one) { draw("slices", [], layout({})); return; }
  const mine = trials.map((_, i) => i).filter((i) => one.values[i] !== null && (!two || two.values[i] !== null));
  const text = mine.map((i) => `trial ${trials[i]}: ${rate(peaks[i])}${data.unit.suffix}`);
  const x = mine.map((i) => one.values[i]);
  if (two) {
    draw("slices", [{
      mode: "markers", x, y: mine.map((i) => two.values[i]), text, hovertemplate: "%{text}<br>%{x}, %{y}<extra></extra>",
      marker: { size: 12, color: mine.map((i) => peaks[i]), colorscale: "Viridis", showscale: true, colorbar: { title: { text: data.unit.name } } },
    }], layout({ xaxis: axisOf(one), yaxis: axisOf(two) }));
    return;
  }
  const traces = [];
  const band = (data.slices || {})[one.name];
  if (band) {
    traces.push({ x: band.x.concat([...band.x].reverse()), y: band.high.concat([...band.low].reverse()), fill: "toself", mode: "lines", line: { width: 0 }, fillcolor: "rgba(120,150,220,0.2)", name: "model, 90 %", hoverinfo: "skip" });
    traces.push({ x: band.x, y: band.mean, mode: "lines", line: { color: colour("accent") }, name: "model, others as in the best", hovertemplate: `%{y:,.4~g}${data.unit.suffix} at %{x}<extra></extra>` });
  }
  traces.push({
    mode: "markers", x, y: mine.map((i) => peaks[i]), text, name: "trials", hovertemplate: "%{text} at %{x}<extra></extra>",
    marker: { size: 9, color: colour("soft") },
    error_y: { type: "data", symmetric: false, array: mine.map((i) => highs[i] - peaks[i]), arrayminus: mine.map((i) => peaks[i] - lows[i]), thickness: 1, width: 2, color: colour("soft") },
  });
  draw("slices", traces, layout({ xaxis: axisOf(one), yaxis: { title: { text: `${data.quantity}, ${data.unit.name}` }, rangemode: fromZero() }, showlegend: Boolean(band) }));
}

// Drawn from lines, not as Plotly's own parallel coordinates: those need WebGL, which a mailed
// file's reader may not have. Lines of like peaks share a trace, so that 500 trials draw at once.
const SHADES = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];

function drawCoordinates() {
  const { parameters, peaks, trials } = data.parameters;
  const ranked = data.importance ? data.importance.rows.map((r) => r.name) : [];
  const place = (p) => { const at = ranked.indexOf(p.name); return at < 0 ? ranked.length : at; };
  const chosen = [...parameters].sort((a, b) => place(a) - place(b)).slice(0, 12);
  const axes = [...chosen.map(scaled), scaled({ name: data.quantity, unit: data.unit.name, values: peaks })];
  const section = by("coordinates");
  section.querySelector(".plot").style.minWidth = `${axes.length * 80}px`;
  if (!chosen.length) { draw("coordinates", [], layout({})); return; }
  const low = Math.min(...peaks), span = Math.max(...peaks) - low || 1;
  const shade = peaks.map((peak) => Math.min(SHADES.length - 1, Math.floor(SHADES.length * (peak - low) / span)));
  const traces = SHADES.map((paint, index) => lines(trials.map((_, i) => i).filter((i) => shade[i] === index), axes, {
    name: `from ${rate(low + span * index / SHADES.length)}${data.unit.suffix}`, line: { color: paint, width: 1 }, opacity: 0.6,
  }));
  for (const [side, paint] of SIDES) {
    const at = trials.indexOf(data[side]);
    if (at >= 0) traces.push(lines([at], axes, { name: side, line: { color: colour(paint), width: 4 } }));
  }
  const ends = axes.flatMap((axis, x) => [[-0.04, axis.from], [1.04, axis.to]].map(([y, text]) => ({ x, y, text, showarrow: false, font: { size: 11, color: colour("soft") } })));
  draw("coordinates", traces.filter((trace) => trace.x.length), layout({
    margin: { l: 170, r: 30, t: 10, b: 160 }, annotations: ends, showlegend: true,
    xaxis: { tickvals: axes.map((_, i) => i), ticktext: axes.map((a) => a.name), tickangle: -35, zeroline: false },
    yaxis: { visible: false, range: [-0.1, 1.1] },
  }));
}

function lines(mine, axes, more) {
  const x = [], y = [], text = [];
  for (const i of mine) {
    axes.forEach((axis, at) => { x.push(at); y.push(axis.places[i]); text.push(`trial ${data.parameters.trials[i]}: ${axis.name} ${axis.said(i)}`); });
    x.push(null); y.push(null); text.push("");
  }
  return { mode: "lines", x, y, text, hovertemplate: "%{text}<extra></extra>", connectgaps: false, ...more };
}

function scaled(p) {
  const known = p.values.filter((v) => v !== null);
  const said = (i) => (p.values[i] === null ? "without effect" : String(p.values[i]));
  if (p.choices) {
    const last = Math.max(1, p.choices.length - 1);
    return { name: p.name, said, from: p.choices[0], to: p.choices[last], places: p.values.map((v) => (v === null ? null : p.choices.indexOf(v) / last)) };
  }
  const low = Math.min(...known), high = Math.max(...known);
  const bend = p.log && low > 0 ? Math.log : (v) => v;
  const places = p.values.map((v) => (v === null ? null : (bend(v) - bend(low)) / (bend(high) - bend(low) || 1)));
  const said1 = (v) => (Number.isInteger(v) ? v : Number(v.toPrecision(3))).toLocaleString("en");
  return { name: p.name, said, from: said1(low), to: said1(high), places };
}

const FIGURES = [["cpu", "CPU in use", ".0%"], ["load", "load average", ".2f"], ["sockets", "sockets", ",.0f"], ["memory", "memory in use", ".0%"]];

function drawHosts() {
  const traces = [];
  const axes = {};
  // What nothing was recorded of has no panel: a model has no memory to look at.
  const figures = FIGURES.filter(([figure]) => SIDES.some(([side]) => Object.values(data.hosts[side] || {}).some((host) => host[figure])));
  const columns = matchMedia("(max-width: 40rem)").matches ? Math.min(2, figures.length) : figures.length;
  const rows = Math.ceil(figures.length / columns);
  figures.forEach(([figure, title, format], index) => {
    const suffix = index ? index + 1 : "";
    const left = (index % columns) / columns, bottom = 1 - (Math.floor(index / columns) + 1) / rows;
    const axis = { gridcolor: colour("line"), zerolinecolor: colour("line") };
    axes[`xaxis${suffix}`] = { ...axis, domain: [left, left + 0.8 / columns], title: { text: title }, anchor: `y${suffix}` };
    axes[`yaxis${suffix}`] = { ...axis, domain: [bottom + (rows > 1 ? 0.4 / rows : 0), bottom + 1 / rows], tickformat: format, anchor: `x${suffix}`, rangemode: "tozero" };
    for (const [side, paint] of SIDES) {
      const hosts = data.hosts[side];
      if (!hosts) continue;
      const names = Object.keys(hosts);
      traces.push({
        type: "bar", name: side, legendgroup: side, showlegend: index === 0, x: names, y: names.map((n) => hosts[n][figure]),
        xaxis: `x${suffix}`, yaxis: `y${suffix}`, marker: { color: colour(paint) }, hovertemplate: `${side}, %{x}: %{y:${format}}<extra></extra>`,
      });
    }
  });
  by("hosts").querySelector(".plot").style.height = rows > 1 ? `${rows * 240}px` : "";
  draw("hosts", traces, layout({ ...axes, barmode: "group" }));
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function detail(row) {
  const cell = element("td");
  cell.colSpan = 5;
  const lists = [["rules that bound it", row.rules], ["effective value ≠ requested", row.differences]];
  for (const [title, lines] of lists) {
    if (!lines.length) continue;
    cell.append(element("b", title));
    const list = element("ul");
    list.append(...lines.map((line) => element("li", line)));
    cell.append(list);
  }
  if (row.changes && row.changes.length) {
    cell.append(element("b", `${plural(row.changes.length, "setting")} different from the baseline`));
    const list = element("ul");
    list.append(...row.changes.map(([name, before, after]) => element("li", `${name}: ${before} → ${after}`)));
    cell.append(list);
  }
  if (row.of !== null) cell.append(element("p", `measures trial ${row.of} again`));
  if (row.diff) {
    cell.append(element("b", "files"));
    const text = element("pre");
    for (const line of row.diff.split(/(?<=\n)/)) {
      const kind = /^(---|\+\+\+|@@)/.test(line) ? "place" : line[0] === "+" ? "plus" : line[0] === "-" ? "minus" : "";
      text.append(element("span", line, kind));
    }
    cell.append(text);
  }
  if (!cell.childNodes.length) cell.append(element("p", "nothing differs from the baseline"));
  const made = element("tr", undefined, "detail");
  made.append(cell);
  return made;
}

function fillTrials() {
  const body = by("trials").querySelector("tbody");
  body.replaceChildren(...data.trials.map((row) => {
    const line = element("tr", undefined, "trial");
    const peak = row.peak === null ? "–" : `${rate(row.peak)} [${rate(row.low)}, ${rate(row.high)}]`;
    const phase = row.of === null ? row.phase : `${row.phase} #${row.of}`;
    line.append(...[String(row.trial), phase, peak, row.verdict ? (row.peak === null ? row.outcome : row.verdict) : row.outcome, row.bottleneck].map((text) => element("td", text)));
    line.tabIndex = 0;
    line.dataset.words = [row.trial, phase, row.outcome, row.verdict, row.bottleneck, ...(row.changes || []).map(([name, , after]) => `${name} ${after}`)].join(" ").toLowerCase();
    const toggle = () => {
      const open = line.classList.toggle("open");
      if (open) line.after(detail(row)); else line.nextElementSibling.remove();
    };
    line.onclick = toggle;
    line.onkeydown = (event) => { if (event.key === "Enter") toggle(); };
    return line;
  }));
  by("filter").oninput = filterTrials;
  filterTrials();
}

function filterTrials() {
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const lines = [...by("trials").querySelectorAll("tr.trial")];
  let shown = 0;
  for (const line of lines) {
    const fits = words.every((word) => line.dataset.words.includes(word));
    line.hidden = !fits;
    if (line.classList.contains("open")) line.nextElementSibling.hidden = !fits;
    shown += fits;
  }
  by("shown").textContent = shown === lines.length ? plural(shown, "trial") : `${shown} of ${plural(lines.length, "trial")}`;
}

// One after the other, so that the page can be read and scrolled while the rest is drawn.
async function drawAll() {
  for (const one of [drawLatency, drawProgress, drawReadings, drawImportance, drawSlices, drawCoordinates, drawHosts]) {
    one();
    await new Promise((done) => setTimeout(done));
  }
}

unpacked().then(async (found) => {
  data = found;
  fillSelects();
  fillTrials();
  by("rate").oninput = sayAtRate;
  await drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.drawn = "yes";
});
