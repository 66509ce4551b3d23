"""What is masked in the configuration files of hosts, and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import masking, secret_detection
from autotune.command_secrets import find_credentials
from autotune.errors import AutotuneError

# The line, and what of it must be nowhere.
SECRETS = [line.rsplit(" ¦ ", 1) for line in r"""
proxy_set_header Authorization "Basic dXNlcjpodW50ZXIy"; ¦ dXNlcjpodW50ZXIy
proxy_set_header Authorization "Bearer hunter2hunter2"; ¦ hunter2hunter2
proxy_set_header X-Api-Key hunter2; ¦ hunter2
proxy_set_header X-Auth-Token "hunter2"; ¦ hunter2
proxy_set_header X-Secret hunter2; ¦ hunter2
grpc_set_header authorization "Bearer hunter2hunter2"; ¦ hunter2hunter2
proxy_pass http://admin:hunter2@10.0.0.1:8080; ¦ hunter2
fastcgi_param DB_PASS hunter2; ¦ hunter2
fastcgi_param  MYSQL_PWD  'hunter2'; ¦ hunter2
fastcgi_param DATABASE_URL mysql://shop:hunter2@db/shop; ¦ hunter2
fastcgi_param DATABASE_URL "hunter2"; ¦ hunter2
fastcgi_param APP_KEY base64:hunter2=; ¦ hunter2
fastcgi_param REDIS_PASSWORD hunter2 if_not_empty; ¦ hunter2
fastcgi_param SMTPPASS hunter2; ¦ hunter2
uwsgi_param SECRET_KEY hunter2; ¦ hunter2
set $upstream_token hunter2; ¦ hunter2
set $api_key "hunter2"; ¦ hunter2
secure_link_md5 "$secure_link_expires$uri$remote_addr hunter2"; ¦ hunter2
secure_link_secret hunter2; ¦ hunter2
if ($arg_token != "hunter2") { return 403; } ¦ hunter2
if ($http_x_api_key = hunter2) { return 200; } ¦ hunter2
env DB_PASSWORD=hunter2; ¦ hunter2
add_header X-Auth-Token hunter2; ¦ hunter2
memcached_password hunter2; ¦ hunter2
auth_jwt_secret "hunter2"; ¦ hunter2
# fastcgi_param DB_PASS=hunter2; ¦ hunter2
server 10.0.0.1 route=a?token=hunter2; ¦ hunter2
location / { proxy_set_header Authorization "Basic aHVudGVyMjpo"; } ¦ aHVudGVyMjpo
RequestHeader set Authorization "Basic dXNlcjpodW50ZXIy" ¦ dXNlcjpodW50ZXIy
RequestHeader set X-Api-Key hunter2 ¦ hunter2
Header always set X-Auth-Token "hunter2" ¦ hunter2
SetEnv DB_PASSWORD hunter2 ¦ hunter2
SetEnv APP_SECRET "hunter2" ¦ hunter2
SetEnv DATABASE_URL postgres://shop:hunter2@db/shop ¦ hunter2
DBDParams "host=db user=shop pass=hunter2" ¦ hunter2
DBDParams "host=db user=shop password=hunter2 dbname=x" ¦ hunter2
BalancerMember ajp://10.0.0.1:8009 secret=hunter2 ¦ hunter2
ProxyPass / http://admin:hunter2@10.0.0.1:8080/ ¦ hunter2
ProxyPass /app ajp://10.0.0.1:8009/ secret=hunter2 ¦ hunter2
AuthLDAPBindPassword "hunter2" ¦ hunter2
OIDCClientSecret hunter2 ¦ hunter2
OIDCCryptoPassphrase hunter2 ¦ hunter2
SessionCryptoPassphrase hunter2 ¦ hunter2
Define DB_PASS hunter2 ¦ hunter2
php_value mysqli.default_pw hunter2 ¦ hunter2
php_admin_value session.save_path "tcp://10.0.0.4:6379?auth=hunter2" ¦ hunter2
env[DB_PASS] = hunter2 ¦ hunter2
env[MYSQL_PWD] = "hunter2" ¦ hunter2
env[APP_KEY] = base64:hunter2 ¦ hunter2
env[DATABASE_URL] = mysql://shop:hunter2@db/shop ¦ hunter2
php_value[session.save_path] = "tcp://10.0.0.4:6379?auth=hunter2" ¦ hunter2
php_admin_value[mysqli.default_pw] = hunter2 ¦ hunter2
mysqli.default_pw = hunter2 ¦ hunter2
mysql.default_password = "hunter2" ¦ hunter2
session.save_path = "tcp://db:6379?weight=1&auth=hunter2&timeout=2" ¦ hunter2
newrelic.license_key = "hunter2" ¦ hunter2
;mysqli.default_pw = hunter2 ¦ hunter2
opcache.secret = hunter2 ¦ hunter2
requirepass hunter2 ¦ hunter2
requirepass "hunter2 hunter3" ¦ hunter2
# requirepass hunter2 ¦ hunter2
#requirepass hunter2 ¦ hunter2
masterauth hunter2 ¦ hunter2
primaryauth-pass hunter2 ¦ hunter2
tls-key-file-pass hunter2 ¦ hunter2
user default on >hunter2 ~* +@all ¦ hunter2
user shop on #9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 +get ¦ 9f86d081
sentinel auth-pass mymaster hunter2 ¦ hunter2
rename-command CONFIG b840fc02d524045429941cc15f59e41cb7be6c52 ¦ b840fc02
user shop insecure-password hunter2 ¦ hunter2
user shop password $5$rounds=5000$hunter2$abcdefgh ¦ hunter2
stats auth admin:hunter2 ¦ hunter2
http-request set-header Authorization "Basic aHVudGVyMjpo" ¦ aHVudGVyMjpo
http-request set-header X-Api-Key hunter2 ¦ hunter2
setenv API_TOKEN hunter2 ¦ hunter2
Environment="DB_PASS=hunter2" ¦ hunter2
Environment=API_KEY=hunter2 PORT=80 ¦ hunter2
Environment=REDIS_URL=redis://:hunter2@db:6379/0 ¦ hunter2
ExecStart=/usr/bin/app --port 80 --token=hunter2 ¦ hunter2
ExecStart=/usr/bin/app --password hunter2 ¦ hunter2
map $host $key { default Zk3v9QpL7xW2mN8rT4yB6cD1; } ¦ Zk3v9QpL7xW2mN8rT4yB6cD1
set $x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln; ¦ eyJzdWIiOiIxIn0
env AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE; ¦ AKIAIOSFODNN7EXAMPLE
set $y sk_live_hunter2; ¦ sk_live_hunter2
admin:$apr1$hunter2x$abcdefghijklmnop ¦ hunter2x
primary_conninfo = 'host=10.0.0.1 user=repl password=hunter2' ¦ hunter2
primary_conninfo = 'host=10.0.0.1 port=5432 user=repl password=''hunter2''' ¦ hunter2
primary_conninfo = 'host=10.0.0.1 user=repl password = hunter2 sslmode=require' ¦ hunter2
primary_conninfo = 'postgresql://repl:hunter2@10.0.0.1/postgres' ¦ hunter2
ssl_passphrase_command = 'echo hunter2' ¦ hunter2
archive_command = 'PGPASSWORD=hunter2 rsync %p backup:' ¦ hunter2
archive_command = 'RESTIC_PASSWORD=hunter2 restic backup %p' ¦ hunter2
archive_command = 'AWS_SECRET_ACCESS_KEY=hunter2/x wal-g wal-push %p' ¦ hunter2
restore_command = 'curl -u admin:hunter2 https://backup/%f -o %p' ¦ hunter2
archive_command = 'curl --user admin:hunter2 -T %p https://backup/%f' ¦ hunter2
archive_command = 'sshpass -p hunter2 scp %p backup:' ¦ hunter2
ldapbindpasswd = hunter2 ¦ hunter2
password = hunter2 ¦ hunter2
password=hunter2 ¦ hunter2
password="hunter2" ¦ hunter2
wsrep_sst_auth = sst:hunter2 ¦ hunter2
wsrep_sst_auth="sst:hunter2" ¦ hunter2
wsrep-sst-auth=sst:hunter2 ¦ hunter2
master_password = hunter2 ¦ hunter2
master-password=hunter2 ¦ hunter2
init_connect = "SET PASSWORD = PASSWORD('hunter2')" ¦ hunter2
loose_file_key_management_filekey = hunter2 ¦ hunter2
hashicorp-key-management-token = hunter2 ¦ hunter2
spider_password=hunter2 ¦ hunter2
set bereq.http.Authorization = "Basic dXNlcjpodW50ZXIy"; ¦ dXNlcjpodW50ZXIy
set bereq.http.X-Api-Key = "hunter2"; ¦ hunter2
set req.http.X-Secret = "hunter2"; ¦ hunter2
if (req.http.X-Purge-Token != "hunter2") { return (synth(405)); } ¦ hunter2
if (req.http.X-Purge-Token == "hunter2") { ¦ hunter2
if (req.http.X-Purge-Token ~ "^hunter2$") { ¦ hunter2
if (req.http.purge-key == "hunter2") { ¦ hunter2
set req.http.digest = digest.hmac_sha256("hunter2", req.url); ¦ hunter2
"Authorization: Basic dXNlcjpodW50ZXIy" ¦ dXNlcjpodW50ZXIy
ExecStart=/opt/app/bin/gunicorn --env SECRET_KEY=hunter2 app:app ¦ hunter2
ExecStart=/opt/app/bin/gunicorn -e DJANGO_SECRET_KEY=hunter2 app:app ¦ hunter2
ExecStart=/opt/app/bin/gunicorn -e "DB_PASS=hunter2" app:app ¦ hunter2
ExecStart=/opt/app/bin/gunicorn --keyfile /x/key --keyfile-password hunter2 ¦ hunter2
ExecStart=/opt/app/bin/gunicorn -e SENTRY_DSN=https://hunter2@sentry.io/1 ¦ hunter2
ExecStart=/usr/bin/env DATABASE_URL=postgres://u:hunter2@db/x /opt/app/bin/gunicorn ¦ hunter2
GUNICORN_CMD_ARGS="--workers 4 --env SECRET_KEY=hunter2" ¦ hunter2
Environment="GUNICORN_CMD_ARGS=-e SECRET_KEY=hunter2" ¦ hunter2
raw_env = ["DB_PASS=hunter2", "X=1"] ¦ hunter2
raw_env = ['DJANGO_SECRET_KEY=hunter2'] ¦ hunter2
SECRET_KEY = "hunter2" ¦ hunter2
DATABASES = {"default": {"PASSWORD": "hunter2", "USER": "x"}} ¦ hunter2
os.environ["DB_PASS"] = "hunter2" ¦ hunter2
os.environ.setdefault("SECRET_KEY", "hunter2") ¦ hunter2
user admin insecure-password hunter2 groups g ¦ hunter2
user admin password $6$abcdefgh$hunter2hunter2hunter2 groups g ¦ hunter2
http-request deny unless { req.hdr(X-Token) hunter2 } ¦ hunter2
http-request deny unless { req.hdr(X-Token) -m str hunter2 } ¦ hunter2
acl good req.hdr(X-Api-Key) hunter2 ¦ hunter2
acl good hdr(authorization) -m str "Basic dXNlcjpodW50ZXIy" ¦ dXNlcjpodW50ZXIy
acl tok url_param(token) hunter2 ¦ hunter2
redis-sentinel tcp-check send AUTH\ hunter2\r\n ¦ hunter2
tcp-check send AUTH\ hunter2\r\n ¦ hunter2
option mysql-check user haproxy password hunter2 ¦ hunter2
http-check send meth GET uri /h hdr Authorization "Basic dXNlcjpodW50ZXIy" ¦ dXNlcjpodW50ZXIy
http-request set-var(txn.token) str(hunter2) ¦ hunter2
dynamic-cookie-key hunter2 ¦ hunter2
MYSQL_ROOT_PASSWORD: hunter2 ¦ hunter2
MYSQL_ROOT_PASSWORD: "hunter2" ¦ hunter2
- POSTGRES_PASSWORD=hunter2 ¦ hunter2
- "POSTGRES_PASSWORD=hunter2" ¦ hunter2
command: redis-server --requirepass hunter2 ¦ hunter2
command: ["redis-server", "--requirepass", "hunter2"] ¦ hunter2
healthcheck: mysqladmin ping -phunter2 ¦ hunter2
mysqladmin -u root -phunter2 ¦ hunter2
ExecStartPre=/usr/bin/mysql -u root -p'hunter2' -e 'SELECT 1' ¦ hunter2
ExecStartPre=/usr/bin/mysql -u root -p"hunter2, too" -e 'SELECT 1' ¦ too
ExecStartPre=mariadb-dump -uroot -phunter2 shop ¦ hunter2
ExecStartPre=mysql -uroot --password='hunter2' ¦ hunter2
test: ["CMD", "mysqladmin", "ping", "-uroot", "-phunter2"] ¦ hunter2
test: ["CMD-SHELL", "mysqladmin ping -p\"hunter2\""] ¦ hunter2
ExecStartPost=/usr/bin/curl -u 'admin:hunter2' http://127.0.0.1/ ¦ hunter2
ExecStartPost=/usr/bin/curl -sfu "admin:hunter2" http://127.0.0.1/ ¦ hunter2
ExecStartPost=/usr/bin/curl --user=admin:hunter2 http://127.0.0.1/ ¦ hunter2
ExecStartPost=/usr/bin/curl --proxy-user 'admin:hunter2' http://127.0.0.1/ ¦ hunter2
test: ["CMD", "curl", "-f", "-u", "admin:hunter2", "http://127.0.0.1/"] ¦ hunter2
ExecStartPre=/usr/bin/redis-cli -a hunter2 ping ¦ hunter2
ExecStartPre=/usr/bin/redis-cli -h 10.0.0.4 -a 'hunter2' ping ¦ hunter2
ExecStartPre=/usr/bin/redis-cli AUTH shop hunter2 ¦ hunter2
ExecStartPre=/usr/bin/redis-cli config set requirepass hunter2 ¦ hunter2
test: ["CMD", "redis-cli", "-a", "hunter2", "ping"] ¦ hunter2
test: redis-cli -a hunter2 ping | grep PONG ¦ hunter2
Environment="CHECK=redis-cli -a \"hunter2\" ping" ¦ hunter2
command: redis-server --masterauth 'hunter2' ¦ hunter2
ExecStartPre=/bin/sh -c 'PGPASSWORD=hunter2 psql -h db -c "SELECT 1"' ¦ hunter2
ExecStartPre=/bin/sh -c "PGPASSWORD='hunter2' psql -h db" ¦ hunter2
ExecStartPre=mc alias set local http://127.0.0.1:9000 shop hunter2 ¦ hunter2
entrypoint: mc config host add local http://127.0.0.1:9000 "shop" "hunter2" ¦ hunter2
ExecStart=/usr/bin/sshpass -p 'hunter2' ssh db ¦ hunter2
entrypoint: ["sshpass", "-p", "hunter2", "ssh", "db"] ¦ hunter2
ExecStartPre=docker login -u shop -p hunter2 registry.example ¦ hunter2
test: mongosh -u admin -p hunter2 --eval "db.stats()" ¦ hunter2
ExecStartPre=htpasswd -bc /etc/nginx/users admin hunter2 ¦ hunter2
ExecStartPre=ldapsearch -x -D cn=admin -w hunter2 ¦ hunter2
ExecStartPost=rabbitmqctl change_password shop hunter2 ¦ hunter2
ExecStartPost=ab -n 10 -A admin:hunter2 http://127.0.0.1/ ¦ hunter2
ExecStartPost=openssl enc -k hunter2 -in a ¦ hunter2
""".strip().splitlines()]  # fmt: skip

ORDINARY = r"""
proxy_set_header Host $host;
proxy_set_header X-Real-IP $remote_addr;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header Authorization $http_authorization;
proxy_set_header Authorization "";
proxy_set_header X-Auth-Token $http_x_auth_token;
proxy_set_header Connection "upgrade";
proxy_pass_header Authorization;
proxy_hide_header X-Api-Key;
proxy_pass http://backend;
proxy_pass http://10.0.0.1:8080/app;
fastcgi_pass unix:/run/php/php8.2-fpm.sock;
fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
fastcgi_param HTTPS on;
fastcgi_param HTTP_AUTHORIZATION $http_authorization;
fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;
fastcgi_cache_key "$scheme$request_method$host$request_uri";
proxy_cache_key $scheme$proxy_host$request_uri;
limit_req zone=token burst=20 nodelay;
limit_req_zone $binary_remote_addr zone=token:10m rate=10r/s;
limit_req_zone $http_x_api_key zone=api_key:10m rate=5r/s;
ssl_certificate /etc/ssl/certs/shop.pem;
ssl_certificate_key /etc/ssl/private/shop.key;
ssl_password_file /etc/nginx/passwords;
ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-CHACHA20-POLY1305;
ssl_session_ticket_key /etc/nginx/ticket.key;
ssl_session_tickets off;
ssl_session_cache shared:SSL:10m;
server_tokens off;
#password_encryption = scram-sha-256	# scram-sha-256 or md5
auth_basic "Restricted area";
auth_basic_user_file /etc/nginx/htpasswd;
auth_request /auth;
auth_request_set $user $upstream_http_x_user;
auth_request_set $token $upstream_http_x_token;
secure_link $arg_md5,$arg_expires;
secure_link_md5 "$secure_link_expires$uri$remote_addr";
map $http_x_token $limit { default 1; }
set $token $arg_token;
set $no_cache 1;
if ($http_authorization = "") { return 401; }
log_format main '$remote_addr - $remote_user [$time_local] "$request" $status';
keepalive_timeout 65;
worker_connections 1024;
location ~ ^/(password|token)/reset { }
rewrite ^/password/reset$ /index.php?page=password last;
# password protected area
# set the authorization header for the backend
add_header Content-Security-Policy "script-src 'sha256-B2yPHKaXnvFWtRChIbabYmUBFZdVfKKXHbWtWidDVF8='";
add_header X-Frame-Options SAMEORIGIN;
Image=registry.example/b@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
access_log /var/log/nginx/token-access.log main;
ServerTokens Prod
AuthType Basic
AuthName "Members only"
AuthUserFile /etc/apache2/htpasswd
AuthBasicProvider file
Require valid-user
ProxyPass /app http://10.0.0.1:8080/app
ProxyPassReverse /app http://10.0.0.1:8080/app
PassEnv DB_PASSWORD
RequestHeader unset Authorization
RequestHeader set X-Forwarded-Proto "https"
SetEnvIf Authorization "(.*)" HTTP_AUTHORIZATION=$1
SSLCertificateKeyFile /etc/ssl/private/shop.key
SSLSessionTickets off
LoadModule auth_basic_module /usr/lib/apache2/modules/mod_auth_basic.so
BalancerMember http://10.0.0.1:80 route=web1
session.cookie_secure = 1
session.save_path = "/var/lib/php/sessions"
session.save_path = "tcp://10.0.0.4:6379"
mysqli.default_pw =
pm.max_children = 50
php_admin_value[error_log] = /var/log/fpm-php.www.log
env[PATH] = /usr/local/bin:/usr/bin:/bin
security.limit_extensions = .php
disable_functions = password_hash,exec
zend.assertions = -1
maxmemory-policy allkeys-lru
protected-mode yes
aclfile /etc/redis/users.acl
tls-key-file /etc/redis/redis.key
# requirepass is not compatible with the aclfile option and the ACL LOAD command
tcp-keepalive 300
user www-data;
user www-data www-data;
user nobody
server web1 10.0.0.1:80 check cookie web1
bind *:443 ssl crt /etc/haproxy/shop.pem
stats uri /admin?stats
http-request set-header X-Forwarded-Proto https
Environment=PATH=/usr/bin:/bin
EnvironmentFile=/etc/default/secrets
LoadCredential=tls:/etc/ssl/private/shop.key
LimitNOFILE=65536
Documentation=https://nginx.org/en/docs/
krb_server_keyfile = '/etc/x'
init_file = /etc/mysql/init.sql
file_key_management_filekey = FILE:/etc/mysql/enc/key
ExecStart=/usr/sbin/varnishd -a :80 -S /etc/varnish/secret -f /etc/varnish/default.vcl
server s1 10.0.0.1:80 check-send-proxy
cookie SRV insert dynamic
memcached_sasl_pwdb = /etc/sasl
primary_conninfo = 'host=10.0.0.1 user=repl passfile=/var/lib/postgresql/.pgpass'
password_encryption = scram-sha-256
#password_encryption = scram-sha-256
authentication_timeout = 1min
#authentication_timeout = 1min		# 1s-600s
ssl_key_file = '/etc/ssl/private/ssl-cert-snakeoil.key'
ssl_passphrase_command_supports_reload = off
#ssl_passphrase_command = ''
krb_server_keyfile = 'FILE:${sysconfdir}/krb5.keytab'
db_user_namespace = off
row_security = on
secure-file-priv = /var/lib/mysql-files
innodb_buffer_pool_size = 128M
key_buffer_size = 128M
ssl-key = /etc/mysql/server-key.pem
default_authentication_plugin = mysql_native_password
plugin-load-add = auth_socket
plugin_load_add = simple_password_check
old_passwords = 0
strict_password_validation = ON
max_password_errors = 100
default_password_lifetime = 0
skip-grant-tables = 0
unix_socket = ON
simple_password_check_minimal_length = 8
#wsrep_sst_auth=
wsrep_sst_method = rsync
if (req.http.Authorization) { return (pass); }
if (req.http.Authorization || req.http.Cookie) { return (pass); }
unset bereq.http.Authorization;
set req.http.X-Forwarded-For = client.ip;
hash_data(req.http.host);
set beresp.http.X-Token = req.http.X-Token;
set req.http.X-Token = regsub(req.url, "a", "b");
ExecStart=/usr/sbin/varnishd -S /etc/varnish/secret -p thread_pool_min=50
workers = 4
worker_class = "gthread"
keyfile = "/etc/ssl/private/app.key"
http-request auth realm private unless { http_auth(users) }
http-request deny if !{ req.hdr(X-Token) -m found }
acl tok req.hdr(X-Token) -m found
acl path_token path_beg /token
acl login path_beg /password/reset
http-request set-header X-Token %[req.hdr(X-Token)]
stick-table type string len 32 size 1m expire 30m store http_req_rate(10s)
http-request track-sc0 req.hdr(X-Api-Key)
capture request header Authorization len 64
secret = os.environ["SECRET_KEY"]
SECRET_KEY = os.environ["SECRET_KEY"]
password = None
ExecStartPre=/usr/bin/curl -u "admin:$PASS" http://127.0.0.1/
ExecStartPre=/usr/bin/curl -u admin:$(cat /run/secrets/it) -o /dev/null http://127.0.0.1/
ExecStartPre=/usr/bin/curl -sf -o /dev/null http://127.0.0.1/-u/a:b
ExecStartPre=/usr/bin/redis-cli -p 6379 -a "${REDIS_PASS}" ping
ExecStartPre=/usr/bin/mysql -P 3306 -u root -p shop
ExecStartPre=/usr/bin/mysql -u root -p"$MYSQL_PWD" -e 'SELECT 1'
ExecStart=/usr/bin/docker run -p 8080:80 nginx
ExecStartPre=docker login -u shop registry.example
ExecStartPre=vault login -method=ldap
ExecStartPre=/usr/bin/app -a hunter2 -u admin:hunter2
test: ["CMD", "redis-cli", "ping"]
""".strip().splitlines()


def test_there_are_enough_lines() -> None:
    assert len(SECRETS) >= 60
    assert len(ORDINARY) >= 40


def test_a_secret_is_masked_and_comes_from_the_host_again() -> None:
    for line, secret in SECRETS:
        text = f"first line\n  {line}\nlast line\n"
        masked = masking.mask_secrets(text)
        assert secret not in masked
        assert masked.startswith("first line\n")
        assert masked.endswith("\nlast line\n")
        assert masking.mask_secrets(masked) == masked
        assert masking.restore_secrets(masked.encode(), text.encode(), "it") == text.encode()


def test_an_ordinary_line_is_as_it_was() -> None:
    texts = [f"first line\n  {line}\nlast line\n" for line in ORDINARY]
    assert [text for text in texts if masking.mask_secrets(text) != text] == []


def test_a_secret_is_masked_in_a_command_over_several_lines() -> None:
    listed = "command:\n  - redis-cli\n  - -a\n  - hunter2\n  - ping\n"
    assert masking.mask_secrets(listed) == listed.replace("hunter2", "autotune-masked-1-of-1")
    named = "command:\n  - redis-server\n  - --requirepass\n  - hunter2\n  - --hz\n  - '10'\n"
    assert masking.mask_secrets(named) == named.replace("hunter2", "autotune-masked-1-of-1")
    continued = "ExecStart=curl \\\n  -u admin:hunter2 \\\n  http://a\nExecStop=b -u c:ordinary\n"
    assert masking.mask_secrets(continued) == continued.replace("hunter2", "autotune-masked-1-of-1")


# The same assignments as `_ASSIGNMENT_PATTERN`, with the whole name. A search with this pattern takes
# hundreds of steps for each character of a word such as "tokentokentoken".
WHOLE_ASSIGNMENT = re.compile(
    r"(?i)(?P<name>[\w.\[-]{0,40}"
    + secret_detection._NAME_REGEX
    + r"""[\w.-]{0,40})["']?\]?[ \t]*(?:!?==?~?\*?|(?P<pattern>!?~\*?)|(?<=["']),(?=[ \t]*["'])"""
    r"""|(?P<sign>:)(?:[ \t]|(?<=["']:)(?=["'])))[ \t]*(?:""" + secret_detection._VALUE_REGEX + ")"
)


def find_whole_assignments(text: str) -> list[tuple[str, str]]:
    return [(m["name"], m["in"] or m["bare"]) for m in WHOLE_ASSIGNMENT.finditer(text)]


def find_assignments(text: str) -> list[tuple[str, str]]:
    found = secret_detection._find_assignments(text)
    return [(name, match["in"] or match["bare"]) for name, match in found]


def test_assignments_are_found_from_the_part_of_the_name_that_tells() -> None:
    lines = [*(line for line, _ in SECRETS), *ORDINARY]
    for text in ("\n".join(lines), "\n\n".join([*reversed(lines), ""]), "", "\n", *lines):
        assert find_assignments(text) == find_whole_assignments(text)
    assert len(find_assignments("\n".join(lines))) > 20


@given(st.lists(st.sampled_from(["token", "pw", "a" * 39, "[", ".", "-", " ", "=", ":", '"', "'", "]",
                                 ",", "!", "~", "\n", "#", "x", "api"]), max_size=14))  # fmt: skip
def test_assignments_are_the_same_in_any_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert find_assignments(text) == find_whole_assignments(text)


# Each piece is repeated. A search with exponentially many steps would not end within the time limit of
# the tests.
HOSTILE_PIECES = ["'", '"', '\\"', "\\'", "\"'", "token", "pass", 'pw="\\', "pw: a,", "eyJ-", "eyJa.",
                  "$", "{", "%[", "{{", "curl ", "-u ", "mysql ", "basic ", " -", " --token", "= ", "a!",
                  "abcdefghi", "ab_", "acl x ", "[", "<", "-----BEGIN ", "a://b:", "hmac",
                  "#", "redis-cli -a ", "docker login -", "- curl\n", "curl \\\n", "mc alias set ",
                  "ldapsearch -w"]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE_PIECES)
def test_a_hostile_file_is_masked_in_a_bounded_number_of_steps(piece: str) -> None:
    text = piece * (20_000 // len(piece)) + "!"
    assert masking.mask_secrets(masking.mask_secrets(text)) == masking.mask_secrets(text)
    assert masking.find_secret_words(text.encode()) is not None


def test_many_switches_are_searched_in_a_bounded_number_of_steps() -> None:
    text = f"htpasswd -{'b' * 200_000} /etc/users admin hunter2"
    assert [text[slice(*span)] for span in find_credentials(text)] == ["hunter2", "admin"]
    assert not [*find_credentials(text.replace(" ", "-"))]


@pytest.mark.parametrize("line", ['\\"', '"', "'", "\"'", "a ", "= "])
def test_a_directive_is_read_to_its_fifth_word(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = secret_detection._WORD_PATTERN

    class Counted:
        def finditer(self, *place: Any) -> Iterator[re.Match[str]]:
            for match in whole.finditer(*place):
                read.append(match[0])
                yield match

    monkeypatch.setattr(secret_detection, "_WORD_PATTERN", Counted())
    list(secret_detection._find_in_directive(text := line * 1000, 0, len(text)))
    assert len([word for word in read if word != "="]) <= 5


OF_A_HOST = b"requirepass hunter2\nhz 10\n# masterauth hunter3\n"


def test_a_password_that_was_changed_since_is_the_one_that_is_kept() -> None:
    template = masking.mask_secret_bytes(OF_A_HOST).replace(b"hz 10", b"hz 20")
    rotated = OF_A_HOST.replace(b"hunter2", b"other7")
    assert masking.restore_secrets(template, rotated, "it") == rotated.replace(b"hz 10", b"hz 20")


@pytest.mark.parametrize("now", [
    None, b"", b"hz 10\n", b"requirepass hunter2\nhz 10\n",
    b"masterauth hunter3\nrequirepass hunter2\n", OF_A_HOST + b"masteruser a\nmasterauth b1\n",
])  # fmt: skip
def test_a_file_with_other_secrets_is_refused(now: bytes | None) -> None:
    with pytest.raises(AutotuneError, match="the secrets in web1: /etc/x differ"):
        masking.restore_secrets(masking.mask_secret_bytes(OF_A_HOST), now, "web1: /etc/x")


def test_a_key_is_masked_as_a_whole() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nabc=\n-----END RSA PRIVATE KEY-----"
    assert masking.mask_secrets(f"a\n{block}\nb\n") == "a\nautotune-masked-1-of-1\nb\n"
    assert masking.mask_secrets(f"a\n{block[:40]}") == "a\nautotune-masked-1-of-1"


def test_a_placeholder_next_to_what_is_no_text_is_filled_in() -> None:
    own = b"# caf\xe9\nrequirepass hunter2\n"
    hidden = masking.mask_secret_bytes(own)
    assert b"hunter2" not in hidden
    assert masking.restore_secrets(hidden, own, "it") == own


@pytest.mark.parametrize("digit", ["", "4", "-of-5"])
def test_what_follows_a_placeholder_is_not_part_of_it(digit: str) -> None:
    text = masking.mask_secret_bytes(OF_A_HOST).replace(b"1-of-2", f"1-of-2{digit}".encode())
    filled = masking.restore_secrets(text, OF_A_HOST, "it")
    assert filled == OF_A_HOST.replace(b"hunter2", f"hunter2{digit}".encode())


def test_a_placeholder_of_no_host_is_refused() -> None:
    twice = masking.mask_secret_bytes(masking.mask_secret_bytes(OF_A_HOST) + b"masterauth later7\n")
    assert b"later7" not in twice
    with pytest.raises(AutotuneError, match=r"the secrets in .* differ"):
        masking.restore_secrets(twice, OF_A_HOST, "it")


PIECES_OF_WORDS = ["token", "password", "api_key", "session", "sk_live_", "AKIA", "eyJ", "$1$", "=",
                   "0123456789ABCDEF", "abcdefghijkl", "-", "_", "+", ".", "%41", "id"]  # fmt: skip


@given(
    st.lists(
        st.sampled_from(PIECES_OF_WORDS) | st.text("abXY09=._-%$+,", max_size=9),
        max_size=8,
    )
)
def test_a_word_of_a_url_without_a_possible_secret_has_none(pieces: list[str]) -> None:
    word = "".join(pieces)
    assert secret_detection.may_contain_secret(word) or not secret_detection.find_secrets(word)
