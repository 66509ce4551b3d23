"""Find running uWSGI servers, and map their .ini files to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from posixpath import basename, dirname, join

from autotune.services import app_server, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import ServerCandidate
from autotune.services.config_files import (
    MAX_PATH_BYTES,
    Config,
    Directive,
    FileTree,
    is_pattern,
    read_config,
)
from autotune.services.directives import NUMBER, DirectiveInsertion, Tunable, find_line_end
from autotune.services.uwsgi import syntax
from autotune.services.uwsgi.service import DEBIAN_DEFAULTS_FILE, PARAMETERS, UNIT_NAME, Uwsgi
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

_NO_FILE_REASON = "to tune uWSGI, use an .ini file with a section [uwsgi]"
_APPLICATIONS_DIRECTORY = "/etc/uwsgi/apps-enabled"
# The command of this unit is a script, which starts an emperor with this file.
_DEBIAN_EMPEROR_UNIT = "uwsgi-emperor.service"
_DEBIAN_EMPEROR_FILE = "/etc/uwsgi-emperor/emperor.ini"
# A placeholder for the value of another option, or for the name or directory of the file.
_PLACEHOLDER_PATTERN = re.compile(r"%(?:\((?P<option>[\w.-]{1,60})\)|[nd])")
_VARIABLE_PATTERN = re.compile(r"\$\((\w{1,60})\)")  # a variable of the environment
_UNKNOWN_PATTERN = re.compile(rf"{_PLACEHOLDER_PATTERN.pattern}|{_VARIABLE_PATTERN.pattern}")
_MAX_PLACEHOLDER_ROUNDS = 8  # values may contain further placeholders


def _list_candidates(host: RunningHost) -> Iterator[ServerCandidate | str]:
    """For each unit, yield its application if there is exactly one, or the reason why the unit is not
    tuned.
    """
    for unit, application_files in dict(_list_application_files(host)).items():
        if len(application_files) > 1:
            yield f"{unit}: not tuned, because {len(application_files)} uWSGI applications share it"
        # Debian's unit and template units come from packages, so they may exist without an application.
        if not application_files and unit != UNIT_NAME and "@." not in unit:
            yield f"{unit}: {_NO_FILE_REASON}"
        for application_file in application_files if len(application_files) == 1 else ():
            directory = _find_include_directory(host.tree, unit, application_file)
            config = _read_host_config(host.tree, application_file, directory)
            if selected_section := _find_selected_section(host.tree, unit):
                yield f"{unit}: not tuned, because its command selects the section {selected_section}"
                continue
            environment = unit_environment.read_environment(host.tree, unit)
            listen_address = _find_listen_address(config, environment.values)
            if not config.find_all(syntax.SECTION_HEADER):
                yield f"{unit}: {_NO_FILE_REASON}"
            elif config.find_all("https") and not any(map(config.find_all, ("socket", "http"))):
                yield f"{unit}: {app_server.TLS_REASON}"
            elif placeholder := _UNKNOWN_PATTERN.search(listen_address):
                yield f"{unit}: not tuned, because its files do not set `{placeholder[0]}` in its address"
            else:
                yield unit, config, listen_address


def _find_selected_section(file_tree: FileTree, unit: str) -> str:
    """Return the section that a unit's command selects after a file name, or an empty string."""
    section_names = (word.partition(".ini:")[2] for word in _list_command_words(file_tree, unit))
    return next(filter(None, section_names), "")


