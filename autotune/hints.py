"""Hints for unknown options and commands.

A hint never suggests another command that generates load.
"""

from __future__ import annotations

LOAD_COMMANDS = frozenset({"run", "resume", "worker", "measure", "sweep"})
"""Commands that send load to the stack of a target."""
_TARGET_COMMANDS = LOAD_COMMANDS - {"resume"} | {"check", "plan", "params", "apply", "restore"}
_STUDY_COMMANDS = frozenset({"status", "report", "diff", "export", "explain", "resume", "restore"})
_PREVIEW_HINTS = {
    "apply": "without --yes, `autotune apply` shows the changes and asks",
    "restore": "`autotune restore` has no preview; it keeps and lists files that others have changed",
    **dict.fromkeys(LOAD_COMMANDS, "`autotune plan TARGET` shows what a run would do"),
}
_SHORT_FORMS = {"dry-run": "n", "quiet": "q", "output": "o", "verbose": "v", "target": "t"}
_LONG_FORMS = {short: long for long, short in _SHORT_FORMS.items()}

_FALLBACK_HINT = "`autotune {} --help` lists its options"

# Command names known from other programs, with the equivalent command of autotune
_COMMAND_HINTS = {
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


def find_command_hint(command: str) -> str | None:
    """Return the hint for a command known from other programs, or ``None``."""
    return _COMMAND_HINTS.get(command)


def find_option_hint(option: str, command: str) -> str:
    """Return the hint for an unknown option of ``command``, or of autotune if ``command`` is empty."""
    long_name = _LONG_FORMS.get(option.lstrip("-"), option.lstrip("-"))
    if not command:
        return f"put it after the command: `autotune COMMAND {option}`"
    return _list_option_hints(command, option).get(long_name, _FALLBACK_HINT.format(command))


def is_fallback(hint: str) -> bool:
    """True if the hint for an option only refers to `--help`."""
    return hint.endswith(_FALLBACK_HINT.partition("{}")[2])


def _list_option_hints(command: str, option: str) -> dict[str, str]:
    """Return the hints for a command, by unknown option."""
    hints = {
        "yes": f"`autotune {command}` needs no confirmation: omit {option}",
        "quiet": "progress goes to standard error: add `2>/dev/null` for the result only",
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
