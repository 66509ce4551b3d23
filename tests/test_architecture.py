"""What the layout promises: each service, generator and runtime in a place of its own, imports one
way.

``pytest -s`` shows what was looked at. Import order and circles count imports in functions, in
TYPE_CHECKING blocks and by name too.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import autotune
from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.registry import SHIPPED
from autotune.target import runtimes
from autotune.target.shipped_files import find_shipped_directory
from tests.sources import count_statements, function_lengths, nodes

PACKAGE = Path(autotune.__file__).parent
# A package imports from those before it. What nothing is said of may import everything.
ORDER = ("errors", "durable_files", "foreign_files", "study_argument", "periodic_task", "plugins",
         "account_key", "estimate", "parameter_name", "strict_parsing", "sqlite_schema", "config_text",
         "home_directory", "command_secrets", "secret_detection", "masking",
         "unified_diff", "target", "services", "space", "optimize", "transports", "deploy", "runtimes",
         "loads", "monitor", "measure", "diagnose", "simulate", "discovery", "environments",
         "study")  # fmt: skip
# Services whose names are ordinary words of the field, or of the applications that a tier serves.
ORDINARY = {"sysctl", "limits", "reference", "container"}
# Where a name may occur all the same. A name is any part of the text; a path ends in a slash.
SERVICE_NAMES = {
    "command_secrets.py": "client programs, whose options take passwords in the commands of any file",
    "simulate/": "models of the software of the published measurements: a model is of something",
    "loads/headroom.py": "load hosts run a server of their own to measure the generator against",
    "loads/access_logs/": "formats of logs, and user agents of health checks",
    "loads/closed_load.py": "a package that brings a generator",
    "loads/memcaslap.py": "a package that brings a generator, and the protocol it speaks",
    "loads/mutilate.py": "the protocol it speaks",
    "export/ansible.py": "the licence of the project",
    "lab/disk.py": "directories that a lab's hosts do not share with this machine",
    "sweep/request.py": "an example in a hint",
    "target/read_target.py": "an example in a hint",
    "target/key_hints.py": "examples in hints",
    "target/value_hints.py": "examples in hints",
    "target/consistency_checks.py": "`local_cache:` is a key of target files",
    "target/model.py": "`local_cache:` is a key of target files",
    "services/registry.py": "`local_cache:` is a key of target files",
    "services/base.py": "`local_cache` is a value of templates",
    "deploy/private_servers.py": "`local_cache:` is a key of target files",
    "deploy/stack.py": "`local_cache:` is a key of target files",
    "study/study_database.py": "the database that several machines share a study in",
    "cli/options.py": "the database that several machines share a study in",
    "cli/worker.py": "the database that several machines share a study in",
    "cli/help.py": "the database that several machines share a study in",
    "cli/completion.py": "`local_cache:` is a key of target files",
    "runtimes/containers.py": "`local_cache:` is a key of target files",
    "services/redis_protocol.py": "shared by the services that speak it",
    "services/kvrocks/": "it speaks another service's protocol, and is asked by its client",
    "services/local_cache/": "it is a memcached beside the application",
    "services/php_ini/": "settings of the PHP that these two run",
    "services/php_fpm/service.py": "PHP's clients of a cache and a store are packages of their own",
    "services/apache_config.py": "shared by the two services that are Apache",
    "services/apache_mod_php/": "it is an Apache, and PHP's clients of a cache and a store are packages",
    "services/nginx/service.py": "what a parameter means to the application server behind it",
}
GENERATOR_NAMES = {
    "target/": "the default of `load:`, and keys that only one generator has",
    "discovery/target_writer.py": "the default, written into a new target",
    "environments/": "ceilings of caches are those of two particular generators",
    "study/ceilings.py": "ceilings of caches are those of two particular generators",
}
RUNTIME_NAMES = {
    "target/runtimes.py": "values of `runtime:`, and what other keys of target files depend on",
    "target/key_hints.py": "names of other programs, and what to write instead",
    "target/value_hints.py": "names of other programs, and what to write instead",
    "environments/target_checks.py": "`container:` needs one of them",
    "environments/target_warnings.py": "`project:` needs one of them",
    "services/unit_files.py": "units are files of services like others",
    "services/limits/": "a drop-in of a unit is a file of a service like others",
    "services/local_cache/": "a unit of its own is a file like others",
    "discovery/host_reading.py": "services of running hosts are found as units",
    "export/ansible.py": "a module of Ansible's",
    "cli/lab.py": "hosts of a lab are machines that boot like others",
    "lab/": "hosts of a lab are machines that boot like others",
}
LONGEST_FUNCTION = 40  # lines of code
MOST_HAND_FORMATTED = 65  # data tables and commands with options
# What two packages mean different things by.
SHARED_CLASS_NAMES = {"Measurement", "TrialStart"}
# Statements in a service's folder, without docstrings and its reference page. A longer folder gives the
# reason why it is not two, and does not grow.
LONGEST_FOLDER = 225
LONGER_FOLDERS = {
    # One program in two roles that share most of the code: balancing, and serving in front of FastCGI.
    # The role is known only after all services of a host were read.
    # Its servers, locations and upstreams are scopes that override each other, and some only redirect.
    # An inserted header takes the indentation of its block. Whether connections to upstreams are kept
    # depends on directives that each block inherits.
    "nginx": 547,
    # A file in Ruby, whose lines, numbers, conditions and inner calls are read without running it.
    "puma": 329,
    # Modes and variables that sections inherit from each other, and addresses that only redirect.
    "haproxy": 319,
    # One program that balances, terminates TLS and serves FastCGI, with imports and snippets.
    "caddy": 230,
    # Settings of pools, of two web servers' files and of several versions.
    "php_ini": 273,
    # Settings of files, of SQL and of commands, at the places of three distributions.
    "postgresql": 237,
    # Options of a command, in the syntax of units, and backends in a language of its own.
    "varnish": 231,
}
# Modules that import others by a name that is known only at run time, and what the name starts with.
RUN_TIME_IMPORTS = {
    "autotune.services.registry": ("autotune.services.",),
    "autotune.runtimes": ("autotune.runtimes.",),
    "autotune.environments.preparation": tuple(
        f"autotune.environments.{name}" for name in ("command", "simulated", "stack")
    ),
    "autotune.plugins": (),
}
# Who may import a service's folder beside the folder itself; the registry does so by discovery.
KERNEL = "the kernel is part of what a host is: its facts are read before any service is known"
FOLDER_IMPORTS = {
    "services/php_ini/": "settings of the PHP that PHP-FPM runs, in the same syntax",
    "space/kernel.py": KERNEL,
    "transports/facts.py": KERNEL,
    "environments/simulated.py": "a modelled host has a kernel too",
    "services/local_cache/": "it is a memcached beside the application",
    "services/apache_mod_php/": "it is an Apache with another module",
}


def modules() -> dict[str, Path]:
    """Every module by what an import calls it."""
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
             for path in sorted(PACKAGE.rglob("*.py"))}  # fmt: skip
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


MODULES = modules()


def imports(module: str) -> Iterator[str]:
    prefixes = RUN_TIME_IMPORTS.get(module, ())
    yield from (name for name in MODULES if prefixes and name.startswith(prefixes))
    for node in nodes(MODULES[module]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def graph() -> dict[str, set[str]]:
    """The modules that each of them imports."""
    return {
        name: {other for other in imports(name) if other in MODULES} - {name} for name in MODULES
    }


def names(module: Path) -> Iterator[tuple[int, str]]:
    """Identifiers and literals with their lines; what explains the code is none of them."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    prose = {id(part.value) for node in nodes(module) if isinstance(node, owners)
             for part in node.body if isinstance(part, ast.Expr)}  # fmt: skip
    for node in nodes(module):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield line, text
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                yield line, text
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield line, text
            case ast.ImportFrom(module=str(text), names=aliases):
                yield line, " ".join([text, *(alias.name for alias in aliases)])


