"""A stack of real servers on any runtime: see `deploy.runtime.Runtime`."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import manifest
from autotune.deploy.changes import HostChanges
from autotune.deploy.deployment import Deployment
from autotune.deploy.desired_state import DesiredState, desired_state, render
from autotune.deploy.host_commands import Command, ask
from autotune.deploy.managed_hosts import LoadHosts
from autotune.deploy.runtime import Invalid, NeedsPrograms, Note, Runtime
from autotune.deploy.stack import Part, Stack, entry_tiers
from autotune.diagnose.faults import wrong_with
from autotune.discovery.in_place import REPLACE, InPlace, of_record, read_files
from autotune.environments.answers import UNKNOWN, AnswerCheck
from autotune.environments.base import Checked, Preview, size
from autotune.environments.data_loss import without_restarts
from autotune.environments.evaluation import History
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession, capacity_limits
from autotune.errors import AutotuneError
from autotune.loads import load_host, of_target
from autotune.loads.base import Load
from autotune.loads.headroom import SERVER, of_hosts
from autotune.loads.load_host import PortWait
from autotune.loads.of_target import addresses, traits
from autotune.loads.registry import chosen
from autotune.loads.take import inspect
from autotune.monitor.watch import WatchedHost, hosts_of
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Own, Role, Settings
from autotune.services.registry import expected_body, placed
from autotune.space import space as spaces
from autotune.space.dimension import NAMED, PRESETS
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.strict import split_lines
from autotune.target.beds import study_of
from autotune.target.messages import plural
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.target.runtimes import runtime_module
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.curl import Answer, in_words
from autotune.transports.local import LocalTransport
from autotune.transports.parallel import run_on_all
from autotune.transports.request import Request

INSECURE = "`insecure: true` accepts any certificate, so autotune cannot verify the site's identity"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Refusals = Callable[[Part, Sequence[Settings]], Sequence[str | None]]
"""Map a part and settings to the software's one-line objection to each, or ``None`` if it accepts.
"""


@dataclass(frozen=True)
class StackEnvironment:
    """A target on its hosts: see `environments.base.Environment`.

    ``programs`` maps the services' program names to paths by host. ``own`` contains templates made
    from the hosts' own files.
    """

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    runtime: Runtime
    transports: Mapping[str, Transport]
    load_hosts: tuple[Transport, ...]
    load: Load
    programs: Mapping[str, Mapping[str, str]]
    own: Mapping[str, Own]
    dropped: tuple[str, ...] = ()

    def announce(self, *, study: bool = True) -> str:
        target = self.file.target
        load, entry = target.load, entry_tiers(target)[0]
        # raise here rather than during the study
        of_target.request(self.file, self.lay_out("<study>/run"))
        asked = f"to {load.url}" if load.url else f"to {load.path}"
        lasting = f" for about {plural(target.budget.time / 60, 'minute')}" if study else ""
        announced = (
            f"Sends up to {load.max_rate:g} requests/s {asked} on {', '.join(addresses(target))} (tier "
            f"{entry}){lasting}, and to no other host."
        )
        if load.insecure:
            announced += f"\n{INSECURE}."
        if not self.runtime.installed:
            return announced
        hosts = dict.fromkeys(host for tier in target.tiers.values() for host in tier.hosts)
        edited = {part.partition(".")[0] for part in self.own}
        whole = [name for name in target.tiers if name not in edited]
        replaced = f" Files of {', '.join(whole)} are replaced completely." if whole else ""
        return (
            f"{announced}\nServices of {', '.join(hosts)} are reconfigured, reloaded and restarted "
            f"during the study. Their files are restored at the end.{replaced}"
        )

    def lay_out(self, directory: str) -> Stack:
        """Return the stack with private files below ``directory``. Raises AutotuneError."""
        return self.runtime.lay_out(self.file, directory, self.facts, self.programs, self.own)

    def software(self) -> dict[str, dict[str, str]]:
        def asked(host: Transport) -> dict[str, str]:
            paths = sorted(set(self.programs.get(host.name, {}).values()))
            release = host.run(["uname", "-r"]).stdout.strip()
            lines = split_lines(host.run(["sha256sum", *paths]).stdout) if paths else []
            digests = (line.split(maxsplit=1) for line in lines)
            return {"kernel": release, **{path: digest[:12] for digest, path in digests}}

        hosts = {self.transports[name].name: name for name in self.file.target.hosts}
        answers = run_on_all((self.transports[name] for name in hosts.values()), asked).unwrap()
        return {hosts[name]: answer for name, answer in answers.items()}

    def check(self) -> Checked:
        """Validate each preset of every deployment with the software itself."""
        load = self.file.target.load
        with _thrown_away() as directory:
            laid = self.lay_out(directory)
            of_target.request(self.file, laid)  # raises if anything is missing
            self._validate(self._desired(laid, settings) for settings in self._presets())
        programs = {Path(path).name for paths in self.programs.values() for path in paths.values()}
        return Checked(
            held=(
                size(self.file, self.space),
                f"programs: {', '.join(sorted(programs))}",
                *self.runtime.status(laid, self.transports),
                f"{', '.join(NAMED)}: rendered and accepted by the software",
                *((f"correct answer: {load.expect}",) if load.expect else ()),
                *(self._as_it_runs() if self.runtime.installed else ()),
            ),
            left_out=self.dropped,
            not_checked=(
                *((INSECURE,) if load.insecure else ()),
                *((self.load.unchecked,) if self.load.unchecked and load.tls else ()),
                "responses and capacity of the stack: use `autotune measure`",
                "maximum load of the generator: use `--headroom`",
            ),
        )

    def headroom(self) -> str:
        """Measure the maximum load of each load host against its own trivial server."""
        hosts = {host.name: host for host in self.load_hosts}
        servers = self.runtime.programs({name: [SERVER] for name in hosts}, hosts)
        used = {name: programs[SERVER.program] for name, programs in servers.items()}
        needed = self.file.target.load.max_rate
        measured = of_hosts(self.load, self.load_hosts, used, needed)
        plain = " of plain HTTP" if self.file.target.load.tls else ""
        capable = (
            f"{self.load.name} generates at least {min(measured.rate, needed):g} requests/s{plain}"
        )
        return measured.shortage(needed) or f"{capable} on {', '.join(hosts)}"

    def preview(self) -> Preview:
        laid = self.lay_out("<study>/run")
        return Preview(
            entry=", ".join(entry.url for entry in of_target.request(self.file, laid).each()),
            servers=tuple(
                part.name
                for part in laid.parts
                if part.service.programs and part.site.role is not Role.HOST
            ),
            files=lambda settings: self._desired(laid, settings).files,
            # Both deployments of a choice may include the same part, such as PHP settings.
            host_settings=tuple(dict.fromkeys(part.name for part in laid.of_role(Role.HOST))),
            installed=self.runtime.installed,
            changes=self._changes if self.runtime.installed else None,
            answers=self._answers,
            restarts=self._restarts(laid),
            right_answers=self._right_answers(),
        )

    def _changes(self, settings: Settings) -> dict[str, HostChanges]:
        with _thrown_away() as directory:
            return self.fleet(Path(directory), lambda _: None).changes(settings)

    def _answers(self) -> dict[str, Answer | str]:
        """Return each entry's current response.

        The result is empty if no server runs yet, or if a request may change data.
        """
        request = of_target.request(self.file, self.lay_out("<study>/run"))
        if not self.runtime.installed or request.method not in ("GET", "HEAD"):
            return {}
        return {
            f"{entry.method} {entry.url}" + (f" at {entry.endpoint}" if entry.host else ""):
            curl.answer(self.load_hosts[0], entry)
            for entry in request.each()
        }  # fmt: skip

    def _right_answers(self) -> str:
        """Describe how correct responses are recognized."""
        load = self.file.target.load
        if load.one_page and expected_body(self.file.target) is not None:
            return "the body of the application"
        if load.script:
            return UNKNOWN
        compared = "similar to the answers before the first trial"
        if load.expect is None:
            return compared
        return str(load.expect) if load.expect.body else f"{load.expect}; {compared}"

    def _restarts(self, laid: Stack) -> dict[str, tuple[str, ...]]:
        owners = {ParameterName.parse(dimension.name).owner for dimension in self.space.tunable
                  if dimension.parameter.action is Action.RESTART}  # fmt: skip
        hosts: dict[str, tuple[str, ...]] = {}
        for part in laid.parts:
            unit = self.runtime.layout.unit(part)
            if unit and part.owner in owners:
                hosts[unit] = (*hosts.get(unit, ()), part.site.host)
        return hosts

    def _as_it_runs(self) -> Iterator[str]:
        """Yield the differences between hosts and baseline, and the entry's current response.

        Raises AutotuneError if all files are edited and the entry still returns a wrong response.
        """
        changes = self._changes(self.space.as_given({}).settings)
        files = [f"{host}: {path}" for host, change in changes.items() for path in change.files]
        yield (f"the baseline would change {', '.join(files)}: `autotune plan` shows the changes" if files
               else "the hosts' files match the baseline exactly")  # fmt: skip
        request = of_target.request(self.file, self.lay_out("<study>/run"))
        for url, answer in self._answers().items():
            words = in_words(answer)
            wrong = wrong_with(answer, request)
            words = (
                f"{words}: {wrong}" if wrong and request.checks and wrong not in words else words
            )
            if wrong and not files:
                hint = "set `load: {path: /…}` or `url:` to a page that returns status 2xx"
                raise AutotuneError(f"{url}: {words}", hint=hint)
            yield f"{url}: {words}"

    @contextmanager
    def session(self, directory: Path, note: Note, history: History) -> Iterator[LoadSession]:
        """Prepare every host for changes, then restore and release it at the end."""
        fleet = self.fleet(directory, note)
        try:
            with self._fit_load_hosts(directory, note) as load_hosts:
                fleet.check_load_hosts = load_hosts.check_held
                fleet.open()
                yield self._load_session(fleet, history, note)
        except BaseException as error:
            _restore(fleet, error)
            raise
        else:
            _restore(fleet, None)
        finally:
            for transport in self.transports.values():
                transport.close()

    def fleet(self, directory: Path, note: Note) -> Deployment:
        """Return the deployment for the study in ``directory``. No host is locked yet."""
        target = self.file.target
        laid = self.lay_out(self.runtime.run_directory(directory))
        expect = expected_body(target)
        request = of_target.request(
            self.file, laid, expect if target.load.method == "GET" else None
        )

        def loaded(done: int, total: int) -> None:
            if done == total:
                note(f"loading data: {done} of {total} pairs")

        return Deployment(
            target,
            self.space,
            laid,
            self.runtime,
            self.runtime.hosts(laid, self.transports, directory, note),
            study_of(directory).name,
            request=lambda: self._answer(request),
            expect=request.expect,
            statuses=request.statuses,
            loads_data=expect is not None or not self.runtime.installed,
            overrides=overrides(self.file),
            progress=loaded,
        )

    def _answer(self, request: Request) -> tuple[int, bytes] | str:
        """Send one request to each entry and return the first wrong response, else the last one.

        If a response does not meet the target's expectation, the result is the reason as text. A
        load host sends the requests, because this machine may not reach the stack.
        """
        for entry in request.each():
            answer = curl.answer(self.load_hosts[0], entry)
            if wrong := wrong_with(answer, entry):
                lacking = entry.checks and not isinstance(answer, str) and wrong
                answer = lacking or answer
                break
        return answer if isinstance(answer, str) else (answer.status, answer.body)

    def _load_session(self, fleet: Deployment, history: History, note: Note) -> LoadSession:
        """Return a session that deploys to ``fleet``, loads from the load hosts and observes all
        hosts.
        """
        target, laid = self.file.target, fleet.stack
        body = expected_body(target) if target.load.one_page else None
        request = of_target.request(self.file, laid, body)
        answers = AnswerCheck.of(
            self.load,
            request,
            target.load.expect,
            self.load_hosts[0],
            errors=target.slo.slo.errors,
            max_rate=target.load.max_rate,
            untouched=all(map(target.edits, target.tiers)),
        )
        if not answers.validator.pages:
            note(UNKNOWN)
        cpus = {name: host.cpus for name, host in self.facts.items()}
        meter = LoadMeter(
            self.load,
            replace(request, statuses=answers.statuses),
            target.slo.slo,
            self.load_hosts,
            laid,
            hosts_of(laid, cpus, self.transports),
            timeout=target.load.timeout,
            max_rate=target.load.max_rate,
            in_place=lambda: fleet.in_place,
            generators=tuple(
                WatchedHost(host.name, cpus[host.name], (), host) for host in self._generators
            ),
            ports=PortWait(note),
            answers=answers,
        )
        limits = capacity_limits(target.load.max_rate)
        slo, highest = target.slo.slo, meter.highest_rate
        return LoadSession(fleet, meter, slo, limits, history, highest_rate=highest)

    @property
    def _generators(self) -> list[Transport]:
        """Return the dedicated load hosts, which are neither tuned nor this machine."""
        tuned = {host for tier in self.file.target.tiers.values() for host in tier.hosts}
        return [host for host in self.load_hosts
                if host.name not in tuned and not isinstance(host, LocalTransport)]  # fmt: skip

    @contextmanager
    def _fit_load_hosts(self, directory: Path, note: Note) -> Iterator[LoadHosts]:
        """Prepare the kernels of the dedicated load hosts, and restore them at the end."""
        hosts = LoadHosts(self._generators, directory, note)
        try:
            hosts.open(load_host.NAMES, load_host.fit)
            yield hosts
        finally:
            with uninterrupted():
                hosts.release(restored=True)

    def _presets(self) -> Iterator[Settings]:
        """Yield the baseline and the presets of every deployment without duplicates."""
        yielded: list[Settings] = []
        for deployment in self.space.deployments:
            presets = [self.space.preset(kind, deployment) for kind in PRESETS]
            for asked in (deployment, *presets):
                settings = self.space.candidate(asked).settings
                if settings not in yielded:
                    yielded.append(settings)
                    yield settings

    def _desired(self, laid: Stack, settings: Settings) -> DesiredState:
        def files(part: Part) -> dict[str, bytes]:
            return rendered(self.file, part, settings)

        return desired_state(settings, laid, files, self.runtime.layout)

    def _validate(self, states: Iterable[DesiredState]) -> None:
        """Validate each distinct set of files once, with one exchange per host.

        Raises Invalid with the part whose software rejects its files, and the software's message.
        """
        cases: dict[str, dict[object, tuple[Part, Mapping[str, bytes]]]] = {}
        for part, files in ((p, state.rendered[p.name]) for state in states for p in state.parts):
            if files:
                case = (part.name, *sorted(files.items()))
                cases.setdefault(part.site.host, {})[case] = (part, files)

        def validate(host: Transport) -> None:
            of_host = [*cases[host.name].values()]
            refusals = self.runtime.refusals(host, of_host)
            for (part, _), message in zip(of_host, refusals, strict=True):
                if message is not None:
                    raise Invalid(f"{part.name}: {message}")

        run_on_all([self.transports[host] for host in cases], validate).unwrap()

    def refusals(self, part: Part, tried: Sequence[Settings]) -> list[str | None]:
        """Return the objections of the part's program to each of these settings: see `Refusals`."""
        cases = [(part, rendered(self.file, part, settings)) for settings in tried]
        messages = self.runtime.refusals(self.transports[part.site.host], cases)
        return [message and split_lines(message)[0] for message in messages]


