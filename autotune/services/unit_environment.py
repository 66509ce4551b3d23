"""Environment variables of units: parse them as systemd does, and set them in place or in a
drop-in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from autotune import config_text
from autotune.secret_detection import find_secrets
from autotune.services import unit_files
from autotune.services.base import Argv, Placement, Value
from autotune.services.command_line import (
    ASSIGNING_WRAPPERS,
    list_wrappers,
    skip_wrappers,
    unquote_word,
)
from autotune.services.config_files import Config, FileTree, Word, is_pattern
from autotune.services.directives import (
    NUMBER,
    AdoptionResult,
    Edit,
    Notation,
    ValueCheck,
    add_new_file,
    format_literal,
    merge_results,
    render_edits,
)
from autotune.strict_parsing import is_uint

# Usual directories for applications and environment files.
APPLICATION_DIRECTORIES = ("srv/*", "srv/*/*", "opt/*", "opt/*/*", "var/www/*",
          "var/www/*/*", "home/*/*", "home/*/*/*")  # fmt: skip
ENVIRONMENT_FILES = (
    "etc/default/*",
    "etc/*.env",
    "etc/*/*.env",
    *(f"{place}/{name}" for place in APPLICATION_DIRECTORIES for name in (".env", "*.env")),
)
_LINE_PATTERN = re.compile(r"(?m)^[ \t]*(?P<name>\w+)[ \t]*=[ \t]*(?P<value>(?:\\\r?\n|[^\n])*)$")
_CONTINUATION_PATTERN = re.compile(r"\\\r?\n")
VARIABLE_PATTERN = re.compile(r"\$\{?(\w+)\}?")
# sudo removes variables from the environment unless this file lists them.
_SUDO_POLICY_FILE = "/etc/sudoers"
# Text that means the same with and without quotes.
_PLAIN_TEXT_PATTERN = re.compile(r"""[^"'\\%\n]*""")
# Arguments: UNIT_RUN_SCRIPT, unit, argv… Runs argv with the variables of the unit. Unlike a new unit,
# argv sees files that are mounted for this command alone. Variables of a unit with another account are
# not used, because that account could use them to run its own code as root. For the same reason, `env`
# runs as root.
_WITH_VARIABLES_SCRIPT = r"""
run=$1 unit=$2
shift 2
user=$(systemctl show --value -p User -- "$unit" 2>/dev/null) || exec "$@"
case $user in '' | root | 0) ;; *) exec "$@" ;; esac
[ -n "$(systemctl show --value -p Environment -p EnvironmentFiles -- "$unit")" ] || exec "$@"
# No command line may contain a variable, because all accounts can read command lines.
AUTOTUNE_STAGED= AUTOTUNE_AS_ROOT=1 sh -c "$run" sh "$unit" -0 env | tr '\0\n' '\n\1' | {
    while IFS= read -r _line; do
        case ${_line%%=*} in '' | [0-9]* | *[!A-Za-z0-9_]*) ;; *) export "$_line" ;; esac
    done
    exec "$@"
}
"""


@dataclass(frozen=True)
class UnitVariable:
    """An environment variable. ``position`` is the offset of the variable's value in the file at
    ``path``. ``in_command`` is true if the unit's command sets the variable, with ``env`` or ``sudo``.
    """

    value: str
    path: str
    position: int
    in_command: bool = False


@dataclass(frozen=True)
class UnitEnvironment:
    """A unit's environment. ``texts`` are the unit's files, and ``unread_files`` its environment
    files that could not be read. ``unset`` are the variables that the unit removes in the end.
    """

    unit: str
    texts: Mapping[str, str]
    variables: Mapping[str, UnitVariable]
    unread_files: tuple[str, ...] = ()
    unset: frozenset[str] = frozenset()

    def get_value(self, variable_name: str) -> str:
        """Return the value of a variable, or an empty string."""
        return self.variables[variable_name].value if variable_name in self.variables else ""

    def get_number(self, variable_name: str) -> int | None:
        return (
            int(self.get_value(variable_name)) if is_uint(self.get_value(variable_name)) else None
        )

    @property
    def values(self) -> Mapping[str, str]:
        return {name: variable.value for name, variable in self.variables.items()}

    @property
    def drop_in_path(self) -> str:
        return unit_files.get_drop_in_path(self.unit)


@dataclass(frozen=True)
class EnvironmentSetting:
    """A parameter that an environment variable sets: with its whole value, or with a number after
    ``option=`` in its value.

    ``default`` is the parameter's value if the variable does not set the parameter. Without a
    default, the parameter is tuned only if the variable sets it. ``notation`` parses the number.
    """

    parameter: str
    variable: str
    default: Value | None
    option: str = ""
    notation: Notation = NUMBER


