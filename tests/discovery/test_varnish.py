"""A host's own Varnish adopted: the options of its unit, a drop-in that comes, and what is behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances
from autotune.services.base import Value
from autotune.space.facts import HostFacts
from tests.discovery.places import host, web
from tests.discovery.test_tier_adoption import adopted, given_back, rendered

UNIT = "/usr/lib/systemd/system/varnish.service"
ADMIN = "/etc/systemd/system/varnish.service.d/options.conf"
OURS = "/etc/systemd/system/varnish.service.d/zz-autotune.conf"
# As Debian 12 and Fedora have them.
DEBIAN = """\
[Unit]
Description=Varnish Cache, a high-performance HTTP accelerator

[Service]
Type=simple
LimitNOFILE=131072
# ExecStart=/usr/sbin/varnishd -s malloc,1m
ExecStart=/usr/sbin/varnishd \\
          -j unix,user=vcache \\
          -F \\
          -a :6081 \\
          -T localhost:6082 \\
          -f /etc/varnish/default.vcl \\
          -S /etc/varnish/secret \\
          -s malloc,256m
ExecReload=/usr/share/varnish/varnishreload
"""
FEDORA = """\
[Service]
Type=forking
ExecStart=/usr/sbin/varnishd -a http=:8080 -a localhost:8443,PROXY -p feature=+http2 \
-f /etc/varnish/default.vcl -s malloc,2G -P %t/%N/varnishd.pid
"""
EDITED = """\
[Service]
ExecStart=
ExecStart=/usr/sbin/varnishd -F -n shop -a 10.0.0.8:80 -f default.vcl \\
  # as measured in May
  -pthread_pool_max=800 -p "thread_pool_min=200" -s Transient=malloc,64m -s pages=malloc,1G
"""
VCL = """\
vcl 4.1;
# backend old { .host = "10.9.9.9"; }
include "web.vcl";
"""
BACKENDS = """\
backend default {
    .host = "10.0.0.1";  // the first
    .probe = { .url = "/"; }
}
backend other { .host = "10.0.0.2"; .port = "8080"; }
sub vcl_recv { set req.backend_hint = default; }
"""


def cache(unit: str = DEBIAN, **files: str) -> DiscoveredHost:
    there = {UNIT: unit, "/etc/varnish/default.vcl": VCL, "/etc/varnish/web.vcl": BACKENDS, **files}
    return replace(host("vc1", "10.0.0.8", there, "varnish.service"),
                   facts=HostFacts(2, 4 * 2**30, 524_288))  # fmt: skip


def values(there: DiscoveredHost) -> dict[str, Value]:
    return {name.removeprefix("varnish."): value
            for name, value in adopted(there)["http_cache"].baseline_values.items()}  # fmt: skip


def test_the_unit_of_the_package_stays_and_a_drop_in_comes() -> None:
    there = cache()
    tiers = adopted(there, web())
    tier = tiers["http_cache"]
    given_back(tier, replace(there, tree=replace(there.tree, files={OURS: b""})))
    assert (tier.discovered_tier.port, tier.discovered_tier.forwards_to) == (6081, "web")
    (file,) = tier.adopted_configs["http_cache.vc1.varnish"].files
    assert (file.path, file.optional) == (OURS, True)
    assert values(there)["storage"] == 256
    assert {*tier.skipped} == {"limits.nofile"}
    (text,) = rendered(tier, {"storage": 512, "thread_pool_max": 900, "gzip_level": 1}).values()
    command = DEBIAN[DEBIAN.index("/usr/sbin/varnishd \\") : DEBIAN.index("\nExecReload")]
    command = command.replace("256m", "512M") + " -p thread_pool_max=900 -p gzip_level=1"
    assert text == f"[Service]\nExecStart=\nExecStart={command}\n"


def test_an_admin_s_drop_in_is_edited_in_place() -> None:
    there = cache(**{ADMIN: EDITED})
    tier = adopted(there)["http_cache"]
    given_back(tier, there)
    assert tier.adopted_configs["http_cache.vc1.varnish"].listen == "shop"
    assert {key: values(there)[key] for key in ("storage", "thread_pool_min", "thread_pool_max")} == {
        "storage": 1024, "thread_pool_min": 200, "thread_pool_max": 800,
    }  # fmt: skip
    (text,) = rendered(tier, {"storage": 64, "thread_pool_max": 1500, "gzip_level": 3}).values()
    assert text == EDITED.replace("=800", "=1500").replace(
        "=malloc,1G", "=malloc,64M -p gzip_level=3"
    )


def test_another_distribution_s_unit() -> None:
    (running,), notes = find_instances(cache(FEDORA))
    assert (running.port, running.backends) == (8080, ("10.0.0.1:80", "10.0.0.2:8080"))
    assert values(cache(FEDORA))["storage"] == 2048
    assert notes == ()


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (
            DEBIAN.replace("-s malloc", "$OPTIONS -s malloc"),
            "does not list its options on its command line",
        ),
        ("[Service]\nType=simple\n", "does not list its options on its command line"),
        (DEBIAN.replace(":6081", "/run/varnish.sock"), "does not listen on a TCP port"),
    ],
)
def test_what_is_not_tuned_is_told(unit: str, why: str) -> None:
    running, notes = find_instances(cache(unit))
    assert running == ()
    assert [note for note in notes if why in note]


@pytest.mark.parametrize("storage", ["-s file,/var/cache/v,1G", "-s a=malloc,1m -s b=malloc,2m"])
def test_other_storage_is_left(storage: str) -> None:
    tier = adopted(cache(DEBIAN.replace("-s malloc,256m", storage)))["http_cache"]
    assert "varnish.storage" in tier.skipped


def test_without_storage_it_has_its_own() -> None:
    there = cache(DEBIAN.replace(" \\\n          -s malloc,256m", ""))
    assert values(there)["storage"] == 100
    (text,) = rendered(adopted(there)["http_cache"], {"storage": 50}).values()
    assert text.endswith(" -s malloc,50M\n")
