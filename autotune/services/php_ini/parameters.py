"""PHP's directives that are parameters, and the memory they stand for."""

from __future__ import annotations

from functools import partial

from autotune.services.base import Needs, Parameter, guided, on_reload

MANUAL = "php.net, OPcache Runtime Configuration"
SYMFONY = "symfony.com, Performance"
NEXTCLOUD = "docs.nextcloud.com, Server tuning"
LATE = "asked for by name alone: files that are changed on disk are seen late, or after a reload"
manual, symfony = partial(on_reload, source=MANUAL), partial(on_reload, source=SYMFONY)
ENABLED = (("opcache_enable", (True,)),)
BARE = ("opcache_memory_consumption", "opcache_interned_strings_buffer")  # in MB, without a letter
PRELOAD = "opcache_preload"
COMPILING = (*ENABLED, ("opcache_jit", ("function", "tracing")))

PARAMETERS = guided((
    manual("opcache_enable", "Whether scripts stay compiled in memory between requests.",
        stock=True, recommended=True),
    symfony("opcache_memory_consumption",
        "Memory that all processes share for compiled scripts; full, it caches no more of them.",
        low=8, high="memory / 8 / 1048576", log=True, stock=128, unit="MB", recommended=256,
        when=ENABLED),
    on_reload("opcache_interned_strings_buffer", "Part of that memory for strings that scripts share.",
        low=1, high=256, log=True, stock=8, unit="MB", recommended=16, when=ENABLED, source=NEXTCLOUD),
    symfony("opcache_max_accelerated_files", "Scripts it has room to list; PHP takes the next prime.",
        low=200, high=200_000, log=True, stock=10_000, recommended=20_000, when=ENABLED),
    on_reload("opcache_validate_timestamps", "Whether it looks at all whether files have changed.",
        stock=True, on_demand=True, when=ENABLED, source=f"{SYMFONY}; {LATE}"),
    on_reload("opcache_revalidate_freq", "Time for which it does not look again.",
        low=0, high=3600, stock=2, unit="s", on_demand=True, source=f"{MANUAL}; {LATE}",
        when=(*ENABLED, ("opcache_validate_timestamps", (True,)))),
    manual("opcache_jit", "Whether scripts are compiled for the processor: whole functions, or what"
        " turns out to run often.",
        choices=("off", "function", "tracing"), stock="off", when=ENABLED),
    manual("opcache_jit_buffer_size", "Memory for that, beside the other; 0 compiles nothing.",
        choices=(0, 8, 32, 64, 128), stock=0, unit="MB", when=COMPILING),
    # The script is the application's own; the site's files say which.
    on_reload(PRELOAD, "Whether the site's preload script compiles its part at start, for good.",
        stock=False, adopted=True, when=ENABLED, source="php.net, Preloading"),
    symfony("realpath_cache_size", "Memory of each process for paths it has looked up.",
        low=16, high=65_536, log=True, stock=4096, unit="KB", recommended=4096),
    symfony("realpath_cache_ttl", "How long a path is taken to lead where it led.",
        low=10, high=3600, log=True, stock=120, unit="s", recommended=600),
    on_reload("memory_limit", "Memory a request may take before PHP ends it.",
        low=128, high="memory / 4 / 1048576", log=True, stock=128, unit="MB", on_demand=True,
        source="php.net, Description of core php.ini directives; asked for by name alone"),
),
    capacity="opcache_memory_consumption+ opcache_max_accelerated_files+",
    small="opcache_jit opcache_jit_buffer_size+ opcache_preload opcache_interned_strings_buffer+"
    " realpath_cache_size+ realpath_cache_ttl+ opcache_validate_timestamps opcache_revalidate_freq+",
    safe={"opcache_memory_consumption": (64, 1024), "opcache_max_accelerated_files": (4000, 100_000),
          "opcache_interned_strings_buffer": (8, 64), "realpath_cache_size": (1024, 16_384),
          "realpath_cache_ttl": (60, 600)},
)  # fmt: skip

NEEDS = Needs(
    memory="opcache_memory_consumption + opcache_jit_buffer_size",
    source=f"{MANUAL}: mapped once, by the first process, for all of them",
)


def directive(parameter: Parameter) -> str:
    """As PHP has it: ``opcache.memory_consumption``."""
    return parameter.name.replace("opcache_", "opcache.", 1)
