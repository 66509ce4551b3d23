# -- how a path is, as autotune's own functions see it ---------------------------------------------
refuse_path() { # PATH REASON
  printf '%s: %s\n' "$1" "$2" >&2
}
# PATH: sets `before`, the digest, mode and owner of the file, or "absent", and `staging`, where a new
# version waits. If it is no plain file, it fails, and `reason` shows why.
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
  absent) before=absent ;;
  "file "*) before=$(describe_file $seen) ;;
  "refused "*) reason=${seen#refused } ;;
  "link "*) reason="it is a symbolic link" ;;
  "directory "*) reason="it is a directory" ;;
  hard-linked) reason="it has several names (hard links)" ;;
  *) reason="it is neither a file nor a directory" ;;
  esac
  [ -z "$reason" ]
}
describe_file() { # file MODE OWNER TIME DIGEST
  echo "$5 $2 $3"
}
