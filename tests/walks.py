"""Trace a thing, such as a parameter, through the functions of autotune while real hosts are tuned.

A maintainer who follows the thing must read the functions of its walk, and no others. A function is
on the walk if one of these is true:

- It returns the thing, in any form: an object that contains it.
- It receives the thing as an argument, and one of its calls returns the thing or changes a host.
- It is running when the first form of the thing is made, such as the command itself.

These are not on the walk:

- functions that pass on any content: ``GENERIC_MODULES`` and ``GENERIC_FUNCTIONS``
- properties, generated methods, and functions that only return an expression without a call
- nested functions, which count as the function that contains them
"""

from __future__ import annotations

import ast
import base64
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import thread as pool_threads
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1] / "autotune"
# Modules and functions that move any content between hosts, files and threads, or encode any record.
GENERIC_MODULES = (
    "account_key", "config_text", "deploy/host_commands", "durable_files", "errors", "foreign_files",
    "masking", "parameter_name", "strict_parsing", "study/journal", "study/record_codec", "terminal",
    "transports/",
)  # fmt: skip
GENERIC_FUNCTIONS = ("deploy/managed_hosts.py: ManagedHosts.run_on_hosts",)
# Every change of a host goes through this function.
CHANGE = "ManagedHost._run_locked"
MAX_DEPTH = 7  # of a form inside another object
Names = tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """A function of autotune: its module below the package, and its qualified name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.py: {self.name}"


class Contents:
    """True for objects that contain the thing, which ``is_thing`` recognises in a single value."""

    def __init__(self, is_thing: Callable[[Any], bool]) -> None:
        self._is_thing = is_thing
        self._known: dict[int, tuple[object, bool]] = {}

    def __call__(self, value: Any, depth: int = MAX_DEPTH) -> bool:
        if self._is_thing(value):
            return True
        if depth == 0 or isinstance(value, str | bytes | int | float | type):
            return False
        if id(value) in self._known:
            return self._known[id(value)][1]
        contains = any(self(part, depth - 1) for part in list_parts(value))
        if isinstance(value, tuple) or is_frozen(value):
            self._known[id(value)] = value, contains
        return contains


def list_parts(value: Any) -> list[Any]:
    """Return the objects that ``value`` consists of, one level deep."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if type(value).__module__.partition(".")[0] == "autotune":
        return [part for part in getattr(value, "__dict__", {}).values() if not callable(part)]
    return []


def is_frozen(value: Any) -> bool:
    return is_dataclass(value) and bool(value.__dataclass_params__.frozen)


@functools.cache
def find_function(code: CodeType) -> Function | None:
    """Return the function of a code object, or ``None`` if no walk counts it."""
    path = Path(code.co_filename)
    module = str(path.relative_to(ROOT).with_suffix(""))
    function = Function(module, code.co_qualname.partition(".<locals>")[0])
    is_generic = module.startswith(GENERIC_MODULES) or str(function) in GENERIC_FUNCTIONS
    return function if not is_generic and function.name in _list_counted(path) else None


