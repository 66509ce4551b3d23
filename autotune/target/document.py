"""A YAML file with the line and column of each node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import foreign_files
from autotune.errors import TargetError
from autotune.foreign_files import ForeignFileError
from autotune.target.messages import format_value, instead, nearest

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError, StreamMark
    from ruamel.yaml.nodes import MappingNode, Node

Location = Sequence[str | int]
Place = tuple[int, int]


MOST_VALUES = 20_000  # an alias of aliases of aliases multiplies without end
MOST_MERGES = 1000  # likewise a merge of merges of merges
DEEPEST = 20
MOST_OPEN = 100  # brackets; the parser's time grows with the square of them
START = "`autotune init` writes a target to start from"
CORE = "tag:yaml.org,2002:"
# Pattern of the parser's message → message, hint. The first match is used.
WORDS: tuple[tuple[str, str, str | None], ...] = (
    (r"character '\\t'", "a tab instead of spaces", "indent with spaces"),
    (
        r"character '(?P<it>.)' that cannot start",
        "a value cannot start with '{it}'",
        "put it in quotes",
    ),
    (
        r"mapping values are not allowed",
        "an unexpected ':'",
        "check the indentation of this line and the one above, or quote text that contains ': '",
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
        "give it, or quote text that begins with ':' or ','",
    ),
    (
        r"expected '<document start>'",
        "this does not continue the lines above",
        "write one setting per line, such as `name: shop`",
    ),
    (r"unexpected end of stream", "an unclosed quote", None),
    (r"could not find expected ':'", "a key without its ':'", None),
    (
        r"undefined alias '(?P<it>.*)'",
        "unknown anchor '*{it}'",
        "define it above: write `&{it}` before its value",
    ),
    (r"another document", "a second target in the same file", "write one target per file"),
    (r"unknown escape character", "an unknown escape in a quoted text", "use single quotes"),
)
# A mistake in one of these is reported where it begins, not where the parser gave up.
BEGINS_EARLIER = ("quoted scalar", "simple key", "flow mapping", "flow sequence")


# A line that may hold a secret is never shown, nor the one below it.
SECRETIVE = re.compile(
    r"(?i)pass(word|wd|phrase|\b)|secret|token|credential|identity|authorization|bearer|cookie"
    r"|\b(\w*_)?(api|private|ssh)?key(_?file)?[\"']?\s*[:=]|:[^\s@]*@|:\s*[\"']?[A-Za-z_][\w.-]*:[^\s/]"
)
WIDEST = 100  # characters of a line that are shown
LOOKED_AT = (
    2000  # characters of a line that are searched for secrets: in longer lines that takes seconds
)


@dataclass(frozen=True)
class Document:
    """The tree of a target file, as plain values, and the file it came from.

    ``places`` maps keys and items of lists to line and column (from 1). ``origins`` maps values from
    elsewhere to their origin: `--set web.nginx.backlog=511`.
    """

    path: Path
    root: dict[str, Any]
    places: Mapping[tuple[str | int, ...], Place]
    text: str = ""
    origins: Mapping[tuple[str | int, ...], str] = field(default_factory=dict)

    def position(self, location: Location) -> Place:
        """Line and column (from 1) of the key or item at ``location``, or of its nearest parent."""
        steps = tuple(location)
        while steps and steps not in self.places:
            steps = steps[:-1]
        return self.places[steps] if steps else (1, 1)

    def value(self, location: Location) -> Any:
        """The value at ``location``, which exists."""
        value: Any = self.root
        for step in location:
            value = value[step]
        return value

    def before(self, location: Location) -> str:
        """The part of its line before the node at ``location``."""
        line, column = self.position(location)
        return self.text.split("\n")[line - 1][: column - 1].rstrip() if self.text else ""

    def error(self, location: Location, message: str, *, hint: str | None = None) -> TargetError:
        """An error that points at the node at ``location``."""
        steps = tuple(location)
        for length in range(len(steps), 0, -1):
            if origin := self.origins.get(steps[:length]):
                return TargetError(f"{origin}: {message}", hint=hint)
        return _pointing(self.path, self.text, self.position(location), message, hint)

    def unknown(
        self, location: Location, what: str, valid: Iterable[str], name: str = ""
    ) -> TargetError:
        """An error for an unknown name, with the nearest valid name as hint.

        The name is ``name``, or else the key at ``location``.
        """
        name = name or str(location[-1])
        return self.error(location, f"unknown {what} {name!r}", hint=instead(name, sorted(valid)))


def _pointing(
    path: Path, text: str, place: Place, message: str, hint: str | None = None
) -> TargetError:
    line, column = place
    message = f"{path}:{line}:{column}: {message}"
    return TargetError(message, hint=hint, place=place, excerpt=_excerpt(text, line, column))


def _excerpt(text: str, line: int, column: int) -> str:
    """The line with a caret below the column; empty where a secret may be near."""
    near = text.split("\n")[max(0, line - 2) : line]
    if not near or any(len(source) > LOOKED_AT or SECRETIVE.search(source) for source in near):
        return ""
    start = max(0, column - WIDEST // 2) if len(near[-1]) > WIDEST else 0
    source = near[-1].expandtabs(1)[start : start + WIDEST].rstrip()
    return f"{source}\n{' ' * (column - 1 - start)}^" if source else ""


def load(
    path: Path, what: str = "a target", start: str = START, *, foreign: bool = False
) -> Document:
    """Read a YAML 1.2 mapping: ``what`` is expected, and ``start`` how to come by one.

    ``foreign``: other people may have written its directory, so no link is followed. Raises TargetError
    (file:line:column) when it is not a mapping, ForeignFileError.
    """
    text = read_text(path, what, start, foreign=foreign)
    tree = _Tree(path, text)
    try:
        node = _compose(path, text)
        root = None if node is None else tree.value(node, ())
    except RecursionError:
        raise _pointing(path, "", (1, 1), "nested too deeply for a target") from None
    if not isinstance(root, dict):
        content = "an empty file" if root is None else format_value(root)
        message = f"{what} must be a mapping of settings, not {content}"
        raise _pointing(path, "", (1, 1), message, start)
    return Document(path, root, tree.places, text)


def _nearest_target(path: Path, start: str) -> str:
    """The hint for a file that does not exist."""
    others = [*Path().glob("*.yaml"), *Path("targets").glob("*.yaml"), *path.parent.glob("*.yaml")]
    names = {other.stem: other for other in others}
    meant = nearest(path.stem, names)
    return f"did you mean {str(names[meant])!r}?" if meant else start


def read_text(
    path: Path, what: str = "a target", start: str = START, *, foreign: bool = False
) -> str:
    """The text of a file. Raises TargetError if it cannot be read or is not text."""
    try:
        content = _read(path, foreign=foreign)
    except ForeignFileError as error:
        hint = error.hint if foreign else start
        raise TargetError(f"{path}: {error.reason}", hint=hint) from None
    except OSError as error:
        hint = _nearest_target(path, start) if isinstance(error, FileNotFoundError) else None
        if isinstance(error, IsADirectoryError):
            hint = f"name {what} file, such as targets/local.yaml" if start is START else start
        reason = (error.strerror or str(error)).lower()
        raise TargetError(f"{path}: {reason}", hint=hint) from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _after(content[: error.start].decode())
        raise _pointing(path, "", place, "not UTF-8 text", f"save it as UTF-8; {start}") from None


def _read(path: Path, *, foreign: bool) -> bytes:
    if foreign:
        return foreign_files.read_bytes(path.parent, path.name, foreign_files.TARGET)
    return foreign_files.read_named(path, foreign_files.TARGET)


def _compose(path: Path, text: str) -> Node | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    opened = 0
    for bracket in re.findall(r"[][{}]", text):
        opened = max(0, opened + (1 if bracket in "[{" else -1))
        if opened > MOST_OPEN:
            raise _pointing(path, "", (1, 1), "nested too deeply for a target")
    try:
        # Composed only: values are made below, where the place of each is known.
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark, message, hint = explain_yaml_error(error)
        raise _pointing(path, text, _place(mark), message, hint) from None
    except ReaderError as error:
        place = _after(text[: error.position])
        message = f"invalid character (code {error.character})"
        raise _pointing(path, "", place, message, "delete it") from None
    except YAMLError as error:
        first = str(error).split("\n", 1)[0]
        raise _pointing(path, "", (1, 1), f"not valid YAML: {first}") from None
    return node


def explain_yaml_error(error: MarkedYAMLError) -> tuple[StreamMark | None, str, str | None]:
    """The place of a mistake, the message and the hint."""
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    begins = error.context_mark
    if begins and mark and begins.line < mark.line and any(c in context for c in BEGINS_EARLIER):
        mark = begins
    for pattern, words, hint in WORDS:
        if match := re.search(pattern, problem):
            named = match.groupdict()
            return mark, f"not valid YAML: {words.format(**named)}", hint and hint.format(**named)
    first_line = (problem or context).split("\n", 1)[0]
    return mark, f"not valid YAML: {first_line}", None


def scalar(text: str) -> Any:
    """The value of ``text`` in a target if it is one value, else the text itself."""
    path = Path()
    try:
        node = _compose(path, text)
        value = None if node is None else _Tree(path, text).value(node, ())
    except TargetError:
        return text
    return text if value is None or isinstance(value, dict | list) else value


class _Tree:
    """Makes plain values of YAML nodes, and records their places."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self.places: dict[tuple[str | int, ...], Place] = {}
        self._merges = 0

    def value(self, node: Node, location: tuple[str | int, ...]) -> Any:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        if len(location) > DEEPEST:
            raise self._error(node, "nested too deeply for a target")
        if len(self.places) > MOST_VALUES:
            raise self._error(node, f"too large for a target: more than {MOST_VALUES} values")
        if isinstance(node, MappingNode):
            return {key: self._placed((*location, key), key_node, item)
                    for key, (key_node, item) in self._entries(node).items()}  # fmt: skip
        if isinstance(node, SequenceNode):
            return [self._placed((*location, index), item, item)
                    for index, item in enumerate(node.value)]  # fmt: skip
        return self._scalar(node)

    def _placed(self, location: tuple[str | int, ...], at: Node, node: Node) -> Any:
        self.places[location] = _place(at.start_mark)
        return self.value(node, location)

    def _entries(self, node: MappingNode) -> dict[str, tuple[Node, Node]]:
        own: dict[str, tuple[Node, Node]] = {}
        merged: dict[str, tuple[Node, Node]] = {}
        for key_node, item in node.value:
            if key_node.tag == f"{CORE}merge":
                for source in self._merge_sources(item):
                    merged = {**self._entries(source), **merged}
                continue
            if isinstance(key_node.value, list):
                message = "a key must be a word, not a list or a mapping"
                raise self._error(
                    key_node, message, "quote text that begins with a brace or bracket"
                )
            key = str(key_node.value)
            if key in own:
                line, _ = _place(own[key][0].start_mark)
                raise self._error(key_node, f"duplicate key {key!r}, first on line {line}")
            own[key] = (key_node, item)
        return {**merged, **own}

    def _merge_sources(self, node: Node) -> Iterator[MappingNode]:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        for source in node.value if isinstance(node, SequenceNode) else [node]:
            if not isinstance(source, MappingNode):
                message = "`<<` takes a mapping, or a list of mappings"
                raise self._error(node, message, "`<<: *NAME`, and `&NAME` before that mapping")
            self._merges += 1
            if self._merges > MOST_MERGES:
                message = f"too large for a target: more than {MOST_MERGES} merges (`<<`)"
                raise self._error(node, message)
            yield source

    def _scalar(self, node: Node) -> Any:
        text: str = node.value
        kind = str(node.tag).removeprefix(CORE)
        if kind == "null":
            return None
        if kind in ("str", "timestamp"):
            return text
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind not in ("int", "float"):
            raise self._error(node, f"unsupported tag '{node.tag}'")
        number = _number(text, kind)
        if number is None:
            raise self._error(node, f"{format_value(text)} is not a usable number")
        return number

    def _error(self, node: Node, message: str, hint: str | None = None) -> TargetError:
        return _pointing(self.path, self.text, _place(node.start_mark), message, hint)


def _number(text: str, kind: str) -> int | float | None:
    try:
        if kind == "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        base = 0 if text.lstrip("+-")[:2] in ("0x", "0o") else 10
        number = int(text, base)
    except ValueError:
        return None
    # No tuned value is that large, and larger integers overflow where floats are needed.
    return number if abs(number) < 2**63 else None


def _after(before: str) -> Place:
    """The line and column after ``before``."""
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


def _place(mark: StreamMark | None) -> Place:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
