"""Parameters of PostgreSQL, its resource needs, and the syntax of its values."""

from __future__ import annotations

import re
from functools import partial

from autotune.services.base import (
    Parameter,
    ResourceNeeds,
    Value,
    on_reload,
    on_restart,
    with_guidance,
)
from autotune.services.directives import ON_OFF, Notation

MANUAL = "PostgreSQL 15 documentation, Server Configuration"
# PGTune's recommendations for a web application on SSDs (https://github.com/le0pard/pgtune)
PGTUNE = f"{MANUAL}; PGTune, type web"
RISK_WARNING = "tuned only on demand: a power failure can lose or damage committed data"
restart, reload = partial(on_restart, source=MANUAL), partial(on_reload, source=MANUAL)
build_risky_option = partial(on_reload, on_demand=True, source=f"{MANUAL}; {RISK_WARNING}")
advised, advised_restart = partial(on_reload, source=PGTUNE), partial(on_restart, source=PGTUNE)

PARAMETERS = with_guidance((
    advised_restart("shared_buffers", "Memory for table pages, which all processes share.",
        low=16, high="memory / 2 / 1048576", log=True, stock=128, unit="MB",
        recommended="memory / 4 / 1048576"),
    advised_restart("max_connections", "Maximum number of concurrent clients. Others are refused.",
        low=20, high=2000, log=True, stock=100, recommended=200),
    advised("work_mem", "Memory for one sort or hash in a query, above which it uses temporary files.",
        low=64, high="memory / 8 / 1024", log=True, stock=4096, unit="KB",
        recommended="memory * 3 / 4 / 1024 / (200 * 3) / min(4, max(1, cpus / 2))"),
    advised("maintenance_work_mem", "Memory for a VACUUM or CREATE INDEX.",
        low=16, high="memory / 8 / 1048576", log=True, stock=64, unit="MB",
        recommended="min(2048, memory / 16 / 1048576)"),
    # After a reload, sessions keep the plans of their prepared statements. Values that only affect plans
    # therefore need a restart, which closes all sessions.
    advised_restart("effective_cache_size",
        "The planner's estimate of the cached table data. It allocates no memory.",
        low=64, high="memory / 1048576", log=True, stock=4096, unit="MB",
        recommended="memory * 3 / 4 / 1048576"),
    advised_restart("wal_buffers",
        "Memory for WAL that is not yet written; -1 derives it from shared_buffers.",
        choices=(-1, 1, 4, 16, 64), stock=-1, unit="MB", recommended=16,
        # The upper limit is the size of a WAL segment, which only initdb can change.
        special_values={-1: "min(max(shared_buffers / 32, 64 KB), 16 MB)"}),
    advised("min_wal_size", "Size of WAL on disk that is kept for reuse.",
        low=32, high=16_384, log=True, stock=80, unit="MB", recommended=1024),
    advised("max_wal_size",
        "Maximum size of WAL between two checkpoints. A larger WAL triggers an early checkpoint.",
        low=64, high=65_536, log=True, stock=1024, unit="MB", recommended=4096),
    reload("checkpoint_timeout", "Maximum time between checkpoints. Recovery takes about as long.",
        low=30, high=3600, log=True, stock=300, unit="s"),
    advised("checkpoint_completion_target",
        "Fraction of the checkpoint interval over which its writes are spread.",
        low=0.3, high=0.95, stock=0.9, recommended=0.9),
    reload("wal_compression", "Compression of full pages in the WAL.",
        choices=("off", "on", "lz4", "zstd"), stock="off", built_in=True),
    advised_restart("random_page_cost",
        "Cost of a random page read relative to a sequential one; 1.1 for SSDs.",
        low=1.0, high=8.0, stock=4.0, recommended=1.1),
    advised("effective_io_concurrency", "Number of concurrent disk reads per session.",
        low=0, high=512, stock=1, recommended=200),
    advised_restart("max_worker_processes",
        "Maximum number of processes for parallel queries and extensions.",
        low=2, high="max(16, 4 * cpus)", stock=8, recommended="max(2, cpus)"),
    advised("max_parallel_workers", "Maximum number of worker processes for parallel queries.",
        low=0, high="max(16, 4 * cpus)", stock=8, recommended="max(2, cpus)"),
    advised_restart("max_parallel_workers_per_gather",
        "Maximum number of parallel workers per query; 0 disables them.",
        low=0, high="max(4, cpus)", stock=2, recommended="min(4, max(1, cpus / 2))"),
    restart("jit", "Compile expensive queries. Compilation delays short queries.", stock=True),
    # Autovacuum is never disabled, because without it, the server would eventually refuse writes.
    restart("autovacuum_max_workers", "Maximum number of tables that are vacuumed concurrently.",
        low=1, high=10, stock=3),
    reload("autovacuum_vacuum_scale_factor", "Share of dead rows at which a table is vacuumed.",
        low=0.01, high=0.4, log=True, stock=0.2),
    reload("autovacuum_vacuum_cost_limit", "Amount of work before a vacuum pauses; -1 means 200.",
        choices=(-1, 400, 1000, 2000), stock=-1, special_values={-1: "200"}),
    build_risky_option("synchronous_commit", "Wait at each commit until it is on disk.",
        choices=("on", "local", "off"), stock="on"),
    build_risky_option("full_page_writes",
        "Write full pages to the WAL after a checkpoint.", stock=True),
    build_risky_option("fsync", "Wait until writes reach the disk.", stock=True),
),
    capacity="shared_buffers+ max_connections work_mem+ effective_cache_size+ max_wal_size+"
    " checkpoint_timeout+ random_page_cost- effective_io_concurrency+ jit"
    " max_parallel_workers_per_gather wal_buffers+",
    small="maintenance_work_mem+ min_wal_size+ wal_compression checkpoint_completion_target+"
    " max_worker_processes max_parallel_workers autovacuum_vacuum_cost_limit+"
    " autovacuum_vacuum_scale_factor- synchronous_commit full_page_writes fsync",
    safe={"max_connections": (20, 500), "work_mem": (1024, 65_536), "checkpoint_timeout": (120, 1800),
          "max_wal_size": (512, 16_384), "random_page_cost": (1.0, 4.0)},
)  # fmt: skip

