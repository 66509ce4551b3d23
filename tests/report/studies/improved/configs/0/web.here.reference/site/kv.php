<?php
// One request is one job: 100 keys in one multi-get, the misses from the store and back into the cache.
// The answer says how many keys were found, so that a wrong answer can be told from a right one.

const PAIRS = 100000;
const KEYS = 100;

// Popularity: rank r is asked for with probability ~ r^-0.9 (the inverse of that law's integral).
function keys(): array
{
    $keys = [];
    while (count($keys) < KEYS) {
        $rank = (int) (PAIRS * (mt_rand() / mt_getrandmax()) ** 10);
        $keys['k' . str_pad((string) min($rank, PAIRS - 1), 10, '0', STR_PAD_LEFT)] = true;
    }
    return array_keys($keys);
}

function cache(): Memcached
{
    $cache = new Memcached('autotune');
    if (!$cache->getServerList()) {
        $cache->setOption(Memcached::OPT_TCP_NODELAY, true);
        $cache->setOption(Memcached::OPT_LIBKETAMA_COMPATIBLE, true);
        $cache->addServers([
            ['127.0.0.1', 18211],
        ]);
    }
    return $cache;
}

function fromStore(array $misses): array
{
    $store = new Redis();
    $store->pconnect('127.0.0.1', 18379, 1.0);
    usleep(3000); // the disk behind the store
    return array_filter(array_combine($misses, $store->mGet($misses)), 'is_string');
}

$cache = cache();
$keys = keys();
$found = $cache->getMulti($keys) ?: [];
$misses = array_values(array_diff($keys, array_keys($found)));
if ($misses) {
    $fetched = fromStore($misses);
    $cache->setMulti($fetched);
    $found += $fetched;
}
header('Content-Type: text/plain');
http_response_code(count($found) === KEYS ? 200 : 500);
printf("found %04d of %04d\n", count($found), KEYS);
