// One reading. `order` contains the requests, their rate, and the bins in which latencies are counted.
// Modules are required, because imports make k6 transpile the file, which takes a second of CPU time.
const k6 = require('k6');
const http = require('k6/http');
const exec = require('k6/execution');
const { Counter, Trend } = require('k6/metrics');

const SHORTEST = 1000; // ms, the shortest duration that k6 accepts
const GRACE = 50; // ms after a shorter span in which a due iteration may still start
const bins = order.edges.map((_, i) => new Counter(`bin_${i}`));
const failed = order.kinds.map((_, i) => new Counter(`failed_${i}`));
const sent = new Counter('sent'); // all sent requests, even without a response
const lag = new Trend('lag'); // s between the due time and the start of an iteration
const total = order.visits.reduce((sum, visit) => sum + visit.weight, 0);

const load = {
  scenarios: {
    load: {
      executor: 'constant-arrival-rate',
      rate: order.iterations,
      timeUnit: `${order.span}ms`,
      duration: `${Math.max(SHORTEST, order.span)}ms`,
      preAllocatedVUs: order.clients,
      maxVUs: order.clients,
      gracefulStop: `${order.grace}ms`,
    },
  },
  hosts: order.hosts,
  insecureSkipTLSVerify: order.insecure,
  discardResponseBodies: order.expect === null,
  maxRedirects: 0,
  systemTags: [],
  summaryTrendStats: ['max', 'count'],
};

// Visits are evenly mixed. Random visits would make more or fewer requests than the rate allows.
function chosen() {
  const turn = (exec.scenario.iterationInTest * order.stride + order.first) % order.iterations;
  let left = (turn / order.iterations) * total;
  return order.visits.find((visit) => (left -= visit.weight) < 0) || order.visits[0];
}

function kind(answer) {
  if (order.statuses.includes(answer.status)) {
    return order.expect === null || answer.body === order.expect ? null : 'wrong body';
  }
  if (answer.status) return `${Math.floor(answer.status / 100)}xx`;
  // grafana.com/docs/k6/latest/javascript-api/error-codes
  if ([1050, 1211].includes(answer.error_code)) return 'timeout';
  if (answer.error_code === 1212) return 'refused';
  if (answer.error_code >= 1300 && answer.error_code < 1400) return 'certificate';
  if (/cannot assign requested address/.test(answer.error)) return 'no free port';
  if (/too many open files/.test(answer.error)) return 'file table full';
  return /EOF|reset|broken pipe|closed/.test(answer.error) ? 'reset' : 'other';
}

function milliseconds(answer) {
  const t = answer.timings;
  return t.blocked + t.connecting + t.tls_handshaking + t.sending + t.waiting + t.receiving;
}

function count(took, wrong) {
  if (wrong) {
    failed[order.kinds.indexOf(wrong)].add(1);
    return;
  }
  let bin = 0;
  while (bin < bins.length - 1 && took > 1000 * order.edges[bin]) bin += 1;
  bins[bin].add(1);
}

function ask(step) {
  sent.add(1);
  const url = `${order.site}${step.path}`;
  const answer = http.request(step.method, url, step.body, {
    headers: order.headers,
    timeout: order.timeout,
    redirects: 0,
  });
  count(milliseconds(answer), kind(answer));
  if (step.think) k6.sleep(step.think);
}

function arrive(visit) {
  if (order.counting) return visit();
  if (exec.scenario.iterationInTest >= order.iterations) return null; // due at the very end, or after it
  const lasts = Date.now() - exec.scenario.startTime;
  // k6 runs a shorter scenario for a second, and starts as many iterations later as it dropped before.
  if (order.span < SHORTEST && lasts > order.span + GRACE) return null;
  const due = (exec.scenario.iterationInTest * order.span) / order.iterations;
  lag.add((lasts - due) / 1000);
  return visit();
}

function handleSummary(data) {
  const counts = {};
  for (const [name, metric] of Object.entries(data.metrics)) {
    if (metric.type === 'counter') counts[name] = metric.values.count;
  }
  const highest = (name) => (data.metrics[name] ? data.metrics[name].values.max : 0);
  const summary = { counts, lag: highest('lag'), most: highest('requests'), pause: highest('pauses') };
  return { stdout: `${JSON.stringify(summary)}\n` };
}
