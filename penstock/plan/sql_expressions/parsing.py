"""The parser of Spark SQL expressions."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.ddl import unknown_type
from penstock.errors import BadExpression
from penstock.plan.sql_expressions.types import SUFFIXED

_KEYWORD_CALLS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION", "OVERLAY")
_KEYWORDS = ("CASE", "IF")
_WITH_UNIT = ("timestampadd", "timestampdiff", "date_add", "dateadd", "date_diff", "datediff")
# sqlglot's builders of single functions trust their arguments; map(1) is an IndexError there.
_SQLGLOT_ERRORS = (SqlglotError, IndexError, KeyError, ValueError, TypeError, AttributeError)
_LIST_STARTS = (TokenType.COMMA, TokenType.L_PAREN)
_LIST_ENDS = (TokenType.COMMA, TokenType.R_PAREN)


def _positive(parser: SparkParser) -> exp.Expr | None:
    """Read `+x` as `positive(x)`, which converts a text to a number; sqlglot would leave the sign out."""
    operand = parser._parse_unary()
    inner = operand.unnest() if operand is not None else None
    if inner is None or isinstance(inner, exp.Neg) or (isinstance(inner, exp.Literal) and not inner.is_string):
        return operand
    return exp.Anonymous(this="positive", expressions=[operand])


_UNARY = {**SparkParser.UNARY_PARSERS, TokenType.PLUS: _positive}


class Doubling(Spark):
    """Spark SQL in which a doubled quote inside a string is one quote; sqlglot takes it for two strings."""

    class Tokenizer(Spark.Tokenizer):
        """A quote escapes itself."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']


class Verbatim(Doubling):
    """Spark SQL in which each call has the name that the user wrote.

    sqlglot gives many functions one neutral form to translate them; Spark's types depend on Spark's names.
    """

    class Parser(SparkParser):
        """Only calls with keywords among their arguments have a form of their own."""

        FUNCTIONS: ClassVar = {}
        UNARY_PARSERS: ClassVar = _UNARY
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in _KEYWORD_CALLS
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name in _KEYWORDS
        }


class Translatable(Doubling):
    """Spark SQL in sqlglot's neutral form, except that `any(x)` is the aggregate that it is in Spark."""

    class Parser(SparkParser):
        """ANY is not a quantifier."""

        UNARY_PARSERS: ClassVar = _UNARY
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name != "ANY"
        }


def parse(sql: str, *, node: str) -> exp.Expression:
    """Return the tree of one expression, ready to be translated to other dialects of SQL."""
    return _read(sql, Translatable, node)


def parse_verbatim(sql: str, *, node: str) -> exp.Expression:
    """Return the tree of one expression with every function named as in Spark."""
    tree = _read(sql, Verbatim, node)
    for cast in tree.find_all(exp.TryCast):
        digits = cast.this.name if isinstance(cast.this, exp.Literal) else None
        cast.meta[SUFFIXED] = bool(digits and re.search(rf"\b{re.escape(digits)}[LSY]\b", sql, re.IGNORECASE))
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() in _WITH_UNIT and len(call.expressions) == 3:
            # HOUR in timestampadd(HOUR, 1, ts) is a word of the grammar, not a column.
            call.expressions[0].replace(exp.Var(this=call.expressions[0].name))
    return tree


def _read(sql: object, dialect: type[Spark], node: str) -> exp.Expression:
    if not isinstance(sql, str):
        message = f"{sql!r} is not an SQL expression"
        raise BadExpression(message, node=node, hint="pass a string: Penstock's expressions are Spark SQL")
    if not sql.strip():
        message = "an empty expression"
        raise BadExpression(message, node=node, hint='write Spark SQL, such as "price * size"')
    try:
        tree = sqlglot.parse_one(sql, dialect=dialect, into=exp.Condition, error_message_context=len(sql))
    except _SQLGLOT_ERRORS as error:
        raise _syntax_error(sql, error, node) from None
    tokens = Spark().tokenize(sql)
    _no_gaps(sql, tokens, node)
    _no_foreign_letters(sql, tokens, node)
    if not isinstance(tree, exp.Expression) or tree.key == "block" or sql.rstrip().endswith(";"):
        message = f'more than one expression in "{sql}"'
        raise BadExpression(message, node=node, hint="remove the semicolon")
    return tree


def _no_foreign_letters(sql: str, tokens: list[Token], node: str) -> None:
    """Refuse names that sqlglot reads and Spark does not: its names are ASCII unless they are quoted."""
    for token in tokens:
        if token.token_type == TokenType.VAR and not token.text.isascii():
            message = f"'{token.text}' has to be quoted in \"{sql}\""
            hint = f"Spark SQL takes only ASCII letters in bare names; put it in backticks: `{token.text}`"
            raise BadExpression(message, node=node, hint=hint)


def _no_gaps(sql: str, tokens: list[Token], node: str) -> None:
    """Refuse `f(a,,b)`, which sqlglot reads as `f(a, b)`."""
    for left, right in pairwise(tokens):
        commas = TokenType.COMMA in (left.token_type, right.token_type)
        if commas and left.token_type in _LIST_STARTS and right.token_type in _LIST_ENDS:
            message = f'cannot read "{sql}": an argument is missing, at position {right.start + 1}'
            raise BadExpression(message, node=node, hint=f"{_one_line(sql)}\n  {' ' * right.start}^ here")


def _syntax_error(sql: str, error: Exception, node: str) -> BadExpression:
    """Return the error of sqlglot, with its position."""
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    if found.get("start_context") is None:
        message = f'cannot read "{sql}"'
        return BadExpression(message, node=node, hint="it is not a Spark SQL expression")
    before = len(found["start_context"])
    hint = f"{_one_line(sql)}\n  {' ' * before}^ here"
    if word := _wrong_type(sql, before):
        message = f"unknown type '{word}' in \"{sql}\""
        return BadExpression(message, node=node, hint=f"{hint}\n  {unknown_type(word)}")
    message = f'cannot read "{sql}": {_reason(found["description"])}, at position {before + 1}'
    return BadExpression(message, node=node, hint=hint)


def _wrong_type(sql: str, position: int) -> str | None:
    """Return the word at a position where a type is expected: after AS in a cast, or after `::`."""
    before = re.search(r"(\bcast\s*\(.*\bas|::)\s*$", sql[:position], re.IGNORECASE | re.DOTALL)
    word = re.match(r"\w+", sql[position:])
    return word[0] if before and word else None


def _reason(description: str) -> str:
    """Return sqlglot's description without the names of its classes."""
    if description.startswith("Required"):
        return "something is missing"
    if description.startswith("Invalid expression"):
        return "this was not expected"
    return description.rstrip(".").replace("Expecting", "expected")


def _one_line(sql: str) -> str:
    return sql.replace("\n", " ").replace("\t", " ")
