"""The distribution's Varnish. Varnish's options are in its unit, and the VCL belongs to the user.

All changes are applied by a restart, because `param.set` changes would be lost at the next restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile, pairwise
from typing import Any, ClassVar

from autotune.services.base import (
    Argv,
    Placement,
    Programs,
    Readback,
    Role,
    ServerCheck,
    Service,
    Settings,
)
from autotune.services.command_line import parse_exec_start
from autotune.services.readback import build_backlog_readback
from autotune.services.unit_files import get_drop_in_path
from autotune.services.varnish import servers
from autotune.services.varnish.parameters import PARAMETERS, PARAMETERS_BY_NAME, RESOURCE_NEEDS
from autotune.strict_parsing import MAX_NUMBER, parse_json
from autotune.target.quantities import SIZE_UNITS

UNIT_NAME = "varnish.service"
DROP_IN_PATH = get_drop_in_path(UNIT_NAME)
# Arguments: file, argv… Prints the errors of a start with the options in that file. `-C` compiles
# the VCL and prints it.
_VALIDATION_SCRIPT = """
shift
said=$("$@" -C 2>&1 >/dev/null) && exit
printf '%s\\n' "$said"
exit 1
"""


class Varnish(Service):
    """Varnish, which serves cached responses from memory, and forwards other requests to the tier
    behind it.
    """

    name = "varnish"
    other_names = ("varnishd",)
    title = "Varnish"
    deployment = "varnish"
    role = Role.HTTP_CACHE
    port = 6081
    forgets_on_restart = True
    serving_processes = ("cache-main",)
    config_paths = ("", DROP_IN_PATH)
    template = "varnish/options.conf.j2"
    unit_name = UNIT_NAME
    # The value of LimitNOFILE in Debian's unit.
    unit_nofile = "min(131072, nofile)"
    packages = ("varnish",)
    programs: ClassVar[Programs] = {
        name: (name,) for name in ("varnishd", "varnishadm", "varnishstat")
    }
    parameters = PARAMETERS
    needs = RESOURCE_NEEDS
    ordering_rules = (("thread_pool_min", "thread_pool_max"),)

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        for path, content in files.items():
            # Programs such as `nice` and their options may precede varnishd.
            if start_words := tuple(
                dropwhile(
                    lambda word: word.rpartition("/")[2] != "varnishd",
                    parse_exec_start(content.decode(errors="replace")),
                )
            ):
                # Avoid the address on which the running Varnish listens.
                other_words = (
                    "127.0.0.1:0" if previous_word == "-a" else word
                    for previous_word, word in pairwise(start_words)
                    if word != "-F"
                )
                return (
                    "sh",
                    "-c",
                    _VALIDATION_SCRIPT,
                    "sh",
                    path,
                    placement.programs["varnishd"],
                    *other_words,
                )
        return None  # the package's own command, which needs no validation

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        show_command = (
            placement.programs["varnishadm"],
            *build_instance_option(placement),
            "param.show",
            "-j",
        )
        return (
            Readback(show_command, parse_effective),
            Readback(build_counters_command(placement), parse_effective_storage),
            build_backlog_readback(placement, "listen_depth"),
        )

    def build_server_check(self, placement: Placement) -> ServerCheck:
        return servers.build_server_check(
            (placement.programs["varnishadm"], *build_instance_option(placement))
        )

    def find_recovery_seconds(self, files: Mapping[str, bytes]) -> float:
        return servers.RECOVERY_SECONDS


SERVICES = (Varnish(),)


def build_instance_option(placement: Placement) -> Argv:
    """Return the option that selects a Varnish instance by name."""
    return ("-n", placement.adopted_address) if placement.adopted_address else ()


def build_counters_command(placement: Placement) -> Argv:
    """Return the command that prints Varnish's counters."""
    return (placement.programs["varnishstat"], *build_instance_option(placement), "-1", "-j")


def parse_effective(output: str) -> Settings:
    """Return the parameters in the output of `param.show -j`, in the units of autotune's
    parameters.
    """
    values_by_name: dict[str, Any] = {
        str(row.get("name")): row.get("value")
        for row in _parse_json(output, [])
        if isinstance(row, dict)
    }
    return {
        name: int(value) // SIZE_UNITS.get(PARAMETERS_BY_NAME[name].unit, 1)
        for name, value in values_by_name.items()
        if name in PARAMETERS_BY_NAME and name != "listen_depth" and _is_number(value)
    }


def parse_effective_storage(output: str) -> Settings:
    """Return the memory for objects, which is the sum of used and free bytes."""
    storage_sizes = [
        counter_value
        for name, counter_value in parse_counters(output).items()
        if name.startswith("SMA.")
        and name.endswith((".g_bytes", ".g_space"))
        and ".Transient." not in name
    ]
    return {"storage": round(sum(storage_sizes) / SIZE_UNITS["MB"])} if storage_sizes else {}


def parse_counters(output: str) -> Mapping[str, float]:
    """Return every counter in the output of `varnishstat -j`."""
    printed_document = _parse_json(output, {})
    all_counters = printed_document.get("counters", printed_document)
    return {
        name: float(counter_entry["value"])
        for name, counter_entry in (all_counters if isinstance(all_counters, dict) else {}).items()
        if isinstance(counter_entry, dict) and _is_number(counter_entry.get("value"))
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < MAX_NUMBER


def _parse_json(output: str, default: Any) -> Any:
    try:
        parsed_document = parse_json(output)
    except ValueError:
        return default
    return parsed_document if isinstance(parsed_document, type(default)) else default
