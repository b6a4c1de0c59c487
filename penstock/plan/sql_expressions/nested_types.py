"""The result types of Spark's functions on arrays, maps and structs, and of those that take lambdas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import exp

from penstock.plan.sql_expressions import functions
from penstock.plan.sql_expressions.functions import refuses
from penstock.plan.sql_expressions.result_types import FIXED, SCALARS, Call, CannotTellType, Rule, number
from penstock.plan.sql_expressions.types import BOOLEAN, DOUBLE, INT, STRING, VOID, Type, array, common, mapping, struct

_FLAT_GROUPS = ("math_funcs", "string_funcs", "datetime_funcs", "bitwise_funcs")
_TAKE_NESTED = ("concat_ws", "greatest", "least", "format_string", "printf")


def result(call: Call) -> Type | None:
    """Return the type of a call; None if its arguments do not fit."""
    if not _fits(call):
        return None
    if call.name in FIXED:
        return FIXED[call.name]
    rule = NESTED.get(call.name) or SCALARS.get(call.name)
    if rule is None:
        raise CannotTellType
    return rule(call)


def element(kind: Type) -> Type | None:
    """Return what an array holds."""
    return kind.parts[0] if kind.name == "array" else None


def field(kind: Type, name: str) -> Type | None:
    """Return the type of `value.name`: a struct's field, that of an array's structs, a map's value."""
    if kind.name == "struct" and name in kind.fields:
        return kind.parts[kind.fields.index(name)]
    if kind.name == "map":
        return kind.parts[1]
    inner = element(kind)
    found = field(inner, name) if inner and inner.name == "struct" else None
    return array(found) if found else None


def _fits(call: Call) -> bool:
    """Whether arguments are of the kind that a function takes, where its group implies that."""
    group = functions.group(call.name)
    if refuses(call.name, call.args):
        return False
    if group == "math_funcs" and FIXED.get(call.name) == DOUBLE:
        return all(map(number, call.args))
    return group not in _FLAT_GROUPS or call.name in _TAKE_NESTED or not any(arg.parts for arg in call.args)


def _item(call: Call) -> Type | None:
    kind = call.args[0]
    return kind.parts[1] if kind.name == "map" else element(kind)


def _same_array(call: Call) -> Type | None:
    return call.args[0] if call.args[0].name == "array" else None


def _set_operation(call: Call) -> Type | None:
    left, right = element(call.args[0]), element(call.args[1])
    kind = _closest(left, right) if left and right else None
    return array(kind) if kind else None


def _maps(call: Call) -> Type | None:
    return common(call.args) if all(arg.name == "map" for arg in call.args) else None


def _with_value(position: int, call: Call) -> Type | None:
    inner = element(call.args[0])
    kind = _closest(inner, call.args[position]) if inner else None
    return array(kind) if kind else None


def _closest(inner: Type, value: Type) -> Type | None:
    """Return what two elements become; Spark widens other numbers here by rules that hold nowhere else."""
    if inner != value and VOID not in (inner, value) and not (inner.is_integer and value.is_integer):
        raise CannotTellType
    return common((inner, value))


def _reversed(call: Call) -> Type | None:
    return call.args[0] if call.args[0].name in ("array", "binary") else STRING


def _array_of_first(call: Call) -> Type | None:
    return array(call.args[0])


def _array(call: Call) -> Type | None:
    kind = common(call.args)
    return array(kind) if kind else None


def _sequence(call: Call) -> Type | None:
    kind = common(call.args[:2])
    return array(kind) if kind else None


def _flattened(call: Call) -> Type | None:
    inner = element(call.args[0])
    return inner if inner and inner.name == "array" else None


def _map(call: Call) -> Type | None:
    key, value = common(call.args[::2]), common(call.args[1::2])
    return mapping(key, value) if key and value and len(call.args) % 2 == 0 else None


def _map_from_arrays(call: Call) -> Type | None:
    key, value = element(call.args[0]), element(call.args[1])
    return mapping(key, value) if key and value else None


def _map_from_entries(call: Call) -> Type | None:
    entry = element(call.args[0])
    return mapping(*entry.parts) if entry and entry.name == "struct" and len(entry.parts) == 2 else None


def _of_map(make: Callable[[Type, Type], Type], call: Call) -> Type | None:
    return make(*call.args[0].parts) if call.args[0].name == "map" else None


def _entries(key: Type, value: Type) -> Type:
    return array(struct([("key", key), ("value", value)]))


