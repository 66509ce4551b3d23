"""The data set in the store: made where it lives, so that no pair crosses the network.

Keys are ``k`` and ten digits; values have 1 to 100 bytes, geometrically fewer the longer, as in
Wajahat, Masood, Sau, Gandhi (IGSC 2017, doi:10.1109/IGCC.2017.8323580). The store's own loader
writes a block of pairs at a time. A key of its own records what was loaded, so that loading again is
free. A cache that was restarted gets what it would hold after a long while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from autotune.deploy.stack import Part
from autotune.errors import AutotuneError
from autotune.services.base import Argv
from autotune.target.model import Data
from autotune.transports.base import Transport

BLOCK = 10_000
HOT = 100_000  # pairs that a cache is filled with at most
DRAWS = 20  # simulated requests for each of these, so that the cache is as in the long run
MEAN_BYTES = 25
LOADING_SECONDS = 600.0

Progress = Callable[[int, int], None]


def unheard(done: int, total: int) -> None:
    """Progress that is not reported."""


def load(part: Part, data: Data, transport: Transport, progress: Progress = unheard) -> bool:
    """Fill the store with ``data.pairs`` pairs; whether anything had to be written.

    ``progress`` hears of pairs written and pairs in all. Raises AutotuneError with the store's own
    words when it refuses.
    """
    loader = part.service.loader(part.site)
    if loader is None:
        raise AutotuneError(f"{part.site.tier}: there is no way to load data into {part.name}")
    ask = partial(_ask, part.site.tier, transport, loader.busy)
    mark = f"pairs={data.pairs} mean={MEAN_BYTES}"
    if ask(loader.recorded) == mark:
        return False
    for first in range(0, data.pairs, BLOCK):
        count = min(BLOCK, data.pairs - first)
        ask(loader.write(first, count, MEAN_BYTES))
        progress(first + count, data.pairs)
    for command in loader.record(mark):
        ask(command)
    return True


def recent(data: Data) -> list[str]:
    """The keys that a cache holds under this load, the most recently requested last: popular keys come
    late, as in a cache that evicts the least recently used."""
    import numpy as np

    asked = np.random.default_rng(0).random(DRAWS * min(data.pairs, HOT))
    ranks = np.minimum(data.pairs * asked ** (1 / (1 - data.skew)), data.pairs - 1).astype(np.int64)
    keys, since = np.unique(ranks[::-1], return_index=True)
    return [f"k{rank:010d}" for rank in keys[np.argsort(-since)][-HOT:].tolist()]


def pairs(part: Part, data: Data, transport: Transport) -> dict[str, str]:
    """The pairs to fill caches with, values read from the store ``part``; none where it has no
    loader."""
    loader = part.service.loader(part.site)
    if loader is None:
        return {}
    keys, values = recent(data), list[str]()
    for first in range(0, len(keys), BLOCK):
        argv = loader.read(keys[first : first + BLOCK])
        values += _ask(part.site.tier, transport, loader.busy, argv).split("\n")
    return dict(zip(keys, values, strict=False))


def prefill(part: Part, pairs: Mapping[str, str], transport: Transport) -> bool:
    """Put pairs into the cache ``part``; whether it has them now. A warm-up does the rest."""
    filling = part.service.prefill(part.site, pairs)
    if filling is None:
        return False
    argv, lines = filling
    done = transport.run(argv, input=lines, timeout=60.0)
    return done.ok and bool(done.stdout.strip())


def _ask(tier: str, transport: Transport, busy: str, argv: Argv) -> str:
    deadline = time.monotonic() + LOADING_SECONDS
    done = transport.run(argv, timeout=120.0)
    while busy in done.error_text and time.monotonic() < deadline:
        time.sleep(0.02)  # a store that was restarted reads its dump first
        done = transport.run(argv, timeout=120.0)
    if not done.ok:
        raise AutotuneError(f"{tier}: the store refused its data: {done.error_text}")
    return done.stdout.strip()
