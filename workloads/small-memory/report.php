<?php
// Builds a report of 24 MB in memory, and waits for a remote service meanwhile.
$rows = str_repeat("1250 in stock\n", 24 * 1024 * 1024 / 14);
$answer = json_decode(file_get_contents('http://198.19.102.12:8080/price/1250'));
header('Content-Type: text/plain');
http_response_code(isset($answer->price) ? 200 : 502);
printf("price %d, report of %d MB\n", $answer->price, round(strlen($rows) / 1048576));
