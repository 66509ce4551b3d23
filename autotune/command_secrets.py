"""Secrets in commands: options and arguments with which known programs take a credential.

Commands occur in units, Compose files, health checks and archive commands. An option such as ``-a`` is a
secret for one program and a switch for another, so each program has its own options. Options whose names
tell that they take a secret, such as ``--password``, belong to `secret_detection`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Between two words of a command: blanks, a continued line, or the punctuation of a list in JSON or YAML.
_GAP = r"""(?:["']?,?(?:[ \t]|\\\n)+|["']?\n[ \t]*-[ \t]+)"""
_ARGUMENT = r"""["']?[^\s"',;|&]{1,200}"""
_VALUE = (
    r"""(?:(?P<quote>["'])(?P<in>(?:\\.|(?!(?P=quote))[^\\\n]){1,400})(?P=quote)"""
    r"""|\\(?P<escaped_quote>["'])(?P<escaped>[^\\"'\n]{1,400})\\(?P=escaped_quote)"""
    r"""|(?P<bare>[^\s"'\\;|&)]+))"""
)
_PROGRAM_PATTERN = re.compile(r"(?<![\w.-])\w[\w.-]{1,24}(?=[\s\"'])")
# The rest of a command, with continued lines and the items of a YAML list.
_COMMAND_PATTERN = re.compile(r"(?:[^\n\\]|\\.|\\\n|\n[ \t]*-[ \t])*")
_COMMAND_OUTPUT_STARTS = ("$(", "`", "%(")


@dataclass(frozen=True)
class _Credential:
    """A credential in a program's command: its pattern, and the character before the secret in the
    value, such as the ":" in ``user:password``.
    """

    pattern: re.Pattern[str]
    separator: str = ""


def _after_option(options: str, separator: str = "", *, is_attached: bool = False) -> _Credential:
    """Return the credential in the word after an option. With ``is_attached``, the credential may also
    follow in the same word.
    """
    link = f"(?:{_GAP}|=?)" if is_attached else _GAP
    return _Credential(re.compile(rf"(?<=[\s\"'])(?:{options}){link}{_VALUE}"), separator)


def _within_option(options: str) -> _Credential:
    """Return the credential that follows an option in the same word."""
    return _Credential(re.compile(rf"(?<=[\s\"'])(?:{options})(?![\s,\"']*[\s,]){_VALUE}"))


def _after_words(*words: str, argument_count: int = 0) -> _Credential:
    """Return the credential after ``words`` and a number of other arguments."""
    skipped_arguments = f"(?:{_ARGUMENT}{_GAP}){{{argument_count}}}"
    command = _GAP.join(words)
    return _Credential(
        re.compile(rf"(?<=[\s\"'])(?:{command}){_GAP}{skipped_arguments}(?!-){_VALUE}")
    )


# Switches of htpasswd with `-b`. The lookahead keeps the time linear in the length of a word.
_BATCH_SWITCH = "-(?=[a-zA-Z]*b)[a-zA-Z]+"
_MYSQL_TOOLS = ("admin", "dump", "check", "import", "show", "slap", "binlog", "pump")
_CREDENTIALS_BY_PROGRAMS: dict[tuple[str, ...], tuple[_Credential, ...]] = {
    ("curl",): (
        _after_option(
            r"-[fgiIjkLnNqsSvZ#0-46]*[uUE]|--(?:proxy-)?(?:user|cert)(?![\w-])",
            ":",
            is_attached=True,
        ),
    ),
    ("wget",): (_after_option(r"--(?:\w+-)?user(?![\w-])", ":", is_attached=True),),
    ("http", "https", "xh", "hey"): (_after_option(r"-a|--auth(?![\w-])", ":", is_attached=True),),
    ("ab",): (_after_option("-[AP]", ":", is_attached=True),),
    ("etcdctl",): (_after_option(r"--user(?![\w-])", ":", is_attached=True),),
    ("lftp", "ncftpget", "ncftpput"): (_after_option("-u", ",", is_attached=True),),
    ("smbclient", "rpcclient", "smbget"): (_after_option("-U", "%", is_attached=True),),
    (
        *("mysql", "mariadb", "mydumper", "myloader", "xtrabackup", "mariabackup"),
        *(f"mysql{tool}" for tool in _MYSQL_TOOLS),
        *(f"mariadb-{tool}" for tool in _MYSQL_TOOLS),
    ): (_within_option("-p"),),
    ("7z", "7za", "7zr", "7zz", "rar", "unrar"): (_within_option("-p"),),
    ("redis-cli", "valkey-cli", "keydb-cli"): (
        _after_option("-a"),
        _after_words("(?i:auth)", argument_count=1),
        _after_words("(?i:auth|requirepass|masterauth|primaryauth)"),
    ),
    (
        *("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport"),
        *("mongostat", "mongotop", "cqlsh"),
    ): (_after_option("-p", is_attached=True),),
    ("sshpass",): (_after_option("-p", is_attached=True),),
    ("docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "az"): (
        _Credential(
            re.compile(rf"(?<![\w-])login\b[^\n;|&]{{0,400}}?[\s\"']-p(?:{_GAP}|=?){_VALUE}")
        ),
    ),
    ("mc", "mcli"): (
        _after_words("alias", "set", argument_count=3),
        _after_words("config", "host", "add", argument_count=3),
        _after_words("admin", "user", "add", argument_count=2),
    ),
    ("rabbitmqctl",): (
        _after_words("(?:add_user|change_password|authenticate_user)", argument_count=1),
    ),
    ("vault",): (_after_words("login"),),
    ("htpasswd",): (
        _after_words(_BATCH_SWITCH, argument_count=2),
        _after_words(_BATCH_SWITCH, argument_count=1),
    ),
    (
        *("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami", "ldapcompare"),
        "ldapmodrdn",
    ): (_after_option("-w", is_attached=True),),
    ("ldappasswd",): (_after_option("-[was]", is_attached=True),),
    (
        *("snmpget", "snmpwalk", "snmpbulkwalk", "snmpset", "snmpgetnext", "snmptrap"),
        "snmpstatus",
    ): (_after_option("-[AXc]", is_attached=True),),
    (
        *("ipmitool", "mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "sqlcmd", "bcp"),
        *("zip", "unzip"),
    ): (_after_option("-P", is_attached=True),),
    ("openssl",): (_after_option("-k|-K|-pass(?:in|out)"),),
}
_CREDENTIALS = {
    name: credentials for names, credentials in _CREDENTIALS_BY_PROGRAMS.items() for name in names
}


def find_credentials(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each credential in a command."""
    program_matches = [m for m in _PROGRAM_PATTERN.finditer(text) if m[0] in _CREDENTIALS]
    next_starts = [*(match.start() for match in program_matches), len(text)][1:]
    for program_match, next_start in zip(program_matches, next_starts, strict=False):
        command_match = _COMMAND_PATTERN.match(text, program_match.end(), next_start)
        command_end = command_match.end() if command_match else next_start
        for credential in _CREDENTIALS[program_match[0]]:
            for match in credential.pattern.finditer(text, program_match.end(), command_end):
                yield from _find_secret_part(match, credential.separator)


def _find_secret_part(match: re.Match[str], separator: str) -> Iterator[tuple[int, int]]:
    """Yield the part of a value after the separator, unless the output of a command replaces it."""
    group = next(name for name in ("in", "escaped", "bare") if match[name] is not None)
    start, end = match.span(group)
    if separator:
        start += match[group].find(separator) + 1
    has_part = match.span(group)[0] < start or not separator
    if has_part and not match.string.startswith(_COMMAND_OUTPUT_STARTS, start):
        yield start, end