def _list_application_files(host: RunningHost) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield units with the files of their applications. The unit's command lists the files, or an
    emperor's vassal directory or Debian's directory contains them.
    """
    for unit in unit_files.find_units_mentioning(host.tree, "uwsgi"):
        command_words = _list_command_words(host.tree, unit)
        if any(basename(word.lstrip("-@:+!")).startswith("uwsgi") for word in command_words):
            directory = _find_working_directory(host.tree, unit)
            named_files = [_DEBIAN_EMPEROR_FILE] if unit == _DEBIAN_EMPEROR_UNIT else command_words
            ini_files = [
                path
                for word in named_files
                if word.partition(":")[0].endswith(".ini")
                for path in host.tree.glob(join(directory, word.partition(":")[0]))
            ]
            vassal_directories = unit_environment.find_option_values(command_words, "--emperor")
            emperor_directives = (
                placed
                for path in ini_files
                for placed in _read_host_config(host.tree, path, directory).find_all("emperor")
            )
            vassal_directories += [placed.words[0] for placed in emperor_directives if placed.words]
            vassal_files = [
                path
                for vassal_directory in vassal_directories
                for path in _list_vassals(host.tree, vassal_directory)
            ]
            yield unit, tuple(dict.fromkeys(vassal_files if vassal_directories else ini_files))
    if host.is_active(UNIT_NAME) and (
        ini_files := [*host.tree.glob(f"{_APPLICATIONS_DIRECTORY}/*.ini")]
    ):
        yield UNIT_NAME, tuple(ini_files)


def _list_vassals(file_tree: FileTree, location: str) -> tuple[str, ...]:
    """Return the files of an emperor's vassals. ``location`` is a directory or a pattern of files."""
    path = re.sub(r"^(?:glob|dir)://", "", location)
    return file_tree.glob(path if is_pattern(path) else join(path, "*.ini"))


def _find_working_directory(file_tree: FileTree, unit: str) -> str:
    return unit_files.find_option(file_tree, unit, "WorkingDirectory").lstrip("-") or "/"


def _find_include_directory(file_tree: FileTree, unit: str, path: str) -> str:
    """Return the directory to which includes are relative: that of the unit or, for the vassal of an
    emperor, that of the file.
    """
    directory = _find_working_directory(file_tree, unit)
    named_paths = (
        file_tree.resolve(join(directory, word.partition(":")[0]))
        for word in _list_command_words(file_tree, unit)
    )
    return directory if path in named_paths else dirname(path)


def _read_host_config(file_tree: FileTree, path: str, directory: str) -> Config:
    """Return the options in a file and its includes, whose paths are relative to the working
    ``directory``.
    """

    def find_include(directive: Directive) -> str | None:
        included_path = syntax.parse_include(directive)
        if included_path is None:
            return None
        main_directory = f"{dirname(path)}/"
        return join(directory, included_path.replace("%d", main_directory).replace("//", "/"))

    config = read_config(file_tree, path, syntax.parse_directives, find_include)
    includes = [
        (name, placed_directive.words[0])
        for name in syntax.INCLUDE_OPTIONS
        for placed_directive in config.find_all(name)
        if placed_directive.words
    ]
    # uWSGI reads an inherited file after the other options.
    uncertain_reasons = [
        f"`{name} = {path}` may set it" + (" in another section" if ":" in path else "")
        for name, path in includes
        if ":" in path or name == "inherit"
    ]
    return replace(config, uncertain={"*": uncertain_reasons[0]} if uncertain_reasons else {})


def _list_command_words(file_tree: FileTree, unit: str) -> list[str]:
    """Return the words in a unit's command. `--option=value` is split into two words."""
    words = (word.text.strip("\"'") for word in unit_files.list_arguments(file_tree, unit))
    return " ".join(words).replace("=", " ").split()


def _find_listen_address(config: Config, variables: Mapping[str, str]) -> str:
    """Return the TCP port or socket path on which uWSGI listens; by default, Debian's socket.

    ``variables`` is the environment of the unit.
    """
    application_name = basename(config.main_file).removesuffix(".ini")
    addresses = [
        placed_directive.words[0]
        for option in ("socket", "http", "https")
        for placed_directive in config.find_all(option)
        if placed_directive.words
    ]
    address = (addresses or [f"/run/uwsgi/app/{application_name}/socket"])[0]
    # The files of a certificate may follow the address.
    address = _replace_placeholders(config, address).partition(",")[0]
    return app_server.parse_address(
        _VARIABLE_PATTERN.sub(lambda match: variables.get(match[1], match[0]), address)
    )


