# Runs the remote service as a unit.
exec 2>&1
cat >/etc/systemd/system/backend.service <<'END'
[Service]
ExecStart=/usr/bin/python3 /srv/slow_backend.py 8080 80 120
LimitNOFILE=65536
DynamicUser=yes

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now backend
