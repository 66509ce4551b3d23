"""Detection of secrets in any text: by name, by position, by randomness, and in commands.

`masking` masks the secrets that this module finds. In files with a known syntax, `masking` also masks
unknown words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from autotune.command_secrets import find_credentials

_NAME_REGEX = r"""(?x: passw|passphrase|secret|requirepass|masterauth|credential|private.?key
    | (?:api|app|access|auth|account|encryption|signing|session|shared|license
        |purge|cookie).?key(?![a-z]) | filekey(?![a-z])
    | tokens?(?![a-z]) | jwt(?![a-z]) | (?<![a-z])(?:pass|pwd?|auth|dsn|authorization|sign)(?![a-z])
    | (?:db|mysql|pg|user|login|smtp|ldap|ftp)(?:pass|pwd?)(?![a-z]) | database_url )"""
# Names that contain a word such as "token" but are not names of secrets.
_ORDINARY_NAME_PATTERN = re.compile(
    r"(?i)_tokens$|servertokens|(?:file|path|dir|directory|zone|header|timeout|length|size|ttl|type"
    r"|algo|policy|cookie|lifetime|mode|method)s?$|^(?:proxy|\w{1,5}gi|grpc|memc\w+)_pass(?:_|$)"
    r"|^(?:password_encryption$|proxypass|passenv|auth_(?:basic|request|delay)|ssl_|loadcredential)"
)
_SECRET_NAME_PATTERN = re.compile(_NAME_REGEX, re.IGNORECASE)
# Directives that set a variable or header: one of the first arguments is its name, and the value follows.
_SETTER_PATTERN = re.compile(
    r"(?i)\w{1,5}gi_param|(?:proxy|grpc|more)_set_(?:input_)?headers?|set|env|setenv"
    r"|add_header|more_set_headers|(?:request)?header|http-(?:request|response)|define|user"
    r"|setenvif(?:nocase)?|php_(?:admin_)?(?:value|flag)|secure_link_md5|sentinel"
)
_VALUE_REGEX = (
    r"""(?P<quote>["'])(?P<in>(?:\\.|(?!(?P=quote))[^\\\n]){0,400})(?P=quote)"""
    r"""|(?P<bare>[^\s;"',)}&]+)"""
)
_WORD_PATTERN = re.compile(_VALUE_REGEX)
_MAX_DIRECTIVE_WORDS = 5  # the name of a directive, three other arguments, and the value
_INDENT_PATTERN = re.compile(r"[ \t]*(?P<comment>[#;]+[ \t]*)?")
_COMMENT_PATTERN = re.compile(r"[ \t]*[#;]")
# An assignment from the part of its name that suggests a secret. Nothing after the name matches a
# character of the name, so possessive repetitions find the same assignments in fewer steps.
_ASSIGNMENT_PATTERN = re.compile(
    r"(?i)(?P<name>"
    + _NAME_REGEX
    + r"""[\w.-]{0,40}+)["']?(?:\]|%5D)?[ \t]*+"""  # in a URL, %5D stands for a bracket
    r"""(?:!?==?~?\*?|%3D|(?P<pattern>!?~\*?)|(?<=["']),(?=[ \t]*["'])"""
    r"""|(?P<sign>:)(?:[ \t]|(?<=["']:)(?=["'])))[ \t]*(?:""" + _VALUE_REGEX + ")"
)
_MAX_PREFIX_LENGTH = 40  # characters of a name before the part that suggests a secret
_NAME_BOUNDARY_PATTERN = re.compile(r"[^\w.\[-]")
# Values that are patterns to compare with, such as regular expressions, and therefore not secrets.
_REGEX_VALUE_PATTERN = re.compile(r"[\[\](){}*+?|\\]|\^?(?i:basic|bearer)")
# HAProxy: values with which headers, parameters or cookies are compared, and values of variables
_COMPARISON_PATTERN = re.compile(
    r"(?:\{|\bacl[ \t]+\S{1,80})[ \t]+[\w.]{1,40}\((?P<name>[\w.-]{1,80})[^)\n]{0,40}\)"
    r"(?:[ \t]+-(?:m[ \t]+\w+|[^\Wm]))*[ \t]+(?P<value>(?!-)[^\s\"'{}]+)"
)
_SET_VARIABLE_PATTERN = re.compile(
    r"set-var\((?P<name>[\w.-]{1,80})\)[ \t]+str\((?P<value>[^)\n]+)\)"
)
_CRYPT_HASH_PATTERN = re.compile(r"\$(?:apr1|2[abxy]|[156y])\$[\w./$=,+-]{8,}")
# Patterns of secrets in any position. The group of each pattern is the secret. Repetitions that can start
# anywhere are bounded, because a scan of a host's file must not take minutes.
_SECRET_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))",
        r"\w://[^\s/:@\"']*:([^\s/@\"']+)@",
        (
            r"(?i:\b(?:basic|bearer|apikey|token)[ \t]+)"
            r"((?=[\w+/.~-]*(?:[0-9]|[a-z][A-Z]))[\w+/.~-]{6,}={0,2})(?![\w=])"
        ),
        r"(?m)^[ \t]*stats[ \t]+auth[ \t]+[^\s:]+:(\S+)",
        r"(?m)^(?![ \t]*[#;])[^\n]*[ \t](?:--?|insecure-)?password[ \t]+([^\s\"']+)",
        r"(?i)[ \t]--?[\w-]{0,40}" + _NAME_REGEX + r"[\w-]{0,40}[ \t]+([^\s\"'-][^\s\"']*)",
        r"(?i)[ \t]--?[\w-]{0,40}" + _NAME_REGEX + r"[\w-]{0,40}[ \t]+\"([^\"\n]{1,400})\"",
        r"(?i)[ \t]--?[\w-]{0,40}" + _NAME_REGEX + r"[\w-]{0,40}[ \t]+'([^'\n]{1,400})'",
        (
            # An option and its value as two items of a YAML list
            r"(?i)-[ \t]+[\"']?--?[\w-]{0,40}" + _NAME_REGEX + r"[\w-]{0,40}[\"']?[ \t]*"
            r"\n[ \t]*-[ \t]+[\"']?([^\s\"'-][^\s\"']*)"
        ),
        r"(?m)^[ \t]*user[ \t][^\n]*?[ \t][>#](\S+)",
        # Quotes are doubled within an SQL string.
        r"(?i)\bpassword[ \t]*=[ \t]*(?:''|\\')([^'\\\s]+)",
        r"(?i)\b(?:identified[ \t]+by(?:[ \t]+password)?|password[ \t]*\()[ \t]*[\"']([^\"'\n]+)",
        r"passphrase_command[ \t]*=?[ \t]*'[\w/]{0,40}(?:echo|printf)[ \t]+([^'\n]+)",
        r"\bAUTH(?:\\ | )([^\s\\\"']+)(?=\\r)",
        r"(?i)\bhmac\w{0,20}\([ \t]*[\"']([^\"'\n]+)",
        r"(?m)^[ \t]*sentinel[ \t]+auth-pass[ \t]+\S+[ \t]+(\S+)",
        f"({_CRYPT_HASH_PATTERN.pattern})",
        (r"\b(AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|xox[abp]-[\w-]{10,}|sk_(?:live|test)_\w+)"),
        # A JSON web token; the lookahead rejects a word without a dot in one step.
        r"(?<![\w-])(?=[\w-]{11,}+\.)[\w-]*?\b(eyJ[\w-]{8,}\.[\w.-]+)",
    )
)
_RANDOM_WORD_PATTERN = re.compile(r"(?<![\w/.$@+-])[A-Za-z0-9+/_-]{24,}={0,2}(?![\w.])")
# digests of public content, such as a container image
_PUBLIC_DIGEST_PATTERN = re.compile(r"sha(?:256|384|512)-|@sha256:|pin-sha256=")
_SWITCH_WORD_PATTERN = re.compile(
    r"(?i)on|off|yes|no|true|false|null|none|default|auto|optional|required|set|unset|append|add"
    r"|merge|edit|always|echo|allow|deny|any|all|prod|user|basic|digest|realm"
)
# Expressions in configuration languages: VCL variables, and Python and HAProxy expressions.
_EXPRESSION_PATTERN = re.compile(
    r"(?:(?:be)?re(?:q|sp)|obj|client|server)\.[\w.-]+|(?:regsub(?:all)?|std\.\w+|os\.\w+|getenv)[\[(].*|%\[.*"
)
_VARIABLE_PATTERN = re.compile(r"\$\{?\w+\}?|%[\[{][^\]}]{0,80}[\]}]\w?|\{\{.{0,80}?\}\}")

