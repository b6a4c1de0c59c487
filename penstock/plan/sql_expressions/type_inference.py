"""Type inference, bottom-up: the type that Spark's analyzer would find, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from sqlglot import exp

from penstock.errors import BadExpression, BadSchema, UnknownColumn, choices
from penstock.plan.sql_expressions.arithmetic_types import SIGNS, bits, operate
from penstock.plan.sql_expressions.functions import advice, one_type, wrong_unit
from penstock.plan.sql_expressions.nested_types import element, field, result
from penstock.plan.sql_expressions.result_types import Call, CannotTellType, date_field, number
from penstock.plan.sql_expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    cast_advice,
    castable,
    common,
    interval_type,
    number_type,
    operands,
    read,
)
from penstock.schema import Schema

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
_CONNECTORS = (exp.And, exp.Or, exp.Not)
# Texts that Spark takes as conditions.
_TRUTHS = ("true", "false", "t", "f", "yes", "no", "y", "n")
# The value of these is not what decides: the group is ordered by it.
_TYPED_BY_ORDER = ("percentile_cont", "percentile_disc", "mode")


class Inference:
    """Types one expression over one schema, and records the columns that it reads."""

    def __init__(self, schema: Schema, sql: str, node: str) -> None:
        self.schema = schema
        self.sql = sql
        self.node = node
        self.columns: set[str] = set()
        self._variables: dict[str, Type] = {}

    def infer(self, tree: exp.Expr) -> Type:
        """Return the type of a whole expression."""
        try:
            return self.type_of(tree)
        except CannotTellType as untold:
            call = untold.args[0]
            self._refuse(f"cannot infer the type of {call}", f"wrap it in cast({call} as TYPE)")

    def type_of(self, tree: exp.Expr) -> Type:
        """Return the type of a part, or raise if it cannot be inferred."""
        handler = _HANDLERS.get(type(tree))
        if handler is None:
            self._refuse(f"'{_text(tree)}' is not understood")
        return handler(self, tree)

    def types_of(self, trees: Iterable[exp.Expr]) -> tuple[Type, ...]:
        """Return the types of some trees."""
        return tuple(map(self.type_of, trees))

    def _refuse(self, reason: str, hint: str | None = None) -> NoReturn:
        message = f'{reason} in "{self.sql}"'
        raise BadExpression(message, node=self.node, hint=hint)

    def _require(self, kind: Type | None, tree: exp.Expr, parts: Iterable[Type], hint: str | None = None) -> Type:
        if kind is None:
            kinds = list(parts)
            advice = hint or one_type(kinds)
            self._refuse(f"'{_text(tree)}' does not take {', '.join(map(str, kinds)) or 'this'}", advice)
        return kind

    def column(self, tree: exp.Expr) -> Type:
        """Type `a`, `a.x` and `a.x.y`: a column, then fields of it."""
        if not all(isinstance(part, exp.Identifier) for part in _parts(tree)):
            self._refuse(f"'{_text(tree)}' is not understood", "name the columns one by one")
        name, *fields = (part.name for part in _parts(tree))
        if name not in self.schema:
            message = f"unknown column '{name}' in \"{self.sql}\""
            whole = ".".join((name, *fields))
            quote = f"write `{whole}` for the column of that name\n  " if whole in self.schema else ""
            hint = quote + choices("columns here", self.schema.names, name)
            raise UnknownColumn(message, node=self.node, hint=hint)
        self.columns.add(name)
        kind = read(self.schema.types[name])
        for each in fields:
            kind = self._field(kind, each, name)
        return kind

    def _field(self, kind: Type, name: str, owner: str) -> Type:
        found = field(kind, name)
        if found:
            return found
        fields = kind.parts[0].fields if kind.name == "array" else kind.fields
        if not fields:
            self._refuse(
                f"'{owner}' is {kind} and has no field '{name}'",
                "only a struct has fields: use the name of the column without it",
            )
        message = f"unknown field '{name}' of '{owner}' in \"{self.sql}\""
        raise UnknownColumn(message, node=self.node, hint=choices("fields here", fields, name))

    def dot(self, tree: exp.Expr) -> Type:
        """Type `value.field` where the value is not a plain column."""
        if not isinstance(tree.expression, exp.Identifier):
            self._refuse(f"'{_text(tree)}' is not understood", "functions are called by their bare name")
        return self._field(self.type_of(tree.this), tree.expression.name, _text(tree.this))

    def variable(self, tree: exp.Expr) -> Type:
        """Type a variable of a lambda."""
        if tree.name not in self._variables:
            self._refuse(f"unknown name '{tree.name}'")
        return self._variables[tree.name]

    def body(self, tree: exp.Expr, given: tuple[Type, ...]) -> Type:
        """Type a lambda's body, given the types of its variables."""
        if not isinstance(tree, exp.Lambda) or len(tree.expressions) != len(given):
            self._refuse(f"'{_text(tree)}' should be a lambda of {len(given)} variables")
        outer = self._variables
        names = (variable.name for variable in tree.expressions)
        self._variables = outer | dict(zip(names, given, strict=True))
        try:
            return self.type_of(tree.this)
        finally:
            self._variables = outer

    def call(self, tree: exp.Expr) -> Type:
        """Type a function call."""
        return self._call(tree.name.lower(), tree, tuple(tree.expressions))

    def _call(self, name: str, tree: exp.Expr, nodes: tuple[exp.Expr, ...]) -> Type:
        name = _full_form(name, nodes)
        if wrong := wrong_unit(name, nodes):
            self._refuse(*wrong)
        args = self.types_of(nodes)
        try:
            kind = result(Call(name, args, nodes, self.body))
        except CannotTellType:
            raise CannotTellType(_text(tree)) from None
        return self._require(kind, tree, args, advice(name, args, _text(nodes[0])) if nodes else None)

    def within_group(self, tree: exp.Expr) -> Type:
        """Type `f(...) WITHIN GROUP (ORDER BY x)`."""
        inner = tree.this
        ordered = tuple(part.this for part in tree.expression.expressions)
        self.types_of(ordered)
        if inner.name.lower() in _TYPED_BY_ORDER:
            return self._call(inner.name.lower(), tree, (*ordered, *inner.expressions))
        return self.type_of(inner)

    def filtered(self, tree: exp.Expr) -> Type:
        """Type `f(...) FILTER (WHERE condition)`."""
        self._must_be_boolean(tree.expression.this)
        return self.type_of(tree.this)

    def cast(self, tree: exp.Expr) -> Type:
        """Type a cast; this is how a user states a type that is not known here."""
        given: Type | None = None
        try:
            given = self.type_of(tree.this)
        except CannotTellType:
            for column in tree.find_all(exp.Column):
                self.column(column)
        try:
            target = read(_text(tree.args["to"]))
        except BadSchema as error:
            self._refuse(error.message, error.hint)
        if given is not None and not castable(given, target):
            self._refuse(f"{given} cannot be cast to {target}", cast_advice(given, target, _text(tree.this)))
        return target

    def literal(self, tree: exp.Expr) -> Type:
        """Type a number or a string as it is written."""
        if tree.args["is_string"]:
            return STRING
        return number_type(tree.name)

    def negated(self, tree: exp.Expr) -> Type:
        """Type `-x`."""
        if isinstance(tree.this, exp.Literal) and not tree.this.args["is_string"]:
            return number_type(tree.this.name, negative=True)
        kind = self.type_of(tree.this)
        return self._require(kind if kind.is_interval else number(kind), tree, [kind])

    def arithmetic(self, tree: exp.Expr) -> Type:
        """Type + - * / % and div."""
        sides = (tree.this, tree.expression)
        kinds = self.types_of(sides)
        return self._require(operate(SIGNS[type(tree)], *operands(sides, kinds)), tree, kinds)

    def bitwise(self, tree: exp.Expr) -> Type:
        """Type & | ^ ~ and shifts."""
        kinds = self.types_of(tree.iter_expressions())
        if isinstance(tree, (exp.BitwiseLeftShift, exp.BitwiseRightShift)):
            return self._require(bits(kinds[0], INT if kinds[0] != BIGINT else BIGINT), tree, kinds)
        return self._require(bits(kinds[0], kinds[-1]), tree, kinds)

    def compared(self, tree: exp.Expr) -> Type:
        """Type a comparison, BETWEEN and IN."""
        kinds = self.types_of(_flat(tree.iter_expressions()))
        comparable = not any(kind.has_map for kind in kinds)
        self._require(common(kinds) if comparable else None, tree, kinds)
        return BOOLEAN

    def matched(self, tree: exp.Expr) -> Type:
        """Type LIKE and its family."""
        self.types_of(_flat(tree.iter_expressions()))
        return BOOLEAN

    def connected(self, tree: exp.Expr) -> Type:
        """Type AND, OR and NOT."""
        for part in tree.iter_expressions():
            self._must_be_boolean(part)
        return BOOLEAN

    def tested(self, tree: exp.Expr) -> Type:
        """Type `x IS NULL`, and `x IS TRUE`, for which Spark would convert a text."""
        if isinstance(tree.expression, exp.Boolean):
            self._must_be_boolean(tree.this)
        return self.fixed(tree, BOOLEAN)

    def _must_be_boolean(self, tree: exp.Expr) -> None:
        kind = self.type_of(tree)
        if kind not in (BOOLEAN, VOID) and not (isinstance(tree, exp.Literal) and tree.name.lower() in _TRUTHS):
            self._refuse(f"'{_text(tree)}' is {kind}, not boolean,", f"compare it with something: {_text(tree)} = ...")

    def case(self, tree: exp.Expr) -> Type:
        """Type CASE, with and without an operand."""
        branches, subject = tree.args["ifs"], tree.this
        tests = [branch.this for branch in branches]
        if subject:
            kinds = self.types_of([subject, *tests])
            self._require(common(kinds), tree, kinds)
        else:
            for test in tests:
                self._must_be_boolean(test)
        values = [branch.args["true"] for branch in branches] + [tree.args.get("default") or exp.Null()]
        return self._one_of(tree, values)

    def choice(self, tree: exp.Expr) -> Type:
        """Type IF."""
        self._must_be_boolean(tree.this)
        return self._one_of(tree, [tree.args["true"], tree.args.get("false") or exp.Null()])

    def _one_of(self, tree: exp.Expr, values: list[exp.Expr]) -> Type:
        kinds = self.types_of(values)
        return self._require(common(kinds), tree, kinds)

    def indexed(self, tree: exp.Expr) -> Type:
        """Type `array[0]` and `map['key']`."""
        kind, *places = self.types_of([tree.this, *tree.expressions])
        if kind.name == "struct" and isinstance(tree.expressions[0], exp.Literal):
            return self._field(kind, tree.expressions[0].name, _text(tree.this))
        found = kind.parts[1] if kind.name == "map" else element(kind)
        return self._require(found, tree, (kind, *places))

    def interval(self, tree: exp.Expr) -> Type:
        """Type INTERVAL in the units that it is written in."""
        kind = interval_type(tree.args.get("unit"))
        if kind is None:
            self._refuse(f"'{_text(tree)}' has no unit", "write INTERVAL 5 MINUTES")
        self.type_of(tree.this)
        return kind

    def extracted(self, tree: exp.Expr) -> Type:
        """Type `extract(field FROM value)`."""
        kind = self.type_of(tree.expression)
        if not isinstance(tree.this, (exp.Var, exp.Literal)):
            self._refuse(f"'{_text(tree)}' names no field", "write extract(HOUR FROM ts)")
        return self._require(date_field(tree.this.name, kind), tree, [kind])

    def joined(self, tree: exp.Expr) -> Type:
        """Type `a || b`."""
        return self._call("concat", tree, tuple(tree.iter_expressions()))

    def cut(self, tree: exp.Expr) -> Type:
        """Type substring and overlay, whatever way their arguments are written."""
        if isinstance(tree, exp.Substring) and tree.args.get("start") is None:
            self._refuse(
                f"'{_text(tree)}' has no start position", "write substring(text, 1, 3): from the first, three long"
            )
        return self._call("substring", tree, tuple(tree.iter_expressions()))

    def inner(self, tree: exp.Expr) -> Type:
        """Type a wrapper, such as parentheses."""
        return self.type_of(tree.this)

    def pair(self, tree: exp.Expr) -> Type:
        """Type `(a, b)`, which is a struct."""
        return self._call("struct", tree, tuple(tree.expressions))

    def fixed(self, tree: exp.Expr, kind: Type) -> Type:
        """Check the parts of an expression with a fixed type."""
        self.types_of(part for part in tree.iter_expressions() if not isinstance(part, exp.Var))
        return kind


