"""Parameters of PHP, and their memory needs."""

from __future__ import annotations

from functools import partial

from autotune.services.base import Parameter, ResourceNeeds, on_reload, with_guidance

MANUAL = "php.net, OPcache Runtime Configuration"
SYMFONY_DOCS = "symfony.com, Performance"
NEXTCLOUD_DOCS = "docs.nextcloud.com, Server tuning"
STALE_WARNING = "tuned only on demand: changed files take effect late, or after a reload"
manual, symfony = partial(on_reload, source=MANUAL), partial(on_reload, source=SYMFONY_DOCS)
IF_ENABLED = (("opcache_enable", (True,)),)
# Parameters in MB whose values are written without a suffix.
MEGABYTE_PARAMETERS = ("opcache_memory_consumption", "opcache_interned_strings_buffer")
PRELOAD_PARAMETER = "opcache_preload"
IF_JIT = (*IF_ENABLED, ("opcache_jit", ("function", "tracing")))

PARAMETERS = with_guidance((
    manual("opcache_enable", "Keep compiled scripts in memory between requests.",
        stock=True, recommended=True),
    symfony("opcache_memory_consumption",
        "Shared memory for compiled scripts. When it is full, PHP caches no further scripts.",
        low=8, high="memory / 8 / 1048576", log=True, stock=128, unit="MB", recommended=256,
        when=IF_ENABLED),
    on_reload("opcache_interned_strings_buffer",
        "Part of the OPcache memory that is used for strings shared by scripts.",
        low=1, high=256, log=True, stock=8, unit="MB", recommended=16, when=IF_ENABLED,
        source=NEXTCLOUD_DOCS),
    symfony("opcache_max_accelerated_files",
        "Maximum number of cached scripts. PHP rounds it up to a prime number.",
        low=200, high=200_000, log=True, stock=10_000, recommended=20_000, when=IF_ENABLED),
    on_reload("opcache_validate_timestamps", "Check whether files have changed.",
        stock=True, on_demand=True, when=IF_ENABLED, source=f"{SYMFONY_DOCS}; {STALE_WARNING}"),
    on_reload("opcache_revalidate_freq", "Minimum interval between checks for changed files.",
        low=0, high=3600, stock=2, unit="s", on_demand=True, source=f"{MANUAL}; {STALE_WARNING}",
        when=(*IF_ENABLED, ("opcache_validate_timestamps", (True,)))),
    manual("opcache_jit", "Compile scripts to machine code: whole functions, or only frequently run"
        " code.",
        choices=("off", "function", "tracing"), stock="off", when=IF_ENABLED),
    manual("opcache_jit_buffer_size", "Additional memory for JIT code; 0 disables the JIT.",
        choices=(0, 8, 32, 64, 128), stock=0, unit="MB", when=IF_JIT),
    # The preload script belongs to the application, and the site's files name the script.
    on_reload(PRELOAD_PARAMETER, "Preload the site's scripts at start until the next restart.",
        stock=False, adopted=True, when=IF_ENABLED, source="php.net, Preloading"),
    symfony("realpath_cache_size", "Memory per process for resolved paths.",
        low=16, high=65_536, log=True, stock=4096, unit="KB", recommended=4096),
    symfony("realpath_cache_ttl", "Time that a resolved path stays cached.",
        low=10, high=3600, log=True, stock=120, unit="s", recommended=600),
    on_reload("memory_limit", "Maximum memory per request. PHP aborts a request that exceeds this limit.",
        low=128, high="memory / 4 / 1048576", log=True, stock=128, unit="MB", on_demand=True,
        source="php.net, Description of core php.ini directives; tuned only on demand"),
),
    capacity="opcache_memory_consumption+ opcache_max_accelerated_files+",
    small="opcache_jit opcache_jit_buffer_size+ opcache_preload opcache_interned_strings_buffer+"
    " realpath_cache_size+ realpath_cache_ttl+ opcache_validate_timestamps"
    " opcache_revalidate_freq+",
    safe={"opcache_memory_consumption": (64, 1024), "opcache_max_accelerated_files": (4000, 100_000),
          "opcache_interned_strings_buffer": (8, 64), "realpath_cache_size": (1024, 16_384),
          "realpath_cache_ttl": (60, 600)},
)  # fmt: skip

RESOURCE_NEEDS = ResourceNeeds(
    memory="opcache_memory_consumption + opcache_jit_buffer_size",
    source=f"{MANUAL}: mapped once, by the first process, for all of them",
)


def get_directive_name(parameter: Parameter) -> str:
    """Return PHP's name for a parameter: ``opcache.memory_consumption``."""
    return parameter.name.replace("opcache_", "opcache.", 1)
