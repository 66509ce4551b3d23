# Functions for a host's systemd units, used by `ServiceManager` in autotune/deploy/host_state.py.
units() {
    properties=LoadState,ActiveState,SubState,UnitFileState,MainPID,NRestarts,TimeoutStopUSec
    systemctl show --property "$properties" -- "$@"
}
words() { # prints the log of a unit since its last start
    invocation=$(systemctl show --value -p InvocationID -- "$1")
    said=$(journalctl -q -o cat --no-pager -n 20 "_SYSTEMD_INVOCATION_ID=$invocation" 2>/dev/null)
    [ -n "$said" ] || said=$(journalctl -q -o cat --no-pager -n 10 -u "$1" 2>/dev/null)
    printf '%s\n' "$said"
}
act() { # verb unit
    systemctl "$1" -- "$2" && return
    status=$?
    words "$2"
    return $status
}
reread() { systemctl daemon-reload; }
# Do not change links in /etc/rc?.d, which belong to init scripts that systemd does not use.
enable() { SYSTEMCTL_SKIP_SYSV=1 systemctl -q enable -- "$1"; }
disable() { SYSTEMCTL_SKIP_SYSV=1 systemctl -q disable -- "$1"; }
restart() { # unit seconds: fails if the unit has not stopped and started after this time
    systemctl reset-failed -- "$1" 2>/dev/null
    timeout -- "$2" systemctl restart -- "$1" && return
    status=$?
    [ "$status" -ne 124 ] || echo "$1 did not restart within $2 s"
    words "$1"
    return $status
}
stop() { # unit: stops the unit and clears its failed state
    systemctl stop -- "$1" && { systemctl reset-failed -- "$1" 2>/dev/null || :; }
}
reload() { # unit [rereading]: waits until new processes have replaced the old ones, unless these reread their files
    if [ "${2-}" = rereading ]; then act reload "$1"; return; fi
    pid=$(systemctl show --value -p MainPID -- "$1")
    old=$(children "$pid")
    act reload "$1" || return
    children_replaced "$1" "$pid" $old || { words "$1"; return 1; }
}
# unit port-or-socket seconds: waits until the unit runs and listens.
up() {
    read -r uptime idle </proc/uptime || return
    deadline=$((${uptime%%.*} + $3)) tries=0 pause=0.02
    while [ "${uptime%%.*}" -le "$deadline" ]; do
        case $(systemctl show --value -p ActiveState -p SubState -- "$1") in
            "active$newline"*) ! listens "$2" || return 0 ;;
            *auto-restart* | failed* | inactive* | deactivating*) break ;;
        esac
        tries=$((tries + 1))
        [ "$tries" -lt 25 ] || pause=0.1 # check less often during slow starts, because each check uses CPU time
        sleep "$pause"
        read -r uptime idle </proc/uptime || return
    done
    echo "$1 does not listen on $2: it is $(systemctl is-active -- "$1")"
    words "$1"
    return 1
}
listens() {
    case $1 in
        '') ;;
        *[!0-9]*) [ -n "$(ss -lxH "src unix:$1")" ] ;;
        *) [ -n "$(ss -ltnH "sport = :$1")" ] ;;
    esac
}
group() { systemctl show --value -p ControlGroup -- "$1"; } # unit
complaint() { # unit: prints why the unit is not running; nothing if it is
    systemctl -q is-active -- "$1" || { echo "$1 is $(systemctl is-active -- "$1")"; words "$1"; }
}
