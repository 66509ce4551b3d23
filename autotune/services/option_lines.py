"""Configuration files with one option and its values per line: syntax and adoption."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from autotune.services import unit_environment
from autotune.services.adoption import Adoption, Layout, Layouts, RunningHost, RunningService
from autotune.services.base import Service
from autotune.services.config_files import Config, Directive, Includes, Word, gather, included
from autotune.services.directives import YES_NO, Tunable, last_line, notation_of
from autotune.services.understood import Understood
from autotune.strict import is_whole

_JOINED = re.compile(r"(?P<name>--[\w-]+(?==)|-[a-zA-Z](?=\d))=?(?P<value>.+)")
_WORD = re.compile(r""""(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s]+""")


def read(text: str, called: Mapping[str, str] | None = None) -> tuple[Directive, ...]:
    """Return every option. A comment is a whole line, or the rest of one after a space.

    Names ignore case, except for command options (`-x`). ``called`` maps aliases of an option to
    its name here.
    """
    directives: list[Directive] = []
    for line in re.finditer(r"[^\n]+", text):
        words: list[Word] = []
        for match in _WORD.finditer(text, line.start(), line.end()):
            if match[0].startswith("#"):
                break
            words.append(Word(match[0], match.start()))
        if words:
            name, *values = _apart(words[0])
            plain = name.text if name.text.startswith("-") else name.text.lower()
            name = Word((called or {}).get(plain, plain), name.start)
            directives.append(Directive(name, (*values, *words[1:])))
    return tuple(directives)


def _apart(word: Word) -> list[Word]:
    """Split a command option from its value: `--threads=4` and `-t4` are one word."""
    pair = _JOINED.fullmatch(word.text)
    if pair is None:
        return [word]
    return [Word(pair["name"], word.start), Word(pair["value"], word.start + pair.start("value"))]


def adoption(
    service: Service,
    options: Mapping[str, str],
    *,
    port: str,
    address: str,
    paths: tuple[str, ...],
    version: str,
    includes: Includes = included,
    loses: Callable[[Config], str] = lambda _: "",
    others: tuple[Layout, ...] = (),
    called: Mapping[str, str] | None = None,
) -> Adoption:
    """Return the adoption of a service with one such file.

    ``options`` maps options to parameters. ``port`` and ``address`` are the options for its
    listening address, and ``version`` is a command that prints its version. ``loses`` returns the
    data that a restart loses, ``others`` contains layouts of other distributions, and ``called``
    maps aliases of options.
    """
    layouts = Layouts((Layout("Debian, Ubuntu", service.unit_name, service.config[1]), *others))

    def find(host: RunningHost) -> Iterator[RunningService | str]:
        if layout := layouts.of(host):
            command = unit_environment.words(host.tree, layout.unit)
            if command and layout.main not in command:
                yield f"{service.title} is not tuned: {layout.unit} does not read {layout.main}"
                return
            config = gather(host.tree, layout.main, partial(read, called=called), includes)
            by_command = ["", *unit_environment.values_of(command, f"--{port}")][-1]
            listens = int(by_command) if is_whole(by_command) else config.number(port, service.port)
            yield RunningService(
                host=host, key=service.key, config=config, kind=service.role, port=listens,
                listen=_address(config, address), loses=loses(config),
                unit=layout.own_unit,
            )  # fmt: skip

    def tunables(running: RunningService) -> Iterator[Tunable]:
        """Yield a tunable per option. Missing options are added at the end and have stock values
        until then.
        """
        unit = running.unit or service.unit_name
        command = unit_environment.words(running.host.tree, unit)
        parameters = {parameter.name: parameter for parameter in service.parameters}
        for option, name in options.items():
            stock, notation = parameters[name].stock, notation_of(parameters[name], YES_NO)
            absent = last_line(running.config, stock, f"{option} ")
            left = f"the command of {unit} sets `--{option}`" if f"--{option}" in command else ""
            yield Tunable(name, option, notation, absent=absent, last=True, left=left)

    return Adoption(
        known_as=service.title,
        units=(service.unit_name,),
        elsewhere=layouts.elsewhere,
        paths=paths,
        version=f"{layouts.running} && {version}",
        find=find,
        understood=Understood(
            partial(read, called=called),
            frozenset((*options, port, address)),
            reads=frozenset((port, address)),
        ),
        tunables=tunables,
    )


def _address(config: Config, option: str) -> str:
    """Return the first listening address, or an empty string if it listens on all."""
    first = config.last(option).strip("\"'").partition(",")[0].removeprefix("-")
    return "" if first in ("", "*", "0.0.0.0", "::") else first  # noqa: S104  # read, not bound
