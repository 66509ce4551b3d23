"""Configuration files with one option and its values per line: syntax and adoption."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from autotune.services import unit_environment
from autotune.services.adoption import (
    Adoption,
    DistributionLayout,
    DistributionLayouts,
    RunningHost,
    RunningService,
)
from autotune.services.base import Service
from autotune.services.config_files import (
    Config,
    Directive,
    IncludeParser,
    Word,
    parse_include,
    read_config,
)
from autotune.services.directives import YES_NO, Tunable, append_line, select_notation
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

_JOINED_OPTION_PATTERN = re.compile(r"(?P<name>--[\w-]+(?==)|-[a-zA-Z](?=\d))=?(?P<value>.+)")
_WORD_PATTERN = re.compile(r""""(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s]+""")


def parse_directives(text: str, aliases: Mapping[str, str] | None = None) -> tuple[Directive, ...]:
    """Return every option. A comment is a whole line, or the rest of one after a space.

    Names ignore case, except for command options (`-x`). ``aliases`` maps aliases of an option to
    its name here.
    """
    directives: list[Directive] = []
    for line in re.finditer(r"[^\n]+", text):
        words: list[Word] = []
        for match in _WORD_PATTERN.finditer(text, line.start(), line.end()):
            if match[0].startswith("#"):
                break
            words.append(Word(match[0], match.start()))
        if words:
            name, *values = _split_option(words[0])
            plain = name.text if name.text.startswith("-") else name.text.lower()
            name = Word((aliases or {}).get(plain, plain), name.start)
            directives.append(Directive(name, (*values, *words[1:])))
    return tuple(directives)


def _split_option(word: Word) -> list[Word]:
    """Split a command option from its value: `--threads=4` and `-t4` are one word."""
    pair = _JOINED_OPTION_PATTERN.fullmatch(word.text)
    if pair is None:
        return [word]
    return [Word(pair["name"], word.start), Word(pair["value"], word.start + pair.start("value"))]


def build_adoption(
    service: Service,
    options: Mapping[str, str],
    *,
    port_option: str,
    address_option: str,
    paths: tuple[str, ...],
    version_script: str,
    find_include: IncludeParser = parse_include,
    describe_loss: Callable[[Config], str] = lambda _: "",
    other_layouts: tuple[DistributionLayout, ...] = (),
    aliases: Mapping[str, str] | None = None,
) -> Adoption:
    """Return the adoption of a service with one such file.

    ``options`` maps options to parameters. ``port_option`` and ``address_option`` are the options for its
    listening address, and ``version_script`` is a command that prints its version. ``describe_loss``
    returns the
    data that a restart loses, ``other_layouts`` contains layouts of other distributions, and ``aliases``
    maps aliases of options.
    """
    layouts = DistributionLayouts(
        (
            DistributionLayout("Debian, Ubuntu", service.unit_name, service.config_paths[1]),
            *other_layouts,
        )
    )

    def find(host: RunningHost) -> Iterator[RunningService | str]:
        if layout := layouts.select_for_host(host):
            command = unit_environment.expand_command(host.tree, layout.unit)
            if command and layout.main_file not in command:
                yield f"{service.title} is not tuned: {layout.unit} does not read {layout.main_file}"
                return
            config = read_config(
                host.tree,
                layout.main_file,
                partial(parse_directives, aliases=aliases),
                find_include,
            )
            by_command = ["", *unit_environment.find_option_values(command, f"--{port_option}")][-1]
            listens = (
                int(by_command)
                if is_uint(by_command)
                else config.last_number(port_option, service.port)
            )
            yield RunningService(
                host=host, key=service.key, config=config, tier_kind=service.role, port=listens,
                listen_address=_find_address(config, address_option), restart_loss=describe_loss(config),
                unit=layout.unit_unless_debian,
            )  # fmt: skip

    def tunables(running: RunningService) -> Iterator[Tunable]:
        """Yield a tunable per option. Missing options are added at the end and have stock values
        until then.
        """
        unit = running.unit or service.unit_name
        command = unit_environment.expand_command(running.host.tree, unit)
        parameters = {parameter.name: parameter for parameter in service.parameters}
        for option, name in options.items():
            stock, notation = parameters[name].stock, select_notation(parameters[name], YES_NO)
            absent = append_line(running.config, stock, f"{option} ")
            left = f"the command of {unit} sets `--{option}`" if f"--{option}" in command else ""
            yield Tunable(
                name, option, notation, insertion=absent, last_wins=True, skip_reason=left
            )

    return Adoption(
        title=service.title,
        units=(service.unit_name,),
        other_units=layouts.other_units,
        paths=paths,
        version_script=f"{layouts.running_condition} && {version_script}",
        find_services=find,
        visible=VisibleDirectives(
            partial(parse_directives, aliases=aliases),
            frozenset((*options, port_option, address_option)),
            reads=frozenset((port_option, address_option)),
        ),
        list_tunables=tunables,
    )


def _find_address(config: Config, option: str) -> str:
    """Return the first listening address, or an empty string if it listens on all."""
    first = config.last_word(option).strip("\"'").partition(",")[0].removeprefix("-")
    return "" if first in ("", "*", "0.0.0.0", "::") else first  # noqa: S104  # read, not bound
