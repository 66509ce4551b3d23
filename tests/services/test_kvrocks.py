from __future__ import annotations

from typing import Any

import pytest

from autotune.deploy import programs
from autotune.deploy.desired_state import render_files
from autotune.errors import AutotuneError
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.kvrocks.service import PARAMETERS_BY_OPTION, Kvrocks
from autotune.target.model import Data

SITE = Placement(
    tier="store",
    host="db1",
    role=Role.STORE,
    directory="/run/store.db1",
    listen=Endpoint("198.18.0.5", 6666),
    programs={"kvrocks": "/usr/bin/kvrocks", "redis-cli": "/usr/bin/redis-cli"},
    user="www-data",
    group="www-data",
)


def stock(**changed: Any) -> dict[str, Any]:
    numbers = {p.name: p.stock for p in Kvrocks().parameters}
    return {f"store.kvrocks.{name}": value for name, value in {**numbers, **changed}.items()}


def test_its_file_sets_every_parameter_once() -> None:
    (content,) = render_files(Kvrocks(), SITE, stock(compression="zstd"), Data()).values()
    lines = [line.split() for line in content.decode().splitlines() if not line.startswith("#")]
    keys = [line[0] for line in lines]
    assert len(set(keys)) == len(keys)
    assert set(PARAMETERS_BY_OPTION) <= set(keys)
    assert ["rocksdb.compression", "zstd"] in lines
    assert ["rocksdb.read_options.async_io", "yes"] in lines
    assert ["port", "6666"] in lines


def test_what_it_says_is_in_effect() -> None:
    readback, _ = Kvrocks().list_readbacks(SITE)
    said = "workers\n4\nrocksdb.compression\nlz4\nrocksdb.cache_index_and_filter_blocks\nno\nx\n1\n"
    assert readback.parse(said) == {
        "workers": 4,
        "compression": "lz4",
        "cache_index_and_filter_blocks": False,
    }


def test_a_trial_has_a_database_and_an_address_of_its_own() -> None:
    argv = Kvrocks().build_validation(SITE, {}).argv
    assert argv[:4] == ("setpriv", "--reuid=www-data", "--regid=www-data", "--init-groups")
    assert argv[argv.index("--dir") + 1] == "./trial"
    assert argv[argv.index("--bind") + 1] == "127.0.0.2"


def test_where_it_is_missing_it_is_said_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(programs, "SYSTEM_PATH", "/nowhere")
    with pytest.raises(AutotuneError) as caught:
        programs.find_local_programs([Kvrocks()])
    assert caught.value.message == "not installed: kvrocks, redis-cli"
    assert caught.value.hint == "packages are on kvrocks.apache.org; Debian has none"
