"""Parses a CEL expression into a syntax tree and the list of paths that it names.

The CEL library type-checks every expression; this parser finds what must be known without it: the paths
below the variables (so that only what is named is converted), `has(path)` and `size(path)` (answered
without conversion), what is read by reference (paths, literals, lists, maps and choices of them), and the
operators, which the native evaluator understands. Calls and comprehensions are `Opaque` spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from graphflow.graph.expressions.ast import (
    COMPARISONS,
    Binary,
    Choice,
    Constant,
    FunctionCall,
    Index,
    ListOf,
    Loop,
    MapOf,
    Node,
    Opaque,
    Outline,
    Path,
    PathStep,
    Unary,
)

# Caps of the format: this parser, the library and everything that walks the tree recurse as deep as a text is nested.
MAX_CHARACTERS = 1_000
MAX_NESTING = 24

RESERVED = frozenset(
    "as break const continue else false for function if import in let loop package namespace null return true var "
    "void while".split()
)
"""Reserved words of CEL: no state key, node or `as` name may be one (E16)."""

TYPE_NAMES = frozenset("bool bytes double dyn int list map null_type string type uint duration timestamp".split())
_MACROS = {"all": (1,), "exists": (1,), "exists_one": (1,), "map": (1, 2), "filter": (1,)}
"""Macro → how many expressions may follow its variable."""
_BINDING = {"||": 1, "&&": 2, **dict.fromkeys((*COMPARISONS, "in"), 3), "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
"""How strongly each binary operator binds. No other token has one of these texts: text literals carry their quotes."""


class ExpressionSyntaxError(ValueError):
    """The text is not CEL; `at` is the offset of the place."""

    def __init__(self, message: str, at: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.at, self.hint = message, at, hint


_TOKEN = re.compile(
    r"""(?P<space>(?:\s+|//[^\n]*)+)
      | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)
      | (?P<string>[rRbB]{0,2}(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"
                  |'(?:\\.|[^\\'\n])*'|"(?:\\.|[^\\"\n])*"))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_ESCAPE = re.compile(r"\\([xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

Token = tuple[str, str, int]
"""Kind (`float`, `int`, `string`, `name`, `op`, `end`), text, offset."""


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """The tokens of `text` from `start`, white space left out.

    Raises:
        ExpressionSyntaxError: at the first character that begins no token.
    """
    at = start
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionSyntaxError(*_stray(text, at))
        kind = match.lastgroup or "op"
        if kind != "space":
            yield kind, match.group(), at
        at = match.end()


def _stray(text: str, at: int) -> tuple[str, int, str | None]:
    character = text[at]
    if character in "'\"":
        return f"text that starts with {character} is not closed", at, f"close it with {character}"
    if text.startswith("=", at):
        return "'=' is not an operator", at, None
    if character in "&|":
        return f"{character!r} is not an operator", at, f"write {character * 2!r}"
    return f"unexpected character {character!r}", at, None


def parse(text: str) -> Outline:
    """The outline of an expression.

    Raises:
        ExpressionSyntaxError: the text is not CEL, or passes a cap of spec 2.1 rule 7.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionSyntaxError(
            f"an expression has at most {MAX_CHARACTERS} characters, this one has {len(text)}",
            MAX_CHARACTERS,
            "split it over several nodes, or register a function",
        )
    if not text.strip():
        raise ExpressionSyntaxError("the expression is empty", 0)
    return _outline(_Parser(text))


def parse_part(text: str, start: int, end: int) -> Outline:
    """The outline of an expression that stands in a larger one, with offsets in the whole; both have been parsed once."""
    return _outline(_Parser(text, start, end))


def _outline(parser: _Parser) -> Outline:
    root = parser.expression()
    kind, word, at = parser.token
    if kind != "end":
        raise ExpressionSyntaxError(f"unexpected {word!r} after the expression", at)
    return parser.outline(root)


class _Parser:
    """Recursive descent over CEL's grammar; collects paths as it goes."""

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self._tokens = [*tokens(text[:end], start), ("end", "", len(text) if end is None else end)]
        self._next = 0
        self._last_end = 0
        self._depth = 0
        self._bound: list[str] = []
        self._bound_uses = 0
        self.paths: list[Path] = []
        self.operations: list[tuple[int, Binary]] = []
        self.calls: list[tuple[int, str]] = []
        self.loops: list[Loop] = []
        self.uses: list[tuple[int, str]] = []

    def outline(self, root: Node, first_path: int = 0) -> Outline:
        """What has been found, with the paths from this one on."""
        return Outline(
            self.text,
            root,
            tuple(self.paths[first_path:]),
            tuple(self.operations),
            tuple(self.calls),
            tuple(self.loops),
            tuple(self.uses),
        )

    # --- tokens

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        if token[0] != "end":
            self._next += 1
            self._last_end = token[2] + len(token[1])
        return token

    def _is(self, *words: str) -> bool:
        kind, word, _ = self.token
        return kind == "op" and word in words

    def _expect(self, word: str) -> None:
        if not self._is(word):
            kind, found, at = self.token
            shown = "the end" if kind == "end" else repr(found)
            raise ExpressionSyntaxError(f"expected {word!r}, found {shown}", at)
        self._take()

    # --- grammar

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_NESTING + 1:
            raise ExpressionSyntaxError(
                f"nested deeper than {MAX_NESTING} levels",
                self.token[2],
                "split it over several nodes, or register a function",
            )
        start = self.token[2]
        node = self._binary()
        if self._is("?"):
            self._take()
            then = self.expression()
            self._expect(":")
            other = self.expression()
            node = Choice(node, then, other, start, self._last_end)
        self._depth -= 1
        return node

    def _binary(self, loosest: int = 1) -> Node:
        """Operands joined by operators that bind at least this strongly."""
        start = self.token[2]
        node = self._unary()
        while (binding := _BINDING.get(word := self.token[1], 0)) >= loosest:
            at = self._take()[2]
            right = self._binary(binding + 1)
            node = Binary(word, node, right, start, self._last_end)
            self.operations.append((at, node))
        return node

    def _unary(self) -> Node:
        signs: list[tuple[str, int]] = []
        while self._is("!", "-"):
            # Signs nest the tree without passing through `expression`, where the depth is counted.
            if self._depth + len(signs) > MAX_NESTING:
                raise ExpressionSyntaxError(f"nested deeper than {MAX_NESTING} levels", self.token[2])
            _, sign, at = self._take()
            signs.append((sign, at))
        node = self._member()
        if len(signs) == 1 and signs[0][0] == "-" and isinstance(node, Constant) and node.type in ("int", "double"):
            return Constant(-node.value, node.type, signs[0][1], self._last_end)
        for sign, at in reversed(signs):
            node = Unary(sign, node, at, self._last_end)
        return node

    def _member(self) -> Node:
        start = self.token[2]
        node = self._primary()
        while self._is(".", "[", "{"):
            word = self.token[1]
            if word == "{":
                raise ExpressionSyntaxError(
                    "messages (NAME{…}) can't be built here", self.token[2], "build a map: {'key': value}"
                )
            self._take()
            node = self._index(node, start) if word == "[" else self._select(node, start)
        return node

    def _select(self, node: Node, start: int) -> Node:
        kind, name, at = self._take()
        if kind != "name":
            raise ExpressionSyntaxError(f"expected a name after '.', found {name or 'the end'!r}", at)
        if self._is("("):
            self.calls.append((at, name))
            return self._method(node, name, start)
        return self._step(node, name, start)

    def _step(self, node: Node, step: PathStep, start: int) -> Node:
        """The path with one more step; after anything but a path, CEL evaluates the step."""
        # In `(a).b` the parentheses belong to the span, and a path that is read by reference has none.
        if isinstance(node, Path) and not node.test and self.text[start] != "(":
            path = Path(node.variable, (*node.steps, step), start, self._last_end)
            self.paths[self.paths.index(node)] = path
            return path
        return Opaque(start, self._last_end, (node,))

    def _index(self, node: Node, start: int) -> Node:
        seen, bound_before = len(self.paths), self._bound_uses
        key = self.expression()
        if self._is(":"):
            raise ExpressionSyntaxError("CEL has no slices", self.token[2], "compute it in a Python node")
        self._expect("]")
        if not isinstance(node, Path) or node.test:
            return Opaque(start, self._last_end, (node, key))
        if isinstance(key, Constant) and key.type == "int" and key.value < 0:
            named = self.text[start : node.end]
            hint = f"write {named}[size({named}) - {-key.value}]"
            raise ExpressionSyntaxError("items are counted from 0, and not from the end", key.start, hint)
        if isinstance(key, Constant) and key.type in ("string", "int"):
            return self._step(node, key.value, start)
        # A variable of a macro exists only inside CEL: an index that uses one can't be read by reference.
        if self._bound_uses == bound_before and not isinstance(key, Constant):
            outline = self.outline(key, seen)
            # The index reads its own paths; left here they would be converted a second time for the whole.
            del self.paths[seen:]
            return self._step(node, Index(outline), start)
        return Opaque(start, self._last_end, (node, key))

    def _method(self, node: Node, name: str, start: int) -> Node:
        if name == "size" and isinstance(node, Path) and not node.test and self._peek()[1] == ")":
            self._take()
            self._take()
            return self._tested(node, "size", start)
        opens = self.token[2]
        variable, spans = self._peek()[1], list[tuple[int, int]]()
        arguments, bound = self._arguments(spans, macro=name in _MACROS)
        if bound and len(arguments) in _MACROS[name]:
            loop = Loop(start, opens, self._last_end, variable, name, node, tuple(spans))
            self.loops.append(loop)
            return loop
        return FunctionCall(name, (node, *arguments), start, self._last_end)

    def _tested(self, path: Path, test: str, start: int) -> Path:
        tested = Path(path.variable, path.steps, start, self._last_end, test)
        self.paths[self.paths.index(path)] = tested
        return tested

    def _arguments(self, spans: list[tuple[int, int]], *, macro: bool = False) -> tuple[list[Node], bool]:
        """The arguments in parentheses, and whether the first one, left out, names a variable for the others."""
        self._expect("(")
        bound = macro and self.token[0] == "name" and self._peek()[1] == ","
        if bound:
            # The variable of a macro hides a path of the same name, so it must not be read from the scope.
            self._bound.append(self._take()[1])
            self._take()
        out: list[Node] = []
        while not self._is(")"):
            start = self.token[2]
            out.append(self.expression())
            spans.append((start, self._last_end))
            if not self._is(")"):
                self._expect(",")
        self._take()
        if bound:
            self._bound.pop()
        return out, bound

    def _primary(self) -> Node:
        kind, word, at = self._take()
        match kind:
            case "name":
                return self._name(word, at)
            case "int":
                return self._integer(word, at)
            case "float":
                return Constant(float(word), "double", at, self._last_end)
            case "string":
                return self._string(word, at)
        match word:
            case "(":
                node = self.expression()
                if self._is(","):
                    raise ExpressionSyntaxError("expected ')', found ','", self.token[2], "write a list: [1, 2]")
                self._expect(")")
                # A path stays where it stands: the rewritten text replaces exactly its span.
                return node if isinstance(node, Path) else replace(node, start=at, end=self._last_end)
            case "[":
                return self._list(at)
            case "{":
                return self._map(at)
        shown = "the end" if kind == "end" else repr(word)
        raise ExpressionSyntaxError(f"expected a value, found {shown}", at)

    def _name(self, word: str, at: int) -> Node:
        if word in ("true", "false"):
            return Constant(word == "true", "bool", at, self._last_end)
        if word == "null":
            return Constant(None, "null", at, self._last_end)
        if word in RESERVED:
            raise ExpressionSyntaxError(f"{word!r} is a reserved word of CEL", at)
        if self._is("("):
            self.calls.append((at, word))
            return self._call(word, at)
        if word in self._bound:
            self._bound_uses += 1
            self.uses.append((at, word))
            return Opaque(at, self._last_end)
        if word in TYPE_NAMES:
            return Opaque(at, self._last_end)
        path = Path(word, (), at, self._last_end)
        self.paths.append(path)
        return path

    def _call(self, name: str, at: int) -> Node:
        arguments, _ = self._arguments([])
        if name in ("has", "size") and len(arguments) == 1:
            path = arguments[0]
            if isinstance(path, Path) and not path.test and self.text[path.start] != "(":
                # `has(a["b"])` is an error in CEL, so CEL reports it; only `has(a.b)` is answered here.
                if name == "size" or (
                    path.steps and isinstance(path.steps[-1], str) and self.text[self._before_end()] != "]"
                ):
                    return self._tested(path, name, at)
        return FunctionCall(name, tuple(arguments), at, self._last_end)

    def _before_end(self) -> int:
        """Offset of the last character before the closing parenthesis."""
        _, word, at = self._tokens[self._next - 2]
        return at + len(word) - 1

    def _list(self, at: int) -> Node:
        items: list[Node] = []
        while not self._is("]"):
            items.append(self.expression())
            if not self._is("]"):
                self._expect(",")
        self._take()
        return ListOf(tuple(items), at, self._last_end)

    def _map(self, at: int) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._is("}"):
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
            if not self._is("}"):
                self._expect(",")
        self._take()
        plain = [(k.value, v) for k, v in entries if isinstance(k, Constant) and k.type == "string"]
        # CEL refuses a key that is given twice; a dict would keep the last one.
        if len(plain) != len(entries) or len({key for key, _ in plain}) != len(plain):
            return Opaque(at, self._last_end, tuple(part for entry in entries for part in entry))
        return MapOf(tuple(plain), at, self._last_end)

    def _integer(self, word: str, at: int) -> Node:
        # Unsigned integers are a type of their own in CEL, which Python has not.
        if word[-1] in "uU":
            return Opaque(at, self._last_end, type="uint")
        value = int(word, 16) if word[:2] in ("0x", "0X") else int(word)
        # Only with a minus sign before it does 2^63 fit into CEL's integers, so CEL decides.
        if value >= 2**63:
            return Opaque(at, self._last_end)
        return Constant(value, "int", at, self._last_end)

    def _string(self, word: str, at: int) -> Node:
        prefix = word[: len(word) - len(word.lstrip("rRbB"))].lower()
        body = word[len(prefix) :]
        quotes = 3 if body[:3] in ("'''", '"""') else 1
        body = body[quotes:-quotes]
        if "b" in prefix:
            return Opaque(at, self._last_end)
        try:
            value = body if "r" in prefix else _ESCAPE.sub(_unescape, body)
        except ValueError as error:
            raise ExpressionSyntaxError(str(error), at) from None
        return Constant(value, "string", at, self._last_end)


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "xXuU" and len(code) > 1:
        point = int(code[1:], 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise ValueError(f"\\{code} is not a character")
        return chr(point)
    if len(code) == 3:
        return chr(int(code, 8))
    if code in _SIMPLE:
        return _SIMPLE[code]
    if code in "\\'\"`?":
        return code
    raise ValueError(f"\\{code} is not an escape sequence")
