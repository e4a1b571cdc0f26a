"""Expressions over b, h, q_idx, kv_idx, len_q, len_kv and score: what masks and scores are made of.

A node knows its kind (bool, int or float) and how it is written in Saccade's expression language. Operators and the functions
of PyTorch and NumPy build nodes out of nodes, which is how Python functions are traced.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from typing import Any

from saccade.errors import InvalidArgument, TraceError

BOOL, INT, FLOAT = "bool", "int", "float"
WORD = re.compile(r"(?<![0-9.A-Za-z_])[A-Za-z_][A-Za-z_0-9]*")  # a name in a text, no exponent of a number
_MOST_TEXT = 1 << 20  # characters of a rule's text


_NARROW = re.compile(r"(\bu?int(8|16)|\buint32|\buint64|complex)")


class NeedsNumbers(Exception):
    """A captured number is asked for its value: trace again with the numbers of `leaves` as constants."""

    def __init__(self, leaves):
        super().__init__()
        self.leaves = leaves


class Node:
    """One expression. Immutable."""

    __slots__ = ("kind",)
    __array_priority__ = 1000  # NumPy scalars leave operators to us
    __hash__ = object.__hash__

    def __init__(self, kind: str):
        self.kind = kind

    def text(self, names: Names) -> str:
        """The expression in Saccade's language, in parentheses unless it is an operand as it stands."""
        raise NotImplementedError

    def children(self) -> tuple[Node, ...]:
        return ()

    # What Python asks for when a function branches on data or wants a number.

    def _value_wanted(self, what: str):
        leaves = [node for node in walk(self) if isinstance(node, Scalar)]
        others = [node for node in walk(self) if not node.children() and not isinstance(node, (Scalar, Constant))]
        if leaves and not others:
            raise NeedsNumbers(leaves)
        raise TraceError(f"{what} depends on positions or scores, which are not known when a rule is made")

    def __bool__(self):
        self._value_wanted("a condition ('if', 'and', 'or', 'not', a chained comparison; use & | ~ and where())")

    def __int__(self):
        self._value_wanted("an int()")

    def __index__(self):
        self._value_wanted("an index or a range")

    def __float__(self):
        self._value_wanted("a float() or a function of the math module (use torch's, NumPy's or saccade's)")

    def __iter__(self):
        raise TraceError("positions and scores are single numbers and cannot be iterated")

    # Operators

    def __add__(self, other):
        return binary("+", self, other)

    def __radd__(self, other):
        return binary("+", other, self)

    def __sub__(self, other):
        return binary("-", self, other)

    def __rsub__(self, other):
        return binary("-", other, self)

    def __mul__(self, other):
        return binary("*", self, other)

    def __rmul__(self, other):
        return binary("*", other, self)

    def __truediv__(self, other):
        return binary("/", self, other)

    def __rtruediv__(self, other):
        return binary("/", other, self)

    def __floordiv__(self, other):
        return floor_divide(self, other)

    def __rfloordiv__(self, other):
        return floor_divide(other, self)

    def __mod__(self, other):
        return modulo(self, other)

    def __rmod__(self, other):
        return modulo(other, self)

    def __pow__(self, other):
        return power(self, other)

    def __rpow__(self, other):
        return exp(self * math.log(other)) if isinstance(other, (int, float)) and other > 0 else NotImplemented

    def __lshift__(self, other):
        return shift(self, other, "<<")

    def __rshift__(self, other):
        return shift(self, other, ">>")

    def __and__(self, other):
        return logical("&&", self, other)

    __rand__ = __and__

    def __or__(self, other):
        return logical("||", self, other)

    __ror__ = __or__

    def __xor__(self, other):
        return compare("!=", boolean(self, "^"), boolean(node_of(other), "^"))

    __rxor__ = __xor__

    def __invert__(self):
        return negation(self)

    def __neg__(self):
        return binary("-", 0, self) if self.kind != FLOAT else binary("*", -1.0, self)

    def __pos__(self):
        return self

    def __abs__(self):
        return absolute(self)

    def __eq__(self, other):
        return compare("==", self, other)

    def __ne__(self, other):
        return compare("!=", self, other)

    def __lt__(self, other):
        return compare("<", self, other)

    def __le__(self, other):
        return compare("<=", self, other)

    def __gt__(self, other):
        return compare(">", self, other)

    def __ge__(self, other):
        return compare(">=", self, other)

    # What rules written for FlexAttention call on their arguments, which are tensors of no dimensions there.

    shape = ()
    ndim = 0
    device = None

    @property
    def dtype(self):
        torch = _torch()
        return {BOOL: torch.bool, INT: torch.int32, FLOAT: torch.float32}[self.kind]

    def dim(self):
        return 0

    def to(self, *args, **kwargs):
        for given in (*args, *kwargs.values()):
            if _NARROW.search(str(given)):
                raise TraceError(f"a conversion to {given} would wrap or drop a part, which rules cannot; int32, int64, bool and floats "
                                 "are possible")
            kind = kind_of_dtype(given)
            if kind is not None:
                return self.cast(kind)
        return self  # a device

    type = to

    def cast(self, kind: str) -> Node:
        if kind == self.kind:
            return self
        if kind == BOOL:
            return compare("!=", self, 0)
        return Function("float" if kind == FLOAT else "int", (self,), kind)

    def float(self):
        return self.cast(FLOAT)

    half = bfloat16 = double = float

    def int(self):
        return self.cast(INT)

    long = int

    def short(self):
        return self.to("int16")

    char = byte = short

    def bool(self):
        return self.cast(BOOL)

    def item(self):
        self._value_wanted("item()")

    def clone(self, **_):
        return self

    detach = contiguous = clone

    def new_ones(self, *_, dtype=None, **__):
        return constant_like(1, dtype)

    def new_zeros(self, *_, dtype=None, **__):
        return constant_like(0, dtype)

    def new_full(self, _, value, dtype=None, **__):
        return constant_like(value, dtype)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        function = FUNCTIONS.get(name)
        if function is None:
            raise TraceError(f"rules know no '{name}'; known functions: {', '.join(sorted(set(FUNCTIONS)))}")
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        del types
        return call_named(function, args, kwargs or {})

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method != "__call__":
            raise TraceError(f"numpy.{ufunc.__name__}.{method} is no element-wise function")
        return call_named(ufunc, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        del types
        return call_named(function, args, kwargs)


class Constant(Node):
    __slots__ = ("value",)

    def __init__(self, value):
        super().__init__(BOOL if isinstance(value, bool) else INT if isinstance(value, int) else FLOAT)
        self.value = value

    def text(self, names):
        if self.kind == BOOL:
            return "true" if self.value else "false"
        if self.kind == INT:
            return str(self.value) if self.value >= 0 else f"(-{-self.value})"
        if math.isnan(self.value):
            return "(0.0 / 0.0)"
        if math.isinf(self.value):
            return "(1.0 / 0.0)" if self.value > 0 else "(-1.0 / 0.0)"
        written = repr(abs(self.value))
        if "." not in written and "e" not in written:
            written += ".0"
        return written if math.copysign(1, self.value) > 0 else f"(-{written})"


class Variable(Node):
    """b, h, q_idx, kv_idx, len_q, len_kv or score."""

    __slots__ = ("name",)

    def __init__(self, name, kind=INT):
        super().__init__(kind)
        self.name = name

    def text(self, names):
        return names.score if self.name == "score" else self.name


class Scalar(Node):
    """A number that is an argument of the kernel: another value compiles nothing. `declared`: its saccade_dtype where the
    value does not say it."""

    __slots__ = ("declared", "name", "value")

    def __init__(self, name, value, declared=None):
        super().__init__(FLOAT if (isinstance(value, float) if declared is None else declared == 0) else INT)
        self.name, self.value, self.declared = name, value, declared

    def text(self, names):
        return names.of(self)


class Table:
    """A tensor that rules index. Not a node: only its elements are."""

    def __init__(self, name, tensor, dtype, rank):
        self.name, self.tensor, self.dtype, self.rank = name, tensor, dtype, rank

    def kind(self):
        return BOOL if self.dtype == _DTYPE_BOOL else FLOAT if self.dtype in _DTYPES_FLOAT else INT


class Element(Node):
    """One element of a table."""

    __slots__ = ("table", "indices")

    def __init__(self, table, indices):
        super().__init__(table.kind())
        self.table, self.indices = table, tuple(integer(index, "an index") for index in indices)

    def children(self):
        return self.indices

    def text(self, names):
        return f"{names.of(self.table)}[{', '.join(bare(i.text(names)) for i in self.indices)}]"


class Binary(Node):
    __slots__ = ("left", "right", "symbol")

    def __init__(self, symbol, left, right, kind):
        super().__init__(kind)
        self.symbol, self.left, self.right = symbol, left, right

    def children(self):
        return (self.left, self.right)

    def text(self, names):
        return names.limited(f"({self.left.text(names)} {self.symbol} {self.right.text(names)})")


class Not(Node):
    __slots__ = ("operand",)

    def __init__(self, operand):
        super().__init__(BOOL)
        self.operand = operand

    def children(self):
        return (self.operand,)

    def text(self, names):
        return f"(!{self.operand.text(names)})"


class Function(Node):
    __slots__ = ("arguments", "name")

    def __init__(self, name, arguments, kind):
        super().__init__(kind)
        self.name, self.arguments = name, arguments

    def children(self):
        return self.arguments

    def text(self, names):
        return names.limited(f"{self.name}({', '.join(bare(a.text(names)) for a in self.arguments)})")


class Text(Node):
    """A piece of Saccade's language as the user wrote it, with the values of the names in it."""

    __slots__ = ("leaves", "source")

    def __init__(self, source, leaves, kind):
        super().__init__(kind)
        self.source, self.leaves = source, leaves
        unknown = [word for word in WORD.findall(source) if word not in leaves and word not in RESERVED]
        if unknown:
            raise InvalidArgument(f"unknown name {unknown[0]!r} in {source!r}: known are b, h, q_idx, kv_idx, len_q, len_kv, score and "
                                  f"the language's functions; a value is given by its name, saccade.mask(text, {unknown[0]}=...)")

    def text(self, names):
        def replaced(match):
            word = match.group()
            if word in self.leaves:
                return names.of(self.leaves[word])
            return names.score if word == "score" else word

        return f"({WORD.sub(replaced, self.source)})"


class Composed(Node):
    """`outer` with `inner` for its score."""

    __slots__ = ("inner", "outer")

    def __init__(self, inner, outer):
        super().__init__(FLOAT)
        self.inner, self.outer = inner, outer

    def children(self):
        return (self.inner, self.outer)

    def text(self, names):
        saved = names.score
        names.score = self.inner.text(names)
        try:
            return self.outer.text(names)
        finally:
            names.score = saved


class Names:
    """Gives each number and table of a rule a name of its own, as like the user's as can be, in order of appearance."""

    def __init__(self):
        self.score = "score"
        self.scalars: list[Scalar] = []
        self.tables: list[Table] = []
        self._names: dict[int, str] = {}
        self._taken = set(RESERVED)

    def of(self, leaf):
        if id(leaf) not in self._names:
            wanted = re.sub(r"\W", "_", leaf.name, flags=re.ASCII) or "value"
            if wanted[0].isdigit() or wanted[0] == "_":
                wanted = "v" + wanted
            wanted = wanted[:48]  # names have 64 characters at most
            name, count = wanted, 1
            while name in self._taken:
                count += 1
                name = f"{wanted}_{count}"
            self._taken.add(name)
            self._names[id(leaf)] = name
            (self.scalars if isinstance(leaf, Scalar) else self.tables).append(leaf)
        return self._names[id(leaf)]

    def name_of(self, leaf):
        return self._names[id(leaf)]

    def limited(self, text):
        if len(text) > _MOST_TEXT:
            raise TraceError("the rule's expression is too long; compute what does not depend on the score beforehand, in a table")
        return text


def walk(node: Node):
    """The node and everything below it, each once."""
    seen, stack = set(), [node]
    while stack:
        current = stack.pop()
        if id(current) not in seen:
            seen.add(id(current))
            stack.extend(current.children())
            yield current


def leaves_of(node: Node):
    """The numbers and tables of an expression."""
    names = Names()
    node.text(names)
    return (*names.scalars, *names.tables)


def bare(text: str) -> str:
    """Without the parentheses around the whole."""
    if not text.startswith("("):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def node_of(value: Any) -> Node:
    """A node, or a Python or NumPy number, or a tensor of no dimensions, as a node."""
    if isinstance(value, Node):
        return value
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return Constant(bool(value))
    if isinstance(value, numbers.Integral):
        return Constant(int(value))
    if isinstance(value, numbers.Real):
        return Constant(float(value))
    element = getattr(value, "saccade_element", None)
    if element is not None:
        return element()
    if hasattr(value, "__dlpack__"):
        from saccade._trace import Captured  # which needs this module

        return Captured.of(value, "table").saccade_element()
    raise TraceError(f"a {type(value).__name__} is no part of a rule; numbers, tensors, positions and scores are")


def boolean(node: Node, what: str) -> Node:
    if node.kind != BOOL:
        raise TraceError(f"{what} takes conditions; an {node.kind} was given (bits of integers are not supported)")
    return node


def integer(value, what: str) -> Node:
    node = node_of(value)
    if node.kind == FLOAT:
        raise TraceError(f"{what} must be an integer; a float was given")
    return node.cast(INT)


def _number(value) -> Node:
    node = node_of(value)
    return node.cast(INT) if node.kind == BOOL else node


def binary(symbol, left, right) -> Node:
    left, right = _number(left), _number(right)
    kind = FLOAT if symbol == "/" or FLOAT in (left.kind, right.kind) else INT
    if isinstance(left, Constant) and isinstance(right, Constant) and not (symbol == "/" and right.value == 0):
        folded = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol]
        return Constant(folded(left.value, right.value))
    return Binary(symbol, left, right, kind)


