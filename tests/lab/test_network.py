"""Labs that are raised at once, in a network of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab
LABS = 8
_RAISE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from autotune.errors import AutotuneError
from autotune.lab.network import make_bridge
from autotune.lab.plan import LabHost, build_plan

number = int(sys.argv[2])
at_once = Barrier(number)

def up(index):
    lab = build_plan([LabHost("web", f"198.18.7.{index + 10}")], Path(sys.argv[1], str(index)))
    at_once.wait()
    try:
        make_bridge(lab)
    except AutotuneError as error:
        return error.message
    return "up"

with ThreadPoolExecutor(number) as pool:
    print(*pool.map(up, range(number)), sep="\\n")
"""


def test_of_labs_raised_at_once_one_has_the_network(tmp_path: Path) -> None:
    own = ("unshare", "--net", sys.executable, "-c", _RAISE, str(tmp_path), str(LABS))
    printed = subprocess.check_output(own, text=True, timeout=60).splitlines()
    assert len(printed) == LABS
    assert printed.count("up") == 1, printed
    assert sum("198.18.7.0/24 is already in use by at" in line for line in printed) == LABS - 1
