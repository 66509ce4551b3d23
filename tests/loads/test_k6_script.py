"""k6 with a script of the user's own: what is refused, and what a real k6 makes of a real one."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.environments.name_checks import check_names
from autotune.errors import TargetError
from autotune.loads.base import LoadError, LoadResult, LoadSpec
from autotune.loads.k6 import ERROR_KINDS, K6Generator, read_source
from autotune.loads.k6_script import (
    TOO_MANY_REQUESTS,
    K6ScriptGenerator,
    read_script,
    replace_imports,
)
from autotune.loads.load_commands import RateTooHigh
from autotune.loads.reading_run import count_requests, inspect_generator, take_reading
from autotune.loads.registry import compute_request_digests, find_generator
from autotune.loads.workload import UnusableWorkload
from autotune.services.base import Endpoint
from autotune.target.read_target import read_target
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.loads.tls import CONFIG, Site, serving

# Later than that no answer of a stack that stands is, and few clients start quickly.
PATIENT = LoadSpec(40, 1.5, timeout=8.0, latency_limit=4.0, ramp_seconds=0.0)
HERE = LocalTransport()
SHOP = """
import http from 'k6/http';
import { check, group, sleep } from 'k6';
import { SharedArray } from 'k6/data';
import { BASE } from './lib/site.js';
export const options = { userAgent: 'shopper', thresholds: { http_req_duration: ['p(95)<1'] } };
const pages = new SharedArray('pages', () => JSON.parse(open('./pages.json')));
export function setup() { return { token: http.get(`${BASE}/token`).body.trim() }; }
export default function (data) {
  const answer = http.post(`${BASE}/login`, { name: 'a' }, { headers: { 'X-Visit': data.token } });
  check(answer, { 'is the account': (r) => r.url.endsWith('/account') && r.status === 200 });
  group('pages', () => {
    const answers = http.batch([['GET', pages[0]], { method: 'GET', url: pages[1] }, pages[2]]);
    check(answers, { 'all are there': (all) => all.every((r) => r.body.startsWith('found')) });
  });
  sleep(0.1);
}
"""
SITE = CONFIG.replace(
    'return 200 "found 0100 of 0100\\n";',
    """
    location = /token {{ return 200 "abc\\n"; }}
    location = /login {{ add_header Set-Cookie "session=1"; return 302 account; }}
    location = /away {{ return 302 https://other.example/; }}
    location = /broken {{ return 500; }}
    location = /account {{ if ($http_cookie != "session=1") {{ return 403; }} return 200 "yours\\n"; }}
    location / {{ return 200 "found\\n"; }}
    """,
)


def script(directory: Path, text: str, **others: str) -> Path:
    (directory / "lib").mkdir(exist_ok=True)
    (directory / "lib" / "site.js").write_text("export const BASE = 'https://shop.example';\n")
    (directory / "pages.json").write_text('["/a", "https://shop.example/b", "/c?d=1"]')
    for name, content in others.items():
        (directory / f"{name}.js").write_text(content)
    (directory / "shop.js").write_text(text)
    return directory / "shop.js"


def test_a_script_goes_with_what_it_imports(tmp_path: Path) -> None:
    load = read_script(script(tmp_path, SHOP))
    assert [name for name, _ in load.files] == ["shop.js", "lib/site.js", "pages.json"]
    (process,) = load.build_processes(Request(Endpoint("198.18.0.1", 80), "/"), LoadSpec(40, 2.0))
    assert process.request_count == 80  # runs
    assert process.open_connections >= 40 * 2  # it pauses, nobody knows for how long
    with tarfile.open(fileobj=io.BytesIO(process.input or b"")) as archive:
        names = archive.getnames()
        sent = archive.extractfile("shop.js")
        assert sent is not None
        text = sent.read().decode()
    assert names == [
        "shop.js",
        "lib/site.js",
        "pages.json",
        "autotune-main.js",
        "autotune-counted.js",
    ]
    assert text.count("autotune-counted.js") == 2
    assert "'k6/data'" in text
    assert replace_imports("a/b/c.js", "import 'k6/http'") == 'import "../../autotune-counted.js"'


def test_what_lies_above_the_script_goes_too(tmp_path: Path) -> None:
    (tmp_path / "load").mkdir()
    (tmp_path / "common.js").write_text("export const A = 1;")
    load = read_script(script(tmp_path / "load", "import A from '../common.js'; export default A"))
    assert [name for name, _ in load.files] == ["load/shop.js", "common.js"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import ws from 'k6/ws'",
            "shop.js imports k6/ws, but only requests of k6/http are counted",
        ),
        (
            "import { x } from 'https://jslib.k6.io/a.js'",
            "from the network: import a local copy",
        ),
        ("export const A = 1;", "the script exports no default function"),
        ("import { x } from './gone.js'", "cannot read gone.js: No such file or directory"),
        (
            "http.get('/').submitForm({})",
            "shop.js calls submitForm, whose requests are not counted",
        ),
        (
            "const next = http.get('/') . clickLink();",
            "shop.js calls clickLink, whose requests are",
        ),
        ("open('./gone.csv')", "cannot read gone.csv: No such file or directory"),
    ],
)
def test_what_could_not_be_counted_or_sent_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UnusableWorkload, match=why):
        read_script(script(tmp_path, text))


TARGET = """
name: shop
slo: {{p99: 50ms}}
hosts: {{here: {{address: 127.0.0.1}}}}
tiers: {{lb: {{hosts: here, service: nginx, forwards_to: web}},
        web: {{hosts: here, service: apache+mod_php, app: reference, uses: store}},
        store: {{hosts: here, service: redis}}}}
load: {{generator: {generator}, script: {script}{more}}}
"""


@pytest.mark.parametrize(
    ("generator", "name", "more", "message"),
    [
        ("k6", "shop.js", "", None),
        ("k6", "gone.js", "", "gone.js: cannot read gone.js"),
        ("oha", "shop.js", "", "`script` needs `generator: k6`"),
        ("k6", "shop.js", ", uris: u", "`uris` needs `generator: httperf`"),
        ("k6", "shop.js", ", requests: u", "`requests` and `script` cannot be combined"),
        ("k6", "shop.js", ", method: POST", "`method` and `script` cannot be combined"),
        ("k6", "shop.js", ", requests_per_run: 6", None),
        ("k6", "shop.js", ", requests_per_run: 0", "must be at least 1"),
    ],
)
def test_a_target_names_it(
    tmp_path: Path, generator: str, name: str, more: str, message: str | None
) -> None:
    script(tmp_path, SHOP)
    path = tmp_path / "t.yaml"
    path.write_text(TARGET.format(generator=generator, script=name, more=more))
    if message is None:
        file = read_target(path)
        check_names(file)
        load = find_generator(file)
        assert isinstance(load, K6ScriptGenerator)
        assert load.max_requests_per_run == file.target.load.requests_per_run
        assert len(compute_request_digests(file)["shop.js"]) == 64
        return
    with pytest.raises(TargetError) as error:
        check_names(read_target(path))
    assert message in " ".join(map(str, (error.value, *error.value.others)))


# -- how many requests a run makes ------------------------------------------------------------------


def visit(most: int | None = None) -> K6ScriptGenerator:
    return K6ScriptGenerator(
        files=(("visit.js", "export default () => {}"),), max_requests_per_run=most
    )


def format_output(most: object = 5, pause: float = 0.0, **counts: int) -> str:
    return "\n" + json.dumps({"counts": counts, "lag": 0, "most": most, "pause": pause})


def test_the_longest_run_says_how_many_requests_each_makes() -> None:
    assert visit().with_counted_requests(format_output(5, sent=30)).requests_per_iteration == 5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ReferenceError: gone is not defined\n", "cannot run visit.js: ReferenceError: gone"),
        ("", "cannot run visit.js: nothing"),
        (format_output("5"), "cannot run"),
        (format_output(-1.5), "cannot run"),
        (format_output(0), "no run of visit.js made a request within 60 s"),
        (format_output(1001), "makes more than 1000 requests"),
        (
            format_output(5, sent=30, spent=149, http_reqs=150),
            "k6 sent requests that are not counted",
        ),
        (format_output(5, sent=30, spent=30, http_reqs=30, late=1), "after the end of a run"),
        (
            format_output(1001, **{f"failed_{ERROR_KINDS.index(TOO_MANY_REQUESTS)}": 1}),
            "makes more than 1000 requests",
        ),
    ],
)
def test_runs_that_could_not_be_counted_are_no_count(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        visit().with_counted_requests(text)


def test_a_reading_with_a_longer_run_is_refused() -> None:
    spec, request = LoadSpec(10, 2.0), Request(Endpoint("198.18.0.1", 80), "/")
    (process,) = visit(3).build_processes(request, spec)
    assert process.max_rate == 30.0  # requests/s
    with pytest.raises(
        RateTooHigh,
        match=r"visit\.js may exceed load\.max_rate, because a run made more than 3 requests",
    ) as refused:
        visit(3).parse_checked(
            process,
            format_output(4, sent=20, **{f"failed_{ERROR_KINDS.index(TOO_MANY_REQUESTS)}": 1}),
            request,
            spec,
        )
    assert "requests_per_run" in (refused.value.hint or "")


@pytest.mark.parametrize(("asked", "refused"), [(60, False), (59, False), (61, True), (6000, True)])
def test_a_reading_with_requests_that_were_not_counted_is_refused(
    asked: int, refused: bool
) -> None:
    spec, request = LoadSpec(10, 2.0), Request(Endpoint("198.18.0.1", 80), "/")
    (process,) = visit(3).build_processes(request, spec)
    text = format_output(3, sent=20, bin_0=20, spent=60, http_reqs=asked)
    if not refused:
        assert visit(3).parse_checked(process, text, request, spec).limited is None
        return
    with pytest.raises(RateTooHigh, match=r"visit\.js may exceed load\.max_rate"):
        visit(3).parse_checked(process, text, request, spec)


def test_a_reading_with_requests_after_the_end_of_a_run_says_nothing() -> None:
    spec, request = LoadSpec(10, 2.0), Request(Endpoint("198.18.0.1", 80), "/")
    (process,) = visit(3).build_processes(request, spec)
    text = format_output(3, sent=20, bin_0=20, spent=60, http_reqs=60, late=4)
    result = visit(3).parse_checked(process, text, request, spec)
    assert "after the end of a run" in (result.limited or "")
    assert result.error_count == result.intended


@pytest.mark.parametrize(
    ("pause", "counts", "is_refused"),
    [
        (3.5, {"sent": 18, "bin_0": 18, "dropped_iterations": 2}, True),  # all clients pause
        (3.5, {"sent": 20, "bin_0": 15}, True),  # runs were interrupted at the end
        (3.5, {"sent": 20, "bin_0": 20}, False),
        (2.0, {"sent": 20, "bin_0": 15}, False),
        (2.0000000000000004, {"sent": 20, "bin_0": 15}, False),  # twenty pauses of 0.1 s
    ],
)
def test_runs_that_pause_for_too_long_say_nothing_about_the_server(
    pause: float, counts: dict[str, int], is_refused: bool
) -> None:
    spec, request = LoadSpec(10, 2.0), Request(Endpoint("198.18.0.1", 80), "/")
    (process,) = visit(3).build_processes(request, spec)
    text = format_output(3, pause, **counts)
    reason = visit(3).parse_checked(process, text, request, spec).limited or ""
    message = f"a run of visit.js pauses for {pause:g} s; the maximum is 2 s"
    assert (message in reason) == is_refused


# Runs k6_script.js without k6: prints the longest pause of a run.
PAUSES = """
const added = [];
const Metric = class {
  constructor(name) { this.name = name; }
  add(value) { if (this.name === 'pauses') added.push(value); }
};
const modules = {
  'k6': { sleep() {} }, 'k6/http': {}, 'k6/execution': { scenario: { startTime: 0 } },
  'k6/metrics': { Counter: Metric, Trend: Metric },
};
const order = { edges: [], kinds: ['no request made'], visits: [] };
const script = {};
new Function('require', 'order', 'exports', process.argv[1])((name) => modules[name], order, script);
script.sleep(9); // in `setup`
for (const pause of [0.5, 1.5, 1]) script.autotune.run(() => { script.sleep(pause); script.sleep(1); });
console.log(Math.max(...added));
"""


@pytest.mark.stack
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_pauses_of_a_run_are_added_up() -> None:
    source = read_source("k6.js") + read_source("k6_script.js")
    words = ("node", "-e", PAUSES, "--", source)
    assert subprocess.run(words, capture_output=True, check=True, text=True).stdout.strip() == "2.5"


# -- a real k6 --------------------------------------------------------------------------------------

real = [pytest.mark.stack, pytest.mark.built]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("tls"), SITE) as site:
        yield site


def run(site: Site, path: Path) -> LoadResult:
    """A reading in which the machine let k6 send all in time; disturbed ones are retaken."""
    for _ in range(10):
        result = take_reading(
            read_script(path, 20), site.request(), PATIENT, HERE, max_rate=20_000.0
        )
        if "not sent" not in result.errors or "cannot run" in (result.limited or ""):
            break
    return result


class TestReal:
    pytestmark = real

    @pytest.mark.parametrize("port", ["", "the site's"])
    def test_a_run_counts_once(self, site: Site, tmp_path: Path, port: str) -> None:
        path = script(tmp_path, SHOP)
        inspect_generator(read_script(path), [HERE])
        if port:
            base = f"export const BASE = 'https://shop.example:{site.endpoint.port}';\n"
            (tmp_path / "lib" / "site.js").write_text(base)
        result = run(site, path)
        assert (result.limited, result.errors, result.right_answers) == (None, {}, 60)
        lines = [line.split() for line in site.asked()]
        last = max(i for i, line in enumerate(lines) if line[4] == "/token")  # its setup, once
        lines = lines[last + 1 :]
        asked = Counter(line[4] for line in lines)
        assert asked == {"/login": 60, "/account": 60, "/a": 60, "/b": 60, "/c?d=1": 60}
        assert {line[4] for line in lines if line[5] == '"abc"'} == {"/login", "/account"}
        assert {line[2] for line in lines} == {f"shop.example:{site.endpoint.port}"}

    def test_requests_of_a_run_are_counted_one_by_one(self, site: Site, tmp_path: Path) -> None:
        load = read_script(script(tmp_path, SHOP))
        before = len(site.asked())
        assert count_requests(load, site.request(), HERE, 40.0).requests_per_iteration == 5
        asked = [line.split()[4] for line in site.asked()[before:]]
        assert asked[:3] == ["/token", "/login", "/account"]
        assert len(asked) > 5

    def test_a_run_stops_before_it_makes_too_many(self, site: Site, tmp_path: Path) -> None:
        text = "import http from 'k6/http'; export default () => { for (;;) http.get('/a'); };"
        load, before = read_script(script(tmp_path, text), 3), len(site.asked())
        with pytest.raises(RateTooHigh, match="a run made more than 3 requests"):
            take_reading(load, site.request(), replace(PATIENT, rate=4), HERE, max_rate=12.0)
        assert len(site.asked()) - before == 3 * 6  # runs
        with pytest.raises(LoadError, match="makes more than 1000 requests"):
            count_requests(read_script(tmp_path / "shop.js"), site.request(), HERE, 4000.0)

    def test_long_pauses_are_named(self, site: Site, tmp_path: Path) -> None:
        text = """import http from 'k6/http';
        import { sleep } from 'k6';
        export default () => { http.get('/a'); sleep(0.5); sleep(30); };"""
        load = read_script(script(tmp_path, text), 1)
        spec = replace(PATIENT, rate=10, timeout=1.0, latency_limit=0.5)
        result = take_reading(load, site.request(), spec, HERE, max_rate=20_000.0)
        assert "a run of shop.js pauses for 30.5 s; the maximum is 2 s" in (result.limited or "")

    def test_a_teardown_sends_nothing(self, site: Site, tmp_path: Path) -> None:
        text = """import http from 'k6/http';
        export const teardown = () => http.get('/broken');
        export default () => http.get('/a');"""
        before = len(site.asked())
        result = run(site, script(tmp_path, text))
        assert (result.limited, result.right_answers) == (None, 60)
        assert not any("/broken" in line for line in site.asked()[before:])

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("http.get('/broken');", "5xx"),
            ("http.get('/account');", "4xx"),
            ("http.get('/login', { redirects: 0 }); http.get('/account');", None),
            ("check(http.get('/a'), { no: (r) => r.status === 201 });", "failed check"),
            ("if (Math.random() > 2) http.get('/a');", "no request made"),
            ("http.get('/a'); if (Math.random() < 0.5) throw new Error('x');", "script error"),
        ],
    )
    def test_what_is_wrong_with_a_run_is_an_error(
        self, site: Site, tmp_path: Path, text: str, kind: str | None
    ) -> None:
        head = "import http from 'k6/http'; import { check } from 'k6';"
        result = run(site, script(tmp_path, f"{head} export default () => {{ {text} }};"))
        assert result.limited is None
        assert set(result.errors) == ({kind} if kind else set())
        assert result.right_answers + result.error_count == result.intended == 60

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("http.get('https://other.example/x');",
             "cannot run shop.js: .*it requests https://other.example/x, but load may go only to"),
            ("http.get('/away');", "it requests https://other.example/, but load may go only to"),
            ("http.get('http://shop.example/');", "it requests http://shop.example/"),
            ("http.get('/a'); setTimeout(() => http.get('/a'), 1);", "after the end of a run"),
            ("http.asyncRequest('GET', '/a');", "asyncRequest is not counted: use http.request"),
            ("gone();", "gone is not defined"),
        ],
    )  # fmt: skip
    def test_a_script_that_cannot_be_run_says_nothing_of_the_server(
        self, site: Site, tmp_path: Path, text: str, why: str
    ) -> None:
        text = f"import http from 'k6/http'; export default () => {{ {text} }};"
        result = run(site, script(tmp_path, text))
        assert re.search(why, result.limited or "")
        assert result.error_count == result.intended == 60

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("export const options = { vus: 3, duration: '1s' }; export default () => {};",
             "its options set vus, duration, which only autotune may set"),
            ("export const options = { userAgent: 'a' };", "it exports no default function"),
            ("export default function () { http.get('/a') ", "Unexpected token"),
        ],
    )  # fmt: skip
    def test_a_script_that_fights_is_refused_before_any_load(
        self, tmp_path: Path, text: str, why: str
    ) -> None:
        load = read_script(script(tmp_path, text))
        with pytest.raises(LoadError, match=why):
            inspect_generator(load, [HERE])

    def test_late_answers_are_counted_as_ours_are(self, site: Site, tmp_path: Path) -> None:
        """Of one request a run, as the plain load would have it, within a limit that some miss."""
        path = script(
            tmp_path, "import http from 'k6/http'; export default () => { http.get('/a') };"
        )
        tight = replace(PATIENT, latency_limit=1e-6)
        for load in (read_script(path, 1), K6Generator()):
            for _ in range(10):
                result = take_reading(load, site.request("/a"), tight, HERE, max_rate=20_000.0)
                if "not sent" not in result.errors:
                    break
            assert result.count_later_than(tight.latency_limit) == result.intended == 60
