"""Evaluate Apache's conditional sections in the order in which Apache reads its files.

A condition depends only on modules and variables that Apache loads or defines before the condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import join

from autotune.services.config_files import Directive, FileTree, is_pattern

# autotune does not evaluate the last two, which depend on the directives before them.
CONDITIONAL_SECTIONS = ("ifmodule", "ifdefine", "ifversion", "iffile", "ifdirective", "ifsection")
BUILT_IN_MODULES = ("core", "so", "http", "log_config", "logio", "unixd", "version", "watchdog")
# autotune supports only this release line. The patch level of the running Apache is unknown.
SUPPORTED_RELEASE = (2, 4)
# These directives change how Apache reads later lines. If it is unknown whether one of them
# applies, all later values are unknown.
_CONTEXT_CHANGING_DIRECTIVES = (
    "include",
    "includeoptional",
    "loadmodule",
    "define",
    "undefine",
    "use",
)
_MODULE_PATTERN = re.compile(r"(?:mod_)?(?:mpm_)?(\w+?)(?:_module|\.c)?")
_VARIABLE_PATTERN = re.compile(r"\$\{(\w+)\}")
_VERSION_PATTERN = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,2}")
ANY_DIRECTIVE = "*"


def shorten_module_name(module_name: str) -> str:
    """Return the short name of a module: `event` for `mpm_event_module` and `event.c`, `proxy` for
    `mod_proxy.c`.
    """
    module_match = _MODULE_PATTERN.fullmatch(module_name)
    return module_match[1] if module_match else module_name


class ConditionReader:
    """An evaluator of conditional sections and definitions, in the order in which Apache reads
    them.

    ``uncertain`` maps lower-case names of directives to the reasons why their values are unknown.
    """

    def __init__(
        self,
        file_tree: FileTree,
        server_root: str,
        environment: Mapping[str, str],
        defined_variables: Mapping[str, str],
    ) -> None:
        self._tree, self._root, self._environment = file_tree, server_root, environment
        self._defined = dict(defined_variables)
        self._modules = set(BUILT_IN_MODULES)
        self._results: list[bool | None] = []  # result of the last condition at each nesting level
        self._macros: dict[str, set[str]] = {}  # names of the directives in each macro
        self.uncertain: dict[str, str] = {}

    def applies(self, directive: Directive) -> bool:
        """True if a directive takes effect. The method must be called once per directive, in the order
        of the directives.
        """
        depth, directive_name = directive.depth, directive.name.text.lower()
        enclosing_results = self._results[:depth]
        macros = [block[1:2] for block in directive.blocks if block[0].lower() == "macro"]
        is_in_macro = bool(macros)
        takes_effect: bool | None = all(enclosing_results) and not is_in_macro
        for (macro_name,) in filter(None, macros):
            self._macros.setdefault(macro_name.lower(), set()).add(directive_name)
        if None in enclosing_results and False not in enclosing_results:
            unknown_section = directive.blocks[enclosing_results.index(None)]
            self._record_uncertain(directive_name, unknown_section)
            # An active section inside an unknown section is unknown, too.
            is_inactive = (
                directive_name in CONDITIONAL_SECTIONS
                and self._is_section_active(directive) is False
            )
            takes_effect = False if is_inactive else None
        elif takes_effect and directive_name in CONDITIONAL_SECTIONS:
            takes_effect = self._is_section_active(directive)
        elif takes_effect:
            self._execute(directive_name, [word.text.strip("\"'") for word in directive.arguments])
        self._results = [*enclosing_results, takes_effect]
        return all(enclosing_results) and not is_in_macro

    def parse_include(self, directive: Directive) -> str | None:
        """Return the path pattern that a directive includes. For a directory, the pattern matches
        all files in the directory.
        """
        argument_words = [word.text.strip("\"'") for word in directive.arguments]
        if (
            directive.name.text.lower() not in ("include", "includeoptional")
            or len(argument_words) != 1
        ):
            return None
        server_root = self._substitute_variables(self._root)
        include_path = join(server_root, self._substitute_variables(argument_words[0]))
        is_directory = self._tree.is_directory(include_path)
        path_pattern = f"{include_path.rstrip('/')}/*" if is_directory else include_path
        # Apache also reads all files in a directory that matches a pattern.
        if is_pattern(path_pattern) and self._tree.glob(f"{path_pattern}/*"):
            self.uncertain[ANY_DIRECTIVE] = f"{include_path} contains further directories"
        return path_pattern

    def _substitute_variables(self, template_text: str) -> str:
        variables = {**self._environment, **self._defined}
        return _VARIABLE_PATTERN.sub(
            lambda reference: variables.get(reference[1], reference[0]), template_text
        )

    def _execute(self, directive_name: str, argument_words: list[str]) -> None:
        if directive_name == "define" and argument_words:
            self._defined[argument_words[0]] = self._substitute_variables(
                " ".join(argument_words[1:])
            )
        elif directive_name == "undefine" and argument_words:
            self._defined.pop(argument_words[0], None)
        elif directive_name == "loadmodule" and argument_words:
            self._modules.add(shorten_module_name(argument_words[0]))
        elif directive_name == "use" and argument_words:
            # The names are recorded once, even if the macro is used often.
            for name in self._macros.pop(argument_words[0].lower(), ()):
                changes_context = name in _CONTEXT_CHANGING_DIRECTIVES
                self.uncertain.setdefault(
                    ANY_DIRECTIVE if changes_context else name,
                    f"the macro {argument_words[0]} may set it",
                )

    def _record_uncertain(self, directive_name: str, section: tuple[str, ...]) -> None:
        uncertain_reason = f"it depends on <{' '.join(section)}>, which autotune cannot evaluate"
        self.uncertain.setdefault(
            ANY_DIRECTIVE if directive_name in _CONTEXT_CHANGING_DIRECTIVES else directive_name,
            uncertain_reason,
        )

    def _is_section_active(self, section: Directive) -> bool | None:
        """Return the result of a section's condition, or None for an unknown result."""
        section_type = section.name.text.lower()
        words = [word.text.strip("\"'") for word in section.arguments]
        is_negated = bool(words) and words[0].startswith("!")
        words = [words[0].removeprefix("!"), *words[1:]] if words else [""]
        if section_type == "ifversion":
            condition_result = _compare_version(words)
        elif section_type == "ifdefine":
            condition_result = words[0] in self._defined
        elif section_type == "ifmodule":
            condition_result = shorten_module_name(words[0]) in self._modules
        elif section_type == "iffile":
            condition_result = self._tree.exists(
                self._substitute_variables(join(self._root, words[0]))
            )
        else:
            condition_result = None
        return None if condition_result is None else condition_result != is_negated


def _compare_version(condition_words: list[str]) -> bool | None:
    """Return true if Apache's version meets the condition, or None if the result depends on the patch
    level.
    """
    operator, version = (
        (condition_words[0], condition_words[1])
        if len(condition_words) > 1
        else ("=", condition_words[0])
    )
    if not _VERSION_PATTERN.fullmatch(version) or operator not in ("=", "==", ">", ">=", "<", "<="):
        return None
    version_numbers = (*map(int, version.split(".")), 0, 0)
    if version_numbers[:2] == SUPPORTED_RELEASE:
        if version_numbers[2]:
            return None
        return operator in (">", ">=")  # every release has a patch level greater than 0
    return (version_numbers[:2] < SUPPORTED_RELEASE) == operator.startswith(
        ">"
    ) and not operator.startswith("=")
