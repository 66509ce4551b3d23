# What the containers of a Compose project are asked, for `ServiceManager` in autotune/deploy/host_state.py.
# A unit is ENGINE[@ACCOUNT]:PROJECT:FILE[,FILE…]:SERVICE, so that a backup alone says how to restore it.
mounted=/var/lib/autotune-containers
of_unit() { # unit: sets what the functions below need of it
    engine=${1%%:*} rest=${1#*:}
    project=${rest%%:*} rest=${rest#*:}
    files=${rest%%:*} service=${rest#*:} account=
    case $engine in *@*) account=${engine#*@} engine=${engine%%@*} ;; esac
    override=$mounted/$project/$service/override.json
}
# Bounded, with no lock of ours open: the containers that it starts stay. A rootless engine is its account's.
as_owner() { # program, argument…
    if [ -n "$account" ]; then
        set -- runuser -u "$account" -- env XDG_RUNTIME_DIR="/run/user/$(id -u "$account")" "$@"
    fi
    (cd / && timeout -k 5 "${limit:-110}" "$@" 8<&-)
}
engine() { as_owner "$engine" "$@"; }
look_into() { engine container inspect --format "$@"; }
of_project() { # filter…: the containers of the project, an identifier a line
    engine ps -aq --no-trunc --filter "label=com.docker.compose.project=$project" "$@"
}
container() { # the only one of the service; nothing where there is none
    ids=$(of_project --filter "label=com.docker.compose.service=$service") || { echo "$ids"; return 1; }
    case $ids in *'
'*) echo "$project has several containers of $service: scale it to one"; return 1 ;; esac
    printf '%s\n' "$ids"
}
compose() { # command…: of the user's files, and of ours where it is
    left=$files
    [ ! -e "$override" ] || set -- -f "$override" "$@"
    while set -- -f "${left##*,}" "$@" && [ "$left" != "${left%,*}" ]; do left=${left%,*}; done
    case $engine in
        podman) as_owner podman-compose -p "$project" "$@" ;;
        *) as_owner "$engine" compose -p "$project" "$@" ;;
    esac
}
# container: what tells it from any other made of the same files, piece by piece, in digests.
definition() {
    text=$(look_into '{{printf "image %s\n" .Image}}{{range .Config.Env}}{{printf "environment %q\n" .}}{{end}}
command {{json .Config.Entrypoint}} {{json .Config.Cmd}} {{json .Config.User}} {{json .Config.WorkingDir}}
{{range .Mounts}}{{println "mounts" .Type .Name .Source .Destination .RW}}{{end}}
limits {{.HostConfig.NanoCpus}} {{.HostConfig.CpuQuota}} {{.HostConfig.Memory}} {{json .HostConfig.PortBindings}}
limits {{.HostConfig.NetworkMode}}' "$1") || { echo "$text"; return 1; }
    for piece in image environment command mounts limits; do
        sum=$(printf '%s\n' "$text" | grep "^$piece " | grep -v '^environment "HOSTNAME=' | sort | sha256sum)
        printf '%s=%.16s ' "$piece" "$sum"
    done
}
units() {
    for unit; do
        of_unit "$unit"
        id=$(container) || { echo "$id"; return 1; }
        exists=no
        [ ! -e "${files%%,*}" ] || exists=yes
        state='absent 0 0'
        if [ -n "$id" ]; then
            state=$(look_into '{{.State.Status}} {{.State.Pid}} {{.RestartCount}}' "$id") || return
            state="$state $(definition "$id")" || return
        fi
        echo "$exists $state"
    done
}
label() { look_into "{{index .Config.Labels \"$2\"}}" "$1" | sed 's/^<no value>$//'; }
due() { # the mark of our file, which is a label of what was made by it
    sed -n 's/.*"autotune": "\([0-9a-f]*\)".*/\1/p' "$override" 2>/dev/null || :
}
as_due() { [ -n "$1" ] && [ "$(label "$1" autotune)" = "$(due)" ]; }
words() { # what the container said last
    id=$(container) && [ -z "$id" ] || engine logs --tail 20 "$id" 2>&1 | tail -n 20
}
nameless() { # container: a volume without a name would not be there in the next one
    places=$(look_into '{{range .Mounts}}{{println .Type .Name .Destination}}{{end}}' "$1" |
        sed -n 's/^volume [0-9a-f]\{64\} //p' | paste -sd ' ')
    [ -z "$places" ] || {
        echo "$service of $project has data in a volume without a name at $places: name it in ${files%%,*}"
        return 1
    }
}
# Like the one before but for what our file says, or it would not be the user's service that is measured.
recreate() { # container, or nothing
    before=
    [ -z "$1" ] || { before=$(definition "$1" | cut -d ' ' -f 1-3) && nameless "$1"; } || return
    compose up -d --no-deps --no-build --force-recreate "$service" || return
    id=$(container) && [ -n "$id" ] || { echo "$project has no container of $service: $id"; return 1; }
    after=$(definition "$id" | cut -d ' ' -f 1-3)
    [ -z "$before" ] || [ "$before" = "$after" ] || {
        echo "$service of $project came back as another one than its files had made: $before → $after"
        return 1
    }
}
restart() { # unit
    of_unit "$1"
    id=$(container) || { echo "$id"; return 1; }
    if as_due "$id"; then engine restart -t 30 "$id"; else recreate "$id"; fi
}
stop() { # unit
    of_unit "$1"
    id=$(container) && [ -n "$id" ] && engine stop -t 30 "$id"
}
reload() { # unit [rereading]
    of_unit "$1"
    id=$(container) || { echo "$id"; return 1; }
    as_due "$id" || { recreate "$id"; return; }
    pid=$(look_into '{{.State.Pid}}' "$id") && old=$(children "$pid") || return
    engine kill -s "$(label "$id" autotune.signal)" "$id" || return
    [ "${2-}" = rereading ] || children_replaced "$1" "$pid" $old || { words; return 1; }
}
up() { # unit port-or-socket: it runs and listens, within 15 s
    of_unit "$1"
    tries=100
    while [ "$tries" -gt 0 ]; do
        id=$(container) && [ -n "$id" ] || break
        state=$(look_into '{{.State.Status}} {{.State.Pid}}' "$id") || break
        case $state in
            'running '*) ! listens_inside "${state#* }" "$2" || return 0 ;;
            created* | restarting*) ;;
            *) break ;;
        esac
        tries=$((tries - 1))
        sleep 0.1
    done
    echo "$service of $project does not listen at $2: it is ${state:-not there}"
    words
    return 1
}
listens_inside() { # process, port of this machine
    case $2 in '' | /*) return 0 ;; esac
    port=$(engine port "$id" 2>/dev/null | sed -n "s|^\([0-9]*\)/tcp -> .*:$2\$|\1|p" | head -n 1)
    [ -n "$(nsenter -t "$1" -n ss -ltnH "sport = :${port:-$2}")" ]
}
complaint() { # unit: why it does not run any more, if it does not
    of_unit "$1"
    id=$(container)
    state=$(look_into '{{.State.Status}}' "$id" 2>&1)
    [ "$state" = running ] || { echo "$service of $project is $state"; words; }
}
enable() { :; }
disable() { :; }
reread() { :; }
put() { # staged path: what is mounted is the file itself, so that it is written into, not replaced
    case $2 in
        "$mounted"/*) if [ -f "$2" ]; then cat -- "$1" >"$2" && sync -- "$2" && rm -f -- "$1"; return; fi ;;
    esac
    mv -fT -- "$1" "$2"
}
inside() { # unit argv…
    of_unit "$1"
    shift
    id=$(container) || { echo "$id"; return 1; }
    engine exec "$id" "$@"
}
packed() { # unit path…: each as it is inside, a line of base64 of a tar archive, bounded
    of_unit "$1"
    shift
    id=$(container) && [ -n "$id" ] || { echo "$project has no container of $service: $id"; return 1; }
    for path; do
        engine cp "$id:$path" - 2>/dev/null | head -c 67108864 | base64 -w 0
        echo
    done
}
# Names that Compose would resolve: checked without a network they are anything.
neighbours() {
    look_into '{{index .Config.Labels "com.docker.compose.service"}} {{.Name}}' $(of_project) |
        tr ' ' '\n' | sed -n 's|^/*\([A-Za-z0-9_.-]\{1,\}\)$|--add-host=\1:127.0.0.1|p' | sort -u
}
own_limits() { # container
    look_into '{{range .HostConfig.Ulimits}}{{println .Name .Soft .Hard}}{{end}}' "$1" | tr A-Z a-z |
        sed -n 's/^\(rlimit_\)\{0,1\}\([a-z]*\) \([0-9-]*\) \([0-9-]*\)$/--ulimit=\2=\3:\4/p'
}
# unit seconds option… -- argument…: a container like that one, without a network, its data read-only, which
# is gone afterwards. With `starts` in front it is right as long as it runs.
aside() {
    starts=
    [ "$1" != starts ] || { starts=yes; shift; }
    of_unit "$1"
    limit=$2 image='' like=autotune-check-$$
    shift 2
    id=$(container) && [ -n "$id" ] || { echo "$project has no container of $service: $id"; return 1; }
    image=$(look_into '{{.Image}}' "$id") || return
    beyond=
    for word; do
        shift
        if [ -z "$beyond" ] && [ "$word" = -- ]; then beyond=yes word=$image; fi
        set -- "$@" "$word"
    done
    # /dev/stdin can only be opened by the account that made the pipe.
    look_into '{{range .Config.Env}}{{println .}}{{end}}' "$id" | grep = |
        as_owner sh -c 'cat | "$@"' sh "$engine" run --rm --name "$like" --network none \
            --volumes-from "$id:ro" --env-file /dev/stdin $(neighbours) $(own_limits "$id") "$@"
    status=$?
    [ "$status" != 124 ] || [ -n "$starts" ] || echo "the check has not ended after $limit s"
    limit=
    engine rm -f "$like" >/dev/null 2>&1
    [ "$status" != 124 ] || [ -z "$starts" ] || status=0
    return $status
}
