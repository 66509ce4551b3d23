"""The rule for one parameter in a target."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from autotune.target.field_types import (
    Scalar,
    StrictBoolean,
    TargetModel,
    Text,
    error_at_key,
    wrap_in_list,
)
from autotune.target.messages import format_value, is_same_value
from autotune.target.quantities import parse_magnitude

WILDCARD = "*"  # stands for any text in the name of a rule; see `parameter_selection`


def _require_true(value: object) -> object:
    if value is not True:
        raise ValueError("must be `true`; remove `drop` to keep the parameter")
    return value


# A list with a single value may be written without brackets.
ConditionValues = Annotated[
    Annotated[tuple[Scalar, ...], Field(min_length=1)],
    BeforeValidator(
        wrap_in_list, json_schema_input_type=Scalar | Annotated[list[Scalar], Field(min_length=1)]
    ),
]


class ParameterRule(TargetModel):
    """Rule for one parameter: its range, a fixed value or its baseline.

    This class checks only rules that apply to any parameter; other checks need the catalogue. With
    `command:`, the rule declares a parameter.
    """

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    range: tuple[Scalar, Scalar] | None = None
    """Lowest and highest value to try: `[64, 8192]` or `[6MB, 8MB]`."""
    log: StrictBoolean | None = None
    """Search on a logarithmic scale."""
    choices: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    """Values to choose from."""
    fixed: Scalar | None = None
    """Value in all trials, including the baseline."""
    default: Scalar | None = None
    """Value in the baseline, which is the current value of the stack."""
    derive: Annotated[str, Field(min_length=1)] | None = None
    """Expression that computes the value: `ServerLimit * ThreadsPerChild`."""
    drop: Annotated[Literal[True], BeforeValidator(_require_true)] | None = None
    """Exclude the parameter from the search, and keep its baseline value."""
    when: dict[Text, ConditionValues] | None = None
    """With `command:`: values that other parameters must have, or else this parameter has no effect."""
    unit: Text | None = None
    """With `command:`: unit of the parameter, for reports."""
    meaning: Text | None = None
    """With `command:`: meaning of the parameter, for reports."""

    @model_validator(mode="before")
    @classmethod
    def _parse_false(cls, value: object) -> object:
        """Convert `false`, which excludes a parameter, to `{drop: true}`."""
        return {"drop": True} if value is False else value

    @model_validator(mode="after")
    def _check_exclusive_keys(self) -> ParameterRule:
        present_keys = [key for key in ParameterRule.model_fields if getattr(self, key) is not None]
        if not present_keys:
            raise ValueError("needs `range`, `choices`, `fixed`, `derive`, `default` or `drop`")
        value_keys = [
            key for key in present_keys if key in ("range", "choices", "fixed", "derive", "drop")
        ]
        if len(value_keys) > 1:
            raise error_at_key(
                value_keys[1], f"`{value_keys[0]}` and `{value_keys[1]}` cannot be combined"
            )
        excluded_keys_by_key = {
            "default": ("fixed", "drop", "derive"),
            "log": ("choices", "fixed", "drop", "derive"),
        }
        for key, conflicting_key in (
            (key, excluded_key)
            for key, excluded_keys in excluded_keys_by_key.items()
            for excluded_key in excluded_keys
        ):
            if key in present_keys and conflicting_key in present_keys:
                raise error_at_key(key, f"`{key}` and `{conflicting_key}` cannot be combined")
        return self

    @model_validator(mode="after")
    def _check_values(self) -> ParameterRule:
        if self.range is not None:
            self._check_range(*self.range)
        choices = self.choices or ()
        for index, choice in enumerate(choices):
            if _contains_value(choice, choices[:index]):
                raise error_at_key("choices", f"{format_value(choice)} is listed twice")
        if choices and self.default is not None and not _contains_value(self.default, choices):
            raise error_at_key("default", f"{format_value(self.default)} is not among the choices")
        return self

    def _check_range(self, range_start: Scalar, last: Scalar) -> None:
        low, high = _parse_magnitude("range", range_start), _parse_magnitude("range", last)
        if low[0] != high[0]:
            # In `[6, 8MB]`, the unit of 6 is the unit of the parameter.
            if "a number" not in (low[0], high[0]):
                raise error_at_key("range", f"{range_start} is {low[0]}, {last} is {high[0]}")
        elif low[1] >= high[1]:
            advice = f"; write `fixed: {range_start}`" if range_start == last else ""
            raise error_at_key("range", f"the range from {range_start} to {last} is empty{advice}")
        if self.log and low[1] <= 0:
            raise error_at_key(
                "range", f"with `log: true`, the range must start above 0, not at {range_start}"
            )
        if self.default is not None:
            default = _parse_magnitude("default", self.default)
            if default[0] == low[0] == high[0] and not low[1] <= default[1] <= high[1]:
                raise error_at_key(
                    "default", f"{self.default} is outside the range from {range_start} to {last}"
                )


def _parse_magnitude(key: str, value: Scalar) -> tuple[str, float]:
    magnitude = parse_magnitude(value)
    if magnitude is None:
        is_quoted = isinstance(value, str) and value.strip().isdecimal()
        advice = "; omit the quotes" if is_quoted else ""
        raise error_at_key(key, f"{format_value(value)} is not a number{advice}")
    return magnitude


def _contains_value(value: Scalar, values: tuple[Scalar, ...]) -> bool:
    return any(is_same_value(value, other) for other in values)
