"""What a cache is filled with is what it would hold after a long while under the load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.deploy import dataset
from autotune.deploy.stack import ServiceInstance
from autotune.errors import AutotuneError
from autotune.services.base import Argv, Endpoint, Placement, Role, Service, StoreLoader
from autotune.target.model import Data
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport

KEYS = 1000
PAIRS = 2 * dataset.BLOCK_PAIRS + 5


class FileStore(Service):
    """A store whose pairs are in the files of its directory. It is busy while the file `busy` exists."""

    name = "file_store"
    role = Role.STORE

    def build_loader(self, placement: Placement) -> StoreLoader:
        def build_command(script: str, *words: object) -> Argv:
            waits = '[ ! -e busy ] || { rm busy; echo "LOADING" >&2; exit 1; }'
            script = f'cd "$0"; {waits}; {script}'
            return ("sh", "-c", script, placement.directory, *map(str, words))

        return StoreLoader(
            build_command("cat mark 2>/dev/null || :"),
            lambda *numbers: build_command('seq "$1" "$(($1 + $2 - 1))" >>keys', *numbers),
            lambda mark: (build_command('echo "$1" >mark', mark),),
            busy_text="LOADING",
            build_read_command=lambda keys: build_command('printf "of %s\\n" "$@"', *keys),
        )


class FileCache(Service):
    """A cache that stores its pairs in a file. It refuses pairs if the directory `keys` exists."""

    name = "file_cache"
    role = Role.CACHE

    def build_prefill_command(self, placement: Placement, pairs: Any) -> tuple[Argv, bytes] | None:
        lines = "".join(f"{key} {value}\n" for key, value in pairs.items())
        script = 'cat >"$0/keys" && echo stored'
        return ("sh", "-c", script, placement.directory), lines.encode()


class OnceTransport(LocalTransport):
    """A transport that refuses to repeat a command that succeeded."""

    def __init__(self) -> None:
        self.succeeded: list[Argv] = []

    def run(self, *arguments: Any, **options: Any) -> CommandResult:
        argv = arguments[0]
        assert argv not in self.succeeded
        command_result = super().run(*arguments, **options)
        if command_result.ok:
            self.succeeded.append(argv)
        return command_result


def place(service: Service, directory: Path) -> ServiceInstance:
    """Return an instance of the service on this machine, in a new directory."""
    (directory / service.name).mkdir()
    placement = Placement(
        tier=service.name, host="here", role=service.role, directory=str(directory / service.name),
        listen=Endpoint("127.0.0.1", 1),
    )  # fmt: skip
    return ServiceInstance(service, placement)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_store_is_filled_once(tmp_path: Path, is_busy: bool) -> None:
    store, steps = place(FileStore(), tmp_path), list[tuple[int, int]]()
    directory = tmp_path / "file_store"
    if is_busy:
        (directory / "busy").touch()
    data = Data(pairs=PAIRS)
    assert dataset.load_dataset(store, data, OnceTransport(), lambda *step: steps.append(step))
    keys = [int(line) for line in (directory / "keys").read_text().splitlines()]
    assert keys == list(range(PAIRS))
    assert steps == [(10_000, PAIRS), (20_000, PAIRS), (PAIRS, PAIRS)]
    assert not dataset.load_dataset(store, data, OnceTransport())
    assert len((directory / "keys").read_text().splitlines()) == PAIRS


def test_a_store_that_refuses_pairs_is_an_error_with_its_message(tmp_path: Path) -> None:
    store = place(FileStore(), tmp_path)
    (tmp_path / "file_store" / "keys").mkdir()
    with pytest.raises(AutotuneError, match=r"tier file_store refused the data: .*directory"):
        dataset.load_dataset(store, Data(pairs=PAIRS), OnceTransport())
    assert not (tmp_path / "file_store" / "mark").exists()


def test_software_without_a_loader_is_not_a_store(tmp_path: Path) -> None:
    cache = place(FileCache(), tmp_path)
    with pytest.raises(AutotuneError, match="no loader exists for file_cache"):
        dataset.load_dataset(cache, Data(pairs=PAIRS), OnceTransport())
    assert dataset.read_pairs_for_caches(cache, Data(pairs=PAIRS), OnceTransport()) == {}


def test_a_cache_gets_the_values_of_its_store(tmp_path: Path) -> None:
    data, transport = Data(pairs=PAIRS), OnceTransport()
    pairs = dataset.read_pairs_for_caches(place(FileStore(), tmp_path), data, transport)
    assert list(pairs) == dataset.list_cached_keys(data)
    assert all(value == f"of {key}" for key, value in pairs.items())
    cache = place(FileCache(), tmp_path)
    assert dataset.prefill_cache(cache, pairs, transport)
    assert len((tmp_path / "file_cache" / "keys").read_text().splitlines()) == len(pairs)


def test_each_cache_gets_only_the_pairs_that_the_site_stores_in_it() -> None:
    caches = [Endpoint("198.18.40.14", 11211), Endpoint("198.18.40.15", 11211)]
    pairs = {f"k{rank:010d}": str(rank) for rank in range(KEYS)}
    pairs_by_cache = dataset.split_pairs(pairs, caches)
    assert list(pairs_by_cache) == caches
    parts = list(pairs_by_cache.values())
    assert parts[0].keys().isdisjoint(parts[1])
    assert {**parts[0], **parts[1]} == pairs
    for part in parts:
        assert 0.3 * KEYS < len(part) < 0.7 * KEYS
        assert list(part) == sorted(part)  # the order of the pairs is kept
    assert dataset.split_pairs(pairs, caches[:1]) == {caches[0]: pairs}


def test_the_most_popular_keys_come_last() -> None:
    keys = dataset.list_cached_keys(Data(pairs=100_000))
    assert len(keys) == len(set(keys)) > 50_000
    ranks = [int(key.removeprefix("k")) for key in keys]
    assert max(ranks) < 100_000
    hottest = set(range(KEYS))
    last, first = (len(hottest.intersection(part)) for part in (ranks[-KEYS:], ranks[:KEYS]))
    assert last > KEYS / 4
    assert first == 0


@pytest.mark.long
def test_of_many_pairs_only_so_many_are_hot() -> None:
    keys = dataset.list_cached_keys(Data(pairs=10**9))
    assert len(keys) == dataset.MAX_CACHED_PAIRS
    assert keys == dataset.list_cached_keys(Data(pairs=10**9))
