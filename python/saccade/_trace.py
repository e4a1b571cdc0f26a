"""Python functions made into rules, by calling them once with nodes for arguments.

What a function captures (closure, globals, defaults, functions that it calls) is looked through first: tensors become tables,
numbers become run-time scalars. A function with the same code and other captured values of the same kinds reuses the trace, so
a rule that is written anew for each call compiles once.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import threading
import types
from typing import Any

from saccade import _native
from saccade import _expression as ex
from saccade.errors import TraceError

_MASK = (ex.b, ex.h, ex.q_idx, ex.kv_idx)
_SCORE = (ex.score, *_MASK)


class Captured:
    """A captured tensor: indexed with nodes it gives elements, in all else it is the tensor."""

    def __init__(self, table, indices=()):
        self._table, self._indices = table, indices
        self._is_number = table.rank == 0

    @classmethod
    def of(cls, tensor, name):
        dtype, rank = _native.dtype_and_rank(tensor, name)
        return cls(ex.Table(name, tensor, dtype, rank))

    def saccade_element(self):
        table, indices = self._table, self._indices
        if table.rank == 0:
            table.rank = 1  # a call takes a tensor of no dimensions for one of a single element
        if table.rank == 1 and not indices and self._is_number:
            indices = (0,)
        if len(indices) != table.rank:
            raise TraceError(
                f"'{table.name}' has {table.rank} dimensions and is indexed with {len(indices)}: give each an index")
        return ex.Element(table, indices)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        table = self._table
        if not any(isinstance(i, (ex.Node, Captured)) for i in (*index, *self._indices)):
            raise ex.NeedsNumbers([self])  # a part of the tensor: it is looked up now, in the tensor itself
        for i in index:
            if isinstance(i, slice) or i is None or i is Ellipsis:
                raise TraceError(f"'{table.name}' is indexed with a slice; rules read single elements")
        index = tuple(i.saccade_element() if isinstance(i, Captured) else i for i in index)
        indices = (*self._indices, *index)
        if len(indices) > table.rank:
            raise TraceError(f"'{table.name}' has {table.rank} dimensions and is indexed with {len(indices)}")
        made = Captured(table, indices)
        return made.saccade_element() if len(indices) == table.rank else made

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise ex.NeedsNumbers([self])  # its shape, a method: the tensor itself is wanted

    def __len__(self):
        raise ex.NeedsNumbers([self])

    def __bool__(self):
        return bool(self.saccade_element())

    @classmethod
    def __torch_function__(cls, function, types_, args=(), kwargs=None):
        del types_
        if getattr(function, "__name__", "") == "__getitem__":
            return args[0].__getitem__(args[1])
        return ex.call_named(function, args, kwargs or {})


def _forward(name):
    def operation(self, *args):
        return getattr(self.saccade_element(), name)(*args)

    return operation


for _name in ("add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow and rand or ror xor rxor invert neg "
              "abs eq ne lt le gt ge").split():
    setattr(Captured, f"__{_name}__", _forward(f"__{_name}__"))
Captured.__hash__ = object.__hash__


def _is_tensor(value: Any) -> bool:
    """Whether it can be a table. Tensors of more dimensions are looked into when a rule is traced."""
    return hasattr(type(value), "__dlpack__") and getattr(value, "ndim", 0) <= _MOST_DIMENSIONS


_MOST_DIMENSIONS = 4


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, ex.Node))


class Captures:
    """What a function captures, found in a fixed order. `values` are the numbers and tensors, `signature` all that another
    function must agree in to share the trace; None when something was met that may change unseen."""

    def __init__(self, function):
        self.values: list[Any] = []
        self.names: list[str] = []
        self._signature: list[Any] | None = []
        self._seen: set[int] = set()
        self._look(function, "function")

    @property
    def signature(self):
        return None if self._signature is None else tuple(self._signature)

    def _note(self, *what):
        if self._signature is not None:
            self._signature.extend(what)

    def _look(self, value, name):
        if _is_number(value):
            self._note("number", isinstance(value, numbers.Integral))
            self.values.append(value)
            self.names.append(name)
        elif _is_tensor(value):
            dtype, rank = _native.dtype_and_rank(value, name)
            self._note("tensor", dtype, rank)
            self.values.append(value)
            self.names.append(name)
        elif isinstance(value, (tuple, list)):
            self._note(type(value), len(value))
            for item in value:
                self._look(item, name)
        elif isinstance(value, functools.partial):
            self._note("partial", len(value.args), tuple(value.keywords))
            self._look(value.func, name)
            code = getattr(value.func, "__code__", None)
            parameters = code.co_varnames[: code.co_argcount] if code else ()
            for i, item in enumerate(value.args):
                self._look(item, parameters[i] if i < len(parameters) else name)
            for key, item in value.keywords.items():
                self._look(item, key)
        elif isinstance(value, types.FunctionType):
            self._look_into(value)
        elif value is None or isinstance(value, (bool, str, bytes, ex.Node)) or _is_plain_builtin(value):
            self._note(type(value), value)
        elif isinstance(value, (type, types.ModuleType)) and _is_library(value):
            self._note(value)
        elif type(value).__name__ == "dtype":
            self._note(value)
        else:
            self._signature = None  # its attributes may change unseen

    def _look_into(self, function):
        self._note(function.__code__)
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        for _, name, value in captured_by(function):
            self._look(value, name)


def _is_plain_builtin(value) -> bool:
    """A function written in C that is no method of some object."""
    return isinstance(value, types.BuiltinFunctionType) and (
        value.__self__ is None or isinstance(value.__self__, types.ModuleType))


_LIBRARIES = ("builtins", "cupy", "functools", "jax", "math", "numpy", "operator", "saccade", "torch", "typing")


def _is_library(value) -> bool:
    """Whether a function, type or module is a library's, whose globals and attributes do not change."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    return name.partition(".")[0] in _LIBRARIES


