"""All that a service reads: its main file and every file that this one includes, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from posixpath import dirname, join

from autotune.adopt.syntax import Directive, Reader, Unreadable
from autotune.adopt.tree import Tree

DEEPEST = 16  # of files that include each other
_SECRET = re.compile(r"passw|passwd|secret|token|requirepass|masterauth|api_?key|^>", re.IGNORECASE)
# What a directive includes: a pattern of paths, relative to the directory of the main file.
Includes = Callable[[Directive], str | None]


@dataclass(frozen=True)
class Seen:
    """A directive and the file it is in; ``within`` counts the blocks around the include too."""

    path: str
    directive: Directive

    @property
    def name(self) -> str:
        return self.directive.name.text

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.directive.arguments)

    @property
    def block(self) -> str:
        """What the innermost block around it is called; empty outside of any."""
        return self.directive.within[-1][0] if self.directive.within else ""


@dataclass(frozen=True)
class Config:
    """``unread`` says of files why they are left as they are."""

    main: str
    texts: Mapping[str, str] = field(default_factory=dict)
    seen: tuple[Seen, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> tuple[Seen, ...]:
        return tuple(seen for seen in self.seen if seen.name == name)


def guarded(config: Config) -> Config:
    """Without files that hold a password: what is in a template is in every study's records."""
    secret = {seen.path for seen in config.seen if _tells(seen)}
    return replace(
        config,
        texts={path: text for path, text in config.texts.items() if path not in secret},
        seen=tuple(seen for seen in config.seen if seen.path not in secret),
        unread={**config.unread, **dict.fromkeys(secret, "it holds a password or the like")},
    )


def _tells(seen: Seen) -> bool:
    name = seen.name.lower()
    if name.endswith("file"):
        return False
    return bool(_SECRET.search(name)) or (
        name in ("env", "setenv", "user", "fastcgi_param", "proxy_set_header", "requestheader")
        and any(_SECRET.search(word) for word in seen.words)
    )


def gather(tree: Tree, main: str, read: Reader, includes: Includes) -> Config:
    """Follow the includes of ``main``. A file that cannot be read is told of, not raised."""
    texts, unread = dict[str, str](), dict[str, str]()

    def follow(path: str, within: tuple[tuple[str, ...], ...], depth: int) -> Iterator[Seen]:
        if depth > DEEPEST:
            return
        try:
            text = tree.files[path].decode()
            directives = read(text)
        except (UnicodeDecodeError, Unreadable) as error:
            unread[path] = str(error)
            return
        texts[path] = text
        for found in directives:
            directive = replace(found, within=(*within, *found.within))
            yield Seen(path, directive)
            if (pattern := includes(directive)) is not None:
                wanted = join(dirname(main), pattern)
                matching = tree.matching(wanted)
                if not matching and "*" not in wanted:
                    unread[wanted] = f"{path} includes it, and it was not read"
                for one in matching:
                    yield from follow(one, directive.within, depth + 1)

    if tree.real(main) not in tree.files:
        return Config(main, unread={main: "it is not there"})
    seen = tuple(follow(tree.real(main), (), 0))
    return Config(tree.real(main), texts, seen, unread)
