"""A YAML file with the line and column of each node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import foreign_files
from autotune.errors import USAGE_EXIT_CODE, TargetError
from autotune.foreign_files import ForeignFileError
from autotune.target.messages import format_value, suggest_name
from autotune.target.path_hints import (
    START_HINT,
    find_directory_hint,
    find_missing_file_hint,
)

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError, StreamMark
    from ruamel.yaml.nodes import MappingNode, Node

Location = Sequence[str | int]
LineColumn = tuple[int, int]


MAX_VALUES = 20_000  # maximum number of values, because nested aliases grow exponentially
MAX_MERGES = 1000  # maximum number of merges, because nested merges multiply
MAX_DEPTH = 20
MAX_OPEN_BRACKETS = 100  # the parser's time grows with the square of this number
SET_HINT = "`autotune params` lists the valid values"
CORE_TAG_PREFIX = "tag:yaml.org,2002:"
# Pattern in the parser's message, message, hint. The first matching pattern is used.
YAML_ERROR_TEXTS: tuple[tuple[str, str, str | None], ...] = (
    (r"character '\\t'", "a tab instead of spaces", "indent with spaces"),
    (
        r"character '(?P<it>.)' that cannot start",
        "a value cannot start with '{it}'",
        "put it in quotes",
    ),
    (
        r"mapping values are not allowed",
        "an unexpected ':'",
        "check the indentation, put several keys on one line in braces, or quote text that contains ': '",
    ),
    (
        r"expected <block end>, but found '-'",
        "an item of a list between keys",
        "remove the '- ', or indent the item below its key",
    ),
    (
        r"expected <block end>, but found '(?P<it>[]}])'",
        "a '{it}' without its opening bracket",
        "remove it, or quote text that contains it",
    ),
    (
        r"expected <block end>",
        "indented differently from the lines it belongs with",
        "start it in the same column as the keys or items around it",
    ),
    (
        r"expected ',' or '(?P<it>.)'",
        "a ',' or the closing '{it}' is missing",
        "close it, or quote text that contains a bracket, a brace, a ',' or ': '",
    ),
    (
        r"expected the node content",
        "a value is missing before this",
        "give it, or quote text that starts with ':' or ','",
    ),
    (
        r"expected '<document start>'",
        "this does not continue the lines above",
        "write one setting per line, such as `name: shop`",
    ),
    (r"unexpected end of stream", "an unclosed quote", "write the same quote at its end"),
    (
        r"could not find expected ':'",
        "a key without its ':'",
        "write `KEY: VALUE`, and quote text that starts with '*' or '&'",
    ),
    (
        r"undefined alias '(?P<it>.*)'",
        "unknown anchor '*{it}'",
        "define it above: write `&{it}` before its value, or quote text that starts with '*'",
    ),
    (
        r"expected alphabetic or numeric character",
        "'*' and '&' must be followed by the name of an anchor",
        "put text that starts with one of them in quotes",
    ),
    (r"another document", "a second target in the same file", "write one target per file"),
    (r"unknown escape character", "an unknown escape in a quoted text", "use single quotes"),
)
OTHER_VERSION = re.compile(r"^%YAML(?![ \t]+1\.2[ \t]*(?:#.*)?$)", re.MULTILINE)
OVERSIZED_ESCAPE = re.compile(r"\\U(?!000|0010)[0-9A-Fa-f]{8}")
CONFLICT_MARKER = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?:[ \r]|$)", re.MULTILINE)
DIFF_LINE = re.compile(r"^(?:diff --git |@@ -|--- a/|\+\+\+ b/)", re.MULTILINE)
UNQUOTED_VARIABLE = re.compile(r"(?<![\"'\w])\$\{\w+\}")
TEMPLATE_LINE = re.compile(r"^\s*(?:\{%|\{\{-?\s*(?:if|range|with|include|end)\b)")
ALIAS_KEY = re.compile(r"^\s*(\*[^\s:\"']+):(?:\s|$)")
TEMPLATE_HINT = "write the value itself: autotune does not expand templates"
# A mistake in one of these constructs is reported at the start of the construct.
REPORTED_AT_START = ("quoted scalar", "simple key", "flow mapping", "flow sequence")


# A line that may contain a secret is never shown. The line after it is not shown either.
SECRET_LINE_PATTERN = re.compile(
    r"(?i)pass(word|wd|phrase|\b)|secret|token|credential|identity|authorization|bearer|cookie"
    r"|\b(\w*_)?(api|private|ssh)?key(_?file)?[\"']?\s*[:=]|:[^\s@]*@|:\s*[\"']?[A-Za-z_][\w.-]*:[^\s/]"
)
MAX_EXCERPT_WIDTH = 100  # maximum number of characters shown from a line
MAX_SEARCHED_LENGTH = 2000  # longer lines are never shown, because searching them is slow


@dataclass(frozen=True)
class YamlDocument:
    """A YAML file as a tree of plain values, with its path and text.

    ``positions`` maps keys and list items to line and column (from 1). ``origins`` contains the origins
    of values that are not from the file, such as `--set web.nginx.backlog=511`.
    """

    path: Path
    root: dict[str, Any]
    positions: Mapping[tuple[str | int, ...], LineColumn]
    text: str = ""
    origins: Mapping[tuple[str | int, ...], str] = field(default_factory=dict)

    def find_position(self, location: Location) -> LineColumn:
        """Return the line and column (from 1) of the key or item at ``location``. For an absent key or
        item, its nearest parent is used.
        """
        steps = tuple(location)
        while steps and steps not in self.positions:
            steps = steps[:-1]
        return self.positions[steps] if steps else (1, 1)

    def get_value(self, location: Location) -> Any:
        """Return the value at ``location``, which must exist."""
        value: Any = self.root
        for step in location:
            value = value[step]
        return value

    def find_text_before(self, location: Location) -> str:
        """Return the text to the left of the node at ``location``, in the same line."""
        line, column = self.find_position(location)
        return self.text.split("\n")[line - 1][: column - 1].rstrip() if self.text else ""

    def find_text_after(self, location: Location) -> str:
        """Return the text of the node at ``location`` and to its right, in the same line."""
        line, column = self.find_position(location)
        return self.text.split("\n")[line - 1][column - 1 :] if self.text else ""

    def build_error(
        self, location: Location, message: str, *, hint: str | None = None
    ) -> TargetError:
        """Return an error at the position of the node at ``location``."""
        steps = tuple(location)
        for prefix_length in range(len(steps), 0, -1):
            if origin := self.origins.get(steps[:prefix_length]):
                # Messages about options of other kinds contain an example of a valid value.
                default_hint = SET_HINT if origin.startswith("--set ") else None
                error = TargetError(f"{origin}: {message}", hint=hint or default_hint)
                error.exit_code = USAGE_EXIT_CODE
                return error
        return _error_at_position(self.path, self.text, self.find_position(location), message, hint)

    def unknown_name_error(
        self, location: Location, kind: str, valid: Iterable[str], name: str = ""
    ) -> TargetError:
        """Return an error for an unknown name, with the nearest valid name as hint.

        The name is ``name``, or else the key at ``location``.
        """
        name = name or str(location[-1])
        return self.build_error(
            location, f"unknown {kind} {name!r}", hint=suggest_name(name, sorted(valid))
        )


def _error_at_position(
    path: Path, text: str, position: LineColumn, message: str, hint: str | None = None
) -> TargetError:
    line, column = position
    message = f"{path}:{line}:{column}: {message}"
    return TargetError(
        message, hint=hint, position=position, excerpt=_format_excerpt(text, line, column)
    )


def _format_excerpt(text: str, line: int, column: int) -> str:
    """Return the line with a caret below the column. The result is empty if the line, or the line
    before it, may contain a secret.
    """
    from autotune.secret_detection import find_secrets

    nearby_lines = text.split("\n")[max(0, line - 2) : line]
    if not nearby_lines or any(
        len(source_line) > MAX_SEARCHED_LENGTH
        or SECRET_LINE_PATTERN.search(source_line)
        or find_secrets(source_line)
        for source_line in nearby_lines
    ):
        return ""
    start = (
        max(0, column - MAX_EXCERPT_WIDTH // 2) if len(nearby_lines[-1]) > MAX_EXCERPT_WIDTH else 0
    )
    source_line = nearby_lines[-1].expandtabs(1)[start : start + MAX_EXCERPT_WIDTH].rstrip()
    return f"{source_line}\n{' ' * (column - 1 - start)}^" if source_line else ""


def load_yaml(
    path: Path,
    description: str = "a target",
    start_hint: str = START_HINT,
    *,
    foreign: bool = False,
) -> YamlDocument:
    """Read a YAML 1.2 mapping, with the position of each node.

    ``description`` names the expected content in messages, and ``start_hint`` explains how to create
    such a file. With ``foreign``, other users may be able to write to the file's directory, so no link
    is followed. Raises TargetError (file:line:column) if the file is not a mapping, and ForeignFileError.
    """
    # The YAML library also counts a CR as a line end, and positions refer to its lines.
    text = re.sub("\r\n?", "\n", read_text(path, start_hint, foreign=foreign))
    tree_builder = _TreeBuilder(path, text)
    try:
        node = _parse_yaml(path, text)
        root_value = None if node is None else tree_builder.build_value(node, ())
    except RecursionError:
        raise _error_at_position(path, "", (1, 1), "nested too deeply for a target") from None
    if not isinstance(root_value, dict):
        root_description = "an empty file" if root_value is None else format_value(root_value)
        message = f"{description} must be a mapping of settings, not {root_description}"
        raise _error_at_position(path, "", (1, 1), message, start_hint)
    return YamlDocument(path, root_value, tree_builder.places, text)


def read_text(path: Path, start_hint: str = START_HINT, *, foreign: bool = False) -> str:
    """Return the text of a file. Raises TargetError if the file cannot be read or is not text."""
    try:
        content = _read_bytes(path, foreign=foreign)
    except ForeignFileError as error:
        hint = error.hint if foreign else start_hint
        raise TargetError(f"{path}: {error.reason}", hint=hint) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = _find_read_hint(path, error, start_hint)
        raise TargetError(f"{path}: {reason}", hint=hint) from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        location = _format_end_position(error.object[: error.start].decode())
        raise _error_at_position(
            path, "", location, "not UTF-8 text", f"save it as UTF-8; {start_hint}"
        ) from None


def _find_read_hint(path: Path, error: OSError, start_hint: str) -> str | None:
    """Return the hint for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return find_missing_file_hint(path, start_hint)
    if isinstance(error, IsADirectoryError):
        return find_directory_hint(path) if start_hint is START_HINT else start_hint
    if isinstance(error, PermissionError):
        return "make the file readable for this account, or use another account"
    return start_hint if isinstance(error, NotADirectoryError) else None


