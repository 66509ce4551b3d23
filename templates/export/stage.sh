# -- staging and validation -------------------------------------------------------------------------
stage_file() { # stages the new file with the owner and mode that the old file had when it was examined
  is_pending "$1" || return 0
  read -r was bits account <"$work/$1.before"
  [ "$was" != absent ] || bits=$3 account=0:0
  name_missing "${2%/*}" >>"$backup/directories"
  place=$(cat "$work/$1.staged")
  told=$(stage "$2" "$place" "$3" - "$(base64 -w 0 <"$work/$1.new")" '' "$account" "$bits" 2>&1) &&
    cmp -s -- "$work/$1.new" "$place" && return
  cannot "$2" "it cannot be staged: $told"
}
name_missing() { # DIRECTORY: prints it and its parents that do not exist, the lowest first
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
unstage_file() { # removes the staged file, even one from an earlier run
  unstage "$2" >/dev/null 2>&1
  return 0
}
remove_directories() {
  while IFS= read -r directory; do rmdir -- "$directory" 2>/dev/null; done <"$backup/directories"
  return 0
}
# NUMBERS COMMAND…: succeeds if the command accepts the staged files. If all files are arguments of the command,
# the paths of the staged files replace them. Otherwise, the staged files are mounted over the installed files,
# and only the command sees these mounts.
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
  printf '%s\n' "$told" | print_plain >&2
  echo "the software refuses the new configuration; nothing was changed" >&2
  return 1
}
names_file() { # NUMBER COMMAND…: true if the file is staged next to the real one, and the command contains its path
  path=$(cat "$work/$1.path")
  [ "$(cat "$work/$1.staged")" = "${path%/*}/.${path##*/}.autotune-new" ] || return
  shift
  for word; do [ "$word" != "$path" ] || return 0; done
  return 1
}

# -- backup -----------------------------------------------------------------------------------------
make_backup() { # DIRECTORY
  mkdir -p -- "$backups" && is_ours "$backups" && rm -rf -- "$1" && mkdir -m 0700 -- "$1" || return
  backup=$1
  for list in units kernel directories absent; do : >"$backup/$list" || return; done
  describe_changes >"$backup/changes"
}
keep_file() {
  is_pending "$1" || return 0
  kept=$backup/files$2
  read -r was bits account <"$work/$1.before"
  if [ -e "$kept" ] || grep -qxF -- "$2" "$backup/absent"; then
    [ "$6" != kernel ] || return 0 # others write to this file, too: the first backup contains the original
    grep -vxF -- "$2" "$backup/absent" >"$backup/absent.new"
    mv -f -- "$backup/absent.new" "$backup/absent" && rm -f -- "$kept" || return
  fi
  if [ "$was" = absent ]; then
    printf '%s\n' "$2" >>"$backup/absent"
    return
  fi
  mkdir -p -- "${kept%/*}" && told=$(copy_of "$2" "$kept" 2>&1) && sync -- "$kept" || {
    cannot "$2" "it could not be backed up: $told"
    return
  }
  sum=$(sha256sum <"$kept")
  [ "${sum%% *}" = "$was" ] || cannot "$2" "it was changed while it was copied: run this script again"
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
  for_each_unit keep_unit && for_each_value keep_value && sync_backup && : >"$backup/complete" && sync_backup
}
sync_backup() { # writes all files and names in the backup to disk
  find "$backup" -exec sync -- {} + && sync -- "$backups"
}
keep_unit() { # UNIT
  echo "$1 $(unit_state "$1")" >>"$backup/units"
}
keep_value() { # NAME VALUE
  printf '%s=%s\n' "$1" "$(value_of "$1")" >>"$backup/kernel"
}
value_of() { # NAME: prints the value with one space between words
  set -- $(sysctl -n "$1")
  echo "$*"
}
unit_state() { # UNIT: prints if it starts at boot, and if it is running
  enabled=$(systemctl is-enabled "$1" 2>/dev/null)
  active=$(systemctl is-active "$1" 2>/dev/null)
  [ "$active" = active ] || active=inactive
  echo "${enabled:-unknown} $active"
}
