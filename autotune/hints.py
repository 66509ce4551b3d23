"""Hints for unknown options and commands.

A hint never suggests another command that generates load.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

LOAD_COMMANDS = frozenset({"run", "resume", "worker", "measure", "sweep"})
"""Commands that send load to the stack of a target."""
_TARGET_COMMANDS = LOAD_COMMANDS - {"resume"} | {"check", "plan", "params", "apply", "restore"}
_STUDY_COMMANDS = frozenset({"status", "report", "diff", "export", "explain", "resume", "restore"})
# Keys of a target that users write as options, by section
_TARGET_KEYS = {
    "load": ("generator", "path", "url", "vip", "method", "headers", "body", "insecure", "uris"),
    "slo": ("p50", "p90", "p95", "errors"),
    "search": ("sampler", "seed"),
}
_SECTIONS = {key: section for section, keys in _TARGET_KEYS.items() for key in keys}
_READING_COMMANDS = frozenset({"check", "plan", "params", "status", "report", "diff", "schema"})
_PREVIEW_HINTS = {
    "apply": "without --yes, `autotune apply` shows the changes and asks",
    "restore": "`autotune restore` has no preview; it copies and lists files that others have changed",
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
_TARGET_OPTIONS = frozenset({"-c", "-f", "--config", "--file"})
_LONG_FORMS = {short: long for long, short in _SHORT_FORMS.items()}

# Names of options in other programs, with names that autotune may use for the same purpose
_OPTION_SYNONYMS = {
    **dict.fromkeys(("follow", "f", "w"), ("watch",)),
    **dict.fromkeys(
        ("assume-yes", "assumeyes", "no-input", "non-interactive", "noconfirm", "confirm", "force"),
        ("yes",),
    ),
    **dict.fromkeys(("silent", "s"), ("quiet",)),
    **dict.fromkeys(("debug", "d", "detail", "details"), ("verbose",)),
    **dict.fromkeys(("output", "output-dir", "outfile", "dest", "o"), ("out", "html")),
    **dict.fromkeys(("iterations", "max-trials", "n-trials", "evals", "n"), ("trials", "repeat")),
    **dict.fromkeys(("count", "runs", "repeats", "repetitions", "samples"), ("repeat", "trials")),
    **dict.fromkeys(("duration", "timeout", "max-time", "time-limit", "minutes"), ("time",)),
    **dict.fromkeys(
        ("dir", "directory", "studies-dir", "study-dir", "workdir"), ("studies", "dir")
    ),
    **dict.fromkeys(("log", "logfile", "log-path"), ("log-file",)),
    **dict.fromkeys(("metrics", "prometheus", "port"), ("metrics-port", "metrics-file")),
    **dict.fromkeys(("param", "params", "parameter", "define", "override", "fix", "D"), ("set",)),
    **dict.fromkeys(("rps", "qps", "throughput", "load"), ("rate", "at", "at-least")),
    **dict.fromkeys(("browser", "show", "web"), ("open",)),
    **dict.fromkeys(("clients", "connections", "c"), ("concurrency",)),
    **dict.fromkeys(("min", "minimum", "threshold", "slo-rate"), ("at-least",)),
    **dict.fromkeys(("baseline", "compare", "versus", "vs"), ("against",)),
    **dict.fromkeys(("export", "settings", "configuration"), ("config",)),
    **dict.fromkeys(("grid", "vary", "range"), ("over",)),
    **dict.fromkeys(("capacity", "max"), ("peak",)),
    **dict.fromkeys(("db", "database", "url"), ("storage",)),
    **dict.fromkeys(("template", "type", "kind"), ("example", "format")),
    **dict.fromkeys(("host", "hosts", "inventory"), ("from", "hosts")),
    **dict.fromkeys(("fail", "ci", "error-exitcode"), ("exit-code",)),
    **dict.fromkeys(("ignore", "skip", "filter"), ("exclude",)),
    **dict.fromkeys(("warm-start", "resume-from", "seed-from", "start-from"), ("from",)),
    **dict.fromkeys(("simulated", "model", "allow-simulated"), ("of-a-model",)),
}

_FALLBACK_HINT = "`autotune {} --help` lists its options"

_REPORT_HINT = "`autotune report STUDY`"
_FOLLOW_HINT = "`autotune status STUDY --watch` follows a study"
_LIST_HINT = "`autotune status` lists the studies"
_DELETE_HINT = "a study is a directory: `autotune restore STUDY`, then `rm -r studies/STUDY`"
_STOP_HINT = "Ctrl-C or SIGTERM to the running `autotune` stops it and restores the hosts"
_FIRST_WORD_HINT = "omit {command!r}: the command follows `autotune`, such as `autotune status`"
# Command names known from other programs, with the equivalent command of autotune
_COMMAND_HINTS = {
    "compare": "`autotune diff STUDY` compares two configurations of a study",
    **dict.fromkeys(
        (
            "info",
            "show",
            "inspect",
            "describe",
            "view",
            "result",
            "results",
            "best",
            "verdict",
            "summary",
            "get",
            "open",
            "print",
            "html",
            "csv",
        ),
        _REPORT_HINT,
    ),
    **dict.fromkeys(
        ("logs", "watch", "tail", "follow", "monitor", "top", "progress"), _FOLLOW_HINT
    ),
    **dict.fromkeys(
        ("create", "new", "config", "configure", "setup", "generate", "example", "examples"),
        "`autotune init` writes a target",
    ),
    **dict.fromkeys(
        ("adopt", "discover", "scan", "detect"),
        "`autotune init --from HOST,HOST` writes a target from running hosts",
    ),
    "help": "`autotune --help`, or `autotune COMMAND --help`",
    "version": "`autotune --version`",
    "completion": "`autotune --install-completion`",
    "list": "`autotune status` lists the studies, `autotune params` the parameters",
    **dict.fromkeys(("ls", "studies", "study", "history", "ps", "jobs"), _LIST_HINT),
    **dict.fromkeys(("targets", "target"), "targets are files: `ls targets` lists them"),
    **dict.fromkeys(
        ("parameters", "param", "settings", "services", "catalogue"),
        "`autotune params` lists the parameters of each service",
    ),
    **dict.fromkeys(
        ("rm", "delete", "remove", "clean", "cleanup", "purge", "prune", "destroy"), _DELETE_HINT
    ),
    **dict.fromkeys(("stop", "kill", "cancel", "abort", "pause", "quit", "exit"), _STOP_HINT),
    **dict.fromkeys(
        ("continue", "restart", "retry"), "`autotune resume STUDY` continues an unfinished study"
    ),
    **dict.fromkeys(
        ("start", "tune", "optimize", "optimise", "search", "exec", "execute", "launch"),
        "`autotune run TARGET`",
    ),
    **dict.fromkeys(("validate", "test", "verify", "lint", "doctor"), "`autotune check TARGET`"),
    **dict.fromkeys(("preview", "dry-run", "simulate", "estimate"), "`autotune plan TARGET`"),
    **dict.fromkeys(
        ("bench", "benchmark", "profile", "load", "loadtest", "load-test", "capacity"),
        "`autotune measure TARGET`",
    ),
    "grid": "`autotune sweep TARGET --over NAME=A,B,C`",
    "join": "`autotune worker TARGET` joins a shared study",
    **dict.fromkeys(("analyze", "analyse", "why", "diagnose"), "`autotune explain STUDY`"),
    **dict.fromkeys(("save", "download", "patch", "ansible"), "`autotune export STUDY --out DIR`"),
    **dict.fromkeys(("deploy", "install", "push", "commit"), "`autotune apply EXPORT TARGET`"),
    **dict.fromkeys(
        ("rollback", "roll-back", "undo", "revert", "reset", "recover"), "`autotune restore STUDY`"
    ),
    **dict.fromkeys(("from-log", "import", "convert"), "`autotune workload from-log access.log`"),
    **dict.fromkeys(("up", "down", "ssh", "shell"), "`autotune lab --help`"),
    **dict.fromkeys(("$", "#", "%", ">", "autotune", "sudo"), _FIRST_WORD_HINT),
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
    (re.compile("(?:[–—]|-[–—])[–—-]*([a-z][a-z-]*)"), "write two hyphens: `--{}`"),
    (re.compile("--?([a-z][a-z-]*)"), "omit `--`: all words after it are arguments, not options"),
    (re.compile("(=).*"), "write an option and its value without `=`, or without spaces around it"),
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
            return f"`autotune workload from-log {shlex.quote(command)}` converts an access log"
        return _GROUP_HINTS.get(group, {}).get(command)
    if "/" in command or command.endswith((".yaml", ".yml")):
        return f"name a command first, such as `autotune check {shlex.quote(command)}`"
    hint = _COMMAND_HINTS.get(command.lower())
    return hint and hint.format(command=command)


def find_extra_argument_hint(
    argument: str, command: str, argument_names: Sequence[str], *, is_path: bool = False
) -> str:
    """Return the hint for the first extra argument of ``command``, which takes only
    ``argument_names``. ``is_path`` is true if the argument is a file or a study.
    """
    for pattern, hint in _EXTRA_ARGUMENT_HINTS:
        if match := pattern.fullmatch(argument):
            return hint.format(match[1])
    if "=" in argument and command in _SET_COMMANDS:
        return f"put an option before it: `--set {argument}`"
    if command == "run" and _DURATION_PATTERN.fullmatch(argument):
        return f"put an option before it: `--time {argument}`"
    if command == "init":
        return "`--example NAME` copies an example; `--from HOST,HOST` reads running hosts"
    accepted_names = ", ".join(argument_names) or "no argument"
    advice = f"omit {argument}, or quote a name that contains spaces"
    if is_path and argument_names:
        advice = f"repeat the command for each {argument_names[0]}"
    return f"`autotune {command}` takes only {accepted_names}; {advice}"


def find_assignment_hint(option: str, name: str, value: str) -> str:
    """Return the hint for a ``value`` after a space, which belongs to the assignment to ``name``."""
    return f"write `{option} {name.rstrip('=')}={value}`"


def find_separate_value_hint(
    option: str, values: Sequence[str], argument: str, separator: str
) -> str:
    """Return the hint for an ``argument`` that is one more value of an option. The ``separator`` joins
    the values. If it is empty, the option must be repeated.
    """
    if separator:
        joined_values = separator.join(value.rstrip(",;") for value in (*values, argument))
        return f"write the values without spaces: `{option} {joined_values}`"
    repeated_options = " ".join(f"{option} {value}" for value in (*values, argument))
    return f"repeat the option: `{repeated_options}`"


def find_missing_parameter_hint(name: str) -> str | None:
    """Return the hint for a missing argument or option, or ``None``."""
    return _MISSING_PARAMETER_HINTS.get(name)


def find_option_hint(option: str, command: str) -> str:
    """Return the hint for an unknown option of ``command``, or of autotune if ``command`` is empty."""
    long_name = _LONG_FORMS.get(option.lstrip("-"), option.lstrip("-"))
    if not command and option in ("-v", "-V"):
        return f"`autotune --version`, or put it after the command: `autotune COMMAND {option}`"
    if not command and (option in _TARGET_OPTIONS or long_name == "target"):
        return "name the target after the command, such as `autotune check TARGET`"
    if not command:
        return f"put it after the command: `autotune COMMAND {option}`"
    return _list_option_hints(command, option, long_name).get(
        long_name, _FALLBACK_HINT.format(command)
    )


def find_other_command_hint(
    option: str, command: str, options_by_command: Mapping[str, Container[str]]
) -> str | None:
    """Return the hint for an option that only other commands accept; ``None`` for other options."""
    names = [
        f"`{name}`"
        for name, options in options_by_command.items()
        if option in options and (command in LOAD_COMMANDS or name not in LOAD_COMMANDS)
    ]
    if not names or not option.startswith("--"):
        return None
    return f"only other commands accept {option}: {', '.join(names)}"


def find_near_option_hint(option: str, options: Collection[str]) -> str | None:
    """Return the hint for an option that resembles one of ``options``, or has its purpose in other
    programs. Return ``None`` for other options.
    """
    name = option.lstrip("-")
    near_options = [
        *(o for o in options if o.casefold() in (option.casefold(), f"--{name}".casefold())),
        *(o for o in (f"{option}s", option.removesuffix("s")) if o in options),
    ]
    abbreviated_options = [o for o in options if len(name) > 1 and o.startswith(option.lower())]
    if len(abbreviated_options) == 1:
        near_options += abbreviated_options
    near_options += [
        f"--{known_name}"
        for known_name in _OPTION_SYNONYMS.get(name, ())
        if f"--{known_name}" in options
    ]
    return f"did you mean {near_options[0]}?" if near_options else None


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


def _list_option_hints(command: str, option: str, long_name: str) -> dict[str, str]:
    """Return the hints for a command, by unknown option."""
    hints = _list_general_hints(command, option)
    if command in ("check", "plan"):
        hints["trials"] = "`budget: {trials: N}` in the target"
        hints["time"] = "`budget: {time: 15m}` in the target"
    if command in LOAD_COMMANDS:
        hints["trials"] = "`autotune run TARGET --trials N`, or `budget: {trials: N}` in the target"
        hints["time"] = "`autotune run TARGET --time 15m`, or `budget: {time: 15m}` in the target"
        hints["budget"] = f"{hints['trials']}; {hints['time']}"
        hints["max-rate"] = "`load: {max_rate: 5000/s}` in the target"
    if command in _TARGET_COMMANDS:
        hints["target"] = (
            f"pass the target file as an argument, not as an option: `autotune {command} TARGET`"
        )
        if long_name in _SECTIONS:
            hints[long_name] = f"`{_SECTIONS[long_name]}: {{{long_name}: …}}` in the target"
        if option in _TARGET_OPTIONS:
            hints[long_name] = hints["target"]
    if command in _STUDY_COMMANDS:
        hints["study"] = (
            f"pass the study as an argument, not as an option: `autotune {command} STUDY`"
        )
    return hints


def _list_general_hints(command: str, option: str) -> dict[str, str]:
    """Return the hints that differ little between commands, by unknown option."""
    hints = {
        "yes": f"`autotune {command}` needs no confirmation: omit {option}",
        "quiet": "progress goes to standard error: add `2>/dev/null` for the result only",
        "verbose": f"`autotune {command}` always prints everything: omit {option}",
        "all": f"name one study or target: `autotune {command}` has no {option}",
        "version": "`autotune --version`",
        "p99": "`slo: {p99: 50ms}` in the target",
        "slo": "`slo: {p99: 50ms}` in the target",
    }
    if command in _PREVIEW_HINTS:
        hints["dry-run"] = _PREVIEW_HINTS[command]
    elif command in _READING_COMMANDS:
        hints["dry-run"] = f"`autotune {command}` changes no host: omit {option}"
    if command in ("status", "params"):
        hints["all"] = f"without an argument, `autotune {command}` lists all: omit {option}"
    if command in ("export", "init"):
        hints["output"] = f"`autotune {command} --out …`"
    if command in ("export", "init", "report", "workload from-log"):
        hints["force"] = "autotune does not replace such files: name another file or directory"
    if command == "resume":
        new_study_hint = (
            f"a study keeps its options; `autotune run TARGET {option} …` starts a new study"
        )
        hints |= dict.fromkeys(("set", "name", "from"), new_study_hint)
    if command == "explain":
        limit = "`--maximum N` limits the number of measurements to N, at least 10"
        hints |= dict.fromkeys(("repeat", "repeats", "trials", "time", "budget", "rate"), limit)
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
