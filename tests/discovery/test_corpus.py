"""Public configurations: values according to the installed software equal the adopted ones.

`AUTOTUNE_CORPUS` names a directory with a folder for each service, which contains its files. Each file
takes the place of the distribution's main file, together with the other files of this machine. The
programs only print what they read; files that are code are adopted, and never run. Programs create
the directories that a configuration names, so they run in a mount namespace of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autotune.config_text import decode, encode
from autotune.deploy.stack import ServiceInstance
from autotune.discovery.tier_adoption import AdoptedTier, adopt_tier, check_templates
from autotune.discovery.tiers import DiscoveredInstance, DiscoveredTier, find_instances
from autotune.environments.edit_proof import is_same_value, list_alternatives
from autotune.errors import AutotuneError
from autotune.services.base import Endpoint, Placement, Readback, Service, Value
from autotune.services.haproxy.stats import STATS_COMMANDS
from autotune.services.registry import SHIPPED
from autotune.space.facts import HostFacts
from autotune.target.model import Tier
from autotune.target.runtimes import DEFAULT_RUNTIME
from tests.discovery.places import host
from tests.discovery.test_tier_adoption import rendered

CORPUS = os.environ.get("AUTOTUNE_CORPUS", "")
pytestmark = pytest.mark.soak


@dataclass(frozen=True)
class Place:
    """Where a file of a service goes, what else of this machine is read, and the unit."""

    path: str
    unit: str
    others: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    other_units: tuple[str, ...] = ()


NGINX = """\
events { }
http {
    server {
        listen 80;
        location ~ \\.php$ { fastcgi_pass SOCKET; }
    }
}
"""
UNIT = "[Service]\nWorkingDirectory=/srv/shop\nExecStart="
POOL = "/etc/php/8.2/fpm/pool.d/www.conf"
SOCKET_CLIENT = (
    'my $s = IO::Socket::UNIX->new("/run/query.sock") or die;'
    " print $s qq(@ARGV\\n); print while <$s>"
)
PLACES = {
    "nginx": Place("/etc/nginx/nginx.conf", "nginx.service", ("/etc/nginx",)),
    "apache": Place("/etc/apache2/conf-available/charset.conf", "apache2.service", ("/etc/apache2",)),
    "php_fpm": Place(
        POOL, "php8.2-fpm.service",
        ("/etc/php/8.2/fpm", "/etc/php/8.2/mods-available"),
        {"/etc/nginx/nginx.conf": NGINX}, ("nginx.service",),
    ),
    "php_ini": Place(
        "/etc/php/8.2/fpm/php.ini", "php8.2-fpm.service",
        ("/etc/php/8.2/fpm", "/etc/php/8.2/mods-available"),
        {"/etc/nginx/nginx.conf": NGINX}, ("nginx.service",),
    ),
    "mariadb": Place("/etc/mysql/mariadb.cnf", "mariadb.service", ("/etc/mysql",)),
    "postgresql": Place(
        "/etc/postgresql/15/main/postgresql.conf", "postgresql@15-main.service",
        ("/etc/postgresql/15/main",),
    ),
    "haproxy": Place("/etc/haproxy/haproxy.cfg", "haproxy.service"),
    "redis": Place("/etc/redis/redis.conf", "redis-server.service"),
    "gunicorn": Place(
        "/srv/shop/gunicorn.conf.py", "shop.service", (),
        {"/etc/systemd/system/shop.service": f"{UNIT}/usr/bin/gunicorn -b 0.0.0.0:8000 shop:app\n"},
    ),
    "puma": Place(
        "/srv/shop/config/puma.rb", "shop.service", (),
        {"/etc/systemd/system/shop.service": f"{UNIT}/usr/bin/puma -C config/puma.rb\n"},
    ),
    "uwsgi": Place(
        "/srv/shop/uwsgi.ini", "shop.service", (),
        {"/etc/systemd/system/shop.service": f"{UNIT}/usr/bin/uwsgi --ini /srv/shop/uwsgi.ini\n"},
    ),
}  # fmt: skip
# Other processes see nothing that the programs create or change. What is read stays in place.
# The arguments are the number of files, each file with its place, and the command.
APART = """
mount --make-rprivate / || exit
for directory in /etc /usr /opt /srv /home /root /var/www /work; do
    [ ! -d "$directory" ] || { mount --rbind "$directory" "$directory" &&
        mount -o remount,ro,bind "$directory"; } || exit
