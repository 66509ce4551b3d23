<?php
// Writes 120 modules of 40 tables, each about 10 KB of source and 80 KB compiled.
const ROOT = '/var/www/html/app';
for ($module = 0; $module < 120; $module++) {
    mkdir(ROOT . "/module$module", 0755, true);
    for ($number = 0; $number < 40; $number++) {
        $values = [];
        for ($row = 0; $row < 5000; $row++) {
            $values[] = ($module + $number + $row) % 10;
        }
        file_put_contents(
            ROOT . "/module$module/table$number.php",
            "<?php\nreturn [" . implode(',', $values) . "];\n"
        );
    }
}
