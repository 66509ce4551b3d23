"""Check the settings and numbers in a record before they become text in an export."""

from __future__ import annotations

import math
import re

from autotune.export.export_error import ExportError
from autotune.parameter_name import ParameterName
from autotune.report.parameters import DeclaredParameters, find_declared_parameters, find_parameter
from autotune.report.studies import Study
from autotune.services.base import Settings, Value
from autotune.space.dimension import is_deployment_choice
from autotune.study.study_state import Trial
from autotune.target.messages import format_value, is_same_value

# Numbers, and words that contain no quotes, braces or shell metacharacters.
ORDINARY_TEXT_PATTERN = re.compile(r"[\w.][\w:.,@\\ /-]*|-?[0-9]+( -?[0-9]+)*", re.ASCII)


def check_trial(study: Study, trial: Trial) -> None:
    """Raise AutotuneError if a trial's number is invalid, or if a setting is not possible in the
    target.

    The message contains the first name or value that no service of the target allows.
    """
    if type(trial.number) is not int:
        raise ExportError(study, f"{format_value(trial.number)} is not a trial number")
    declared_parameters = find_declared_parameters(study.target)
    # Exports contain the effective values, which replace some requested values.
    for name, value in (*trial.settings.items(), *trial.effective_settings.items()):
        if not _is_parameter(study, name, trial.settings, declared_parameters):
            raise ExportError(study, f"{name!r} is not a parameter of the target")
        if not _is_value(study, name, value, trial.settings, declared_parameters):
            raise ExportError(study, f"{name} cannot be {format_value(value)}")


def _is_parameter(
    study: Study, setting_name: str, settings: Settings, declared_parameters: DeclaredParameters
) -> bool:
    if declared_parameters.rules:
        return setting_name in declared_parameters.rules
    has_known_tier = ParameterName.parse(setting_name).tier in study.target.tiers
    return (
        has_known_tier and find_parameter(setting_name, settings, declared_parameters) is not None
    )


def _is_value(
    study: Study,
    setting_name: str,
    value: Value,
    settings: Settings,
    declared_parameters: DeclaredParameters,
) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if is_deployment_choice(setting_name) and not declared_parameters.rules:
        return value in study.target.tiers[ParameterName.parse(setting_name).tier].service
    parameter = find_parameter(setting_name, settings, declared_parameters)
    catalogue_choices = parameter.choices if parameter else ()
    choices = (
        declared_parameters.rules[setting_name].choices
        if declared_parameters.rules
        else catalogue_choices
    ) or ()
    if any(is_same_value(choice, value) for choice in choices):
        return True
    # A host's software may offer words that are not among the catalogue's choices.
    if isinstance(value, str):
        return bool(choices) and ORDINARY_TEXT_PATTERN.fullmatch(value) is not None
    return isinstance(value, int | float)
