from __future__ import annotations

import pytest

from autotune.deploy.staging import build_staged_check, staged_path
from autotune.services.base import TrialStart

CONF, SITE = "/etc/nginx/nginx.conf", "/etc/nginx/sites-available/default"
NEW_CONF = "/etc/nginx/.nginx.conf.autotune-new"
NEW_SITE = "/etc/nginx/sites-available/.default.autotune-new"
ASK = ("nginx", "-c", CONF, "-t")
LIMIT = ("timeout", "10")


@pytest.mark.parametrize(
    ("files", "how", "words"),
    [
        ((CONF,), ASK, ("nginx", "-c", NEW_CONF, "-t")),
        ((SITE,), ASK, ("with_files", "1", NEW_SITE, SITE, *ASK)),
        ((CONF, SITE), ASK, ("with_files", "2", NEW_CONF, CONF, NEW_SITE, SITE, *ASK)),
        ((CONF,), TrialStart(("x", CONF), "s"), ("trial", "/run/x", "s", *LIMIT, "x", NEW_CONF)),
        # The arguments come from the content of the file.
        (
            (SITE,),
            TrialStart(("x", "-m", "64"), "s"),
            ("trial", "/run/x", "s", *LIMIT, "x", "-m", "64"),
        ),
        # The main file includes another one.
        (
            (SITE,),
            TrialStart(("x", CONF), "s"),
            ("trial", "/run/x", "s", "with_files", "1", NEW_SITE, SITE, *LIMIT, "x", CONF),
        ),
    ],
)
def test_software_is_asked_about_new_files_by_their_paths_or_over_the_real_ones(
    files: tuple[str, ...], how: tuple[str, ...] | TrialStart, words: tuple[str, ...]
) -> None:
    staged_paths = {path: staged_path(path) for path in files}
    assert build_staged_check(how, "/run/x", staged_paths, (CONF, SITE)) == words


def test_a_file_that_is_staged_apart_is_mounted_for_its_software_alone() -> None:
    apart = "/srv/.autotune/app/conf"
    words = build_staged_check(
        ("check", "/srv/app/conf"), "/run/x", {"/srv/app/conf": apart}, ["/srv/app/conf"]
    )
    assert words == ("with_files", "1", apart, "/srv/app/conf", "check", "/srv/app/conf")
    words = build_staged_check(
        TrialStart(("x",), "s"), "/run/x", {"/srv/app/conf": apart}, ["/srv/app/conf"]
    )
    mounted = ("with_files", "1", apart, "/srv/app/conf")
    assert words == ("trial", "/run/x", "s", *mounted, *LIMIT, "x")
