"""A Django site on two Debian hosts, set up as by an administrator, without autotune.

nginx forwards to gunicorn, which runs under a separate account with its secrets in an environment
file. PostgreSQL is on a separate host. All software comes from the distribution's packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from autotune.lab.lifecycle import build_ssh_host, remove_lab, start_lab
from autotune.lab.plan import LabHost
from autotune.transports.ssh import SshTransport
from scripts.workloads.packages import install_packages
from tests.stacks.databases import OFFERS, PASSWORD, POSTGRESQL_SHOP
from tests.stacks.shop_parts import build_gunicorn_unit, build_nginx_site

PACKAGES = {"web": "nginx gunicorn python3-django python3-psycopg2", "db": "postgresql"}
_WEB = r"""
set -e
exec 2>&1
useradd --system shop
mkdir -p /srv/shop/offers/migrations
cd /srv/shop
touch offers/__init__.py offers/migrations/__init__.py
printf 'SECRET_KEY=@PASSWORD@-sessions\nSHOP_PASSWORD=@PASSWORD@\n' >/etc/shop.env
printf 'DJANGO_SETTINGS_MODULE=shop_settings\n' >>/etc/shop.env
chmod 600 /etc/shop.env
cat >shop_settings.py <<'END'
import os
SECRET_KEY = os.environ["SECRET_KEY"]
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["offers"]
ROOT_URLCONF = "offers.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "shop", "HOST": "@DB@",
    "PASSWORD": os.environ["SHOP_PASSWORD"], "CONN_MAX_AGE": 600,
}}
END
cat >offers/models.py <<'END'
from django.db import models
class Offer(models.Model):
    name = models.CharField(max_length=80)
    text = models.TextField()
    price = models.IntegerField(db_index=True)
END
cat >offers/urls.py <<'END'
from django.db.models import Avg, Count
from django.http import HttpResponse
from django.template import engines
from django.urls import path
from .models import Offer
PAGE = engines["django"].from_string(
    "<html><body><h1>{{ about.offers }} offers, {{ about.price|floatformat }} on average</h1>"
    "{% for offer in offers %}<h2>{{ offer.name }}: {{ offer.price }}</h2>"
    "<p>{{ offer.text|linebreaks }}</p>{% endfor %}</body></html>\n")
def listing(request, first=0):
    offers = list(Offer.objects.filter(price__gte=first).order_by("price", "id")[:20])
    about = Offer.objects.filter(price__gte=first).aggregate(offers=Count("id"), price=Avg("price"))
    return HttpResponse(PAGE.render({"offers": offers, "about": about}))
urlpatterns = [path("", listing), path("from/<int:first>/", listing)]
END
cat >/root/fill.py <<'END'
from offers.models import Offer
Offer.objects.bulk_create(
    Offer(name=f"Offer {i}", price=i * 7919 % 1000, text=f"Better than offer {i - 1}.\n" * 8)
    for i in range(@OFFERS@))
END
set -a; . /etc/shop.env; set +a
django-admin makemigrations --pythonpath . offers
django-admin migrate --pythonpath .
django-admin shell --pythonpath . </root/fill.py
rm /root/fill.py
cat >/etc/systemd/system/shop.service <<'END'
@UNIT@END
cat >/etc/nginx/sites-available/shop <<'END'
@SITE@END
rm -f /etc/nginx/sites-enabled/default
ln -s ../sites-available/shop /etc/nginx/sites-enabled/shop
systemctl daemon-reload
systemctl enable --now shop nginx
"""
_DUMP = r"""
cd / && runuser -u postgres -- pg_dump --data-only shop | sed '/^.\(un\)\?restrict /d' | sha256sum
"""
_CONTENT = "cd /srv/shop && find . -type f ! -name '*.pyc' -exec sha256sum {} + | sort"


@dataclass(frozen=True)
class Site:
    """The site's hosts, with their transports."""

    lab: Path
    transports: Mapping[str, SshTransport]
    addresses: Mapping[str, str]

    def sh(self, host: str, script: str) -> str:
        done = self.transports[host].run(["sh", "-c", script], timeout=300.0)
        assert done.ok, f"{host}: {done.stdout}{done.stderr}"
        return done.stdout

    def data(self) -> tuple[str, str]:
        """Return checksums of all rows, and of the site's files."""
        return self.sh("db", _DUMP), self.sh("web", _CONTENT)


@contextmanager
def running(directory: Path, network: str, packages: Path) -> Iterator[Site]:
    """Yield a site on the hosts of a separate lab in ``network`` (three numbers), and remove it
    afterwards.
    """
    hosts = [LabHost("load", f"{network}.10"), LabHost("web", f"{network}.11", cpus=0.8),
             LabHost("db", f"{network}.12", cpus=0.6)]  # fmt: skip
    lab = directory / "lab"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        start_lab(hosts, lab)
        transports = {host.name: SshTransport(build_ssh_host(lab, host.name)) for host in hosts}
        site = Site(lab, transports, {host.name: host.address for host in hosts})
        words = {"@UNIT@": build_gunicorn_unit("shop", "django.core.wsgi:get_wsgi_application()"),
                 "@SITE@": build_nginx_site("127.0.0.1:8000"),
                 "@PASSWORD@": PASSWORD, "@OFFERS@": str(OFFERS),
                 "@WEB@": site.addresses["web"], "@DB@": site.addresses["db"]}  # fmt: skip
        for name, script in (("db", POSTGRESQL_SHOP), ("web", _WEB)):
            install_packages(transports[name], packages / name)
            text = reduce(lambda text, word: text.replace(*word), words.items(), script)
            print(site.sh(name, text)[-400:])
        yield site
        for transport in transports.values():
            transport.close()
    finally:
        remove_lab(lab)
