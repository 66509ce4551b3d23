"""A model of a host's configuration files: links, directives with their positions, and includes.

Directives keep their order in the file and their enclosing blocks, so a value can be replaced
without any other change. Text between directives (spaces, comments, line ends) is preserved.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import count, takewhile
from posixpath import dirname, join, normpath

from autotune import config_text
from autotune.strict_parsing import decompress_gzip, is_uint

# The maximum length of a path in bytes, as in Linux's limits.h. Longer patterns are ignored, because
# matching long patterns may take quadratic time.
MAX_PATH_BYTES = 4096
_WRITABLE_BY_OTHERS = 0o022
_MAX_LINKS = 40  # maximum number of links on one path, as in Linux
# Maximum total size of a host's files, in bytes. An archive could unpack to a thousand times its
# own size.
MAX_ARCHIVE_BYTES = 64 * 2**20
_GZIP_MAGIC = b"\x1f\x8b"


DEV_NULL = "/dev/null"


@dataclass(frozen=True)
class _ResolvedPath:
    """The result of following a path's symbolic links: the target, and the last link on the way.
    ``shared_directory`` is a directory that makes the last link unsafe to follow, because accounts
    other than root can write to the directory.
    """

    target: str
    last_link: str = ""
    shared_directory: str = ""


def list_ancestors(directory: str) -> tuple[str, ...]:
    """Return a directory and its parents, starting with ``/``."""
    path_parts = [word for word in directory.split("/") if word]
    return ("/", *("/" + "/".join(path_parts[:depth]) for depth in range(1, len(path_parts) + 1)))


@dataclass(frozen=True)
class FileTree:
    """The files, file modes and links of a host, by absolute path.

    ``directories`` maps each directory to true if only root can write to it. If ``directories`` is not
    empty, a link is followed only if no other account can redirect the link by writing to its
    directory. ``unread`` maps files that exist on the host to the reason why they were not read.
    ``requested`` collects the paths and patterns that callers requested, so that autotune can fetch
    these files.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    directories: Mapping[str, bool] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    requested: set[str] = field(default_factory=set, compare=False, repr=False)

    @cached_property
    def _children(self) -> Mapping[str, set[str]]:
        children_by_directory: dict[str, set[str]] = {}
        for path in (*self.files, *self.links, *self.unread):
            path_parts = path.split("/")
            for depth in range(1, len(path_parts)):
                children_by_directory.setdefault("/".join(path_parts[:depth]) or "/", set()).add(
                    path_parts[depth]
                )
        return children_by_directory

    def resolve(self, path: str) -> str:
        """Return the path with its links resolved, up to the first link that must not be followed."""
        self.requested.add(path)
        return self._follow_links(path).target

    def explain_missing(self, path: str) -> str:
        """Return the reason why a path does not lead to a file."""
        resolved_path = self._follow_links(path)
        if resolved_path.target in self.unread:
            return self.unread[resolved_path.target]
        if not resolved_path.last_link:
            return "it does not exist"
        link_text = "it" if resolved_path.last_link == path else resolved_path.last_link
        if resolved_path.shared_directory:
            return (
                f"{link_text} is a link to {self.links[resolved_path.last_link]}. It is not followed,"
                f" because accounts other than root can write to {resolved_path.shared_directory}"
            )
        link_target = resolved_path.target
        return f"{link_text} is a link to {link_target}, which is missing or not a small text file"

    def find_broken_links(self, path_pattern: str) -> tuple[str, ...]:
        """Return the paths that match a shell pattern but lead through links that this tree cannot
        resolve.
        """
        pattern_parts = [word for word in normpath(path_pattern).split("/") if word]
        literal_parts = list(takewhile(lambda word: not set(word) & set("*?["), pattern_parts))
        literal_directory = "/" + "/".join(literal_parts)
        candidate_paths = [
            literal_directory,
            *(self._glob_below("/", pattern_parts) if len(path_pattern) <= MAX_PATH_BYTES else ()),
        ]
        return tuple(path for path in dict.fromkeys(candidate_paths) if self._is_broken(path))

    def is_directory(self, path: str) -> bool:
        """True if a path leads to a directory."""
        resolved_path = self.resolve(path)
        return resolved_path in self._children or resolved_path in self.directories

    def exists(self, path: str) -> bool:
        """True if a path leads to a file or directory, even to a file that was not read."""
        return self.is_directory(path) or self._follow_links(path).target in {
            **self.files,
            **self.unread,
        }

    @property
    def unread_targets(self) -> tuple[str, ...]:
        """Return the targets of followed links that are missing from this tree."""
        link_targets = dict.fromkeys(
            resolved_path.target
            for resolved_path in map(self._follow_links, self.links)
            if not resolved_path.shared_directory
        )
        return tuple(link_target for link_target in link_targets if not self._contains(link_target))

    def merge(self, other: FileTree) -> FileTree:
        """Return this tree with the entries of ``other`` added."""
        merged_files = {**self.files, **other.files}
        unread_reasons = {**self.unread, **other.unread}
        return FileTree(
            merged_files,
            {**self.links, **other.links},
            {**self.modes, **other.modes},
            {**self.directories, **other.directories},
            {path: reason for path, reason in unread_reasons.items() if path not in merged_files},
            self.requested,
        )

    def _contains(self, path: str) -> bool:
        return path == DEV_NULL or path in self.files or path in self._children

    def _is_broken(self, path: str) -> bool:
        resolved_path = self._follow_links(path)
        if not resolved_path.last_link:
            return False
        return bool(resolved_path.shared_directory) or not self._contains(
            self._follow_links(resolved_path.last_link).target
        )

    def _follow_links(self, path: str) -> _ResolvedPath:
        walked_path, last_link = "/", ""
        remaining_words = [word for word in normpath(path).split("/") if word]
        for _ in range(_MAX_LINKS + len(remaining_words)):
            if not remaining_words:
                break
            current_path = join(walked_path, remaining_words.pop(0))
            if current_path in self.links:
                last_link = current_path
                if shared_directory := self._find_shared_directory(walked_path):
                    return _ResolvedPath(
                        join(current_path, *remaining_words), last_link, shared_directory
                    )
                target = normpath(join(walked_path, self.links[current_path]))
                walked_path = "/"
                remaining_words = [*(word for word in target.split("/") if word), *remaining_words]
            else:
                walked_path = current_path
        return _ResolvedPath(walked_path, last_link)

    def _find_shared_directory(self, directory: str) -> str:
        """Return the first directory on the path that accounts other than root can write to, or an
        empty string.
        """
        if not self.directories:
            return ""
        return next(
            (
                ancestor
                for ancestor in list_ancestors(directory)
                if not self.directories.get(ancestor)
            ),
            "",
        )

    def read_text(self, path: str) -> str:
        """Return the text of a file, given its real path. Raises ConfigSyntaxError or KeyError."""
        if not path.isprintable():
            raise ConfigSyntaxError("its name contains control characters")
        return config_text.decode(self.files[path])

    def read_text_or_empty(self, path: str) -> str:
        """Return the text of a file, following links, or an empty string for a missing file."""
        return config_text.decode(self.files.get(self.resolve(path), b""))

    def glob(self, path_pattern: str) -> tuple[str, ...]:
        """Return the real paths of files that match a shell pattern, sorted by name."""
        return tuple(path for path in self._match_real_paths(path_pattern) if path in self.files)

    def find_unread(self, path_pattern: str) -> dict[str, str]:
        """Return the existing files that match a pattern but were not read, each with the
        reason.
        """
        return {
            path: self.unread[path]
            for path in self._match_real_paths(path_pattern)
            if path in self.unread
        }

    def match(self, path_pattern: str) -> dict[str, str]:
        """Return the paths that match a shell pattern, sorted by name, each with its real path."""
        if len(path_pattern) > MAX_PATH_BYTES:
            return {}
        self.requested.add(path_pattern)
        if path_pattern not in self._matches:
            pattern_parts = [word for word in normpath(path_pattern).split("/") if word]
            self._matches[path_pattern] = {
                path: self._follow_links(path).target
                for path in self._glob_below("/", pattern_parts)
            }
        return dict(self._matches[path_pattern])

    @cached_property
    def _matches(self) -> dict[str, dict[str, str]]:
        """Results of ``match``: services look for the same files many times."""
        return {}

    def _match_real_paths(self, path_pattern: str) -> dict[str, None]:
        return dict.fromkeys(self.match(path_pattern).values())

    def _glob_below(self, directory: str, pattern_parts: list[str]) -> Iterator[str]:
        if not pattern_parts:
            yield directory
            return
        child_names = sorted(self._children.get(self._follow_links(directory).target, ()))
        for name in child_names:
            is_hidden = name.startswith(".") and not pattern_parts[0].startswith(".")
            if fnmatchcase(name, pattern_parts[0]) and not is_hidden:
                yield from self._glob_below(join(directory, name), pattern_parts[1:])