def compare(symbol, left, right) -> Node:
    left, right = node_of(left), node_of(right)
    if (left.kind == BOOL) != (right.kind == BOOL):
        left, right = _number(left), _number(right)
    if left.kind == BOOL and symbol not in ("==", "!="):
        left, right = _number(left), _number(right)
    return Binary(symbol, left, right, BOOL)


def logical(symbol, left, right) -> Node:
    name = {"&&": "&", "||": "|"}[symbol]
    left, right = boolean(node_of(left), name), boolean(node_of(right), name)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Constant):
            return other if one.value == (symbol == "&&") else one
    return Binary(symbol, left, right, BOOL)


def negation(value) -> Node:
    operand = boolean(node_of(value), "~")
    return Constant(not operand.value) if isinstance(operand, Constant) else Not(operand)


def floor_divide(left, right, rounding_mode=None) -> Node:
    del rounding_mode
    left, right = _number(left), _number(right)
    if FLOAT in (left.kind, right.kind):
        return floor(binary("/", left, right))
    return Binary("//", left, right, INT)


def modulo(left, right) -> Node:
    left, right = _number(left), _number(right)
    if FLOAT in (left.kind, right.kind):
        return left - floor_divide(left, right) * right
    return Binary("%", left, right, INT)


def power(base, exponent) -> Node:
    base, exponent = _number(base), _number(exponent)
    if isinstance(exponent, Scalar):
        raise NeedsNumbers([exponent])  # whether the base may be negative depends on it
    if isinstance(exponent, Constant):
        if exponent.value == 0.5:
            return sqrt(base)
        if float(exponent.value).is_integer() and abs(exponent.value) <= 16:
            result = Constant(1.0 if FLOAT in (base.kind, exponent.kind) or exponent.value < 0 else 1)
            for _ in range(abs(int(exponent.value))):
                result = binary("*", result, base) if not _is_one(result) else base
            return result if exponent.value >= 0 else binary("/", 1.0, result)
    if isinstance(base, Constant) and base.value > 0:
        return exp(binary("*", exponent, math.log(base.value)))
    raise TraceError("a power is known for exponents that are whole numbers up to 16 or 0.5, or for a positive constant as the "
                     "base; write exp(exponent * log(base)) where the base is positive")


