# -- the transaction: every file is built and validated before any is replaced ---------------------
# Functions of files get: NUMBER PATH MODE DIGEST ORIGINAL KIND. The digests are of the new file and of
# the one before: "absent" for none, "-" if it is not recorded. KIND is whole, edited or kernel.
backups=/var/backups
work= backup= force= differing= lost=

for_each() { # FUNCTION [PATH]: for the file at PATH, or for all
  each_file for_one "$1" "${2-}"
}
for_one() { # FUNCTION PATH NUMBER PATH…
  run=$1 chosen=$2
  shift 2
  [ -n "$chosen" ] && [ "$chosen" != "$2" ] || "$run" "$@"
}
open_work() { # a directory that only root can enter; it may hold secrets of files
  trap 'exit 1' HUP INT TERM
  trap close_work EXIT
  work=$(umask 077 && mktemp -d -t autotune-export.XXXXXXXXXX) && survey "$backups/any" && for_each survey_path || return
  [ ! -e "$backups" ] || is_ours "$backups"
}
close_work() {
  [ -z "$work" ] || rm -rf -- "$work"
}
survey_path() {
  survey "$2"
}
is_pending() { # NUMBER: it is to be written
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
dropped() { # FIRST LAST: those lines of the file on this host, which are the input, are not in the new one
  cat >"$work/dropped" && lines "$1" "$2" | cmp -s - "$work/dropped" && return
  echo "lines $1 to $2 are not those that the study exchanged" >&2
  return 1
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
    cannot "$2" "the new file would not be the one that the study measured: use \`autotune apply\`"
  fi
}
is_expected() { # prints why a file may not be written; fails if it cannot be built either
  case $6:$5 in kernel:* | *:"$now" | whole:-) return 0 ;; esac
  if [ "$6" = edited ]; then
    echo "$2 is not the file that the study had before it, and only lines of that file are exchanged:" \
      "--force has no effect, and \`autotune apply\` edits what is there" >&2
    differing=yes
    return 1
  fi
  [ -z "$force" ] || return 0
  echo "$2 is not the file that the study had before it: it is not overwritten without --force" >&2
  differing=yes
}
read_old() { # NUMBER PATH
  : >"$work/$1.old"
  [ "$now" != absent ] || return 0
  encoded=$(contents "$2" 2>&1) && printf %s "$encoded" | base64 -d >"$work/$1.old" 2>/dev/null
  read_now=$(sha256sum <"$work/$1.old")
  [ "${read_now%% *}" != "$now" ] || return 0
  cannot "$2" "it was changed while it was read: run this again"
}
show_changes() { # only lines that differ
  is_pending "$1" || return 0
  diff -U0 --label "$2" --label "$2" -- "$work/$1.old" "$work/$1.new"
  [ $? -le 1 ]
}

