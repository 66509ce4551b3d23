"""Arithmetic over parameters, host facts and quantities; no text is ever evaluated as Python.

An expression consists of these terms, and parentheses:

- numbers, quantities (``30 MB``) and shares (``70% of X``);
- names (``web.php_fpm.max_children``) and facts (``count(web.hosts)``);
- ``sum(…)``, ``min(…)`` and ``max(…)``.

A comparison is two expressions with ``<=``, ``>=``, ``<``, ``>`` or ``==`` between them. Terms that are
not valid Python are rewritten first. `ast` then parses the text, and only the node types in this module
are accepted. Quantities are converted to base units (bytes, seconds).
"""

from __future__ import annotations

import ast
import operator
import re
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import copysign, inf, isclose

from autotune.target.corrections import correct_quantity
from autotune.target.field_types import HintedError
from autotune.target.quantities import DURATION_UNITS, SIZE_UNITS

MAX_WORDS = 250  # maximum number of words in an expression, because parsing is recursive
# Facts about a tier or a host, written as functions of the tier's or host's name.
FACT_FUNCTIONS = ("count", "memory", "nofile", "rss")
FUNCTIONS = ("max", "min", "sum")
EQUALITY_TOLERANCE = 1e-5  # relative tolerance; a repair finds fractions only approximately
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": partial(isclose, rel_tol=EQUALITY_TOLERANCE),
}
# Only one thread may parse at a time: before 3.11.5, Python mixes up the recursion depths of syntax
# trees that are built concurrently (gh-106905). Test beds are prepared in parallel.
_PARSE_LOCK = threading.Lock()
_OPERATIONS: dict[str, Callable[[list[float]], float]] = {
    "+": sum,
    "-": lambda values: values[0] - values[1] if len(values) > 1 else -values[0],
    "*": lambda values: values[0] * values[1],
    "/": lambda values: _divide(*values),
    "max": max,
    "min": min,
    "sum": sum,
}


def _divide(dividend: float, divisor: float) -> float:
    """Return the quotient; a setting may be zero, so a division by zero is not an error."""
    return dividend / divisor if divisor else copysign(inf, dividend)


_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "*",
    ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">", ast.Eq: "==",
}  # fmt: skip
BYTES, SECONDS = "B", "s"  # base units of sizes and durations
BASE_UNITS = {**dict.fromkeys(DURATION_UNITS, SECONDS), **dict.fromkeys(SIZE_UNITS, BYTES)}
UNIT_FACTORS = {name: float(size) for name, size in {**SIZE_UNITS, **DURATION_UNITS}.items()}
_NAME_PATTERN = r"[A-Za-z_][\w+-]*(?:\.\w+)*"
_UNIT_PATTERN = "|".join(sorted(UNIT_FACTORS, key=len, reverse=True))
_WORD_PATTERN = re.compile(
    rf"""\s*(?:
       (?P<number>\d+(?:\.\d+)?)\s*(?:(?P<unit>{_UNIT_PATTERN})(?![\w.+-])|%\s*(?P<share>of(?![\w.+-]))?)?
      |(?P<name>(?:{"|".join(FACT_FUNCTIONS)})\s*\(\s*{_NAME_PATTERN}\s*\)|{_NAME_PATTERN}(?![\w.+-]|\s*\())
      |(?P<function>{_NAME_PATTERN}\s*\()
      |(?P<mark><=|>=|==|[-+*/()<>,]))""",
    re.VERBOSE,
)
_OPERATOR_WORDS = {"x": "*", "times": "*", "plus": "+", "minus": "-", "by": "/", "per": "/"}
NameValues = Mapping[str, float]


@dataclass(frozen=True)
class Number:
    """A number in its base ``unit``, which is empty for a count or a share."""

    value: float
    unit: str = field(default="", compare=False)

    def evaluate(self, values_by_name: NameValues) -> float:
        return self.value

    def names(self) -> Iterator[str]:
        yield from ()

    def __str__(self) -> str:
        return f"{self.value:.12g}{self.unit}"


