<?php
// Loads the 40 classes of one of 100 modules and calls a method of each.
$module = mt_rand(0, 99);
$sum = 0;
for ($number = 0; $number < 40; $number++) {
    require __DIR__ . "/app/module$module/Class$number.php";
    $class = "Module{$module}\\Class$number";
    $sum += (new $class())->method0(1);
}
header('Content-Type: text/plain');
printf("sum %06d\n", $sum);
