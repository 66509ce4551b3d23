"use strict";
let data;

const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const rate = (value) => value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
const fromZero = () => (data.unit.from_zero ? "tozero" : "normal");
const minutes = (seconds) => seconds / 60;

function draw(id, traces, shape) {
  const section = by(id);
  const drawable = traces.some((trace) => (trace.x || []).length);
  section.hidden = !drawable;
  if (!drawable) return;
  const plot = section.querySelector(".plot");
  Plotly.react(plot, plainTexts(traces), plainTexts(shape), {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    displayModeBar: matchMedia("(hover: none)").matches ? false : "hover",
  });
}

const SIDES = [["baseline", "stock", "dot"], ["best", "accent", "solid"]];

function drawLatency() {
  const traces = [], late = data.slo.percentile;
  for (const [side, paint] of SIDES) {
    const curve = data.latency[side], fit = data.fitted[side];
    if (!curve) continue;
    if (fit) {
      traces.push({
        x: fit.rate.concat([...fit.rate].reverse()), y: fit.high.concat([...fit.low].reverse()), fill: "toself", mode: "lines",
        line: { width: 0 }, fillcolor: colour(`${paint}-band`), legendgroup: side, showlegend: false, hoverinfo: "skip",
      });
      traces.push({
        name: `${side} ${late}`, x: fit.rate, y: fit.middle, mode: "lines", line: { color: colour(paint), width: 3 }, legendgroup: side,
        hovertemplate: `${side} ${late}: %{y:.3~g} ms at %{x:,.0f}/s, fitted<extra></extra>`,
      });
    }
    const text = curve.rate.map((_, i) => `${rate(curve.rate[i])}/s, ${curve.requests[i].toLocaleString("en")} requests: ` + Object.keys(curve).filter((key) => /^p\d/.test(key)).map((key) => `${key} ${curve[key][i] ?? "–"}`).join(", ") + " ms");
    traces.push({
      name: `${side}, measured`, x: curve.rate, y: curve[late], text, mode: "markers", marker: { color: colour(paint), size: 6, opacity: 0.55 },
      legendgroup: side, showlegend: !fit, hovertemplate: `${side}: %{text}<extra></extra>`,
    });
    if (fit && fit.capacity) {
      const [peak, low, high] = fit.capacity;
      traces.push({
        name: `${side} capacity`, x: [peak], y: [data.slo.limit], mode: "markers", legendgroup: side,
        marker: { color: colour(paint), symbol: "diamond", size: 13, line: { color: colour("paper"), width: 1.5 } },
        error_x: { type: "data", symmetric: false, array: [high - peak], arrayminus: [peak - low], color: colour(paint), thickness: 2, width: 5 },
        hovertemplate: `${side} capacity: ${rate(peak)}/s [${rate(low)}, ${rate(high)}]<extra></extra>`,
      });
    }
  }
  // Latencies far above the objective would compress the rest of the chart, so the axis ends earlier.
  const shown = traces.flatMap((trace) => trace.y).filter((ms) => ms !== null && ms > 0);
  const ends = [Math.min(...shown, data.slo.limit) / 1.2, Math.min(Math.max(...shown, data.slo.limit) * 1.2, 8 * data.slo.limit)];
  const requestedRate = Number(by("rate").value);
  const mark = requestedRate ? [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: requestedRate, x1: requestedRate, line: { color: colour("soft"), width: 1.5, dash: "dot" } }] : [];
  draw("latency", traces, layout({
    xaxis: { title: { text: "offered rate, requests/s" }, rangemode: "tozero", nticks: 8 },
    yaxis: { title: { text: "latency, ms" }, ...logAxis(ends, 4), range: ends.map(Math.log10) },
    shapes: [limitLine(), ...mark], annotations: [limitLabel()], margin: { l: 60, r: 12, t: 12, b: 48 },
  }));
}

function limitLine() {
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: data.slo.limit, y1: data.slo.limit, line: { color: colour("bad"), width: 1.5, dash: "dash" } };
}
function limitLabel() {
  return { xref: "paper", x: 0, xanchor: "left", y: Math.log10(data.slo.limit), yanchor: "bottom", showarrow: false, text: data.slo.text, font: { color: colour("bad") }, bgcolor: colour("paper"), opacity: 0.85 };
}

