"""Keys are distributed among caches as PHP's memcached client distributes them."""

from __future__ import annotations

import subprocess

import pytest

from autotune.deploy.ketama import build_ring
from autotune.services.base import Endpoint

SERVERS = (
    Endpoint("198.18.40.14", 11211),
    Endpoint("198.18.40.15", 11211),
    Endpoint("198.18.40.16", 11212),
)
KEYS = [f"k{rank:010d}" for rank in range(2000)]
# The servers of the first keys, as printed by `getServerByKey` of PHP's memcached extension 3.2.0.
FIRST_SERVERS = [2, 1, 1, 2, 1, 0, 2, 2]
SCRIPT = """
$client = new Memcached();
$client->setOption(Memcached::OPT_LIBKETAMA_COMPATIBLE, true);
foreach (array_slice($argv, 1) as $server) $client->addServer(...explode(' ', $server));
while ($key = trim(fgets(STDIN))) {
    $server = $client->getServerByKey($key);
    echo $server['host'], ':', $server['port'], "\\n";
}
"""


def test_keys_belong_to_the_servers_of_the_client() -> None:
    ring = build_ring(SERVERS)
    assert [ring.find_server(key) for key in KEYS[: len(FIRST_SERVERS)]] == FIRST_SERVERS


def test_a_single_server_stores_all_keys() -> None:
    ring = build_ring(SERVERS[:1])
    assert {ring.find_server(key) for key in KEYS} == {0}


@pytest.mark.stack
@pytest.mark.parametrize("count", [2, 3])
def test_the_installed_client_chooses_the_same_servers(count: int) -> None:
    words = [f"{server.host} {server.port}" for server in SERVERS[:count]]
    answer = subprocess.run(
        ["php", "-r", SCRIPT, *words],
        input="\n".join(KEYS), capture_output=True, text=True, check=True,
    )  # fmt: skip
    ring = build_ring(SERVERS[:count])
    expected = [str(SERVERS[ring.find_server(key)]) for key in KEYS]
    assert answer.stdout.splitlines() == expected
