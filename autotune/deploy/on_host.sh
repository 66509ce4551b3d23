# Functions that autotune calls on a host. Their arguments are words, and are never parsed as shell code.
# They need only a POSIX shell, coreutils, util-linux and iproute2 on the host.
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
unset OMP_NUM_THREADS OMP_THREAD_LIMIT # `nproc` would print them instead of the number of processors
home=/var/lib/autotune
mutex= # path of the mutex, once `alone` holds it

# -- the lock: a record of its holder, and the uptime at which it was last renewed -----------------
lock_state() {
    cat /proc/sys/kernel/random/boot_id
    cut -d ' ' -f 1 /proc/uptime
    renewed=$(cat "$home/lease" 2>/dev/null)
    echo "${renewed:-none}" # a power failure may leave the file empty
    cat "$home/lock" 2>/dev/null
    :
}
home_made() {
    [ -d "$home" ] || mkdir -p -m 700 -- "$home" || return
    # Another tuner may have removed the directory in between, when it released the host.
    is_own "$home" >/dev/null || [ ! -e "$home" ] || is_own "$home"
}
# directory: succeeds if this account owns it and no other account can write to it.
is_own() {
    if [ ! -L "$1" ] && [ -O "$1" ] && [ -d "$1" ]; then
        case $(stat -c %a -- "$1") in *[2367]? | *[2367]) ;; *) return 0 ;; esac
    fi
    echo "$1 is not a directory that only root can write to: remove it"
    return 1
}
# Waits until no other exchange changes the host, and locks the mutex. The mutex is a file that no other
# account can open. If the file was removed while this waited, it waits for the new one.
alone() {
    mutex=$home/mutex
    tries=3 # another tuner that releases the host may remove the directory between two commands
    while home_made; do
        if { [ -e "$mutex" ] || (umask 077 && : >>"$mutex"); } && command exec 8<"$mutex"; then
            flock -w 100 8 || { [ $? != 1 ] || echo 'other commands have been changing this host for 100 s'; return 4; }
            [ ! /proc/self/fd/8 -ef "$mutex" ] || return 0
        else
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || return 4
        fi
    done
    return 4
}
# Removes the mutex and the directory, if no tuner has locked the host.
vacate() {
    [ -e "$home/lock" ] || { rm -f -- "$mutex" && rmdir -- "$home" 2>/dev/null; }
    :
}
# expected new: replaces the lock's record if it is still the expected one ("" means no record).
claim() {
    alone || return
    now=$(cat "$home/lock" 2>/dev/null)
    if [ "$now" != "$1" ]; then
        vacate
        printf '%s' "$now"
        return 3
    fi
    home_made && printf '%s' "$2" >"$home/.lock" || return
    sync -- "$home/.lock" && renew && mv -f -- "$home/.lock" "$home/lock"
}
renew() {
    read -r uptime idle </proc/uptime || return
    echo "$uptime" >"$home/.lease.$$" && mv -f -- "$home/.lease.$$" "$home/lease"
}
# own: fails if the lock does not contain this record any more, and otherwise renews the lease.
fence() {
    if [ "$(cat "$home/lock" 2>/dev/null)" != "$1" ]; then
        [ -z "$mutex" ] || vacate
        echo 'this process no longer holds its lock'
        return 3
    fi
    renew 2>/dev/null || : # a full disk must not prevent a restore
}
unlock() {
    alone || return
    [ "$(cat "$home/lock" 2>/dev/null)" != "$1" ] ||
        rm -f -- "$home/lock" "$home/lease" "$home/.lock" "$home"/.lease* "$home"/*.new
    vacate
}

# -- reading the state of files and kernel values --------------------------------------------------
# path…: prints kind, mode, owner and time of each, followed by the target of a link or the digest of a
# file. A deployment reads dozens of paths several times, so each program is called once for all of them.
look() {
    kinds=
    for path; do
        if is_exposed "$path"; then kinds=${kinds}e
        elif [ -L "$path" ]; then kinds=${kinds}l
        elif [ -f "$path" ]; then kinds=${kinds}f
        elif [ -e "$path" ]; then kinds=${kinds}o
        else kinds=$kinds-
        fi
    done
    stats=$(only '[lfo]*' stats_of "$@") && sums=$(only 'f*' sums_of "$@") || return
    case $sums in *'+ '*) lists=yes ;; *) lists= ;; esac
    for path; do
        kind=${kinds%"${kinds#?}"} kinds=${kinds#?}
        case $kind in
            -) echo absent; continue ;;
            e) is_exposed "$path" && look_exposed "$path" || return; continue ;;
        esac
        type=${stats%% *} stats=${stats#* }
        links=${stats%% *} stats=${stats#* }
        said=${stats%%"$newline"*} stats=${stats#*"$newline"}
        case $kind$type in
            l*) printf 'link %s %s\n' "$said" "$(readlink -- "$path")" ;;
            f-*)
                sum=${sums%% *} sums=${sums#*"$newline"}
                if [ "$links" -gt 1 ]; then echo hard-linked; continue; fi
                printf 'file %s %s%s\n' "$said" "${sum#\\}" "${lists:+$(access_list "$path")}"
                ;;
            od*) printf 'directory %s -\n' "$said" ;;
            o*) echo other ;;
            *) echo "$path was replaced by a file of another kind"; return 1 ;;
        esac
    done
}
only() { # pattern function path…: calls the function with the paths whose letter in $kinds matches
    pattern=$1 run=$2 left=$kinds
    shift 2
    for path; do
        case $left in $pattern) set -- "$@" "$path" ;; esac
        shift
        left=${left#?}
    done
    [ $# -eq 0 ] || "$run" "$@"
}
stats_of() { stat -c '%A %h %a %u:%g %.9Y' -- "$@"; }
sums_of() { sha256sum -- "$@" && ls -ld -- "$@"; } # a "+" shows that a file has an ACL
# path: prints a blank and the ACL; prints nothing if the mode is enough. Every Debian has tar, which
# writes the ACL before the content, in lines that end with an empty one.
access_list() {
    case $(ls -ld -- "$1") in
        ??????????+*)
            tar --acls -cPf - -- "$1" 2>/dev/null | head -c "$largest_acl" | sed -n "$acl_lines" | paste -sd , - ;;
    esac
}
where() { # program…: prints the path of the first one that exists
    for program; do command -v -- "$program" && return; done
    :
}
contents() { # path…: prints the content of each file as one line of base64
    for path; do
        if is_exposed "$path"; then contents_exposed "$path" || return; continue; fi
        if [ -f "$path" ] && [ ! -L "$path" ]; then base64 -w 0 -- "$path" || return; fi
        echo
    done
}
# path below /proc/sys…: prints the value of each, or "-" if it does not exist. One program reads them
# all. The shell's `read` is unsuitable: it reads one byte at a time, and numbers end after the first read.
kernel() {
    for path; do
        set -- "$@" "/proc/sys/$path"
        shift
    done
    said=$newline$(grep -s '' -- "$@" /dev/null)$newline
    for path; do
        case $said in
            *"$newline$path:"*)
                value=${said#*"$newline$path:"}
                printf '=%s\n' "${value%%"$newline"*}"
                ;;
            *) echo - ;;
        esac
    done
}

made() { # directory: creates it with its parents if needed, and syncs the new names to disk
    [ -d "${1:-/}" ] || { made "${1%/*}" && mkdir -p -- "$1" && sync_parent "$1"; }
}
sync_parent() { # path: syncs the names in the directory of the path to disk
    set -- "${1%/*}"
    sync -- "${1:-/}"
}

# -- files ---------------------------------------------------------------------------------------
# path…: fails, and prints the reason, if a path's directories cannot be used safely.
check_places() {
    for path; do
        if is_exposed "$path"; then (enter || { echo "$why"; exit 1; }) || return; fi
    done
}
# path staged mode owner base64 acl owner-before mode-before: writes the staged file with the ACL and
# attributes of the real one, unless an ACL is given. If the owner is "-", the staged file also gets the
# owner and mode of the real one. The last two arguments are used if other accounts can change the path.
stage() {
    if is_exposed "$1"; then stage_exposed "$@"; return; fi
    (umask 022 && made "${2%/*}") || return
    rm -f -- "$2"
    (umask 077 && printf %s "$5" | base64 -d >"$2") || return
    if [ -f "$1" ]; then
        cp --attributes-only --preserve=all -- "$1" "$2" && touch -- "$2" || return
    fi
    if [ -n "$6" ] && command -v setfacl >/dev/null; then setfacl -n --set="$6" -- "$2" || return; fi
    if [ "$4" != - ] || [ ! -f "$1" ]; then
        owner=$4
        [ "$owner" != - ] || owner=0:0
        chown "$owner" -- "$2" && chmod "$3" -- "$2" || return
    fi
    sync -- "$2"
}
stage_link() { # path staged owner target
    ! is_exposed "$1" || { echo "$1 was a link, and other accounts can now write next to it"; return 1; }
    (umask 022 && made "${2%/*}") || return
    rm -f -- "$2" && ln -s -- "$4" "$2" && chown -h "$3" -- "$2"
}
unstage() { # path…: removes the files that are staged for them
    for path; do
        if is_exposed "$path"; then unstage_exposed "$path"; else rm -f -- "${path%/*}/.${path##*/}.autotune-new"; fi
    done
}
discard() { # file…: removes files of one directory, and syncs it, so that they do not return after a power cut
    rm -f -- "$@" && sync_parent "$1"
}
# directory…: removes staged directories, and autotune's own directory if nothing else is in it
discard_staged() { rm -rf -- "$@" && rmdir -- "$home" 2>/dev/null; :; }
digest() { # path: prints the digest of a file, or the target of a link
    if [ -L "$1" ]; then
        printf 'link %s\n' "$(readlink -- "$1")"
    elif [ -f "$1" ]; then
        sum=$(sha256sum <"$1") && echo "${sum%% *}"
    fi
}
# path: sets `aside` to the path of a new copy, and creates its directory. Each copy gets a new name, because an
# earlier copy may be a link, and is kept as well.
name_copy() {
    when=$home/overwritten/$(date -u +%Y%m%dT%H%M%SZ) again=
    aside=$when$1
    while [ -e "$aside" ] || [ -L "$aside" ]; do
        again=$((again + 1)) aside=$when.$again$1
    done
    (umask 077 && made "${aside%/*}")
}
# path base64: writes an earlier version of a file, which others had made, to a copy. Prints the copy's path.
keep_copy() {
    name_copy "$1" && (umask 077 && printf %s "$2" | base64 -d >"$aside") || { rm -f -- "$aside"; return 1; }
    sync -- "$aside" && sync -- "${aside%/*}" && echo "$aside"
}
# path digest…: if the file has none of these digests, others changed it: copies it and prints the copy's path.
set_aside() {
    path=$1 digest=digest copy='cp -a --' file=$1
    ! is_exposed "$1" || digest=digest_exposed copy=copy_exposed file=./${1##*/}
    now=$("$digest" "$file") || return
    shift
    [ -n "$now" ] || return 0
    for ours; do
        [ "$ours" != any ] && [ "$ours" != "$now" ] || return 0
    done
    name_copy "$path" && $copy "$file" "$aside" || { rm -f -- "$aside"; return 1; }
    [ -L "$aside" ] || sync -- "$aside"
    sync -- "${aside%/*}" && echo "$aside"
}
kept_aside() { find "$home/overwritten" ! -type d 2>/dev/null || :; }
swap() { # path staged time digest…
    if is_exposed "$1"; then swap_exposed "$@"; return; fi
    place=$1 staged=$2 time=$3
    shift 3
    set_aside "$place" "$@" || return
    [ -z "$time" ] || touch -h -d "@$time" -- "$staged" || return
    put "$staged" "$place" && sync_parent "$place"
}
put() { mv -fT -- "$1" "$2"; } # staged path
remove() { # path digest…
    if is_exposed "$1"; then remove_exposed "$@"; return; fi
    set_aside "$@" || return
    if [ -d "$1" ] && [ ! -L "$1" ]; then rmdir -- "$1"; else rm -f -- "$1"; fi || return
    [ ! -d "${1%/*}" ] || sync -- "${1%/*}"
}
keep() { # path base64: writes one of autotune's own files, and syncs it before it returns
    home_made || return
    (umask 077 && printf %s "$2" | base64 -d >"$1.new") || return
    sync -- "$1.new" && mv -f -- "$1.new" "$1" && sync -- "$home" "${home%/*}"
}
# n, then n times staged and path, then argv…: runs argv, which alone sees the staged files at those paths.
with_files() {
    $launch unshare --mount --propagation private -- sh -c "$anchors$mounting" sh "$@"
}
launch= # or exec, so that the calling process becomes the program
mounting='
    # path: makes sure that a file exists, if needed in a copy of its directory with the same entries.
    mountable() (
        [ ! -e "$1" ] || exit 0
        owner=-
        top=${1%/*}
        while [ ! -d "$top/" ]; do top=${top%/*}; done
        cd -P -- "$top" && copy_of_mounts "$PWD" && mkdir -p -- "${1%/*}" && : >"$1"
    )
    owner=- covered=$newline
    cover "$@" || exit
    count=$1 && shift
    while [ "$count" -gt 0 ]; do
        if is_exposed "$2"; then
            mount_covered "$1" "$2" || exit
        else
            mountable "$2" && mount --bind -- "$1" "$2" || exit
        fi
        shift 2 && count=$((count - 1))
    done
    exec "$@"'
# directory socket argv…: runs argv in a new directory until it accepts connections at the socket. argv
# must limit its own running time.
trial() {
    directory=$1 socket=$2
    shift 2
    # The parent directory cannot be listed, so only processes that know the name find the directory.
    (umask 066 && mkdir -p -- "${directory%/*}") && is_own "${directory%/*}" || return
    rm -rf -- "$directory" && mkdir -m 700 -- "$directory" && chmod 1777 -- "$directory" || return
    cd -- "$directory" || return
    if [ "$1" = with_files ]; then
        { launch=exec; "$@"; } >"$directory.out" 2>&1 8<&- &
    else
        "$@" >"$directory.out" 2>&1 8<&- &
    fi
    pid=$!
    status=1
    while kill -0 "$pid" 2>/dev/null; do
        if [ -S "$socket" ]; then
            sleep 0.03
            kill "$pid" 2>/dev/null && status=0
            break
        fi
        sleep 0.01
    done
    wait "$pid" 2>/dev/null
    [ "$status" = 0 ] || cat "$directory.out"
    cd / && rm -rf -- "$directory" "$directory.out" && rmdir -- "${directory%/*}" 2>/dev/null
    return $status
}

# -- readiness of units ----------------------------------------------------------------------------
clock() { cut -d ' ' -f 1 /proc/uptime; } # unit: prints the uptime in seconds
# unit port-or-socket seconds url name interval: waits until the unit listens, then until it serves the page.
ready() { up "$1" "$2" "$3" && answers "$4" "$5" "$3" "$6" "$2"; }
# url name seconds interval port-or-socket: waits until the page has a response with a status below 500.
answers() {
    case ${5-} in /*) socket=$5 ;; *) socket= ;; esac
    read -r uptime idle </proc/uptime || return
    deadline=$((${uptime%%.*} + $3)) pause=$4
    while :; do
        status=$(curl -q -ksg -o /dev/null --noproxy '*' -m 30 -w '%{http_code}' \
            ${socket:+--unix-socket "$socket"} ${2:+-H "Host: $2"} -- "$1") || :
        case $status in [1-4][0-9][0-9]) return 0 ;; esac
        read -r uptime idle </proc/uptime || return
        [ "${uptime%%.*}" -lt "$deadline" ] || break
        sleep "$pause"
        case $pause in 0.*) pause=1 ;; esac
    done
    case $status in
        000 | '') echo "$1 does not respond" ;;
        *) echo "$1 responds with status $status" ;;
    esac
    return 1
}

# -- processes of a service after a reload ---------------------------------------------------------
children() { cat "/proc/$1/task/$1/children" 2>/dev/null || :; }
old_left() { # pid child…: prints those that are still children of the process
    now=" $(children "$1") "
    shift
    for child; do
        case $now in *" $child "*) printf '%s ' "$child" ;; esac
    done
}
sockets_of() { # process option: prints the sockets in its network namespace, with the processes that own them
    nsenter -t "$1" -n ss -tx "$2" -npH 2>/dev/null || ss -tx "$2" -npH
}
held_by() { # sockets process…: succeeds if one of these processes owns one of the sockets
    sockets=$1
    shift
    for process; do
        case $sockets in *",pid=$process,"*) return 0 ;; esac
    done
    return 1
}
# process child…: succeeds if none of these children accepts connections any more, but the process or a new
# child does.
only_finish() {
    pid=$1 new=$1
    shift
    for child in $(children "$pid"); do
        case " $* " in *" $child "*) ;; *) new="$new $child" ;; esac
    done
    [ "$new" != "$pid" ] || return
    listening=$(sockets_of "$pid" -l | grep ' LISTEN ')
    held_by "$listening" $new && ! held_by "$listening" "$@"
}
peers_of() { # process child…: prints a few of the addresses to which these children have connections
    pid=$1
    shift
    sockets_of "$pid" -e | while read -r kind _ _ _ _ peer holders; do
        [ "$kind" != tcp ] || ! held_by "$holders" "$@" || printf ' %s' "$peer"
    done | cut -d ' ' -f 1-4
}
# unit process child…: waits until these children have exited, or only finish connections, which may take
# hours. They get 3 s to exit, and 10 s to stop accepting new connections.
children_replaced() {
    unit=$1 pid=$2
    shift 2
    tries=100 pause=0.02
    while left=$(old_left "$pid" "$@") && [ -n "$left" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 75 ] || pause=0.12 # it may take seconds now, and each check costs CPU time
        case $tries in
            50 | 25 | 0)
                if only_finish "$pid" $left; then
                    set -- $left
                    echo "finishing $unit $#$(peers_of "$pid" "$@")"
                    return
                fi ;;
        esac
        if [ "$tries" = 0 ]; then
            echo "10 s after the reload of $unit, old processes still accept connections: $left"
            return 1
        fi
        sleep "$pause"
    done
}