def read_environment(file_tree: FileTree, unit: str) -> UnitEnvironment:
    """Return the environment of a unit, including its drop-ins. `EnvironmentFile=` overrides
    `Environment=`, `UnsetEnvironment=` overrides both, and `env` or `sudo` in the command
    overrides all.
    """
    unit_texts = {
        path: file_tree.read_text(path) for path in unit_files.list_unit_files(file_tree, unit)
    }
    variables: dict[str, UnitVariable] = {}
    for path, words in _list_option_words(unit_texts, "Environment"):
        variables = {**variables, **dict(_parse_assignments(path, words))} if words else {}
    environment_paths, unset_names = list[str](), set[str]()
    for _, words in _list_option_words(unit_texts, "EnvironmentFile"):
        named_paths = (word.text for word in words)
        environment_paths = [*environment_paths, *named_paths] if words else []
    for _, words in _list_option_words(unit_texts, "UnsetEnvironment"):
        unset_names = {*unset_names, *(word.text.partition("=")[0] for word in words)}
        unset_names = unset_names if words else set()
    unread_paths = list[str]()
    for named_path in reversed(dict.fromkeys(reversed(environment_paths))):  # the last one counts
        paths = _list_environment_files(file_tree, named_path)
        for path in paths:
            variables |= _parse_environment_file(file_tree, path)
        unread_paths += [] if paths else [named_path.lstrip("-")]
    remaining = {name: value for name, value in variables.items() if name not in unset_names}
    command_path, wrappers = _list_wrappers(file_tree, unit)
    return UnitEnvironment(
        unit,
        unit_texts,
        remaining | dict(_parse_command_variables(command_path, wrappers)),
        (
            *(path for path in unread_paths if not _is_absent(file_tree, path, environment_paths)),
            *unit_files.find_unread_drop_ins(file_tree, unit),
            *([_SUDO_POLICY_FILE] if "sudo" in dict(wrappers) else []),
        ),
        frozenset(unset_names),
    )


def build_environment_prefix(placement: Placement, unit: str | None) -> Argv:
    """Return the words that run the command after them with the environment variables of a unit, to
    which the host's own files may refer. Containers contain the variables, and no service manager.
    """
    if placement.adopted is None or placement.unit or not unit:
        return ()
    return ("sh", "-c", _WITH_VARIABLES_SCRIPT, "sh", unit_files.UNIT_RUN_SCRIPT, unit)


def _list_option_words(
    unit_texts: Mapping[str, str], option_name: str
) -> Iterator[tuple[str, list[Word]]]:
    """Yield the file and the words of each occurrence of an option of services."""
    for path, unit_text in unit_texts.items():
        for line in unit_files.parse_directives(unit_text):
            is_option = line.name.text == option_name
            if is_option and line.blocks == ((unit_files.SERVICE_SECTION,),):
                yield path, [unquote_word(word) for word in line.arguments]


def _list_environment_files(file_tree: FileTree, named_path: str) -> tuple[str, ...]:
    """Return the files that `EnvironmentFile=` names by path or pattern, and that were read."""
    path = named_path.lstrip("-")
    if is_pattern(path):
        return file_tree.glob(path)
    return (path,) if file_tree.resolve(path) in file_tree.files else ()


def _is_absent(file_tree: FileTree, path: str, environment_paths: Sequence[str]) -> bool:
    """True if an optional file does not exist. A file that exists is either read, or listed with the
    reason why it was not read.
    """
    is_known = file_tree.resolve(path) in file_tree.unread or file_tree.find_broken_links(path)
    return f"-{path}" in environment_paths and not is_known and not is_pattern(path)


def _parse_environment_file(file_tree: FileTree, path: str) -> dict[str, UnitVariable]:
    """Return the assignments in an environment file. systemd ignores lines that start with `export`."""
    return {
        line["name"]: UnitVariable(
            _CONTINUATION_PATTERN.sub("", line["value"]).strip(" \t\r\"'"),
            path,
            line.start("value"),
        )
        for line in _LINE_PATTERN.finditer(file_tree.read_text_or_empty(path))
    }


def _list_wrappers(file_tree: FileTree, unit: str) -> tuple[str, list[tuple[str, list[Word]]]]:
    """Return the path of the file with a unit's command, and the wrappers at the command's start."""
    exec_start = unit_files.find_exec_start(file_tree, unit)
    return (exec_start[0], list_wrappers(exec_start[1].arguments)) if exec_start else ("", [])


def _parse_command_variables(
    path: str, wrappers: Iterable[tuple[str, list[Word]]]
) -> Iterator[tuple[str, UnitVariable]]:
    """Yield the variables that `env` or `sudo` sets in a command, before the name of the program."""
    for wrapper, arguments in wrappers:
        if wrapper in ASSIGNING_WRAPPERS:
            assigning_words = (word for word in arguments if not word.text.startswith("-"))
            for name, variable in _parse_assignments(path, assigning_words):
                yield name, replace(variable, in_command=True)


