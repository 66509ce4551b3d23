"""nginx in front of Puma, which boots slowly, and PostgreSQL."""

from __future__ import annotations

from tests.stacks.databases import PASSWORD, POSTGRESQL, POSTGRESQL_ROWS
from tests.stacks.shop_parts import build_nginx_site
from tests.stacks.site import Stack

# Each worker boots the application separately. The master listens at once.
_APPLICATION = f"""
set -e
exec 2>&1
id shop >/dev/null 2>&1 || useradd --system shop
mkdir -p /srv/shop/config
printf 'PGHOST=@DB@\\nPGUSER=shop\\nPGDATABASE=shop\\nPGPASSWORD={PASSWORD}\\n' >/etc/shop.env
chmod 600 /etc/shop.env
cat >/srv/shop/config/puma.rb <<'END'
workers 2
threads 2, 2
bind "unix:///run/shop/puma.sock?umask=0111"
environment "production"
END
cat >/srv/shop/config.ru <<'END'
APPLICATION
sleep BOOT
run lambda {{ |env|
  first = env["QUERY_STRING"].to_s[/\\Afirst=(\\d+)/, 1].to_i
  page = offers(first).map {{ |row| "<h2>#{{row[0]}}: #{{row[2]}}</h2><p>#{{row[1]}}</p>\\n" }}.join
  headers = {{"Content-Type" => "text/html", "Content-Length" => page.bytesize.to_s}}
  [page.empty? ? 503 : 200, headers, [page]]
}}
END
cat >/etc/systemd/system/shop.service <<'END'
[Unit]
Description=The shop
After=network.target

[Service]
User=shop
WorkingDirectory=/srv/shop
EnvironmentFile=/etc/shop.env
RuntimeDirectory=shop
ExecStart=/usr/bin/puma -C config/puma.rb

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now shop
"""
_QUERY = "SELECT name, text, price FROM offers WHERE price >= #{first} ORDER BY price, id LIMIT 20"
# psql is installed on every machine that runs the tests, but Ruby's driver is not.
_BY_CLIENT = f"""
def offers(first)
  rows = IO.popen(["psql", "-XAtqc", "{_QUERY}"], &:read)
  rows.lines(chomp: true).map {{ |row| row.split("|") }}
end
"""
_BY_DRIVER = f"""
require "pg"
def offers(first)
  shop = (Thread.current[:shop] ||= PG.connect)
  shop.exec("{_QUERY}").values
rescue PG::Error
  Thread.current[:shop] = nil
  []
end
"""
_PROXY = """
set -e
exec 2>&1
cat >/etc/nginx/sites-available/default <<'END'
SITEEND
systemctl enable nginx
systemctl restart nginx
""".replace("SITE", build_nginx_site("unix:/run/shop/puma.sock"))
PAGE = "/?first=0"
PAGES = {f"/?first={first}": f": {first}</h2>" for first in range(0, 1000, 50)}


def build_short(boot: int) -> Stack:
    """Return the stack with a page of offers that calls psql. A worker needs ``boot`` seconds to
    boot.
    """
    return _build(boot, _BY_CLIENT, {})


def build_long(boot: int) -> Stack:
    """Return the stack with a page of offers that uses Ruby's driver, on persistent connections."""
    return _build(boot, _BY_DRIVER, {"lb": "ruby-pg"})


def _build(boot: int, queries: str, packages: dict[str, str]) -> Stack:
    application = _APPLICATION.replace("APPLICATION", queries).replace("BOOT", str(boot))
    return Stack(
        "offers",
        scripts={"db": POSTGRESQL.replace("@WEB@", "@LB@"), "lb": application + _PROXY},
        pages=PAGES,
        rows=POSTGRESQL_ROWS,
        own=("var/lib/postgresql", "var/lib/nginx"),
        packages=packages,
    )
