"""All parsers of autotune: the origin of their inputs, recorded examples, and allowed exceptions.

Each new parser needs a line in ``entries``.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.cli.options import parse_rates
from autotune.deploy import adopted_files, backup, host_lock
from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.host_state import parse_files, parse_sysctls
from autotune.deploy.templates import render_text
from autotune.diagnose.faulty_hosts import find_answer_error
from autotune.discovery.file_collection import unpack_archive
from autotune.discovery.host_reading import DiscoveredHost, _parse_backlogs
from autotune.discovery.tier_adoption import adopt_tier
from autotune.discovery.tiers import find_instances, group_tiers
from autotune.environments.preparation import prepare
from autotune.export.writer import build_export
from autotune.loads import (
    answer_kind,
    k6_script,
    memcaslap,
    mutilate,
    probes,
    start_times,
    workload,
)
from autotune.loads.access_logs import recorded_requests
from autotune.loads.base import LoadError, LoadGenerator, LoadProcess, LoadResult, LoadSpec, Request
from autotune.loads.closed_load import (
    AbGenerator,
    ClosedLoopClients,
    ClosedLoopGenerator,
    WrkGenerator,
)
from autotune.loads.custom_generator import CustomGenerator
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.load_host import ClientPorts, fit_kernel_values
from autotune.loads.oha import OhaGenerator
from autotune.masking import Outliner, mask_secrets, restore_secrets
from autotune.measure import benchmark
from autotune.monitor import counters, stream
from autotune.monitor.process_table import ProcessOwners
from autotune.monitor.procfs import parse_ss, parse_unix_queues
from autotune.report.page import render_page
from autotune.report.status import format_status
from autotune.report.studies import open_study
from autotune.report.summary import build_summary
from autotune.report.text_report import format_report_lines
from autotune.report.view import build_study_view
from autotune.runtimes import containers
from autotune.runtimes.systemd import parse_units
from autotune.services import unit_files
from autotune.services.adoption import RunningService
from autotune.services.apache.diagnosis import count_workers
from autotune.services.apache.service import Apache
from autotune.services.apache_config import parse_directives as apache_directives
from autotune.services.apache_mod_php.service import ApacheModPhp
from autotune.services.base import Endpoint
from autotune.services.caddy import service as caddy
from autotune.services.caddy import syntax as caddy_files
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.gunicorn import service as gunicorn
from autotune.services.haproxy import stats as haproxy
from autotune.services.haproxy import syntax as haproxy_files
from autotune.services.limits.service import parse_open_files
from autotune.services.mariadb import service as mariadb
from autotune.services.mariadb import syntax as mariadb_files
from autotune.services.mariadb.service import parse_counters as mariadb_counters
from autotune.services.memcached.service import build_settings_parser, parse_options
from autotune.services.nginx import syntax as nginx
from autotune.services.nginx.service import parse_effective as nginx_in_effect
from autotune.services.nodejs import service as nodejs
from autotune.services.option_lines import parse_directives as option_lines
from autotune.services.php_fpm import syntax as ini
from autotune.services.postgresql.adoption import parse_directives as postgresql_directives
from autotune.services.postgresql.service import parse_effective as postgresql_in_effect
from autotune.services.puma import service as puma
from autotune.services.readback import build_backlog_parser, build_config_parser
from autotune.services.redis_protocol import _is_bulk_complete, build_pair_parser
from autotune.services.registry import SHIPPED
from autotune.services.sysctl.service import parse_effective as sysctl_in_effect
from autotune.services.uwsgi import service as uwsgi
from autotune.services.varnish import service as varnish
from autotune.space import expression
from autotune.study import ceilings
from autotune.study.apply_export import read_exported_rss, read_exported_settings
from autotune.study.directory import describe_lock_holder
from autotune.study.reading_records import RecordedCall, load_reading_records
from autotune.study.study_store import JournalTail, load_state
from autotune.sweep import request as sweep_request
from autotune.target import quantities
from autotune.target import requests_file as requests
from autotune.target.read_target import read_target
from autotune.transports import connection, curl, facts, host_keys, ssh_settings
from autotune.transports.base import Argv, CommandResult, SshHost
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
SPEC = LoadSpec(100, 1.5, latency_limit=0.050)
ORDER = Request(Endpoint("198.18.0.1", 80), "/", b"ok\n")
PROCESS = LoadProcess((), 150, 1.5, 9.0, 25)
OWNERS = ProcessOwners(sessions={5721: "fpm", 5693: "cache"})


def recorded(folder: str, pattern: str = "*.txt") -> tuple[str, ...]:
    """Return the recorded texts below tests/ that are small enough for many variations."""
    texts = (
        path.read_bytes().decode(errors="replace")
        for path in sorted((TESTS / folder).glob(pattern))
    )
    return tuple(text[:20_000] for text in texts)


@dataclass
class Answering:
    """A transport to a host that responds with ``text`` to every command."""

    text: str
    name: str = "web1"

    def run(self, argv: Argv, *, input: bytes | None = None, **_: object) -> CommandResult:
        mark = (input or b"").decode().rpartition("#")[2][:16]
        marked = f"{self.text}\n#{mark} 0\n" if input else self.text
        return CommandResult(tuple(argv), 0, marked, "")

    def close(self) -> None:
        pass


class Desk:
    """A directory for parsers that read files, and a simulated stack for parsers that need a search
    space.
    """

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
    """Check that each intended request is a response or an error, unless the result is marked as
    limited.
    """
    sane(result)
    sane(list(result.histogram))
    if min([result.intended, result.sent, *result.errors.values(), *result.histogram.values()]) < 0:
        raise Impossible("a count below 0 was accepted")
    if result.right_answers + result.error_count != result.intended:
        raise Impossible(
            f"{result.right_answers} + {result.error_count} requests of {result.intended}"
        )
    if result.limited is None and result.intended > 1000 * PROCESS.request_count:
        raise Impossible(f"{result.intended} requests where {PROCESS.request_count} were ordered")


def not_negative(value: Any) -> None:
    """Check counts and durations."""
    sane(value)
    parts = asdict(value) if value is not None else {}
    numbers = [n for n in parts.values() if isinstance(n, int | float)]
    if any(number < 0 for number in numbers):
        raise Impossible(f"{value} has a count below 0")


# -- load generators --------------------------------------------------------------------------------


def _loads() -> Iterator[Entry]:
    sessions = SessionGenerator().with_visits(workload.parse_sessions("/s1\n/other\n/s3\n"))
    order = LoadSpec(60, 1.0, latency_limit=0.050, timeout=0.4, seed=5)
    (started,) = sessions.build_processes(ORDER, order)

    def generator(
        load: LoadGenerator, process: LoadProcess = PROCESS
    ) -> Callable[[str], LoadResult]:
        return lambda text: load.parse_checked(process, text, ORDER, SPEC)

    def closed(load: ClosedLoopGenerator) -> Callable[[str], Any]:
        return lambda text: load.parse_checked(text, ClosedLoopClients(5, 1.0))

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
        generator(HttperfGenerator()),
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
    yield Entry(
        "oha", recorded(folder + "oha"), generator(OhaGenerator()), check=counted, weight=2, **never
    )
    yield Entry(
        "own generator",
        own,
        generator(CustomGenerator(("x",))),
        mutate.document,
        check=counted,
        weight=2,
        **never,
    )
    yield Entry(
        "ab",
        recorded(folder + "closed", "ab-*"),
        closed(AbGenerator()),
        check=not_negative,
        **never,
    )
    yield Entry(
        "wrk",
        recorded(folder + "closed", "wrk-*"),
        closed(WrkGenerator()),
        check=not_negative,
        **never,
    )
    yield Entry(
        "memcaslap",
        recorded(folder + "closed", "mem*"),
        check=not_negative,
        parse=lambda text: memcaslap.parse_output(text, memcaslap.CACHE_SHAPES[1]),
        **never,
    )
    yield Entry(
        "mutilate",
        recorded(folder + "mutilate"),
        check=lambda s: (sane(s), counted(s.result))[0],
        parse=lambda text: mutilate.parse_output(text, LoadSpec(400, 2, latency_limit=0.050)),
        weight=2,
        **never,
    )
    yield Entry("whole answers", (PROBED,), _probed, refusals=(LoadError,))
    yield Entry("pages", recorded(folder + "error-pages", "*.html"), _compared, **never)
    yield Entry(
        "uris",
        ("/a\n/b?c=d\n", "/a\0/b\0"),
        workload.parse_uris,
        refusals=(workload.UnusableWorkload,),
    )
    yield Entry("k6 scripts", (SCRIPT,), _script, refusals=(workload.UnusableWorkload,), weight=0.5)
    yield Entry(
        "sessions",
        (SESSIONS,),
        lambda text: workload.group_sessions(workload.parse_sessions(text)),
        refusals=(workload.UnusableWorkload,),
    )
    yield Entry("ports of load hosts", (PORTS,), ClientPorts.parse, **never)
    yield Entry("kernel of load hosts", ("32768 60999|2|100", "1 2|0|9999999"), _fit, **never)
    yield Entry(
        "clock",
        ("1700000000000000000\n",),
        lambda text: start_times.read_host_clock(Answering(text)),
    )
    yield Entry(
        "benchmark command",
        ('{"value": 812.5, "sd": 3}', '{"infeasible": "why"}'),
        benchmark.parse_answer,
        mutate.document,
        **never,
    )


def _requests(desk: Desk, text: str) -> object:
    """Check that a target accepts the request list from a log."""
    recorded = recorded_requests.record_requests(
        {Path("access.log"): text.encode("utf-8", "surrogateescape").split(b"\n")}
    )
    if not recorded.requests:
        return []
    visits = requests.read_visits(
        desk.file("requests.yaml", recorded.format_request_file([text[:40]]))
    )
    if [visit.path for visit in visits] != [path for _, path in recorded.requests]:
        raise Impossible("other pages than those of the log")
    return visits


def _script(text: str) -> object:
    return [*k6_script.find_imports(text, "shop.js")], k6_script.replace_imports("shop.js", text)


PROBED = (
    '/tmp/x\n\n<autotune 00000 200 0 3 0.012>{"content-type":["text/html"]\n}\n<autotune end 00000>\n'
    "\n<autotune 00001 000 28 0 2.000>{}\n<autotune end 00001>\n"
    "\n<autotune bodies /tmp/x>\n==> /tmp/x/body.00000 <==\nok\n"
    "\n<autotune ends /tmp/x>\n==> /tmp/x/body.00000 <==\nok\n\n<autotune errors /tmp/x>\n"
)


def _probed(text: str) -> list[probes.ProbeAnswer | None]:
    requests = [Request(Endpoint("198.18.0.1", 80), "/")] * 2
    return probes.parse_answers(CommandResult((), 0, text, ""), requests)


def _compared(text: str) -> str | None:
    """Compare a page with itself, and check it for errors."""
    page = probes.ProbeAnswer(200, len(text), text, {"content-type": "text/html"})
    answer_kind.find_error(page)
    return answer_kind.find_difference(answer_kind.ReferenceAnswer.from_samples([page, page]), page)


def _fit(text: str) -> dict[str, str]:
    names = ("net.ipv4.ip_local_port_range", "net.ipv4.tcp_tw_reuse", "fs.file-max")
    return fit_kernel_values(dict(zip(names, text.split("|"), strict=False)))


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
    originals = backup.encode_backup(
        backup.HostBackup(
            "web1",
            "shop",
            backup.HostState(
                {
                    "/etc/a": backup.FileState(b"x\n", 0o644, "0:0", modified="1700000000.5"),
                    "/etc/b": backup.FileState(),
                    "/etc/c": backup.FileState(link_target="/x", owner="0:0", modified="1"),
                    "/etc/d": backup.FileState(b"\xff", 0o600, "0:0", modified="1"),
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
        lambda t: stream.parse_stream(t, OWNERS),
        check=_samples,
        weight=2,
        **never,
    )
    yield Entry("ss", recorded("services/fixtures", "ss-*"), lambda t: [*parse_ss(t)], **never)
    yield Entry("unix sockets", (streamed,), lambda t: [*parse_unix_queues(t)], **never)
    yield Entry(
        "host facts", (FACTS,), lambda t: facts.parse_facts(t, units=len(t) % 2 == 0), **never
    )
    yield Entry("kernel values", (KERNEL,), facts.parse_kernel_values, **never)
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
        lambda t: backup.decode_backup(_bytes(t), "originals"),
        mutate.document,
        weight=2,
    )
    yield Entry("answer of curl", ("ok\n\n200 0.0123 3 ", "\n502 1.5 0 http://a/"), _curl, **never)
    yield Entry("sockets of a host", (SOCKETS,), _sockets)
    yield Entry("archive of a host", (_archive(),), lambda t: unpack_archive("web1", t))
    yield Entry(
        "files.json",
        (own,),
        lambda t: adopted_files.read_adopted_files(desk.file("files.json", t).parent),
        mutate.document,
    )
    yield Entry(
        "known_hosts",
        (KNOWN,),
        lambda t: [
            host_keys.find_known_keys(name, [desk.file("known_hosts", t)])
            for name in ("web1", "[web1]:2222")
        ],
        **never,
    )
    yield Entry("ssh config", (SSH,), lambda t: _ssh(desk, t), weight=0.3)
    for name in ("redis", "memcached", "apache"):
        if (query := SHIPPED.find_diagnosis(name).counter_query) is not None:
            texts = {
                "redis": "monitor/fixtures/redis-info.txt",
                "apache": "services/fixtures/apache.txt",
                "memcached": "monitor/fixtures/memcached-stats.txt",
            }
            yield Entry(
                f"counters of {name}",
                ((TESTS / texts[name]).read_text(),),
                lambda t, q=query: counters.parse_counters(t, q, 0.1),
                **never,
            )
    yield Entry(
        "redis' answer",
        ("$5\r\nhello\r\n", "-ERR x\r\n"),
        lambda t: _is_bulk_complete(_bytes(t)),
        **never,
    )


def _samples(streamed: stream.StreamResult) -> None:
    """Check the samples. The content of logs is arbitrary."""
    sane(streamed.samples)
    sane(streamed.cpu_seconds)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _answers(text: str) -> object:
    answering = Answering(text)
    return run_commands(answering, [Command(("true",))])  # type: ignore[arg-type]


def _lock(text: str) -> object:
    observed = host_lock.read_lock(Answering(text))  # type: ignore[arg-type]
    str(observed.holder)
    host_lock.find_stale_reason(observed, "b pid:[1]")
    host_lock.find_stale_reason(observed, "elsewhere")
    return observed.uptime, observed.renewed_uptime


def _curl(text: str) -> object:
    request = Request(Endpoint("198.18.0.1", 80), "/", b"ok")
    return find_answer_error(curl.send_request(Answering(text), "http://198.18.0.1/"), request)  # type: ignore[arg-type]


def _sockets(text: str) -> object:
    return _parse_backlogs(text)


def _ssh(desk: Desk, text: str) -> object:
    host = SshHost("web1", "web1", config_file=str(desk.file("ssh_config", text)))
    options = ssh_settings.read_ssh_settings(host).base_ssh_config.lookup("web1")
    return dict(options), connection.find_known_hosts(host, options)


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
    unreadable: dict[str, Any] = {"refusals": (ConfigSyntaxError,)}
    printed = "services/fixtures"
    options_text = places.cache().tree.files["/etc/memcached.conf"].decode()
    store_text = 'bind 10.0.0.4\nport 6379\nmaxclients 10000\nsave 900 1\n# x\nrequirepass "a b"\n'
    yield Entry(
        "nginx files",
        (places.NGINX, places.SITE, places.LB, *own["nginx"]),
        lambda t: list(nginx.parse_directives(t)),
        **unreadable,
    )
    yield Entry("apache files", own["apache"], apache_directives, **unreadable)
    yield Entry(
        "php files", (places.FPM, places.POOL, *own["ini"]), ini.parse_directives, **unreadable
    )
    yield Entry("postgresql files", own["postgresql"], postgresql_directives, **unreadable)
    yield Entry("mariadb files", own["mariadb"], mariadb_files.parse_directives, **unreadable)
    yield Entry("haproxy files", own["haproxy"], haproxy_files.parse_directives, **unreadable)
    yield Entry(
        "caddy files", (CADDYFILE,), lambda t: list(caddy_files.parse_directives(t)), **unreadable
    )
    yield Entry(
        "units", (test_varnish.DEBIAN, test_varnish.EDITED), unit_files.parse_directives, **never
    )
    yield Entry("lines of options", (options_text, store_text), option_lines, **unreadable)
    yield Entry("memcached's options", (options_text,), lambda t: parse_options(_bytes(t)))
    yield Entry("nginx -T", recorded(printed, "nginx*"), nginx_in_effect, **never)
    yield Entry(
        "php-fpm -tt",
        recorded(printed, "php-fpm*"),
        weight=0.5,
        **never,
        parse=build_config_parser(
            ini.parse_log, {n: n for n in ("pm", "pm.max_children", "pm.start_servers")}
        ),
    )
    yield Entry(
        "apache's pages",
        recorded(printed, "apache*"),
        weight=0.3,
        **never,
        parse=lambda t: (
            Apache()._parse_effective(t),
            ApacheModPhp()._parse_effective(t),
            count_workers(t),
        ),
    )
    yield Entry("memcached-tool", recorded(printed, "memcached*"), build_settings_parser(), **never)
    yield Entry(
        "redis CONFIG GET",
        recorded(printed, "redis*"),
        **never,
        parse=build_pair_parser(
            {n: n for n in ("maxclients", "tcp-backlog", "hz", "appendonly")}, {"appendonly"}
        ),
    )
    yield Entry("pg_settings", recorded(printed, "postgresql*"), postgresql_in_effect, **never)
    yield Entry("sysctl", recorded(printed, "sysctl*"), sysctl_in_effect, **never)
    yield Entry("limits of a unit", recorded(printed, "limits*"), parse_open_files, **never)
    yield Entry("backlog by ss", recorded(printed, "ss-*"), build_backlog_parser(), **never)
    yield Entry(
        "haproxy's answers",
        recorded(printed, "haproxy*"),
        lambda t: (haproxy.parse_effective(t), haproxy.parse_counters(t)),
        **never,
    )
    yield Entry(
        "varnish's answers",
        recorded(printed, "varnish*"),
        lambda t: (
            varnish.parse_effective(t),
            varnish.parse_effective_storage(t),
            varnish.parse_counters(t),
        ),
        **never,
    )
    for name, answer in (
        ("caddy", caddy.parse_effective),
        ("gunicorn", gunicorn.parse_effective),
        ("nodejs", nodejs.parse_effective),
        (
            "puma",
            lambda t: (
                puma.parse_effective(t),
                puma.parse_effective_stats(t),
                puma.parse_counters(t),
            ),
        ),
        ("uwsgi", lambda t: (uwsgi.parse_effective(t), uwsgi.parse_counters(t))),
    ):
        yield Entry(f"{name}'s answers", recorded(printed, f"{name}*"), answer, **never)
    yield Entry(
        "mariadb's variables",
        recorded(printed, "mariadb*"),
        lambda t: (mariadb.parse_effective(t), mariadb_counters(t)),
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
        "caddy": (CADDYFILE, _caddy),
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
        outliner = SHIPPED.map_adoptions()[key].visible.build_outliner(case["path"])
        text, _ = test_withheld.filled(case)
        yield Entry(
            f"masking {key}", (text,), lambda t, o=outliner: _masked(t, o), **never, weight=0.3
        )
    yield Entry(
        "masking any text", (test_haproxy.DEBIAN, VARIABLES), lambda t: _masked(t, None), **never
    )


def _masked(text: str, outliner: Outliner | None) -> None:
    """Check that masking is idempotent, keeps lines, and can be reverted with the original file."""
    shown = mask_secrets(text, outliner)
    if mask_secrets(shown, outliner) != shown or shown.count("\n") != text.count("\n"):
        raise Impossible("a text that is not masked at once, line by line")
    own = text.encode("utf-8", "surrogateescape")
    if "autotune-masked-" not in text and (
        restore_secrets(shown.encode("utf-8", "surrogateescape"), own, "it", outliner) != own
    ):
        raise Impossible("a masked file that is not itself again")


CONF = "import multiprocessing\nworkers = multiprocessing.cpu_count() * 2 + 1\ntimeout = -(60)\n"
GUNICORN = "gunicorn -b 127.0.0.1:8000 shop.wsgi"
VCL = "/etc/varnish/web.vcl"
VARIABLES_UNIT = "Environment=PORT=3000\nEnvironmentFile=/etc/shop.env\n"
VARIABLES = "# kept\nexport WORKERS='2'\nNODE_OPTIONS=\"--max-old-space-size=512\"\nKEY=a b # c\n"


CADDYFILE = """\
{
\tadmin localhost:2020
}
(own) {
\theader X-A `b`
}
a.example,
http://{$NAME:b.example}:8080 {
\timport own
\trespond /x "a \\" { # b" # c
\treverse_proxy @x 10.0.0.2:80 unix//run/a.sock {
\t\tlb_policy random
\t\ttransport http {
\t\t\tmax_conns_per_host 5
\t\t}
\t}
}
"""


def _caddy(text: str) -> DiscoveredHost:
    return places.host("lb1", "10.0.0.9", {"/etc/caddy/Caddyfile": text}, "caddy.service")


def _balancer(text: str) -> DiscoveredHost:
    return places.host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": text}, "nginx.service")


def _apache(text: str) -> DiscoveredHost:
    modules = "LoadModule mpm_event_module a.so\nLoadModule proxy_module b.so\nListen 80\n"
    return places.host(
        "lb1", "10.0.0.9", {"/etc/apache2/apache2.conf": modules + text}, "apache2.service"
    )


def _adopted(host: DiscoveredHost) -> None:
    """Check that each template with the baseline values reproduces its file."""
    for tier in group_tiers(find_instances(host)[0]):
        adopted = adopt_tier(tier)
        sane(adopted.baseline_values)
        for instance in tier.instances:
            for service, config in instance.configs.items():
                for file in adopted.adopted_configs[
                    f"{tier.name}.{instance.host.name}.{service}"
                ].files:
                    template, text = adopted.templates[file.template], config.texts[file.path]
                    running = instance.services[service]
                    _same(template, text, file.path, adopted, service, running)


def _same(
    template: str, text: str, path: str, adopted: Any, service: str, running: RunningService
) -> None:
    from autotune.discovery.tier_adoption import _select_baseline

    outliner = SHIPPED.map_adoptions()[running.key].visible.build_outliner(path)
    if render_text(template, _select_baseline(adopted, service)) != mask_secrets(text, outliner):
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
        "expressions",
        CONSTRAINTS[:3],
        lambda t: expression.parse_expression(t).names(),
        **value_error,
    )
    yield Entry("comparisons", CONSTRAINTS, expression.parse_comparison, **value_error, weight=0.5)
    for name, seeds in (
        ("parse_duration", ("50ms", "3 s", "1.5h")),
        ("parse_size", ("64MB", "30 kB", "2.5GiB")),
        ("parse_rate", ("2000/s", "600/min")),
        ("parse_fraction", ("0.1%", "99.9 %")),
    ):
        yield Entry(name.replace("_", " "), seeds, getattr(quantities, name), **value_error)
    yield Entry(
        "in unit", ("8MB", "5s", "12"), lambda t: quantities.convert_to_unit(t, "MB"), **value_error
    )
    yield Entry("sweep files", sweeps, lambda t: _swept(desk, t), weight=0.2)
    yield Entry(
        "--over", ("100:500:100", "1.05:1.25:0.1", "a, b"), sweep_request.expand_values, check=_few
    )
    yield Entry(
        "--over and --set",
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
    yield Entry("--concurrency", ("1,5", "100"), ceilings._parse_client_counts)


def _few(values: list[str]) -> None:
    if len(values) > sweep_request.MAX_AXIS_VALUES + 1 and ":" not in values[0]:
        return
    sane(values)


def _space(desk: Desk, text: str) -> object:
    space = prepare(read_target(desk.file("m.yaml", text))).space
    candidate = space.build_candidate(space.baseline)
    return candidate.settings


def _swept(desk: Desk, text: str) -> object:
    text = text.replace("../", f"{ROOT}/targets/", 1) if "target: ../" in text else text
    return sweep_request.read_sweep_file(desk.file("s.yaml", text))[1]


def _planned(desk: Desk, **options: Any) -> object:
    every = {
        "over": None,
        "hosts": None,
        "fixed_settings": None,
        "rates": [100.0],
        "repeat": None,
        **options,
    }
    file, request = sweep_request.build_request(desk.target, peak=False, **every)
    plan = sweep_request.build_plan(file, request, desk.space)
    return [point.settings for point in plan.points], plan.rates


def _over(desk: Desk, text: str) -> object:
    return _planned(desk, over=[text]), _planned(desk, hosts=["web=1"], fixed_settings=[text])


def _host_counts(desk: Desk, text: str) -> object:
    return _planned(desk, hosts=[text])


def _rates(desk: Desk, text: str) -> object:
    return _planned(desk, hosts=["web=1"], rates=parse_rates("--rate", [text]))


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
        lambda t: describe_lock_holder(desk.file("lock", t)),
        mutate.document,
        refusals=(),
    )


def _one_each(text: str) -> str:
    """Return a short journal with the first record of each kind."""
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
    state = load_state(directory)
    JournalTail(directory)()
    return state, state.elapsed_seconds


def _reading(desk: Desk, text: str) -> object:
    directory = desk.directory / "read"
    directory.mkdir(exist_ok=True)
    (directory / "readings.jsonl").write_bytes(_bytes(text.replace("\n", " ") + "\n"))
    records = load_reading_records(directory)
    return [r if isinstance(r, RecordedCall) else r.reading for r in records]


def _reports(directory: Path, name: str, text: str, whole: str) -> None:
    """Run each report of a study with a damaged record."""
    try:
        (directory / name).write_bytes(_bytes(text))
        study = open_study(directory)
        view = build_study_view(study)
        json.dumps(build_summary(view), allow_nan=False).encode()
        "".join(line for line, _ in format_report_lines(view, 100)).encode()
        format_status(view).encode()
        render_page(view).encode()
        trials = view.conclusion.sides
        if "best" in trials:
            build_export(study, trials["best"].trial)
    finally:
        (directory / name).write_text(whole)


def _manifest(desk: Desk, text: str) -> object:
    path = desk.file("manifest.json", text)
    settings, rss = read_exported_settings(desk.space, path), read_exported_rss(path)
    return settings, rss, desk.space.with_measured_memory(rss).build_candidate(settings).settings


def entries(directory: Path) -> tuple[Entry, ...]:
    """Return all entries. Files for parsers are in ``directory``."""
    desk = Desk(directory)
    return (*_loads(), *_hosts(desk), *_services(), *_written(desk), *_studies(desk))
