"""From what a user writes to the axes of a sweep, checked against what the target has."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import AutotuneError
from autotune.services.base import Value
from autotune.space.dimension import Dimension
from autotune.space.space import Space
from autotune.sweep.plan import Axis, Choice
from autotune.target.messages import instead
from autotune.target.units import in_unit

SERVICE = "service"
MOST = 1000  # values on one axis
SPELT = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def of(name: str, values: Sequence[object], space: Space) -> Axis:
    """The axis of a parameter with these values; of ``service``, ``all`` are all deployments.

    Raises AutotuneError for a name the target does not have, and for values that do not fit it.
    """
    if name == SERVICE:
        return Axis(SERVICE, _deployments(values, space))
    dimension = _dimension(name, space)
    typed = tuple(value(dimension, given) for given in values)
    return Axis(name, tuple(Choice(given, {name: given}) for given in typed))


def spread(text: str) -> list[str]:
    """The values that ``low:high:step`` or a list with commas stands for."""
    low, *rest = text.split(":")
    if not rest:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        start, (end, step) = float(low), map(float, rest)
    except ValueError:
        raise AutotuneError(f"{text!r} is no range", hint="write LOW:HIGH:STEP") from None
    if step <= 0 or end < start or (end - start) / step > MOST:
        raise AutotuneError(f"the range {text} has no values or more than {MOST}")
    count = int((end - start) / step + 1e-9) + 1
    return [f"{start + index * step:.12g}" for index in range(count)]


def value(dimension: Dimension, given: object) -> Value:
    """``given`` (text, or a YAML scalar) as a value of this parameter. Raises AutotuneError."""
    if dimension.choices:
        known = dimension.parameter.choices or dimension.choices
        for one in known:
            same = SPELT.get(str(given).lower()) is one if isinstance(one, bool) else False
            if same or str(one) == str(given):
                return one
        allowed = ", ".join(map(str, known))
        raise AutotuneError(f"{dimension.name} cannot be {given}", hint=f"it is one of: {allowed}")
    try:
        number = float(str(in_unit(given, dimension.parameter.unit)))
    except ValueError:
        raise AutotuneError(f"{dimension.name}: {given!r} is not a number") from None
    try:
        return dimension.typed(number)
    except ValueError as error:
        raise AutotuneError(str(error)) from None


def _dimension(name: str, space: Space) -> Dimension:
    by_name = {dimension.name: dimension for dimension in space.dimensions}
    if name not in by_name:
        raise AutotuneError(f"the target has no parameter {name!r}", hint=instead(name, by_name))
    return by_name[name]


def _deployments(values: Sequence[object], space: Space) -> tuple[Choice, ...]:
    known = {", ".join(map(str, one.values())): one for one in space.deployments}
    if len(known) < 2:
        raise AutotuneError(
            "the target leaves no choice of services",
            hint="list them: `service: [nginx, apache]`",
        )
    chosen = known if list(values) == ["all"] else [str(v).replace("/", ", ") for v in values]
    if unknown := [label for label in chosen if label not in known]:
        listed = ", ".join(label.replace(", ", "/") for label in known)
        raise AutotuneError(
            f"there is no deployment {unknown[0]!r}", hint=f"expected one of: {listed}"
        )
    return tuple(Choice(label, known[label]) for label in chosen)
