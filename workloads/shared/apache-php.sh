# Starts Apache with mod_php.
exec 2>&1
a2dismod -q -f mpm_event mpm_worker
a2enmod -q mpm_prefork "$(basename "$(ls /etc/apache2/mods-available/php*.load | sort -V | tail -n 1)" .load)"
systemctl enable --now apache2
systemctl restart apache2
