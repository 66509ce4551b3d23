"""Read PHP's settings on a host, and find the file in which to change them.

Debian's builds share the files of extensions, which autotune never edits. autotune edits the last
file of each build, which no other build reads and which overrides the shared files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from posixpath import basename, dirname

from autotune.services import apache_config, unit_environment
from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Parameter, Value
from autotune.services.config_files import Config, Directive, FileTree, Word, read_config
from autotune.services.directives import Notation, Tunable, append_line
from autotune.services.nginx import adoption as nginx
from autotune.services.php_fpm import adoption as fpm
from autotune.services.php_fpm.syntax import parse_directives
from autotune.services.php_ini.parameters import (
    MEGABYTE_PARAMETERS,
    PARAMETERS,
    PRELOAD_PARAMETER,
    get_directive_name,
)
from autotune.services.php_ini.service import FILE_NAME, PhpIni, parse_value
from autotune.services.visible_directives import VisibleDirectives

_UNIT_PATTERN = re.compile(r"php([0-9.]+)-fpm\.service")
_FIRST_BUILT_IN_VERSION = (8, 5)  # OPcache is part of PHP itself (release notes)
_INTERFACE_FILES = {"fpm": "php-fpm-fcgi.ini", "apache2": "php-apache2handler.ini"}
_VERSION_PATTERN = re.compile(r"/etc/php/([0-9]+)\.([0-9]+)/")
_MODULE_FILES_PATTERN = "/etc/apache2/mods-enabled/php[0-9]*.load"
_NGINX_REASON = "nginx sets it with `fastcgi_param`: move it to php.ini to tune it"
_POOL_SETTING_PATTERN = re.compile(r"php_(?:admin_)?(?:value|flag)\[([^\]]+)\]")


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield the settings of each running PHP-FPM, and of the PHP module that Apache loads."""
    for fpm_service in fpm.find_services(host):
        if isinstance(fpm_service, str):
            continue
        fpm_unit = fpm_service.instance
        if not (unit_match := _UNIT_PATTERN.fullmatch(fpm_unit)):
            continue
        if host.tree.exists(f"/etc/php/{unit_match[1]}/fpm/php.ini"):
            yield _build_running_service(host, "fpm", unit_match[1], fpm_service.config, fpm_unit)
    for module_file in (
        host.tree.glob(_MODULE_FILES_PATTERN)[:1] if host.is_active("apache2.service") else ()
    ):
        yield _build_running_service(
            host,
            "apache2",
            module_file.rpartition("/php")[2][: -len(".load")],
            _read_module_config(host),
        )


def _read_module_config(host: RunningHost) -> Config:
    """Return the PHP directives in Apache's files (``php_value`` and others), converted to
    PHP-FPM's pool settings.
    """
    config = apache_config.read_host_config(host.tree, apache_config.LAYOUTS[0].main_file)
    placed_settings = tuple(
        replace(placed, directive=Directive(Word(f"php_value[{placed.words[0]}]", 0)))
        for name in ("php_value", "php_flag", "php_admin_value", "php_admin_flag")
        for placed in config.find_all(name)
        if placed.words
    )
    return Config("", directives=placed_settings)


def _build_running_service(
    host: RunningHost, build_name: str, version: str, pools_config: Config, unit: str = ""
) -> RunningService:
    """Return the service for a PHP build.

    The service's configuration consists of the editable file and the settings of pools. The service's
    address is the address of the first pool, which is queried for effective values.
    """
    ini_config = _read_host_config(host.tree, f"/etc/php/{version}/{build_name}/conf.d/{FILE_NAME}")
    pool_settings = [
        placed for placed in pools_config.directives if _POOL_SETTING_PATTERN.match(placed.name)
    ]
    listen_address = next(iter(fpm.list_listen_addresses(pools_config)), "")
    address = f"127.0.0.1:{listen_address}" if listen_address.isdecimal() else listen_address
    config = replace(
        ini_config,
        directives=(*ini_config.directives, *pool_settings),
        uncertain=_list_overrides(host, unit),
    )
    return RunningService(
        host=host, key=PhpIni(build_name).key, config=config, listen_address=address, instance=unit
    )


