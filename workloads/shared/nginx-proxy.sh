# Starts nginx.
exec 2>&1
systemctl enable --now nginx
systemctl restart nginx
