# -- the transaction: every file is built and validated before any is replaced ---------------------
# Functions of files get: NUMBER PATH MODE DIGEST ORIGINAL KIND. The digests are of the new and the original
# file: "absent" if it is missing, "-" if it is not recorded. KIND is whole, edited or kernel.
backups=/var/backups
work= backup= force= differing= lost= shown=

for_each() { # FUNCTION [PATH]: for the file at PATH, or for all
  each_file for_one "$1" "${2-}"
}
for_one() { # FUNCTION PATH NUMBER PATH…
  run=$1 chosen=$2
  shift 2
  [ -n "$chosen" ] && [ "$chosen" != "$2" ] || "$run" "$@"
}
open_work() { # a directory that only root can enter; it may hold secrets of files
  trap 'finish; exit 1' HUP INT TERM
  trap close_work EXIT
  work=$(umask 077 && mktemp -d -t autotune-export.XXXXXXXXXX) && survey "$backups/any" && for_each survey_path || return
  [ ! -e "$backups" ] || is_ours "$backups"
}
is_ours() { # DIRECTORY: no other account can change it, or what is in it
  if is_exposed "$1/any"; then
    echo "other accounts than root can write to a directory on the way to $1: let root own it" >&2
    return 1
  fi
  is_own "$1" >/dev/null && return
  echo "other accounts than root can write to $1: let root own it" >&2
  return 1
}
close_work() {
  finish
  [ -z "$work" ] || rm -rf -- "$work"
}
finish() { # a closed connection does not interrupt the cleanup
  trap '' HUP INT TERM
}
survey_path() {
  survey "$2"
}
is_pending() { # NUMBER: it must be written
  [ -e "$work/$1.pending" ]
}
any_pending() {
  for each in "$work"/*.pending; do [ ! -e "$each" ] || return 0; done
  return 1
}
cannot() { # PATH REASON: nothing was changed
  refuse_path "$1" "$2"
  echo "nothing was changed" >&2
  return 1
}

# -- building ---------------------------------------------------------------------------------------
lines() { # FIRST LAST: of the file on this host
  sed -n "$1,$2p" "$old"
}
dropped() { # FIRST LAST: those lines of the file on this host, which are the input, are not in the new file
  cat >"$work/dropped" && lines "$1" "$2" | cmp -s - "$work/dropped" || { other_lines "$1" "$2"; return 1; }
  [ "$shown" != old ] || cat "$work/dropped"
}
added() { # the input is in the new file
  if [ "$shown" = old ]; then cat >/dev/null; else cat; fi
}
other_lines() { # FIRST LAST
  echo "lines $1 to $2 differ from the lines that the study exchanged" >&2
}
# NUMBER PART…: prints the new version of that line. The input is two lines: the line of the file on this
# host, and the new line. In both, each PART stands for masked words. Quoted patterns match literally, and
# the words are never arguments of a program.
fill() {
  number=$1 result=
  shift
  IFS= read -r removed && IFS= read -r replacing || return
  case $shown in
  old) printf '%s\n' "$removed" && return ;;
  new) printf '%s\n' "$replacing" && return ;;
  esac
  lines "$number" "$number" >"$work/line" && rest=$(cat "$work/line") || return
  # A shell cannot hold all bytes in a variable: the line must be the same again.
  printf '%s\n' "$rest" | cmp -s - "$work/line" && next_literal "$1" && cut_start && shift || {
    other_lines "$number" "$number"
    return 1
  }
  for part; do
    next_literal "$part" && cut_piece || { other_lines "$number" "$number"; return 1; }
  done
  literal=$removed
  cut_end || { other_lines "$number" "$number"; return 1; }
  printf '%s%s\n' "$result" "$replacing"
}
next_literal() { # PART: sets `literal`, the text in front of it in the recorded line, and `put`, in the new one
  case $removed in *"$1"*) ;; *) return 1 ;; esac
  literal=${removed%%"$1"*} removed=${removed#*"$1"}
  put=${replacing%%"$1"*} replacing=${replacing#*"$1"}
}
cut_start() {
  case $rest in "$literal"*) ;; *) return 1 ;; esac
  rest=${rest#"$literal"} result=$put
}
cut_piece() { # the literal is in one place only, with a piece in front of it
  case $rest in ?*"$literal"*) ;; *) return 1 ;; esac
  after=${rest#?*"$literal"}
  [ "$after" = "${rest##*"$literal"}" ] || return
  piece=${rest%"$literal$after"}
  keep_piece && result=$result$put rest=$after
}
cut_end() {
  case $rest in ?*"$literal") ;; *) return 1 ;; esac
  piece=${rest%"$literal"}
  keep_piece
}
keep_piece() { # a piece with a backslash at its end would change what the text behind it means
  case $piece in *\\) return 1 ;; esac
  result=$result$piece
}
begins_line() { # NUMBER: that line does not continue the one in front of it
  [ "$1" -gt 1 ] || return 0
  case $(lines "$(($1 - 1))" "$(($1 - 1))") in *\\) echo "line $1 continues another" >&2; return 1 ;; esac
}
examine() {
  look_at "$2" || { cannot "$2" "$reason"; return; }
  now=${before%% *}
  printf '%s\n' "$before" >"$work/$1.before"
  printf '%s\n' "$staging" >"$work/$1.staged"
  printf '%s\n' "$2" >"$work/$1.path"
  rm -f -- "$work/$1.pending"
  [ "$now" != "$4" ] || return 0
  is_expected "$@" || return 0
  read_old "$1" "$2" || return
  old=$work/$1.old
  content "$1" >"$work/$1.new" || { cannot "$2" "it cannot be edited: use \`autotune apply\`"; return; }
  built=$(sha256sum <"$work/$1.new")
  built=${built%% *}
  if [ "$6" = kernel ]; then
    # The order of lines does not matter: the role writes each of them by itself.
    [ "$(sort "$work/$1.old" | sha256sum)" = "$(sort "$work/$1.new" | sha256sum)" ] || : >"$work/$1.pending"
  elif [ "$built" = "$4" ]; then
    : >"$work/$1.pending"
  else
    cannot "$2" "the new file would differ from the one that the study measured: use \`autotune apply\`"
  fi
}
is_expected() { # prints why a file is not written; fails if it cannot be built either
  case $6:$5 in kernel:* | *:"$now" | whole:-) return 0 ;; esac
  if [ "$6" = edited ]; then
    echo "$2 differs from the file before the study, and the script exchanges only lines of that file:" \
      "--force has no effect; use \`autotune apply\`" >&2
    differing=yes
    return 1
  fi
  [ -z "$force" ] || return 0
  echo "$2 differs from the file before the study: it is not overwritten without --force" >&2
  differing=yes
}
read_old() { # NUMBER PATH
  : >"$work/$1.old"
  [ "$now" != absent ] || return 0
  encoded=$(contents "$2" 2>&1) && printf %s "$encoded" | base64 -d >"$work/$1.old" 2>/dev/null
  read_now=$(sha256sum <"$work/$1.old")
  [ "${read_now%% *}" != "$now" ] || return 0
  cannot "$2" "it changed while it was read: run this again"
}
show_changes() { # only lines that differ; words that are masked in the study stay masked
  is_pending "$1" || return 0
  before_file=$work/$1.old after_file=$work/$1.new
  if [ "$6" = edited ]; then
    old=$before_file
    for shown in old new; do
      content "$1" >"$work/$1.$shown.shown" || return
    done
    before_file=$work/$1.old.shown after_file=$work/$1.new.shown shown=
  fi
  diff -U0 --label "$2" --label "$2" -- "$before_file" "$after_file"
  [ $? -le 1 ]
}
