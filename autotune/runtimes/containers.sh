# Functions for containers of a Compose project, used by `ServiceManager` in autotune/deploy/host_state.py.
# A unit's name is ENGINE[@ACCOUNT]:PROJECT:FILE[,FILE…]:SERVICE, so a restore needs only the backup.
mounted=/var/lib/autotune-containers
of_unit() { # unit: sets variables for the functions below
    engine=${1%%:*} rest=${1#*:}
    project=${rest%%:*} rest=${rest#*:}
    files=${rest%%:*} service=${rest#*:} account=
    case $engine in *@*) account=${engine#*@} engine=${engine%%@*} ;; esac
    override=$mounted/$project/$service/override.json
}
# Runs a program with a time limit. The program must not hold autotune's lock, because its containers keep running.
# Rootless engines must run under their own account.
as_owner() { # program, argument…
    if [ -n "$account" ]; then
        set -- runuser -u "$account" -- env XDG_RUNTIME_DIR="/run/user/$(id -u "$account")" "$@"
    fi
    (cd / && timeout -k 5 "${limit:-110}" "$@" 8<&-)
}
engine() { as_owner "$engine" "$@"; }
look_into() { engine container inspect --format "$@"; }
of_project() { # filter…: prints the IDs of the project's containers, one per line
    engine ps -aq --no-trunc --filter "label=com.docker.compose.project=$project" "$@"
}
# Prints the ID of the service's only container, or nothing. `compose run` creates more containers of the
# service. Docker Compose marks these with a label, and podman-compose only with a name.
container() {
    case $engine in
        podman) mark='{{index .Labels "com.docker.compose.oneoff"}}' ;;
        *) mark='{{.Label "com.docker.compose.oneoff"}}' ;;
    esac
    listed=$(engine ps -a --no-trunc --filter "label=com.docker.compose.project=$project" \
        --filter "label=com.docker.compose.service=$service" --format "{{.ID}} {{.Names}} $mark") || {
        echo "$listed"
        return 1
    }
    ids=$(printf '%s\n' "$listed" | while read -r id name oneoff; do
        case $name/$oneoff in
            */True | "${project}_${service}_tmp"[0-9]*/* | "$project-$service-tmp"[0-9]*/*) ;;
            *) [ -z "$id" ] || echo "$id" ;;
        esac
    done)
    case $ids in *'
