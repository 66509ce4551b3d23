<?php
// Asks the stock service for a price. The child of PHP-FPM waits for the answer.
$answer = json_decode(file_get_contents('http://198.19.101.12:8080/price/1250'));
header('Content-Type: text/plain');
http_response_code(isset($answer->price) ? 200 : 502);
printf("price %d, %s\n", $answer->price, $answer->in_stock ? 'in stock' : 'sold out');