def unpack_tree(archive: bytes, root: str = "/") -> FileTree:
    """Return the files in a tar archive as a tree. The archive may be compressed with gzip, and its names
    are relative to ``root``.

    Raises ValueError.
    """
    if archive.startswith(_GZIP_MAGIC):
        archive = decompress_gzip(archive, MAX_ARCHIVE_BYTES)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            return _read_members(tar, archive, root)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(str(error)) from error


def _read_members(tar_file: tarfile.TarFile, archive: bytes, root: str) -> FileTree:
    content_by_path, links, mode_by_path = dict[str, bytes](), dict[str, str](), dict[str, int]()
    directories, unread = dict[str, bool](), dict[str, str]()
    end_offset = 0
    for member in tar_file:
        end_offset = tar_file.offset
        # The tarfile library fills sparse files with zeros, and reads the same file again after a
        # negative size.
        if member.issparse() or member.size < 0:
            raise tarfile.ReadError(f"{member.name[:200]!r} is sparse or has an invalid size")
        path = normpath(join(root, member.name.lstrip("/")))
        file_content = tar_file.extractfile(member) if member.isfile() else None
        if file_content is not None:
            content_by_path[path], mode_by_path[path] = file_content.read(), member.mode
        elif member.issym():
            links[path] = member.linkname
        elif member.islnk():  # another name of an earlier member
            earlier_path = normpath(join(root, member.linkname.lstrip("/")))
            if earlier_path in content_by_path:
                content_by_path[path] = content_by_path[earlier_path]
                mode_by_path[path] = mode_by_path[earlier_path]
            elif earlier_path in links:
                links[path] = links[earlier_path]
            else:
                unread[path] = f"it is a hard link to {earlier_path}, which was not read"
        elif member.isdir():
            directories[path] = member.uid == 0 and not member.mode & _WRITABLE_BY_OTHERS
    _check_end(archive, end_offset)
    return FileTree(content_by_path, links, mode_by_path, directories, unread)