def prepare(file: TargetFile) -> StackEnvironment:
    """Inspect the hosts and build the search space. Read-only.

    Raises TargetError if the target does not fit its hosts, AutotuneError for missing programs and
    unreachable hosts.
    """
    target = file.target
    runtime: Runtime = runtime_module(next(iter(target.tiers.values())).runtime).RUNTIME
    hosts = runtime.transports(file)
    facts = runtime.facts(target, hosts)
    in_place = _in_place(file, hosts, runtime) if runtime.installed else InPlace()
    load = chosen(file)
    space = spaces.build(file, facts, in_place.running).under(
        traits(target.load, kept=load.limits.kept)
    )
    named = target.load.hosts if runtime.installed else ()
    load_hosts = tuple(hosts[name] for name in named) or (LocalTransport(),)
    needed: dict[str, list[NeedsPrograms]] = {
        host: [place.service for name, tier in target.tiers.items() if host in tier.hosts
               for place in placed(name, tier)]
        for host in target.hosts
    }  # fmt: skip
    for host in load_hosts:
        needed.setdefault(host.name, []).append(load)
    programs = runtime.programs(needed, {**{host.name: host for host in load_hosts}, **hosts})
    inspect(load, load_hosts)
    own = {**manifest.of(overrides(file)), **in_place.own} if runtime.installed else {}
    manifest.check(own, _names_of_parts(target))
    space, own = without_restarts(file, space, own, in_place.running)
    adopted = in_place.record if runtime.installed else None
    environment = StackEnvironment(
        replace(file, adopted=adopted),
        space,
        facts,
        runtime,
        hosts,
        load_hosts,
        load,
        programs,
        own,
    )
    with _thrown_away() as directory:
        parts = environment.lay_out(directory).parts
        _require_applications(file, parts, hosts)
        space, dropped = without_refused(space, parts, environment.refusals)
    if runtime.installed:
        _refuse_unsaved(file, space.baseline, parts, hosts, runtime)
    return replace(environment, space=space, dropped=(*in_place.lines, *dropped))