def _is_one(node) -> bool:
    return isinstance(node, Constant) and node.value == 1


def shift(value, count, symbol) -> Node:
    if isinstance(count, Scalar):
        raise NeedsNumbers([count])
    count = count.value if isinstance(count, Constant) else count
    if not isinstance(count, int) or not 0 <= count < 31:
        raise TraceError(f"{symbol} takes a number of bits from 0 to 30 that is known when the rule is made")
    value = integer(value, symbol)
    return binary("*", value, 1 << count) if symbol == "<<" else floor_divide(value, 1 << count)


def absolute(value) -> Node:
    value = _number(value)
    return Function("abs", (value,), value.kind)


def _of_float(name):
    def function(value):
        return Function(name, (node_of(value).cast(FLOAT),), FLOAT)

    function.__name__ = name
    return function


exp, exp2, log, log2, sqrt, tanh = (_of_float(n) for n in ("exp", "exp2", "log", "log2", "sqrt", "tanh"))


def floor(value) -> Node:
    value = _number(value)
    return value if value.kind == INT else Function("floor", (value,), FLOAT)


def _extreme(name):
    def function(left, right):
        left, right = _number(left), _number(right)
        return Function(name, (left, right), FLOAT if FLOAT in (left.kind, right.kind) else INT)

    function.__name__ = name
    return function


