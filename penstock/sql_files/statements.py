"""The statements of an SQL file, each with its line.

CREATE TABLE name (column TYPE, ..., PRIMARY KEY (column, ...)) WITH (connector = '...', option = value, ...)
CREATE VIEW name AS query
CREATE SINK name WITH (connector = '...', option = value, ...)
INSERT INTO sink query
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import BadEntry
from penstock.query.parsing import Query

_FORMS = "CREATE TABLE, CREATE VIEW, CREATE SINK and INSERT INTO"


@dataclass(frozen=True)
class Statement:
    """What a statement makes: a "table", a "view", a "sink" or an "insert", and the line that it begins in."""

    kind: str
    name: str
    line: int
    columns: str = ""
    key: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    query: str = ""


def read_statements(text: str, file: str) -> list[Statement]:
    """Return the statements of a file; an error names the line."""
    try:
        tokens = Query().tokenize(text)
    except SqlglotError as error:
        message = f"{file} is not SQL: {(str(error).splitlines() or [''])[0]}"
        raise BadEntry(message, hint="is a quote or a comment left open?") from None
    found: list[Statement] = []
    start = 0
    for place in [*(n for n, token in enumerate(tokens) if token.token_type == TokenType.SEMICOLON), len(tokens)]:
        if part := tokens[start:place]:
            found.append(_Reader(part, text, file).statement())
        start = place + 1
    return found


class _Reader:
    """Reads one statement, token by token."""

    def __init__(self, tokens: Sequence[Token], text: str, file: str) -> None:
        self._tokens, self._text, self._file = tokens, text, file
        self._at = 0

    def statement(self) -> Statement:
        line = self._tokens[0].line
        if self._take("INSERT", "INTO"):
            return Statement("insert", self._name(), line, query=self._rest("a query: SELECT ..."))
        if self._take("CREATE", "TABLE") or self._take("CREATE", "SOURCE"):
            return self._table(line)
        if self._take("CREATE", "VIEW") or self._take("CREATE", "MATERIALIZED", "VIEW"):
            name = self._name()
            self._expect("AS")
            return Statement("view", name, line, query=self._rest("a query: SELECT ..."))
        if self._take("CREATE", "SINK"):
            name = self._name()
            found = Statement("sink", name, line, options=self._options())
            return self._ended(found)
        words = " ".join(token.text.upper() for token in self._tokens[:2])
        self._fail(f"{words} is not available", f"the statements of a file are {_FORMS}")

    def _table(self, line: int) -> Statement:
        name = self._name()
        pieces = self._list("the columns in parentheses: (id BIGINT, PRIMARY KEY (id))")
        columns, key = [], []
        for piece in pieces:
            if _is_key(piece[0]):
                key += [token.text for token in piece[1:] if token.token_type not in _MARKS]
            elif piece[0].text.upper() == "WATERMARK":
                self._fail("WATERMARK is not available", "a view has no watermark: leave it out", piece[0])
            elif len(piece) > 2 and _is_key(piece[-1]):
                key.append(piece[0].text)
                columns.append(self._between(piece[0], piece[-2]))
            else:
                columns.append(self._between(piece[0], piece[-1]))
        options = self._options()
        return self._ended(Statement("table", name, line, ", ".join(columns), tuple(key), options))

    def _options(self) -> dict[str, str]:
        self._expect("WITH")
        found = {}
        for piece in self._list("the options in parentheses: (connector = 'topic')"):
            if len(piece) != 3 or piece[1].text != "=":
                self._fail("an option is a name, = and a value", "write connector = 'topic'", piece[0])
            name = piece[0].text.lower()
            if name in found:
                self._fail(f"the option {name} is given twice", "leave one of them out", piece[0])
            found[name] = piece[2].text
        return found

    def _list(self, wanted: str) -> list[list[Token]]:
        """Return the pieces between commas of what stands in parentheses."""
        if self._peek() != "(":
            self._fail(f"{self._shown()} where a list is needed", f"write {wanted}")
        pieces: list[list[Token]] = [[]]
        depth = 0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            depth += token.token_type in _OPENING
            depth -= token.token_type in _CLOSING
            if not depth:
                return [piece for piece in pieces if piece]
            if token.token_type == TokenType.COMMA and depth == 1:
                pieces.append([])
            elif len(pieces) > 1 or pieces[0] or token.token_type != TokenType.L_PAREN:
                pieces[-1].append(token)
        self._fail("a parenthesis is not closed", f"write {wanted}")

    def _take(self, *words: str) -> bool:
        given = [token.text.upper() for token in self._tokens[self._at : self._at + len(words)]]
        if given != [*words]:
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._fail(f"{self._shown()} where {word} is needed", f"the statements of a file are {_FORMS}")

    def _name(self) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].token_type in _MARKS:
            self._fail(f"{self._shown()} where a name is needed", f"the statements of a file are {_FORMS}")
        self._at += 1
        return self._tokens[self._at - 1].text

    def _rest(self, wanted: str) -> str:
        if self._at >= len(self._tokens):
            self._fail("the end of the statement", f"write {wanted}")
        return self._between(self._tokens[self._at], self._tokens[-1])

    def _ended(self, found: Statement) -> Statement:
        if self._at < len(self._tokens):
            self._fail(f"{self._shown()} after the end of the statement", "end each statement with ;")
        return found

    def _between(self, first: Token, last: Token) -> str:
        return self._text[first.start : last.end + 1]

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _shown(self) -> str:
        return f"'{self._peek()}'" if self._peek() else "the end of the statement"

    def _fail(self, message: str, hint: str, token: Token | None = None) -> NoReturn:
        place = token or self._tokens[min(self._at, len(self._tokens) - 1)]
        raise BadEntry(f"{self._file}:{place.line}: {message}", hint=hint)  # noqa: EM102


def _is_key(token: Token) -> bool:
    """Whether a token is PRIMARY KEY, which is one."""
    return token.text.upper().split() == ["PRIMARY", "KEY"]


_OPENING = (TokenType.L_PAREN, TokenType.LT)
_CLOSING = (TokenType.R_PAREN, TokenType.GT)
_MARKS = (TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.EQ)