def _text(tree: exp.Expr) -> str:
    """Return a part as the user wrote it."""
    try:
        return tree.sql("spark", normalize_functions=False)
    except ValueError:
        # sqlglot reads some types that it cannot write, such as FLOAT(k).
        return tree.key


def _parts(tree: exp.Expr) -> list[exp.Expr]:
    """Return the identifiers of a column, outermost first."""
    return [part for key in ("catalog", "db", "table", "this") if (part := tree.args.get(key))]


def _full_form(name: str, nodes: tuple[exp.Expr, ...]) -> str:
    """Distinguish `date_add(HOUR, 1, ts)` from `date_add(date, 1)`."""
    if nodes and isinstance(nodes[0], exp.Var):
        return "timestampadd" if name.endswith("add") else "timestampdiff"
    return name


def _flat(trees: Iterable[exp.Expr]) -> list[exp.Expr]:
    """Return trees with tuples, as in LIKE ANY ('a', 'b'), taken apart."""
    nested = (exp.Any, exp.All, exp.Tuple)
    return [part for tree in trees for part in (_flat(tree.iter_expressions()) if isinstance(tree, nested) else [tree])]


def _always(kind: Type) -> Callable[[Inference, exp.Expr], Type]:
    return lambda inference, tree: inference.fixed(tree, kind)


