# -- change and restoration --------------------------------------------------------------------------
swap_file() {
  is_pending "$1" || return 0
  read -r was bits account <"$work/$1.before"
  [ "$was" != absent ] || was=
  [ "$6" != kernel ] || sha256sum <"$work/$1.new" >"$backup/kernel.sum" || return
  told=$(swap "$2" "$(cat "$work/$1.staged")" '' "$was" 2>&1) || { echo "$2: $told" >&2; return 1; }
  [ -z "$told" ] || echo "others had changed $2: their version is kept as $told" >&2
}
verify_file() { # fails if others have changed the new file
  is_pending "$1" || return 0
  sum=$(sha256sum <"$work/$1.new")
  look_at "$2" && [ "${before%% *}" = "${sum%% *}" ] && return
  echo "$2: another process changed it during the deployment" >&2
  return 1
}
restore_file() {
  kept=$backup/files$2 told= written=$4
  # The kernel file also contains lines of others, so its new digest is only known on the host.
  [ "$6" != kernel ] || { read -r written rest <"$backup/kernel.sum"; } 2>/dev/null || written=any
  if [ -e "$kept" ]; then
    is_as_kept "$2" "$kept" || told=$(reinstate "$2" "$kept" "$written" 2>&1)
  elif grep -qxF -- "$2" "$backup/absent"; then
    told=$(remove "$2" "$written" 2>&1)
  else
    return 0
  fi || { not_restored "$2: $told"; return 0; }
  [ -z "$told" ] || echo "others had changed $2: their version is kept as $told" >&2
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
is_as_kept() { # PATH COPY: true if both are equal in content, mode and owner, or both are absent
  look_at "$1" || return
  [ -e "$2" ] || { [ "$before" = absent ]; return; }
  sum=$(sha256sum <"$2")
  [ "$before" = "${sum%% *} $(stat -c '%a %u:%g' -- "$2")" ]
}
not_restored() {
  echo "NOT restored: $1" >&2
  lost=yes
}
restore() { # restores everything in the backup
  finish
  trap close_work EXIT
  lost=
  while read -r unit enabled active; do
    [ "$active" = active ] || systemctl stop "$unit"
    case $enabled in
      enabled | disabled) systemctl "${enabled%d}" "$unit" ;;
      unknown | not-found) systemctl disable "$unit" 2>/dev/null ;; # its file is about to be removed
    esac
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
  sleep 2 # long enough for a service that stops right after its start
  while read -r unit state; do
    if [ "$(unit_state "$unit")" = "$state" ]; then
      echo "restored: $unit, $state"
    else
      not_restored "$unit, which was $state and is $(unit_state "$unit")"
    fi
  done <"$backup/units"
  close_work
  if [ -n "$lost" ]; then
    echo "the original files are in $backup" >&2
    return 1
  fi
  : >"$backup/done"
}
fail() {
  echo "failed: restoring the previous state from $backup" >&2
  restore
  exit 1
}
discard_all() {
  finish
  for_each drop_staged
  [ ! -e "$backup/directories" ] || remove_directories
  rm -rf -- "$backup"
  close_work
}

# -- commands of this script --------------------------------------------------------------------------
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
is_needed() { # true if something differs from the configuration, or an earlier run was interrupted
  any_pending || ! for_each_value is_value || ! are_units || [ -n "$(interrupted_backup)" ]
}
interrupted_backup() { # prints the backup of an earlier run of this script that was interrupted
  for each in "$backups"/autotune-20[0-9]*; do
    is_interrupted "$each" && describe_changes | cmp -s -- "$each/changes" - && echo "$each" && return
  done
}
is_interrupted() { # BACKUP
  [ -e "$1/complete" ] && [ ! -e "$1/done" ]
}
describe_changes() { # prints everything that this script changes
  each_file print_words && for_each_value print_words && for_each_unit print_words
}
print_words() {
  printf '%s\n' "$*"
}
is_value() { # NAME VALUE
  [ "$(value_of "$1")" = "$2" ]
}
configure() {
  examine_all
  refuse_differing
  is_needed || { echo "nothing to change"; exit 0; }
  earlier=$(interrupted_backup)
  back_up "${earlier:-$backups/autotune-$(date +%Y%m%d-%H%M%S)-$$}"
  trap fail EXIT
  stop_units && for_each swap_file && act && for_each verify_file || exit 1
  trap close_work EXIT
  : >"$backup/done"
  echo "done; the previous state is in $backup: --restore $backup restores it"
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
# DIRECTORY: validates all files, and makes a backup. A backup of an interrupted change is used again, because it
# contains the originals of files that were already changed, and the previous units and kernel values.
back_up() {
  if is_interrupted "$1"; then
    is_ours "$1" || exit 1
    describe_changes | cmp -s - "$1/changes" || {
      echo "$1 is the backup of another export, which cannot restore this one: rename that directory" >&2
      exit 1
    }
    backup=$1
    trap drop_and_close EXIT
  else
    trap discard_all EXIT
    make_backup "$1" || exit 1
  fi
  stage_and_validate && for_each keep_file || exit 1
  [ -e "$backup/complete" ] || complete_backup || exit 1
}
prepare() { # DIRECTORY
  examine_all
  refuse_differing
  back_up "$1"
  trap drop_and_close EXIT
}
drop_and_close() {
  finish
  for_each drop_staged
  remove_directories
  close_work
}
# DIRECTORY PATH: writes one file. Requires `prepare` with the same directory.
write() {
  open_work && for_each examine "$2" || exit 1
  refuse_differing
  backup=$1
  # An earlier run may have been interrupted before units read the file.
  if ! any_pending; then
    if is_unread "$2"; then echo changed; else echo unchanged; fi
    exit 0
  fi
  is_ours "$backup" && [ -e "$backup/complete" ] || { echo "$backup is not a complete backup" >&2; exit 1; }
  trap drop_and_close EXIT
  for_each keep_file "$2" && for_each stage_file "$2" && printf '%s\n' "$2" >>"$backup/unread" &&
    for_each swap_file "$2" && for_each verify_file "$2" || exit 1
  trap close_work EXIT
  echo changed
}
is_unread() { # PATH: true if units do not use the file yet, or if the kernel does not use the file's values
  grep -qxsF -- "$1" "$backup/unread" || { [ -e "$work/kernel.path" ] && ! for_each_value is_value; }
}
acted() { # DIRECTORY: records that units have read all files
  if is_ours "$1"; then rm -f -- "$1/unread"; fi
}
compare() { # DIRECTORY PATH: prints whether `write` would change the file
  open_work && for_each examine "$2" || exit 1
  refuse_differing
  backup=$1
  if any_pending || is_unread "$2"; then echo changed; else echo unchanged; fi
}