def _require_applications(
    file: TargetFile, parts: Sequence[Part], hosts: Mapping[str, Transport]
) -> None:
    """Raise TargetError if a host with edited files lacks autotune's application."""
    for part in parts:
        tier = part.site.tier
        if part.site.role is Role.APP and file.target.edits(tier):
            paths = [each.path for each in part.service.files(part.site)]
            asked = [Command(("test", "-e", path)) for path in paths]
            answers = ask(hosts[part.site.host], asked)
            for path in (p for p, done in zip(paths, answers, strict=True) if not done.ok):
                message = (
                    f"{part.site.host} does not serve {part.service.title}: {path} does not exist"
                )
                hint = "remove `app:` to tune the existing site; in a lab, run `autotune lab up`"
                raise file.document.error(
                    ["tiers", tier, "app"], message, hint=f"{hint}, {REPLACE}"
                )


def _refuse_unsaved(
    file: TargetFile,
    settings: Settings,
    parts: Sequence[Part],
    hosts: Mapping[str, Transport],
    runtime: Runtime,
) -> None:
    """Raise AutotuneError if a restart would lose settings that no file contains."""
    for part in parts:
        if argv := part.service.unsaved(part.site, rendered(file, part, settings)):
            manager = runtime.service_manager
            inside = manager.inside(part.site, argv) if manager and manager.inside else argv
            functions = manager.functions if manager else ""
            (answer,) = ask(hosts[part.site.host], [Command(inside)], functions=functions)
            sentence, _, hint = answer.stdout.strip().partition("\n")
            if sentence:
                raise AutotuneError(f"{part.site.host}: {part.service.title} {sentence}", hint=hint)


