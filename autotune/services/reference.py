"""The texts on the reference pages of services. Each service's folder defines one `REFERENCE`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UntunedReason:
    """A setting that autotune does not tune, with the reason."""

    setting: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ServiceReference:
    """Facts for a service's reference page, in Markdown, which the service's other data do not contain.

    ``recognised``: how a running instance is recognised. ``edited``: the file to which a change is
    written.
    ``validated``: the check before a change. ``read_back``: where effective values come from.
    """

    recognised: str
    edited: str
    validated: str
    read_back: str
    untuned: tuple[UntunedReason, ...] = ()


# The text of ``validated`` for software that validates its files only at startup.
SECOND_INSTANCE_TEXT = (
    "autotune starts a second instance with the new file and waits until it accepts connections."
)
SET_BY_COMMAND = UntunedReason(
    "An option on the unit's command line", "The command line overrides the file."
)
SET_BY_UNIT_COMMAND = UntunedReason(
    "An option on the unit's command line",
    "The command line overrides the file. Move the option to the file to tune it.",
)
SOCKET_UNIT = UntunedReason(
    "The accept queue of a socket unit",
    "`Backlog=` of the socket unit sets the length of the queue.",
)
TEMPLATE_UNIT = UntunedReason(
    "An instance of a template unit (`NAME@.service`)",
    "A change would affect all instances. Give the instance its own unit to tune the instance.",
)
