"""Tune servers whose unit sets options on the command line: a drop-in repeats the command with new
values.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from posixpath import basename, dirname

from autotune.errors import AutotuneError
from autotune.secret_detection import find_secrets
from autotune.services import unit_files
from autotune.services.base import Argv
from autotune.services.config_files import Config, Directive, FileTree, PlacedDirective, Word
from autotune.services.directives import (
    AdoptionResult,
    FilePosition,
    Tunable,
    ValueCheck,
    add_new_file,
    map_directives,
    render_edits,
)

EXEC_START = "ExecStart"
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "su")  # su runs its command in a shell
_PREFIXES = "-@:+!"  # characters before the program in a unit's command, which systemd interprets
# Programs that start the program in their arguments, each with a pattern of the options whose value is
# the next word.
_WRAPPERS = {
    "env": r"-[uC]|--unset|--chdir",
    "nice": r"-n|--adjustment",
    "ionice": r"-[cn]|--class|--classdata",
    "chrt": r"-[TPD]|--sched-(runtime|period|deadline)",
    "taskset": r"",
    "numactl": r"-[imNCp]|--(interleave|membind|cpunodebind|physcpubind|preferred)",
    "setpriv": r"--((re|r|e)[ug]id|groups|(inh|ambient)-caps|bounding-set|securebits|pdeathsig"
    r"|selinux-label|apparmor-profile)",
    "dumb-init": r"-r|--rewrite",
    "tini": r"-[pe]",
    "nohup": r"",
    "setsid": r"",
    "stdbuf": r"-[ioe]|--(input|output|error)",
    "timeout": r"-[ks]|--(kill-after|signal)",
    "runuser": r"-[ugGw]|--(user|group|supp-group|whitelist-environment)",
    "sudo": r"-[ABEHKNPSbikns]*[CDRTUghprtu]|--(close-from|chdir|chroot|command-timeout|other-user"
    r"|group|host|prompt|role|type|user)",
}
ASSIGNING_WRAPPERS = ("env", "sudo")  # programs whose arguments may set variables
# A duration, a priority, a list of CPUs, or a mask of CPUs, which is hexadecimal.
_NUMBER_PATTERN = re.compile(r"[0-9]|[0-9a-f]+$")
_OPTION_PATTERN = re.compile(r"-.")  # a single hyphen is a value: standard input or output
SHELL_REASON = (
    "not tuned, because a shell starts it: start the program directly in ExecStart= to tune it"
)
_REPEATED_TEXT_REASON = "its command may contain a secret, which a new drop-in would repeat"
CommandWords = tuple[Word, ...]
OptionParser = Callable[[CommandWords], Iterable[Directive]]  # parses the words of a command line


def parse_options(
    command_words: CommandWords,
    programs: Collection[str],
    long_names: Mapping[str, str],
    flag_options: Collection[str],
    long_options: Collection[str] = (),
) -> Iterator[Directive]:
    """Yield the program's name (the first of ``programs``), then its options by their long names.

    Commands of other programs yield no directives. ``flag_options`` are options without a value.
    Like the program itself, the parser accepts any unique prefix of one of ``long_options``. If an
    option is unknown, its value is the next word, unless this word is an option.
    """
    remaining_words = deque(map(unquote_word, command_words))
    while remaining_words:
        word = remaining_words.popleft()
        if basename(word.text.lstrip(_PREFIXES)) in programs:
            yield Directive(Word(next(iter(programs)), word.start))
            break
    known_options = {*long_options, *long_names.values()}
    while remaining_words:
        word = remaining_words.popleft()
        option_name, argument = _split_option(word)
        if long_options:
            option_name = expand_prefix(option_name, known_options)
        next_text = remaining_words[0].text if remaining_words else ""
        is_unknown = option_name.startswith("--") and option_name not in known_options
        is_unknown_flag = bool(long_options and is_unknown and _OPTION_PATTERN.match(next_text))
        if (
            option_name in flag_options
            or not option_name.startswith("-")
            or (argument is None and is_unknown_flag)
        ):
            yield Directive(word)
            continue
        if argument is None:
            argument = remaining_words.popleft() if remaining_words else Word("", word.end)
        name = Word(long_names.get(option_name, option_name), word.start)
        yield Directive(name, (unquote_word(argument),))


def _split_option(word: Word) -> tuple[str, Word | None]:
    """Return an option's name and, if the same word contains it, the value: ``--name=value`` or
    ``-nvalue``.
    """
    name, equals_sign, value = word.text.partition("=")
    if not name.startswith("--") and len(name) > 2:
        return name[:2], Word(word.text[2:], word.start + 2)
    return name, Word(value, word.start + len(name) + 1) if equals_sign else None


def expand_prefix(prefix: str, options: Collection[str]) -> str:
    """Return the only long option that starts with ``prefix``, or ``prefix`` itself if there is not
    exactly one.
    """
    matching_options = [option for option in options if option.startswith(prefix)]
    return (
        matching_options[0]
        if prefix.startswith("--") and prefix not in options and len(matching_options) == 1
        else prefix
    )


def starts_shell(words: CommandWords, program: re.Pattern[str]) -> bool:
    """True if a command runs a shell that starts a program whose name ``program`` matches."""
    first_word, *other_words = skip_wrappers(words) or [""]
    shell = basename(first_word.lstrip(_PREFIXES))
    return shell in _SHELLS and any(map(program.search, other_words))


def skip_wrappers(words: CommandWords) -> list[str]:
    """Return the words of a unit's command without the wrappers at its start, such as `env`."""
    wrapper_words = sum(1 + len(arguments) for _, arguments in list_wrappers(words))
    return [unquote_word(word).text for word in words[wrapper_words:]]