def captured_by(function):
    """(place, name, value) of everything that a function captures."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield "cell", name, cell.cell_contents
        except ValueError:
            continue  # not set yet
    used = set()
    stack = [code]
    while stack:
        current = stack.pop()
        used.update(current.co_names)
        stack.extend(c for c in current.co_consts if isinstance(c, types.CodeType))
    for name in sorted(used) if not _is_library(function) else ():
        if name in function.__globals__:
            yield "global", name, function.__globals__[name]
    parameters = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    for name, value in zip(parameters[len(parameters) - len(defaults) :], defaults):
        yield "default", name, value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield "keyword", name, value


class _Rebuilder:
    """Functions again, with leaves in the places of what they capture, in the order that Captures found it."""

    def __init__(self, leaves):
        self._leaves = iter(leaves)
        self._made: dict[int, types.FunctionType] = {}

    def rebuild(self, value):
        if _is_number(value) or _is_tensor(value):
            return next(self._leaves)
        if isinstance(value, (tuple, list)):
            items = [self.rebuild(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, functools.partial):
            function = self.rebuild(value.func)
            args = [self.rebuild(item) for item in value.args]
            return functools.partial(function, *args, **{k: self.rebuild(v) for k, v in value.keywords.items()})
        if isinstance(value, types.FunctionType):
            return self._rebuild_function(value)
        return value

    def _rebuild_function(self, function):
        if id(function) in self._made:
            return self._made[id(function)]
        cells, replaced, defaults, keywords = {}, {}, [], {}
        made_globals = function.__globals__ if _is_library(function) else dict(function.__globals__)
        closure = tuple(types.CellType() for _ in function.__code__.co_freevars)
        made = types.FunctionType(function.__code__, made_globals, function.__name__, None, closure or None)
        self._made[id(function)] = made
        for place, name, value in captured_by(function):
            target = {"cell": cells, "global": replaced, "keyword": keywords}.get(place)
            if target is None:
                defaults.append(self.rebuild(value))
            else:
                target[name] = self.rebuild(value)
        if replaced:
            made_globals.update(replaced)
        made.__defaults__ = tuple(defaults) or None
        made.__kwdefaults__ = keywords or None
        for name, cell in zip(function.__code__.co_freevars, closure):
            if name in cells:
                cell.cell_contents = cells[name]
        return made


class Trace:
    """The node that a function gave, and where the values of its leaves stand among the captures."""

    def __init__(self, node, leaves, constants):
        self.node = node
        self.leaves = leaves  # for each capture a Scalar or a Captured, or None when it became a constant
        self.constants = constants  # (place, value) of those

    def fits(self, values):
        return all(repr(values[i]) == repr(value) for i, value in self.constants)  # 0.0 is not -0.0, NaN is NaN


def _leaf(value, name):
    return Captured.of(value, name) if _is_tensor(value) else ex.Scalar(name, ex.check_value(name, value))


def _torch_mode():
    """Hands PyTorch's functions on tensors and nodes to the nodes, also table[node]."""
    import sys

    if "torch" not in sys.modules:
        return None
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types_, args=(), kwargs=None):
            del types_
            name = getattr(function, "__name__", "")
            if name == "__getitem__" and _holds_node(args[1]):
                return Captured.of(args[0], "table").__getitem__(args[1])
            if any(isinstance(a, (ex.Node, Captured)) for a in args):
                return ex.call_named(function, args, kwargs or {})
            return function(*args, **(kwargs or {}))

    return Mode()


