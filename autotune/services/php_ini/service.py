"""PHP's own settings, in a file that PHP reads last. PHP validates the file, and autotune reads the
effective values back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import dirname

from autotune.services.base import (
    Argv,
    Endpoint,
    Parameter,
    Placement,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
    Value,
)
from autotune.services.php_fpm.service import VERSIONS, find_program
from autotune.services.php_ini.parameters import (
    MEGABYTE_PARAMETERS,
    PARAMETERS,
    PRELOAD_PARAMETER,
    RESOURCE_NEEDS,
    get_directive_name,
)
from autotune.strict_parsing import is_uint, split_lines
from autotune.target.quantities import SIZE_UNITS

FILE_NAME = "zz-autotune.ini"
_BOOLEAN_WORDS = {
    **dict.fromkeys(("1", "on", "yes", "true"), True),
    **dict.fromkeys(("", "0", "off", "no", "false", "none"), False),
}
# PHP documents the two numbers of four digits as equal to these names.
_JIT_MODES = {
    **dict.fromkeys(("", "0", "disable"), "off"),
    **dict.fromkeys(("1", "on", "1254"), "tracing"),
    "1205": "function",
}
# PHP only warns about invalid values, so the check compares the printed values with the new file.
_VALIDATION_SCRIPT = r"""
file=$1 conf=$2; shift 2
scan=$(mktemp -d) && trap 'rm -rf "$scan"' EXIT || exit
for ini in "$conf"/*.ini; do
    [ "${ini##*/}" = "$(basename "$0")" ] || ln -s "$ini" "$scan" || exit