# -- staging and validation -------------------------------------------------------------------------
stage_file() { # with the owner and mode that the file had when it was examined
  is_pending "$1" || return 0
  read -r was bits account <"$work/$1.before"
  [ "$was" != absent ] || bits=$3 account=0:0
  name_missing "${2%/*}" >>"$backup/directories"
  place=$(cat "$work/$1.staged")
  told=$(stage "$2" "$place" "$3" - "$(base64 -w 0 <"$work/$1.new")" '' "$account" "$bits" 2>&1) &&
    cmp -s -- "$work/$1.new" "$place" && return
  cannot "$2" "it cannot be staged: $told"
}
name_missing() { # DIRECTORY: it and those above that do not exist, the lowest first
  above=$1
  while [ -n "$above" ] && [ ! -d "$above/" ]; do
    printf '%s\n' "$above"
    above=${above%/*}
  done
}
drop_staged() {
  is_pending "$1" || return 0
  unstage "$2" >/dev/null 2>&1
  return 0
}
unstage_file() { # also what an earlier run staged
  unstage "$2" >/dev/null 2>&1
  return 0
}
remove_directories() {
  while IFS= read -r directory; do rmdir -- "$directory" 2>/dev/null; done <"$backup/directories"
  return 0
}
# NUMBERS COMMAND…: it accepts what is staged of these files. A command with the paths of all of them gets
# those of staged files. Otherwise, they are mounted over the real ones, for the command alone.
validate() {
  numbers=
  direct=yes count=0
  for number in $1; do is_pending "$number" && numbers="$numbers $number" && count=$((count + 1)); done
  shift
  [ "$count" -gt 0 ] || return 0
  for number in $numbers; do
    names_file "$number" "$@" || direct=
  done
  for number in $numbers; do
    place=$(cat "$work/$number.staged") path=$(cat "$work/$number.path")
    if [ -z "$direct" ]; then
      set -- "$place" "$path" "$@"
      continue
    fi
    of=$#
    while [ "$of" -gt 0 ]; do
      word=$1 of=$((of - 1))
      shift
      [ "$word" != "$path" ] || word=$place
      set -- "$@" "$word"
    done
  done
  [ -n "$direct" ] || set -- with_files "$count" "$@"
  told=$("$@" 2>&1) && return
  printf '%s\n' "$told" >&2
  echo "the software refuses its configuration; nothing was changed" >&2
  return 1
}
names_file() { # NUMBER COMMAND…: the file is staged next to the real one, which the command names
  path=$(cat "$work/$1.path")
  [ "$(cat "$work/$1.staged")" = "${path%/*}/.${path##*/}.autotune-new" ] || return
  shift
  for word; do [ "$word" != "$path" ] || return 0; done
  return 1
}

# -- backup -----------------------------------------------------------------------------------------
is_ours() { # DIRECTORY: no other account can change it, or what is in it
  if is_exposed "$1/any"; then
    echo "other accounts than root can write to a directory on the way to $1: let root own it" >&2
    return 1
  fi
  is_own "$1" >/dev/null && return
  echo "other accounts than root can write to $1: let root own it" >&2
  return 1
}
make_backup() { # DIRECTORY
  mkdir -p -- "$backups" && is_ours "$backups" && rm -rf -- "$1" && mkdir -m 0700 -- "$1" || return
  backup=$1
  for list in units kernel directories absent; do : >"$backup/$list" || return; done
}
keep_file() {
  is_pending "$1" || return 0
  kept=$backup/files$2
  read -r was bits account <"$work/$1.before"
  if [ -e "$kept" ] || grep -qxF -- "$2" "$backup/absent"; then
    [ "$6" != kernel ] || return 0 # others write to this file, too: the first backup has the original
    grep -vxF -- "$2" "$backup/absent" >"$backup/absent.new"
    mv -f -- "$backup/absent.new" "$backup/absent" && rm -f -- "$kept" || return
  fi
  if [ "$was" = absent ]; then
    printf '%s\n' "$2" >>"$backup/absent"
    return
  fi
  mkdir -p -- "${kept%/*}" && told=$(copy_of "$2" "$kept" 2>&1) && sync -- "$kept" || {
    cannot "$2" "there is no backup of it: $told"
    return
  }
  sum=$(sha256sum <"$kept")
  [ "${sum%% *}" = "$was" ] || cannot "$2" "it was changed while it was copied: run this again"
}
copy_of() ( # PATH COPY
  if is_exposed "$1"; then
    enter || { echo "$why"; exit 1; }
    copy_exposed "./${1##*/}" "$2"
  else
    cp -a -- "$1" "$2"
  fi
)
complete_backup() {
  for_each_unit keep_unit && for_each_value keep_value && : >"$backup/complete" && sync -- "$backup"
}
keep_unit() { # UNIT
  echo "$1 $(unit_state "$1")" >>"$backup/units"
}
keep_value() { # NAME VALUE
  printf '%s=%s\n' "$1" "$(value_of "$1")" >>"$backup/kernel"
}
value_of() { # NAME: with one blank between words
  set -- $(sysctl -n "$1")
  echo "$*"
}
unit_state() { # UNIT: how it starts at boot, and whether it runs
  enabled=$(systemctl is-enabled "$1" 2>/dev/null)
  active=$(systemctl is-active "$1" 2>/dev/null)
  [ "$active" = active ] || active=inactive
  echo "${enabled:-unknown} $active"
}

