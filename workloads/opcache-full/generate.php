<?php
// Writes the classes of 100 modules, each about 12 KB of source and 40 KB compiled.
const ROOT = '/var/www/html/app';
for ($module = 0; $module < 100; $module++) {
    mkdir(ROOT . "/module$module", 0755, true);
    for ($number = 0; $number < 40; $number++) {
        $methods = '';
        for ($method = 0; $method < 40; $method++) {
            $seed = ($module * 40 + $number) * 40 + $method;
            $methods .= <<<END

    public function method$method(int \$value): int
    {
        \$names = ['a$seed' => \$value, 'b$seed' => \$value + $seed % 7, 'c$seed' => \$value * 3];
        foreach (\$names as \$name => \$count) {
            \$value += \$count > $seed ? strlen(\$name) : 1;
        }
        return \$this->total = \$value > 1000000 ? \$value - 1000000 : \$value;
    }

END;
        }
        $class = "<?php\nnamespace Module$module;\n\nfinal class Class$number\n{\n    private int \$total = 0;\n$methods}\n";
        file_put_contents(ROOT . "/module$module/Class$number.php", $class);
    }
}
