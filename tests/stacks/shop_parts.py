"""Parts of set-up scripts that several sites named shop have in common."""

from __future__ import annotations

# nginx before the application, which listens on SERVER.
NGINX_SITE = """\
upstream shop {
    server SERVER;
}
server {
    listen 80;
    location / {
        proxy_pass http://shop;
        proxy_set_header Host $host;
    }
}
"""
# gunicorn with the application MODULE, as the account USER.
GUNICORN_UNIT = """\
[Unit]
Description=The shop
After=network.target

[Service]
Type=notify
User=USER
WorkingDirectory=/srv/shop
EnvironmentFile=/etc/shop.env
ExecStart=/usr/bin/gunicorn --bind 127.0.0.1:8000 --workers 2 MODULE
ExecReload=/bin/kill -s HUP $MAINPID

[Install]
WantedBy=multi-user.target
"""


def build_nginx_site(server: str) -> str:
    """The lines of a site in nginx before an application that listens on ``server``."""
    return NGINX_SITE.replace("SERVER", server)


def build_gunicorn_unit(user: str, module: str) -> str:
    """The lines of a unit of gunicorn."""
    return GUNICORN_UNIT.replace("USER", user).replace("MODULE", module)