minimum, maximum = _extreme("min"), _extreme("max")


def clamp(value, min=None, max=None) -> Node:  # noqa: A002  PyTorch's names
    value = _number(value)
    if min is not None:
        value = maximum(value, min)
    return value if max is None else minimum(value, max)


def where(condition, left, right) -> Node:
    """`left` where `condition` holds, else `right`."""
    condition, left, right = boolean(node_of(condition), "where()"), node_of(left), node_of(right)
    if left.kind != right.kind:
        left, right = _number(left), _number(right)
    kind = FLOAT if FLOAT in (left.kind, right.kind) else left.kind
    return Function("select", (condition, left, right), kind)


def sigmoid(value) -> Node:
    return 1.0 / (1.0 + exp(-1.0 * node_of(value)))


def relu(value) -> Node:
    return maximum(value, 0)


def divide(left, right, rounding_mode=None) -> Node:
    if rounding_mode is None:
        return binary("/", left, right)
    if rounding_mode == "floor":
        return floor_divide(left, right)
    raise TraceError(f"division rounded by '{rounding_mode}' is not supported; 'floor' and none are")


def constant_like(value, dtype=None) -> Node:
    kind = kind_of_dtype(dtype)
    return Constant(bool(value) if kind == BOOL else int(value) if kind == INT else float(value))