// These digits are the digits of `format_latency`.
const seconds = (value) => (value >= 9.95 ? Math.round(value).toLocaleString("en") : value.toPrecision(2));
const ms = (value) => (value >= 999.5 ? `${seconds(value / 1000)} s` : `${value.toPrecision(3)} ms`);

// This function must show the same values as `report --at`.
function atRate(fit, requestedRate) {
  const { rate: rates, capacity } = fit, last = rates.length - 1;
  if (capacity && requestedRate > capacity[2]) return `more than ${ms(data.slo.limit)} (above the capacity of ${rate(capacity[0])}/s)`;
  if (requestedRate < rates[0]) return `at most ${ms(fit.high[0])} (extrapolated: the lowest measured rate is ${rate(rates[0])}/s)`;
  if (requestedRate > rates[last]) return `more than ${ms(fit.low[last])} (extrapolated: the highest measured rate is ${rate(rates[last])}/s)`;
  const after = rates.findIndex((x) => x >= requestedRate), before = Math.max(0, after - 1);
  const share = after === before ? 0 : (requestedRate - rates[before]) / (rates[after] - rates[before]);
  const [middle, low, high] = [fit.middle, fit.low, fit.high].map((band) => ms(band[before] + (band[after] - band[before]) * share));
  return `${middle} [${low}, ${high}]`;
}

function answerRate() {
  const requestedRate = Number(by("rate").value);
  const measured = data.today && requestedRate === data.today.rate ? data.today.answers : {};
  const answers = SIDES.filter(([side]) => measured[side] || data.fitted[side]).map(([side]) => element("span", `${side} ${data.slo.percentile}: ${measured[side] || atRate(data.fitted[side], requestedRate)}`));
  by("at-rate").replaceChildren(...(requestedRate > 0 ? answers : []));
  drawLatency();
}