@dataclass(frozen=True)
class Name:
    name: str

    def evaluate(self, values_by_name: NameValues) -> float:
        """Return the value of this name in ``values_by_name``. Raises KeyError if the name has no
        value.
        """
        return float(values_by_name[self.name])

    def names(self) -> Iterator[str]:
        yield self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class EffectiveValue:
    """The value that the software uses for a setting, in base units.

    ``replacements`` pairs special values, such as -1 for automatic, with expressions of the values
    that the software uses instead.
    """

    name: str
    replacements: tuple[tuple[float, Expression], ...]

    def evaluate(self, names: NameValues) -> float:
        """Return the effective value in ``names``. Raises KeyError if a name has no value."""
        value = float(names[self.name])
        replacement = dict(self.replacements).get(value)
        return value if replacement is None else replacement.evaluate(names)

    def names(self) -> Iterator[str]:
        yield self.name
        for _, replacement in self.replacements:
            yield from replacement.names()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Operation:
    symbol: str
    operands: tuple[Expression, ...]

    def evaluate(self, values_by_name: NameValues) -> float:
        """Return the result of the operation; a division by zero gives infinity."""
        return float(
            _OPERATIONS[self.symbol](
                [operand.evaluate(values_by_name) for operand in self.operands]
            )
        )

    def names(self) -> Iterator[str]:
        for operand in self.operands:
            yield from operand.names()

    def __str__(self) -> str:
        return self.join_operands([str(operand) for operand in self.operands])

    def join_operands(self, texts: Sequence[str]) -> str:
        """Return the operation in the usual notation. ``texts`` are its operands as text."""
        if self.symbol in FUNCTIONS:
            return f"{self.symbol}({', '.join(texts)})"
        joined_texts = [
            f"({text})" if self._needs_parentheses(index) else text
            for index, text in enumerate(texts)
        ]
        if len(joined_texts) == 1:
            return f"{self.symbol}{joined_texts[0]}"
        return f" {self.symbol} ".join(joined_texts)

    def _needs_parentheses(self, index: int) -> bool:
        """True if the operand at ``index`` is itself an operation that would bind too loosely."""
        operand = self.operands[index]
        if not isinstance(operand, Operation):
            return False
        if operand.symbol in ("+", "-"):
            return self.symbol in ("*", "/", "-")
        return self.symbol == "/" and index == 1 and operand.symbol in ("*", "/")


Expression = Number | Name | EffectiveValue | Operation


@dataclass(frozen=True)
class Comparison:
    """A comparison such as ``left <= right``, with its source text."""

    text: str
    symbol: str
    left: Expression
    right: Expression

    def is_satisfied(self, values_by_name: NameValues) -> bool:
        return COMPARISONS[self.symbol](
            self.left.evaluate(values_by_name), self.right.evaluate(values_by_name)
        )

    def names(self) -> frozenset[str]:
        return frozenset({*self.left.names(), *self.right.names()})

    def with_replacements(self, replacement: NameReplacement) -> Comparison:
        """Return the comparison with some names replaced."""
        left_side, right = (replace_names(term, replacement) for term in (self.left, self.right))
        return Comparison(self.text, self.symbol, left_side, right)


NameReplacement = Callable[[Expression], "Expression | None"]


def replace_names(expression: Expression, replacement: NameReplacement) -> Expression:
    """Return ``expression`` with replaced parts: each part for which ``replacement`` returns an
    expression.
    """
    new_expression = replacement(expression)
    if new_expression is not None:
        return new_expression
    if isinstance(expression, Operation):
        operands = tuple(replace_names(operand, replacement) for operand in expression.operands)
        return Operation(expression.symbol, operands)
    return expression


def qualify_names(
    expression: Expression, prefix: str, known_names: Container[str] | None = None
) -> Expression:
    """Return ``expression`` with ``prefix`` before each name. With ``known_names``, a name gets the
    prefix only if the prefixed name is in ``known_names``.
    """

    def qualify_name(part: Expression) -> Expression | None:
        if isinstance(part, Name) and (known_names is None or prefix + part.name in known_names):
            return Name(prefix + part.name)
        return None

    return replace_names(expression, qualify_name)


def parse_expression(text: str) -> Expression:
    """Return a parsed arithmetic expression. Raises ValueError with the invalid word."""
    tree, words = _parse_python(text)
    return _build_expression(tree, text, words)


def parse_comparison(text: str) -> Comparison:
    """Return a parsed comparison of two expressions. Raises ValueError."""
    expected_text = f"expected <=, >=, <, > or == in {text!r}"
    if text.count("<") + text.count(">") > 1:
        expected_text = f"expected one comparison in {text!r}; write each as its own constraint"
    if not any(symbol in text for symbol in COMPARISONS):
        raise ValueError(expected_text)
    tree, words = _parse_python(text)
    match tree:
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            sides = (_build_expression(side_node, text, words) for side_node in (left, right))
            return Comparison(text, _SYMBOLS[type(comparison)], *sides)
    raise ValueError(expected_text)