def _in_place(file: TargetFile, hosts: Mapping[str, Transport], runtime: Runtime) -> InPlace:
    """Return the edited files: as recorded at the start of the study, or as they are now."""
    return read_files(file, hosts, runtime) if file.adopted is None else of_record(file.adopted)


def _names_of_parts(target: Target) -> list[str]:
    return [f"{name}.{host}.{place.service.name}" for name, tier in target.tiers.items()
            for host in tier.hosts for place in placed(name, tier)]  # fmt: skip


def overrides(file: TargetFile) -> Path | None:
    """Return the directory of templates that override the shipped ones. Raises AutotuneError."""
    named = {tier.templates for tier in file.target.tiers.values() if tier.templates}
    if len(named) > 1:
        raise AutotuneError("all tiers must share one `templates:` directory")
    return (file.path.parent / named.pop()).resolve() if named else None


def rendered(file: TargetFile, part: Part, settings: Settings) -> dict[str, bytes]:
    """Return the content of the part's files by path. Raises RenderError."""
    return render(part.service, part.site, settings, file.target.data, overrides(file))


def without_refused(
    space: Space, parts: Sequence[Part], refusals: Refusals
) -> tuple[Space, tuple[str, ...]]:
    """Return the space without choices that the installed programs do not support.

    The second value contains a line for each removed choice.
    """
    left, dropped = space, list(space.dropped)
    for dimension in space.tunable:
        owner = ParameterName.parse(dimension.name).owner
        part = next((p for p in parts if p.owner == owner), None)
        if part is None or not dimension.parameter.built_in:
            continue
        tried = [choice for choice in dimension.choices if choice != dimension.baseline]
        settings = [space.candidate({dimension.name: choice}).settings for choice in tried]
        messages = refusals(part, settings) if tried else []
        refused = {c: message for c, message in zip(tried, messages, strict=True) if message}
        for choice in refused:
            left = left.without(dimension.name, choice)
        if refused:
            names, message = ", ".join(map(str, refused)), next(iter(refused.values()))
            dropped.append(f"{dimension.name}: the program does not support {names} ({message})")
    return left, tuple(dropped)


@contextmanager
def _thrown_away() -> Iterator[str]:
    """Create a temporary directory that servers can read after they drop their privileges."""
    with tempfile.TemporaryDirectory(prefix="autotune-check-") as directory:
        Path(directory).chmod(0o755)
        yield directory


def _restore(fleet: Deployment, error: BaseException | None) -> None:
    """Restore the hosts after any error. If that fails too, report both errors."""
    try:
        with uninterrupted():
            fleet.restore()
    except AutotuneError as another:
        if not isinstance(error, AutotuneError):
            raise
        message = f"{error.message}\n{another.message}"
        raise AutotuneError(message, hint=another.hint) from error


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP until hosts are restored. Only the main thread receives
    them.
    """
    stopping = STOPPING if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in stopping}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
