<?php
// The best offers of a region for customers that are not blocked.
$shop = new PDO('pgsql:host=198.19.109.12;dbname=shop', 'shop', 'shop', [
    PDO::ATTR_PERSISTENT => true,
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
]);
$report = $shop->prepare(<<<'END'
    SELECT COUNT(*) AS number, SUM(price) AS total, MAX(note) AS last FROM (
        SELECT customer, price, note FROM (
            SELECT customer, price, note,
                row_number() OVER (PARTITION BY product ORDER BY price DESC, note) AS place
            FROM orders WHERE region = ?
        ) AS ranked WHERE place = 1 ORDER BY price DESC, note LIMIT 40
    ) AS best WHERE customer NOT IN (SELECT customer FROM blocked)
    END);
$report->execute([mt_rand(0, 39)]);
$row = $report->fetch();
header('Content-Type: text/plain');
http_response_code($row['number'] > 0 ? 200 : 500);
printf("%04d offers, %08d in total, %s\n", $row['number'], $row['total'], $row['last']);
