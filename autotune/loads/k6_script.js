// Appended to k6.js if the load is the user's own script, which imports this instead of 'k6' and 'k6/http'.
// A run counts once: with the time of all its requests, without pauses, or as its first error.

const FOLLOWED = 10; // maximum number of redirects, the same as k6's own limit
const OURS = [
  'scenarios', 'vus', 'duration', 'iterations', 'stages', 'rps', 'hosts', 'blacklistIPs',
  'blockHostnames', 'insecureSkipTLSVerify', 'paused', 'executionSegment',
];
let took = 0; // time of all requests in the current run, in ms
let wrong = null;
let asked = 0;
let running = false;
const requests = new Trend('requests'); // requests per run, including redirects
let made = 0; // requests of the current run
const pauses = new Trend('pauses'); // s of pauses in a run so far
let paused = 0;
// `spent` counts the requests that this file sends, and `late` those that a timer tries to send after its run
// ended. If k6's own count is higher, requests bypassed this file.
const spent = new Counter('spent');
const late = new Counter('late');
const ROUNDS = { digest: 2, ntlm: 3 }; // requests that k6 sends for one, depending on `auth`
let stage = 'load';
let due = null; // when the next request may be sent, if this process itself limits the rate

// The rate of runs is limited by the most requests that one run makes. Requests in `setup`, and in runs that
// count requests, are sent one after the other, at the rate that this process may use.
function spend(params) {
  for (let left = ROUNDS[params && params.auth] || 1; left > 0; left -= 1) spendOne();
}

function spendOne() {
  if (stage === 'teardown') throw new Error('teardown must not send requests, because their rate would be unlimited');
  if (stage === 'load' && !running) {
    late.add(1);
    throw new Error('a run ends when its function returns: return a promise, or use sleep');
  }
  made += 1;
  if (stage === 'setup' || order.counting) {
    due = due || Date.now() + order.gap;
    while (Date.now() < due) k6.sleep(Math.max(1, due - Date.now()) / 1000);
    due = Date.now() + order.gap;
  }
  if (stage === 'load' && made > order.most) {
    wrong = 'too many requests';
    throw new Error(`a run makes more than ${order.most} requests`);
  }
  spent.add(1);
}

