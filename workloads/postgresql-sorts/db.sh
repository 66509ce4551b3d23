# Creates a cluster with the settings of the package, and a table of about 210 MB.
exec 2>&1
version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
rm -rf /etc/postgresql/*
pg_createcluster "$version" main -- --no-sync
cd "/etc/postgresql/$version/main"
echo "listen_addresses = '*'" >conf.d/shop.conf
echo 'host shop shop 198.19.109.11/32 scram-sha-256' >>pg_hba.conf
systemctl daemon-reload
systemctl enable --now "postgresql@$version-main"
cd /
runuser -u postgres -- psql -q -v ON_ERROR_STOP=1 <<'END'
CREATE USER shop PASSWORD 'shop';
CREATE DATABASE shop OWNER shop;
END
runuser -u postgres -- psql -q -v ON_ERROR_STOP=1 shop <<'END'
CREATE UNLOGGED TABLE orders AS SELECT n AS id, n / 12500 AS region,
    md5(((n::bigint * 104729) % 20011)::text) AS product,
    repeat(md5(((n::bigint * 15485863) % 3011)::text), 3) AS customer,
    ((n::bigint * 31) % 1000)::int AS price, repeat(md5(n::text), 8) AS note
    FROM generate_series(0, 499999) AS n;
CREATE UNLOGGED TABLE blocked AS
    SELECT repeat(md5((n * 3)::text), 3) AS customer FROM generate_series(1, 75000) AS n;
CREATE INDEX ON orders (region);
ANALYZE orders, blocked;
GRANT SELECT ON orders, blocked TO shop;
END