def list_wrappers(words: Iterable[Word]) -> list[tuple[str, list[Word]]]:
    """Return the wrappers at the start of a unit's command, such as `env`, each with its arguments.

    The program that they start and its arguments are not included.
    """
    wrappers: list[tuple[str, list[Word]]] = []
    is_option_value = False
    for word in map(unquote_word, words):
        program, arguments = wrappers[-1] if wrappers else ("", [])
        if is_option_value or _is_wrapper_argument(program, word.text):
            is_option = not is_option_value
            is_option_value = is_option and bool(re.fullmatch(_WRAPPERS[program], word.text))
            arguments.append(word)
            continue
        name = basename(word.text if wrappers else word.text.lstrip(_PREFIXES))
        if name not in _WRAPPERS:
            break
        wrappers.append((name, []))
    return wrappers


def _is_wrapper_argument(program: str, text: str) -> bool:
    """True for options, for variables, and for numbers such as a priority or a mask of CPUs."""
    is_variable = program in ASSIGNING_WRAPPERS and "=" in text
    is_number = _NUMBER_PATTERN.match(text) is not None
    return bool(program) and (is_variable or text.startswith("-") or is_number)


def read_unit_command(file_tree: FileTree, unit: str, option_parser: OptionParser) -> Config:
    """Return a configuration with a unit's effective command, its options, and the drop-in that
    tuning may add.
    """
    drop_in_path = unit_files.get_drop_in_path(unit)
    if (exec_start := unit_files.find_exec_start(file_tree, unit)) is None:
        return Config(drop_in_path)
    command_file, command = exec_start
    directives = (command, *option_parser(command.arguments))
    return Config(
        command_file,
        {drop_in_path: "", command_file: file_tree.read_text(command_file)},
        tuple(PlacedDirective(command_file, directive) for directive in directives),
        unit_files.find_unread_drop_ins(file_tree, unit),
    )


def find_command_end(config: Config) -> list[FilePosition]:
    """Return the position after the last word of the unit's command."""
    return [placed_directive.end_position for placed_directive in config.find_all(EXEC_START)[-1:]]


def tune_options(
    config: Config, tunables: Iterable[Tunable], accepts_value: ValueCheck, drop_in_path: str
) -> AdoptionResult:
    """Return edits that tune each option in the command, or append a missing option.

    Units from packages, and files of several units, are not changed. A drop-in repeats the command
    instead.
    """
    adoption_result = map_directives(config, tunables, accepts_value)
    unit = basename(dirname(drop_in_path)).removesuffix(".d")
    if unit_files.is_own_file(config.main_file, unit):
        return adoption_result
    command = config.find_all(EXEC_START)[-1]
    command_start, command_end = command.directive.arguments[0].start, command.end_position[1]
    command_text = config.texts[config.main_file][command_start:command_end]
    if find_secrets(command_text):
        secret_reasons = dict.fromkeys(adoption_result.values, _REPEATED_TEXT_REASON)
        return AdoptionResult(skipped={**adoption_result.skipped, **secret_reasons})
    text_replacements = (
        (edit.start - command_start, edit.end - command_start, edit.text)
        for edit in adoption_result.edits
    )
    command_template = render_edits(command_text, text_replacements)
    drop_in_text = f"[Service]\n{EXEC_START}=\n{EXEC_START}={command_template}\n"
    return replace(
        adoption_result,
        edits=add_new_file(drop_in_path, drop_in_text, adoption_result.values).edits,
    )


def parse_exec_start(unit_text: str) -> Argv:
    """Return the words of the command line in a unit's ``ExecStart``.

    Raises AutotuneError for quotation marks that a shell would read differently.
    """
    exec_start = unit_files.parse_exec_start(unit_text)
    command_text = " ".join(word.text for word in exec_start.arguments) if exec_start else ""
    try:
        command_words = shlex.split(command_text.lstrip(_PREFIXES))
    except ValueError as error:
        raise AutotuneError(
            f"the words of a unit's ExecStart cannot be separated: {error}",
            hint="write its quotation marks as in a shell",
        ) from error
    return tuple(word.replace("%%", "%") for word in command_words)


def unquote_word(word: Word) -> Word:
    is_quoted = len(word.text) > 1 and word.text[0] == word.text[-1] and word.text[0] in "\"'"
    return Word(word.text[1:-1], word.start + 1) if is_quoted else word
