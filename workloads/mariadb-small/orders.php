<?php
// The orders of five customers, each with its own table.
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$shop = new mysqli('p:198.19.108.12', 'shop', 'shop', 'shop');
$total = $rows = 0;
for ($visit = 0; $visit < 5; $visit++) {
    $customer = mt_rand(1, 1500);
    $answer = $shop->query("SELECT COUNT(*) AS number, SUM(LENGTH(text)) AS size FROM orders$customer WHERE price > 100");
    $row = $answer->fetch_assoc();
    $rows += $row['number'];
    $total += $row['size'];
}
header('Content-Type: text/plain');
http_response_code($rows > 0 ? 200 : 500);
printf("%04d orders, %07d bytes\n", $rows, $total);