def _replace_placeholders(config: Config, value: str) -> str:
    """Return a value with its placeholders replaced. Unknown placeholders are not changed."""

    def look_up(match: re.Match[str]) -> str:
        if match["option"] is None:
            directory, file_name = dirname(config.main_file), basename(config.main_file)
            return f"{directory}/" if match[0] == "%d" else file_name.removesuffix(".ini")
        lines = config.find_all(syntax.get_canonical_name(match["option"]))
        # uWSGI uses the first value of an option.
        words = [line.words[0] for line in lines if line.words]
        return words[0] if words and len(words[0]) <= MAX_PATH_BYTES else match[0]

    for _ in range(_MAX_PLACEHOLDER_ROUNDS):
        if len(value) > MAX_PATH_BYTES:
            break
        value = _PLACEHOLDER_PATTERN.sub(look_up, value)
    return value


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for each parameter. A missing parameter is added below the section header.

    The files override the environment, and the command may override the files.
    """
    file_tree, config = service.host.tree, service.config
    environment = unit_environment.read_environment(file_tree, service.unit)
    command_words = _list_command_words(file_tree, service.unit)
    inherited_text = (
        file_tree.read_text_or_empty(DEBIAN_DEFAULTS_FILE) if service.unit == UNIT_NAME else ""
    )
    inherited_values = {
        line.name.text: line.arguments[0].text
        for line in syntax.parse_directives(inherited_text)
        if line.arguments
    }
    for parameter in PARAMETERS:
        name, option = parameter.name, parameter.name.replace("_", "-")
        variables = (
            f"UWSGI_{name.upper().replace('-', '_')}" for name in syntax.list_names(option)
        )
        inherited_value = inherited_values.get(
            option, next(filter(None, map(environment.get_value, variables)), "")
        )
        default_value = int(inherited_value) if is_uint(inherited_value) else parameter.stock
        skip_reason = ""
        if command_option := _find_command_option(command_words, option):
            skip_reason = app_server.explain_command_option(command_option, config.main_file)
        elif any(placed_directive.directive.blocks for placed_directive in config.find_all(option)):
            skip_reason = app_server.explain_condition(config.main_file)
        elif environment.unread_files and not config.find_all(option):
            skip_reason = f"{environment.unread_files[0]} may set it, but was not read"
        insertion = DirectiveInsertion(
            default_value, find_line_end(config, syntax.SECTION_HEADER), f"\n{option} = "
        )
        yield Tunable(
            name, option, NUMBER, insertion=insertion, last_wins=True, skip_reason=skip_reason
        )


def _find_command_option(command_words: Iterable[str], option: str) -> str:
    """Return the word in a command that sets an option, or an empty string. uWSGI accepts any unique
    prefix of a long name, and a value directly after a short name.
    """
    for word in command_words:
        name = syntax.get_canonical_name(word[2:] if word.startswith("--") else word[1:2])
        is_prefix = word.startswith("--") and name and option.startswith(name)
        if word.startswith("-") and (name == option or is_prefix):
            return word
    return ""


VISIBLE_DIRECTIVES = VisibleDirectives(
    syntax.parse_directives,
    frozenset(
        (
            *(parameter.name.replace("_", "-") for parameter in PARAMETERS),
            syntax.SECTION_HEADER,
            "socket",
            "http",
        )
    ),
    reads=frozenset((syntax.SECTION_HEADER, "socket", "http")),
    writes=frozenset(("workers",)),
)

ADOPTION = app_server.build_adoption(
    Uwsgi, _list_candidates, list_tunables=_list_tunables, visible=VISIBLE_DIRECTIVES,
    paths=("etc/uwsgi", "etc/uwsgi-emperor", "etc/uwsgi.ini", "etc/uwsgi.d", DEBIAN_DEFAULTS_FILE[1:],
           *(f"{place}/*.ini" for place in ("home/*", *unit_environment.APPLICATION_DIRECTORIES))),
    version_script="command -v uwsgi >/dev/null && echo uWSGI $(uwsgi --version)",
)  # fmt: skip