def expand_command(file_tree: FileTree, unit: str) -> tuple[str, ...]:
    """Return the words of a unit's command with variables expanded, without wrappers such as `nice`;
    empty if the command was not read.
    """
    arguments_text = " ".join(skip_wrappers(unit_files.list_arguments(file_tree, unit)))
    environment = read_environment(file_tree, unit)
    expanded_text = VARIABLE_PATTERN.sub(
        lambda name: environment.get_value(name[1]), arguments_text
    )
    return tuple(word.strip("\"'") for word in expanded_text.split())


def find_option_values(command_words: Sequence[str], *options: str) -> list[str]:
    """Return the values of any of ``options`` in a command: the next word, or the rest of the word, as
    in `--config=FILE` and `-cFILE`.
    """
    values: list[str] = []
    for word, next_word in pairwise((*command_words, "")):
        long_name, equals_sign, long_value = word.partition("=")
        if word in options:
            values += [next_word] if next_word else []
        elif equals_sign and long_name in options:
            values.append(long_value)
        elif word[:2] in options and not word.startswith("--"):
            values.append(word[2:])
    return values


def _parse_assignments(path: str, words: Iterable[Word]) -> Iterator[tuple[str, UnitVariable]]:
    for word in words:
        variable_name, equals_sign, value_text = word.text.partition("=")
        value = unquote_word(Word(value_text, word.start + len(variable_name) + 1))
        if equals_sign:
            yield variable_name, UnitVariable(value.text, path, value.start)


def list_assignments(content_by_path: Mapping[str, bytes], pattern: str) -> tuple[str, ...]:
    """Return the ``NAME=value`` assignments that match ``pattern`` in a unit's ``content_by_path``, in
    the order of the files.
    """
    environment_lines = (
        line
        for path, content in content_by_path.items()
        if path.startswith(unit_files.UNIT_DIRECTORIES)
        for line in unit_files.parse_directives(config_text.decode(content))
        if line.name.text == "Environment"
    )
    assignments = (unquote_word(word).text for line in environment_lines for word in line.arguments)
    return tuple(word for word in assignments if re.fullmatch(pattern, word))


def build_config(environment: UnitEnvironment, main_file: str) -> Config:
    """Return the files of a unit as a configuration, including the drop-in that tuning may add."""
    return Config(main_file, {environment.drop_in_path: "", **environment.texts})


def tune_variables(
    environment: UnitEnvironment, settings: Iterable[EnvironmentSetting], accepts_value: ValueCheck
) -> AdoptionResult:
    """Return edits that tune variables in the host's own unit files, or else in a drop-in."""
    results: list[AdoptionResult] = []
    assignment_lines, drop_in_values = "", dict[str, Value]()
    sorted_settings = sorted(settings, key=lambda setting: setting.variable)
    for variable_name, variable_settings in groupby(
        sorted_settings, key=lambda setting: setting.variable
    ):
        adoption_result, replacements = _build_replacements(
            environment, variable_name, [*variable_settings], accepts_value
        )
        variable = environment.variables.get(variable_name)
        if variable and unit_files.is_own_file(variable.path, environment.unit):
            values, variable_start = adoption_result.values, variable.position
            replacements += _build_quotes(environment, variable_name, values, replacements)
            edits = (
                Edit(variable.path, variable_start + start, variable_start + replacement_end, text)
                for start, replacement_end, text in replacements
            )
            adoption_result = AdoptionResult(tuple(edits), values, adoption_result.skipped)
        elif replacements:
            value_template = render_edits(environment.get_value(variable_name), replacements)
            assignment_lines += f'Environment="{variable_name}={value_template}"\n'
            drop_in_values |= adoption_result.values
        results.append(adoption_result)
    if drop_in_values:
        drop_in_text = environment.texts.get(environment.drop_in_path, "")
        section_header = "" if drop_in_text else "[Service]\n"
        results.append(
            add_new_file(
                environment.drop_in_path,
                section_header + assignment_lines,
                drop_in_values,
                len(drop_in_text),
            )
        )
    return merge_results(*results)


_Replacements = list[tuple[int, int, str]]


