# Functions for exposed paths, where another account can change names. For such a path, each step is taken
# from within the directory that has been entered, so that a changed name has no effect.
#
# A directory is closed if root owns it and only root can write to it. A path may also lead through a sticky
# directory that root owns, such as /tmp, to another directory that root owns. Every other directory is
# exposed: at any moment, its owner can replace any name in it by a link, a FIFO or another file.
# PATH must not contain the working directory, or root would run programs from an exposed directory.
case :$PATH: in *::* | *:[!/]*:*) PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ;; esac
newline='
'
tab='	'
surveyed=$newline # directories that were classified
exposed=$newline  # exposed directories: DIRECTORY, TOP, REAL, OWNER; or DIRECTORY, !, reason
me= # the account that runs this, unless it is root

# directory: sets `real`, its path without links; `passed`, the directories in which names are looked up, in
# order; and `missing`, the first directory that does not exist.
route() {
    real='' left=${1#/}/ passed=/$newline missing='' hops=0
    while [ -n "$left" ]; do
        name=${left%%/*} left=${left#*/}
        case $name in
            '' | .) ;;
            ..) real=${real%/*} passed=$passed${real:-/}$newline ;;
            *)
                if [ -L "$real/$name" ]; then
                    passed=$passed${real:-/}$newline hops=$((hops + 1))
                    [ "$hops" -le 40 ] || { missing=$real/$name; return; }
                    to=$(readlink -- "$real/$name")
                    case $to in /*) real='' ;; esac
                    left=$to/$left
                elif [ -d "$real/$name" ]; then
                    real=$real/$name passed=$passed$real$newline
                else
                    missing=$real/$name
                    return
                fi
                ;;
        esac
    done
}
# directory: sets `uid` and `mode` to the values in `attributes`, and fails if the directory is not listed.
attributes_of() {
    case $attributes in *"$tab$1$newline"*) ;; *) return 1 ;; esac
    uid=${attributes%%"$tab$1$newline"*}
    uid=${uid##*"$newline"}
    mode=0${uid#* } uid=${uid%% *}
}
is_roots() { attributes_of "$1" && { [ "$uid" = 0 ] || [ "$uid" = "$me" ]; }; }
is_closed() { is_roots "$1" && [ $((mode & 022)) = 0 ]; }
# directory and the next one on the path: succeeds if no other account can replace the next one.
is_passable() {
    ! is_closed "$1" || return 0
    is_roots "$1" && [ $((mode & 01000)) != 0 ] && [ "${2%/*}" = "${1%/}" ] && [ "$2" != / ] && is_roots "$2"
}
classify() { # directory: adds it to `exposed` unless every directory on the path to it is closed
    route "$1"
    open=$newline previous=''
    IFS=$newline
    for next in $passed; do
        [ -z "$previous" ] || is_passable "$previous" "$next" || open=$open$previous$newline
        previous=$next
    done
    unset IFS
    is_closed "$previous" || open=$open$previous$newline
    [ "$open" = "$newline" ] || exposed=$exposed$1$tab$(anchor "$1")$newline
}
# directory, after `route`: prints TOP, REAL and OWNER, or ! and the reason why the directory is unsafe. TOP
# is the last closed directory on the path. Everything below it must belong to a single account.
anchor() {
    [ -z "$missing" ] || { refuse "the directory $missing does not exist, and other accounts can write to a directory above it"; return; }
    top='' left=${real#/}
    while case $left in */*) ;; *) false ;; esac; do
        case $open in *"$newline$top/${left%%/*}$newline"*) break ;; esac
        top=$top/${left%%/*} left=${left#*/}
    done
    below=$newline step=$top
    IFS=/
    for name in $left; do step=$step/$name below=$below$step$newline; done
    IFS=$newline
    for step in $open; do
        case $below in *"$newline$step$newline"*) continue ;; esac
        refuse "other accounts can write to $step, which is on the path to $1"
        return
    done
    if [ "$below" = "$newline$real$newline" ]; then printf '%s\t%s\t-' "$top" "$real"; return; fi
    owner=
    for step in $below; do
        attributes_of "$step" || { refuse "$step is on a FUSE file system, or was moved by another account"; return; }
        owner=${owner:-$uid}
        if [ "$uid" != "$owner" ]; then
            refuse "$step belongs to account $uid, and a directory above it to account $owner"
            return
        fi
        if is_roots "$step" || [ $((mode & 02)) != 0 ]; then
            refuse "more than one account can write to $step"
            return
        fi
    done
    printf '%s\t%s\t%s' "$top" "$real" "$owner"
}
refuse() { printf '!\t%s: let root own these directories, or do not tune the files there\t-' "$1"; } # reason
# path…: classifies their directories. The attributes of all directories on the paths are read at once.
survey() {
    new=$newline every=
    for path; do
        case $path in /*) ;; *) continue ;; esac
        directory=${path%/*}
        directory=${directory:-/}
        case $surveyed$new$directory in
            *"$newline$directory$newline"* | *"$tab"*) continue ;;
        esac
        new=$new$directory$newline
        route "$directory"
        every=$every$passed
    done
    [ "$new" != "$newline" ] || return 0
    set -f
    IFS=$newline
    set -- $every
    unset IFS
    attributes=$newline$(stat -c "%u %a$tab%n" -- "$@" 2>/dev/null)$newline
    # The server behind a FUSE file system can show any owner, so these directories are not trusted, unless
    # the programs of root are on such a file system as well.
    served=
    case $(stat -f -c %T -- "$@" 2>/dev/null) in
        fuse*) ;;
        *fuse*)
            served=$(stat -f -c "%T$tab%n" -- "$@" | sed -n "s/^fuse[^$tab]*$tab//p")
            attributes=$newline$(printf '%s' "$attributes" | grep -vF "$served")$newline ;;
    esac
    if [ -n "$served" ] || printf '%s' "$attributes" | grep -qvE "^(0 [0-7]*[0145][0145]$tab.*)?\$"; then
        me=$(id -u)
        IFS=$newline
        set -- $new
        unset IFS
        for directory; do classify "$directory"; done
    fi
    set +f
    surveyed=$surveyed${new#"$newline"}
}
# path: succeeds if another account can change it. Sets `top`, `real`, `owner`, and `apart`, the staged path.
is_exposed() {
    case $1 in
        *"$tab"* | *"$newline"*) top=! real="$1 has control characters in its name"; return ;;
        /*) ;;
        *) return 1 ;;
    esac
    directory=${1%/*}
    directory=${directory:-/}
    case $surveyed in *"$newline$directory$newline"*) ;; *) survey "$1" ;; esac
    case $exposed in *"$newline$directory$tab"*) ;; *) return 1 ;; esac
    line=${exposed#*"$newline$directory$tab"}
    line=${line%%"$newline"*}
    top=${line%%"$tab"*} line=${line#*"$tab"}
    real=${line%%"$tab"*} owner=${line##*"$tab"}
    apart=$top/.autotune${real#"$top"}/${1##*/}
}
# After `is_exposed`: enters the directory. Once it is entered, no one can replace it. If this fails, `why`
# contains the reason.
enter() {
    why=$real
    [ "$top" != ! ] || return
    why="$real was moved while autotune worked there: run it again"
    cd -P -- "$real" 2>/dev/null && [ "$PWD" = "$real" ] || return
    ups=. left=${real#"$top"/} device=''
    while [ "$left" != "${left#*/}" ]; do left=${left#*/} ups="$ups ../${ups##* }"; done
    set -- $(stat -c '%u %d' -- $ups && stat -c '%u %d' -- "${top:-/}")
    shift $(($# > 2 ? 0 : $#))
    while [ $# -gt 2 ]; do
        [ "$owner" = - ] || [ "$owner" = "$1" ] || return
        [ "${device:=$2}" = "$2" ] || device=several
        shift 2
    done
    [ "$device" = "${2-}" ] && return
    why="$real is on a file system without a directory that only root can write to: let root own its top directory"
    return 1
}
# file, program, argument…: runs the program with a file in the working directory as standard input. No link
# is followed, and no writer is waited for. Exits with status 40 if the file is missing, 41 for a link, and
# 42 if it is anything else but a regular file.
with_input() {
    if command -v perl >/dev/null; then
        perl -e '
            use Errno qw(ENOENT ELOOP);
            use Fcntl;
            my $name = shift;
            sysopen(my $file, $name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
                or exit($! == ENOENT ? 40 : $! == ELOOP ? 41 : 42);
            exit 42 if !-f $file;
            open(STDIN, "<&", $file) && exec { $ARGV[0] } @ARGV;
            exit 1' -- "$@"
    elif command -v python3 >/dev/null; then
        python3 -I -c 'if True:
            import errno, os, stat, sys
            try:
                file = os.open(sys.argv[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError as error:
                sys.exit({errno.ENOENT: 40, errno.ELOOP: 41}.get(error.errno, 42))
            if not stat.S_ISREG(os.fstat(file).st_mode):
                sys.exit(42)
            os.dup2(file, 0)
            os.execvp(sys.argv[2], sys.argv[2:])' "$@"
    else
        echo "other accounts can write to $real: to change a file in it safely, autotune needs perl or python3 on the host"
        return 1
    fi
}
largest=16777216 # bytes of the largest configuration file that is read from an exposed path
largest_acl=65536 # bytes of the longest ACL, with the header of the archive that contains it
# Filter for the archive of a file: prints its ACL, one entry a line, up to the empty line behind it
acl_lines='s/^[0-9]* SCHILY.acl.access=/ /; /^ user::/,/^$/{/./p; /^$/q;}'
# Prints links, mode, owner, time and size of the input, then its digest, and its ACL if there is one.
describing='stat -c "%h %a %u:%g %.9Y %s" - && head -c "$1" | sha256sum && case $(ls -ldL /dev/stdin) in
    ??????????+*) tar --acls -chPf - /dev/stdin 2>/dev/null | head -c "$2" | sed -n "$3" | paste -sd , - ;;
    esac'

# -- functions of on_host.sh for exposed paths -----------------------------------------------------
look_exposed() ( # path: as `look`, but first prints the staged path
    enter || { echo "refused $why"; exit 0; }
    file=./${1##*/}
    printf 'apart %s%s' "$apart" "$tab"
    said=$(with_input "$file" sh -c "$describing" sh "$largest" "$largest_acl" "$acl_lines")
    case $? in
        0) set -f && show "$1" $said ;;
        40) echo absent ;;
        41) echo "link $(stat -c '%a %u:%g %.9Y' -- "$file") $(readlink -- "$file")" ;;
        42) if [ -d "$file" ]; then echo "directory $(stat -c '%a %u:%g %.9Y' -- "$file") -"; else echo other; fi ;;
        *) echo "refused ${said:-$1 was changed while it was read}" ;;
    esac
)
show() { # path links mode owner time size digest - [acl]
    if [ "$6" -gt "$largest" ]; then echo "refused $1 is larger than $largest bytes"
    elif [ "$2" != 1 ]; then echo hard-linked
    elif [ "${#3}" -gt 3 ]; then echo "refused $1 has mode $3, and other accounts can replace it"
    else echo "file $3 $4 $5 $7${9:+ $9}"
    fi
}
contents_exposed() ( # path: as `contents`
    enter || { echo "$why"; exit 1; }
    with_input "./${1##*/}" sh -c '[ "$(stat -c %s -)" -gt "$1" ] || base64 -w 0' sh "$largest"
    case $? in 0 | 40 | 41 | 42) echo ;; *) exit 1 ;; esac
)
# Creates the directories of a staged file, which only root can enter.
make_apart() { # staged
    [ -d "$top/.autotune" ] || mkdir -m 700 -- "$top/.autotune" || return
    is_own "$top/.autotune" && (umask 077 && made "${1%/*}")
}
# path staged mode owner base64 acl owner-before mode-before: as `stage`. Others may have put the current file
# there, so its attributes are copied only if it has the owner and mode of the original. If these two are
# empty, the new file contains no secret, and gets the owner and mode of the current file.
stage_exposed() (
    enter || { echo "$why"; exit 1; }
    case $2 in
        "$apart") make_apart "$2" || exit ;;
        "${1%/*}"/*) echo "other accounts can write to $real since it was checked: run this again"; exit 1 ;;
        *) (umask 022 && made "${2%/*}") || exit ;;
    esac
    rm -f -- "$2"
    (umask 077 && printf %s "$5" | base64 -d >"$2") || exit
    owner=${7:-0:0} mode=${8:-$3}
    [ "$4" = - ] || owner=$4 mode=$3
    like=*
    [ -z "$7" ] || like="$owner $(printf '%o' "0$mode")"
    in_place=$(with_input "./${1##*/}" sh -c '
        case $(stat -c "%u:%g %a" -) in $2) cp -L --attributes-only --preserve=all -- /dev/stdin "$1" || exit ;; esac
        stat -c "%u:%g %a" -' sh "$2" "$like")
    case $? in
        0) [ -n "$7" ] || [ "$4" != - ] || owner=${in_place% *} mode=${in_place#* } ;;
        40 | 41 | 42) ;;
        *) echo "$in_place"; exit 1 ;;
    esac
    touch -- "$2" || exit
    if [ -n "$6" ] && command -v setfacl >/dev/null; then setfacl -n --set="$6" -- "$2" || exit; fi
    chown "$owner" -- "$2" && chmod "$mode" -- "$2" && sync -- "$2"
)
unstage_exposed() { # path
    [ "$top" != ! ] && [ -e "$top/.autotune" ] && is_own "$top/.autotune" || return 0
    rm -f -- "$apart"
    (cd -- "${top:-/}" && below=${apart#"$top/"} && rmdir -p -- "${below%/*}" 2>/dev/null) || :
}
digest_exposed() { # name in the working directory: as `digest`
    if sum=$(with_input "$1" sh -c 'head -c "$1" | sha256sum' sh "$largest"); then
        echo "${sum%% *}"
    elif [ -L "$1" ]; then
        printf 'link %s\n' "$(readlink -- "$1")"
    fi
}
copy_exposed() { # name in the working directory, copy
    if [ -L "$1" ]; then ln -s -- "$(readlink -- "$1")" "$2"; return; fi
    with_input "$1" sh -c '
        [ "$(stat -c %s -)" -le "$2" ] || { echo "the file that replaced it is larger than $2 bytes"; exit 1; }
        cp -L --preserve=all -- /dev/stdin "$1"' sh "$2" "$largest"
    case $? in 0) ;; *) echo "another account keeps replacing $real/${1#./}: run this again"; return 1 ;; esac
}
swap_exposed() ( # path staged time digest…: as `swap`
    enter || { echo "$why"; exit 1; }
    path=$1 staged=$2 time=$3
    shift 3
    [ "$staged" = "$apart" ] && is_own "$top/.autotune" || { echo "the new version of $path was not staged in a directory that only root can change"; exit 1; }
    set_aside "$path" "$@" || exit
    [ -e "$staged" ] || [ -L "$staged" ] || { echo "no new version of $path is staged"; exit 1; }
    [ -z "$time" ] || touch -h -d "@$time" -- "$staged" || exit
    put "$staged" "./${path##*/}" && sync -- . && unstage_exposed
)
remove_exposed() ( # path digest…: as `remove`
    enter || { echo "$why"; exit 1; }
    file=./${1##*/}
    set_aside "$@" || exit
    if [ -d "$file" ] && [ ! -L "$file" ]; then rmdir -- "$file"; else rm -f -- "$file"; fi && sync -- .
)
# n, then n times staged and path: covers the directories of exposed paths, in a private mount namespace, so
# that each exposed path can lead only to its staged file. Every directory below TOP becomes a copy in memory
# with the same entries. Nothing is mounted on a name that belongs to another account, because removing the
# name would remove the mount.
cover() {
    count=$1 covered=$newline trees=
    shift
    while [ "$count" -gt 0 ]; do
        if is_exposed "$2"; then
            [ "$top" != ! ] || { echo "$real"; return 1; }
            left=${real#"$top"/} place=$top
            trees=$trees$top/${left%%/*}$tab$owner$newline
            while [ -n "$left" ]; do
                place=$place/${left%%/*}
                covered=$covered$place/$newline
                case $left in */*) left=${left#*/} ;; *) left='' ;; esac
            done
            covered=$covered$place/${2##*/}$newline
        fi
        shift 2 && count=$((count - 1))
    done
    IFS=$newline
    for tree in $(printf '%s' "$trees" | sort -u); do
        unset IFS
        owner=${tree##*"$tab"} tree=${tree%"$tab"*}
        (cd -P -- "$tree" && copy_of_mounts "$tree") || return
    done
    unset IFS
}
mount_covered() { # staged path
    file=$real/${2##*/}
    : >"$file" && mount --bind -- "$1" "$file" && mount -o remount,bind,ro -- "$file" || return
    [ "$1" -ef "$2" ] || { echo "$2 no longer leads to $real"; return 1; }
    AUTOTUNE_STAGED=${AUTOTUNE_STAGED:+$AUTOTUNE_STAGED$newline}$1$newline$2
    export AUTOTUNE_STAGED
}
# directory, which must be the working directory: covers it by a copy with the same entries.
copy_of_mounts() {
    mount -t tmpfs -o mode=755 tmpfs "$1/" && [ ! . -ef "$1/" ] && copy_entries "$1"
}
# directory of a copy: copies the entries of the working directory, which may belong to another account.
copy_entries() {
    case $owner in - | "$(stat -c %u .)") ;; *) echo "the owner of $1 has changed"; return 1 ;; esac
    chown --reference=. -- "$1/" && chmod --reference=. -- "$1/" || return
    for entry in * .[!.]* ..?*; do
        case $covered in
            *"$newline$1/$entry/$newline"*)
                mkdir -- "$1/$entry" && (cd -P -- "./$entry" && copy_entries "$1/$entry") || return
                continue
                ;;
            *"$newline$1/$entry$newline"*) continue ;;
        esac
        if [ -L "$entry" ]; then cp -P -- "$entry" "$1/$entry" || return; continue; fi
        [ -e "$entry" ] || continue # a pattern without matches
        if [ -d "$entry" ]; then mkdir -- "$1/$entry"; else : >"$1/$entry"; fi || return
        mount --no-canonicalize --rbind "/proc/self/cwd/$entry" "$1/$entry" || return
    done
}
