<?php
// Builds a report of 30 MB in memory, and waits for a remote service. PHP keeps the memory of rows of
// this size for the next request, so a process that has served some pages keeps 30 MB.
$rows = [];
for ($row = 0; $row < 12000; $row++) {
    $rows[] = str_repeat('in stock, ', 250) . $row;
}
$answer = json_decode(file_get_contents('http://198.19.102.12:8080/price/1250'));
header('Content-Type: text/plain');
http_response_code(isset($answer->price) ? 200 : 502);
printf("price %d, report of %d MB\n", $answer->price, round(memory_get_usage() / 1048576));
