"""Scripts that create a shop's database with 2,000 offers, as an administrator would."""

from __future__ import annotations

PASSWORD = "correct-Horse-7-battery"  # autotune must not write it to any file
OFFERS = 2000
MARIADB = f"""
set -e
exec 2>&1
[ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql >/dev/null
printf '[mysqld]\\nbind-address = 0.0.0.0\\n' >/etc/mysql/mariadb.conf.d/90-shop.cnf
systemctl enable --now mariadb
mariadb <<'END'
CREATE DATABASE shop;
CREATE USER shop@'@WEB@' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON shop.* TO shop@'@WEB@';
USE shop;
CREATE TABLE offers (id INT PRIMARY KEY, name TEXT, text TEXT, price INT, KEY (price));
INSERT INTO offers SELECT seq, CONCAT('Offer ', seq), REPEAT(MD5(seq), 8), seq * 7919 % 1000
    FROM seq_1_to_{OFFERS};
END
"""
MARIADB_ROWS = "mariadb-dump --skip-dump-date --skip-comments --databases shop | sha256sum"
# A cluster with an empty database.
POSTGRESQL_SHOP = f"""
set -e
exec 2>&1
version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
rm -rf /etc/postgresql/*
pg_createcluster "$version" main -- --no-sync
cd "/etc/postgresql/$version/main"
echo "listen_addresses = '*'" >conf.d/shop.conf
echo 'host shop shop @WEB@/32 scram-sha-256' >>pg_hba.conf
systemctl daemon-reload
systemctl enable --now "postgresql@$version-main"
cd /
runuser -u postgres -- psql -q -v ON_ERROR_STOP=1 <<'END'
CREATE USER shop PASSWORD '{PASSWORD}';
CREATE DATABASE shop OWNER shop;
END
"""
POSTGRESQL = f"""{POSTGRESQL_SHOP}runuser -u postgres -- psql -q -v ON_ERROR_STOP=1 shop <<'END'
CREATE TABLE offers AS SELECT i AS id, 'Offer ' || i AS name, repeat(md5(i::text), 8) AS text,
    (i * 7919) % 1000 AS price FROM generate_series(1, {OFFERS}) AS i;
CREATE INDEX ON offers (price);
ALTER TABLE offers OWNER TO shop;
ANALYZE offers;
END
"""
# A random word in the first lines of the dump differs each time.
POSTGRESQL_ROWS = r"""
cd / && runuser -u postgres -- pg_dump shop | sed '/^.\(un\)\?restrict /d' | sha256sum
"""
