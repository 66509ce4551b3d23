<?php
// A page that needs about 1 ms of CPU time.
$sum = 0;
for ($article = 0; $article < 18000; $article++) {
    $sum += crc32("article $article") % 997;
}
header('Content-Type: text/plain');
echo "The sum is $sum\n";
