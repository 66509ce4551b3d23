"""WordPress on two Debian hosts, set up as by an administrator, without autotune.

nginx and PHP-FPM use HTTPS with a certificate from a private CA, and a redirect from port 80.
MariaDB is on a separate host. All software comes from the distribution's packages, which are
downloaded once and installed in the hosts' layers. The machine that runs the lab is not changed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from autotune.lab.lifecycle import build_ssh_host, remove_lab, start_lab
from autotune.lab.plan import LabHost
from autotune.transports.ssh import SshTransport
from scripts.workloads.packages import download_packages, install_packages

SITE = "shop.example"
PASSWORD = "correct-Horse-7-battery"  # autotune must not write it to any file
PACKAGES = {
    "web": "nginx php-fpm php-mysql php-gd php-xml php-mbstring wordpress "
    "wordpress-theme-twentytwentyone",
    "db": "mariadb-server",
    "load": "",
}
PAGES = 30
_CERTIFICATES = f"""
set -e
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
    -subj '/CN=Shop CA' -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={SITE} \
    -keyout site.key -out site.csr
printf 'subjectAltName=DNS:{SITE}\n' >site.ext
openssl x509 -req -in site.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
    -extfile site.ext -out site.crt
"""
_DB = """
set -e
exec 2>&1
[ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql >/dev/null
printf '[mysqld]\\nbind-address = 0.0.0.0\\n' >/etc/mysql/mariadb.conf.d/90-shop.cnf
systemctl enable --now mariadb
mysql <<END
CREATE DATABASE shop;
CREATE USER shop@'@WEB@' IDENTIFIED BY '@PASSWORD@';
GRANT ALL ON shop.* TO shop@'@WEB@';
END
"""
# Writes WordPress's configuration file, whose name replaces `@CONFIG@`.
CONFIGURE = r"""
cat >/etc/wordpress/@CONFIG@ <<'END'
<?php
define('DB_NAME', 'shop');
define('DB_USER', 'shop');
define('DB_PASSWORD', '@PASSWORD@');
define('DB_HOST', '@DB@');
define('WP_CONTENT_DIR', '/var/lib/wordpress/wp-content');
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
$_SERVER['HTTPS'] = 'on';
END
chown root:www-data /etc/wordpress/@CONFIG@
chmod 640 /etc/wordpress/@CONFIG@
"""
FILL = r"""
cat >/root/fill.php <<'END'
<?php
$_SERVER['HTTP_HOST'] = '@SITE@';
$_SERVER['SERVER_NAME'] = '@SITE@';
define('WP_INSTALLING', true);
require '/usr/share/wordpress/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Shop', 'admin', 'admin@@SITE@', true, '', 'Adm1n-of-the-shop');
foreach (['siteurl', 'home'] as $name) update_option($name, 'https://@SITE@');
update_option('permalink_structure', '');
switch_theme("twentytwentyone");
for ($i = 1; $i <= @PAGES@; $i++) {
    wp_insert_post(['post_title' => "Offer $i", 'post_status' => 'publish', 'post_author' => 1,
        'post_content' => str_repeat("<p>Offer number $i is better than the one before it.</p>\n", 40)]);
}
END
php /root/fill.php
rm /root/fill.php
"""
_CERTIFICATE = r"""
set -e
exec 2>&1
mkdir -p /etc/ssl/shop
cp /root/site.crt /root/site.key /etc/ssl/shop/
chmod 600 /etc/ssl/shop/site.key
"""
_NGINX = r"""
cat >/etc/nginx/sites-available/shop <<'END'
server {
    listen 80;
    server_name @SITE@;
    return 301 https://$host$request_uri;
}

