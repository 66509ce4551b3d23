"""What is released. Image and Debian package: built, tried on a bare Debian, and gone without a trace.

`make test-containers` runs it, as root. Packages come from the distribution and from PyPI.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.containers, pytest.mark.stack]  # of a machine with Podman, never hermetic
ROOT = Path(__file__).parents[1]
BASE, IMAGE = "localhost/autotune-test-debian", "localhost/autotune-test-image"
# The engine may not raise limits above those of whoever runs it.
RUN = ("podman", "run", "--rm", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
MODEL = (
    "autotune init --example paper && autotune run targets/paper.yaml --yes --time 2m --trials 4"
)
INSTALLED = f"""
apt-get update -qq
apt-get install --yes -qq --no-install-recommends /dist/*.deb
cd /tmp
{MODEL}
apt-get purge --yes -qq autotune
ls /opt/autotune /usr/bin/autotune /usr/share/man/man1/autotune.1.gz
"""


def out(*argv: str, cwd: Path = ROOT, code: int = 0) -> str:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=550, check=False,
        env={**os.environ, "UV": str(Path(sys.executable).with_name("uv"))},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def base(tmp_path: Path) -> Iterator[str]:
    tree = tmp_path / "base.tar"
    release = out("sh", "-c", '. /etc/os-release; echo "$VERSION_CODENAME"').strip()
    out("mmdebstrap", "--quiet", "--variant=minbase", release, str(tree))
    out("podman", "import", "--quiet", str(tree), BASE)
    yield BASE
    out("podman", "rmi", "--force", BASE, *([IMAGE] if IMAGE in out("podman", "images") else ()))


@pytest.fixture
def trust(tmp_path: Path) -> list[str]:
    """This machine's certificate authorities for pip: a registry may be behind one of its own."""
    (tmp_path / "pip.conf").write_text("[global]\ncert = /tmp/ca.crt\n")
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    return ["-v", f"{bundle}:/tmp/ca.crt:ro", "-v", f"{tmp_path}/pip.conf:/etc/pip.conf:ro"]


def test_the_documentation_is_a_site_that_asks_nobody() -> None:
    out("make", "docs")  # strict: a page outside the navigation or a dead link fails
    pages = [*(ROOT / "build" / "site").rglob("*.html")]
    assert len(pages) > 20
    for page in pages:
        assert not re.findall(r'<(?:script|img|link)[^>]+="https?://[^"]*"', page.read_text())


@pytest.mark.timeout(1800)  # of a dozen steps, each with a limit of its own, some from the network
def test_image_and_package_tune_a_model(base: str, trust: list[str], tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in (
        "scripts/deb",
        "Containerfile",
        ".containerignore",
        "requirements.lock",
        "LICENSE",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    dist = project / "dist"
    out(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist))
    out("scripts/deb", cwd=project)
    build = ("podman", "build", "--network", "host", "--build-arg", f"BASE={base}", *trust)
    out(*build, "--tag", IMAGE, ".", cwd=project)
    # Without a network Podman makes no bridge, which it would leave on this machine.
    assert "✓" in out(*RUN, "--network", "none", "--entrypoint", "sh", IMAGE, "-ec", MODEL)
    run = (*RUN, "--network", "host", "-v", f"{dist}:/dist:ro", base)
    # `ls` fails, for nothing of the package is left.
    printed = out(*run, "sh", "-ec", INSTALLED, code=2)
    assert "✓" in printed
    assert printed.count("No such file or directory") == 3