function drawProgress() {
  const groups = [
    ["baseline", "stock", (p) => p.trial === data.baseline || p.of === data.baseline],
    ["best", "accent", (p) => p.trial === data.best || p.of === data.best],
    ["other trials", "soft", () => true],
  ];
  const assigned = new Set();
  const traces = groups.map(([name, paint, isMember]) => {
    const members = data.peaks.filter((p) => p.peak !== null && !assigned.has(p.trial) && isMember(p));
    members.forEach((p) => assigned.add(p.trial));
    return {
      name, mode: "markers", opacity: paint === "soft" ? 0.6 : 1, x: members.map((p) => minutes(p.at)), y: members.map((p) => p.peak), text: members.map((p) => p.outcome),
      marker: { color: colour(paint), size: 8, symbol: members.map((p) => data.counted.includes(p.phase) ? "circle" : "diamond") },
      error_y: { type: "data", symmetric: false, array: members.map((p) => p.high - p.peak), arrayminus: members.map((p) => p.peak - p.low), color: colour(paint), thickness: 1, width: 2 },
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
    name: "failed", mode: "markers", cliponaxis: false, x: failed.map((p) => minutes(p.at)), y: failed.map(() => floor), text: failed.map((p) => p.outcome),
    marker: { color: colour("bad"), symbol: "x", size: 9 }, hovertemplate: "%{text}<extra></extra>",
  });
  // The chart is not drawn if all trials failed.
  draw("progress", failed.length < data.peaks.length ? traces.filter((t) => t.x.length) : [], layout({
    xaxis: { title: { text: data.time }, rangemode: "tozero" }, yaxis: { title: { text: `${data.quantity}, ${data.unit.name}` }, rangemode: fromZero() },
  }));
}

const STATES = [
  ["met", "SLO met", "good", "circle"], ["broken", "SLO violated", "soft", "circle-open"],
  ["disturbed", "disturbed", "bad", "x"], ["limited", "limited by the generator", "stock", "triangle-down"],
];

function drawReadings() {
  const all = data.readings;
  const traces = [];
  for (const [state, name, paint, symbol] of STATES) {
    const indexes = all.at.map((_, i) => i).filter((i) => all.state[i] === state);
    if (!indexes.length) continue;
    const pick = (column) => indexes.map((i) => all[column][i]);
    const marks = { color: colour(paint), symbol, size: 6 };
    const text = indexes.map((i) => `trial ${all.trial[i]}${all.warm[i] ? ", warm-up" : ""}: ${rate(all.rate[i])}/s, ${all.late[i] === null ? "no " + data.slo.percentile : data.slo.percentile + " " + all.late[i] + " ms"}, ${all.bad[i]} % late or failed`);
    const x = pick("at").map(minutes);
    const common = { mode: "markers", x, text, hovertemplate: "%{text}<extra></extra>", marker: marks, legendgroup: state };
    traces.push({ ...common, name, y: pick("rate"), yaxis: "y" });
    traces.push({ ...common, showlegend: false, name, y: pick("late"), yaxis: "y2" });
    traces.push({ ...common, showlegend: false, name, y: pick("bad"), yaxis: "y3" });
  }
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line") };
  draw("readings", traces, layout({
    xaxis: { title: { text: data.time }, anchor: "y3", rangemode: "tozero" },
    yaxis: { title: { text: "offered, 1/s" }, domain: [0.7, 1], rangemode: "tozero" },
    yaxis2: { ...axis, title: { text: `${data.slo.percentile}, ms` }, domain: [0.36, 0.64], ...logAxis(all.late, 1) },
    yaxis3: { ...axis, title: { text: "violations, %" }, domain: [0, 0.3], rangemode: "tozero" },
  }));
}

function drawImportance() {
  const importance = data.importance, section = by("importance");
  const rows = (importance ? importance.rows : []).slice(0, 15).reverse();
  const narrow = matchMedia("(max-width: 40rem)").matches;
  // A narrow screen shows the full name on a separate line.
  const names = rows.map((r) => (r.names.length > 1 ? `${r.names[0]} and ${r.names.length - 1} more` : r.names[0]));
  section.querySelector(".plot").style.height = `${90 + rows.length * (narrow ? 40 : 26)}px`;
  draw("importance", [{
    mode: "markers", x: rows.map((r) => r.effect), y: rows.map((_, i) => i), marker: { color: rows.map((r) => colour(r.half !== null && r.half >= r.effect ? "soft" : "accent")), size: 10 },
    error_x: { type: "data", array: rows.map((r) => r.half || 0), arrayminus: rows.map((r) => Math.min(r.half || 0, r.effect)), symmetric: false, color: colour("soft"), thickness: 1.5, width: 4 },
    text: rows.map((r) => `${r.names.join("\n")}: ±${r.effect} %` + (r.half === null ? ", interval not recorded" : ` [${Math.max(0, r.effect - r.half).toFixed(1)}, ${(r.effect + r.half).toFixed(1)}]`)),
    hovertemplate: "%{text}<extra></extra>",
  }], layout({
    margin: { l: narrow ? 12 : 20, r: 16, t: 12, b: 48 }, xaxis: { title: { text: `effect on the ${data.quantity}, ± %` }, rangemode: "tozero" },
    yaxis: narrow ? { showticklabels: false, range: [-0.6, rows.length - 0.2] } : { automargin: true, tickvals: rows.map((_, i) => i), ticktext: names, range: [-0.7, rows.length - 0.3] },
    annotations: narrow ? names.map((text, y) => ({ x: 0, y: y + 0.18, text, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12 } })) : [],
  }));
  const together = rows.filter((r) => r.names.length > 1).map((r) => `changed together, not separable: ${r.names.join(", ")}`);
  const pairs = importance ? importance.pairs.map((p) => `${p.first} and ${p.second} interact: their joint effect is ${(100 * p.effect).toFixed(0)} % beyond the sum of both`) : [];
  section.querySelector("ul").replaceChildren(...[...together, ...pairs, ...(importance ? importance.edges : [])].map((text) => element("li", text)));
}

const parameter = (name) => data.parameters.parameters.find((p) => p.name === name);
const axisOf = (p) => ({ title: { text: p.unit ? `${p.name}, ${p.unit}` : p.name }, ...(p.choices ? { type: "category" } : p.log ? logAxis(p.values, 2) : { type: "linear" }) });