@functools.cache
def _list_counted(path: Path) -> frozenset[str]:
    """Return the qualified names of the functions in a file that a walk counts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [(f"{each.name}.", node) for each in classes for node in each.body]
    return frozenset(
        f"{prefix}{node.name}"
        for prefix, node in [*methods, *(("", node) for node in tree.body)]
        if isinstance(node, ast.FunctionDef) and not _is_property(node) and not _is_accessor(node)
    )


def _is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_accessor(node: ast.FunctionDef) -> bool:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    if len(body) != 1 or not isinstance(body[0], ast.Return):
        return False
    return not any(isinstance(part, ast.Call) for part in ast.walk(body[0]))


@dataclass
class Call:
    """A running call. ``function`` is ``None`` if no walk counts it. ``place`` sorts calls by the
    order in which they were made, also on several threads.
    """

    function: Function | None
    name: str
    receives: bool
    caller: Call | None
    place: tuple[int, ...]
    calls_made: int = 0

    def take_place(self) -> tuple[int, ...]:
        """Return the place of the next call that this call makes."""
        self.calls_made += 1
        return (*self.place, self.calls_made)


@dataclass
class Walk:
    """The functions through which a thing passes while this object is open.

    ``contains`` recognises the thing. The walk begins in the functions ``starts`` and stops when the
    function ``stop`` returns.
    """

    contains: Contents
    starts: Names
    stop: str = ""
    _places: dict[Function, tuple[int, ...]] = field(default_factory=dict)
    _is_over: bool = False
    _has_form: bool = False
    _root: Call = field(default_factory=lambda: Call(None, "", False, None, ()))
    _local: threading.local = field(default_factory=threading.local)
    _submitted: dict[int, tuple[object, Call]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def functions(self) -> list[Function]:
        """Return the functions in the order in which they are first called."""
        return sorted(self._places, key=lambda function: self._places[function])

    def __enter__(self) -> Walk:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    # -- one call ---------------------------------------------------------------------------------

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        if self._is_over or event not in ("call", "return"):
            return
        code = frame.f_code
        with self._lock:
            if code.co_filename == pool_threads.__file__:
                self._follow_pool(frame, event)
            elif code.co_filename.startswith(f"{ROOT}/"):
                self._begin(frame) if event == "call" else self._end(frame, value)

    @property
    def _call(self) -> Call | None:
        return getattr(self._local, "call", None)

    def _follow_pool(self, frame: FrameType, event: str) -> None:
        """Let a call in a pool's thread continue the call that submitted it."""
        item, name, call = frame.f_locals.get("self"), frame.f_code.co_name, self._call
        if type(item).__name__ != "_WorkItem":
            return
        if name == "__init__" and event == "call" and call is not None:
            self._submitted[id(item)] = item, Call(None, "", False, call, call.take_place())
        elif name == "run":
            submitted = self._submitted.get(id(item)) if event == "call" else None
            self._local.call = submitted and submitted[1]

    def _begin(self, frame: FrameType) -> None:
        code, caller = frame.f_code, self._call
        if caller is None and code.co_qualname not in self.starts:
            return
        arguments = [frame.f_locals.get(name) for name in _list_arguments(code)]
        self._local.call = call = Call(
            find_function(code),
            code.co_qualname,
            any(map(self.contains, arguments)),
            caller,
            (caller or self._root).take_place(),
        )
        if code.co_qualname == CHANGE:
            self._add(each for each in _list_stack(call) if each.receives)

    def _end(self, frame: FrameType, value: Any) -> None:
        call = self._call
        if call is None or call.name != frame.f_code.co_qualname:
            return
        if self.contains(value):
            stack = [*_list_stack(call)]
            self._add(each for each in stack
                      if each is call or each.receives or not self._has_form)  # fmt: skip
            self._has_form = True
        self._local.call = call.caller
        self._is_over = call.name == self.stop

    def _add(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call.function is not None:
                place = self._places.setdefault(call.function, call.place)
                self._places[call.function] = min(place, call.place)


def _list_arguments(code: CodeType) -> Names:
    """Return the names of a function's arguments, without the object of a method."""
    extra = bool(code.co_flags & 4) + bool(code.co_flags & 8)  # *args, **kwargs
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]
    return tuple(name for name in names if name not in ("self", "cls"))


def _list_stack(call: Call | None) -> Iterator[Call]:
    while call is not None:
        yield call
        call = call.caller


class Mark:
    """True for text, bytes and base64 that contain a mark."""

    def __init__(self, text: str) -> None:
        self._text, self._bytes = text, text.encode()
        # base64 has a different form at each of three offsets; characters at the ends also encode
        # other bytes
        encoded = [base64.b64encode(bytes(offset) + self._bytes).decode() for offset in range(3)]
        self._encoded = [form[4 if at else 0 : -4] for at, form in enumerate(encoded)]

    def __call__(self, value: Any) -> bool:
        if isinstance(value, bytes):
            return self._bytes in value or any(form.encode() in value for form in self._encoded)
        return isinstance(value, str) and (
            self._text in value or any(form in value for form in self._encoded)
        )
