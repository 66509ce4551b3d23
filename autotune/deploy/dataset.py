"""The data set in the store: made where it lives, so that no pair crosses the network.

Keys are ``k`` and ten digits; values have 1 to 100 bytes, geometrically fewer the longer
(REFERENCE.md A). A script inside the store writes a block of pairs at a time: memory stays constant
however many there are. A key of its own records what was loaded, so that loading again is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.errors import AutotuneError
from autotune.services.base import Site
from autotune.target.model import Data
from autotune.transports.base import Transport

BLOCK = 10_000
MEAN_BYTES = 25
MARK = "autotune:data-set"
LOADING_SECONDS = 600.0

# Deterministic: a block's random numbers are seeded by its first key.
_WRITE_BLOCK = """
math.randomseed(tonumber(ARGV[1]) + 1)
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local shrink = math.log(1 - 1 / tonumber(ARGV[3]))
local filler = string.rep('abcdefghijklmnopqrstuvwxyz', 4)
for i = first, first + count - 1 do
  local length = math.min(100, 1 + math.floor(math.log(1 - math.random()) / shrink))
  redis.call('SET', string.format('k%010d', i), string.sub(filler, 1, length))
end
return count
"""

Progress = Callable[[int, int], None]


def unheard(done: int, total: int) -> None:
    """Progress that nobody follows."""


def load(site: Site, data: Data, transport: Transport, progress: Progress = unheard) -> bool:
    """Fill the store with ``data.pairs`` pairs; whether anything had to be written.

    ``progress`` hears of pairs written and pairs in all. Raises AutotuneError with the store's own
    words when it refuses.
    """
    mark = f"pairs={data.pairs} mean={MEAN_BYTES}"
    if _ask(site, transport, "GET", MARK) == mark:
        return False
    for first in range(0, data.pairs, BLOCK):
        count = min(BLOCK, data.pairs - first)
        _ask(site, transport, "EVAL", _WRITE_BLOCK, "0", str(first), str(count), str(MEAN_BYTES))
        progress(first + count, data.pairs)
    _ask(site, transport, "SET", MARK, mark)
    _ask(site, transport, "SAVE")
    return True


def _ask(site: Site, transport: Transport, *command: str) -> str:
    argv = (site.programs["redis-cli"], "-e", "-h", site.listen.host,
            "-p", str(site.listen.port), *command)  # fmt: skip
    deadline = time.monotonic() + LOADING_SECONDS
    done = transport.run(argv, timeout=120.0)
    while "LOADING" in done.said and time.monotonic() < deadline:
        time.sleep(0.02)  # a store that was restarted reads its dump first
        done = transport.run(argv, timeout=120.0)
    if not done.ok:
        raise AutotuneError(f"{site.tier}: the store answered {command[0]} with: {done.said}")
    return done.stdout.strip()
