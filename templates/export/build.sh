# -- the transaction: all files are built and validated before the first file is replaced -----------
# Arguments of functions for one file: NUMBER PATH MODE DIGEST ORIGINAL KIND. DIGEST belongs to the new file,
# and ORIGINAL to the original file. ORIGINAL is "absent" if there was no file, and "-" if the digest is not
# recorded. KIND is "whole", "edited" or "kernel".
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
open_work() { # creates a directory that only root can enter, because files in it may contain secrets
  trap 'finish; exit 1' HUP INT TERM
  trap close_work EXIT
  work=$(umask 077 && mktemp -d -t autotune-export.XXXXXXXXXX) && survey "$backups/any" && for_each survey_path || return
  [ ! -e "$backups" ] || is_ours "$backups"
}
is_ours() { # DIRECTORY: true if no other account can change it or its contents
  if is_exposed "$1/any"; then
    echo "accounts other than root can write to a directory on the path to $1: let root own that directory" >&2
    return 1
  fi
  is_own "$1" >/dev/null && return
  if [ ! -O "$1" ] && [ "$(id -u)" != 0 ]; then
    echo "this account does not own $1: run this script as root" >&2
  else
    echo "accounts other than root can write to $1: let root own it" >&2
  fi
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
is_pending() { # NUMBER: true if the file must be written
  [ -e "$work/$1.pending" ]
}
any_pending() {
  for each in "$work"/*.pending; do [ ! -e "$each" ] || return 0; done
  return 1
}
cannot() { # PATH REASON: prints why nothing was changed
  refuse_path "$1" "$2"
  echo "nothing was changed" >&2
  return 1
}

# -- building ---------------------------------------------------------------------------------------
lines() { # FIRST LAST: prints these lines of the file on this host
  sed -n "$1,$2p" "$old"
}
dropped() { # FIRST LAST: removes these lines, which must equal the input, from the new file
  cat >"$work/dropped" && lines "$1" "$2" | cmp -s - "$work/dropped" || { other_lines "$1" "$2"; return 1; }
  [ "$shown" != old ] || cat "$work/dropped"
}
added() { # adds the input to the new file
  if [ "$shown" = old ]; then cat >/dev/null; else cat; fi
}
other_lines() { # FIRST LAST
  echo "lines $1 to $2 differ from the lines that the study replaced" >&2
}
# NUMBER PART…: prints the new version of line NUMBER. The input is the recorded line of this host's file, and
# the new line. In both lines, each PART is a placeholder for a masked value. Quoted patterns match literally,
# and masked values are never arguments of a program.
fill() {
  number=$1 result=
  shift
  IFS= read -r removed && IFS= read -r replacing || return
  case $shown in
  old) printf '%s\n' "$removed" && return ;;
  new) printf '%s\n' "$replacing" && return ;;
  esac
  lines "$number" "$number" >"$work/line" && rest=$(cat "$work/line") || return
  # Shell variables cannot contain null bytes, so the variable is compared with the line.
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
next_literal() { # PART: sets `literal` to the text before it in the recorded line, and `put` to that in the new line
  case $removed in *"$1"*) ;; *) return 1 ;; esac
  literal=${removed%%"$1"*} removed=${removed#*"$1"}
  put=${replacing%%"$1"*} replacing=${replacing#*"$1"}
}
cut_start() {
  case $rest in "$literal"*) ;; *) return 1 ;; esac
  rest=${rest#"$literal"} result=$put
}
cut_piece() { # succeeds if the literal occurs once, with masked values in front of it
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
keep_piece() { # a backslash at the end of a piece would change the meaning of the text after it
  case $piece in *\\) return 1 ;; esac
  result=$result$piece
}
begins_line() { # NUMBER: fails if that line continues the previous line
  [ "$1" -gt 1 ] || return 0
  case $(lines "$(($1 - 1))" "$(($1 - 1))") in *\\) echo "line $1 continues the previous line" >&2; return 1 ;; esac
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
    # The order of lines does not matter, because each value is set once.
    [ "$(sort "$work/$1.old" | sha256sum)" = "$(sort "$work/$1.new" | sha256sum)" ] || : >"$work/$1.pending"
  elif [ "$built" = "$4" ]; then
    : >"$work/$1.pending"
  else
    cannot "$2" "the new file would differ from the one that the study measured: use \`autotune apply\`"
  fi
}
is_expected() { # prints why a file is not written; fails if the new file cannot be built at all
  case $6:$5 in kernel:* | *:"$now" | whole:-) return 0 ;; esac
  if [ "$6" = edited ]; then
    echo "$2 has changed since the study, and the script can only replace the lines that the study recorded:" \
      "--force has no effect; use \`autotune apply\`" >&2
    differing=yes
    return 1
  fi
  [ -z "$force" ] || return 0
  echo "$2 has changed since the study: it is not overwritten without --force" >&2
  differing=yes
}
read_old() { # NUMBER PATH
  : >"$work/$1.old"
  [ "$now" != absent ] || return 0
  encoded=$(contents "$2" 2>&1) && printf %s "$encoded" | base64 -d >"$work/$1.old" 2>/dev/null
  read_now=$(sha256sum <"$work/$1.old")
  [ "${read_now%% *}" != "$now" ] || return 0
  cannot "$2" "it was changed while it was read: run this script again"
}
show_changes() { # prints only lines that differ; masked values stay masked
  is_pending "$1" || return 0
  before_file=$work/$1.old after_file=$work/$1.new
  if [ "$6" = edited ]; then
    old=$before_file
    for shown in old new; do
      content "$1" >"$work/$1.$shown.shown" || return
    done
    before_file=$work/$1.old.shown after_file=$work/$1.new.shown shown=
  fi
  diff -U0 --label "$2" --label "$2" -- "$before_file" "$after_file" >"$work/$1.diff"
  [ $? -le 1 ] && print_diff "$6" <"$work/$1.diff"
}
# KIND: prints a diff. Removed lines of a file that is replaced completely may contain secrets, so they are not
# shown.
print_diff() {
  case $1 in whole) hide='3,$s/^-.*/- (a line of this host, which is not shown)/' ;; *) hide= ;; esac
  sed "$hide" | print_plain
}
print_plain() { # prints the input without control characters, and without characters that reverse text
  tr -d '\000-\010\013-\037\177' |
    sed 's/\xc2[\x80-\x9f]//g; s/\xe2\x80[\xaa-\xae]//g; s/\xe2\x81[\xa6-\xa9]//g'
}