def _list_overrides(host: RunningHost, unit: str) -> dict[str, str]:
    """Return the settings that the unit's command or environment overrides, each with the
    reason.
    """
    if not unit:
        return {}
    command_words = unit_environment.expand_command(host.tree, unit)
    if {"-n", "--no-php-ini"} & {*command_words} or unit_environment.find_option_values(
        command_words, "-c", "--php-ini"
    ):
        return {"*": f"the command of {unit} selects another php.ini"}
    environment = unit_environment.read_environment(host.tree, unit)
    if variable_name := next(filter(environment.get_value, ("PHP_INI_SCAN_DIR", "PHPRC")), ""):
        return {"*": f"the environment of {unit} sets `{variable_name}`"}
    defined_options = unit_environment.find_option_values(command_words, "-d", "--define")
    option_names = (word.partition("=")[0] for word in defined_options)
    return dict.fromkeys(_list_nginx_settings(host), _NGINX_REASON) | dict.fromkeys(
        option_names, f"the command of {unit} sets it"
    )


def _list_nginx_settings(host: RunningHost) -> Iterator[str]:
    """Yield the names of the settings that nginx hands over to PHP-FPM with each request."""
    # Most hosts set no such parameter, and parsing all of nginx's files takes time.
    hands_over = any(
        re.search(rb"fastcgi_param\s+PHP_", content) for content in host.tree.files.values()
    )
    for placed in (
        line
        for service in (nginx.find_services(host) if hands_over else ())
        if not isinstance(service, str)
        for line in service.config.find_all("fastcgi_param")
    ):
        if placed.words[:1] in (("PHP_VALUE",), ("PHP_ADMIN_VALUE",)):
            for line in re.split(r"\\n|\n", " ".join(placed.words[1:]).strip("\"'")):
                yield line.partition("=")[0].strip()