def _read_bytes(path: Path, *, foreign: bool) -> bytes:
    if foreign:
        return foreign_files.read_bytes(path.parent, path.name, foreign_files.MAX_TARGET_BYTES)
    return foreign_files.read_named_file(path, foreign_files.MAX_TARGET_BYTES)


def _check_text(path: Path, text: str) -> None:
    """Raise TargetError for text of another version of YAML, or with too many open brackets."""
    if match := OTHER_VERSION.search(text):
        location = _format_end_position(text[: match.start()])
        message = "not valid YAML: a version other than 1.2"
        raise _error_at_position(path, text, location, message, "remove this line")
    nesting_depth = 0
    for bracket in re.findall(r"[][{}]", text):
        nesting_depth = max(0, nesting_depth + (1 if bracket in "[{" else -1))
        if nesting_depth > MAX_OPEN_BRACKETS:
            raise _error_at_position(path, "", (1, 1), "nested too deeply for a target")


def _parse_yaml(path: Path, text: str) -> Node | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    _check_text(path, text)
    try:
        # The YAML library only parses nodes. `_TreeBuilder` converts the values of nodes and records
        # positions.
        yaml_parser = YAML(typ="safe", pure=True)
        # A second anchor with the same name is valid. The warning would show lines with secrets.
        yaml_parser.composer.warn_double_anchors = False
        node: Node | None = yaml_parser.compose(text)
    except MarkedYAMLError as error:
        mark, message, hint = explain_yaml_error(error)
        mistake = _find_foreign_line(text, mark.line if mark else 0)
        position, message, hint = mistake or (_find_mark_position(mark), message, hint)
        raise _error_at_position(path, text, position, message, hint) from None
    except ReaderError as error:
        location = _format_end_position(text[: error.position])
        message = f"invalid character (code {error.character})"
        raise _error_at_position(path, "", location, message, "delete it") from None
    except YAMLError as error:
        first_error_line = str(error).split("\n", 1)[0]
        raise _error_at_position(path, "", (1, 1), f"not valid YAML: {first_error_line}") from None
    except (OverflowError, ValueError):  # from `chr`
        escape_match = OVERSIZED_ESCAPE.search(text)
        location = _format_end_position(text[: escape_match.start() if escape_match else 0])
        message = "not valid YAML: an escape that is not a character"
        raise _error_at_position(path, text, location, message, "remove it") from None
    return node


