"""Syntax and adoption of configuration files with one option and its values per line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import pairwise
from posixpath import basename

from autotune.services import unit_environment
from autotune.services.adoption import (
    Adoption,
    DistributionLayout,
    DistributionLayouts,
    RunningHost,
    RunningService,
    is_loopback,
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
_FLAGS_PATTERN = re.compile(r"-[ACFLMSZikrvV]+(?=[a-zA-Z])")  # memcached's, before another letter
_WORD_PATTERN = re.compile(r""""(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s]+""")


def parse_directives(
    file_text: str, aliases: Mapping[str, str] | None = None
) -> tuple[Directive, ...]:
    """Return every option in ``file_text``. A comment starts with `#` at the start of a line or after a
    space.

    Names are not case-sensitive, except for command options (`-x`). A line may contain several command
    options. ``aliases`` maps other names of options to the names that autotune uses. A unique prefix of
    a long name is also accepted.
    """
    directives: list[Directive] = []
    for line in re.finditer(r"[^\n]+", file_text):
        line_words: list[Word] = []
        is_command_line = line[0].lstrip().startswith("-")
        for match in _WORD_PATTERN.finditer(file_text, line.start(), line.end()):
            # Between command options, a comment needs no blank before it.
            word, hash_sign, _ = match[0].partition("#") if is_command_line else (match[0], "", "")
            if not word or word.startswith("#"):
                break
            line_words.append(Word(word, match.start()))
            if hash_sign:
                break
        directives += (
            _build_directive(option, aliases or {}) for option in _split_line(line_words)
        )
    return tuple(directives)


def _split_line(words: list[Word]) -> Iterator[list[Word]]:
    """Yield the words of each option in a line. Lines that start with `-d` or `-h` have no effect
    on Debian; only their first word is yielded.
    """
    if not words or not words[0].text.startswith("-") or words[0].text.startswith(("-d", "-h")):
        yield from (
            [words[:1] if words[0].text.startswith(("-d", "-h")) else words] if words else ()
        )
        return
    option_starts = [index for index, word in enumerate(words) if word.text.startswith("-")]
    for option_start, option_end in pairwise([*option_starts, len(words)]):
        yield words[option_start:option_end]


def _build_directive(line_words: list[Word], aliases: Mapping[str, str]) -> Directive:
    name_word, *value_words = _split_option(line_words[0])
    option_name = name_word.text if name_word.text.startswith("-") else name_word.text.lower()
    matching_names = (
        [option_name]
        if option_name in aliases
        else [alias for alias in aliases if alias.startswith(option_name)]
    )
    if option_name.startswith("--") and len(matching_names) == 1:
        option_name = aliases[matching_names[0]]
    return Directive(Word(option_name, name_word.start), (*value_words, *line_words[1:]))


def _split_option(word: Word) -> list[Word]:
    """Return a command option and its value as separate words, even if they are joined as in
    `--threads=4` and `-t4`. Letters of options without a value may precede the option: `-vm`.
    """
    if flags := _FLAGS_PATTERN.match(word.text):
        word = Word(f"-{word.text[flags.end() :]}", word.start + flags.end() - 1)
    option_match = _JOINED_OPTION_PATTERN.fullmatch(word.text)
    if option_match is None:
        return [word]
    return [
        Word(option_match["name"], word.start),
        Word(option_match["value"], word.start + option_match.start("value")),
    ]