def _parse_python(text: str) -> tuple[ast.expr, list[str]]:
    """Return the syntax tree and the list of words. In the tree, the name ``_3`` replaces word 3 if word
    3 is a name or a number with a unit.
    """
    words: list[str] = []
    python_words: list[str] = []
    word_start = 0
    while remaining_text := text[word_start:].strip():
        word_match = _WORD_PATTERN.match(text, word_start)
        if word_match is None:
            raise ValueError(_describe_invalid_mark(text, remaining_text[0]))
        if len(words) == MAX_WORDS:
            raise ValueError(f"expression with more than {MAX_WORDS} words: {text[:60]!r} …")
        if word_match["number"]:
            number = float(word_match["number"])
            number = number / 100 if "%" in word_match[0] else number
            # A share is written as a power, because a power binds more tightly than a division.
            number_text = f"{number!r} **" if word_match["share"] else repr(number)
            python_words.append(f"_{len(words)}" if word_match["unit"] else number_text)
        else:
            python_words.append(f"_{len(words)}" if word_match["name"] else word_match[0].strip())
        words.append(word_match[0].strip())
        word_start = word_match.end()
    try:
        with _PARSE_LOCK:
            return ast.parse(" ".join(python_words), mode="eval").body, words
    except (SyntaxError, MemoryError):
        raise _build_syntax_error(text, words) from None


def _describe_invalid_mark(text: str, mark: str) -> str:
    message = f"{mark!r} is not valid in {text!r}"
    if mark in "=!≤≥":
        return f"{message}: expected <=, >=, <, > or =="
    if mark in "×·":
        return f"{message}: write '*' for a product"
    if mark in "÷":
        return f"{message}: write '/' for a quotient"
    return f"{message}: expected a number, a name or one of + - * / ( )"


def _build_expression(node: ast.AST, text: str, tokens: list[str]) -> Expression:
    match node:
        case ast.Constant(value=float(value)):
            return Number(value)
        case ast.Name(id=name) if name.startswith("_"):
            return _build_leaf(tokens[int(name[1:])])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Operation("-", (_build_expression(operand, text, tokens),))
        case ast.BinOp(left=left, op=symbol, right=right):
            operands = tuple(_build_expression(side, text, tokens) for side in (left, right))
            if isinstance(symbol, ast.Div) and not any(operands[1].names()):
                _check_divisor(operands[1], text)
            return Operation(_SYMBOLS[type(symbol)], operands)
        case ast.Call(func=ast.Name(id=function), args=[_, *_] as arguments) if (
            function in FUNCTIONS
        ):
            return Operation(function, tuple(_build_expression(a, text, tokens) for a in arguments))
    raise _build_syntax_error(text, tokens)


def _build_leaf(token: str) -> Number | Name:
    """Return the expression of a name, or of a number with a unit."""
    word_match = _WORD_PATTERN.match(token)
    if word_match is not None and word_match["unit"]:
        value = float(word_match["number"]) * UNIT_FACTORS[word_match["unit"]]
        return Number(value, BASE_UNITS[word_match["unit"]])
    return Name(re.sub(r"\s", "", token))


def _check_divisor(divisor: Expression, text: str) -> None:
    if divisor.evaluate({}) == 0:
        raise ValueError(f"division by zero in {text!r}")


def _find_word_hint(previous_word: str, word: str) -> str | None:
    """Return the hint for a word that cannot follow ``previous_word``."""
    if word.lower() in ("and", "or", "if", "in", "not"):
        return "write each comparison as its own constraint"
    if word.lower() in _OPERATOR_WORDS:
        return f"write '{_OPERATOR_WORDS[word.lower()]}' instead of {word!r}"
    if previous_word.endswith("%"):
        return f"write `{previous_word} of {word}`"
    for kind, units in (("a size", SIZE_UNITS), ("a duration", DURATION_UNITS)):
        if quantity := correct_quantity(f"{previous_word} {word}", kind, units):
            return f"write `{quantity}`"
    return "add an operator, such as '*' or '+', before it" if word[:1].isalnum() else None


def _build_syntax_error(text: str, tokens: list[str]) -> ValueError:
    """Return an error that names the first word that is invalid at its position."""
    expects_value, open_parentheses, previous_word = True, 0, ""
    for word in (*tokens, ""):
        starts_value = word[:1].isalnum() or word[:1] in ("_", "(")
        open_parentheses += word.endswith("(") - (word == ")")
        if expects_value and not starts_value and word != "-":
            return ValueError(f"expected a value, not {word or 'the end'!r}, in {text!r}")
        if open_parentheses < 0 or (starts_value and not expects_value):
            hint = _find_word_hint(previous_word, word)
            return HintedError(f"{word!r} is unexpected in {text!r}", hint)
        function = word[:-1].strip() if word.endswith("(") else ""
        if function and function not in FUNCTIONS:
            function_names = ", ".join(sorted({*FACT_FUNCTIONS, *FUNCTIONS}))
            return ValueError(f"unknown function {function!r}: expected one of {function_names}")
        expects_value = word.endswith(("(", "of")) or not (starts_value or word == ")")
        previous_word = word
    problem = "expected ')', not 'the end', in" if open_parentheses else "no arithmetic:"
    return ValueError(f"{problem} {text!r}")
