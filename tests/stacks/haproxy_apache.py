"""HAProxy with TLS and health checks in front of Apache (mpm_prefork, mod_php), and MariaDB."""

from __future__ import annotations

from tests.stacks.databases import MARIADB, MARIADB_ROWS, PASSWORD
from tests.stacks.site import NAME, Stack
from tests.study import wordpress

_BALANCER = """
set -e
exec 2>&1
cat >>/etc/haproxy/haproxy.cfg <<'END'

frontend https
	bind :443 ssl crt /etc/ssl/private/site.pem
	http-request set-header X-Forwarded-Proto https
	default_backend site

frontend http
	bind :80
	http-request redirect scheme https code 301

backend site
	option httpchk
	http-check send meth GET uri / ver HTTP/1.1 hdr Host shop.example
	server web1 @WEB@:80 check inter INTERVAL fall 3 rise 2
END
haproxy -c -q -f /etc/haproxy/haproxy.cfg
systemctl enable haproxy
systemctl restart haproxy
"""
_APACHE = """
set -e
exec 2>&1
a2dismod -q -f mpm_event mpm_worker
a2enmod -q mpm_prefork php8.2
rm -f /var/www/html/index.html
systemctl enable apache2
"""
_OFFERS = rf"""
cat >/var/www/html/index.php <<'END'
<?php
mysqli_report(MYSQLI_REPORT_OFF);
$shop = @new mysqli('p:@DB@', 'shop', '{PASSWORD}', 'shop');
if ($shop->connect_errno) {{
    http_response_code(503);
    exit($shop->connect_error);
}}
$first = (int) ($_GET['first'] ?? 0);
$from = "FROM offers WHERE price >= $first ORDER BY price, id LIMIT 20";
foreach ($shop->query("SELECT name, text, price $from") as $row)
    echo "<h2>$row[name]: $row[price]</h2><p>$row[text]</p>\n";
END
systemctl restart apache2
"""
# The page responds quickly, but each request then occupies one of five workers for two seconds.
_WORK_AFTERWARDS = """
cat >/var/www/html/index.php <<'END'
<?php
header('Content-Type: text/plain');
header('Content-Length: 6');
echo "right\n";
while (ob_get_level()) {
    ob_end_flush();
}
flush();
usleep(2000000);
END
cat >/etc/apache2/mods-available/mpm_prefork.conf <<'END'
StartServers 5
MinSpareServers 5
MaxSpareServers 6
MaxRequestWorkers 5
END
systemctl restart apache2
"""
PAGES = {f"/index.php?first={first}": f": {first}</h2>" for first in range(0, 1000, 50)}

# WordPress accepts any host name, and redirects to the configured one.
_WORDPRESS = (
    wordpress.CONFIGURE.replace("@CONFIG@", "config-default.php")
    + r"""
cat >/etc/apache2/sites-available/shop.conf <<'END'
<VirtualHost *:80>
    ServerName @SITE@
    DocumentRoot /usr/share/wordpress
    <Directory /usr/share/wordpress>
        Require all granted
        DirectoryIndex index.php
    </Directory>
</VirtualHost>
END
a2dissite -q 000-default
a2ensite -q shop
apache2ctl -t
systemctl restart apache2
"""
    + wordpress.FILL
)
_WORDPRESS_PACKAGES = (
    "php-mysql php-gd php-xml php-mbstring wordpress wordpress-theme-twentytwentyone"
)


def build_long(interval: str) -> Stack:
    """Return the stack with WordPress."""
    script = _WORDPRESS.replace("@SITE@", NAME).replace("@PASSWORD@", PASSWORD)
    posts = range(4, 4 + wordpress.PAGES)  # WordPress makes three of its own
    return Stack(
        "wordpress",
        scripts={
            "db": MARIADB,
            "web": _APACHE + script.replace("@PAGES@", str(wordpress.PAGES)),
            "lb": _BALANCER.replace("INTERVAL", interval),
        },
        pages={"/": "Offer", **{f"/?p={post}": f"Offer {post - 3}" for post in posts}},
        rows=wordpress.DUMP,
        tls=True,
        own=("var/lib/mysql", "var/lib/wordpress"),
        packages={"web": _WORDPRESS_PACKAGES},
    )


def build_overloaded(interval: str) -> Stack:
    """Return a stack whose page responds quickly at first, but sustains only a fraction of the rate
    that this latency suggests. The balancer's checks time out after 1 s.
    """
    balancer = _BALANCER.replace("\tserver web1", "\ttimeout check 1s\n\tserver web1")
    return _build("afterwards", interval, _WORK_AFTERWARDS, {"/index.php": "right"}, balancer)


def build_short(interval: str) -> Stack:
    """Return the stack with a page of offers. It needs no additional packages."""
    return _build("offers", interval, _OFFERS, PAGES)


def _build(
    name: str, interval: str, application: str, pages: dict[str, str], balancer: str = _BALANCER
) -> Stack:
    return Stack(
        name,
        scripts={
            "db": MARIADB,
            "web": _APACHE + application,
            "lb": balancer.replace("INTERVAL", interval),
        },
        pages=pages,
        rows=MARIADB_ROWS,
        tls=True,
    )
