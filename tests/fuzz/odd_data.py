"""Names, JSON texts, records and SQL that a stranger may put into a study or an export."""

from __future__ import annotations

# Names of files, hosts, parameters and beds, as no program of the author would write them.
ODD_NAMES = (
    "../../precious/secret",
    "a/../../../../precious/secret",
    "/etc/shadow",
    "..",
    ".",
    "",
    "~root",
    "\u2044etc\u2044shadow",
    "lb\uff0ehere\uff0enginx",
    "a\u2215b",
    "p\u0430sswd",
    "-rf",
    "--help",
    "$(id)",
    "a\x00b",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "cafe\u0301",
    "\u0301" * 50,
    "a\u200bb",
    "\U000e0041",
    "x" * 300,
    "\u4e2d" * 100,
    "a\nhint: run as root",
    "a\rb",
    "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J",
    "a b'\"`\\",
    "<script>alert(1)</script>",
    "{{ 7*7 }}",
    "=cmd|' /C calc'!A0",
    "\ud800",
    "CON",
    "\u2028",
    "[bold]a[/bold]",
    "lb.nginx.worker_connections",
)
# Text in place of one line of a journal, or of a whole manifest.
ODD_JSON = (
    b"[" * 100_000,
    b'{"event":' * 50_000,
    b'{"event":"trial","event":"study"}',
    b"9" * 10_000,
    b"1e999",
    b"NaN",
    b'{"event":"spent","seconds":{"load":1e308}}',
    b'\xef\xbb\xbf{"event":"study"}',
    b"null",
    b'""',
    '{"event":"a"}'.encode("utf-16"),
    b'{"event":"\\ud800"}',
    b'{"\\u0000":1,"event":"\\u0000"}',
    b"\x00" * 1000,
    b'{"parameters":{"a":1,"a":2},"parameters":{}}',
    b'{"parameters":{"lb.nginx.worker_connections":1e300}}',
    b'{"parameters":{},"rss":{"lb.nginx":-1}}',
    b'{"parameters":{"__class__":1,"db.mariadb.x":"; reboot"}}',
    b'{"event":"trial","trial":99999999999999999,"phase":"search","settings":{},"suggested":{},"bindings":[]}',
    b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(20_000)) + b"}",
    b'{"event":"joined","bed":"\\u202e"}',
)
# Records that a stranger may repeat thousands of times; ``%d`` is a number.
MANY = (
    b'{"event":"joined","bed":"b%d"}',
    b'{"event":"spent","seconds":{"load":1.0},"bed":"b%d"}',
    b'{"event":"session","beds":["b%d"]}',
    b'{"event":"trial","trial":%d,"phase":"search","settings":{},"suggested":{},"bindings":[]}',
    b'{"event":"failed","trial":%d,"why":"none"}',
    b'{"event":"answers","pages":[{"page":"/%d","problem":"none"}]}',
)
REPEATS = 2000
# A query without an end.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
# Changes of the database of a study.
SCHEMAS = (
    f"CREATE TRIGGER t AFTER INSERT ON trials BEGIN {ENDLESS}; END",
    f"DROP TABLE version_info; CREATE VIEW version_info AS {ENDLESS}",
    f"DROP TABLE studies; CREATE VIEW studies AS {ENDLESS}",
    "CREATE VIRTUAL TABLE v USING fts3(a)",
    "CREATE TABLE v (a, b AS (zeroblob(2000000000)) VIRTUAL)",
    "DELETE FROM studies",
    "UPDATE studies SET study_name = '../../precious/secret'",
    "DROP TABLE trials",
    "UPDATE version_info SET schema_version = 99",
)
