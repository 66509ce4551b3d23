<?php
// Loads the 40 tables of one of 120 modules and adds up their prices.
$module = mt_rand(0, 119);
$sum = 0;
for ($number = 0; $number < 40; $number++) {
    foreach (require __DIR__ . "/app/module$module/table$number.php" as $price) {
        $sum += $price;
    }
}
header('Content-Type: text/plain');
printf("sum %06d\n", $sum);
