"""Numbers in lists with a comma between thousands. YAML reads `[1,024, 4,096]` as four numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.target.consistency_checks import TargetMistake
from autotune.target.corrections import join_thousands
from autotune.target.yaml_document import Location, YamlDocument

_COMMA_HINT = "a ',' separates values: write thousands without it, such as `1024`"
_LIST_PATTERN = re.compile(r"[\w'\"]{1,20}\s*:\s*(\[[0-9,\s]{1,99}\])")
# A number whose last digits start with a zero, such as 1,024. YAML reads the group as another value.
_SPLIT_NUMBER_PATTERN = re.compile(r"(?<![0-9])[1-9][0-9]{0,2},(0[0-9]{2})(?![0-9.])")


def find_split_numbers(document: YamlDocument) -> Iterator[TargetMistake]:
    """Yield the first item such as 024 of each list with commas in its numbers."""
    digits_by_position = {
        (line_number, match.start(1) + 1): match[1]
        for line_number, line in enumerate(document.text.split("\n"), start=1)
        for match in _SPLIT_NUMBER_PATTERN.finditer(line)
    }
    first_items: dict[tuple[str | int, ...], tuple[str | int, ...]] = {}
    for location, position in document.positions.items():
        if position in digits_by_position and isinstance(location[-1], int):
            first_items.setdefault(location[:-1], location)
    for list_location, location in first_items.items():
        digits = digits_by_position[document.positions[location]]
        hint = suggest_joined_numbers(document, list_location) or _COMMA_HINT
        yield TargetMistake(location, f"{digits} is read as {int(digits)}", hint)


def suggest_joined_numbers(document: YamlDocument, location: Location) -> str | None:
    """Return the hint for the list at ``location``; ``None`` if no comma in it separates thousands."""
    match = _LIST_PATTERN.match(document.find_text_after(location))
    list_text = match[1] if match else ""
    if numbers := join_thousands(list_text):
        return f"a ',' separates values: write `{location[-1]}: {numbers}`"
    return _COMMA_HINT if _SPLIT_NUMBER_PATTERN.search(list_text) else None