@functools.cache
def all_names() -> dict[str, tuple[tuple[int, str], ...]]:
    return {module: tuple(names(path)) for module, path in MODULES.items()}


def strays(pattern: re.Pattern[str], own: str, allowed: dict[str, str]) -> list[str]:
    """Where a name is that belongs to the folder or file ``own``."""
    found = []
    for name, path in MODULES.items():
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith((own, *allowed)):
            continue
        found += [f"{place}:{line}: {text!r}" for line, text in all_names()[name]
                  if pattern.search(text)]  # fmt: skip
    return found


@pytest.mark.parametrize("service", sorted({s.name for s in SHIPPED.services} - ORDINARY))
def test_a_service_is_named_in_its_folder_alone(service: str) -> None:
    pattern = re.compile(service.replace("_", "[-_]?"), re.IGNORECASE)
    folder = f"services/{service}/"
    assert (PACKAGE / folder).is_dir()
    assert strays(pattern, folder, SERVICE_NAMES) == []


@pytest.mark.parametrize(
    "folder", sorted({type(s).__module__.split(".")[2] for s in SHIPPED.services})
)
def test_a_folder_is_imported_by_itself_alone(folder: str) -> None:
    package = f"autotune.services.{folder}"
    found = [f"{module} imports {other}" for module, others in graph().items() for other in others
             if f"{other}.".startswith(f"{package}.") and not f"{module}.".startswith(f"{package}.")
             and module not in RUN_TIME_IMPORTS
             and not MODULES[module].relative_to(PACKAGE).as_posix().startswith((*FOLDER_IMPORTS,))
             ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize(
    "folder", sorted({type(s).__module__.split(".")[2] for s in SHIPPED.services})
)
def test_a_folder_is_short_enough_to_be_read(folder: str) -> None:
    modules = (PACKAGE / "services" / folder).rglob("*.py")
    count = sum(count_statements(path) for path in modules if path.name != "reference.py")
    assert 0 < count <= LONGER_FOLDERS.get(folder, LONGEST_FOLDER)


def test_functions_are_short_enough_to_be_read() -> None:
    lengths = {
        f"{module}.{name}": length
        for module, path in MODULES.items()
        for name, length in function_lengths(path).items()
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_classes_are_told_apart_by_their_names() -> None:
    names = Counter(node.name for path in MODULES.values() for node in nodes(path)
                    if isinstance(node, ast.ClassDef))  # fmt: skip
    assert {name for name, count in names.items() if count > 1} <= SHARED_CLASS_NAMES


@pytest.mark.parametrize("generator", sorted(LOAD_GENERATORS))
def test_a_generator_is_named_among_generators_alone(generator: str) -> None:
    pattern = re.compile(rf"\b{generator}\b", re.IGNORECASE)
    assert strays(pattern, "loads/", GENERATOR_NAMES) == []


@pytest.mark.parametrize("runtime", runtimes.RUNTIME_NAMES)
def test_a_runtime_is_named_in_its_file_alone(runtime: str) -> None:
    pattern = re.compile(rf"\b{runtime}\b", re.IGNORECASE)
    assert (PACKAGE / "runtimes" / f"{runtime}.py").is_file()
    assert strays(pattern, f"runtimes/{runtime}.py", RUNTIME_NAMES) == []


@pytest.mark.parametrize("runtime", runtimes.RUNTIME_NAMES)
def test_a_runtime_is_named_by_no_template(runtime: str) -> None:
    templates = [
        path
        for path in find_shipped_directory("templates").rglob("*.j2")
        if path.parent.name != "export"
    ]
    assert templates
    assert [path for path in templates if re.search(rf"\b{runtime}\b", path.read_text())] == []


@pytest.mark.parametrize("allowed", [SERVICE_NAMES, GENERATOR_NAMES, RUNTIME_NAMES, FOLDER_IMPORTS])
def test_what_is_allowed_is_there(allowed: dict[str, str]) -> None:
    assert [place for place in allowed if not (PACKAGE / place).exists()] == []


def imports_by_name(module: str) -> bool:
    """Whether a module imports what is not written in it."""
    calls = (node for node in nodes(MODULES[module]) if isinstance(node, ast.Call))
    return any(
        re.search(r"(^|\.)(import_module|__import__|exec_module|load)$", ast.unparse(call.func))
        and not any(isinstance(argument, ast.Constant) for argument in call.args)
        for call in calls
    )


def test_what_is_imported_by_name_is_known() -> None:
    assert {name for name in MODULES if imports_by_name(name)} == set(RUN_TIME_IMPORTS)


def test_imports_go_one_way() -> None:
    wrong = []
    for module, others in graph().items():
        for other in others:
            ranks = [ORDER.index(room) if (room := name.split(".")[1]) in ORDER else None
                     for name in (module, other) if "." in name]  # fmt: skip
            if (
                len(ranks) == 2
                and ranks[0] is not None
                and (ranks[1] is None or ranks[0] < ranks[1])
            ):
                wrong.append(f"{module} imports {other}")
    print(f"{len(MODULES)} modules, {sum(map(len, graph().values()))} imports between them")
    assert wrong == []


def test_imports_have_no_circles() -> None:
    circle: list[str] = []
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_data_tables_alone_are_formatted_by_hand() -> None:
    count = sum(path.read_text(encoding="utf-8").count("# fmt: skip") for path in MODULES.values())
    assert count <= MOST_HAND_FORMATTED