function fillSelects() {
  const ranked = data.importance ? data.importance.rows.flatMap((r) => r.names) : [];
  const findRank = (name) => { const rank = ranked.indexOf(name); return rank < 0 ? ranked.length : rank; };
  const names = data.parameters.parameters.map((p) => p.name).sort((a, b) => findRank(a) - findRank(b));
  for (const [id, first] of [["slice", null], ["slice2", "–"]]) {
    const select = by(id);
    const selectedName = select.value;
    select.replaceChildren(...[...(first ? [first] : []), ...names].map((name) => new Option(name, name)));
    if (selectedName) select.value = selectedName;
    select.onchange = drawSlices;
  }
}

function drawSlices() {
  const one = parameter(by("slice").value), two = parameter(by("slice2").value);
  const { trials, peaks, lows, highs } = data.parameters;
  if (!one) { draw("slices", [], layout({})); return; }
  // A trial has no capacity if its search ended before any rate met the SLO.
  const indexes = trials.map((_, i) => i).filter((i) => peaks[i] !== null && one.values[i] !== null && (!two || two.values[i] !== null));
  const text = indexes.map((i) => `trial ${trials[i]}: ${rate(peaks[i])}${data.unit.suffix}`);
  const x = indexes.map((i) => one.values[i]);
  if (two) {
    draw("slices", [{
      mode: "markers", x, y: indexes.map((i) => two.values[i]), text, hovertemplate: "%{text}<br>%{x}, %{y}<extra></extra>",
      marker: { size: 12, color: indexes.map((i) => peaks[i]), colorscale: "Viridis", showscale: true, colorbar: { title: { text: data.unit.name } } },
    }], layout({ xaxis: axisOf(one), yaxis: axisOf(two) }));
    return;
  }
  const traces = [];
  const band = (data.slices || {})[one.name];
  if (band && one.choices) {
    traces.push({
      x: band.x, y: band.mean, mode: "markers", name: "model, all other settings as in the best configuration", marker: { color: colour("accent"), symbol: "line-ew", size: 28, line: { color: colour("accent"), width: 3 } },
      error_y: { type: "data", symmetric: false, array: band.high.map((high, i) => high - band.mean[i]), arrayminus: band.low.map((low, i) => band.mean[i] - low), color: colour("accent"), thickness: 2, width: 8 },
      hovertemplate: `%{y:,.4~g}${plain(data.unit.suffix)} with %{x}<extra></extra>`,
    });
  } else if (band) {
    traces.push({ x: band.x.concat([...band.x].reverse()), y: band.high.concat([...band.low].reverse()), fill: "toself", mode: "lines", line: { width: 0 }, fillcolor: "rgba(120,150,220,0.2)", name: "model, 90 %", hoverinfo: "skip" });
    traces.push({ x: band.x, y: band.mean, mode: "lines", line: { color: colour("accent") }, name: "model, all other settings as in the best configuration", hovertemplate: `%{y:,.4~g}${plain(data.unit.suffix)} at %{x}<extra></extra>` });
  }
  traces.push({
    mode: "markers", x, y: indexes.map((i) => peaks[i]), text, name: "trials", hovertemplate: "%{text} at %{x}<extra></extra>",
    marker: { size: 9, color: colour("soft") },
    error_y: { type: "data", symmetric: false, array: indexes.map((i) => highs[i] - peaks[i]), arrayminus: indexes.map((i) => peaks[i] - lows[i]), thickness: 1, width: 2, color: colour("soft") },
  });
  draw("slices", traces, layout({ xaxis: axisOf(one), yaxis: { title: { text: `${data.quantity}, ${data.unit.name}` }, rangemode: fromZero() }, showlegend: Boolean(band) }));
}

const FIGURES = [["cpu", "CPU in use", ".0%"], ["load", "load average", ".1f"], ["sockets", "sockets", ",.0f"], ["memory", "memory in use", ".0%"]];