def _check_end(archive: bytes, end_offset: int) -> None:
    """Raise tarfile.ReadError if an archive contains anything after its last member.

    ``end_offset`` is the byte after this member. The tarfile library stops without an error at an
    invalid header, so later files would be missing.
    """
    remainder = memoryview(archive)[end_offset:]
    if remainder != bytes(len(remainder)):
        raise tarfile.ReadError(f"invalid header at byte {end_offset}")


class ConfigSyntaxError(ValueError):
    """The syntax of a file is invalid. The message contains the line number."""


@dataclass(frozen=True)
class Word:
    """A name or an argument in a file, with its quotes and its position."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def strip_word(text: str, start: int) -> Word:
    """Return ``text``, which starts at offset ``start`` of a file, as a word without surrounding
    blanks.
    """
    return Word(text.strip(), start + len(text) - len(text.lstrip()))


@dataclass(frozen=True)
class Directive:
    """A directive in a configuration file. ``blocks`` lists the enclosing blocks, outermost first,
    each as a tuple of words.
    """

    name: Word
    arguments: tuple[Word, ...] = ()
    blocks: tuple[tuple[str, ...], ...] = ()

    @property
    def depth(self) -> int:
        return len(self.blocks)


DirectiveParser = Callable[[str], Iterable[Directive]]


def build_syntax_error(text: str, position: int, message: str) -> ConfigSyntaxError:
    return ConfigSyntaxError(f"line {text.count(chr(10), 0, position) + 1}: {message}")


def tokenize(
    text: str, pattern: re.Pattern[str], error_message: str, start: int = 0
) -> Iterator[re.Match[str]]:
    """Yield the tokens in a text from ``start`` on. Raises ConfigSyntaxError for text that
    ``pattern`` does not match.
    """
    position = start
    while position < len(text):
        token = pattern.match(text, position)
        if token is None:
            raise build_syntax_error(text, position, error_message)
        yield token
        position = token.end()


_OPTIONAL_INCLUDES = ("include_if_exists", "includeoptional")  # the included files may be missing
_PATTERN_CHARACTERS = frozenset("*?[")
MAX_INCLUDE_DEPTH = 16  # maximum depth of nested includes
MAX_INCLUDES = 1000  # maximum number of includes in total, because nested includes multiply
# Returns the path pattern that a directive includes, or None for any other directive.
IncludeParser = Callable[[Directive], str | None]


@dataclass(frozen=True)
class PlacedDirective:
    """A directive and the path of its file. The directive's ``blocks`` also contain the blocks
    around the include of that file.
    """

    path: str
    directive: Directive

    @property
    def name(self) -> str:
        return self.directive.name.text

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.directive.arguments)

    @property
    def end_position(self) -> tuple[str, int]:
        """Return the path of the file, and the position after the directive's last word."""
        return self.path, (self.directive.arguments or (self.directive.name,))[-1].end

    @property
    def block(self) -> str:
        """Return the name of the innermost enclosing block, or an empty string."""
        return self.directive.blocks[-1][0] if self.directive.blocks else ""


