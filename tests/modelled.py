"""A simulated stack that is small enough for tests of whole commands."""

from __future__ import annotations

_TEXT = """\
name: modelled
slo: {{p99: 50ms, errors: 0.1%}}
simulated: {{seed: 2, noise: {noise}, outliers: {outliers}}}
hosts:
  lb1:  {{address: 198.18.0.1, cpus: 8, memory: 8GB}}
  web1: {{address: 198.18.0.2, cpus: 4, memory: {memory}}}
  web2: {{address: 198.18.0.3, cpus: 4, memory: {memory}}}
  mc1:  {{address: 198.18.0.4, cpus: 2, memory: 8GB}}
  db1:  {{address: 198.18.0.5, cpus: 4, memory: 8GB}}
tiers:
  lb:    {{hosts: lb1, service: {lb}, forwards_to: web}}
  web:   {{hosts: [web1, web2], service: {web}, app: reference, uses: [cache, store]}}
  cache: {{hosts: mc1, service: memcached}}
  store: {{hosts: db1, service: redis}}
parameters:
  web.php_fpm.max_children: {{default: {children}}}
{parameters}load: {{path: /kv.php, max_rate: 20000/s}}
data: {{pairs: 10000000}}
"""


def noisy(more: str) -> str:
    """Return a target with one deployment, noisy readings and occasional disturbances."""
    one = {"lb": "nginx", "web": "nginx+php-fpm", "memory": "16GB", "children": "20"}
    return _TEXT.format(noise="2%", outliers="2%", parameters="", **one) + more


def quiet(parameters: str) -> str:
    """Return a target with four deployments on large web hosts, almost exact readings, and further
    lines of ``parameters``.
    """
    four = {"lb": "[nginx, apache]", "web": "[nginx+php-fpm, apache+mod_php]"}
    web = {"memory": "32GB", "children": "40", "parameters": parameters}
    return _TEXT.format(noise="0.5%", outliers="0%", **four, **web)