def _find_foreign_line(text: str, line_index: int) -> tuple[LineColumn, str, str] | None:
    """Return the position of a line of another format, the message and the hint. The line with the
    YAML error is ``line_index``.
    """
    for pattern, message, hint in (
        (
            CONFLICT_MARKER,
            "a merge conflict marker",
            "keep one of the versions, and delete the markers",
        ),
        (DIFF_LINE, "a line of a diff", "apply the diff with `patch` or `git apply`"),
    ):
        if match := pattern.search(text):
            return _format_end_position(text[: match.start()]), f"not valid YAML: {message}", hint
    lines = text.split("\n")
    for index in (line_index, line_index - 1):
        line = lines[index] if 0 <= index < len(lines) else ""
        if TEMPLATE_LINE.match(line):
            column = len(line) - len(line.lstrip()) + 1
            hint = "write the result: autotune does not expand templates"
            return (index + 1, column), "not valid YAML: a line of a template", hint
        if match := ALIAS_KEY.search(line):
            message = "not valid YAML: a name that starts with '*' needs quotes"
            return (index + 1, match.start(1) + 1), message, f'write `"{match[1]}": …`'
        if match := UNQUOTED_VARIABLE.search(line):
            message = "not valid YAML: a variable without quotes"
            hint = 'write its value: only `load: {headers: …}` reads variables, as "${NAME}"'
            return (index + 1, match.start() + 1), message, hint
    return None