@dataclass(frozen=True)
class Config:
    """The parsed configuration of a service.

    ``unread_files`` maps files that were not read to the reason, and ``unread_blocks`` maps the same
    files to the blocks around their include. If ``ignores_case`` is true, names are compared without
    regard to case. ``uncertain`` maps the names of directives with uncertain values, or `*` for all
    directives, to the reason.
    """

    main_file: str
    texts: Mapping[str, str] = field(default_factory=dict)
    directives: tuple[PlacedDirective, ...] = ()
    unread_files: Mapping[str, str] = field(default_factory=dict)
    ignores_case: bool = False
    unread_blocks: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    uncertain: Mapping[str, str] = field(default_factory=dict)

    def explain_missing_main(self) -> str:
        """Return why the main file was not read, or an empty string."""
        missing_reason = self.unread_files.get(self.main_file, "")
        return f"{self.main_file}: {missing_reason}" if missing_reason and not self.texts else ""

    def find_all(self, directive_name: str) -> tuple[PlacedDirective, ...]:
        normalize: Callable[[str], str] = str.lower if self.ignores_case else str
        return tuple(
            placed_directive
            for placed_directive in self.directives
            if normalize(placed_directive.name) == normalize(directive_name)
        )

    def explain_uncertain(self, directive_name: str) -> str:
        """Return why the values of a directive are unknown, or an empty string."""
        normalized_name = directive_name.lower() if self.ignores_case else directive_name
        return self.uncertain.get(normalized_name) or self.uncertain.get("*", "")

    def find_last_word(self, directive_name: str, default: str = "") -> str:
        """Return the first argument of the last directive with this name, ignoring directives
        without arguments.
        """
        words = [placed.words[0] for placed in self.find_all(directive_name) if placed.words]
        return words[-1] if words else default

    def find_last_number(self, directive_name: str, default: int) -> int:
        """Return the first argument of the last directive with this name as a number, or else
        ``default``.
        """
        word = self.find_last_word(directive_name).strip("\"'")
        return int(word) if is_uint(word) else default


def merge_configs(main_file: str, configs: Sequence[Config]) -> Config:
    """Return one configuration that merges ``configs``, given in the order in which a program reads
    them.
    """
    return Config(
        main_file,
        {path: text for config in configs for path, text in config.texts.items()},
        tuple(placed_directive for config in configs for placed_directive in config.directives),
        {path: reason for config in configs for path, reason in config.unread_files.items()},
        unread_blocks={
            path: blocks for config in configs for path, blocks in config.unread_blocks.items()
        },
        uncertain={name: reason for config in configs for name, reason in config.uncertain.items()},
    )


def is_pattern(path: str) -> bool:
    """True if a path is a shell pattern, which may match no file."""
    return not _PATTERN_CHARACTERS.isdisjoint(path)


def parse_include(directive: Directive) -> str | None:
    """Return the pattern in a plain ``include PATTERN``, which most formats use."""
    is_include = directive.name.text == "include" and len(directive.arguments) == 1
    return directive.arguments[0].text.strip("\"'") if is_include else None


# Returns true if a directive takes effect. The reader calls the filter once per directive, in
# execution order.
DirectiveFilter = Callable[[Directive], bool]


def read_config(
    file_tree: FileTree,
    main_file: str,
    parse_directives: DirectiveParser,
    find_include: IncludeParser = lambda _: None,
    *,
    relative_to_includer: bool = False,
    applies: DirectiveFilter = lambda _: True,
) -> Config:
    """Return the directives in the file ``main_file`` and in the files that ``main_file`` includes.
    `Config.unread_files` lists files that cannot be read.

    Includes are relative to the directory of ``main_file`` or, with ``relative_to_includer``, to the
    directory of the including file. Directives and includes for which ``applies`` returns false are
    ignored.
    """
    if file_tree.resolve(main_file) not in file_tree.files:
        return Config(main_file, unread_files={main_file: file_tree.explain_missing(main_file)})
    reader = _ConfigReader(
        file_tree,
        main_file,
        parse_directives,
        find_include,
        applies,
        relative_to_includer=relative_to_includer,
    )
    directives = tuple(reader.read(file_tree.resolve(main_file), (), 0))
    return Config(
        file_tree.resolve(main_file),
        reader.texts,
        directives,
        reader.unread,
        unread_blocks=reader.unread_blocks,
    )