@dataclass(frozen=True)
class OptionFile:
    """A service whose settings are in one file with one option per line.

    ``options`` maps options to parameters. ``port_option`` and ``address_option`` set the listening
    address, and ``socket_option`` replaces this address with a Unix socket. ``tls_port_option``
    sets a port for TLS alone. ``version_script`` is a
    command that prints the version. ``describe_loss`` describes the data that a restart loses.
    ``other_layouts`` are the layouts of other distributions, and ``aliases`` maps other names of
    options to names in ``options``.
    """

    service: Service
    options: Mapping[str, str]
    _: KW_ONLY
    port_option: str
    address_option: str
    socket_option: str = ""
    tls_port_option: str = ""
    paths: tuple[str, ...]
    version_script: str
    find_include: IncludeParser = parse_include
    describe_loss: Callable[[Config], str] = lambda _: ""
    other_layouts: tuple[DistributionLayout, ...] = ()
    aliases: Mapping[str, str] | None = None

    @property
    def layouts(self) -> DistributionLayouts:
        debian_layout = DistributionLayout(
            "Debian, Ubuntu", self.service.unit_name, self.service.config_paths[1]
        )
        return DistributionLayouts((debian_layout, *self.other_layouts))

    def build_adoption(self) -> Adoption:
        """Return the adoption data of the service, for detection and tuning."""
        layouts = self.layouts
        return Adoption(
            title=self.service.title,
            units=(self.service.unit_name,),
            other_units=layouts.other_units,
            paths=self.paths,
            version_script=f"{layouts.running_condition} && {self.version_script}",
            find_services=self._find_running,
            visible=VisibleDirectives(
                partial(parse_directives, aliases=self.aliases),
                frozenset((*self.options, self.port_option, self.address_option)),
                reads=frozenset((self.port_option, self.address_option)),
            ),
            list_tunables=self._list_tunables,
        )

    def _find_running(self, host: RunningHost) -> Iterator[RunningService | str]:
        layout = self.layouts.select_for_host(host)
        if layout is None:
            return
        service = self.service
        command = unit_environment.expand_command(host.tree, layout.unit)
        main_file = _find_main_file(command, layout.main_file)
        if not main_file:
            yield f"{service.title} is not tuned: {layout.unit} does not read {layout.main_file}"
            return
        parse_file = partial(parse_directives, aliases=self.aliases)
        config = read_config(host.tree, main_file, parse_file, self.find_include)
        if missing_reason := config.explain_missing_main():
            yield f"{service.title} is not tuned: {missing_reason}"
            return
        address = _find_address(config, self.address_option)
        option_values = unit_environment.find_option_values(
            _fold_option_names(command), f"--{self.port_option}"
        )
        port = self._locate_port(config, [*option_values][-1:], address)
        listening_ports = {
            listener.port
            for listener in host.listeners
            if listener.program in map(basename, service.programs)
        }
        if not port or (listening_ports and port not in listening_ports):
            tls_port = config.find_last_number(self.tls_port_option, 0)
            reason = _explain_port(port, listening_ports, tls_port)
            yield f"{service.title} is not tuned: {reason}"
            return
        yield RunningService(
            host=host,
            key=service.key,
            config=config,
            tier_kind=service.role,
            port=port,
            listen_address=_strip_port(address),
            restart_loss=self.describe_loss(config),
            unit=layout.unit_unless_debian if main_file == layout.main_file else layout.unit,
        )

    def _locate_port(self, config: Config, ports_in_command: list[str], address: str) -> int:
        """Return the service's TCP port, or 0 for a service without a TCP port."""
        port_word = config.find_last_word(self.port_option, str(self.service.port))
        port_in_file = port_word.strip("\"'")
        address_port = address.rpartition(":")[2] if _has_port(address) else ""
        port_text = next(filter(None, (*ports_in_command, address_port, port_in_file)), "")
        is_socket_only = bool(self.socket_option) and bool(config.find_all(self.socket_option))
        return int(port_text) if is_uint(port_text) and not is_socket_only else 0

    def _list_tunables(self, running: RunningService) -> Iterator[Tunable]:
        """Yield a tunable for each option. A missing option has its stock value, and is added at
        the end of the file.
        """
        unit = running.unit or self.service.unit_name
        command = unit_environment.expand_command(running.host.tree, unit)
        option_names = [word.partition("=")[0] for word in _fold_option_names(command)]
        parameters = {parameter.name: parameter for parameter in self.service.parameters}
        for option, parameter_name in self.options.items():
            stock = parameters[parameter_name].stock
            notation = select_notation(parameters[parameter_name], YES_NO)
            insertion = append_line(running.config, stock, f"{option} ")
            # A file that the command includes may set any option.
            setting_option = next(
                (name for name in (f"--{option}", "--include") if name in option_names), ""
            )
            skip_reason = f"the command of {unit} sets `{setting_option}`" if setting_option else ""
            yield Tunable(
                parameter_name,
                option,
                notation,
                insertion=insertion,
                last_wins=True,
                skip_reason=skip_reason,
            )


def _fold_option_names(command_words: tuple[str, ...]) -> list[str]:
    """Return the words of a command with long options in lower case, because Redis ignores their case."""
    return [word.lower() if word.startswith("--") else word for word in command_words]


def _explain_port(configured_port: int, listening_ports: set[int], tls_port: int) -> str:
    if tls_port and not configured_port:
        return f"it listens only with TLS, on port {tls_port}"
    if not configured_port:
        return "it listens on no TCP port"
    actual_ports = ", ".join(map(str, sorted(listening_ports)))
    return f"its files set port {configured_port}, but it listens on {actual_ports}"


def _find_main_file(command_words: tuple[str, ...], default_file: str) -> str:
    """Return the only configuration file in a command's arguments, or an empty string. If the command
    is unknown, ``default_file`` is returned.
    """
    named_files = [
        word for word in command_words[1:] if word.startswith("/") and word.endswith(".conf")
    ]
    if not command_words or default_file in command_words:
        return default_file
    return named_files[0] if len(named_files) == 1 else ""


def _has_port(address: str) -> bool:
    """True if an address ends with a port. An IPv6 address with a port is in brackets."""
    host, colon, port = address.rpartition(":")
    return bool(colon) and is_uint(port) and (":" not in host or host.endswith("]"))


def _strip_port(address: str) -> str:
    return address.rpartition(":")[0] if _has_port(address) else address


def _find_address(config: Config, option: str) -> str:
    """Return a listening address; empty if the server listens on all addresses.

    IPv6 addresses come last, because memcached-tool does not support IPv6. Command options (`-l`) may
    be repeated. Of other options, only the last line takes effect.
    """
    lines = config.find_all(option)
    addresses = [
        address.removeprefix("-")
        for line in (lines if option.startswith("-") else lines[-1:])
        for word in line.words
        for address in word.strip("\"'").split(",")
    ]
    # memcached accepts a protocol before an address: `notls:10.0.0.9`.
    addresses = [re.sub(r"^(?:notls|proto\[\w+\]):", "", address) for address in addresses]
    address = min(addresses, key=lambda text: (_is_ipv6(text), is_loopback(text)), default="")
    return "" if address in ("", "*", "0.0.0.0", "::") else address  # noqa: S104  # only read, never bound


def _is_ipv6(address: str) -> bool:
    return address.startswith("[") or address.count(":") > 1
