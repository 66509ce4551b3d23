"""Varnish in front of nginx, gunicorn with a Django application, and PostgreSQL."""

from __future__ import annotations

from tests.stacks.databases import PASSWORD, POSTGRESQL, POSTGRESQL_ROWS
from tests.stacks.shop_parts import build_gunicorn_unit, build_nginx_site
from tests.stacks.site import Stack

_CACHE = """
set -e
exec 2>&1
cat >/etc/varnish/default.vcl <<'END'
vcl 4.1;

probe site {
    .url = "PROBE";
    .interval = INTERVAL;
    .timeout = 5s;
    .window = 3;
    .threshold = 2;
    .initial = 2;
}

backend web1 {
    .host = "@WEB@";
    .port = "80";
    .probe = site;
}

sub vcl_recv {
    # Search results are not cached.
    if (req.url ~ "^/(events|search)") {
        return (pass);
    }
}
END
mkdir -p /etc/systemd/system/varnish.service.d
cat >/etc/systemd/system/varnish.service.d/port.conf <<'END'
[Service]
ExecStart=
ExecStart=/usr/sbin/varnishd -j unix,user=vcache -F -a :80 -T localhost:6082 \\
    -f /etc/varnish/default.vcl -S /etc/varnish/secret -s malloc,64m
END
systemctl daemon-reload
systemctl enable varnish
systemctl restart varnish
"""
_WEB = """
set -e
exec 2>&1
id shop >/dev/null 2>&1 || useradd --system shop
mkdir -p /srv/shop
cat >/etc/nginx/sites-available/default <<'END'
SITEEND
APPLICATION
systemctl daemon-reload
systemctl enable shop nginx
systemctl restart shop nginx
""".replace("SITE", build_nginx_site("127.0.0.1:8000"))


def _write_unit(user: str, module: str) -> str:
    unit = build_gunicorn_unit(user, module)
    return f"\ncat >/etc/systemd/system/shop.service <<'END'\n{unit}END\n"


# psql is installed on every machine that runs the tests, but neither Django nor a driver is.
_OFFERS = f"""
printf 'PGHOST=@DB@\\nPGUSER=shop\\nPGDATABASE=shop\\nPGPASSWORD={PASSWORD}\\n' >/etc/shop.env
chmod 600 /etc/shop.env
cat >/srv/shop/shop.py <<'END'
import re
import subprocess

QUERY = "SELECT name, text, price FROM offers WHERE price >= %d ORDER BY price, id LIMIT 20"

def application(environ, start_response):
    match = re.match("first=([0-9]+)", environ.get("QUERY_STRING", ""))
    argv = ["psql", "-XAtqc", QUERY % int(match[1] if match else 0)]
    rows = subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
    offers = [f"<h2>{{name}}: {{price}}</h2><p>{{text}}</p>\\n"
              for name, text, price in (row.split("|") for row in rows)]
    page = "".join(offers).encode()
    status = "200 OK" if offers else "503 Service Unavailable"
    start_response(status, [("Content-Type", "text/html"), ("Content-Length", str(len(page)))])
    return [page]
END
""" + _write_unit("shop", "shop:application")
EVENTS = 2000
# Events about deployments, five minutes apart, with which Graphite annotates its graphs.
_GRAPHITE = f"""
ln -sf /etc/graphite/local_settings.py /usr/lib/python3/dist-packages/graphite/
cat >>/etc/graphite/local_settings.py <<'END'
SECRET_KEY = '{PASSWORD}-sessions'
TIME_ZONE = 'UTC'
ALLOWED_HOSTS = ['*']
DATABASES = {{'default': {{
    'ENGINE': 'django.db.backends.postgresql', 'NAME': 'shop', 'USER': 'shop', 'HOST': '@DB@',
    'PASSWORD': '{PASSWORD}', 'PORT': '', 'CONN_MAX_AGE': 600,
}}}}
END
printf 'DJANGO_SETTINGS_MODULE=graphite.settings\\n' >/etc/shop.env
cat >/root/fill.py <<'END'
from datetime import datetime, timedelta, timezone
from graphite.events.models import Event
first = datetime(2026, 1, 1, tzinfo=timezone.utc)
Event.objects.bulk_create(
    Event(when=first + timedelta(minutes=5 * i), what=f"Deployment {{i}}", tags=f"web{{i % 7}}",
          data=f"Build {{i}} went out. " * 8)
    for i in range({EVENTS}))
END
graphite-manage migrate --run-syncdb --noinput
graphite-manage shell </root/fill.py
rm /root/fill.py
chown -R _graphite:_graphite /var/lib/graphite /var/log/graphite
""" + _write_unit("_graphite", "graphite.wsgi:application")
# Each page shows the twelve events of an hour.
_HOURS = [divmod(hour, 24) for hour in range(0, EVENTS // 12, 5)]
GRAPHITE_PAGES = {
    f"/events/get_data?from={hour:02}:00_202601{day + 1:02}&until={hour:02}:59_202601{day + 1:02}": (
        f"Deployment {12 * (24 * day + hour) + 11}"
    )
    for day, hour in _HOURS
}
GRAPHITE_PAGE = next(iter(GRAPHITE_PAGES))
PAGE = "/search?first=0"
PAGES = {
    **{f"/search?first={first}": f": {first}</h2>" for first in range(0, 1000, 50)},
    **{f"/?first={first}": f": {first}</h2>" for first in range(0, 1000, 200)},
}


def build_short(interval: str) -> Stack:
    """Return the stack with a small WSGI application that shows offers."""
    return _build("offers", interval, "/", _OFFERS, PAGES, {})


def build_long(interval: str) -> Stack:
    """Return the stack with Graphite, whose events are in the database."""
    packages = {"web": "graphite-web python3-psycopg2"}
    return _build("graphite", interval, "/version/", _GRAPHITE, GRAPHITE_PAGES, packages)


def _build(
    name: str,
    interval: str,
    probe: str,
    application: str,
    pages: dict[str, str],
    packages: dict[str, str],
) -> Stack:
    return Stack(
        name,
        scripts={
            "db": POSTGRESQL,
            "web": _WEB.replace("APPLICATION", application),
            "lb": _CACHE.replace("INTERVAL", interval).replace("PROBE", probe),
        },
        pages=pages,
        rows=POSTGRESQL_ROWS,
        own=("var/lib/postgresql", "var/lib/nginx", "var/lib/graphite", "srv/shop/__pycache__"),
        packages=packages,
    )