def explain_yaml_error(error: MarkedYAMLError) -> tuple[StreamMark | None, str, str | None]:
    """Return the position of a mistake, the message and the hint."""
    problem, context = error.problem or "", error.context or ""
    position_mark = error.problem_mark or error.context_mark
    context_mark = error.context_mark
    if (
        context_mark
        and position_mark
        and context_mark.line < position_mark.line
        and any(c in context for c in REPORTED_AT_START)
    ):
        position_mark = context_mark
    for pattern, explanation_text, hint in YAML_ERROR_TEXTS:
        if pattern_match := re.search(pattern, problem):
            matched_groups = pattern_match.groupdict()
            return (
                position_mark,
                f"not valid YAML: {explanation_text.format(**matched_groups)}",
                hint and hint.format(**matched_groups),
            )
    first_line = (problem or context).split("\n", 1)[0]
    return position_mark, f"not valid YAML: {first_line}", "quote text that starts with a mark"


def parse_scalar(text: str) -> Any:
    """Return the value of ``text`` in a target file. If ``text`` is not a single value, return it
    unchanged.
    """
    placeholder_path = Path()
    try:
        node = _parse_yaml(placeholder_path, text)
        value = None if node is None else _TreeBuilder(placeholder_path, text).build_value(node, ())
    except TargetError:
        return text
    return text if value is None or isinstance(value, dict | list) else value


