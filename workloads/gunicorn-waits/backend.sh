# Runs the remote service and, in front of it, a proxy that delays like a network with 40 ms round trips.
exec 2>&1
for unit in backend='slow_backend.py 8080 1 5' network='delay_proxy.py 8081 127.0.0.1 8080 20'; do
    cat >"/etc/systemd/system/${unit%%=*}.service" <<END
[Service]
ExecStart=/usr/bin/python3 /srv/${unit#*=}
LimitNOFILE=65536
DynamicUser=yes

[Install]
WantedBy=multi-user.target
END
done
systemctl daemon-reload
systemctl enable --now backend network
