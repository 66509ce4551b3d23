# Starts nginx and PHP-FPM, with the socket of the installed version.
exec 2>&1
unit=$(basename "$(ls /usr/lib/systemd/system/php*-fpm.service | sort -V | tail -n 1)" .service)
sed -i "s|php/php-fpm.sock|php/$unit.sock|" /etc/nginx/sites-available/default
systemctl enable --now "$unit" nginx
systemctl restart "$unit" nginx