server {
    listen 443 ssl;
    server_name @SITE@;
    ssl_certificate /etc/ssl/shop/site.crt;
    ssl_certificate_key /etc/ssl/shop/site.key;
    root /usr/share/wordpress;
    index index.php;
    access_log /var/log/nginx/shop.log;

    location / {
        try_files $uri $uri/ /index.php?$args;
    }
    location ~ \.php$ {
        include snippets/fastcgi-php.conf;
        fastcgi_pass unix:/run/php/php8.2-fpm.sock;
    }
}
END
rm -f /etc/nginx/sites-enabled/default
ln -s ../sites-available/shop /etc/nginx/sites-enabled/shop
nginx -t
systemctl enable --now php8.2-fpm nginx
systemctl restart php8.2-fpm nginx
"""
_WEB = _CERTIFICATE + CONFIGURE.replace("@CONFIG@", "config-@SITE@.php") + _NGINX + FILL
# Everything except temporary entries of visitors' requests: transients, and the next time of cron.
DUMP = """
mysqldump --skip-dump-date --skip-comments --ignore-table=shop.wp_options shop | sha256sum
mysql shop -e "SELECT option_name, option_value, autoload FROM wp_options
    WHERE option_name NOT LIKE '%transient%' AND option_name <> 'cron' ORDER BY 1" | sha256sum
"""
CONTENT = r"""
cd /var/lib/wordpress/wp-content && find . -printf '%p %y %m %U:%G %l\n' | sort
find . -type f -exec sha256sum {} + | sort
"""


@dataclass(frozen=True)
class Shop:
    """The shop's hosts with their transports, and the path of the CA's certificate."""

    lab: Path
    transports: Mapping[str, SshTransport]
    addresses: Mapping[str, str]
    ca: Path

    def sh(self, host: str, script: str, *words: str) -> str:
        done = self.transports[host].run(["sh", "-c", script, "sh", *words], timeout=300.0)
        assert done.ok, f"{host}: {done.stdout}{done.stderr}"
        return done.stdout

    def data(self) -> tuple[str, str]:
        """Return checksums of the whole database, and the state of the site's files."""
        return self.sh("db", DUMP), self.sh("web", CONTENT)


@contextmanager
def running(directory: Path, network: str, packages: Path) -> Iterator[Shop]:
    """Yield a shop on the hosts of a separate lab in ``network`` (three numbers), and remove it
    afterwards.
    """
    hosts = [LabHost("load", f"{network}.10"), LabHost("web", f"{network}.11", cpus=0.8),
             LabHost("db", f"{network}.12", cpus=0.6)]  # fmt: skip
    lab, certificates = directory / "lab", directory / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    if not (certificates / "site.crt").exists():
        subprocess.run(["sh", "-c", _CERTIFICATES, "sh", certificates], check=True)
    try:
        start_lab(hosts, lab)
        transports = {host.name: SshTransport(build_ssh_host(lab, host.name)) for host in hosts}
        shop = Shop(lab, transports, {h.name: h.address for h in hosts}, certificates / "ca.crt")
        _install(shop, packages, certificates)
        yield shop
        for transport in transports.values():
            transport.close()
    finally:
        remove_lab(lab)


def download(packages: Path, needed: Mapping[str, str] = PACKAGES) -> None:
    """Download the packages that the hosts need and this machine lacks, into one directory per host."""
    for host, names in needed.items():
        download_packages(names.split(), packages / host)


def _install(shop: Shop, packages: Path, certificates: Path) -> None:
    words = {"@SITE@": SITE, "@PASSWORD@": PASSWORD, "@PAGES@": str(PAGES),
             "@WEB@": shop.addresses["web"], "@DB@": shop.addresses["db"]}  # fmt: skip
    for name in ("db", "web"):
        install_packages(shop.transports[name], packages / name)
    for name in ("site.crt", "site.key"):
        shop.transports["web"].put((certificates / name).read_bytes(), f"/root/{name}", mode=0o600)
    for name, script in (("db", _DB), ("web", _WEB)):
        text = reduce(lambda text, word: text.replace(*word), words.items(), script)
        print(shop.sh(name, text)[-400:])
