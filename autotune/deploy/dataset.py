"""Fill a store with its data set. Key-value pairs are generated on the store's host, so they do not
cross the network.

A key is ``k`` followed by ten digits. A value has 1 to 100 bytes. The frequency of values decreases
geometrically with their length, as in Wajahat, Masood, Sau, Gandhi (IGSC 2017,
doi:10.1109/IGCC.2017.8323580). A separate key records the loaded data set, so that no data set is loaded
twice. A restarted cache is filled with the pairs that it would contain after a long run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from autotune.deploy.ketama import build_ring
from autotune.deploy.stack import ServiceInstance
from autotune.errors import AutotuneError
from autotune.services.base import Argv, Endpoint
from autotune.target.model import Data
from autotune.transports.base import Transport

BLOCK_PAIRS = 10_000
MAX_CACHED_PAIRS = 100_000  # maximum number of pairs that autotune writes into a cache
DRAWS_PER_PAIR = 20  # number of simulated requests per pair, enough to approximate a long run
MEAN_VALUE_BYTES = 25
BUSY_TIMEOUT_SECONDS = 600.0

ProgressCallback = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """Discard progress updates. This function is the default callback."""


def load_dataset(
    instance: ServiceInstance,
    data_set: Data,
    transport: Transport,
    progress: ProgressCallback = ignore_progress,
) -> bool:
    """Fill the store with ``data_set.pairs`` key-value pairs. Return true if pairs were written.

    ``progress(written, total)`` receives numbers of pairs. Raises AutotuneError with the store's
    message if the store refuses the pairs.
    """
    loader = instance.service.build_loader(instance.placement)
    if loader is None:
        raise AutotuneError(f"tier {instance.placement.tier}: no loader exists for {instance.name}")
    run_store = partial(_run_store_command, instance.placement.tier, transport, loader.busy_text)
    dataset_mark = f"pairs={data_set.pairs} mean={MEAN_VALUE_BYTES}"
    if run_store(loader.read_mark_command) == dataset_mark:
        return False
    for first_index in range(0, data_set.pairs, BLOCK_PAIRS):
        pair_count = min(BLOCK_PAIRS, data_set.pairs - first_index)
        run_store(loader.build_write_command(first_index, pair_count, MEAN_VALUE_BYTES))
        progress(first_index + pair_count, data_set.pairs)
    for command in loader.build_mark_commands(dataset_mark):
        run_store(command)
    return True


def list_cached_keys(data_set: Data) -> list[str]:
    """Return the keys that a cache contains after a long run, with the most recently requested key
    last.
    """
    import numpy as np

    draws = np.random.default_rng(0).random(DRAWS_PER_PAIR * min(data_set.pairs, MAX_CACHED_PAIRS))
    ranks = np.minimum(
        data_set.pairs * draws ** (1 / (1 - data_set.skew)), data_set.pairs - 1
    ).astype(np.int64)
    keys, draws_since_request = np.unique(ranks[::-1], return_index=True)
    return [
        f"k{rank:010d}"
        for rank in keys[np.argsort(-draws_since_request)][-MAX_CACHED_PAIRS:].tolist()
    ]


def read_pairs_for_caches(
    instance: ServiceInstance, data_set: Data, transport: Transport
) -> dict[str, str]:
    """Return the key-value pairs to write into caches, with values from the store. The result is
    empty if the store has no loader.
    """
    loader = instance.service.build_loader(instance.placement)
    if loader is None:
        return {}
    keys, values = list_cached_keys(data_set), list[str]()
    for first_index in range(0, len(keys), BLOCK_PAIRS):
        argv = loader.build_read_command(keys[first_index : first_index + BLOCK_PAIRS])
        values += _run_store_command(
            instance.placement.tier, transport, loader.busy_text, argv
        ).split("\n")
    return dict(zip(keys, values, strict=False))


def split_pairs(
    pairs: Mapping[str, str], caches: Sequence[Endpoint]
) -> dict[Endpoint, dict[str, str]]:
    """Return the pairs that the reference site stores in each cache, in the order of ``pairs``."""
    ring = build_ring(caches)
    pairs_by_cache = {cache: dict[str, str]() for cache in caches}
    for key, value in pairs.items():
        pairs_by_cache[caches[ring.find_server(key)]][key] = value
    return pairs_by_cache


def prefill_cache(
    instance: ServiceInstance, pairs: Mapping[str, str], transport: Transport
) -> bool:
    """Write pairs into a cache. Return false if the warm-up must fill the cache instead."""
    prefill_command = instance.service.build_prefill_command(instance.placement, pairs)
    if prefill_command is None:
        return False
    argv, lines = prefill_command
    command_result = transport.run(argv, input=lines, timeout=60.0)
    return command_result.ok and bool(command_result.stdout.strip())


def _run_store_command(tier: str, transport: Transport, busy_text: str, argv: Argv) -> str:
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    command_result = transport.run(argv, timeout=120.0)
    while busy_text in command_result.error_text and time.monotonic() < deadline:
        time.sleep(0.02)  # a restarted store reads its dump before it accepts commands
        command_result = transport.run(argv, timeout=120.0)
    if not command_result.ok:
        raise AutotuneError(
            f"the store in tier {tier} refused the data: {command_result.error_text}"
        )
    return command_result.stdout.strip()