RESOURCE_NEEDS = ResourceNeeds(
    # A query may sort more than once, but few clients sort at the same time, so work_mem counts
    # once per client. The server process of each client has 3 MB of private memory.
    memory="shared_buffers + wal_buffers + max_connections * (work_mem + 3 MB)"
    " + autovacuum_max_workers * maintenance_work_mem + 32 MB",
    source=f"{MANUAL}, Resource Consumption; Private_Dirty of a PostgreSQL 15 process",
    connections="max_connections - 3",  # three connections are reserved for superusers
)

# A number that starts with 0 and another digit is octal, and does not match.
_AMOUNT_PATTERN = re.compile(
    r"(-?(?!0[0-9])(?:[0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:[eE][+-]?[0-9])?)\s*([A-Za-z]*)"
)
# Names of units in PostgreSQL, except for KB, which is autotune's name.
UNIT_FACTORS = {
    "": 1,
    "B": 1,
    "kB": 2**10,
    "KB": 2**10,
    "8kB": 2**13,
    "MB": 2**20,
    "GB": 2**30,
    "TB": 2**40,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "min": 60,
    "h": 3600,
    "d": 86_400,
}
# Parameters for which the unit of a bare number differs from the parameter's unit.
_DEFAULT_UNITS = {
    "shared_buffers": "8kB",
    "effective_cache_size": "8kB",
    "wal_buffers": "8kB",
    "maintenance_work_mem": "kB",
}
_BOOLEAN_WORDS = {"on": True, "true": True, "yes": True, "1": True,
             "off": False, "false": False, "no": False, "0": False}  # fmt: skip
_ENUM_ALIASES = {word: "on" if on else "off" for word, on in _BOOLEAN_WORDS.items()} | {
    "pglz": "on"
}


def unquote(quoted_value: str) -> str:
    """Return a value without its quotes."""
    if not quoted_value.startswith("'"):
        return quoted_value
    return re.sub(r"''|\\(.)", lambda match: match[1] or "'", quoted_value[1:-1])


def parse_value(parameter: Parameter, written_text: str, default_unit: str) -> Value | None:
    """Return the value of ``written_text``; a number is converted to the parameter's unit. Return
    ``None`` for an invalid value, or for a fraction of a unit. ``default_unit`` applies to bare
    numbers.
    """
    written_text = unquote(written_text).strip()
    if isinstance(parameter.stock, bool):  # an unambiguous prefix, such as `t`, is valid
        boolean_values = {
            is_on for word, is_on in _BOOLEAN_WORDS.items() if word.startswith(written_text.lower())
        }
        return boolean_values.pop() if len(boolean_values) == 1 else None
    if isinstance(parameter.stock, str):
        return _ENUM_ALIASES.get(written_text.lower(), written_text.lower())
    amount_match = _AMOUNT_PATTERN.fullmatch(written_text)
    if amount_match is None or amount_match[2] not in UNIT_FACTORS:
        return None
    if written_text == "-1":
        return -1
    number = (
        float(amount_match[1])
        * UNIT_FACTORS[amount_match[2] or default_unit]
        / UNIT_FACTORS[parameter.unit]
    )
    if isinstance(parameter.stock, float):
        return number
    return round(number) if abs(number - round(number)) < 1e-9 else None


def get_bare_unit(parameter: Parameter) -> str:
    """Return the unit that PostgreSQL assumes for a parameter's number without a unit."""
    return _DEFAULT_UNITS.get(parameter.name, parameter.unit)


def build_unit_notation(parameter: Parameter) -> Notation:
    """Return the notation for a parameter's values in files."""
    unit = {"KB": "kB"}.get(parameter.unit, parameter.unit)
    bare_unit = get_bare_unit(parameter)

    def format_amount(variable: str) -> str:
        return f'({variable} ~ "{unit}" if {variable} > 0 else {variable})' if unit else variable

    write_value = ON_OFF.build_expression if isinstance(parameter.stock, bool) else format_amount
    return Notation(lambda text: parse_value(parameter, text, bare_unit), write_value)
