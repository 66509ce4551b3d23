<?php
// Loads the 40 tables of one of 120 modules and reads a price from each.
$module = mt_rand(0, 119);
$sum = 0;
for ($number = 0; $number < 40; $number++) {
    $table = require __DIR__ . "/app/module$module/table$number.php";
    $sum += $table[mt_rand(0, 4999)];
}
header('Content-Type: text/plain');
printf("sum %06d\n", $sum);
