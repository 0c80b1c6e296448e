"""Lines found by RE2 in this process, where there is no ripgrep: slower, with the same answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from graphflow.tools.search.expressions import re2_expression
from graphflow.tools.search.file_walk import files_below
from graphflow.tools.search.found import FoundFile, FoundLine, FoundLines, LineQuery, mark_of
from graphflow.tools.search.ignore_rules import IgnoreRules
from graphflow.tools.search.lines import decoded_blocks
from graphflow.tools.search.ripgrep import ExpressionRefused
from graphflow.tools.workspace.walking import Walk


class EngineMissing(Exception):
    """Neither ripgrep nor RE2 is installed."""


def compiled_re2(query: LineQuery) -> tuple[Any, Any] | None:
    """The expression as RE2 reads it, for a line and for a text of many lines; None where RE2 is not installed.

    Raises:
        NoExpression: a part of it is none of both engines.
        ExpressionRefused: RE2 does not know it.
    """
    expression = None if query.literal else re2_expression(query.text)
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = query.case_sensitive
    try:
        wanted = re2.escape(query.text) if expression is None else expression
        return re2.compile(wanted, options), re2.compile(f"(?m){wanted}", options)
    except re2.error as error:
        said = error.args[0]
        raise ExpressionRefused(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None


def search_lines(walk: Walk, rules: IgnoreRules, query: LineQuery, file: str | None = None) -> FoundLines:
    """The lines below the start of the walk that fit; the limits of the walk end it.

    Args:
        walk: where; an open one.
        rules: of the same root.
        query: which lines.
        file: a single file to search instead, below the root.

    Raises:
        EngineMissing: RE2 is not installed.
    """
    expressions = compiled_re2(query)
    if expressions is None:
        raise EngineMissing
    found = FoundLines(most_lines=query.most_lines)
    for path in files_below(walk, rules, query.looked) if file is None else (file,):
        opened = walk.open(path)
        if opened is None:
            found.unreadable += 1
            continue
        handle, facts = opened
        try:
            lines, count = _fitting(*expressions, decoded_blocks(handle), query, walk)
        except OverflowError:
            found.too_long += 1
            continue
        except OSError:
            found.unreadable += 1
            continue
        finally:
            os.close(handle)
        if count:
            found.add(FoundFile(path=path, mtime_ns=facts.st_mtime_ns, count=count, lines=tuple(lines)))
    found.stopped = walk.is_over
    return found


def _fitting(
    fits_line: Any, fits_text: Any, blocks: Iterable[str | None], query: LineQuery, walk: Walk
) -> tuple[list[FoundLine], int]:
    """The lines that fit; none of a binary file, wherever its NUL is."""
    lines: list[FoundLine] = []
    count = number = 0
    for block in blocks:
        if block is None:
            return [], 0
        # The rest is looked through for a NUL only.
        if count == query.lines_of_a_file or walk.is_over:
            continue
        text = block.replace("\r\n", "\n").removesuffix("\n")
        # One look at all lines spares most files the look at each: what fits a line fits the text that it is in.
        if fits_text.search(text):
            for at, line in enumerate(text.split("\n"), number + 1):
                if count != query.lines_of_a_file and fits_line.search(line):
                    count += 1
                    if len(lines) < query.most_lines:
                        lines.append(FoundLine(number=at, mark=mark_of(line)))
        number += block.count("\n")
    return lines, count
