"""What /proc says under load, recorded, read into samples; and anything cut short, survived."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.monitor.process_table import (
    PAGE_BYTES,
    PAGE_SIZE_SECTION,
    PSS_SECTION,
    ProcessOwners,
    parse_process_stat,
    sum_by_service,
)
from autotune.monitor.procfs import (
    CONNECTIONS_COMMAND,
    SS_COMMAND,
    ListenQueue,
    build_sample,
    count_unread_connections,
    parse_ss,
    parse_unix_queues,
)
from autotune.monitor.stream import SampleStream, parse_stream
from autotune.transports.local import LocalTransport

RECORDED = (Path(__file__).parent / "fixtures" / "stream.txt").read_text()
# Another stack ran on that machine: the same programs in sessions of their own.
OWNERS = ProcessOwners(sessions={5721: "fpm", 5693: "cache"})
POOL = "././web.here.php-fpm.sock"


def test_stream_under_load() -> None:
    found = parse_stream(RECORDED, OWNERS)
    samples = found.samples
    assert len(samples) == 3
    assert [s.uptime for s in samples] == sorted(s.uptime for s in samples)
    assert found.cpu_seconds == pytest.approx(0.03)
    assert set(found.logs) == {"/var/log/nginx/error.log", "php8.2-fpm.service"}
    assert "not enough" in found.logs["/var/log/nginx/error.log"]
    last = samples[-1]
    # Two children hold a request each and the rest waits at the pool's socket.
    pool = next(q for q in last.queues if q.address == POOL)
    assert (pool.waiting, pool.accepted_count) == (40, 2)
    fpm = last.processes["fpm"]
    assert (fpm.workers, fpm.threads) == (2, 2)
    assert fpm.cpu > samples[0].processes["fpm"].cpu
    assert fpm.scheduling_delay is not None
    assert 10 << 20 < fpm.max_rss < 100 << 20
    assert last.processes["cache"].workers == 1
    assert last.processes["cache"].threads > 4
    assert ListenQueue(":20002", 0, 1024) in last.queues
    assert sum(last.cpu.values()) > sum(samples[0].cpu.values())
    assert last.memory["MemTotal"] > last.memory["MemAvailable"] > 0
    assert last.sockets["tw"] > 0
    for counter in ("OutSegs", "ActiveOpens", "PassiveOpens"):
        assert last.tcp[counter] > samples[0].tcp[counter]
    assert last.tcp["TCPSynRetrans"] == 4768
    assert last.network["lo"] > samples[0].network["lo"]
    assert last.open_files is not None
    assert last.link_speeds == {}  # no interface there knows its speed: -1, or an error on reading


@settings(max_examples=25)
@given(st.integers(0, len(RECORDED)))
def test_a_stream_cut_anywhere_is_no_error(end: int) -> None:
    samples = parse_stream(RECORDED[:end], OWNERS).samples
    assert len(samples) <= 3


@settings(max_examples=25)
@given(st.integers(0, RECORDED.count(" ")), st.sampled_from(["x", "", "-", "1.5", "\x00"]))
def test_a_garbled_word_loses_at_most_its_sample(which: int, word: str) -> None:
    words = RECORDED.split(" ")
    garbled = " ".join([*words[:which], word, *words[which + 1 :]])
    samples = parse_stream(garbled, OWNERS).samples
    assert 2 <= len(samples) <= 3


@pytest.mark.parametrize(
    ("line", "program", "session"),
    [
        ("12 (nginx) S 11 10 9 0 -1 0 0 0 0 0 100 50 0 0 20 0 1 0 7 0 3 0", "nginx", 9),
        ("12 (tmux: a) b) R 11 10 9 0 -1 0 0 0 0 0 100 50 7 0 20 0 1 0 7 0 3 0", "tmux: a) b", 9),
        ("12 (() S 1 1 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 3 0", "(", 12),
    ],
)
def test_process_names_may_hold_anything(line: str, program: str, session: int) -> None:
    found = parse_process_stat(line)
    assert found is not None
    assert (found.program, found.session) == (program, session)


def test_a_process_that_was_waited_for_still_counts() -> None:
    stat = "1 (x) S 0 1 1 0 -1 0 0 0 0 0 100 50 30 20 20 0 4 0 7 0 3 0"
    assert (
        sum_by_service({"/proc/1/stat": stat}, ProcessOwners(programs={"x": "x"}))["x"].cpu == 2.0
    )


def test_a_snapshot_is_not_the_work_of_the_main_process() -> None:
    stat = "{} (x) S {} 1 1 0 -1 0 0 0 0 0 {} 50 {} 20 20 0 4 0 7 0 3 0"
    files = {
        "/proc/7/stat": stat.format(7, 1, 100, 480),  # a snapshot that has ended took 5 s
        "/proc/8/stat": stat.format(8, 7, 250, 0),
    }
    found = sum_by_service(files, ProcessOwners(programs={"x": "x"}))["x"]
    assert (found.cpu, found.main_cpu) == (9.7, 1.5)


@pytest.mark.parametrize(
    ("page_size", "page_bytes"),
    [("65536", 65_536), ("4096", 4096), ("", PAGE_BYTES), ("x", PAGE_BYTES)],
)
def test_memory_is_counted_in_pages_of_the_host(page_size: str, page_bytes: int) -> None:
    stat = "1 (x) S 0 1 1 0 -1 0 0 0 0 0 100 50 30 20 20 0 4 0 7 0 3 0"
    files = {"/proc/1/stat": stat, PAGE_SIZE_SECTION: page_size}
    assert sum_by_service(files, ProcessOwners(programs={"x": "x"}))["x"].max_rss == 3 * page_bytes


def test_the_scheduler_knows_better_than_hundredths_of_a_second() -> None:
    stat = "{0} (x) S 9 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 3 0"
    files = {f"/proc/{pid}/stat": stat.format(pid) for pid in (1, 2)}
    files |= {f"/proc/{pid}/schedstat": "4000000 2000000 9\n" for pid in (1, 2)}
    found = sum_by_service(files, ProcessOwners(programs={"x": "x"}))["x"]
    assert found.cpu == pytest.approx(0.008)
    assert found.scheduling_delay == pytest.approx(0.004)


def test_sessions_come_before_names() -> None:
    owners = ProcessOwners(sessions={7: "lb"}, programs={"nginx": "web"})
    stat = "12 (nginx) S 7 7 {} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 3 0"
    files = {f"/proc/{n}/stat": stat.format(n) for n in (7, 8)}
    assert set(sum_by_service(files, owners)) == {"lb"}


@pytest.mark.parametrize(
    ("usage", "limit", "statistics", "prefix"),
    [
        ("memory.current", "memory.max", "memory.stat", ""),
        ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes", "memory/memory.stat",
         "total_"),
    ],
)  # fmt: skip
def test_cached_files_do_not_fill_the_memory_of_a_control_group(
    usage: str, limit: str, statistics: str, prefix: str
) -> None:
    sizes = {"anon": 100, "inactive_file": 50, "active_file": 800, "shmem": 30}
    texts = {
        usage: "980\n",
        limit: "1000\n",
        statistics: "".join(f"{prefix}{name} {size}\n" for name, size in sizes.items()),
    }
    texts = {f"/sys/fs/cgroup/{name}": text for name, text in texts.items()}
    memory = build_sample(texts, ProcessOwners()).memory
    assert memory == {"GroupLimit": 1000, "GroupUsed": 130}


LB, WEB, OTHER = ("3a" * 32, "b7" * 32, "c0" * 32)


def test_containers_with_the_same_program_are_told_apart_by_their_groups() -> None:
    owners = ProcessOwners(
        programs={"nginx": "web", "php-fpm8.2": "web-app", "redis-server": "store"},
        groups={LB: {"nginx": "lb", "php-fpm8.2": "lb-app"}, WEB: {"nginx": "web"}},
    )
    stat = "{0} ({1}) S 1 1 1 0 -1 0 0 0 0 0 {0} 0 0 0 20 0 1 0 7 0 3 0"
    groups = {
        100: ("nginx", f"0::/system.slice/docker-{LB}.scope\n"),
        200: ("nginx", f"12:pids:/docker/{WEB}\n1:name=systemd:/docker/{WEB}\n"),
        300: ("nginx", f"0::/machine.slice/libpod-{WEB}.scope/container\n"),
        400: ("nginx", f"0::/machine.slice/libpod-{OTHER}.scope/container\n"),  # another project
        500: ("redis-server", f"0::/system.slice/docker-{OTHER}.scope\n"),  # its group is unknown
        600: ("php-fpm8.2", f"0::/system.slice/docker-{LB}.scope\n"),  # next to nginx
    }
    files = {f"/proc/{pid}/stat": stat.format(pid, name) for pid, (name, _) in groups.items()}
    files |= {f"/proc/{pid}/cgroup": text for pid, (_, text) in groups.items()}
    found = {name: group.cpu for name, group in sum_by_service(files, owners).items()}
    assert found == {"lb": 1.0, "web": 5.0, "store": 5.0, "lb-app": 6.0}


@pytest.mark.parametrize(
    ("line", "queue"),
    [
        ("LISTEN 3 511 127.0.0.1:20000 0.0.0.0:*", ListenQueue(":20000", 3, 511)),
        ("LISTEN 0 4096 [::1]:80 [::]:*", ListenQueue(":80", 0, 4096)),
        ("LISTEN 0 128 *:22 *:*", ListenQueue(":22", 0, 128)),
    ],
)
def test_ss(line: str, queue: ListenQueue) -> None:
    assert list(parse_ss(line)) == [queue]


@pytest.mark.parametrize("text", ["", "State Recv-Q", "ESTAB 0 0 a:1 b:2", "LISTEN x y z w"])
def test_ss_without_listeners(text: str) -> None:
    assert list(parse_ss(text)) == []


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {}),
        ("0 0 10.0.0.1:8000 10.0.0.2:40000", {}),
        ("91 0 10.0.0.1:8000 10.0.0.2:40000\n7 0 [::1]:8000 [::1]:4001", {":8000": 2}),
        ("91 0 10.0.0.1:8000 10.0.0.2:4\n5 0 10.0.0.1:81 10.0.0.2:4", {":8000": 1, ":81": 1}),
        ("x 0 10.0.0.1:8000 10.0.0.2:4\n5 0", {}),
    ],
)
def test_connections_with_unread_data(text: str, counts: dict[str, int]) -> None:
    assert count_unread_connections(text) == counts


def test_the_unread_connections_of_a_port_count_once() -> None:
    texts = {
        SS_COMMAND: "LISTEN 1 511 127.0.0.1:80 0.0.0.0:*\nLISTEN 0 511 [::1]:80 [::]:*",
        CONNECTIONS_COMMAND: "91 0 127.0.0.1:80 127.0.0.1:40000\n91 0 127.0.0.1:80 127.0.0.1:40001",
    }
    queues = build_sample(texts, ProcessOwners()).queues
    assert queues == (ListenQueue(":80", 1, 511, unread_count=2), ListenQueue(":80", 0, 511))


@pytest.mark.stack
def test_this_kernel_shows_what_waits_at_a_tcp_port() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        port = server.getsockname()[1]
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        printed = LocalTransport().run(SS_COMMAND.split()).stdout
        found = next(q for q in parse_ss(printed) if q.address == f":{port}")
        for client in clients:
            client.close()
    assert (found.waiting, found.backlog) == (3, 8)


def test_this_kernel_shows_what_waits_at_a_unix_socket(tmp_path: Path) -> None:
    place = str(tmp_path / "pool.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen(8)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in clients:
            client.connect(place)
        accepted = server.accept()[0]
        found = {q.address: q for q in parse_unix_queues(Path("/proc/net/unix").read_text())}
        for each in (*clients, accepted):
            each.close()
    assert found[place] == ListenQueue(place, waiting=2, accepted_count=1)


STAT = "{pid} (apache2) S 1 {pid} 7 0 -1 4194560 1 0 0 0 5 5 0 0 20 0 1 0 100 1000 17000 0\n"


@pytest.mark.parametrize(
    ("lines", "kilobytes"),
    [
        (("/proc/7/smaps_rollup:Pss:   9000 kB", "/proc/8/smaps_rollup:Pss:  23000 kB"), 23_000),
        (("/proc/8/smaps_rollup:Pss:  23000 kB",), None),  # the other one is another account's
        ((), None),
        (("/proc/7/smaps_rollup:Pss:  x kB", "/proc/8/smaps_rollup:Pss: -1 kB"), None),
    ],
)
def test_shared_memory_counts_once(lines: tuple[str, ...], kilobytes: int | None) -> None:
    files = {f"/proc/{pid}/stat": STAT.format(pid=pid) for pid in (7, 8)}
    files[PSS_SECTION] = "\n".join(lines)
    (apache,) = sum_by_service(files, ProcessOwners(programs={"apache2": "web"})).values()
    assert apache.max_pss == (None if kilobytes is None else 1024 * kilobytes)
    assert apache.max_rss == 17_000 * 4096


def test_the_stream_reads_the_shares_of_running_processes() -> None:
    program = Path("/proc/self/comm").read_text().strip()
    owners = ProcessOwners(programs={program: "own"})
    (sample,) = SampleStream(LocalTransport(), owners, 0).run().samples
    own = sample.processes["own"]
    assert own.max_pss is not None
    assert 0 < own.max_pss <= own.max_rss