def _read_host_config(file_tree: FileTree, path: str) -> Config:
    """Return the directives of a file, or an empty configuration for a missing file."""
    return (
        read_config(file_tree, path, parse_directives)
        if path in file_tree.files
        else Config(path, {path: ""})
    )


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for every parameter. A parameter that a pool sets, or whose extension is
    missing, gets a skip reason.
    """
    file_tree, own_file = service.host.tree, service.config.main_file
    file_values, unread_reason = _read_other_files(file_tree, own_file)
    ini_paths = file_tree.glob(f"{dirname(own_file)}/zz*.ini")
    later_files = [path for path in ini_paths if basename(path) > FILE_NAME]
    overriding_paths = {
        placed_directive.name: path
        for path in later_files
        for placed_directive in _read_host_config(file_tree, path).directives
    }
    pool_settings = {
        setting_match[1]
        for placed_directive in service.config.directives
        if (setting_match := _POOL_SETTING_PATTERN.match(placed_directive.name))
    }
    is_built_in = _find_version(own_file) >= _FIRST_BUILT_IN_VERSION
    is_loaded = is_built_in or "opcache" in file_values.get("zend_extension", "")
    unloaded_prefixes = () if is_loaded else ("opcache.",)
    for parameter in PARAMETERS:
        name, notation = get_directive_name(parameter), _select_notation(parameter)
        stock, file_value = _find_stock(parameter, own_file, file_values), file_values.get(name)
        default = stock if file_value is None else parse_value(parameter, file_value)
        possible_reasons = (
            unread_reason,
            "OPcache is not loaded" if name.startswith(unloaded_prefixes) else "",
            "a pool sets it" if name in pool_settings else "",
            f"{overriding_paths[name]} overrides it" if name in overriding_paths else "",
            f"`{name} = {file_value}` is not a valid baseline value" if default is None else "",
            "no preload script is configured"
            if parameter.name == PRELOAD_PARAMETER and not file_value
            else "",
        )
        default_value = parameter.stock if default is None else default
        insertion = append_line(service.config, default_value, f"{name} = ")
        skip_reason = next(filter(None, possible_reasons), "") or _explain_jit(parameter, own_file)
        yield Tunable(parameter.name, name, notation, insertion=insertion, skip_reason=skip_reason)


def _find_stock(parameter: Parameter, ini_path: str, file_values: Mapping[str, str]) -> Value:
    """Return the parameter's default in a version of PHP. Before PHP 8.4, a buffer size above 0 is
    enough to enable the JIT.
    """
    version = _find_version(ini_path)
    jit_size = next((p for p in PARAMETERS if p.name == "opcache_jit_buffer_size"), parameter)
    if parameter.name == "opcache_jit" and version < (8, 4):
        buffer_size = parse_value(jit_size, file_values.get("opcache.jit_buffer_size", "0"))
        return "tracing" if buffer_size else parameter.stock
    if parameter is jit_size and version >= (8, 4):
        return 64
    return parameter.stock


def _find_version(ini_path: str) -> tuple[int, int]:
    match = _VERSION_PATTERN.match(ini_path)
    return (int(match[1]), int(match[2])) if match else (8, 2)


def _explain_jit(parameter: Parameter, ini_path: str) -> str:
    is_too_old = parameter.name.startswith("opcache_jit") and _find_version(ini_path) < (8, 0)
    return "this version of PHP has no JIT" if is_too_old else ""


def _read_other_files(file_tree: FileTree, own_file: str) -> tuple[Mapping[str, str], str]:
    """Return the values in the PHP build's other files, and an error if a file is unreadable.

    Only the last value of a name takes effect, except that all values of ``zend_extension`` take
    effect.
    """
    values_by_name: dict[str, str] = {}
    build_directory = own_file.partition("/conf.d/")[0]
    # If the file of this interface exists, PHP reads it in place of php.ini.
    interface_file = f"{build_directory}/{_INTERFACE_FILES[basename(build_directory)]}"
    main_file = interface_file if file_tree.exists(interface_file) else f"{build_directory}/php.ini"
    patterns = (main_file, f"{build_directory}/conf.d/*.ini")
    missing_reasons = {
        link: file_tree.explain_missing(link)
        for pattern in patterns
        for link in file_tree.find_broken_links(pattern)
    }
    missing_reasons |= {
        path: unread_reason
        for pattern in patterns
        for path, unread_reason in file_tree.find_unread(pattern).items()
    }
    for unread_path, unread_reason in missing_reasons.items():
        return {}, f"{unread_path} cannot be read: {unread_reason}"
    for path in (path for pattern in patterns for path in file_tree.glob(pattern)):
        config = _read_host_config(file_tree, path) if path != own_file else Config(path)
        for unread_path, unread_reason in config.unread_files.items():
            return {}, f"{unread_path} cannot be read: {unread_reason}"
        for placed_directive in config.directives:
            # PATH and HOST sections apply only to certain paths or hosts.
            if not placed_directive.block.upper().startswith(("PATH", "HOST")):
                extension_directory = (
                    values_by_name.get(placed_directive.name, "")
                    if placed_directive.name == "zend_extension"
                    else ""
                )
                values_by_name[placed_directive.name] = " ".join(
                    filter(None, (extension_directory, *placed_directive.words))
                )
    return values_by_name, ""


def _select_notation(parameter: Parameter) -> Notation:
    if parameter.name == PRELOAD_PARAMETER:
        # The expression is rendered only to disable preloading.
        return Notation(partial(parse_value, parameter), lambda _: '""')
    if isinstance(parameter.stock, bool):
        return Notation(partial(parse_value, parameter), lambda name: f"({name} | int)")
    unit_letter = (
        parameter.unit.removesuffix("B") if parameter.name not in MEGABYTE_PARAMETERS else ""
    )
    suffix = f' ~ "{unit_letter}"' if unit_letter in ("K", "M") else ""
    return Notation(partial(parse_value, parameter), lambda name: f"({name}{suffix})")


ADOPTION = Adoption(
    title="PHP settings",
    units=("php*-fpm.service", "apache2.service"),
    paths=("etc/php", "etc/apache2"),
    version_script="",
    find_services=find_services,
    visible=VisibleDirectives(parse_directives, frozenset(map(get_directive_name, PARAMETERS))),
    list_tunables=_list_tunables,
)
