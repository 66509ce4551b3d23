"""Everything that autotune parses: who wrote it, what was recorded of it, how it may be refused.

A new parser is a line in ``entries``.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.deploy import backup, host_lock, manifest
from autotune.deploy.host_commands import Command, ask
from autotune.deploy.host_state import parse_files, parse_sysctls
from autotune.deploy.templates import of_text
from autotune.diagnose.faults import wrong_with
from autotune.discovery.adoption import adopt
from autotune.discovery.host_reading import DiscoveredHost, _backlogs, _tree
from autotune.discovery.tiers import instances, tiers
from autotune.environments.base import prepare
from autotune.errors import AutotuneError
from autotune.export.write import export_files
from autotune.loads import (
    access_log,
    answer_kind,
    k6_script,
    memcaslap,
    mutilate,
    probes,
    start,
    workload,
)
from autotune.loads.base import Load, LoadError, LoadResult, LoadSpec, Process, Request
from autotune.loads.closed import Ab, Clients, ClosedLoad, Wrk
from autotune.loads.httperf import Httperf
from autotune.loads.httperf_sessions import HttperfSessions
from autotune.loads.load_host import Ports, fit
from autotune.loads.oha import Oha
from autotune.loads.own import OwnLoad
from autotune.masking import Outliner, masked, unmasked
from autotune.measure import benchmark
from autotune.monitor import counters, stream
from autotune.monitor.process_table import Owners
from autotune.monitor.procfs import parse_ss, unix_queues
from autotune.report.page import page
from autotune.report.status import render_status
from autotune.report.studies import open_study
from autotune.report.summary import summary
from autotune.report.text import report_lines
from autotune.report.view import study_view
from autotune.runtimes import containers
from autotune.runtimes.systemd import parse_units
from autotune.services import unit_files
from autotune.services.adoption import RunningService
from autotune.services.apache.diagnosis import doing
from autotune.services.apache.service import Apache
from autotune.services.apache_files import directives as apache_directives
from autotune.services.apache_mod_php.service import ApacheModPhp
from autotune.services.base import Endpoint
from autotune.services.config_files import Unreadable
from autotune.services.gunicorn import service as gunicorn
from autotune.services.haproxy import stats as haproxy
from autotune.services.haproxy import syntax as haproxy_files
from autotune.services.limits.service import open_files
from autotune.services.mariadb import service as mariadb
from autotune.services.mariadb import syntax as mariadb_files
from autotune.services.mariadb.service import counters as mariadb_counters
from autotune.services.memcached.service import options, settings_in_effect
from autotune.services.nginx import syntax as nginx
from autotune.services.nginx.service import in_effect as nginx_in_effect
from autotune.services.nodejs import service as nodejs
from autotune.services.option_lines import read as option_lines
from autotune.services.php_fpm import syntax as ini
from autotune.services.postgresql.adoption import read as postgresql_directives
from autotune.services.postgresql.service import in_effect as postgresql_in_effect
from autotune.services.puma import service as puma
from autotune.services.readback import configuration, listen_backlog
from autotune.services.redis_protocol import _whole_bulk, alternating
from autotune.services.registry import adoptions, diagnosis
from autotune.services.sysctl.service import in_effect as sysctl_in_effect
from autotune.services.uwsgi import service as uwsgi
from autotune.services.varnish import service as varnish
from autotune.space import expression
from autotune.study import ceilings
from autotune.study.applying import exported_rss, exported_settings
from autotune.study.directory import holder
from autotune.study.store import Follow, reading_of, readings_of, state_of
from autotune.sweep import request as sweep_request
from autotune.target import requests, units
from autotune.target.read import read as read_target
from autotune.transports import connection, curl, facts, hostkeys, ssh_settings
from autotune.transports.base import Argv, Completed, SshHost
from tests import test_withheld
from tests.discovery import (
    places,
    test_gunicorn,
    test_haproxy,
    test_mariadb,
    test_nodejs,
    test_postgresql,
    test_puma,
    test_uwsgi,
    test_varnish,
)
from tests.fuzz import mutate
from tests.fuzz.campaign import Entry, Impossible, sane
from tests.modelled import quiet

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FACTS = (
    "cpus 2\nfiles 20000\nunit_files 1048576\nmemory 24682416\ncpu.max 250000 100000\n"
    "memory.max 1073741824\ncpu.cfs 5000 10000\nmemory.limit 402653184\n"
)
UNITS = (
    "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"
    "MainPID=812\nNRestarts=0\nId=nginx.service\n"
)
FILES = f"file 644 0:0 1700000000.5 {64 * 'a'}\nabsent\nlink 777 0:0 1700000000 /etc/x y\n"
KERNEL = (
    "writable /proc/sys/net/core/somaxconn 4096\nfixed /proc/sys/fs/file-max 2465610\n"
    "absent /proc/sys/a/b\nhidden /proc/sys/c/d\n"
)
LOOKED = "3f-boot\n1000.25\n990.5\n"
HOLDER = json.dumps(
    {
        "holder": "root",
        "host": "tuner",
        "pid": 812,
        "started": 1700000000.5,
        "since": "2026-01-01T00:00:00+00:00",
        "study": "shop",
        "place": "b pid:[1]",
        "boot": "3f-boot",
        "token": "0f",
    }
)
KNOWN = (
    "web1,198.18.0.2 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==\n@revoked * ssh-rsa AAAA\n"
    "|1|c2FsdHNhbHRzYWx0c2FsdA==|aGFzaGhhc2hoYXNoaGFzaGg=| ssh-ed25519 AAAA\n"
    "@cert-authority *.lab ssh-ed25519 AAAA # ours\n[web1]:2222,!web2 ssh-rsa AAAAB3\n"
)
SSH = (
    "Host web1 web?\n  HostName 198.18.0.2\n  Port 2222\n  User root\n  ProxyJump a@b:22\n"
    "Match host db1\n  IdentityFile ~/.ssh/%h\nHost *\n  UserKnownHostsFile none\n"
)
PORTS = "32768\t60999\n2\nsockets: used 300\nTCP: inuse 9 orphan 0 tw 12 alloc 30 mem 3\n"
SOCKETS = "2\nu_str LISTEN 0 511 /run/php/a.sock 1 * 0\nLISTEN 0 4096 0.0.0.0:80 0.0.0.0:*\n"
SESSIONS = "/s1 think=0.1\n   /img1\n   /img2\n/s2\n\n# once more\n/s1\n/other\n"
CONSTRAINTS = (
    "worker_processes * 2 + 1",
    "min(64 MB, memory / 4) - 25% of memory",
    "rss(web) * 2",
    "lb.nginx.worker_connections <= nofile / 2",
    "-(1 + 2) * max(3, cpus)",
)
SPEC = LoadSpec(100, 1.5, limit=0.050)
ORDER = Request(Endpoint("198.18.0.1", 80), "/", b"ok\n")
PROCESS = Process((), 150, 1.5, 9.0, 25)
OWNERS = Owners(sessions={5721: "fpm", 5693: "cache"})


def recorded(folder: str, pattern: str = "*.txt") -> tuple[str, ...]:
    """The recorded texts below tests/, small enough to be damaged many times."""
    texts = (
        path.read_bytes().decode(errors="replace")
        for path in sorted((TESTS / folder).glob(pattern))
    )
    return tuple(text[:20_000] for text in texts)


@dataclass
class Answering:
    """A way to a host that answers ``text`` to whatever it is asked."""

    text: str
    name: str = "web1"

    def run(self, argv: Argv, *, input: bytes | None = None, **_: object) -> Completed:
        mark = (input or b"").decode().rpartition("#")[2][:16]
        marked = f"{self.text}\n#{mark} 0\n" if input else self.text
        return Completed(tuple(argv), 0, marked, "")

    def close(self) -> None:
        pass


class Desk:
    """A directory for parsers that read files, and a modelled stack for those that need a space."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = directory / "modelled.yaml"
        self.target.write_text(quiet("  cache.memcached.connections: {fixed: 4096}\n"))
        self.space = prepare(read_target(self.target)).space

    def file(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_bytes(text.encode(errors="surrogatepass"))
        return path


def counted(result: LoadResult) -> None:
    """Every intended request is an answer or an error, or it is said that the load fell short."""
    sane(result)
    sane(list(result.histogram))
    if min([result.intended, result.sent, *result.errors.values(), *result.histogram.values()]) < 0:
        raise Impossible("a count below 0 was accepted")
    if result.replies_ok + result.failed != result.intended:
        raise Impossible(f"{result.replies_ok} + {result.failed} requests of {result.intended}")
    if result.limited is None and result.intended > 1000 * PROCESS.requests:
        raise Impossible(f"{result.intended} requests where {PROCESS.requests} were ordered")


def not_negative(value: Any) -> None:
    """Counts and durations."""
    sane(value)
    parts = asdict(value) if value is not None else {}
    numbers = [n for n in parts.values() if isinstance(n, int | float)]
    if any(number < 0 for number in numbers):
        raise Impossible(f"{value} has a count below 0")


# -- load generators --------------------------------------------------------------------------------


def _loads() -> Iterator[Entry]:
    sessions = HttperfSessions(workload.kinds("/s1\n/other\n/s3\n"))
    order = LoadSpec(60, 1.0, limit=0.050, timeout=0.4, seed=5)
    (started,) = sessions.processes(ORDER, order)

    def generator(load: Load, process: Process = PROCESS) -> Callable[[str], LoadResult]:
        return lambda text: load.parse(process, text, ORDER, SPEC)

    def closed(load: ClosedLoad) -> Callable[[str], Any]:
        return lambda text: load.parse(text, Clients(5, 1.0))

    own = (
        '{"requests": 150, "errors": {"timeout": 3}, "latencies": {"0.010": 140, "0.050": 7}}',
        '{"requests": 150, "late": 4}',
        '{"requests": 150, "late": 0, "limited": "no CPU"}',
    )
    never: dict[str, Any] = {"refusals": ()}
    folder = "loads/fixtures/"
    yield Entry(
        "httperf",
        recorded(folder + "httperf"),
        generator(Httperf()),
        check=counted,
        weight=2,
        **never,
    )
    yield Entry(
        "httperf sessions",
        recorded(folder + "httperf-sessions"),
        generator(sessions, started),
        check=counted,
        **never,
    )
    yield Entry("oha", recorded(folder + "oha"), generator(Oha()), check=counted, weight=2, **never)
    yield Entry(
        "own generator",
        own,
        generator(OwnLoad(("x",))),
        mutate.document,
        check=counted,
        weight=2,
        **never,
    )
    yield Entry(
        "ab", recorded(folder + "closed", "ab-*"), closed(Ab()), check=not_negative, **never
    )
    yield Entry(
        "wrk", recorded(folder + "closed", "wrk-*"), closed(Wrk()), check=not_negative, **never
    )
    yield Entry(
        "memcaslap",
        recorded(folder + "closed", "mem*"),
        check=not_negative,
        parse=lambda text: memcaslap.parse(text, memcaslap.SHAPES[1]),
        **never,
    )
    yield Entry(
        "mutilate",
        recorded(folder + "mutilate"),
        check=lambda s: (sane(s), counted(s.result))[0],
        parse=lambda text: mutilate.parse(text, SPEC),
        weight=2,
        **never,
    )
    yield Entry("whole answers", (PROBED,), _probed, refusals=(LoadError,))
    yield Entry("pages", recorded(folder + "error-pages", "*.html"), _compared, **never)
    yield Entry("uris", ("/a\n/b?c=d\n", "/a\0/b\0"), workload.uris, refusals=(workload.Unusable,))
    yield Entry("k6 scripts", (SCRIPT,), _script, refusals=(workload.Unusable,), weight=0.5)
    yield Entry("sessions", (SESSIONS,), workload.kinds, refusals=(workload.Unusable,))
    yield Entry("ports of load hosts", (PORTS,), Ports.read, **never)
    yield Entry("kernel of load hosts", ("32768 60999|2|100", "1 2|0|9999999"), _fit, **never)
    yield Entry("clock", ("1700000000000000000\n",), lambda text: start.clock(Answering(text)))
    yield Entry(
        "benchmark command",
        ('{"value": 812.5, "sd": 3}', '{"infeasible": "why"}'),
        benchmark.parse,
        mutate.document,
        **never,
    )


def _requests(desk: Desk, text: str) -> object:
    """A target reads what is made of a log, whatever that is called."""
    recorded = access_log.read(text.splitlines())
    if not recorded.requests:
        return []
    visits = requests.read(desk.file("requests.yaml", recorded.text(text[:40])))
    if [visit.path for visit in visits] != [
        path for (_, path), _ in recorded.requests.most_common()
    ]:
        raise Impossible("other pages than those of the log")
    return visits


def _script(text: str) -> object:
    return [*k6_script.imports(text, "shop.js")], k6_script.replaced("shop.js", text)


PROBED = (
    '/tmp/x\n\n<autotune 00000 200 0 3 0.012>{"content-type":["text/html"]\n}\n'
    "\n<autotune 00001 000 28 0 2.000>{}\n\n<autotune bodies>\n==> /tmp/x/body.00000 <==\nok\n"
    "\n<autotune ends>\n==> /tmp/x/body.00000 <==\nok\n\n<autotune errors>\n"
)


def _probed(text: str) -> list[probes.Answer | None]:
    requests = [Request(Endpoint("198.18.0.1", 80), "/")] * 2
    return probes.answers_of(Completed((), 0, text, ""), requests)


def _compared(text: str) -> str | None:
    """A page compared with itself, and looked at for errors."""
    page = probes.Answer(200, len(text), text, {"content-type": "text/html"})
    answer_kind.error_in(page)
    return answer_kind.difference(answer_kind.Reference.of([page, page]), page)


def _fit(text: str) -> dict[str, str]:
    names = ("net.ipv4.ip_local_port_range", "net.ipv4.tcp_tw_reuse", "fs.file-max")
    return fit(dict(zip(names, text.split("|"), strict=False)))


LOG = """\
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /?p=12&token=a1B2c3D4e5F6 HTTP/1.1" 200 5123 "-" "X"
shop.example:443 10.0.0.1 - bob [22/Nov/2026:08:00:01 +0000] "HEAD /s HTTP/2.0" 304 12 "-" "-"
"""
SCRIPT = """\
import http from 'k6/http';
import { helper } from './lib/a.js';
const data = open('./users.json');
export default function () { http.get(`${__ENV.HOST}/`); }
"""


# -- hosts ------------------------------------------------------------------------------------------


def _hosts(desk: Desk) -> Iterator[Entry]:
    never: dict[str, Any] = {"refusals": ()}
    streamed = (TESTS / "monitor/fixtures/stream.txt").read_text()
    originals = backup.encode(
        backup.HostBackup(
            "web1",
            "shop",
            backup.HostState(
                {
                    "/etc/a": backup.FileState(b"x\n", 0o644, "0:0", time="1700000000.5"),
                    "/etc/b": backup.FileState(),
                    "/etc/c": backup.FileState(link="/x", owner="0:0", time="1"),
                    "/etc/d": backup.FileState(b"\xff", 0o600, "0:0", time="1"),
                },
                {"nginx.service": True},
                {"net.core.somaxconn": "4096"},
            ),
            {"nginx.service": "enabled"},
        )
    )
    own = json.dumps(
        {
            "web.web1.nginx": {
                "listen": "",
                "files": {
                    "/etc/nginx/nginx.conf": {
                        "template": "web1/etc/nginx/nginx.conf.j2",
                        "mode": "0644",
                    }
                },
            }
        }
    )
    answered = "#0123456789abcdef"
    yield Entry(
        "stream of samples",
        (streamed,),
        lambda t: stream.read(t, OWNERS),
        check=_samples,
        weight=2,
        **never,
    )
    yield Entry("ss", recorded("services/fixtures", "ss-*"), lambda t: [*parse_ss(t)], **never)
    yield Entry("unix sockets", (streamed,), lambda t: [*unix_queues(t)], **never)
    yield Entry(
        "host facts", (FACTS,), lambda t: facts.parse_facts(t, units=len(t) % 2 == 0), **never
    )
    yield Entry("kernel values", (KERNEL,), facts.parse_kernel, **never)
    yield Entry("files of a host", (FILES,), lambda t: parse_files(("/a", "/b", "/c"), t))
    yield Entry(
        "containers of a host",
        ("yes running 4711 2 image=1a environment=2b \nno absent 0 0\n",),
        lambda t: containers.parse_units(("a", "b"), t),
    )
    yield Entry(
        "units of a host", (f"{UNITS}\n{UNITS}",), lambda t: parse_units(("a", "b"), t), weight=2
    )
    yield Entry(
        "sysctls of a host",
        ("=1\n=4096 1 2\nabsent\n",),
        lambda t: parse_sysctls(("a", "b", "c"), t),
    )
    yield Entry("answers of a host", (f"words\n{answered} 0\n",), _answers)
    yield Entry(
        "host lock", (LOOKED + HOLDER, LOOKED, "3f-boot\n5.0\n\n" + HOLDER), _lock, weight=2
    )
    yield Entry(
        "originals",
        (originals.decode(),),
        lambda t: backup.decode(_bytes(t), "originals"),
        mutate.document,
        weight=2,
    )
    yield Entry("answer of curl", ("ok\n\n200 0.0123", "\n502 1.5"), _curl, **never)
    yield Entry("sockets of a host", (SOCKETS,), _sockets)
    yield Entry("archive of a host", (_archive(),), lambda t: _tree("web1", t))
    yield Entry(
        "files.json",
        (own,),
        lambda t: manifest.of(desk.file("files.json", t).parent),
        mutate.document,
    )
    yield Entry(
        "known_hosts",
        (KNOWN,),
        lambda t: [
            hostkeys.known_keys(name, [desk.file("known_hosts", t)])
            for name in ("web1", "[web1]:2222")
        ],
        **never,
    )
    yield Entry("ssh config", (SSH,), lambda t: _ssh(desk, t), weight=0.3)
    for name in ("redis", "memcached", "apache"):
        if (query := diagnosis(name).counters) is not None:
            texts = {
                "redis": "monitor/fixtures/redis-info.txt",
                "apache": "services/fixtures/apache.txt",
                "memcached": "monitor/fixtures/memcached-stats.txt",
            }
            yield Entry(
                f"counters of {name}",
                ((TESTS / texts[name]).read_text(),),
                lambda t, q=query: counters.parse(t, q, 0.1),
                **never,
            )
    yield Entry(
        "redis' answer",
        ("$5\r\nhello\r\n", "-ERR x\r\n"),
        lambda t: _whole_bulk(_bytes(t)),
        **never,
    )


def _samples(streamed: stream.Streamed) -> None:
    """What was sampled; what a log says may be anything."""
    sane(streamed.samples)
    sane(streamed.cost)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _answers(text: str) -> object:
    answering = Answering(text)
    return ask(answering, [Command(("true",))])  # type: ignore[arg-type]


def _lock(text: str) -> object:
    observed = host_lock.look(Answering(text))  # type: ignore[arg-type]
    str(observed.holder)
    host_lock.why_stale(observed, "b pid:[1]")
    host_lock.why_stale(observed, "elsewhere")
    return observed.uptime, observed.renewed


def _curl(text: str) -> object:
    request = Request(Endpoint("198.18.0.1", 80), "/", b"ok")
    return wrong_with(curl.answer(Answering(text), "http://198.18.0.1/"), request)  # type: ignore[arg-type]


def _sockets(text: str) -> object:
    return _backlogs(text)


def _ssh(desk: Desk, text: str) -> object:
    host = SshHost("web1", "web1", config=str(desk.file("ssh_config", text)))
    options = ssh_settings.read_settings(host).base_ssh_config.lookup("web1")
    return dict(options), connection.known_hosts_files(host, options)


def _archive() -> str:
    import base64
    import io

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("etc/nginx/nginx.conf")
        member.size = len(places.NGINX)
        tar.addfile(member, io.BytesIO(places.NGINX.encode()))
    return base64.b64encode(packed.getvalue()).decode()


# -- configuration files and read-back --------------------------------------------------------------


def _services() -> Iterator[Entry]:
    never: dict[str, Any] = {"refusals": ()}
    styles = TESTS / "discovery/styles"
    own = {
        name: tuple(p.read_bytes().decode() for p in sorted(styles.glob(pattern)))
        for name, pattern in (
            ("nginx", "nginx*"),
            ("apache", "apache*"),
            ("ini", "*p*.*i*"),
            ("postgresql", "postgresql*"),
            ("mariadb", "mariadb*"),
            ("haproxy", "haproxy*"),
        )
    }
    unreadable: dict[str, Any] = {"refusals": (Unreadable,)}
    printed = "services/fixtures"
    options_text = places.cache().tree.files["/etc/memcached.conf"].decode()
    store_text = 'bind 10.0.0.4\nport 6379\nmaxclients 10000\nsave 900 1\n# x\nrequirepass "a b"\n'
    yield Entry(
        "nginx files",
        (places.NGINX, places.SITE, places.LB, *own["nginx"]),
        lambda t: list(nginx.read(t)),
        **unreadable,
    )
    yield Entry("apache files", own["apache"], apache_directives, **unreadable)
    yield Entry("php files", (places.FPM, places.POOL, *own["ini"]), ini.read, **unreadable)
    yield Entry("postgresql files", own["postgresql"], postgresql_directives, **unreadable)
    yield Entry("mariadb files", own["mariadb"], mariadb_files.read, **unreadable)
    yield Entry("haproxy files", own["haproxy"], haproxy_files.read, **unreadable)
    yield Entry("units", (test_varnish.DEBIAN, test_varnish.EDITED), unit_files.read, **never)
    yield Entry("lines of options", (options_text, store_text), option_lines, **unreadable)
    yield Entry("memcached's options", (options_text,), lambda t: options(_bytes(t)))
    yield Entry("nginx -T", recorded(printed, "nginx*"), nginx_in_effect, **never)
    yield Entry(
        "php-fpm -tt",
        recorded(printed, "php-fpm*"),
        weight=0.5,
        **never,
        parse=configuration(
            ini.read_log, {n: n for n in ("pm", "pm.max_children", "pm.start_servers")}
        ),
    )
    yield Entry(
        "apache's pages",
        recorded(printed, "apache*"),
        weight=0.3,
        **never,
        parse=lambda t: (Apache()._in_effect(t), ApacheModPhp()._in_effect(t), doing(t)),
    )
    yield Entry("memcached-tool", recorded(printed, "memcached*"), settings_in_effect(), **never)
    yield Entry(
        "redis CONFIG GET",
        recorded(printed, "redis*"),
        **never,
        parse=alternating(
            {n: n for n in ("maxclients", "tcp-backlog", "hz", "appendonly")}, {"appendonly"}
        ),
    )
    yield Entry("pg_settings", recorded(printed, "postgresql*"), postgresql_in_effect, **never)
    yield Entry("sysctl", recorded(printed, "sysctl*"), sysctl_in_effect, **never)
    yield Entry("limits of a unit", recorded(printed, "limits*"), open_files, **never)
    yield Entry("backlog by ss", recorded(printed, "ss-*"), listen_backlog(), **never)
    yield Entry(
        "haproxy's answers",
        recorded(printed, "haproxy*"),
        lambda t: (haproxy.in_effect(t), haproxy.counters(t)),
        **never,
    )
    yield Entry(
        "varnish's answers",
        recorded(printed, "varnish*"),
        lambda t: (varnish.in_effect(t), varnish.storage_in_effect(t), varnish.counters(t)),
        **never,
    )
    for name, answer in (
        ("gunicorn", gunicorn.in_effect),
        ("nodejs", nodejs.in_effect),
        ("puma", lambda t: (puma.in_effect(t), puma.of_stats(t), puma.counters(t))),
        ("uwsgi", lambda t: (uwsgi.in_effect(t), uwsgi.counters(t))),
    ):
        yield Entry(f"{name}'s answers", recorded(printed, f"{name}*"), answer, **never)
    yield Entry(
        "mariadb's variables",
        recorded(printed, "mariadb*"),
        lambda t: (mariadb.in_effect(t), mariadb_counters(t)),
        **never,
    )
    hosts: Mapping[str, tuple[str, Callable[[str], DiscoveredHost]]] = {
        "nginx": (places.NGINX, lambda t: places.web(nginx=t)),
        "site": (places.SITE, lambda t: places.web(site=t)),
        "php-fpm": (places.POOL, lambda t: places.web(pool=t)),
        "memcached": (options_text, lambda t: places.cache(text=t)),
        "redis": (store_text, places.store),
        "balancer": (places.LB, _balancer),
        "apache": (own["apache"][-1], _apache),
        "haproxy": (own["haproxy"][-1], test_haproxy.balancer),
        "varnish": (test_varnish.EDITED, lambda t: test_varnish.cache(**{test_varnish.ADMIN: t})),
        "vcl": (test_varnish.BACKENDS, lambda t: test_varnish.cache(**{VCL: t})),
        "gunicorn": (test_gunicorn.COMMAND, test_gunicorn.host),
        "gunicorn.conf.py": (CONF, lambda t: test_gunicorn.host(GUNICORN, _bytes(t))),
        "puma.rb": (test_puma.RAILS, test_puma.host),
        "uwsgi": (
            test_uwsgi.INI,
            lambda t: test_uwsgi.host("uwsgi --ini /srv/shop/shop.ini", ini=t),
        ),
        "nodejs": (test_nodejs.ENVIRONMENT, test_nodejs.host),
        "variables": (
            VARIABLES,
            lambda t: test_nodejs.host(VARIABLES_UNIT, **{"/etc/shop.env": t}),
        ),
        "mariadb": (own["mariadb"][-1], lambda t: test_mariadb.database(**{"70-shop.cnf": t})),
        "postgresql": (own["postgresql"][-1], test_postgresql.database),
    }
    for name, (text, host) in hosts.items():
        yield Entry(f"adopting {name}", (text,), lambda t, h=host: _adopted(h(t)), weight=0.2)

    for case in test_withheld.CASES:
        key = case.get("key", case["service"])
        outliner = adoptions()[key].understood.outliner(case["path"])
        text, _ = test_withheld.filled(case)
        yield Entry(
            f"masking {key}", (text,), lambda t, o=outliner: _masked(t, o), **never, weight=0.3
        )
    yield Entry(
        "masking any text", (test_haproxy.DEBIAN, VARIABLES), lambda t: _masked(t, None), **never
    )


def _masked(text: str, outliner: Outliner | None) -> None:
    """Masked twice is masked once; lines stay; the file itself fills in all that was masked."""
    shown = masked(text, outliner)
    if masked(shown, outliner) != shown or shown.count("\n") != text.count("\n"):
        raise Impossible("a text that is not masked at once, line by line")
    own = text.encode("utf-8", "surrogateescape")
    if "autotune-masked-" not in text and (
        unmasked(shown.encode("utf-8", "surrogateescape"), own, "it", outliner) != own
    ):
        raise Impossible("a masked file that is not itself again")


CONF = "import multiprocessing\nworkers = multiprocessing.cpu_count() * 2 + 1\ntimeout = -(60)\n"
GUNICORN = "gunicorn -b 127.0.0.1:8000 shop.wsgi"
VCL = "/etc/varnish/web.vcl"
VARIABLES_UNIT = "Environment=PORT=3000\nEnvironmentFile=/etc/shop.env\n"
VARIABLES = "# kept\nexport WORKERS='2'\nNODE_OPTIONS=\"--max-old-space-size=512\"\nKEY=a b # c\n"


def _balancer(text: str) -> DiscoveredHost:
    return places.host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": text}, "nginx.service")


def _apache(text: str) -> DiscoveredHost:
    modules = "LoadModule mpm_event_module a.so\nLoadModule proxy_module b.so\nListen 80\n"
    return places.host(
        "lb1", "10.0.0.9", {"/etc/apache2/apache2.conf": modules + text}, "apache2.service"
    )


def _adopted(host: DiscoveredHost) -> None:
    """At the baseline every template is the file it was made of."""
    for tier in tiers(instances(host)[0]):
        adopted = adopt(tier)
        sane(adopted.values)
        for instance in tier.instances:
            for service, config in instance.configs.items():
                for file in adopted.own[f"{tier.name}.{instance.host.name}.{service}"].files:
                    template, text = adopted.templates[file.template], config.texts[file.path]
                    running = instance.services[service]
                    _same(template, text, file.path, adopted, service, running)


def _same(
    template: str, text: str, path: str, adopted: Any, service: str, running: RunningService
) -> None:
    from autotune.discovery.adoption import _baseline

    outliner = adoptions()[running.key].understood.outliner(path)
    if of_text(template, _baseline(adopted, service)) != masked(text, outliner):
        raise Impossible("a template that does not give its file back")


# -- what people write, and studies -----------------------------------------------------------------


def _written(desk: Desk) -> Iterator[Entry]:
    targets = tuple(p.read_text() for p in sorted((ROOT / "targets").glob("*.yaml")))
    bad = tuple(p.read_text() for p in sorted((TESTS / "target/bad").glob("*.yaml")))
    sweeps = tuple(p.read_text() for p in sorted((ROOT / "targets/sweeps").glob("*.yaml")))
    value_error: dict[str, Any] = {"refusals": (ValueError,)}
    none: dict[str, Any] = {"refusals": (), "weight": 0.5}
    yield Entry("access log", (LOG,), lambda t: _requests(desk, t), **none)
    yield Entry(
        "targets",
        (*targets, *bad),
        lambda t: read_target(desk.file("t.yaml", t)).target,
        weight=0.5,
    )
    yield Entry(
        "modelled targets", (desk.target.read_text(),), lambda t: _space(desk, t), weight=0.1
    )
    yield Entry(
        "expressions", CONSTRAINTS[:3], lambda t: expression.parse(t).names(), **value_error
    )
    yield Entry("comparisons", CONSTRAINTS, expression.parse_comparison, **value_error, weight=0.5)
    for name, seeds in (
        ("duration", ("50ms", "3 s", "1.5h")),
        ("size", ("64MB", "30 kB", "2.5GiB")),
        ("rate", ("2000/s", "600/min")),
        ("fraction", ("0.1%", "99.9 %")),
    ):
        yield Entry(f"a {name}", seeds, getattr(units, name), **value_error)
    yield Entry("in unit", ("8MB", "5s", "12"), lambda t: units.in_unit(t, "MB"), **value_error)
    yield Entry("sweep files", sweeps, lambda t: _swept(desk, t), weight=0.2)
    yield Entry(
        "--over", ("100:500:100", "1.05:1.25:0.1", "a, b"), sweep_request.expand, check=_few
    )
    yield Entry(
        "--over and --with",
        (
            "lb.nginx.worker_connections=100:500:100",
            "service=all",
            "cache.memcached.growth_factor=1.1,1.2",
        ),
        lambda t: _over(desk, t),
        weight=0.2,
    )
    yield Entry("--hosts", ("web=1,2", "lb=1"), lambda t: _host_counts(desk, t), weight=0.2)
    yield Entry("--rate", ("100", "2000.5"), lambda t: _rates(desk, t), weight=0.2)
    yield Entry("--concurrency", ("1,5", "100"), ceilings._clients)


def _few(values: list[str]) -> None:
    if len(values) > sweep_request.MOST + 1 and ":" not in values[0]:
        return
    sane(values)


def _space(desk: Desk, text: str) -> object:
    space = prepare(read_target(desk.file("m.yaml", text))).space
    candidate = space.candidate(space.baseline)
    return candidate.settings


def _swept(desk: Desk, text: str) -> object:
    text = text.replace("../", f"{ROOT}/targets/", 1) if "target: ../" in text else text
    return sweep_request.sweep_file(desk.file("s.yaml", text))[1]


def _planned(desk: Desk, **options: Any) -> object:
    every = {
        "over": None,
        "hosts": None,
        "with_": None,
        "rates": [100.0],
        "repeat": None,
        **options,
    }
    file, request = sweep_request.from_options(desk.target, peak=False, **every)
    plan = sweep_request.plan_of_request(file, request, desk.space)
    return [point.settings for point in plan.points], plan.rates


def _over(desk: Desk, text: str) -> object:
    return _planned(desk, over=[text]), _planned(desk, hosts=["web=1"], with_=[text])


def _host_counts(desk: Desk, text: str) -> object:
    return _planned(desk, hosts=[text])


def _rates(desk: Desk, text: str) -> object:
    """As Typer reads the option: what float() takes."""
    try:
        rate = float(text)
    except ValueError:
        raise AutotuneError("a usage error") from None
    return _planned(desk, hosts=["web=1"], rates=[rate])


def _studies(desk: Desk) -> Iterator[Entry]:
    studies = sorted((TESTS / "report/studies").iterdir())
    events = tuple((s / "events.jsonl").read_text() for s in studies)
    export = json.dumps(
        {
            "schema": 1,
            "kind": "autotune-export",
            "rss": {"lb.nginx": 5000000},
            "parameters": dict(desk.space.baseline),
        }
    )
    locked = json.dumps({"host": "tuner", "pid": 812, "since": "2026-01-01"})
    yield Entry(
        "records of a study",
        tuple(_one_each(text) for text in events),
        lambda t: _state(desk, t),
        mutate.lines,
        weight=1.0,
    )
    yield Entry("manifest of an export", (export,), lambda t: _manifest(desk, t), mutate.document)
    yield Entry(
        "lock of a study",
        (locked,),
        lambda t: holder(desk.file("lock", t)),
        mutate.document,
        refusals=(),
    )


def _one_each(text: str) -> str:
    """A short journal: the first records of every kind."""
    kinds: dict[str, int] = {}
    kept = []
    for line in text[: text.rfind("\n")].splitlines():
        kind = json.loads(line)["event"]
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 2:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _state(desk: Desk, text: str) -> object:
    directory = desk.directory / "one"
    directory.mkdir(exist_ok=True)
    (directory / "events.jsonl").write_bytes(_bytes(text))
    state = state_of(directory)
    Follow(directory)()
    return state, state.elapsed


def _reading(desk: Desk, text: str) -> object:
    directory = desk.directory / "read"
    directory.mkdir(exist_ok=True)
    (directory / "readings.jsonl").write_bytes(_bytes(text.replace("\n", " ") + "\n"))
    return [reading_of(record) for record in readings_of(directory)]


def _reports(directory: Path, name: str, text: str, whole: str) -> None:
    """Whatever a study's reports show of a damaged record, each by itself."""
    try:
        (directory / name).write_bytes(_bytes(text))
        study = open_study(directory)
        view = study_view(study)
        json.dumps(summary(view), allow_nan=False).encode()
        "".join(line for line, _ in report_lines(view, 100)).encode()
        render_status(view).encode()
        page(view).encode()
        trials = view.conclusion.sides
        if "best" in trials:
            export_files(study, trials["best"].trial)
    finally:
        (directory / name).write_text(whole)


def _manifest(desk: Desk, text: str) -> object:
    path = desk.file("manifest.json", text)
    settings, rss = exported_settings(desk.space, path), exported_rss(path)
    return settings, rss, desk.space.knowing(rss).candidate(settings).settings


def entries(directory: Path) -> tuple[Entry, ...]:
    """All of them; those that need files have them in ``directory``."""
    desk = Desk(directory)
    return (*_loads(), *_hosts(desk), *_services(), *_written(desk), *_studies(desk))
