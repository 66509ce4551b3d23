"""Templates of the hosts' own files, and files that were changed after the templates were made."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.adopted_files import (
    build_record,
    list_changed_files,
    map_template_digests,
    parse_record,
)
from autotune.deploy.host_state import FileState, HostState
from autotune.deploy.runtime import RuntimeLayout
from autotune.services.base import AdoptedConfig, ConfigFile

CONF, SITE, NEW = "/etc/nginx/nginx.conf", "/etc/nginx/sites-available/default", "/etc/new.conf"
READ = b"worker_processes 2;\n"
DIGEST = hashlib.sha256(READ).hexdigest()
OWN = AdoptedConfig(
    (
        ConfigFile(CONF, "web1/nginx.conf.j2", 0o640, "text", digest=DIGEST),
        ConfigFile(SITE, "web1/default.j2", digest=DIGEST),
        ConfigFile(NEW, "web1/new.j2", text="text", optional=True),
        ConfigFile("/etc/user.conf", "web1/user.j2", optional=True),  # of a template directory
    )
)


def test_digests_are_in_the_record() -> None:
    configs = {"web.web1.nginx": OWN, "web.web1.limits": AdoptedConfig()}
    assert parse_record(json.loads(json.dumps(build_record(configs)))) == configs


def test_files_of_the_host_have_digests_and_new_files_empty_ones() -> None:
    instances = [
        SimpleNamespace(placement=SimpleNamespace(host=host, adopted=adopted))
        for host, adopted in (("web1", OWN), ("web2", OWN), ("lb1", None))
    ]
    desired: Any = SimpleNamespace(instances=instances, layout=RuntimeLayout())
    digests = map_template_digests(desired, lambda host, path: (host, path) != ("web2", SITE))
    assert digests == {
        "web1": {CONF: DIGEST, SITE: DIGEST, NEW: ""},
        "web2": {CONF: DIGEST, NEW: ""},
    }


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({CONF: READ}, []),
        ({CONF: READ + b"# by hand\n"}, [f"web1: {CONF}"]),
        ({}, [f"web1: {CONF}"]),
        ({CONF: READ, NEW: b"by hand\n"}, [f"web1: {NEW}"]),
    ],
    ids=["as read", "edited", "removed", "created"],
)
def test_changed_files_are_listed(files: dict[str, bytes], changed: list[str]) -> None:
    current = HostState({path: FileState(content) for path, content in files.items()})
    assert list_changed_files({"web1": {CONF: DIGEST, NEW: ""}}, {"web1": current}) == changed
