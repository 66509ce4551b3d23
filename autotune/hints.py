"""Hints for unknown options and commands.

A hint never suggests another command that generates load.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence

LOAD_COMMANDS = frozenset({"run", "resume", "worker", "measure", "sweep"})
"""Commands that send load to the stack of a target."""
_TARGET_COMMANDS = LOAD_COMMANDS - {"resume"} | {"check", "plan", "params", "apply", "restore"}
_STUDY_COMMANDS = frozenset({"status", "report", "diff", "export", "explain", "resume", "restore"})
_PREVIEW_HINTS = {
    "apply": "without --yes, `autotune apply` shows the changes and asks",
    "restore": "`autotune restore` has no preview; it keeps and lists files that others have changed",
    **dict.fromkeys(LOAD_COMMANDS, "`autotune plan TARGET` shows what a run would do"),
}
_SHORT_FORMS = {
    "dry-run": "n",
    "force": "f",
    "output": "o",
    "quiet": "q",
    "target": "t",
    "verbose": "v",
    "version": "V",
}
_LONG_FORMS = {short: long for long, short in _SHORT_FORMS.items()}

_FALLBACK_HINT = "`autotune {} --help` lists its options"

# Command names known from other programs, with the equivalent command of autotune
_COMMAND_HINTS = {
    "compare": "`autotune diff STUDY` compares two configurations of a study",
    "info": "`autotune report STUDY`",
    "logs": "`autotune status STUDY --watch` follows a study",
    "watch": "`autotune status STUDY --watch`",
    "create": "`autotune init` writes a target",
    "new": "`autotune init` writes a target",
    "help": "`autotune --help`, or `autotune COMMAND --help`",
    "version": "`autotune --version`",
    "list": "`autotune status` lists the studies, `autotune params` the parameters",
    "ls": "`autotune status` lists the studies",
    "rm": "a study is a directory: `autotune restore STUDY`, then `rm -r studies/STUDY`",
    "delete": "a study is a directory: `autotune restore STUDY`, then `rm -r studies/STUDY`",
    "stop": "Ctrl-C or SIGTERM to the running `autotune` stops it and restores the hosts",
    "kill": "Ctrl-C or SIGTERM to the running `autotune` stops it and restores the hosts",
    "start": "`autotune run TARGET`",
    "tune": "`autotune run TARGET`",
    "optimize": "`autotune run TARGET`",
    "validate": "`autotune check TARGET`",
    "test": "`autotune check TARGET`",
    "preview": "`autotune plan TARGET`",
    "show": "`autotune report STUDY`",
    "bench": "`autotune measure TARGET`",
    "benchmark": "`autotune measure TARGET`",
    "deploy": "`autotune apply EXPORT TARGET`",
    "rollback": "`autotune restore STUDY`",
    "undo": "`autotune restore STUDY`",
    "revert": "`autotune restore STUDY`",
}
_LAB_COMMAND_HINTS = {
    **dict.fromkeys(("start", "create", "run"), "`autotune lab up TARGET`"),
    **dict.fromkeys(("stop", "rm", "delete", "destroy", "remove"), "`autotune lab down TARGET`"),
    **dict.fromkeys(("list", "ls", "show"), "`autotune lab status TARGET`"),
    **dict.fromkeys(("shell", "exec", "login"), "`autotune lab ssh TARGET HOST`"),
}
_GROUP_HINTS = {"lab": _LAB_COMMAND_HINTS}
_SET_COMMANDS = frozenset({"run", "check", "plan", "measure", "sweep"})
# Pattern of an extra argument, and its hint with the first group
_EXTRA_ARGUMENT_HINTS = (
    (
        re.compile(r"(?i)((?:re?qs?|requests?)?/(?:s|sec|min)|rps|qps)"),
        "write a number and its unit without a space, such as `1200/s`",
    ),
    (
        re.compile(r"(?i)([um]?s|m|h|min|[kmgt]i?b|%)"),
        "write a number and its unit without a space, such as `10{}`",
    ),
    (re.compile("[–—]+([a-z][a-z-]*)"), "write two hyphens: `--{}`"),
)
_DURATION_PATTERN = re.compile(r"[0-9]+(s|m|min|h)")
_MISSING_PARAMETER_HINTS = {
    "TARGET": "name a target file, such as targets/local.yaml; `autotune init` writes one",
    "STUDY": "name a study; `autotune status` lists the studies",
    "TARGET|STUDY": "name a target file, or a study; `autotune status` lists the studies",
    "EXPORT": "name a directory that `autotune export STUDY --out DIR` wrote",
    "LOG": "name access logs, such as access.log, or `-` for standard input",
    "--out": "name a new directory, such as `--out winner`",
    "--bed": "name test beds of the target, such as `--bed a`, or `--bed all`",
    "--storage": "name the database of the shared study: `--storage URL`",
}


def find_command_hint(command: str, group: str = "") -> str | None:
    """Return the hint for an unknown command of a ``group``, such as `lab`, or ``None``."""
    if group:
        if group == "workload" and "." in command:
            return f"`autotune workload from-log {command}` converts an access log"
        return _GROUP_HINTS.get(group, {}).get(command)
    if "/" in command or command.endswith((".yaml", ".yml")):
        return f"name a command first, such as `autotune check {command}`"
    return _COMMAND_HINTS.get(command)


def find_extra_argument_hint(argument: str, command: str, argument_names: Sequence[str]) -> str:
    """Return the hint for the first extra argument of ``command``, which takes only
    ``argument_names``.
    """
    if "=" in argument and command in _SET_COMMANDS:
        return f"put an option before it: `--set {argument}`"
    for pattern, hint in _EXTRA_ARGUMENT_HINTS:
        if match := pattern.fullmatch(argument):
            return hint.format(match[1])
    if command == "run" and _DURATION_PATTERN.fullmatch(argument):
        return f"put an option before it: `--time {argument}`"
    if command == "init":
        return "`--example NAME` copies an example; `--from HOST,HOST` reads running hosts"
    accepted_names = ", ".join(argument_names) or "no argument"
    return f"`autotune {command}` takes only {accepted_names}; quote a name that contains spaces"


def find_assignment_hint(option: str, name: str, value: str) -> str:
    """Return the hint for a ``value`` after a space, which belongs to the assignment to ``name``."""
    return f"write `{option} {name}={value}`"


def find_missing_parameter_hint(name: str) -> str | None:
    """Return the hint for a missing argument or option, or ``None``."""
    return _MISSING_PARAMETER_HINTS.get(name)


def find_option_hint(option: str, command: str) -> str:
    """Return the hint for an unknown option of ``command``, or of autotune if ``command`` is empty."""
    long_name = _LONG_FORMS.get(option.lstrip("-"), option.lstrip("-"))
    if not command and option in ("-v", "-V"):
        return f"`autotune --version`, or put it after the command: `autotune COMMAND {option}`"
    if not command:
        return f"put it after the command: `autotune COMMAND {option}`"
    return _list_option_hints(command, option).get(long_name, _FALLBACK_HINT.format(command))


def find_other_command_hint(
    option: str, command: str, options_by_command: Mapping[str, Container[str]]
) -> str | None:
    """Return the hint for an option that is nearly one of ``command``, or that only other commands
    accept; ``None`` for other options.
    """
    own_options = options_by_command.get(command, ())
    for near_option in (option.removesuffix("s"), f"{option}s"):
        if near_option in own_options:
            return f"did you mean {near_option}?"
    names = [
        f"`{name}`"
        for name, options in options_by_command.items()
        if option in options and (command in LOAD_COMMANDS or name not in LOAD_COMMANDS)
    ]
    if not names or not option.startswith("--"):
        return None
    return f"only other commands accept {option}: {', '.join(names)}"


def find_single_hyphen_hint(arguments: Iterable[str], options: Container[str]) -> str | None:
    """Return the hint for a long option with only one hyphen among ``arguments``, such as `-trials`."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if len(name) > 2 and f"-{name}" in options:
            return f"write two hyphens: `-{name}`"
    return None