# Every secret in a component of a URL's path or query, in lower case, contains a match of this pattern.
# The pattern is several times faster than the patterns of secrets.
_POSSIBLE_SECRET_PATTERN = re.compile(
    r"pass|secret|master|credential|private|key|token|jwt|pw|auth|dsn|sign|database_url|hmac"
    r"|akia|gh[pousr]_|xox|sk_|eyj|\$|[^!-~]|[\"']|[a-z0-9+_-]{24}"
)

PLACEHOLDER_PATTERN = re.compile(r"autotune-masked-[0-9]+-of-[0-9]+")


def find_secrets(text: str) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each secret in a text, in order, without overlaps."""
    secrets: list[tuple[int, int]] = []
    for start, end in sorted({*_find_candidates(text)}, key=lambda span: (span[0], -span[1])):
        if not secrets or start >= secrets[-1][1]:
            secrets.append((start, end))
    return tuple(secrets)


def may_contain_secret(text: str) -> bool:
    """True if a component of a URL may contain a secret. The check is much faster than
    ``find_secrets``.
    """
    return _POSSIBLE_SECRET_PATTERN.search(text.lower()) is not None


def is_secret_assignment(name: str, value: str) -> bool:
    """True if ``name`` is the name of a secret and ``value`` may be a secret."""
    return _is_secret_name(name) and _is_secret(value)


def _find_candidates(text: str) -> Iterator[tuple[int, int]]:
    for pattern in _SECRET_PATTERNS:
        yield from (match.span(1) for match in pattern.finditer(text) if _is_secret(match[1]))
    yield from (span for span in find_credentials(text) if _is_secret(text[slice(*span)]))
    yield from _find_assigned_secrets(text)
    for match in (
        match
        for pattern in (_COMPARISON_PATTERN, _SET_VARIABLE_PATTERN)
        for match in pattern.finditer(text)
    ):
        if _is_secret_name(match["name"]) and _is_secret(match["value"]):
            yield match.span("value")
    for line in re.finditer(r"[^\n]+", text):
        yield from _find_in_directive(text, line.start(), line.end())
    for match in _RANDOM_WORD_PATTERN.finditer(text):
        preceding_text = text[max(0, match.start() - 12) : match.start()]
        if _is_random(match[0]) and not _PUBLIC_DIGEST_PATTERN.search(preceding_text + match[0]):
            yield match.span()


def _find_assigned_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the value of each assignment whose name suggests a secret."""
    line_start = assignment_end = 0
    for name, match in _find_assignments(text):
        line_start = max(line_start, text.rfind("\n", assignment_end, match.start()) + 1)
        assignment_end = match.end()
        value_group = "in" if match["in"] is not None else "bare"
        is_prose = match["sign"] == ":" and _COMMENT_PATTERN.match(text, line_start)
        is_comparison = match["pattern"] and _REGEX_VALUE_PATTERN.search(match[value_group])
        is_ordinary = is_prose or is_comparison or _ORDINARY_NAME_PATTERN.search(name)
        if not is_ordinary and _is_secret(match[value_group]):
            yield match.span(value_group)


