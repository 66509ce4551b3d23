"""Parameters of PHP-FPM, and what it takes of its host."""

from __future__ import annotations

from autotune.services.base import Action, Needs, Parameter, Role

SOURCE = "php.net, FPM configuration"
DYNAMIC = (("pm", ("dynamic",)),)

PARAMETERS = (
    Parameter(
        name="pm", choices=("static", "dynamic", "ondemand"), stock="dynamic",
        recommended="static", action=Action.RELOAD, source=SOURCE,
        meaning="Whether the number of children is fixed, follows the load, or starts from none.",
    ),
    Parameter(
        name="max_children", low=2, high=256, log=True, stock=5, recommended="8 * cpus",
        published={Role.APP: 75}, action=Action.RELOAD, source=SOURCE,
        meaning="PHP processes, and so requests worked on, at one time.",
    ),
    Parameter(
        name="start_servers", low=1, high=128, log=True, stock=2, recommended="4 * cpus",
        when=DYNAMIC, action=Action.RELOAD, source=SOURCE,
        meaning="Children at start.",
    ),
    Parameter(
        name="min_spare_servers", low=1, high=64, log=True, stock=1, recommended="2 * cpus",
        when=DYNAMIC, action=Action.RELOAD, source=SOURCE,
        meaning="Idle children below which more are forked, a few a second.",
    ),
    Parameter(
        name="max_spare_servers", low=1, high=256, log=True, stock=3, recommended="8 * cpus",
        when=DYNAMIC, action=Action.RELOAD, source=SOURCE,
        meaning="Idle children above which some are ended.",
    ),
    Parameter(
        name="process_idle_timeout", low=1, high=120, log=True, stock=10, unit="s",
        when=(("pm", ("ondemand",)),), action=Action.RELOAD, source=SOURCE,
        meaning="Idle time after which an on-demand child ends.",
    ),
    Parameter(
        name="max_requests", choices=(0, 500, 2000, 10_000), stock=0, action=Action.RELOAD,
        source=SOURCE,
        meaning="Requests after which a child is replaced, its connections with it; 0 is never.",
    ),
    Parameter(
        name="listen_backlog", low=64, high=65535, log=True, stock=511, recommended=4096,
        action=Action.RESTART, source=SOURCE,
        meaning="Requests that may wait for a child; the kernel caps it at somaxconn.",
    ),
)  # fmt: skip

NEEDS = Needs(
    workers="max_children",
    processes="max_children + 1",
    rss=30 * 2**20,
    source="resident size of a child of PHP-FPM 8.2 with its extensions, shared pages included",
)
