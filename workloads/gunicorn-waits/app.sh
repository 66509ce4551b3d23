# Runs gunicorn as its documentation shows it, behind nginx.
exec 2>&1
id shop || useradd --system shop
cat >/etc/systemd/system/shop.service <<'END'
[Unit]
Description=The shop
After=network.target

[Service]
Type=notify
User=shop
WorkingDirectory=/srv/shop
ExecStart=/usr/bin/gunicorn --bind 127.0.0.1:8000 --workers 2 --threads 1 shop:application
ExecReload=/bin/kill -s HUP $MAINPID

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now shop nginx
systemctl restart shop nginx
