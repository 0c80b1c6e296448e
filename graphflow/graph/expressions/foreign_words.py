"""What people write from habit in expressions, in the words of CEL: `None`, `and`, `not x`, `a is not b`, `!state.count`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from graphflow.graph.expressions.ast import COMPARISONS, Binary, FunctionCall, Loop, Node, Opaque, Path, Unary
from graphflow.graph.expressions.parser import ExpressionSyntaxError, Token, parse, tokens

_WORDS = {
    "None": "null", "none": "null", "NULL": "null", "Null": "null", "nil": "null", "undefined": "null",
    "True": "true", "TRUE": "true", "False": "false", "FALSE": "false",
    "and": "&&", "AND": "&&", "or": "||", "OR": "||", "is": "==",
}  # fmt: skip
_SIGNS = {"===": "==", "!==": "!=", "<>": "!=", "=<": "<=", "=": "==", "&": "&&", "|": "||"}
_BETWEEN = {"mod": "%", "div": "/", "xor": "!="}
"""Words that are operators between operands, and names elsewhere."""
_NOT = ("not", "NOT")
_JOINTS = frozenset({"&&", "||", "?", ":", ",", "and", "or", "AND", "OR"})
_COMPOUND = re.compile(r"[-+*/%:~^]=|=[>~]")
"""Signs with `=` in them that mean something else."""
_OPEN, _CLOSED = frozenset("([{"), frozenset(")]}")


def in_cel(text: str) -> tuple[str, int, str] | None:
    """The first foreign word, its offset, and the whole text in the words of CEL; None if nothing in it is foreign."""
    words = list(_all(text))
    pieces, foreign = [word for _, word, _ in words], list[int]()
    for place, (kind, word, _) in enumerate(words):
        # After a dot it is the name of a field.
        named = kind == "name" and not (place and words[place - 1][1] == ".")
        if named and word in _NOT:
            foreign.append(place)
            _negated(words, pieces, place)
        elif named and word in _BETWEEN and place and _ends_operand(words[place - 1]):
            foreign.append(place)
            pieces[place] = _BETWEEN[word]
        elif (named and word in _WORDS) or (kind == "sign" and word in _SIGNS):
            foreign.append(place)
            after = words[place + 1][1] if place + 1 < len(words) else ""
            if word == "is" and after in _NOT:
                pieces[place] = "!="
            else:
                pieces[place] = _WORDS.get(word) or _SIGNS[word]
    if not foreign:
        return None
    first = words[foreign[0]]
    return first[1], first[2], _joined(text, words, pieces)


def _all(text: str) -> Iterator[Token]:
    """The tokens, with the operators of other languages as `sign`s, up to what is no token of any."""
    at = 0
    while at < len(text):
        try:
            for token in tokens(text, at):
                if token[0] == "end":
                    return
                at = token[2] + len(token[1])
                if token[1] in ("!=", "==", "<") and text[at : at + 1] in ("=", ">"):
                    sign = next((sign for sign in ("===", "!==", "<>") if text.startswith(sign, token[2])), None)
                    if sign is not None:
                        at = token[2] + len(sign)
                        yield "sign", sign, token[2]
                        break
                yield token
            else:
                return
        except ExpressionSyntaxError as error:
            if text[error.at : error.at + 1] not in _SIGNS or _COMPOUND.search(
                text, max(0, error.at - 1), error.at + 2
            ):
                return
            sign = text[error.at : error.at + 2] if text[error.at : error.at + 2] in _SIGNS else text[error.at]
            yield "sign", sign, error.at
            at = error.at + len(sign)


def _ends_operand(token: Token) -> bool:
    kind, word, _ = token
    return word in _CLOSED or (kind in ("name", "int", "float", "string") and word not in (*_WORDS, *_NOT, "in"))


_COMMENT = re.compile(
    r"""[rRbB]{0,2}(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^\\'\n])*'|"(?:\\.|[^\\"\n])*")|(?P<at>//)""",
    re.DOTALL,
)


def comments(text: str) -> list[int]:
    """The offsets of comments."""
    return [match.start("at") for match in _COMMENT.finditer(text) if match["at"]] if "//" in text else []