def _build_quotes(
    environment: UnitEnvironment,
    variable_name: str,
    values: Mapping[str, Value],
    replacements: _Replacements,
) -> _Replacements:
    """Return quotes around an assignment in a unit, which are written if an option is added to the value.
    Without quotes, the blank before the option would end the value.
    """
    variable = environment.variables[variable_name]
    value_end = variable.position + len(variable.value)
    next_character = environment.texts.get(variable.path, "")[value_end : value_end + 1]
    change_condition = " or ".join(
        f"{name} != {format_literal(value)}"
        for (name, value), (start, end, _) in zip(values.items(), replacements, strict=True)
        if start == end
    )
    if not change_condition or not variable.value or next_character in ("'", '"'):
        return []
    quote = f'{{{{ \'"\' if {change_condition} else "" }}}}'
    name_start, length = -len(f"{variable_name}="), len(variable.value)
    return [(name_start, name_start, quote), (length, length, quote)]


def _build_replacements(
    environment: UnitEnvironment,
    variable_name: str,
    settings: list[EnvironmentSetting],
    accepts_value: ValueCheck,
) -> tuple[AdoptionResult, _Replacements]:
    """Return the adoption result of a variable's settings, and the replacements in the variable's
    value.
    """
    adoption_result, replacements = AdoptionResult(), _Replacements()
    for setting in settings:
        current_value, replacement = _build_replacement(environment, setting)
        if skip_reason := _find_skip_reason(environment, setting, current_value):
            adoption_result.skipped[setting.parameter] = skip_reason
        elif current_value is None or not accepts_value(setting.parameter, current_value):
            adoption_result.skipped[setting.parameter] = (
                f"`{variable_name}` has no valid baseline value"
            )
        else:
            adoption_result.values[setting.parameter] = current_value
            replacements.append(replacement)
    return adoption_result, replacements


def _build_replacement(
    environment: UnitEnvironment, setting: EnvironmentSetting
) -> tuple[Value | None, tuple[int, int, str]]:
    """Return the current value, and the part of the variable's text that the parameter determines.

    The part consists of a start, an end and the template text.
    """
    variable_text, parameter = environment.get_value(setting.variable), setting.parameter
    option = setting.option.replace("-", "[-_]")  # `-` and `_` are equivalent in names of options
    option_matches = (
        list(re.finditer(rf"(?<!\S){option}=(\d+)(?!\S)", variable_text)) if option else []
    )
    last_match = option_matches[-1] if option_matches else None  # the last match takes effect
    value_start = last_match.start(1) if last_match else 0
    written_value = last_match[1] if last_match else "" if setting.option else variable_text
    if written_value:
        current_value = setting.notation.parse(written_value)
        if current_value is None:
            return None, (0, 0, "")
        length, value_expression = setting.notation.build_replacement(
            parameter, written_value, current_value
        )
        return current_value, (value_start, value_start + length, value_expression)
    if not setting.option:
        default_value = None if setting.variable in environment.variables else setting.default
        return default_value, (0, 0, f"{{{{ {parameter} }}}}")
    separator = " " if variable_text else ""
    option_expression = f'"{separator}{setting.option}=" ~ {parameter}'
    change_condition = f"{parameter} != {format_literal(setting.default or 0)}"
    return setting.default, (
        len(variable_text),
        len(variable_text),
        f'{{{{ {option_expression} if {change_condition} else "" }}}}',
    )


def _explain_value(environment: UnitEnvironment, variable_name: str, variable: UnitVariable) -> str:
    """Return the reason why a variable's value is not edited, or an empty string."""
    if not _PLAIN_TEXT_PATTERN.fullmatch(variable.value):
        return f"`{variable_name}` is not plain text"
    is_own_file = unit_files.is_own_file(variable.path, environment.unit)
    if not is_own_file and find_secrets(f"{variable_name}={variable.value}"):
        return f"`{variable_name}` may contain a secret, which a new drop-in would repeat"
    return ""


def _explain_files(environment: UnitEnvironment, variable_name: str) -> str:
    """Return the reason why a unit's files do not determine a variable, or an empty string."""
    if not environment.texts:  # for example, in a container
        return f"no file of {environment.unit} exists, in which autotune could set it"
    unread_files = environment.unread_files
    return f"{unread_files[0]} was not read, but may set `{variable_name}`" if unread_files else ""


def _find_skip_reason(
    environment: UnitEnvironment, setting: EnvironmentSetting, current_value: Value | None
) -> str:
    variable_name, variable = setting.variable, environment.variables.get(setting.variable)
    if variable_name in environment.unset:
        return f"its unit removes `{variable_name}` with `UnsetEnvironment=`"
    if variable and (variable.in_command or variable.path not in environment.texts):
        source = "its command" if variable.in_command else variable.path
        return f"{source} sets `{variable_name}`: move it to `Environment=` in the unit to tune it"
    if reason := _explain_files(environment, variable_name):
        return reason
    if variable and (reason := _explain_value(environment, variable_name, variable)):
        return reason
    if current_value is None and not (variable and not setting.option):
        return f"`{setting.option or variable_name}` is missing"
    return ""
