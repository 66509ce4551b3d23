"""``python -m scripts.workloads NAME`` records a workload; without a name it lists them."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from autotune import durable_files
from autotune.exit_handling import run_command
from scripts.workloads import catalogue, hosts, page, smoke
from scripts.workloads.record import Recording, record_workload

_MINUTES = 20.0  # minutes for the engineer's recipe, and for each study


def main(words: list[str]) -> int:
    """Run the command and return its exit code. After SIGTERM, a workload's hosts are removed, too."""
    return run_command(partial(_run, _parse_options(words)), as_json=False)


def _run(options: argparse.Namespace) -> None:
    if options.page:
        page.write_pages()
    elif options.name is None:
        for name in catalogue.list_names():
            print(f"{name:18} {catalogue.read_workload(name).title}")
    else:
        _run_workload(options)


def _run_workload(options: argparse.Namespace) -> None:
    workload = catalogue.read_workload(options.name)
    if options.up:
        hosts.start_hosts(workload)
        print(f"autotune run {workload.target.relative_to(catalogue.ROOT)}")
    elif options.down:
        hosts.remove_hosts(workload)
    elif options.smoke:
        with hosts.running_hosts(workload):
            print(smoke.check_workload(workload))
    else:
        recording = Recording(workload, options.minutes, options.studies / workload.name)
        with hosts.running_hosts(workload):
            record = record_workload(recording)
        text = json.dumps(record, indent=1) + "\n"
        durable_files.write_file(options.results / f"{workload.name}.json", text.encode())
        recording.file.unlink()  # the next recording measures everything again


def _parse_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.workloads", description=__doc__)
    parser.add_argument("name", nargs="?", help="workload to record")
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--up", action="store_true", help="only start its hosts")
    actions.add_argument("--down", action="store_true", help="only remove its hosts")
    actions.add_argument("--smoke", action="store_true", help="only check it crudely, in seconds")
    actions.add_argument("--page", action="store_true",
                         help="only write docs/workloads.md and the table of README.md")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=_MINUTES, metavar="N",
                        help="minutes of the engineer and of each study (default: 20)")  # fmt: skip
    parser.add_argument("--results", type=Path, default=catalogue.RESULTS_DIRECTORY, metavar="DIR",
                        help="directory of the record")  # fmt: skip
    parser.add_argument("--studies", type=Path, default=catalogue.STUDIES_DIRECTORY, metavar="DIR",
                        help="directory of studies and of an unfinished record")  # fmt: skip
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