# -- change and restoration --------------------------------------------------------------------------
swap_file() {
  is_pending "$1" || return 0
  read -r was bits account <"$work/$1.before"
  [ "$was" != absent ] || was=
  told=$(swap "$2" "$(cat "$work/$1.staged")" '' "$was" 2>&1) || { echo "$2: $told" >&2; return 1; }
  [ -z "$told" ] || echo "others had changed $2: theirs is kept as $told" >&2
}
verify_file() { # others have not changed it since
  is_pending "$1" || return 0
  sum=$(sha256sum <"$work/$1.new")
  look_at "$2" && [ "${before%% *}" = "${sum%% *}" ] && return
  echo "$2: others changed it during the deployment" >&2
  return 1
}
restore_file() {
  kept=$backup/files$2 told=
  if [ -e "$kept" ]; then
    is_as_kept "$2" "$kept" || told=$(reinstate "$2" "$kept" "$4" 2>&1)
  elif grep -qxF -- "$2" "$backup/absent"; then
    told=$(remove "$2" "$4" 2>&1)
  else
    return 0
  fi || { not_restored "$2: $told"; return 0; }
  [ -z "$told" ] || echo "others had changed $2: theirs is kept as $told" >&2
  if is_as_kept "$2" "$kept"; then echo "restored: $2"; else not_restored "$2: ${reason:-others changed it}"; fi
}
reinstate() ( # PATH COPY DIGEST
  sum=$(sha256sum <"$2") && place=${1%/*}/.${1##*/}.autotune-new || exit
  if is_exposed "$1"; then
    [ "$top" != ! ] || { echo "$real"; exit 1; }
    make_apart "$apart" || exit
    place=$apart
  else
    made "${1%/*}" || exit
  fi
  rm -f -- "$place" && cp -a -- "$2" "$place" && swap "$1" "$place" '' "${sum%% *}" "$3"
)
is_as_kept() { # PATH COPY: in content, mode and owner; both may be absent
  look_at "$1" || return
  [ -e "$2" ] || { [ "$before" = absent ]; return; }
  sum=$(sha256sum <"$2")
  [ "$before" = "${sum%% *} $(stat -c '%a %u:%g' -- "$2")" ]
}
not_restored() {
  echo "NOT restored: $1" >&2
  lost=yes
}
restore() { # all that the backup has
  trap - EXIT HUP INT TERM
  lost=
  while read -r unit enabled active; do
    [ "$active" = active ] || systemctl stop "$unit"
    case $enabled in enabled | disabled) systemctl "${enabled%d}" "$unit" ;; esac
  done <"$backup/units"
  for_each unstage_file
  for_each restore_file
  remove_directories
  while IFS= read -r value; do
    if sysctl -q -w "$value"; then echo "restored: $value"; else not_restored "$value"; fi
  done <"$backup/kernel"
  systemctl daemon-reload
  while read -r unit enabled active; do
    if [ "$active" = active ]; then
      systemctl reset-failed "$unit" 2>/dev/null
      systemctl restart "$unit"
    fi
  done <"$backup/units"
  sleep 2 # a service that stops right after its start has stopped by then
  while read -r unit state; do
    if [ "$(unit_state "$unit")" = "$state" ]; then
      echo "restored: $unit, $state"
    else
      not_restored "$unit, which was $state and is $(unit_state "$unit")"
    fi
  done <"$backup/units"
  close_work
  if [ -n "$lost" ]; then
    echo "the originals are in $backup" >&2
    return 1
  fi
  : >"$backup/done"
}
fail() {
  echo "failed: restoring what was there before from $backup" >&2
  restore
  exit 1
}
discard_all() {
  for_each drop_staged
  [ ! -e "$backup/directories" ] || remove_directories
  rm -rf -- "$backup"
  close_work
}

