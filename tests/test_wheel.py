"""What a user gets who installs the wheel and has no checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer does."""
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(place)
    return place


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel in it; what it depends on is this one's."""
    directory = tmp_path_factory.mktemp("venv")
    venv.create(directory, symlinks=True)
    uv = Path(sys.executable).with_name("uv")
    argv = [str(uv), "pip", "install", "--quiet", "--offline", "--no-deps", "--no-config"]
    subprocess.run([*argv, "--python", str(directory / "bin/python"), str(built)], check=True)
    # Not a site directory of its own: where this checkout is installed is not looked up there.
    shared = sysconfig.get_path("purelib")
    site = sysconfig.get_path("purelib", "venv", {"base": str(directory)})
    Path(site, "shared.pth").write_text(f"{shared}\n")
    return directory


def autotune(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    argv = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.long
def test_an_empty_directory_gets_a_target_that_can_be_read(installed: Path, tmp_path: Path) -> None:
    done = autotune(installed, tmp_path, "init")
    assert done.returncode == 0, done.stderr
    written = tmp_path / "targets" / "local.yaml"
    assert written.read_text() == (ROOT / "targets" / "local.yaml").read_text()
    assert autotune(installed, tmp_path, "init").returncode == 0
    written.write_text("name: mine\n")
    again = autotune(installed, tmp_path, "init")
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert (installed / "autotune" / "py.typed").exists()


@pytest.mark.stack
def test_it_finds_its_templates_there(installed: Path, tmp_path: Path) -> None:
    assert autotune(installed, tmp_path, "init").returncode == 0
    done = autotune(installed, tmp_path, "check", "targets/local.yaml")
    assert done.returncode == 0, done.stderr
    code = (
        "from autotune.target.shipped_files import find_shipped_directory as find; "
        "print(find('templates'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)


def test_everything_that_is_shipped_is_in_it(installed: Path) -> None:
    for kind in ("templates", "targets"):
        shipped = {p.relative_to(ROOT) for p in (ROOT / kind).rglob("*") if p.is_file()}
        found = installed / "autotune" / "_shipped"
        assert shipped
        for path in shipped:
            assert (found / path).read_bytes() == (ROOT / path).read_bytes()
    data = {p.relative_to(ROOT) for p in (ROOT / "autotune").rglob("*")
            if p.is_file() and "__pycache__" not in p.parts}  # fmt: skip
    assert not {path for path in data if not (installed / path).is_file()}
    drawing = installed / "autotune" / "_shipped" / "plotly.min.js"
    assert (
        drawing.read_bytes()
        == Path(str(files("plotly"))).joinpath("package_data", "plotly.min.js").read_bytes()
    )


@pytest.mark.long
def test_from_an_empty_directory_to_a_role(environment: Path, tmp_path: Path) -> None:
    """What the README promises of the model, with nothing of this checkout in reach."""

    def run_autotune(*words: str) -> subprocess.CompletedProcess[str]:
        alone = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path),
                 "PYTHONPROFILEIMPORTTIME": "1"}  # fmt: skip  # names on stderr what is imported
        done = subprocess.run(
            list(words), cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=250,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    where = run_autotune("python", "-c", "import autotune; print(autotune.__file__)").stdout
    assert Path(where.strip()).is_relative_to(environment)
    run_autotune("autotune", "init", "--example", "paper")
    # The whole study is typed by tests/test_documented_commands.py.
    run = run_autotune("autotune", "run", "targets/paper.yaml", "--yes", "--json", "--trials", "3")
    made = json.loads(run.stdout)
    assert "sklearn.base" not in run.stderr  # it takes a second, and nothing here is made of it
    assert made["verdict"] == "improved"
    run_autotune("autotune", "report", made["study"], "--html", "report.html")
    report = (tmp_path / "report.html").read_text()
    assert re.search(r"<h1>.*✓", report)
    export = ("autotune", "export", made["study"], "--of-a-model", "--out", "winner")
    run_autotune(*export, "--format", "ansible")
    role = tmp_path / "winner" / "ansible"
    assert (role / "site.yml").exists()
    tasks = "".join(path.read_text() for path in role.glob("roles/autotune/tasks/*.yml"))
    assert "--check" in tasks
    assert "--write" in tasks
