"""How software is asked about new files: by their paths, or with them over the real ones."""

from __future__ import annotations

import pytest

from autotune.deploy.validation import staged_check
from autotune.services.base import TrialStart

CONF, SITE = "/etc/nginx/nginx.conf", "/etc/nginx/sites-available/default"
NEW_CONF = "/etc/nginx/.nginx.conf.autotune-new"
NEW_SITE = "/etc/nginx/sites-available/.default.autotune-new"
ASK = ("nginx", "-c", CONF, "-t")


@pytest.mark.parametrize(
    ("files", "how", "words"),
    [
        ((CONF,), ASK, ("nginx", "-c", NEW_CONF, "-t")),
        ((SITE,), ASK, ("judge", "1", NEW_SITE, SITE, *ASK)),
        ((CONF, SITE), ASK, ("judge", "2", NEW_CONF, CONF, NEW_SITE, SITE, *ASK)),
        ((CONF,), TrialStart(("x", CONF), "s"), ("trial", "/run/x", "s", "x", NEW_CONF)),
    ],
)
def test_the_words(
    files: tuple[str, ...], how: tuple[str, ...] | TrialStart, words: tuple[str, ...]
) -> None:
    assert staged_check(how, "/run/x", files) == words