def _struct(call: Call) -> Type | None:
    names = (_name(node) or f"col{place}" for place, node in enumerate(call.nodes, 1))
    return struct(zip(names, call.args, strict=True))


def _named_struct(call: Call) -> Type | None:
    names = [call.literal(place) for place in range(0, len(call.args), 2)]
    return struct(zip(names, call.args[1::2], strict=True)) if len(call.args) % 2 == 0 else None


def _zipped(call: Call) -> Type | None:
    kinds = [element(arg) for arg in call.args]
    names = [_name(node) or str(place) for place, node in enumerate(call.nodes)]
    known = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind]
    return array(struct(known)) if len(known) == len(kinds) else None


def _name(node: exp.Expr) -> str | None:
    """Return the implicit name of a value."""
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    return node.alias_or_name if isinstance(node, (exp.Column, exp.Alias, exp.Identifier)) else None


def _arguments(call: Call, node: exp.Expr) -> tuple[Type, ...]:
    """Return the types of a lambda's variables: the element, and its index if it is asked for."""
    inner = element(call.args[0])
    return (inner, INT)[: len(node.expressions)] if inner else ()


def _transform(call: Call) -> Type | None:
    given = _arguments(call, call.nodes[1])
    return array(call.body(call.nodes[1], given)) if given else None


def _filter(call: Call) -> Type | None:
    given = _arguments(call, call.nodes[1])
    return call.args[0] if given and call.body(call.nodes[1], given) == BOOLEAN else None


def _tested(call: Call) -> Type | None:
    return BOOLEAN if _filter(call) else None


def _sorted(call: Call) -> Type | None:
    inner = element(call.args[0])
    if inner and len(call.nodes) > 1:
        call.body(call.nodes[1], (inner, inner))
    return call.args[0] if inner else None


def _folded(call: Call) -> Type | None:
    inner, state = element(call.args[0]), call.args[1]
    if inner is None or common((state, call.body(call.nodes[2], (state, inner)))) is None:
        return None
    return call.body(call.nodes[3], (state,)) if len(call.nodes) > 3 else state


def _zip_with(call: Call) -> Type | None:
    left, right = element(call.args[0]), element(call.args[1])
    return array(call.body(call.nodes[2], (left, right))) if left and right else None


def _with_entry(make: Callable[[Type, Type], Callable[[Type], Type | None]], call: Call) -> Type | None:
    kind = call.args[0]
    if kind.name != "map":
        return None
    return make(*kind.parts)(call.body(call.nodes[1], kind.parts))


def _map_zip_with(call: Call) -> Type | None:
    left, right = call.args[0], call.args[1]
    if left.name != "map" or right.name != "map":
        return None
    key = common((left.parts[0], right.parts[0]))
    return mapping(key, call.body(call.nodes[2], (key, left.parts[1], right.parts[1]))) if key else None


_BY_RULE: list[tuple[str, Rule]] = [
    ("element_at try_element_at", _item),
    ("get array_max array_min", lambda call: element(call.args[0])),
    ("array_compact array_distinct array_remove collect_union shuffle slice sort_array", _same_array),
    ("array_append array_prepend", partial(_with_value, 1)),
    ("array_insert", partial(_with_value, 2)),
    ("array_except array_intersect array_union", _set_operation),
    ("map_concat", _maps),
    ("reverse", _reversed),
    ("array_agg array_repeat collect_list collect_set", _array_of_first),
    ("array", _array),
    ("sequence", _sequence),
    ("flatten", _flattened),
    ("map", _map),
    ("map_from_arrays", _map_from_arrays),
    ("map_from_entries", _map_from_entries),
    ("map_keys", partial(_of_map, lambda key, value: array(key))),
    ("map_values", partial(_of_map, lambda key, value: array(value))),
    ("map_entries", partial(_of_map, _entries)),
    ("struct", _struct),
    ("named_struct", _named_struct),
    ("arrays_zip", _zipped),
    ("transform", _transform),
    ("filter", _filter),
    ("exists forall", _tested),
    ("array_sort", _sorted),
    ("aggregate reduce", _folded),
    ("zip_with", _zip_with),
    ("map_filter", partial(_with_entry, lambda key, value: lambda kind: mapping(key, value))),
    ("transform_keys", partial(_with_entry, lambda key, value: lambda kind: mapping(kind, value))),
    ("transform_values", partial(_with_entry, lambda key, value: lambda kind: mapping(key, kind))),
    ("map_zip_with", _map_zip_with),
]
NESTED: dict[str, Rule] = {name: rule for names, rule in _BY_RULE for name in names.split()}
