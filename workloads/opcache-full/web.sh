# Writes the application, then starts nginx and PHP-FPM.
exec 2>&1
php /srv/generate.php
unit=$(basename "$(ls /usr/lib/systemd/system/php*-fpm.service | sort -V | tail -n 1)" .service)
sed -i "s|php/php-fpm.sock|php/$unit.sock|" /etc/nginx/sites-available/default
systemctl enable --now "$unit" nginx
systemctl restart "$unit" nginx
