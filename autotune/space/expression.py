"""Arithmetic over parameters, host facts and quantities, parsed by hand: nothing is ever evaluated.

Grammar: ``sum (<=|>=|<|>|==) sum``; sums of products of numbers, quantities (``30 MB``), shares
(``70% of X``), names (``web.php_fpm.max_children``), facts (``count(web.hosts)``), ``sum(…)``,
``min(…)``, ``max(…)`` and parentheses. Quantities are in base units (bytes, seconds).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from autotune.target.units import DURATION, SIZE

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w+-]*(?:\.[A-Za-z_0-9][\w]*)*)"
    r"|(?P<op><=|>=|==|[-+*/()<>%,]))"
)
_UNITS = {**{k: float(v) for k, v in SIZE.items()}, **DURATION}
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "sum": sum}
# Facts of a tier or a host, written as a function of it: what is in the parentheses is a name.
FACTS = ("count", "memory", "nofile", "rss")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
}
Names = Mapping[str, float]


@dataclass(frozen=True)
class Number:
    value: float

    def evaluate(self, names: Names) -> float:
        return self.value

    def names(self) -> Iterator[str]:
        yield from ()

    def __str__(self) -> str:
        return f"{self.value:.12g}"


@dataclass(frozen=True)
class Name:
    name: str

    def evaluate(self, names: Names) -> float:
        """Raises KeyError for a name that has no value."""
        return float(names[self.name])

    def names(self) -> Iterator[str]:
        yield self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Operation:
    symbol: str
    operands: tuple[Expression, ...]

    def evaluate(self, names: Names) -> float:
        """Raises ZeroDivisionError where the text divides by nothing."""
        values = [operand.evaluate(names) for operand in self.operands]
        match self.symbol:
            case "+":
                return values[0] + values[1]
            case "-":
                return values[0] - values[1] if len(values) > 1 else -values[0]
            case "*":
                return values[0] * values[1]
            case "/":
                return values[0] / values[1]
            case _:
                return float(_FUNCTIONS[self.symbol](values))

    def names(self) -> Iterator[str]:
        for operand in self.operands:
            yield from operand.names()

    def __str__(self) -> str:
        return self.written(str)

    def written(self, leaf: Callable[[Number | Name], str]) -> str:
        """The operation as people write it, each number and name as ``leaf`` has it."""
        said = [_operand(self.symbol, operand, leaf) for operand in self.operands]
        if self.symbol in _FUNCTIONS:
            return f"{self.symbol}({', '.join(said)})"
        return f" {self.symbol} ".join(said) if len(said) > 1 else f"{self.symbol}{said[0]}"


Expression = Number | Name | Operation


def _operand(symbol: str, operand: Expression, leaf: Callable[[Number | Name], str]) -> str:
    if not isinstance(operand, Operation):
        return leaf(operand)
    said = operand.written(leaf)
    looser = operand.symbol in "+-" and symbol in ("*", "/", "-")
    return f"({said})" if looser else said


@dataclass(frozen=True)
class Comparison:
    """``left <= right`` and the like, with the text it came from."""

    text: str
    symbol: str
    left: Expression
    right: Expression

    def holds(self, names: Names) -> bool:
        return COMPARISONS[self.symbol](self.left.evaluate(names), self.right.evaluate(names))

    def names(self) -> frozenset[str]:
        return frozenset({*self.left.names(), *self.right.names()})

    def replaced(self, replacement: Replacement) -> Comparison:
        """The same with some names standing for something else."""
        left, right = (replaced(side, replacement) for side in (self.left, self.right))
        return Comparison(self.text, self.symbol, left, right)


Replacement = Callable[[Expression], "Expression | None"]


def replaced(expression: Expression, replacement: Replacement) -> Expression:
    """``expression`` with every part for which ``replacement`` has another one exchanged for it."""
    new = replacement(expression)
    if new is not None:
        return new
    if isinstance(expression, Operation):
        operands = tuple(replaced(operand, replacement) for operand in expression.operands)
        return Operation(expression.symbol, operands)
    return expression


def parse(text: str) -> Expression:
    """An arithmetic expression. Raises ValueError with the place where it stops making sense."""
    parser = _Parser(text)
    expression = parser.sum()
    parser.end()
    return expression


def parse_comparison(text: str) -> Comparison:
    """Two expressions and how they compare. Raises ValueError."""
    parser = _Parser(text)
    left = parser.sum()
    symbol = parser.take()
    if symbol not in COMPARISONS:
        raise ValueError(f"expected <=, >=, <, > or == at {symbol or 'the end'!r} in {text!r}")
    right = parser.sum()
    parser.end()
    return Comparison(text, symbol, left, right)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"{text[place:].strip()[0]!r} has no meaning in {text!r}")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            place = match.end()

    def peek(self) -> str:
        return self.tokens[0][1] if self.tokens else ""

    def take(self) -> str:
        return self.tokens.pop(0)[1] if self.tokens else ""

    def expect(self, wanted: str) -> None:
        found = self.take()
        if found != wanted:
            raise ValueError(f"expected {wanted!r}, not {found or 'the end'!r}, in {self.text!r}")

    def end(self) -> None:
        if self.tokens:
            raise ValueError(f"{self.peek()!r} is one word too many in {self.text!r}")

    def sum(self) -> Expression:
        left = self.product()
        while self.peek() in ("+", "-"):
            left = Operation(self.take(), (left, self.product()))
        return left

    def product(self) -> Expression:
        left = self.factor()
        while self.peek() in ("*", "/"):
            left = Operation(self.take(), (left, self.factor()))
        return left

    def factor(self) -> Expression:
        kind, word = self.tokens.pop(0) if self.tokens else ("end", "")
        if kind == "number":
            return self._quantity(float(word))
        if kind == "name":
            return self._name(word)
        if word == "-":
            return Operation("-", (self.factor(),))
        if word == "(":
            inside = self.sum()
            self.expect(")")
            return inside
        raise ValueError(f"expected a value, not {word or 'the end'!r}, in {self.text!r}")

    def _quantity(self, value: float) -> Expression:
        if self.peek() == "%":
            self.take()
            if self.peek() == "of":
                self.take()
                return Operation("*", (Number(value / 100), self.factor()))
            return Number(value / 100)
        if self.peek() in _UNITS:
            return Number(value * _UNITS[self.take()])
        return Number(value)

    def _name(self, word: str) -> Expression:
        if self.peek() != "(":
            return Name(word)
        self.take()
        if word in FACTS:
            of = self.take()
            self.expect(")")
            return Name(f"{word}({of})")
        if word not in _FUNCTIONS:
            known = ", ".join(sorted({"count", *_FUNCTIONS}))
            raise ValueError(f"there is no function {word!r}; there are {known}")
        operands = [self.sum()]
        while self.peek() == ",":
            self.take()
            operands.append(self.sum())
        self.expect(")")
        return Operation(word, tuple(operands))
