"""A service: Python's own web server, with one option in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.services.base import (
    Argv,
    ConfigFile,
    Placement,
    Programs,
    Readback,
    Role,
    Service,
    on_restart,
)
from autotune.services.diagnosis import Diagnosis, Resource
from autotune.services.option_lines import parse_directives
from autotune.services.readback import build_config_parser

CONTRACT = 1
_CHECK = "import sys; sys.exit(not open(sys.argv[1]).read().startswith('threads '))"


class Pages(Service):
    name = "pages"
    title = "Python's web server"
    role = Role.WEB
    deployment = "pages"
    port = 8000
    config_paths = ("pages.conf", "/etc/pages.conf")
    unit_name = "pages.service"
    package_source = "Python has it"
    programs: ClassVar[Programs] = {"python3": ("python3",), "cat": ("cat",)}
    parameters = (
        on_restart("threads", "Threads.", stock=2, low=1, high="4 * cpus", source="the sample"),
    )

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        return (ConfigFile(self.config_path(placement), "pages", text="threads {{ threads }}\n"),)

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (placement.programs["python3"], "-c", _CHECK, self.config_path(placement))

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (placement.programs["python3"], "-m", "http.server", "--bind", placement.listen.host,
                str(placement.listen.port))  # fmt: skip

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        path = placement.choose(f"{placement.directory}/pages.conf", self.config_paths[1])
        shown = (placement.programs["cat"], path)
        return (Readback(shown, build_config_parser(parse_directives, {"threads": "threads"})),)


SERVICES = (Pages(),)
DIAGNOSIS = Diagnosis(
    counter_query=None, find_log=None, recommended_changes={Resource.WORKERS: ("threads+",)}
)
