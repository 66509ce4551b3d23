// Follows k6.js where the load is a script of the user's own: in place of 'k6' and 'k6/http', the script
// imports this. A run counts once, as all its requests took, pauses apart, or as the first thing wrong.

const FOLLOWED = 10; // redirects, as many as k6 follows itself
const OURS = [
  'scenarios', 'vus', 'duration', 'iterations', 'stages', 'rps', 'hosts', 'blacklistIPs',
  'blockHostnames', 'insecureSkipTLSVerify', 'paused', 'executionSegment',
];
let took = 0; // ms
let wrong = null;
let asked = 0;
let running = false;
const requests = new Trend('requests'); // of a run, with redirects
let made = 0; // by the present run
// All requests of this file, and those that a timer makes when its run is over. k6 itself counts all that
// are sent: more than these were sent past this file.
const spent = new Counter('spent');
const late = new Counter('late');
const ROUNDS = { digest: 2, ntlm: 3 }; // requests that k6 makes of one, by its `auth`
let stage = 'load';
let due = null; // when the next one may be sent that has to keep a rate by itself

// The rate of runs rests on the most requests that a run makes. Requests of `setup`, and those of the
// runs that count them, are sent one by one at the rate of this process.
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

// Where a URL leads on the entry that this process asks; it may be as users know it, or a path.
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

// The answer to a request and to those that it redirects to, which count as one.
function followed(method, body, params, first) {
  let answer = first;
  let left = params && params.redirects !== undefined ? params.redirects : FOLLOWED;
  const expected = left === 0; // the redirect itself, by the script's own word
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

// One client makes a few runs, to count their requests.
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

// One run of the script's default function: it throws on what the script throws.
function run(visit, data) {
  // The first run says how many requests there are; others do if there is time.
  const lasts = Date.now() - exec.scenario.startTime;
  if (order.counting && exec.scenario.iterationInTest && lasts > order.enough) return null;
  [took, wrong, asked, made, running] = [0, null, 0, 0, true];
  sent.add(1);
  const end = (error) => {
    running = false;
    requests.add(made);
    count(took, wrong || (error && 'script error') || (asked ? null : 'nothing asked'));
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
});
// For the file that k6 runs.
exports.autotune = { arrive, during, handleSummary, optionsFor, run };
