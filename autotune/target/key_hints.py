"""Hints for unknown keys: names from other programs, keys at the wrong place, and misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, get_args

from autotune.target.field_types import TargetModel
from autotune.target.messages import find_nearest_name
from autotune.target.model import Target
from autotune.target.yaml_document import Location

# Above this similarity, a name is only misspelt, even if the same name is valid at another place.
CLEAR_SIMILARITY = 0.85
MAX_LISTED_PLACES = 2
# Sections whose keys are never suggested for other places, because few targets contain them.
RARE_SECTIONS = ("services", "beds")
_PERCENTILE_HINT = "name a percentile and its limit, such as `p99: 50ms`"
_RATE_HINT = "autotune searches the rate; `load: {max_rate: 5000/s}` limits it"
_CLIENTS_HINT = "remove it: autotune sends requests at a rate, not with a number of clients"
_RUNNING_HINT = "remove it: autotune tunes services that are already installed"
_RESOURCES_HINT = "limit a host: `hosts: {web1: {cpus: 4, memory: 8GB}}`"
_LINKS_HINT = "`uses: [cache, store]` for calls, or `forwards_to: web` for a proxy"
_OTHER_FORMAT_HINT = (
    "`autotune init` writes a target; files of Compose and Kubernetes have another format"
)
# By section, keys from other programs, each with the equivalent in a target. Top-level keys have no
# section.
_OTHER_KEYS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("version apiVersion kind metadata spec", _OTHER_FORMAT_HINT),
        ("objective goal metric direction",
         "a stack has `slo: {p99: 50ms}`; a command has `maximize:` or `minimize:`"),
        ("thresholds", "`slo: {p99: 50ms, errors: 0.1%}`"),
        ("benchmark cmd run exec entrypoint", "`command: [./bench]`"),
        ("model simulation simulator", "`simulated: {}`"),
        ("scenarios options stages", "`load:` describes the requests, and autotune searches the rate"),
        ("inventory all vars machines nodes", "`hosts: {web1: {address: web1.example.org}}`"),
        ("upstream upstreams backend backends frontend server servers",
         "`tiers: {lb: {hosts: lb1, service: nginx, forwards_to: web}}`"),
        ("env environment variables", "headers read variables: `load: {headers: {X-Token: '${TOKEN}'}}`"),
        ("warmup warm_up repeat repeats schedule", "remove it: autotune warms up and repeats by itself"),
        ("output results report out", "remove it: `autotune report STUDY` prints the results"),
        ("description comment notes title", "write a comment after '#'"),
        ("include extends import imports", "`&NAME` and `<<: *NAME` reuse a mapping in the same file"),
        ("optimizer algorithm", "`search: {sampler: auto}`"),
    ),
    "hosts": (
        ("ip host hostname ansible_host fqdn ip_address addr url", "`address: web1.example.org`"),
        ("ansible_user login username ssh_user remote_user", "`user: NAME`"),
        ("ansible_port ssh_port", "`port: 22`"),
        ("cores vcpu vcpus ncpu cpu_count processors cpu", "`cpus: 4`"),
        ("ram mem mem_limit memory_limit", "`memory: 8GB`"),
        ("become sudo ansible_become", "remove it: SECURITY.md shows the sudo rules of a login"),
        ("connection ansible_connection", "`transport: ssh` or `transport: local`"),
        ("role roles group groups labels tags tier service",
         "tiers name their hosts: `tiers: {web: {hosts: [web1], service: nginx}}`"),
        ("resources limits requests", "`cpus: 4, memory: 8GB`"),
        ("proxy_jump jump_host bastion proxy_command gateway jump", "set ProxyJump in ~/.ssh/config"),
        ("timeout connect_timeout", "set ConnectTimeout in ~/.ssh/config"),
        ("os distribution zone region weight", "remove it: autotune reads the facts of a host itself"),
    ),
    "tiers": (
        ("replicas count scale instances size", "list the hosts: `hosts: [web1, web2]`"),
        ("image build dockerfile",
         "`service:` names the software; `runtime: containers` tunes running containers"),
        ("depends_on links requires needs calls dependencies", _LINKS_HINT),
        ("upstream upstreams backend backends proxy_pass proxy_to next routes_to", "`forwards_to: web`"),
        ("software server type kind engine role program", "`service: nginx`"),
        ("ports listen expose", "`port: 8080`"),
        ("env environment volumes restart networks command healthcheck", _RUNNING_HINT),
        ("resources deploy limits cpus memory cpu", _RESOURCES_HINT),
        ("address ip", "`hosts:` names hosts, and `hosts: {web1: {address: …}}` declares them"),
        ("container_name", "`container: NAME`"),
        ("version tag", "remove it: autotune reads the version of the installed software"),
        ("workers processes threads", "`parameters:` sets the values of a service"),
        ("entry order", "remove it: `forwards_to:` and `uses:` determine the order of the tiers"),
        ("config conf config_file files", "`templates: DIRECTORY` overrides autotune's templates"),
    ),
    "slo": (
        ("mean avg average latency response_time limit target percentile http_req_duration",
         _PERCENTILE_HINT),
        ("median", "`p50: 50ms`"),
        ("max maximum", "`p99.9: 50ms` limits the slowest requests"),
        ("error_rate max_errors error_budget failures http_req_failed availability success_rate",
         "`errors: 0.1%` limits failed requests"),
        ("throughput rps rate qps", _RATE_HINT),
    ),
    "load": (
        ("rate rps qps target_rate arrival_rate throughput",
         f"{_RATE_HINT}, and `load: {{today: 400/s}}` is the rate of your users"),
        ("vus users concurrency connections clients threads stages iterations ramp ramp_up executor",
         _CLIENTS_HINT),
        ("duration", "`budget: {time: 45m}`"),
        ("uri endpoint page route", "`path: /`"),
        ("target base_url address site", "`url: https://shop.example/`"),
        ("payload json post_data form data", "`method: POST, body: …`"),
        ("tool program engine type", "`generator: httperf`"),
        ("verify tls_verify verify_ssl skip_verify insecure_skip_verify", "`insecure: true`"),
        ("cert cacert ca_file ca_cert cafile", "`ca: ca.pem`"),
        ("cookies cookie", "`load: {headers: {Cookie: …}}`"),
        ("http2 http_version h2", "`load: {url: https://…, http: 2}`"),
        ("auth authorization bearer basic_auth user username",
         "`headers: {Authorization: '${TOKEN}'}`, and TOKEN in autotune's environment"),
        ("log access_log urls url_file paths",
         "`uris: FILE` lists paths; `autotune workload from-log` writes `requests: FILE`"),
        ("status expect_status checks assertions response expected", "`expect: {status: 200}`"),
        ("follow_redirects redirects max_redirects", "request the page to which the site redirects"),
        ("protocol scheme ssl tls https", "`url: https://shop.example/`"),
        ("keepalive keep_alive", "remove it: each generator decides about its connections"),
        ("weight weights", "`weight: 3` in `requests: FILE`"),
        ("think_time sleep delay", "`think: 1s` in a session of `requests: FILE`"),
        ("warmup warm_up", "remove it: autotune warms up the servers before each reading"),
    ),
    "budget": (
        ("duration max_time hours minutes timeout time_limit max_duration", "`budget: {time: 45m}`"),
        ("n_trials max_trials iterations evaluations runs samples max_evals max_iter",
         "`budget: {trials: 40}`"),
    ),
    "search": (
        ("algorithm strategy optimizer method", "`sampler: auto`"),
        ("random_seed random_state", "`seed: 1`"),
    ),
    "parameters": (
        ("min max low high lower upper minimum maximum", "`range: [LOWEST, HIGHEST]`"),
        ("value set", "`fixed: VALUE`"),
        ("values options enum allowed", "`choices: [VALUE, …]`"),
        ("step steps", "remove it: a range has no step, and `choices: [VALUE, …]` lists values"),
        ("scale distribution prior", "`log: true` for a logarithmic scale"),
        ("type", "remove it: the values determine the type"),
        ("initial current start baseline init", "`default: VALUE`"),
        ("exclude skip ignore disabled enabled tune", "`drop: true` excludes a parameter"),
        ("description desc help comment", "`meaning: …` with `command:`, or a comment after '#'"),
        ("depends_on if condition requires only_if", "`when: {NAME: VALUE}` with `command:`"),
        ("formula expression expr", "`derive: EXPRESSION`"),
    ),
    "services": (
        ("image build ports environment depends_on volumes container_name restart networks deploy",
         "`services:` declares unknown software; `tiers: {web: {hosts: …, service: …}}` is the stack"),
    ),
    "ssh": (
        ("user username login", "`hosts: {web1: {user: NAME}}`"),
        ("port", "`hosts: {web1: {port: 2222}}`"),
        ("options option args ssh_args timeout known_hosts jump jump_host bastion proxy proxy_jump",
         "write it in ~/.ssh/config, or in the file of `ssh: {config: FILE}`"),
    ),
    "requests": (
        ("url uri", "`path: /`"),
        ("count probability frequency rate share", "`weight: 3`"),
        ("delay sleep think_time pause", "`think: 1s` in a session"),
        ("data payload json", "`method: POST, body: …`"),
    ),
}  # fmt: skip
_EXPECT_KEYS = {
    "code": "`status: 200`",
    "status_code": "`status: 200`",
    "contains": "`body: TEXT`",
    "text": "`body: TEXT`",
}


def find_key_hint(location: Location, valid_keys: list[str]) -> str | None:
    """Return the hint for the unknown key at ``location``; ``None`` if it has no better hint than the
    nearest valid key.
    """
    return find_other_key_hint(location) or _find_place_hint(str(location[-1]), valid_keys)


def find_other_key_hint(location: Location) -> str | None:
    """Return the hint for a key from another program, or ``None``."""
    name, parents = str(location[-1]), location[:-1]
    section = str(parents[0]) if parents else ""
    if parents and parents[-1] == "expect" and name in _EXPECT_KEYS:
        return f"write {_EXPECT_KEYS[name]}"
    for names, hint in _OTHER_KEYS.get(section, ()):
        if name.lower() in names.lower().split():
            is_code = hint[0] == hint[-1] == "`" and hint.count("`") == 2
            return f"write {hint}" if is_code else hint
    return None


def list_keys_at(location: Location, model: type[TargetModel] = Target) -> list[str]:
    """Return the valid keys in the mapping at ``location``."""
    annotation: Any = model
    for step in location:
        # The type of every mapping is a model, a dict of models by name, a list of models, or None.
        inner_types = [kind for kind in get_args(annotation) if kind is not Ellipsis]
        annotation = inner_types[-1] if inner_types else annotation.model_fields[step].annotation
        if NoneType in get_args(annotation):
            annotation = next(kind for kind in get_args(annotation) if kind is not NoneType)
    valid_keys: list[str] = annotation.user_keys()
    return valid_keys


def _find_place_hint(name: str, valid_keys: list[str]) -> str | None:
    """Return the hint for a key that is valid at another place of a target."""
    places = _list_places().get(name, ())
    nearest_name = find_nearest_name(name, valid_keys)
    if not places or (nearest_name and compute_similarity(name, nearest_name) > CLEAR_SIMILARITY):
        return None
    places_text = " or ".join(places[:MAX_LISTED_PLACES])
    alternative = f", or did you mean {nearest_name!r}?" if nearest_name else ""
    return f"`{name}:` belongs {places_text}{alternative}"


def compute_similarity(name: str, other: str) -> float:
    """Return the similarity of two names, from 0 to 1."""
    return difflib.SequenceMatcher(None, name, other).ratio()


@cache
def _list_places() -> Mapping[str, tuple[str, ...]]:
    """Return the places of each key, as text for a hint."""
    places: dict[str, tuple[str, ...]] = {}
    for path, model in _iterate_models(Target, ()):
        text = f"under `{': '.join(path)}:`" if path else "at the top level of the file"
        for key in model.user_keys():
            places[key] = (*places.get(key, ()), text)
    return places


def _iterate_models(
    model: type[TargetModel], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], type[TargetModel]]]:
    """Yield each mapping of a target with the keys above it. `NAME` is a key that the user chooses."""
    yield path, model
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in RARE_SECTIONS:
            for is_named, inner_model in _list_inner_models(field.annotation):
                yield from _iterate_models(
                    inner_model, (*path, key, *(["NAME"] if is_named else []))
                )


def _list_inner_models(annotation: Any) -> Iterator[tuple[bool, type[TargetModel]]]:
    """Yield the models in an annotation, and True if the user chooses their keys."""
    if isinstance(annotation, type) and issubclass(annotation, TargetModel):
        yield False, annotation
        return
    is_named = getattr(annotation, "__origin__", None) is dict
    for argument in get_args(annotation):
        for is_inner_named, inner_model in _list_inner_models(argument):
            yield is_named or is_inner_named, inner_model