_POWER = "CEL has no power: multiply, or compute it in a Python node"
_BITS = "CEL has no operations on bits: compute it in a Python node"
_CHANGES = "an expression changes nothing: give the new value, and let `set` write it"
_NULLS = "write a != null ? a : b"
_HINTS = {
    "**": _POWER, "^": _POWER, "<<": _BITS, ">>": _BITS, "~": _BITS, "++": _CHANGES, "--": _CHANGES, "+=": _CHANGES,
    "-=": _CHANGES, "*=": _CHANGES, "/=": _CHANGES, ":=": _CHANGES, "??": _NULLS, "?:": _NULLS, "?.": "write a != null ? a.b : null",
    "=~": "write text.matches('pattern')", "~=": "write text.matches('pattern')", "->": "write '.'", "::": "write '.'",
    "/*": "a comment begins with // and ends with its line", "#": "a comment begins with // and ends with its line",
    ";": "an expression is one value, without ';'", "%%": "write '%'", "`": "put text in quotes: 'text'",
    "$": "${…} is for templates; an expression names the variable alone, as in state.key",
    "=>": "write >=, or list.map(x, …) for a function",
    " if ": "write condition ? a : b", "if ": "write condition ? a : b", " for ": "write list.map(x, …)", " like ": "write text.matches('pattern')",
    " contains ": "write text.contains('part')", " matches ": "write text.matches('pattern')",
    " between ": "write a <= x && x <= b", "lambda ": "write list.map(x, …)",
}  # fmt: skip
"""What other languages write and CEL has no single form for → what to write."""


def sign_hint(text: str, at: int) -> str | None:
    """What to write instead of the sign or word of another language that a syntax error is about."""
    for length in sorted({*map(len, _HINTS)}, reverse=True):
        for start in range(max(0, at - length), min(at + 2, len(text))):
            if (hint := _HINTS.get(text[start : start + length])) is not None:
                return hint
    return None


def _negated(words: list[Token], pieces: list[str], place: int) -> None:
    """`not x == y` negates the whole comparison, and `a not in b` is `!(a in b)`; `is not` was dealt with."""
    if place and words[place - 1][1] == "is":
        pieces[place] = ""
        return
    inside = place + 1 < len(words) and words[place + 1][1] == "in"
    start = _border(words, place - 1, -1) if inside else place
    end = _border(words, place + 1, 1)
    operand = words[place + 1 : end]
    alone = not inside and not any(
        word in COMPARISONS or word in ("in", "is") or word in "+-*/%" for _, word, _ in operand
    )
    pieces[place] = "" if inside else "!"
    if operand and operand[0][1] == "(" and _closing(operand) == len(operand) - 1:
        alone = True  # it stands in brackets of its own
    if not alone and operand:
        pieces[start if inside else place + 1] = (
            "!(" * inside + "(" * (not inside) + pieces[start if inside else place + 1]
        )
        pieces[end - 1] += ")"


def _closing(words: list[Token]) -> int:
    """Where the bracket that the words begin with is closed."""
    depth = 0
    for place, (_, word, _) in enumerate(words):
        depth += (word in _OPEN) - (word in _CLOSED)
        if depth == 0:
            return place
    return len(words)


def _border(words: list[Token], place: int, step: int) -> int:
    """Where the operand around a place ends: at a joint or a bracket that was open before it."""
    depth = 0
    opening, closing = (_OPEN, _CLOSED) if step > 0 else (_CLOSED, _OPEN)
    while 0 <= place < len(words):
        word = words[place][1]
        if word in opening:
            depth += 1
        elif word in closing:
            depth -= 1
        if depth < 0 or (depth == 0 and word in _JOINTS):
            break
        place += step
    return place if step > 0 else place + 1


def _joined(text: str, words: list[Token], pieces: list[str]) -> str:
    out, at = "", 0
    for (_, word, place), piece in zip(words, pieces, strict=True):
        between = text[at:place]
        out += ("" if out.endswith(("!", "(")) or not piece else between) + piece
        at = place + len(word)
    return (out + text[at:]).strip()


# --- conditions of other types


def compared(text: str, type_of: Callable[[str], str | None]) -> str | None:
    """The condition with a comparison where a part of another type stands for a boolean; None if nothing changes.

    Args:
        type_of: the CEL type of a part of it.
    """
    changes: list[tuple[int, int, str]] = []

    def walk(node: Node, negated: bool) -> None:
        match node:
            case Binary("||" | "&&", left, right):
                walk(left, False)
                walk(right, False)
            case Unary("!", operand):
                walk(operand, True)
            case Path() | Opaque() | FunctionCall() | Loop() | Binary():
                source = text[node.start : node.end]
                tail = _COMPARED.get(type_of(source) or "")
                if tail is not None:
                    made = tail.format(source)
                    changes.append((node.start, node.end, f"({made})" if negated else made))

    walk(parse(text).root, False)
    for start, end, made in sorted(changes, reverse=True):
        text = text[:start] + made + text[end:]
    return text if changes else None


_COMPARED = {
    "int": "{} != 0", "double": "{} != 0.0", "string": "{} != ''", "list": "size({}) > 0", "map": "size({}) > 0",
}  # fmt: skip
"""CEL type → how Python would take its values as true or false."""
