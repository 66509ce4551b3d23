"""Where a host has a service, and which of several by the same program."""

from __future__ import annotations

import pytest

from autotune.services.adoption import DistributionLayout, DistributionLayouts

LAYOUTS = DistributionLayouts((
    DistributionLayout("Debian", "db@{version}-{name}.service", "/etc/db/{version}/{name}/db.conf",
           "/usr/lib/db/{version}"),
    DistributionLayout("its own packages", "db-{version}.service", "/var/lib/db/{version}/db.conf"),
    DistributionLayout("others", "db.service", "/var/lib/db/data/db.conf"),
))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db@15-my-shop.service", ("15", "my-shop", "/etc/db/15/my-shop/db.conf")),
        ("/etc/db/9.6/main/conf.d/a.conf", ("9.6", "main", "/etc/db/9.6/main/db.conf")),
        ("db-16.service", ("16", "", "/var/lib/db/16/db.conf")),
        ("/var/lib/db/data/db.conf", ("", "", "/var/lib/db/data/db.conf")),
        ("db@15.service", None),
        ("dbs.service", None),
        ("/etc/db/15", None),
    ],
)
def test_a_unit_or_a_file_is_of_one_of_several(
    text: str, expected: tuple[str, str, str] | None
) -> None:
    layout = LAYOUTS.match_instance(text)
    assert (layout and (layout.version, layout.name, layout.main_file)) == expected


def test_all_of_one_is_where_it_is() -> None:
    layout = LAYOUTS.match_instance("db@15-main.service")
    assert layout is not None
    assert (layout.unit, layout.unit_unless_debian) == ("db@15-main.service", "")
    assert layout.program_directory == "/usr/lib/db/15"
