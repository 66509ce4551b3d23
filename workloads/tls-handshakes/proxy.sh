# Starts nginx with a large key and one worker, as in the configuration that nginx itself ships.
exec 2>&1
openssl req -x509 -newkey rsa:4096 -nodes -days 30 -subj /CN=shop -keyout /etc/ssl/shop.key -out /etc/ssl/shop.crt
chmod 600 /etc/ssl/shop.key
sed -i 's/^worker_processes .*/worker_processes 1;/' /etc/nginx/nginx.conf
systemctl enable --now nginx
systemctl restart nginx
