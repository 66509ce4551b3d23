# Starts Apache with TLS and 50 threads, and a proxy that delays like a network with round trips of 300 ms.
exec 2>&1
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=shop -keyout /etc/ssl/shop.key -out /etc/ssl/shop.crt 2>/dev/null
chmod 600 /etc/ssl/shop.key
echo '<h1>Welcome to the shop</h1>' >/var/www/html/index.html
cat >/etc/systemd/system/network.service <<'END'
[Service]
ExecStart=/usr/bin/python3 /srv/delay_proxy.py 8443 127.0.0.1 443 150
LimitNOFILE=65536
DynamicUser=yes

[Install]
WantedBy=multi-user.target
END
sed -i 's/MaxRequestWorkers .*/MaxRequestWorkers 50\nServerLimit 2/' /etc/apache2/mods-available/mpm_event.conf
a2dismod -q -f 'php*' mpm_prefork mpm_worker || true # fails if no module matches
a2enmod -q mpm_event ssl
a2dissite -q 000-default
a2ensite -q shop
systemctl daemon-reload
systemctl enable --now apache2 network
systemctl restart apache2
