"""The rule for one parameter in a target."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from autotune.target.corrections import correct_number
from autotune.target.field_types import (
    HintedError,
    Scalar,
    StrictBoolean,
    TargetModel,
    Text,
    error_at,
    error_at_key,
    wrap_in_list,
)
from autotune.target.messages import format_value, is_same_value, suggest_choice
from autotune.target.quantities import parse_magnitude

# The use of each key of a rule, for hints.
KEY_USES = {
    "range": "`range` searches between two numbers",
    "choices": "`choices` lists values to try",
    "fixed": "`fixed` sets one value in all trials",
    "derive": "`derive` computes the value from other parameters",
    "drop": "`drop` keeps the baseline value",
    "default": "`default` is the baseline of a searched parameter",
    "log": "`log` is the scale of a range",
}
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
            raise HintedError(
                "needs `range`, `choices`, `fixed`, `derive`, `default` or `drop`",
                "such as `{range: [4, 64]}` to search it, or `{fixed: 16}`",
            )
        value_keys = [
            key for key in present_keys if key in ("range", "choices", "fixed", "derive", "drop")
        ]
        if len(value_keys) > 1:
            raise _build_conflict(*value_keys[:2])
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
                raise _build_conflict(conflicting_key, key, f"`{key}` and `{conflicting_key}`")
        return self

    @model_validator(mode="after")
    def _check_values(self) -> ParameterRule:
        if self.range is not None:
            self._check_range(*self.range)
        choices = self.choices or ()
        for index, choice in enumerate(choices):
            if _contains_value(choice, choices[:index]):
                message = f"{format_value(choice)} is listed twice"
                raise error_at(("choices", index), message, "remove one of them")
        if choices and self.default is not None and not _contains_value(self.default, choices):
            message = f"{format_value(self.default)} is not among the choices"
            raise error_at_key("default", message, suggest_choice(self.default, choices))
        return self

    def _check_range(self, range_start: Scalar, last: Scalar) -> None:
        low, high = _parse_magnitude("range", range_start), _parse_magnitude("range", last)
        if low[0] != high[0]:
            # In `[6, 8MB]`, the unit of 6 is the unit of the parameter.
            if "a number" not in (low[0], high[0]):
                message = f"{range_start} is {low[0]}, {last} is {high[0]}"
                raise error_at_key("range", message, "give both in the same unit")
        elif low[1] >= high[1]:
            hint = (
                f"write `fixed: {range_start}`"
                if low[1] == high[1]
                else f"write the lower value first: `range: [{last}, {range_start}]`"
            )
            message = f"the range from {range_start} to {last} is empty"
            raise error_at_key("range", message, hint)
        if self.log and low[1] <= 0:
            message = f"with `log: true`, the range must start above 0, not at {range_start}"
            raise error_at_key("range", message, "raise the lower value, or remove `log:`")
        if self.default is not None:
            default = _parse_magnitude("default", self.default)
            if default[0] == low[0] == high[0] and not low[1] <= default[1] <= high[1]:
                message = f"{self.default} is outside the range from {range_start} to {last}"
                hint = "write a value within the range, or widen the range to the current value"
                raise error_at_key("default", message, hint)


def _parse_magnitude(key: str, value: Scalar) -> tuple[str, float]:
    magnitude = parse_magnitude(value)
    if magnitude is None:
        number = correct_number(value, key)
        hint = "omit the quotes" if number == value else f"write it as {number}" if number else None
        if hint is None and key == "range":
            hint = "write numbers, such as `range: [4, 64]`; `choices:` lists words"
        if hint is None and key == "default":
            hint = (
                "write the current number, or remove `default:` on hosts, where autotune reads it"
            )
        raise error_at_key(key, f"{format_value(value)} is not a number", hint)
    return magnitude


def _build_conflict(kept_key: str, key: str, keys_text: str = "") -> ValidationError:
    """Return the error at ``key``, which cannot be combined with ``kept_key``."""
    keys_text = keys_text or f"`{kept_key}` and `{key}`"
    hint = f"remove one: {KEY_USES[kept_key]}, and {KEY_USES[key]}"
    return error_at_key(key, f"{keys_text} cannot be combined", hint)


def _contains_value(value: Scalar, values: tuple[Scalar, ...]) -> bool:
    return any(is_same_value(value, other) for other in values)