def is_fallback(hint: str) -> bool:
    """True if the hint for an option only refers to `--help`."""
    return hint.endswith(_FALLBACK_HINT.partition("{}")[2])


def _list_option_hints(command: str, option: str) -> dict[str, str]:
    """Return the hints for a command, by unknown option."""
    hints = {
        "yes": f"`autotune {command}` needs no confirmation: omit {option}",
        "quiet": "progress goes to standard error: add `2>/dev/null` for the result only",
        "version": "`autotune --version`",
        "p99": "`slo: {p99: 50ms}` in the target",
        "slo": "`slo: {p99: 50ms}` in the target",
    }
    if command in _PREVIEW_HINTS:
        hints["dry-run"] = _PREVIEW_HINTS[command]
    if command in LOAD_COMMANDS:
        hints["trials"] = "`autotune run TARGET --trials N`, or `budget: {trials: N}` in the target"
        hints["time"] = "`autotune run TARGET --time 15m`, or `budget: {time: 15m}` in the target"
        hints["budget"] = f"{hints['trials']}; {hints['time']}"
        hints["max-rate"] = "`load: {max_rate: 5000/s}` in the target"
    if command in _TARGET_COMMANDS:
        hints["target"] = (
            f"pass the target file as an argument, not as an option: `autotune {command} TARGET`"
        )
    if command in _STUDY_COMMANDS:
        hints["study"] = (
            f"pass the study as an argument, not as an option: `autotune {command} STUDY`"
        )
    if command in ("export", "init"):
        hints["output"] = f"`autotune {command} --out …`"
    if command in ("export", "init", "report", "workload from-log"):
        hints["force"] = "autotune does not replace such files: name another file or directory"
    if command == "resume":
        new_study_hint = (
            f"a study keeps its options; `autotune run TARGET {option} …` starts a new study"
        )
        hints |= dict.fromkeys(("set", "name", "from", "keep"), new_study_hint)
    if command == "report":
        page = "`autotune export STUDY --format …`; `report` accepts --html and --json"
        hints |= {"output": page, "format": page}
    return hints


def build_disk_full_hint(command: str) -> str:
    """Return the hint for a disk that became full while ``command`` ran."""
    retry_hint = (
        "run `autotune resume` or `autotune restore`"
        if command in LOAD_COMMANDS
        else "run the same command again"
    )
    return f"free disk space, then {retry_hint}"