def _find_assignments(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each assignment whose name suggests a secret, with the name."""
    assignment_end = 0
    for assignment_match in _ASSIGNMENT_PATTERN.finditer(text):
        prefix_start = max(assignment_end, assignment_match.start() - _MAX_PREFIX_LENGTH)
        prefix = _NAME_BOUNDARY_PATTERN.split(text[prefix_start : assignment_match.start()])[-1]
        yield prefix + assignment_match["name"], assignment_match
        assignment_end = assignment_match.end()


def _find_in_directive(text: str, line_start: int, line_end: int) -> Iterator[tuple[int, int]]:
    """Yield the value of a directive, or of a variable or header that it sets, if its name suggests
    a secret.
    """
    body = _INDENT_PATTERN.match(text, line_start, line_end)
    assert body is not None
    all_words = _WORD_PATTERN.finditer(text, body.end(), line_end)
    # A line of quotes may contain many words, and each of them takes hundreds of steps.
    words = [*islice((match for match in all_words if match[0] != "="), _MAX_DIRECTIVE_WORDS)]
    names = [match["in"] or match["bare"] or "" for match in words]
    if len(words) < 2 or (body["comment"] and (len(words) > 2 or not _is_secret_name(names[0]))):
        return
    max_index = _MAX_DIRECTIVE_WORDS - 1 if _SETTER_PATTERN.fullmatch(names[0].lstrip("@")) else 1
    for index, name in enumerate(names[: min(max_index, len(words) - 1)]):
        value_match = words[index + 1]
        if _is_secret_name(name) and not names[index + 1].startswith("="):
            value_group = "in" if value_match["in"] is not None else "bare"
            if _is_secret(value_match[value_group]) and not (
                index == 0 and value_match[value_group].startswith("/")
            ):
                yield value_match.span(value_group)
            return


def _is_secret_name(name: str) -> bool:
    if name == "secure_link_md5":
        return True
    word_match = re.fullmatch(r"\$?[\w.\[\]-]+:?", name)
    return bool(
        word_match and _SECRET_NAME_PATTERN.search(name) and not _ORDINARY_NAME_PATTERN.search(name)
    )


def _is_secret(value: str) -> bool:
    """True unless the value is a variable, a path, a number, a switch or a placeholder."""
    bare_value = (
        value
        if _CRYPT_HASH_PATTERN.match(value)
        else _VARIABLE_PATTERN.sub("", value).strip(" \"'")
    )
    plain_match = re.fullmatch(r"(?i)(?:basic|bearer|token|apikey|negotiate)?[\W_]*", bare_value)
    path_match = re.fullmatch(r"(?i)(?:file:|exec:|unix:|/[\w.-]+/|<).*", bare_value)
    number_match = re.fullmatch(r"[0-9]{1,5}[kKmMsdh]?|[0-9.]+r/[sm]", bare_value)
    switch_match = _SWITCH_WORD_PATTERN.fullmatch(bare_value)
    is_ordinary = (
        plain_match
        or path_match
        or number_match
        or switch_match
        or _EXPRESSION_PATTERN.fullmatch(value)
    )
    return not (is_ordinary or PLACEHOLDER_PATTERN.search(value))


def _is_random(word: str) -> bool:
    """True if a word looks like a random key, not like a name."""
    if word.startswith("autotune-masked-"):
        return False
    if re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", word):
        return True
    character_kind_count = sum(bool(re.search(kind, word)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    character_counts = Counter(word)
    entropy = -sum(n / len(word) * math.log2(n / len(word)) for n in character_counts.values())
    longest_length = max(len(piece) for piece in re.split("[-_/]", word))
    return (
        character_kind_count == 3
        and entropy >= 4.0
        and longest_length >= 12
        and len(re.findall("[0-9]", word)) >= 2
    )
