"""Complete sites on lab hosts, set up as an administrator would, without autotune.

Three hosts have the roles ``lb``, ``web`` and ``db``. Everything is installed from the distribution's
packages.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import cycle, islice
from pathlib import Path

from autotune.lab.lifecycle import build_ssh_host, remove_lab, start_lab
from autotune.lab.plan import LabHost, derive_names
from autotune.services.base import Endpoint
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request, TlsOptions
from autotune.transports.ssh import SshTransport
from scripts.workloads.packages import install_packages
from tests.answers import PATIENCE
from tests.lab.pictures import picture
from tests.study import wordpress

NAME = "shop.example"
CLIENTS = 4  # of a check of many answers
INSTALL_SECONDS = 600.0
# Hosts trust the authority's certificate after `update-ca-certificates`.
_CERTIFICATES = f"""
set -e
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \\
    -subj '/CN=Shop CA' -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={NAME} \\
    -keyout site.key -out site.csr
printf 'subjectAltName=DNS:{NAME},IP:%s\\n' "$2" >site.ext
openssl x509 -req -in site.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \\
    -extfile site.ext -out site.crt
"""
_TRUST = """
set -e
mkdir -p /usr/local/share/ca-certificates
mv /root/ca.crt /usr/local/share/ca-certificates/shop.crt
update-ca-certificates >/dev/null 2>&1
"""


@dataclass(frozen=True)
class Stack:
    """A description of how to set up a site.

    ``scripts`` run on the host of each role, in this order. ``pages`` maps paths to text that each
    correct response contains. ``rows`` prints a digest of the database. ``own`` contains prefixes
    of the paths that the services themselves write. ``packages`` are the additional packages for
    each role.
    """

    name: str
    scripts: Mapping[str, str]
    pages: Mapping[str, str]
    rows: str
    tls: bool = False
    own: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """A running site, with the transports and addresses of its hosts by role."""

    stack: Stack
    lab: Path
    transports: Mapping[str, Transport]
    addresses: Mapping[str, str]
    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def logins(self) -> list[str]:
        """Return the logins for `init --from`."""
        return [f"root@{address}" for role, address in self.addresses.items() if role != "load"]

    def sh(self, role: str, script: str) -> str:
        done = self.transports[role].run(["sh", "-c", script], timeout=INSTALL_SECONDS)
        assert done.ok, f"{role}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, packages: Path | None = None) -> None:
        """Set up the site, and wait until each page responds correctly."""
        if self.stack.tls:
            self._install_certificates()
        for role, text in self.stack.scripts.items():
            if packages is not None and role in self.stack.packages:
                transport = self.transports[role]
                assert isinstance(transport, SshTransport)
                install_packages(transport, packages / role)
            words = ((f"@{name.upper()}@", address) for name, address in self.addresses.items())
            print(self.sh(role, reduce(lambda text, word: text.replace(*word), words, text))[-400:])
        self._await_pages()

    def _install_certificates(self) -> None:
        address = self.addresses["lb"]
        subprocess.run(["sh", "-c", _CERTIFICATES, "sh", self.directory, address], check=True,
                       capture_output=True)  # fmt: skip
        pem = (self.directory / "site.crt").read_bytes() + (
            self.directory / "site.key"
        ).read_bytes()
        self.transports["lb"].put(pem, "/etc/ssl/private/site.pem", mode=0o600)
        for role in self.transports:
            self.transports[role].put(self.ca.read_bytes(), "/root/ca.crt", mode=0o644)
            self.sh(role, _TRUST)

    def _await_pages(self) -> None:
        wrong = ["not asked yet"]
        for _ in range(600):
            if not (wrong := self.wrong_answers(len(self.stack.pages))):
                return
            self.sh("lb", "sleep 0.2")
        raise AssertionError(wrong)

    def wrong_answers(self, count: int) -> list[str]:
        """Send ``count`` requests, and return descriptions of the wrong responses."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = pool.map(self._find_fault, islice(cycle(self.stack.pages.items()), count))
            return [fault for fault in answers if fault]

    def _find_fault(self, page: tuple[str, str]) -> str:
        (path, text), tls = page, self.stack.tls
        request = Request(
            Endpoint(self.addresses["lb"], 443 if tls else 80),
            path,
            host=NAME,
            tls=TlsOptions(ca=self.ca.read_text()) if tls else None,
        )
        answer = curl.send_request(LocalTransport(), request, PATIENCE)
        if isinstance(answer, str):
            return f"{path}: {answer}"
        is_right = answer.status == 200 and text.encode() in answer.body
        return "" if is_right else f"{path}: status {answer.status}, {answer.body[:200]!r}"

    def pictures(self) -> dict[str, list[str]]:
        """Return the state of all hosts, without files that the site's services themselves write."""
        names = derive_names(self.lab)
        return {
            role: [line for line in picture(names, transport.name)
                   if not line.startswith(self.stack.own or ("\\0",))]
            for role, transport in self.transports.items()
        }  # fmt: skip

    def digest(self) -> str:
        """Return a digest of all rows in the database."""
        return self.sh("db", self.stack.rows)


@contextmanager
def running(stack: Stack, directory: Path, network: str) -> Iterator[Site]:
    """Yield a site on new hosts in ``network`` (three numbers), which are removed at the end."""
    hosts = [
        LabHost("load", f"{network}.10"),
        LabHost("lb", f"{network}.11", cpus=0.5),
        LabHost("web", f"{network}.12", cpus=0.8),
        LabHost("db", f"{network}.13", cpus=0.5),
    ]
    lab, packages = directory / "lab", directory / "packages"
    wordpress.download(packages, stack.packages)
    try:
        start_lab(hosts, lab)
        transports = {host.name: SshTransport(build_ssh_host(lab, host.name)) for host in hosts}
        addresses = {host.name: host.address for host in hosts}
        site = Site(stack, lab, transports, addresses, directory)
        site.install(packages)
        yield site
        for transport in transports.values():
            transport.close()
    finally:
        remove_lab(lab)
