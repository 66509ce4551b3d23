# -- state of a path, determined with autotune's own functions ---------------------------------------
plain="use \`autotune apply\`, or make it a plain file"
refuse_path() { # PATH REASON
  printf '%s: %s\n' "$1" "$2" >&2
}
# PATH: sets `before` to the digest, mode and owner of the file, or to "absent". Sets `staging` to the path
# at which a new version is staged. If PATH is not a plain file, the function fails and sets `reason`.
look_at() {
  reason=
  seen=$(look "$1" 2>&1) || { reason=$seen; return 1; }
  staging=${1%/*}/.${1##*/}.autotune-new
  case $seen in
  "apart "*)
    staging=${seen#apart }
    staging=${staging%%"$tab"*} seen=${seen#*"$tab"}
    ;;
  esac
  case $seen in
  absent)
    before=absent
    route "${1%/*}"
    [ ! -L "$missing" ] || reason="$missing is a symbolic link that does not lead to a directory: correct the link"
    ;;
  "file "*) before=$(describe_file $seen) ;;
  "refused "*) reason=${seen#refused } ;;
  "link "*) reason="it is a symbolic link: $plain" ;;
  "directory "*) reason="it is a directory: $plain" ;;
  hard-linked) reason="it has several names (hard links): $plain" ;;
  *) reason="it is neither a file nor a directory: $plain" ;;
  esac
  [ -z "$reason" ]
}
describe_file() { # file MODE OWNER TIME DIGEST
  echo "$5 $2 $3"
}
