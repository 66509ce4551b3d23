"""What the software of the hosts accepts, asked before a study begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.deploy.desired_state import Rendered
from autotune.deploy.judge import judge
from autotune.deploy.runtime import Invalid
from autotune.deploy.stack import Part
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.space import Space
from autotune.transports.base import Transport
from autotune.transports.parallel import on_all

Ways = Mapping[str, Transport]
Render = Callable[[Part, Settings], Mapping[str, bytes]]


def insist_on_acceptance(parts: Sequence[Part], rendered: Rendered, ways: Ways) -> None:
    """Raises Invalid with the parts whose software refuses their files, and its words."""

    def ask(way: Transport) -> None:
        cases = [(part, rendered[part.name]) for part in parts if ways[part.site.host] is way]
        for (part, _), said in zip(cases, judge(way, cases), strict=True):
            if said is not None:
                raise Invalid(f"{part.name}: {said}")

    used = dict.fromkeys(part.site.host for part in parts)
    on_all([ways[host] for host in used], ask).everywhere()


def as_built(
    space: Space, parts: Sequence[Part], ways: Ways, render: Render
) -> tuple[Space, tuple[str, ...]]:
    """The space without the choices that the programs of these hosts were built without.

    With it everything that was dropped, a line each.
    """
    left, dropped = space, list(space.dropped)
    for dimension in space.tunable:
        refused = _refused(space, dimension, parts, ways, render)
        for choice in refused:
            left = left.without(dimension.name, choice)
        if refused:
            names, said = ", ".join(map(str, refused)), next(iter(refused.values()))
            dropped.append(f"{dimension.name}: not built with {names} ({said.splitlines()[0]})")
    return left, tuple(dropped)


def _refused(
    space: Space, dimension: Dimension, parts: Sequence[Part], ways: Ways, render: Render
) -> dict[Value, str]:
    """The choices that the program refuses on the first of its hosts, each with its words."""
    service = dimension.name.removesuffix(f".{dimension.parameter.name}")
    own = [part for part in parts if f"{part.site.tier}.{part.service.name}" == service]
    tried = [choice for choice in dimension.choices
             if dimension.parameter.built_in and choice != dimension.baseline]  # fmt: skip
    if not tried or not own:
        return {}
    cases = [(own[0], render(own[0], space.candidate({dimension.name: choice}).settings))
             for choice in tried]  # fmt: skip
    answers = judge(ways[own[0].site.host], cases)
    return {choice: said for choice, said in zip(tried, answers, strict=True) if said}