// Each panel shows one figure, and each row one host, so that all host names fit.
function drawHosts() {
  const sides = SIDES.filter(([side]) => data.hosts[side]);
  const names = [...new Set(sides.flatMap(([side]) => Object.keys(data.hosts[side])))];
  // Figures without data have no panel. For example, a model does not report memory.
  const figures = FIGURES.filter(([figure]) => sides.some(([side]) => names.some((name) => data.hosts[side][name]?.[figure])));
  const columns = matchMedia("(max-width: 40rem)").matches ? 1 : 2, rows = Math.ceil(figures.length / columns);
  const high = 30 * names.length + 20, height = rows * (high + 70);
  const traces = [], axes = {}, annotations = [], grid = { gridcolor: colour("line"), zerolinecolor: colour("line") };
  figures.forEach(([figure, title, format], index) => {
    const suffix = index ? index + 1 : "", column = index % columns;
    const left = column / columns + 0.03 * column, top = 1 - Math.floor(index / columns) / rows;
    axes[`xaxis${suffix}`] = { ...grid, domain: [left, left + 0.94 / columns], tickformat: format, nticks: 6, anchor: `y${suffix}`, rangemode: "tozero" };
    axes[`yaxis${suffix}`] = { ...grid, domain: [top - high / height, top], type: "category", autorange: "reversed", automargin: true, showticklabels: !column, anchor: `x${suffix}` };
    annotations.push({ xref: "paper", yref: "paper", x: left, y: top, xanchor: "left", yanchor: "bottom", showarrow: false, text: title });
    for (const [side, paint] of sides) {
      traces.push({
        type: "bar", orientation: "h", name: side, legendgroup: side, showlegend: index === 0, y: names, x: names.map((name) => data.hosts[side][name]?.[figure]),
        xaxis: `x${suffix}`, yaxis: `y${suffix}`, marker: { color: colour(paint) }, hovertemplate: `${side}, %{y}: %{x:${format}}<extra></extra>`,
      });
    }
  });
  by("hosts").querySelector(".plot").style.height = `${height + 80}px`;
  draw("hosts", traces, layout({ ...axes, annotations, barmode: "group", margin: { l: 16, r: 16, t: 60, b: 20 }, legend: { orientation: "h", y: 1 + 24 / height, yanchor: "bottom" } }));
}

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function detail(row) {
  const cell = element("td");
  cell.colSpan = 5 + data.columns.length;
  const lists = [["outcome", [row.outcome]], ["limited by", row.bottleneck ? [row.bottleneck] : []], ["binding rules", row.rules], ["effective value differs", row.differences]];
  if (row.changes && row.changes.length) lists.push([`${plural(row.changes.length, "setting")} different from the baseline`, row.changes.map(([name, before, after]) => `${name}: ${before} → ${after}`)]);
  for (const [title, lines] of lists) {
    if (!lines.length) continue;
    cell.append(element("b", title));
    const list = element("ul");
    list.append(...lines.map((line) => element("li", line)));
    cell.append(list);
  }
  if (row.diff) {
    cell.append(element("b", "files"));
    const text = element("pre");
    for (const line of row.diff.split(/(?<=\n)/)) {
      const kind = /^(---|\+\+\+|@@)/.test(line) ? "place" : line[0] === "+" ? "plus" : line[0] === "-" ? "minus" : "";
      text.append(element("span", line, kind));
    }
    cell.append(text);
  }
  const line = element("tr", undefined, "detail");
  line.append(cell);
  return line;
}

// The heading, the sort key and the cell text of each column.
const COLUMNS = [
  ["trial", (row) => row.trial],
  ["phase", (row) => row.phase, (row) => (row.of === null ? row.phase : `${row.phase} #${row.of}`)],
  [null, (row) => row.peak, (row) => (row.peak === null ? "–" : `${rate(row.peak)} [${rate(row.low)}, ${rate(row.high)}]`)],
  ["outcome", (row) => row.verdict || row.outcome],
  ["limited by", (row) => row.limit],
];
let sorted = { by: 0, up: true };

// Fractions are rounded to four significant digits, which are enough for readers.
function setting(value) {
  if (value === null || value === undefined) return "–";
  return String(typeof value === "number" ? Number(value.toPrecision(Number.isInteger(value) ? 17 : 4)) : value);
}

function columns() {
  const fixed = COLUMNS.filter(([title]) => title !== "limited by" || data.trials.some((row) => row.limit)).map(([title, value, text]) => [title || `${data.quantity}, ${data.unit.name}`, value, text || ((row) => String(value(row)))]);
  if (data.trials.some((row) => row.bed)) fixed.push(["test bed", (row) => row.bed || "", (row) => row.bed || ""]);
  const settings = data.columns.map((name, i) => [name, (row) => row.values[i], (row) => setting(row.values[i])]);
  return [...fixed, ...settings];
}

