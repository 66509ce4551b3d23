<?php
// The ten best customers of a region, by the number of different products.
$shop = new PDO('pgsql:host=198.19.109.12;dbname=shop', 'shop', 'shop', [
    PDO::ATTR_PERSISTENT => true,
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
]);
$report = $shop->prepare(
    'SELECT customer, COUNT(DISTINCT product) AS products, SUM(price) AS total FROM orders'
    . ' WHERE region = ? GROUP BY customer ORDER BY products DESC, total DESC LIMIT 10'
);
$report->execute([mt_rand(0, 39)]);
$rows = $report->fetchAll();
header('Content-Type: text/plain');
http_response_code(count($rows) === 10 ? 200 : 500);
foreach ($rows as $row) {
    printf("%08d %04d %08d\n", $row['customer'], $row['products'], $row['total']);
}