# -- what can be requested ----------------------------------------------------------------------------
examine_all() { # fails if a file is not as expected
  open_work && for_each examine || exit 1
}
refuse_differing() {
  [ -z "$differing" ] || { echo "nothing was changed" >&2; exit 1; }
}
stage_and_validate() {
  for_each stage_file && check_files
}
check() {
  examine_all
  for_each show_changes && for_each_value show_value || exit 1
  ! is_needed || show_units
  refuse_differing
}
show_value() { # NAME VALUE
  now=$(value_of "$1")
  [ "$now" = "$2" ] || echo "$1 $now -> $2"
}
is_needed() { # something is not as configured, or an earlier run was interrupted
  any_pending || ! for_each_value is_value || ! are_units && return
  for each in "$backups"/autotune-20[0-9]*/complete; do
    [ ! -e "$each" ] || [ -e "${each%complete}done" ] || return 0
  done
  return 1
}
is_value() { # NAME VALUE
  [ "$(value_of "$1")" = "$2" ]
}
configure() {
  examine_all
  refuse_differing
  is_needed || { echo "nothing to change"; exit 0; }
  trap discard_all EXIT
  make_backup "$backups/autotune-$(date +%Y%m%d-%H%M%S)-$$" && stage_and_validate &&
    for_each keep_file && complete_backup || exit 1
  trap fail EXIT
  stop_units && for_each swap_file && act && for_each verify_file || exit 1
  trap - EXIT HUP INT TERM
  : >"$backup/done"
  close_work
  echo "done; what was there before is in $backup: --restore $backup restores it"
}
restore_from() { # DIRECTORY
  case $1 in /*) ;; *) echo "$1 is not an absolute path" >&2; exit 1 ;; esac
  backup=$1
  if [ ! -f "$backup/complete" ]; then echo "$backup is not a complete backup" >&2; exit 1; fi
  open_work && is_ours "$backup" && for_each check_place && restore
}
check_place() {
  is_exposed "$2" && [ "$top" = ! ] || return 0
  refuse_path "$2" "$real"
  return 1
}
# DIRECTORY: validates all files, and makes a backup. One that was never restored stays in use: it has how
# units and kernel values were, and the originals of files that are changed already.
prepare() {
  examine_all
  refuse_differing
  if [ -e "$1/complete" ] && [ ! -e "$1/done" ]; then
    is_ours "$1" || exit 1
    backup=$1
    trap drop_and_close EXIT
  else
    trap discard_all EXIT
    make_backup "$1" || exit 1
  fi
  stage_and_validate && for_each keep_file || exit 1
  [ -e "$backup/complete" ] || complete_backup || exit 1
  trap drop_and_close EXIT
}
drop_and_close() {
  for_each drop_staged
  remove_directories
  close_work
}
# DIRECTORY PATH: after `prepare` with this directory.
write() {
  open_work && for_each examine "$2" || exit 1
  refuse_differing
  if ! any_pending; then echo unchanged; exit 0; fi
  backup=$1
  is_ours "$backup" && [ -e "$backup/complete" ] || { echo "$backup is not a complete backup" >&2; exit 1; }
  trap drop_and_close EXIT
  for_each keep_file "$2" && for_each stage_file "$2" && for_each swap_file "$2" &&
    for_each verify_file "$2" || exit 1
  trap close_work EXIT
  echo changed
}
compare() { # DIRECTORY PATH: prints whether `write` would change the file
  open_work && for_each examine "$2" || exit 1
  refuse_differing
  if any_pending; then echo changed; else echo unchanged; fi
}