function heading([title], index) {
  const head = element("th"), button = element("button");
  head.scope = "col";
  // A line can break between the words of a long name.
  title.split(/(?<=[._ ])|(?<=[a-z])(?=[A-Z])/).forEach((part, i) => button.append(...(i ? [document.createElement("wbr"), part] : [part])));
  button.onclick = () => { sorted = { by: index, up: sorted.by === index ? !sorted.up : index === 0 }; sortTrials(); };
  head.append(button);
  return head;
}

function fillTrials() {
  by("trials").querySelector("thead tr").replaceChildren(...columns().map(heading));
  const lines = data.trials.map(trialLine);
  by("trials").querySelector("tbody").replaceChildren(...lines);
  by("filter").oninput = filterTrials;
  sortTrials();
  filterTrials();
}

function trialLine(row) {
  const best = row.trial === data.best && data.proven;
  const line = element("tr", undefined, best ? "trial winner" : "trial");
  const toggle = element("button", best ? `${row.trial} ★` : String(row.trial));
  toggle.setAttribute("aria-expanded", "false");
  toggle.setAttribute("aria-label", `trial ${row.trial}${best ? ", the best" : ""}: details`);
  toggle.onclick = () => {
    const open = line.classList.toggle("open");
    toggle.setAttribute("aria-expanded", String(open));
    if (open) line.after(detail(row)); else line.nextElementSibling.remove();
  };
  const first = element("td");
  first.append(toggle);
  line.append(first, ...columns().slice(1).map(([, , text]) => element("td", text(row))));
  line.row = row;
  line.dataset.words = [row.trial, row.phase, row.of === null ? "" : `#${row.of}`, row.outcome, row.verdict, row.bottleneck, ...(row.changes || []).map(([name, , after]) => `${name} ${after}`)].join(" ").toLowerCase();
  return line;
}

const empty = (value) => value === null || value === undefined || value === "";

function sortTrials() {
  const [, value] = columns()[sorted.by], body = by("trials").querySelector("tbody");
  const order = (a, b) => {
    const [left, right] = [value(a.row), value(b.row)];
    if (empty(left) || empty(right)) return empty(left) - empty(right);
    const less = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right));
    return sorted.up ? less : -less;
  };
  const lines = [...body.querySelectorAll("tr.trial")].sort(order);
  body.replaceChildren(...lines.flatMap((line) => (line.classList.contains("open") ? [line, line.nextElementSibling] : [line])));
  [...by("trials").querySelectorAll("th")].forEach((head, index) => head.setAttribute("aria-sort", index === sorted.by ? (sorted.up ? "ascending" : "descending") : "none"));
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

const SHOWN = [drawLatency, drawImportance], FOLDED = [drawProgress, drawReadings, drawSlices, drawHosts];

// Yield to the event loop after each chart, so that the page stays responsive.
async function drawAll() {
  for (const chart of by("more").open ? [...SHOWN, ...FOLDED] : SHOWN) {
    chart();
    await new Promise((done) => setTimeout(done));
  }
}

// Reload the page of a running study repeatedly, unless reloading is paused. A manual reload keeps the pause.
function renew(button) {
  let timer;
  const set = (paused) => {
    history.replaceState({ paused }, "");
    button.textContent = paused ? "resume reloading" : "pause reloading";
    clearTimeout(timer);
    if (!paused) timer = setTimeout(() => location.reload(), 1000 * button.dataset.seconds);
  };
  button.hidden = false;
  button.onclick = () => set(!history.state.paused);
  set(Boolean(history.state?.paused));
}

if (by("renewal")) renew(by("renewal"));
Promise.all([unpacked(), plotlyLoaded()]).then(async ([study]) => {
  data = study;
  const more = by("more");
  // report.html#all unfolds all sections, and report.html#rate=800 shows the latency at 800 requests/s.
  const fragment = new URLSearchParams(location.hash.slice(1));
  more.open = fragment.has("all");
  by("rate").value = fragment.get("rate") || data.today?.rate || "";
  fillSelects();
  fillTrials();
  by("rate").oninput = answerRate;
  answerRate();
  await drawAll();
  more.addEventListener("toggle", drawAll);
  // Unfold and draw all charts before printing, because printers do not wait for charts.
  addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; for (const chart of [...SHOWN, ...FOLDED]) chart(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.drawn = "yes";
});