done
mount -t tmpfs -o mode=755 none /run && mkdir -p /run/nginx /run/apache2 /run/php /run/lock || exit
count=$1 && shift
while [ "$count" -gt 0 ]; do
    directory=${2%/*}
    [ -e "$2" ] || { # a new file, in a copy of its directory
        mkdir "/run/$count" && cp -a "$directory/." "/run/$count" &&
            mount -t tmpfs -o mode=755 none "$directory" &&
            cp -a "/run/$count/." "$directory" && : >"$2"
    } || exit
    mount --bind "$1" "$2" || exit
    shift 2 && count=$((count - 1))
done
for directory in /tmp /var/tmp /var/log /var/lib /var/cache /dev/shm; do
    mount -t tmpfs -o mode=1777 none "$directory" || exit
done
mkdir -p /var/log/nginx /var/log/apache2 /var/lib/nginx
chmod 755 /var/lib /var/log
cd / && exec "$@"
"""
# These programs print values only while they run: here without a network, and for the query alone.
QUERY = """
ip link set lo up
mkdir -p /var/lib/haproxy /var/lib/redis /run/haproxy
printf 'global\\n stats socket /run/query.sock level admin\\n' >/run/query.cfg
count=$1 && shift
"$@" >/dev/null 2>&1 &
server=$!
for try in $(seq 30); do [ -S /run/query.sock ] && break; sleep 0.1; done
"""
STARTED = {
    "redis": (
        f'{QUERY} redis-cli -s /run/query.sock CONFIG GET "*"; kill -9 $server',
        ("redis-server", "/etc/redis/redis.conf", "--port", "0", "--unixsocket", "/run/query.sock",
         "--dir", "/tmp", "--daemonize", "no", "--supervised", "no", "--pidfile", "/run/query.pid",
         "--logfile", "", "--requirepass", "", "--replicaof", "no", "one"),
    ),
    "haproxy": (
        f"{QUERY} perl -MIO::Socket::UNIX -e '{SOCKET_CLIENT}' '{STATS_COMMANDS}'; kill -9 $server",
        ("haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg", "-f", "/run/query.cfg"),
    ),
}  # fmt: skip
MAX_ALTERNATIVES = 3
FACTS = HostFacts(os.cpu_count() or 1, 8 * 2**30, 524_288)


@dataclass
class Results:
    """Counts by service and result, and lines about what is wrong."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def count(self, service: str, result: str, number: int = 1) -> None:
        self.counts.setdefault(service, Counter())[result] += number


def read_machine_files(place: Place) -> dict[str, str]:
    """Return the machine's files that its software reads next to the file."""
    return {
        str(path): decode(path.read_bytes())
        for directory in place.others
        for path in Path(directory).rglob("*")
        if path.is_file() and path.stat().st_size < 500_000
    }


def list_links(place: Place) -> dict[str, str]:
    links = {
        str(path): os.path.normpath(path.parent / path.readlink())
        for directory in place.others
        for path in Path(directory).rglob("*")
        if path.is_symlink()
    }
    for target in [*links.values()]:  # of the alternatives system
        if Path(target).is_symlink():
            links[target] = os.path.normpath(Path(target).parent / Path(target).readlink())
    return links


def build_instance(
    tier: AdoptedTier, instance: DiscoveredInstance, service: Service, directory: Path
) -> ServiceInstance | None:
    """Return the instance to ask, or ``None`` if a program is missing."""
    programs = {
        key: next((found for word in words if (found := shutil.which(word))), "")
        for key, words in service.programs.items()
    }
    if not all(programs.values()):
        return None
    config = tier.adopted_configs[f"corpus.h1.{service.name}"]
    placement = Placement(
        tier="corpus", host="h1", role=instance.services[service.name].role,
        directory="/run/corpus", listen=Endpoint("127.0.0.1", instance.port),
        installed=True, programs=programs, adopted=config,
    )  # fmt: skip
    return ServiceInstance(service, placement)


def find_upstream(socket: str) -> str:
    """Return how nginx names the socket of a pool."""
    if socket.startswith("/"):
        return f"unix:{socket}"
    return socket if ":" in socket else f"127.0.0.1:{socket}"


def find_service(tier: AdoptedTier, name: str) -> Service | None:
    model = Tier(hosts=("h1",), service=(tier.discovered_tier.deployment,), runtime=DEFAULT_RUNTIME)
    services = (location.service for location in SHIPPED.list_tier_services("corpus", model))
    return next((service for service in services if service.name == name), None)


def resolve_names(text: str) -> bytes:
    """Return a hosts file with every name that the text may forward to."""
    names = {*re.findall(r"[A-Za-z][\w.-]*", text)}
    lines = [f"127.0.0.1 {name}" for name in sorted(names) if len(name) < 60]
    return "\n".join(["127.0.0.1 localhost", *lines, ""]).encode()


def change_values(tier: AdoptedTier, name: str) -> dict[str, tuple[Value, ...]]:
    """Return other values of each parameter that is tuned, by bare name."""
    changed: dict[str, tuple[Value, ...]] = {}
    for dimension in tier.dimensions:
        key = dimension.name.partition(".")[2]
        if dimension.parameter.built_in:
            continue  # the programs support some choices only, which `prepare` asks them about
        if key.startswith(f"{name}.") and key in tier.baseline_values and key not in tier.skipped:
            baseline = tier.baseline_values[key]
            own = dimension.widen_to_include(baseline)
            alternatives = list_alternatives(replace(own, baseline=baseline))
            changed.update({key.partition(".")[2]: alternatives} if alternatives else {})
    return changed


def adopt_file(results: Results, name: str, path: Path, directory: Path) -> None:
    """Adopt one file, and compare its values and edits with what the software reads."""
    place, text = PLACES[name], decode(path.read_bytes())
    label = f"{name}/{path.name}"
    files = {**read_machine_files(place), place.path: text, **place.files}
    socket = re.search(r"(?m)^\s*listen\s*=\s*([^\s;]+)", files.get(POOL, ""))
    files = {key: own.replace("SOCKET", find_upstream(socket[1] if socket else "9000"))
             for key, own in files.items()}  # fmt: skip
    sockets = ("3000", "8000", "9292", *re.findall(r"\d{2,5}|/[\w./-]+\.sock", text))
    discovered = replace(
        host("h1", "10.0.0.9", files, place.unit, *place.other_units, links=list_links(place)),
        facts=FACTS, processors=FACTS.cpus, backlogs=dict.fromkeys(sockets, 1024),
    )  # fmt: skip
    instances, notes = find_instances(discovered)
    own = [each for each in instances if name in each.services]
    if not own:
        results.count(name, "refused with reason" if notes else "found nothing")
        print(f"{label}: {'; '.join(notes) or 'nothing'}")
        return
    tier = adopt_tier(DiscoveredTier("corpus", (own[0],)))
    check_templates(tier)
    values = {key.partition(".")[2]: value for key, value in tier.baseline_values.items()
              if key.startswith(f"{name}.")}  # fmt: skip
    results.count(name, "adopted")
    results.count(name, "left with reason", sum(k.startswith(f"{name}.") for k in tier.skipped))
    service = find_service(tier, name)
    instance = build_instance(tier, own[0], service, directory) if service else None
    if service is None or instance is None or not list_queries(service, instance.placement):
        results.count(name, "values not compared", len(values))
        return
    others = {"/etc/hosts": resolve_names(text), place.path: encode(text)}
    reader = Reader(directory, tier, instance, others)
    read = reader.read({})
    if not read:
        results.count(name, "rejected by this machine's software")
        return
    compare(results, label, values, read)
    prove(results, label, reader, change_values(tier, name))


@dataclass(frozen=True)
class Reader:
    """Asks the software what the adopted files of an instance mean with some values changed."""

    directory: Path
    tier: AdoptedTier
    instance: ServiceInstance
    others: Mapping[str, bytes]

    def read(self, changes: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the values with these changes; nothing if the software rejects the files."""
        service, values = self.instance.service, dict[str, Value]()
        files = {**self.others, **render(self.tier, service.name, changes)}
        words = [str(len(files))]
        for number, (path, content) in enumerate(files.items()):
            staged = self.directory / str(number)
            staged.write_bytes(content)
            words += [str(staged), path]
        for readback in list_queries(service, self.instance.placement):
            argv = ["unshare", "--mount", "--net", "sh", "-c", APART, "sh", *words, *readback.argv]
            done = subprocess.run(
                argv, capture_output=True, text=True, errors="replace", check=False
            )
            values |= readback.parse(done.stdout + done.stderr) if done.returncode == 0 else {}
        return values


def list_queries(service: Service, placement: Placement) -> tuple[Readback, ...]:
    """Return the commands that print values, which start the program if nothing else does."""
    if service.name not in STARTED:
        return service.list_file_readbacks(placement)
    script, argv = STARTED[service.name]
    first = service.list_readbacks(placement)[0]
    return (Readback(("sh", "-c", script, "sh", "0", *argv), first.parse),)


def prove(
    results: Results, label: str, reader: Reader, changed: Mapping[str, tuple[Value, ...]]
) -> None:
    """Count the edits that take effect: all at once, then each other value alone."""
    service, pending = label.partition("/")[0], dict(changed)
    at_once = reader.read({key: values[0] for key, values in changed.items()})
    for attempt in range(-1, MAX_ALTERNATIVES):
        keys = [key for key in pending if len(changed[key]) > attempt]
        if attempt < 0:
            after = [at_once] * len(keys)
        else:
            after = [reader.read({key: changed[key][attempt]}) for key in keys]
        for key, read in zip(keys, after, strict=True):
            if read and key not in read:
                results.count(service, "edits not printed")
                del pending[key]
            elif key in read and is_same_value(changed[key][max(0, attempt)], read[key]):
                results.count(service, "edits right")
                del pending[key]
    for key in pending:
        results.count(service, "edits wrong")
        results.wrong.append(f"{label}: edits of {key} to {changed[key]} have no effect")


def render(tier: AdoptedTier, name: str, changed: Mapping[str, Value]) -> dict[str, bytes]:
    paths = {file.path for file in tier.adopted_configs[f"corpus.h1.{name}"].files}
    texts = rendered(tier, changed)
    return {path: encode(texts[f"h1{path}"]) for path in paths}


def compare(
    results: Results, label: str, values: Mapping[str, Value], read: Mapping[str, Value]
) -> None:
    service = label.partition("/")[0]
    for key, value in values.items():
        if key not in read:
            results.count(service, "values not printed")
        elif is_same_value(value, read[key]):
            results.count(service, "values right")
        else:
            results.count(service, "values wrong")
            results.wrong.append(f"{label}: {key} = {value}, but the software reads {read[key]}")


def list_corpus() -> Iterator[tuple[str, Path]]:
    for name in PLACES:
        yield from ((name, path) for path in sorted(Path(CORPUS, name).glob("*")))


@pytest.mark.skipif(not CORPUS, reason="AUTOTUNE_CORPUS names no directory of configurations")
@pytest.mark.timeout(7200)
def test_values_and_edits_are_those_of_the_software(tmp_path: Path) -> None:
    results = Results()
    for name, path in list_corpus():
        results.count(name, "files")
        try:
            adopt_file(results, name, path, tmp_path)
        except AutotuneError as error:
            results.count(name, "refused with reason")
            print(f"{name}/{path.name}: {error}")
        except Exception as error:  # noqa: BLE001  # every crash is counted
            results.count(name, "crashes")
            results.wrong.append(f"{name}/{path.name}: {error!r}")
    for service, counts in results.counts.items():
        print(f"{service}: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
    print("\n".join(results.wrong))
    assert sum(counts["files"] for counts in results.counts.values())
    assert results.wrong == []