done
ln -s "$file" "$scan/$(basename "$0")" || exit
said=$(PHP_INI_SCAN_DIR=$scan "$@" -i 2>&1) || { printf '%s\n' "$said" | head -n 3; exit 1; }
wrong=$(printf '%s\n' "$said" | awk -F ' *=>* *' '
    FILENAME == ARGV[1] { if ($1 ~ /^[a-z]/) asked[$1] = $2; next }
    { for (name in asked) if (index($0, "\"" name "\"")) print }
    ($1 in asked) && !($1 in said) {
        said[$1] = $2
        is_on = asked[$1] == "1" && $2 == "On" || asked[$1] == "0" && $2 == "Off"
        is_off = $2 == "no value" && (asked[$1] == "off" || asked[$1] == "")
        if ($2 != asked[$1] && !is_on && !is_off)
            print $1 " = " asked[$1] " is refused: PHP would use " $2
    }
    END { for (name in asked) if (!(name in said)) print "this PHP does not support " name }
' "$file" -)
[ -z "$wrong" ] || { printf '%s\n' "$wrong"; exit 1; }
"""
# This script runs in a process of the pool or of Apache, and prints directives and OPcache
# counters.
_STATUS_SCRIPT = """<?php
foreach (explode(' ', 'NAMES') as $name) echo "$name ", ini_get($name), "\\n";
$status = function_exists('opcache_get_status') ? @opcache_get_status(false) : false;
echo 'cache_full ', (int) ($status['cache_full'] ?? false), "\\n";
if (isset($status['jit'])) echo 'jit_enabled ', (int) $status['jit']['enabled'], "\\n";
foreach (['memory_usage', 'interned_strings_usage', 'opcache_statistics'] as $group)
    foreach ($status[$group] ?? [] as $name => $value)
        echo $group === 'interned_strings_usage' ? 'strings_' : '', "$name $value\\n";
""".replace("NAMES", " ".join(map(get_directive_name, PARAMETERS)))
# A FastCGI client: https://fastcgi-archives.github.io/FastCGI_Specification.html
_FASTCGI_CLIENT_SCRIPT = """
[, $place, $script] = $argv;
$pool = @stream_socket_client($place, $code, $why, 5) or exit(1);
stream_set_timeout($pool, 5);
$record = fn($type, $body) => pack('CCnnn', 1, $type, 1, strlen($body), 0) . $body;
$words = '';
foreach (['SCRIPT_FILENAME' => $script, 'REQUEST_METHOD' => 'GET'] as $name => $value)
    $words .= pack('CN', strlen($name), strlen($value) | 1 << 31) . $name . $value;
fwrite($pool, $record(1, pack('nCx5', 1, 0)) . $record(4, $words) . $record(4, '') . $record(5, ''));
for ($answer = ''; strlen($head = stream_get_contents($pool, 8)) === 8;) {
    $part = unpack('Cversion/Ctype/nid/nlength/Cpadding', $head);
    $body = stream_get_contents($pool, $part['length'] + $part['padding']);
    if ($part['type'] === 6) $answer .= substr($body, 0, $part['length']);
    if ($part['type'] === 3) break;
}
echo substr($answer, strpos($answer, "\\r\\n\\r\\n") + 4);
"""
# Pools run under other accounts, which must be able to read the script. Only the script's owner can
# change the script.
_TEMP_SCRIPT = """
umask 022
place=$(mktemp -d /run/autotune-php.XXXXXX) && trap 'rm -rf "$place"' EXIT || exit
chmod 755 "$place" && printf %s "$1" >"$place/status.php" || exit
"""
_FASTCGI_SCRIPT = f'{_TEMP_SCRIPT}\n"$3" -n -r "$2" -- "$4" "$place/status.php"'
# Sends a request to Apache under a host name that no site uses (templates/apache/mod_php.conf.j2).
_HTTP_SCRIPT = f"""{_TEMP_SCRIPT}
"$2" --disable -sS --noproxy "*" --max-time 5 -H "Host: php.autotune.internal" "http://$3/${{place##*/}}/status.php"
"""


@dataclass(frozen=True)
class PhpIni(Service):
    """Settings of the PHP build that ``server`` runs.

    The unit of ``server`` reads PHP's settings, and one reload applies changes to both services.
    ``interpreter`` is also the name of the build's directory in /etc/php/VERSION.
    """

    name = "php_ini"
    title = "PHP settings"
    role = Role.HOST
    per_deployment = True
    template = "php_ini/autotune.ini.j2"
    packages = ("php-cli",)
    reload_signal = "USR2"
    parameters = PARAMETERS
    needs = RESOURCE_NEEDS
    # PHP does not start if its table of scripts does not fit ("Insufficient shared memory!"). A slot
    # has 48 bytes. PHP rounds the number of slots up to a prime, which may be twice as large.
    ordering_rules = (
        ("opcache_interned_strings_buffer", "opcache_memory_consumption / 2"),
        ("opcache_max_accelerated_files * 100 B", "opcache_memory_consumption / 4"),
    )
    interpreter: str = ""
    server: Service | None = None

    @property
    def key(self) -> str:
        return f"php-ini-{self.interpreter}"

    @property
    def programs(self) -> Programs:
        php_programs = {"php": (*(f"php{version}" for version in VERSIONS), "php")}
        return {**(self.server.programs if self.server else {}), **php_programs}

    def for_deployment(self, services: tuple[Service, ...]) -> Service | None:
        matching_servers = [
            service for service in services if service.interpreter == self.interpreter
        ]
        return PhpIni(self.interpreter, matching_servers[0]) if matching_servers else None

    def config_path(self, placement: Placement) -> str:
        if placement.adopted and placement.adopted.files:
            return placement.adopted.files[0].path
        return f"{self._find_directory(placement)}/conf.d/{FILE_NAME}"

    def get_unit(self, placement: Placement) -> str | None:
        return self.server.get_unit(placement) if self.server else None

    def get_socket(self, placement: Placement) -> str | Endpoint | None:
        return self.server.get_socket(placement) if self.server else None

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (Readback(build_status_command(placement), parse_effective),)

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        # PHP's command line does not read the directories of Apache's module.
        return (
            (Readback((find_program(placement), "-i"), parse_phpinfo),)
            if "php-fpm" in placement.programs
            else ()
        )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        """Return a check with a program that reads these settings just as ``server`` does.

        The program is PHP-FPM itself, or PHP's command line with options that load Apache's
        settings.
        """
        ini_path, program = self.config_path(placement), self._find_program(placement)
        program_options = (
            ()
            if "php-fpm" in placement.programs
            else ("-c", f"{self._find_directory(placement)}/php.ini", "-d", "opcache.enable_cli=1")
        )
        return (
            "sh",
            "-c",
            _VALIDATION_SCRIPT,
            FILE_NAME,
            ini_path,
            dirname(ini_path),
            program,
            *program_options,
        )

    def _find_program(self, placement: Placement) -> str:
        return find_program(placement, "php-fpm" if "php-fpm" in placement.programs else "php")

    def _find_directory(self, placement: Placement) -> str:
        version = self._find_program(placement).rpartition("php")[2].rpartition("-fpm")[2]
        return f"/etc/php/{version}/{self.interpreter}"


SERVICES = (PhpIni("fpm"), PhpIni("apache2"))


def build_status_command(placement: Placement) -> Argv:
    """Return the command that prints effective directives and counters, with one name and value per
    line.
    """
    php_program, curl = placement.programs.get("php", "php"), placement.programs.get("curl", "curl")
    if "php-fpm" not in placement.programs:
        return ("sh", "-c", _HTTP_SCRIPT, "sh", _STATUS_SCRIPT, curl, str(placement.listen))
    socket_scheme = "unix" if placement.socket_name.startswith("/") else "tcp"
    return (
        "sh",
        "-c",
        _FASTCGI_SCRIPT,
        "sh",
        _STATUS_SCRIPT,
        _FASTCGI_CLIENT_SCRIPT,
        php_program,
        f"{socket_scheme}://{placement.socket_name}",
    )


def parse_phpinfo(output: str) -> Settings:
    """Return the directives in the output of PHP's option ``-i``, in the units of the parameters."""
    printed_rows = (line.split(" => ") for line in split_lines(output))
    printed_values = {
        row[0]: row[1].replace("no value", "") for row in printed_rows if len(row) == 3
    }
    return _convert_directives(printed_values)


def _convert_directives(printed_values: Mapping[str, str]) -> dict[str, Value]:
    parameter_values: dict[str, Value] = {}
    for parameter in PARAMETERS:
        if (printed_value := printed_values.get(get_directive_name(parameter))) is not None:
            parameter_value = parse_value(parameter, printed_value)
            parameter_values |= {} if parameter_value is None else {parameter.name: parameter_value}
    return parameter_values


def parse_effective(output: str) -> Settings:
    """Return the effective PHP directives in the output of the status command, in the units of the
    parameters.
    """
    printed_values = dict(line.split(" ", 1) for line in split_lines(output) if " " in line)
    parameter_values = _convert_directives(printed_values)
    # Return the size of the memory that is actually mapped, not the requested size.
    memory_sizes = [printed_values.get(f"{kind}_memory", "") for kind in ("used", "free", "wasted")]
    if all(map(is_uint, memory_sizes)):
        parameter_values["opcache_memory_consumption"] = round(
            sum(map(int, memory_sizes)) / SIZE_UNITS["MB"]
        )
    # PHP disables the JIT if an extension such as a debugger or a profiler is incompatible with it.
    if printed_values.get("jit_enabled") == "0" and parameter_values.get("opcache_jit_buffer_size"):
        parameter_values["opcache_jit"] = "off"
    return parameter_values


def parse_value(parameter: Parameter, written_value: str) -> Value | None:
    """Return the value as PHP interprets ``written_value``, or ``None`` if PHP or the parameter rejects
    it.
    """
    normalized_text = written_value.strip().strip("\"'").lower()
    if parameter.name == PRELOAD_PARAMETER:
        return bool(normalized_text)  # a script's path counts as true
    if isinstance(parameter.stock, bool):
        return _BOOLEAN_WORDS.get(normalized_text)
    if isinstance(parameter.stock, str):
        return _JIT_MODES.get(normalized_text, normalized_text)
    amount_match = re.fullmatch(r"([0-9]{1,15})([kmg]?)", normalized_text)
    if amount_match is None or (parameter.name in MEGABYTE_PARAMETERS and amount_match[2]):
        return None
    unit_factor = 1 if parameter.name in MEGABYTE_PARAMETERS else SIZE_UNITS.get(parameter.unit, 1)
    quotient, remainder = divmod(
        int(amount_match[1]) * SIZE_UNITS.get(f"{amount_match[2].upper()}B", 1), unit_factor
    )
    return None if remainder else quotient