class _ConfigReader:
    """A reader that yields the directives of a file and its includes in execution order."""

    def __init__(
        self,
        file_tree: FileTree,
        main_file: str,
        parse_directives: DirectiveParser,
        find_include: IncludeParser,
        applies: DirectiveFilter,
        *,
        relative_to_includer: bool,
    ) -> None:
        self._tree, self._main, self._parse = file_tree, main_file, parse_directives
        self._find_include, self._applies = find_include, applies
        self._relative_to_includer = relative_to_includer
        self._followed = count()
        self._parsed: dict[str, tuple[Directive, ...]] = {}
        self._matched: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}
        self.texts: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        self.unread_blocks: dict[str, tuple[tuple[str, ...], ...]] = {}

    def read(
        self, path: str, enclosing_blocks: tuple[tuple[str, ...], ...], depth: int
    ) -> Iterator[PlacedDirective]:
        """Yield the directives in a file and in its includes."""
        if next(self._followed) > MAX_INCLUDES:
            limit_reason = f"the limit of {MAX_INCLUDES} included files is reached"
            self._add_unread(path, limit_reason, enclosing_blocks)
            return
        if depth > MAX_INCLUDE_DEPTH:
            self._add_unread(
                path, f"more than {MAX_INCLUDE_DEPTH} levels of includes", enclosing_blocks
            )
            return
        try:
            parsed_directives = self._parse_file(path)
        except ConfigSyntaxError as error:
            self.texts.pop(path, None)
            self._add_unread(path, str(error), enclosing_blocks)
            return
        for local_directive in parsed_directives:
            directive = replace(
                local_directive, blocks=(*enclosing_blocks, *local_directive.blocks)
            )
            if not self._applies(directive):
                continue
            yield PlacedDirective(path, directive)
            if (pattern := self._find_include(directive)) is not None:
                yield from self._read_include(pattern, path, directive, depth)

    def _parse_file(self, path: str) -> tuple[Directive, ...]:
        """Return the directives of a file, which is parsed once even if it is included often."""
        if path not in self._parsed:
            self.texts[path] = self._tree.read_text(path)
            self._parsed[path] = tuple(self._parse(self.texts[path]))
        return self._parsed[path]

    def _read_include(
        self, pattern: str, path: str, directive: Directive, depth: int
    ) -> Iterator[PlacedDirective]:
        include_pattern = join(dirname(path if self._relative_to_includer else self._main), pattern)
        matching_paths, unread_reasons = self._match_include(include_pattern)
        for unread_path, unread_reason in unread_reasons.items():
            self._add_unread(unread_path, unread_reason, directive.blocks)
        is_optional = is_pattern(include_pattern) or (
            directive.name.text.lower() in _OPTIONAL_INCLUDES
        )
        if not matching_paths and not is_optional and include_pattern not in self.unread:
            unread_reason = f"{path} includes this file, but it was not read"
            self._add_unread(include_pattern, unread_reason, directive.blocks)
        for included_path in matching_paths:
            yield from self.read(included_path, directive.blocks, depth + 1)

    def _match_include(self, include_pattern: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the files that match the pattern of an include, and the reasons why further files were
        not read. Each pattern is matched once, even if many lines contain it.
        """
        if include_pattern not in self._matched:
            unread_reasons = {
                unread_path: self._tree.explain_missing(unread_path)
                for unread_path in self._tree.find_broken_links(include_pattern)
            }
            unread_reasons |= self._tree.find_unread(include_pattern)
            self._matched[include_pattern] = self._tree.glob(include_pattern), unread_reasons
        return self._matched[include_pattern]

    def _add_unread(
        self, path: str, unread_reason: str, enclosing_blocks: tuple[tuple[str, ...], ...]
    ) -> None:
        self.unread[path] = unread_reason
        # If a file is included several times, the outermost include determines the file's blocks.
        earlier_blocks = self.unread_blocks.get(path, enclosing_blocks)
        self.unread_blocks[path] = min(earlier_blocks, enclosing_blocks, key=len)