def _holds_node(index):
    index = index if isinstance(index, tuple) else (index,)
    return any(isinstance(i, (ex.Node, Captured)) for i in index)


def _call(function, arguments):
    mode = _torch_mode()
    try:
        if mode is None:
            return ex.node_of(function(*arguments))
        with mode:
            result = function(*arguments)
        return ex.node_of(result)
    except ex.NeedsNumbers:
        raise
    except TraceError as error:
        raise TraceError(f"{_place_of(function, error)}: {error}") from None
    except (TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise TraceError(f"{_place_of(function, error)}: {type(error).__name__}: {error}. A rule is made of operators, "
                         "& | ~, where(), functions of PyTorch, NumPy or Saccade, and single elements of tensors") from error


def _place_of(function, error=None):
    """File and line of the innermost frame that is the user's; of the function, where there is none."""
    place = None
    traceback = error.__traceback__ if error is not None else None
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("saccade", "torch", "numpy"):
            place = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    if place is None:
        code = getattr(function, "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
    return place


def _trace(function, arguments, captures):
    constants: set[int] = set()
    while True:
        leaves = [v if i in constants else _leaf(v, n) for i, (v, n) in enumerate(zip(captures.values, captures.names))]
        rebuilt = _Rebuilder(leaves).rebuild(function)
        try:
            node = _call(rebuilt, arguments)
        except ex.NeedsNumbers as wanted:
            found = {i for i, leaf in enumerate(leaves) if any(leaf is w or _same_table(leaf, w) for w in wanted.leaves)}
            if not found - constants:
                raise TraceError(f"{_place_of(function, wanted)}: the value of a tensor's element or of a number made "
                                 "while tracing is asked for, and is not known when a rule is made") from None
            constants |= found
            continue
        leaves = [None if i in constants else leaf for i, leaf in enumerate(leaves)]
        return Trace(node, leaves, [(i, captures.values[i]) for i in sorted(constants)])


def _same_table(leaf, wanted):
    return isinstance(leaf, Captured) and isinstance(wanted, Captured) and leaf._table is wanted._table


_traces: dict[Any, list[Trace]] = {}
_lock = threading.Lock()
_MOST_TRACES = 1024
_MOST_VARIANTS = 16  # of one function, for other numbers that became constants


def trace(function, kind):
    """(node, {leaf: value}): the rule of a function in FlexAttention's signature, and the values that it captures now."""
    arguments = _MASK if kind == "mask" else _SCORE
    _check_signature(function, kind)
    captures = Captures(function)
    signature = captures.signature
    key = None if signature is None else (kind, signature)
    if key is not None:
        for known in tuple(_traces.get(key, ())):
            if known.fits(captures.values):
                return known.node, _values(known, captures.values)
    made = _trace(function, arguments, captures)
    values = _values(made, captures.values)
    if key is not None and not any(_is_tensor(value) for _, value in made.constants):
        _keep(key, made)
    return made.node, values


def _keep(key, made):
    """Keeps a trace, but not the tensors that it was made with: each call brings its own."""
    for leaf in made.leaves:
        if isinstance(leaf, Captured):
            leaf._table.tensor = None
    with _lock:
        if len(_traces) >= _MOST_TRACES:
            _traces.pop(next(iter(_traces)))
        variants = _traces.setdefault(key, [])
        if len(variants) >= _MOST_VARIANTS:
            variants.pop(0)
        variants.append(made)


def _values(known, values):
    result = {}
    for leaf, value in zip(known.leaves, values):
        if isinstance(leaf, ex.Scalar):
            result[leaf] = ex.check_value(leaf.name, value)
        elif leaf is not None:
            result[leaf._table] = value
    return result


def _check_signature(function, kind):
    wanted = "(b, h, q_idx, kv_idx)" if kind == "mask" else "(score, b, h, q_idx, kv_idx)"
    count = 4 if kind == "mask" else 5
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise TraceError(f"{_place_of(function)}: a {kind} function takes {wanted}; '{name}' does not") from None
    except ValueError:
        pass  # a builtin without a signature
