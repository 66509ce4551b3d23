"""Whatever is parsed is accepted, or refused in a sentence: never a traceback, a hang, a wrong value.

``AUTOTUNE_SEED=7 make test-soak`` tries other inputs; ``AUTOTUNE_INPUTS`` says how many in all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import soak
from tests.discovery import places
from tests.fuzz import grammar, mutate
from tests.fuzz.campaign import PATIENCE, Result, alarm, run
from tests.fuzz.entries import _adopted, entries

INPUTS = int(os.environ.get("AUTOTUNE_INPUTS", "420000"))
FEW = 4000
LONG = 65_536
REPEATED = (
    "${", "{", "}", '"', "'", "\\", "(", ")", "[", "<", "#", 'a="', "a='x\n", "{{", "{%", "\r", "<If ",
    "=\\\n", "%{", ";", "a ", "a\n", "\n", " ", ":", "-", "/*", "//", "a.", "1", "1+", "$", "&a ", "*a ",
    "- ", "a: ", "\t", "%", ",",
)  # fmt: skip


# The mutator of structure for each of those that damage letters and values.
STRUCTURE = {mutate.text: grammar.text, mutate.document: grammar.document,
             mutate.lines: grammar.lines}  # fmt: skip


def campaign(
    directory: Path, inputs: int, seed: int, *, structure: bool = False
) -> Iterator[Result]:
    every = entries(directory)
    share = inputs / sum(entry.weight for entry in every)
    for entry in every:
        mutation = STRUCTURE[entry.mutation] if structure else entry.mutation
        yield run(replace(entry, mutation=mutation), seed, max(1, round(share * entry.weight)))


def faults(results: list[Result]) -> list[str]:
    return [f"{result.name}: {place}: {example}"
            for result in results for place, example in result.faults.items()]  # fmt: skip


@pytest.mark.long
def test_no_parser_stumbles(tmp_path: Path) -> None:
    assert not faults(list(campaign(tmp_path, FEW, 1)))


@pytest.mark.long
def test_no_parser_stumbles_over_structure(tmp_path: Path) -> None:
    assert not faults(list(campaign(tmp_path, FEW, 1, structure=True)))


@pytest.mark.parametrize(
    ("name", "given", "instead"),
    [
        ("stream of samples", "MemTotal:", "MemTotal: 246824905547279149 kB\nWas:"),
        ("adopting php-fpm", "pm = dynamic", "pm = dynami=c"),
        ("adopting balancer", "upstream site {", "upstream {"),
        ("adopting balancer", "keepalive 16;", "keepalive 0;"),
        ("adopting variables", 'NODE_OPTIONS="', f'NODE_OPTIONS="{LONG // 2 * "a "}'),
        ("clock", "1700000000000000000", "1700000000000000000\x1c"),
        ("nodejs's answers", "NODE_OPTIONS=", f"NODE_OPTIONS={LONG * ' a'}"),
        ("httperf", "Errors: ", f"Errors: {LONG * 'a'}"),
        ("whole answers", "0.012>", "0.0٣>"),
        ("adopting haproxy", "stats socket ", "stats socket\n"),
        ("adopting balancer", "events {", 3 * f"{places.LB}include *;\n" + "events {"),
        ("host facts", "memory ", "memory 18446744073709551\nwas "),
        ("sweep files", "target: ", f"target: {LONG * 'a'}"),
        ("masking puma", "threads ", LONG // 2 * "a\n" + "threads "),
        ("adopting memcached", "-d\n", '-p ""\n'),
        ("adopting redis", "port 6379", "port ''"),
        ("adopting uwsgi", "http-socket = ", f"http-socket = unix:/{LONG * '['}"),
    ],
)
def test_what_stumbled_once(tmp_path: Path, name: str, given: str, instead: str) -> None:
    (entry,) = (entry for entry in entries(tmp_path) if entry.name == name)
    seeds = [seed for seed in entry.seeds if given in seed]
    assert seeds
    for seed in seeds:
        text = seed.replace(given, instead)
        assert not faults([run(replace(entry, mutation=lambda *_, text=text: text), 1, 1)])


PORTS = " ".join(f"a:{number}" for number in range(5000))
NAMES = "".join(f"a{number}\n" for number in range(5000))
APACHE = "LoadModule mpm_event_module a.so\nLoadModule proxy_module b.so\nListen 80\n"
HAPROXY = "defaults\n mode http\nfrontend a\n bind :80\n default_backend b\n"
UNITS = "/etc/systemd/system"


@pytest.mark.parametrize(
    ("unit", "files"),
    [
        ("apache2.service", {"/etc/apache2/apache2.conf":
            APACHE + f"<VirtualHost {PORTS}>\n" + 8000 * "a b\n" + "</VirtualHost>\n"}),
        ("apache2.service", {"/etc/apache2/apache2.conf":
            APACHE + f"<Macro m>\n{NAMES}</Macro>\n" + 5000 * "Use m\n"}),
        ("haproxy.service", {"/etc/haproxy/haproxy.cfg":
            HAPROXY + 3000 * " acl a x\n" + 1200 * " redirect scheme https if a\n"}),
        ("nginx.service", {"/etc/nginx/nginx.conf": "events {}\nhttp { server { location / { "
            f"{3500 * 'set $a b;'} {2200 * 'proxy_pass $a;'} }} }} }}\n"}),
        ("postgresql.service", {"/var/lib/pgsql/data/postgresql.conf": "port = 5432\n",
            f"{UNITS}/postgresql.service":
                f"[Service]\nExecStart=/usr/bin/postgres {LONG // 3 * '--a'}\n"}),
        ("a.service", {"/etc/a.env": LONG // 4 * "a=b\n", f"{UNITS}/a.service":
            "[Service]\nExecStart=/usr/bin/node a.js\nEnvironment=PORT=3000\n"
            + 2000 * "EnvironmentFile=/etc/a.env\n"}),
    ],
)  # fmt: skip
def test_what_took_long_once(unit: str, files: dict[str, str]) -> None:
    with alarm(PATIENCE):
        _adopted(places.host("h1", "10.0.0.9", files, unit))


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_parser_is_slow_at_what_is_repeated(tmp_path: Path) -> None:
    """64 kB of one thing, alone and behind half of what is right: none takes more than 5 s of CPU."""
    results = []
    for entry in entries(tmp_path):
        begin = entry.seeds[0][: len(entry.seeds[0]) // 2]
        given = iter(
            [before + piece * (LONG // len(piece)) for piece in REPEATED for before in ("", begin)]
        )
        repeating = replace(entry, mutation=lambda *_, given=given: next(given))
        results.append(run(repeating, soak.SEED, 2 * len(REPEATED)))
    assert not faults(results)


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("structure", [False, True], ids=["letters", "structure"])
def test_no_parser_stumbles_over_many(
    structure: bool,  # a parameter of the test
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = []
    for result in campaign(tmp_path, INPUTS, soak.SEED, structure=structure):
        results.append(result)
        with capsys.disabled():
            print(f"\n{result}", end="")
    with capsys.disabled():
        print(f"\n{sum(result.tried for result in results)} inputs")
    assert not faults(results)
