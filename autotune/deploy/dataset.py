"""The data set in the store: made where it lives, so that no pair crosses the network.

Keys are ``k`` and ten digits; values have 1 to 100 bytes, geometrically fewer the longer, as in
Wajahat, Masood, Sau, Gandhi (IGSC 2017, doi:10.1109/IGCC.2017.8323580). The store's own loader
writes a block of pairs at a time. A key of its own
records what was loaded, so that loading again is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from autotune.deploy.stack import Part
from autotune.errors import AutotuneError
from autotune.services.base import Argv
from autotune.target.model import Data
from autotune.transports.base import Transport

BLOCK = 10_000
MEAN_BYTES = 25
LOADING_SECONDS = 600.0

Progress = Callable[[int, int], None]


def unheard(done: int, total: int) -> None:
    """Progress that nobody follows."""


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


def _ask(tier: str, transport: Transport, busy: str, argv: Argv) -> str:
    deadline = time.monotonic() + LOADING_SECONDS
    done = transport.run(argv, timeout=120.0)
    while busy in done.error_text and time.monotonic() < deadline:
        time.sleep(0.02)  # a store that was restarted reads its dump first
        done = transport.run(argv, timeout=120.0)
    if not done.ok:
        raise AutotuneError(f"{tier}: the store refused its data: {done.error_text}")
    return done.stdout.strip()