'*) echo "$project has several containers of $service: scale it to one"; return 1 ;; esac
    printf '%s\n' "$ids"
}
# command…: with the user's files, the override if it exists, the files in $env_files, and paths relative to $directory
compose() {
    left=$files
    [ ! -e "$override" ] || set -- -f "$override" "$@"
    while set -- -f "${left##*,}" "$@" && [ "$left" != "${left%,*}" ]; do left=${left%,*}; done
    left=$env_files
    while [ -n "$left" ]; do
        set -- --env-file "${left##*,}" "$@"
        case $left in *,*) left=${left%,*} ;; *) left= ;; esac
    done
    case $engine in
        podman) as_owner podman-compose -p "$project" "$@" ;;
        *)
            case $directory in /*) [ ! -d "$directory" ] || set -- --project-directory "$directory" "$@" ;; esac
            as_owner "$engine" compose -p "$project" "$@" ;;
    esac
}
# container: prints digests of the container's properties. They differ if its files or image changed.
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
            # Others recreated a container that lacks the mounts of the override.
            [ ! -e "$override" ] || [ -n "$(label "$id" autotune)" ] || state="${state}replaced=yes"
        fi
        echo "$exists $state"
    done
}
label() { look_into "{{index .Config.Labels \"$2\"}}" "$1" | sed 's/^<no value>$//'; }
due() { # prints the digest in the override file, which is also a label of containers created from the file
    sed -n 's/.*"autotune": "\([0-9a-f]*\)".*/\1/p' "$override" 2>/dev/null || :
}
as_due() { [ -n "$1" ] && [ "$(label "$1" autotune)" = "$(due)" ]; }
words() { # prints the container's last log lines
    id=$(container) && [ -z "$id" ] || engine logs --tail 20 "$id" 2>&1 | tail -n 20
}
nameless() { # container: fails if the container has an anonymous volume, which a new container would lose
    places=$(look_into '{{range .Mounts}}{{println .Type .Name .Destination}}{{end}}' "$1" |
        sed -n 's/^volume [0-9a-f]\{64\} //p' | paste -sd ' ')
    [ -z "$places" ] || {
        echo "$service of $project stores data in an anonymous volume at $places: give the volume a name in ${files%%,*}"
        return 1
    }
}
# container: fails if podman-compose would also replace the containers on which this one depends. Before version
# 1.4, podman-compose ignores --no-deps.
independent() {
    [ "$engine" = podman ] || return 0
    version=$(as_owner podman-compose version 2>&1 | sed -n 's/^podman-compose version:* //p' | head -n 1)
    case $version in '' | 0.* | 1.[0-3] | 1.[0-3].*) ;; *) return 0 ;; esac
    needed=$(look_into '{{range .Dependencies}}{{println .}}{{end}}' "$1") || { echo "$needed"; return 1; }
    ours=" $(of_project | tr '\n' ' ')"
    for other in $needed; do
        case $ours in *" $other "*) ;; *) continue ;; esac
        other=$(look_into '{{.Name}}' "$other")
        echo "podman-compose $version would also replace container $other, on which $service of $project depends:" \
            "install podman-compose 1.4 or later"
        return 1
    done
}
given() { # file: succeeds for a file of the project, and for the override
    left=$files,$override
    while [ ! "$1" -ef "${left%%,*}" ]; do
        case $left in *,*) left=${left#*,} ;; *) return 1 ;; esac
    done
}
# container: fails if the container was created from a Compose file that the target does not contain. Sets $directory
# to the directory to which Compose resolved relative paths for the container.
same_files() {
    created=$(label "$1" com.docker.compose.project.config_files) || return
    directory=$(label "$1" com.docker.compose.project.working_dir) || return
    while [ -n "$created" ]; do
        file=${created%%,*}
        case $created in *,*) created=${created#*,} ;; *) created= ;; esac
        case $file in /*) ;; *) file=$directory/$file ;; esac
        [ -e "$file" ] && ! given "$file" || continue
        echo "$service of $project was also created from $file: add the file to the target's project"
        return 1
    done
}
# process: prints it or, if it is an init process that only starts the server (`init: true`), its child
server_of() {
    case $(cat "/proc/$1/comm" 2>/dev/null) in
        docker-init | podman-init | catatonit | tini | tini-static | dumb-init)
            started=$(children "$1")
            case ${started% } in "" | *" "*) ;; *) set -- "${started% }" ;; esac
            ;;
    esac
    echo "$1"
}
# container: sets $env_files to the files with variables that Docker Compose used for the container
read_env_files() {
    env_files=$(label "$1" com.docker.compose.project.environment_file) || return
    case $env_files in /*) ;; *) env_files= ;; esac
}
# container: fails if the name of its image now refers to another image, which a new container would get. A container
# that autotune created is not checked, because a restore must recreate it in any case.
same_image() {
    [ -z "$(label "$1" autotune)" ] || return 0
    name=$(look_into '{{.Config.Image}}' "$1") && used=$(look_into '{{.Image}}' "$1") || { echo "$name $used"; return 1; }
    named=$(engine image inspect --format '{{.Id}}' "$name" 2>/dev/null)
    [ -z "$named" ] || [ "${named#sha256:}" = "${used#sha256:}" ] || {
        echo "$name no longer refers to the image of $service of $project, and a new container would run another" \
            "image: recreate the container with Compose first"
        return 1
    }
}
# Only the override may change the container. Otherwise, a service other than the user's would be measured.
recreate() { # container ID, or nothing
    before='' env_files='' directory=''
    [ -z "$1" ] || {
        before=$(definition "$1" | cut -d ' ' -f 1-3) && nameless "$1" && independent "$1" && same_files "$1" &&
            same_image "$1" && read_env_files "$1"
    } || return
    compose up -d --no-deps --no-build --force-recreate "$service" || return
    id=$(container) && [ -n "$id" ] || { echo "$project has no container of $service: $id"; return 1; }
    as_due "$id" || {
        echo "$service of $project was not recreated: other containers may depend on it"
        return 1
    }
    after=$(definition "$id" | cut -d ' ' -f 1-3)
    [ -z "$before" ] || [ "$before" = "$after" ] || {
        echo "recreating $service of $project changed more than its files: $before → $after. If you started" \
            "it with other variables, write them to .env next to ${files%%,*} and recreate it"
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
    pid=$(look_into '{{.State.Pid}}' "$id") && pid=$(server_of "$pid") && old=$(children "$pid") || return
    engine kill -s "$(label "$id" autotune.signal)" "$id" || return
    [ "${2-}" = rereading ] || children_replaced "$1" "$pid" $old || { words; return 1; }
}
up() { # unit port-or-socket seconds: waits until the unit runs and listens
    of_unit "$1"
    read -r uptime idle </proc/uptime || return
    deadline=$((${uptime%%.*} + $3))
    while [ "${uptime%%.*}" -le "$deadline" ]; do
        id=$(container) && [ -n "$id" ] || break
        state=$(look_into '{{.State.Status}} {{.State.Pid}}' "$id") || break
        case $state in
            'running '*) ! listens_inside "${state#* }" "$2" || return 0 ;;
            created* | restarting*) ;;
            *) break ;;
        esac
        sleep 0.1
        read -r uptime idle </proc/uptime || return
    done
    echo "$service of $project does not listen on $2: its state is ${state:-missing}"
    words
    return 1
}
listens_inside() { # process, port of this machine
    case $2 in '' | /*) return 0 ;; esac
    port=$(engine port "$id" 2>/dev/null | sed -n "s|^\([0-9]*\)/tcp -> .*:$2\$|\1|p" | head -n 1)
    [ -n "$(nsenter -t "$1" -n ss -ltnH "sport = :${port:-$2}")" ]
}
complaint() { # unit: prints why the unit is not running; nothing if it is
    of_unit "$1"
    id=$(container)
    state=$(look_into '{{.State.Status}}' "$id" 2>&1)
    [ "$state" = running ] || { echo "$service of $project is $state"; words; }
}
group() { # unit: prints the container's ID, which is part of its control group's path
    of_unit "$1"
    container
}
enable() { :; }
disable() { :; }
reread() { :; }
put() { # staged path: writes into a mounted file, because replacing the file would break the mount
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
packed() { # unit path…: prints one base64 line per path in the container: a tar archive of limited size
    of_unit "$1"
    shift
    id=$(container) && [ -n "$id" ] || { echo "$project has no container of $service: $id"; return 1; }
    for path; do
        engine cp "$id:$path" - 2>/dev/null | head -c 67108864 | base64 -w 0
        echo
    done
}
# Prints engine options for the names that Compose resolves. A check runs without a network, so any address works.
neighbours() {
    look_into '{{index .Config.Labels "com.docker.compose.service"}} {{.Name}}' $(of_project) |
        tr ' ' '\n' | sed -n 's|^/*\([A-Za-z0-9_.-]\{1,\}\)$|--add-host=\1:127.0.0.1|p' | sort -u
}
own_limits() { # container
    look_into '{{range .HostConfig.Ulimits}}{{println .Name .Soft .Hard}}{{end}}' "$1" | tr A-Z a-z |
        sed -n 's/^\(rlimit_\)\{0,1\}\([a-z]*\) \([0-9-]*\) \([0-9-]*\)$/--ulimit=\2=\3:\4/p'
}
# Removes copies of containers whose shell was killed. The engine keeps such a copy running, with a server
# that ends only if it is stopped.
remove_leftovers() {
    engine ps -a --filter name=autotune-check- --format '{{.Names}}' | while read -r name; do
        shell=${name#autotune-check-}
        case $shell in "$name" | '' | *[!0-9]*) continue ;; esac
        kill -0 "$shell" 2>/dev/null || engine rm -f "$name" </dev/null >/dev/null 2>&1
    done
}
# unit seconds option… -- argument…: runs a copy of the container without a network and with read-only data,
# then removes the copy. With a leading `starts`, succeeds if the copy still runs when its time is over.
aside() {
    starts=
    [ "$1" != starts ] || { starts=yes; shift; }
    of_unit "$1"
    remove_leftovers
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
    # Only the account that created the pipe can open /dev/stdin.
    look_into '{{range .Config.Env}}{{println .}}{{end}}' "$id" | grep = |
        as_owner sh -c 'cat | "$@"' sh "$engine" run --rm --name "$like" --network none \
            --volumes-from "$id:ro" --env-file /dev/stdin $(neighbours) $(own_limits "$id") "$@"
    status=$?
    [ "$status" != 124 ] || [ -n "$starts" ] || echo "the check did not finish within $limit s"
    limit=
    engine rm -f "$like" >/dev/null 2>&1
    [ "$status" != 124 ] || [ -z "$starts" ] || status=0
    return $status
}
