"""A user's own uWSGI adopted: its .ini file, and which units run one."""

from __future__ import annotations

import pytest

from autotune.deploy.templates import render_text
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances
from autotune.services.config_files import FileTree
from autotune.space.facts import HostFacts
from tests.discovery.places import adopted, filled

INI = """\
[uwsgi]
; workers = 9
http-socket = 127.0.0.1:9090
workers = 4
max-requests=1000
[other]
threads = 7
"""
UNIT = "/etc/systemd/system/shop.service"
PATH = "/srv/shop/shop.ini"


def host(
    command: str, place: str = "9090", path: str = PATH, ini: str = INI, **units: str
) -> DiscoveredHost:
    texts = {path: ini} | ({UNIT: f"[Service]\nExecStart={command}\n"} if command else {})
    return DiscoveredHost(
        name="web1", address="10.0.0.1", facts=HostFacts(4, 8 * 2**30, 65_536),
        tree=FileTree({name: text.encode() for name, text in texts.items()}),
        units=units, backlogs={place: 100}, processors=4,
    )  # fmt: skip


def test_its_options_are_edited_in_place_and_others_come_below_the_section_s_name() -> None:
    tier = adopted(host(f"/usr/bin/uwsgi --ini {PATH}"))
    values = {name.removeprefix("uwsgi."): value for name, value in tier.baseline_values.items()}
    assert values == {"processes": 4, "threads": 1, "listen": 100, "cheaper": 0, "max_requests": 1000,
                      "harakiri": 0}  # fmt: skip
    own = tier.adopted_configs["app.web1.uwsgi"]
    assert (own.unit, own.main) == ("shop.service", PATH)
    changed = {**values, "processes": 6, "threads": 2, "max_requests": 0}
    text = render_text(tier.templates[own.files[0].template], changed)
    text = filled(tier.discovered_tier.instances[0], "uwsgi", PATH, text)
    assert text == INI.replace("[uwsgi]", "[uwsgi]\nthreads = 2").replace("= 4", "= 6").replace(
        "1000", "0"
    )


@pytest.mark.parametrize(
    "command",
    [
        "/srv/venv/bin/uwsgi --master --ini=/srv/shop/shop.ini",
        "uwsgi /srv/shop/shop.ini",
        "/usr/bin/uwsgi --emperor /srv/shop --uid www-data",
    ],
)
def test_units_name_the_file_or_the_emperor_s_directory(command: str) -> None:
    assert adopted(host(command)).baseline_values["uwsgi.processes"] == 4


def test_applications_in_debian_s_own_unit_listen_where_that_puts_them() -> None:
    of = host("", "/run/uwsgi/app/shop/socket", "/etc/uwsgi/apps-enabled/shop.ini",
              "[uwsgi]\nmodule = shop\n", **{"uwsgi.service": "active"})  # fmt: skip
    own = adopted(of).adopted_configs["app.web1.uwsgi"]
    assert (own.listen, own.unit) == ("/run/uwsgi/app/shop/socket", "uwsgi.service")


@pytest.mark.parametrize(
    "of",
    [
        host(f"/usr/bin/uwsgi --ini {PATH}", place="80"),  # it does not run
        host("/usr/bin/uwsgi --http :9090 --module shop"),  # it has no file
        host(f"/usr/bin/gunicorn --ini {PATH}"),
    ],
)
def test_what_is_left_alone(of: DiscoveredHost) -> None:
    assert find_instances(of)[0] == ()


def test_a_template_of_the_package_is_no_news() -> None:
    template = {
        "/usr/lib/systemd/system/uwsgi-app@.service": b"[Service]\nExecStart=uwsgi --ini %i.ini\n"
    }
    of = host("")
    assert find_instances(DiscoveredHost(**{**vars(of), "tree": FileTree(template)})) == ((), ())


def test_two_applications_of_one_emperor_are_named_and_left_alone() -> None:
    of = host("/usr/bin/uwsgi --emperor /srv/shop")
    both = FileTree({**of.tree.files, "/srv/shop/wiki.ini": b"[uwsgi]\n"})
    running, notes = find_instances(DiscoveredHost(**{**vars(of), "tree": both}))
    assert running == ()
    assert "not tuned, because 2 uWSGI applications share it" in notes[0]


@pytest.mark.parametrize(
    ("written", "socket"),
    [
        ("%d%n.sock", "/srv/shop/shop.sock"),
        ("/run/%(project)/%n.sock", "/run/web/shop.sock"),
        ("%(place)/uwsgi.sock", "/run/web/uwsgi.sock"),
    ],
)
def test_placeholders_in_the_address_are_replaced(written: str, socket: str) -> None:
    ini = f"[uwsgi]\nproject = web\nplace = /run/%(project)\nsocket = {written}\nprocesses = 3\n"
    tier = adopted(host(f"/usr/bin/uwsgi --ini {PATH}", socket, ini=ini))
    assert tier.adopted_configs["app.web1.uwsgi"].listen == socket