def _same(value, *_, **__):
    return node_of(value)


FUNCTIONS = {
    "abs": absolute, "absolute": absolute, "fabs": absolute,
    "exp": exp, "exp2": exp2, "log": log, "log2": log2, "sqrt": sqrt, "tanh": tanh, "floor": floor,
    "sigmoid": sigmoid, "relu": relu, "square": lambda x: node_of(x) * node_of(x),
    "rsqrt": lambda x: 1.0 / sqrt(x), "reciprocal": lambda x: 1.0 / node_of(x),
    "minimum": minimum, "maximum": maximum, "min": minimum, "max": maximum, "fmin": minimum, "fmax": maximum,
    "clamp": clamp, "clip": clamp, "clamp_min": lambda x, min: clamp(x, min), "clamp_max": lambda x, max: clamp(x, None, max),
    "where": where,
    "add": lambda a, b: binary("+", a, b), "sub": lambda a, b: binary("-", a, b), "subtract": lambda a, b: binary("-", a, b),
    "mul": lambda a, b: binary("*", a, b), "multiply": lambda a, b: binary("*", a, b),
    "div": divide, "divide": divide, "true_divide": divide, "floor_divide": floor_divide,
    "remainder": modulo, "mod": modulo, "pow": power, "power": power, "float_power": power,
    "neg": lambda x: -node_of(x), "negative": lambda x: -node_of(x), "positive": _same,
    "eq": lambda a, b: compare("==", a, b), "ne": lambda a, b: compare("!=", a, b),
    "lt": lambda a, b: compare("<", a, b), "le": lambda a, b: compare("<=", a, b),
    "gt": lambda a, b: compare(">", a, b), "ge": lambda a, b: compare(">=", a, b),
    "equal": lambda a, b: compare("==", a, b), "not_equal": lambda a, b: compare("!=", a, b),
    "less": lambda a, b: compare("<", a, b), "less_equal": lambda a, b: compare("<=", a, b),
    "greater": lambda a, b: compare(">", a, b), "greater_equal": lambda a, b: compare(">=", a, b),
    "logical_and": lambda a, b: logical("&&", _truth(a), _truth(b)), "logical_or": lambda a, b: logical("||", _truth(a), _truth(b)),
    "logical_not": lambda a: negation(_truth(a)), "logical_xor": lambda a, b: _truth(a) ^ _truth(b),
    "bitwise_and": lambda a, b: logical("&&", a, b), "bitwise_or": lambda a, b: logical("||", a, b),
    "bitwise_not": negation, "invert": negation, "bitwise_xor": lambda a, b: node_of(a) ^ node_of(b),
    "as_tensor": _same, "asarray": _same, "clone": _same, "detach": _same,
}
# Operators as PyTorch names them when it hands them over.
FUNCTIONS_OF_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__div__": "div", "__floordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "pow", "__and__": "bitwise_and",
    "__rand__": "bitwise_and", "__or__": "bitwise_or", "__ror__": "bitwise_or", "__xor__": "bitwise_xor",
    "__invert__": "bitwise_not", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
}
_REVERSED = {"__rsub__": "sub", "__rtruediv__": "div", "__rdiv__": "div", "__rfloordiv__": "floor_divide",
             "__rmod__": "remainder", "__rpow__": "pow"}