class _TreeBuilder:
    """Converts YAML nodes to plain values, and records the position of each node."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self.places: dict[tuple[str | int, ...], LineColumn] = {}
        self._merges = 0

    def build_value(self, node: Node, location: tuple[str | int, ...]) -> Any:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        if len(location) > MAX_DEPTH:
            raise self._build_error(node, "nested too deeply for a target")
        if len(self.places) > MAX_VALUES:
            raise self._build_error(node, f"too large for a target: more than {MAX_VALUES} values")
        if isinstance(node, MappingNode):
            return {
                key: self._build_positioned_value((*location, key), key_node, item_node)
                for key, (key_node, item_node) in self._merge_entries(node).items()
            }
        if isinstance(node, SequenceNode):
            return [
                self._build_positioned_value((*location, index), item_node, item_node)
                for index, item_node in enumerate(node.value)
            ]
        return self._build_scalar(node)

    def _build_positioned_value(
        self, location: tuple[str | int, ...], position_node: Node, node: Node
    ) -> Any:
        self.places[location] = _find_mark_position(position_node.start_mark)
        return self.build_value(node, location)

    def _merge_entries(self, node: MappingNode) -> dict[str, tuple[Node, Node]]:
        nodes_by_key: dict[str, tuple[Node, Node]] = {}
        merged_nodes: dict[str, tuple[Node, Node]] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{CORE_TAG_PREFIX}merge":
                for merge_source in self._list_merge_sources(value_node):
                    merged_nodes = {**self._merge_entries(merge_source), **merged_nodes}
                continue
            if isinstance(key_node.value, list):
                message = "a key must be a word, not a list or a mapping"
                hint = "quote text that starts with a brace or bracket"
                if self._starts_template(key_node):
                    hint = TEMPLATE_HINT
                raise self._build_error(key_node, message, hint)
            key = str(key_node.value)
            if key in nodes_by_key:
                first_line, _ = _find_mark_position(nodes_by_key[key][0].start_mark)
                line, _ = _find_mark_position(key_node.start_mark)
                lines_text = f"lines {first_line} and {line}"
                if line == first_line:
                    lines_text = f"line {line}"
                message = f"duplicate key {key!r} on {lines_text}"
                raise self._build_error(
                    key_node, message, "keep one of them, with the values of both"
                )
            nodes_by_key[key] = (key_node, value_node)
        return {**merged_nodes, **nodes_by_key}

    def _starts_template(self, node: Node) -> bool:
        """True if the node is the inner brace of `{{ … }}`, as in templates of other programs."""
        line, column = _find_mark_position(node.start_mark)
        return self.text.split("\n")[line - 1][max(0, column - 2) : column] == "{{"

    def _list_merge_sources(self, node: Node) -> Iterator[MappingNode]:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        for merge_source in node.value if isinstance(node, SequenceNode) else [node]:
            if not isinstance(merge_source, MappingNode):
                message = "`<<` takes a mapping, or a list of mappings"
                raise self._build_error(
                    node, message, "`<<: *NAME`, and `&NAME` before that mapping"
                )
            self._merges += 1
            if self._merges > MAX_MERGES:
                message = f"too large for a target: more than {MAX_MERGES} merges (`<<`)"
                raise self._build_error(node, message)
            yield merge_source

    def _build_scalar(self, node: Node) -> Any:
        text: str = node.value
        tag_name = str(node.tag).removeprefix(CORE_TAG_PREFIX)
        if tag_name == "null":
            return None
        if tag_name in ("str", "timestamp"):
            return text
        if tag_name == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if tag_name not in ("int", "float"):
            raise self._build_error(
                node, f"unsupported tag '{node.tag}'", "remove it, and write the value itself"
            )
        number = _parse_number(text, tag_name)
        if number is None:
            raise self._build_error(node, f"{format_value(text)} is not a usable number")
        return number

    def _build_error(self, node: Node, message: str, hint: str | None = None) -> TargetError:
        return _error_at_position(
            self.path, self.text, _find_mark_position(node.start_mark), message, hint
        )


def _parse_number(text: str, tag_name: str) -> int | float | None:
    try:
        if tag_name == "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        number_base = 0 if text.lstrip("+-")[:2] in ("0x", "0o") else 10
        number = int(text, number_base)
    except ValueError:
        return None
    # No parameter needs larger integers, and they may overflow when converted to floats.
    return number if abs(number) < 2**63 else None


def _format_end_position(preceding_text: str) -> LineColumn:
    """Return the line and column (from 1) after the text ``preceding_text``."""
    preceding_lines = preceding_text.split("\n")
    return len(preceding_lines), len(preceding_lines[-1]) + 1


def _find_mark_position(mark: StreamMark | None) -> LineColumn:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
