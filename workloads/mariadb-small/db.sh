# Fills the database with 1,500 tables of about 140 KB, then starts it with the settings of a small server.
exec 2>&1
mv /etc/mysql/mariadb.conf.d/90-shop.cnf /root/90-shop.cnf
[ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql >/dev/null
systemctl enable --now mariadb
mysql <<'END'
CREATE DATABASE shop;
CREATE USER shop@'198.19.108.11' IDENTIFIED BY 'shop';
GRANT ALL ON shop.* TO shop@'198.19.108.11';
USE shop;
CREATE TABLE orders0 (id INT PRIMARY KEY AUTO_INCREMENT, price INT, text VARCHAR(600));
INSERT INTO orders0 (price, text) SELECT seq * 7919 % 1000, REPEAT(MD5(seq), 16) FROM seq_1_to_200;
END
for customer in $(seq 1500); do
    echo "CREATE TABLE orders$customer LIKE orders0;"
    echo "INSERT INTO orders$customer SELECT * FROM orders0;"
done | mysql shop
mv /root/90-shop.cnf /etc/mysql/mariadb.conf.d/90-shop.cnf
systemctl restart mariadb