RESERVED = {"b", "h", "q_idx", "kv_idx", "len_q", "len_kv", "score", "true", "false", "min", "max", "abs", "select", "floor",
            "exp", "exp2", "log", "log2", "sqrt", "tanh", "float", "int"}


def _truth(value) -> Node:
    return node_of(value).cast(BOOL)


def call_named(function, args, kwargs) -> Node:
    """A function of PyTorch or NumPy, by its name, on nodes and tensors."""
    name = getattr(function, "__name__", str(function))
    if name in _REVERSED:
        return FUNCTIONS[_REVERSED[name]](*reversed(args), **kwargs)
    known = FUNCTIONS.get(FUNCTIONS_OF_OPERATORS.get(name, name))
    if known is None:
        raise TraceError(f"rules know no '{name}'; known functions: {', '.join(sorted(set(FUNCTIONS)))}")
    kwargs = {key: value for key, value in kwargs.items() if key not in ("out", "dtype") or value is not None}
    try:
        return known(*args, **kwargs)
    except TypeError as error:
        raise TraceError(f"'{name}' was called in a way that rules do not know: {error}") from None


def kind_of_dtype(dtype) -> str | None:
    """The kind of a PyTorch, NumPy or Python dtype; None for what is no dtype."""
    if dtype in (bool, int, float):
        return {bool: BOOL, int: INT, float: FLOAT}[dtype]
    name = str(dtype).rpartition(".")[2] if type(dtype).__name__ == "dtype" else getattr(dtype, "__name__", "")
    if isinstance(dtype, str):
        name = dtype
    if name == "bool":
        return BOOL
    if re.fullmatch(r"u?int\d+", name):
        return INT
    if re.fullmatch(r"b?float\d+\w*", name):
        return FLOAT
    return None


_DTYPE_BOOL = 13
_DTYPES_FLOAT = (0, 1, 2, 3, 4, 5)


def _torch():
    import torch

    return torch


def check_value(name, value):
    """A number for a Scalar."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidArgument(f"{name} is {value!r}; an int or a float is wanted")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def declared_dtype(scalar: Scalar, value) -> int:
    """saccade_dtype of a run-time number: f32, or i32 or i64 by its size."""
    if scalar.declared is not None:
        return scalar.declared
    if isinstance(value, float):
        return 0
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidArgument(f"{value} does not fit 64 bits")
    return 8 if -(1 << 31) <= value < 1 << 31 else 9


b, h, q_idx, kv_idx, len_q, len_kv = (Variable(n) for n in ("b", "h", "q_idx", "kv_idx", "len_q", "len_kv"))
score = Variable("score", FLOAT)