_HANDLERS: dict[type[exp.Expr], Callable[[Inference, exp.Expr], Type]] = {
    exp.Column: Inference.column,
    exp.Identifier: Inference.variable,
    exp.Dot: Inference.dot,
    exp.Anonymous: Inference.call,
    exp.WithinGroup: Inference.within_group,
    exp.Filter: Inference.filtered,
    exp.Cast: Inference.cast,
    exp.TryCast: Inference.cast,
    exp.Literal: Inference.literal,
    exp.Neg: Inference.negated,
    exp.Case: Inference.case,
    exp.If: Inference.choice,
    exp.Bracket: Inference.indexed,
    exp.Interval: Inference.interval,
    exp.Extract: Inference.extracted,
    exp.DPipe: Inference.joined,
    exp.Substring: Inference.cut,
    exp.Overlay: Inference.cut,
    exp.Tuple: Inference.pair,
    exp.Paren: Inference.inner,
    exp.Alias: Inference.inner,
    exp.IgnoreNulls: Inference.inner,
    exp.RespectNulls: Inference.inner,
    exp.Lambda: lambda inference, tree: VOID,
    exp.Var: lambda inference, tree: VOID,
    exp.Star: lambda inference, tree: VOID,
    exp.Null: _always(VOID),
    exp.Boolean: _always(BOOLEAN),
    exp.Is: Inference.tested,
    exp.HexString: lambda inference, tree: BINARY,
    exp.RawString: lambda inference, tree: STRING,
    exp.Concat: _always(STRING),
    exp.Trim: _always(STRING),
    exp.StrPosition: _always(INT),
    exp.CurrentDate: _always(DATE),
    exp.CurrentTimestamp: _always(TIMESTAMP),
    exp.CurrentUser: _always(STRING),
    exp.SessionUser: _always(STRING),
    **dict.fromkeys(SIGNS, Inference.arithmetic),
    **dict.fromkeys((*_COMPARISONS, exp.Between, exp.In), Inference.compared),
    **dict.fromkeys(_PATTERNS, Inference.matched),
    **dict.fromkeys(_CONNECTORS, Inference.connected),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot), Inference.bitwise),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), Inference.bitwise),
}