// Returns the URL at the entry to which this process sends requests. `url` is the site's own URL or a path.
function place(url) {
  const text = String(url && url.url !== undefined ? url.url : url);
  const [named, scheme, authority] = /^(?:([a-z]+:)?\/\/([^/?#]*))?/i.exec(text);
  if (!named && text.startsWith('/')) return `${order.site}${text}`;
  const spoken = !scheme || order.site.startsWith(`${scheme.toLowerCase()}//`);
  if (named && spoken && order.names.includes(authority.toLowerCase())) {
    const rest = text.slice(named.length);
    return `${order.site}${rest.startsWith('/') ? '' : '/'}${rest}`;
  }
  wrong = wrong || 'elsewhere';
  throw new Error(`it requests ${text}, but load may go only to ${order.names[0]}`);
}

function ours(params) {
  const headers = Object.assign({}, order.headers, params && params.headers);
  return Object.assign({}, params, { headers, timeout: order.timeout, redirects: 0 });
}

// Follows the redirects of a response and returns the last response. Together they count as one request.
function followed(method, body, params, first) {
  let answer = first;
  let left = params && params.redirects !== undefined ? params.redirects : FOLLOWED;
  const expected = left === 0; // the script expects the redirect itself
  took += milliseconds(answer);
  while (left > 0 && [301, 302, 303, 307, 308].includes(answer.status) && answer.headers.Location) {
    const same = answer.status > 303 || ['GET', 'HEAD'].includes(method);
    const to = answer.headers.Location;
    const beside = /^[^?#]*\//.exec(answer.url)[0];
    const url = place(/^(https?:)?\/\/|^\//i.test(to) ? to : `${beside}${to}`);
    spend(params);
    answer = http.request(same ? method : 'GET', url, same ? body : null, ours(params));
    took += milliseconds(answer);
    left -= 1;
  }
  const status = expected && answer.status >= 300 && answer.status < 400 ? null : kind(answer);
  if (running) wrong = wrong || status;
  return answer;
}

function request(method, url, body, params) {
  asked += 1;
  const to = place(url);
  spend(params);
  const answer = http.request(method, to, body, ours(params));
  return followed(method.toUpperCase(), body, params, answer);
}

function batch(requests) {
  const answers = Array.isArray(requests) ? [] : {};
  const before = took;
  let longest = 0;
  const listed = Object.entries(requests).map(([name, given]) => {
    if (Array.isArray(given)) return [name, ...given];
    const { method, url, body, params } = typeof given === 'string' ? { url: given } : given;
    return [name, method || 'GET', url, body, params];
  });
  if (stage === 'setup' || order.counting) {
    listed.forEach(([name, ...given]) => { answers[name] = request(...given); });
    return answers;
  }
  asked += listed.length;
  const sentOff = listed.map(([, method, url, body, params]) => [method, place(url), body, ours(params)]);
  listed.forEach(([, , , , params]) => spend(params));
  http.batch(sentOff).forEach((answer, i) => {
    const [name, method, , body, params] = listed[i];
    took = 0;
    answers[name] = followed(method.toUpperCase(), body, params, answer);
    longest = Math.max(longest, took);
  });
  took = before + longest;
  return answers;
}

function asyncRequest() {
  throw new Error('http.asyncRequest is not counted: use http.request or http.batch');
}

const withBody = (method) => (url, body, params) => request(method, url, body, params);
const without = (method) => (url, params) => request(method, url, null, params);

function check(value, sets, tags) {
  const right = k6.check(value, sets, tags);
  if (!right && running) wrong = wrong || 'failed check';
  return right;
}

function sleep(seconds) {
  if (running) {
    paused += Number(seconds) || 0;
    pauses.add(paused);
  }
  k6.sleep(seconds);
}

function optionsFor(script) {
  const theirs = script.options || {};
  const fighting = OURS.filter((name) => theirs[name] !== undefined);
  if (fighting.length) {
    throw new Error(`its options set ${fighting.join(', ')}, which only autotune may set: remove it`);
  }
  if (typeof script.default !== 'function') throw new Error('it exports no default function');
  const bodies = { discardResponseBodies: Boolean(theirs.discardResponseBodies) };
  const times = { setupTimeout: '20s', teardownTimeout: '2s' };
  return Object.assign({}, theirs, order.counting ? slow : load, bodies, times, { thresholds: {} });
}

// With these options, one client makes a few runs, whose requests are counted.
const slow = Object.assign({}, load, {
  scenarios: {
    load: {
      executor: 'per-vu-iterations',
      vus: 1,
      iterations: order.iterations,
      maxDuration: `${order.span}ms`,
      gracefulStop: '1s',
    },
  },
});

function during(name, act, ...data) {
  stage = name;
  return act ? act(...data) : null;
}

// Makes one run of the script's default function. Errors of the script are thrown again.
function run(visit, data) {
  // The first run always counts its requests; further runs do so only if there is time.
  const lasts = Date.now() - exec.scenario.startTime;
  if (order.counting && exec.scenario.iterationInTest && lasts > order.enough) return null;
  [took, wrong, asked, made, paused, running] = [0, null, 0, 0, 0, true];
  sent.add(1);
  const end = (error) => {
    running = false;
    requests.add(made);
    count(took, wrong || (error && 'script error') || (asked ? null : 'no request made'));
    if (error) throw error;
  };
  let result;
  try {
    result = visit(data);
  } catch (error) {
    return end(error);
  }
  return result && result.then ? result.then(() => end(), end) : end();
}

Object.assign(exports, http, k6, {
  request,
  batch,
  asyncRequest,
  get: without('GET'),
  head: without('HEAD'),
  post: withBody('POST'),
  put: withBody('PUT'),
  patch: withBody('PATCH'),
  del: withBody('DELETE'),
  options: withBody('OPTIONS'),
  check,
  sleep,
});
// Used by the file that k6 runs.
exports.autotune = { arrive, during, handleSummary, optionsFor, run };
