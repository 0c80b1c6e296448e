"""`Grep`: lines of files that fit a regular expression or hold a text.

An engine says which lines of which files fit; what is shown of them is read again here, by handle, and left out where it
is not what the engine saw. So both engines give the same answer, and none shows what lies outside of the workspace.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.excerpts import excerpt_of
from graphflow.tools.coding.file_tool import checked_path, coding_tool, existing, in_context, printable
from graphflow.tools.coding.search_parameters import (
    FOLDER,
    HIDDEN,
    IGNORED,
    counted,
    file_pattern,
    normalized,
    on_one_line,
)
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.search.expressions import NoExpression, check_text
from graphflow.tools.search.file_walk import Looked, shown_prefix
from graphflow.tools.search.found import FoundFile, FoundLines, LineQuery, mark_of
from graphflow.tools.search.ignore_rules import IgnoreRules
from graphflow.tools.search.line_engine import EngineMissing, compiled_re2, search_lines
from graphflow.tools.search.lines import lines_at, shown_line
from graphflow.tools.search.ripgrep import ExpressionRefused, Ripgrep, RipgrepFailed
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.walking import Walk

MAX_LINES = 100
MAX_CONTEXT = 50
MAX_LINE_CHARS = 500
MAX_S = 2.0
MAX_VISITED = 1_000_000
MODES = ("content", "files", "count")
_FALLBACKS = {
    "rg_not_found": "ripgrep is not installed",
    "rg_failed": "ripgrep could not search",
    "rg_not_confined": "ripgrep can't be confined to the workspace on this machine",
}


def grep_tool(workspaces: Workspaces, ripgrep: Ripgrep = Ripgrep()) -> Tool:
    """The tool `Grep`.

    Args:
        workspaces: the workspace of each thread.
        ripgrep: the program that searches, where it is found.
    """

    def work(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        return _Search(workspace=workspace, arguments=arguments, ripgrep=ripgrep).result()

    return coding_tool(
        workspaces,
        work,
        name="Grep",
        description="Searches the lines of files with a regular expression, newest files first. Hidden and binary files, and "
        f"what .gitignore hides, are left out. Returns at most {MAX_LINES} matching lines.",
        properties={
            "pattern": {
                "type": "string",
                "description": "A regular expression for one line, without look-around and back-references",
            },
            "path": FOLDER | {"description": "A folder or a file, relative to the workspace; default: all of it"},
            "include": {
                "type": "string",
                "description": "Only files that fit this pattern, for example *.py or src/**/*.ts",
            },
            "case_sensitive": {"type": "boolean", "description": "Default false"},
            "literal": {"type": "boolean", "description": "The pattern is a text, not an expression; default false"},
            "context_lines": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_CONTEXT,
                "description": "Lines to show before and after each matching line; default 0",
            },
            "output_mode": {
                "enum": list(MODES),
                "description": "content: matching lines; files: paths only; count: lines per file. Default content",
            },
            "include_hidden": HIDDEN,
            "include_ignored": IGNORED,
        },
        required=("pattern",),
        effects="read",
    )


@dataclass(kw_only=True)
class _Search:
    """One call."""

    workspace: Workspace
    arguments: Mapping[str, Any]
    ripgrep: Ripgrep
    clock: Callable[[], float] = time.monotonic
    fallback: str | None = None
    lost: int = 0
    """Lines that were found, and were others when they were read for the answer."""

    @property
    def mode(self) -> str:
        return str(self.arguments.get("output_mode", "content"))

    def result(self) -> ToolResult:
        path = checked_path(self.arguments.get("path", "."))
        place = existing(self.workspace, path)
        context = in_context(self.workspace, place) | {"sorted_by": "mtime_desc"}
        assert place.facts is not None
        file = "/".join(place.parts) if stat.S_ISREG(place.facts.st_mode) else None
        if file is None and not stat.S_ISDIR(place.facts.st_mode):
            raise FileRefused("INVALID_PARAM", f"{path!r} is neither a folder nor a regular file")
        try:
            query = self._query()
            # Above a file the walk only opens what it is told to.
            with self.workspace.walk(
                path if file is None else str(place.path.parent), max_entries=MAX_VISITED, max_s=MAX_S
            ) as walk:
                found = self._found(walk, query, file)
                return self._answer(walk, found, context)
        except (NoExpression, ExpressionRefused) as error:
            message = (
                f"pattern {excerpt_of(self.arguments['pattern'])} is no regular expression that can be used: {error}"
            )
            return failed("INVALID_PARAM", message, "Change the pattern, or set literal to search for it as a text.")
        except EngineMissing:
            return failed(
                "EXECUTION_ERROR",
                "neither ripgrep nor google-re2 is installed here",
                'Tell the person to install one: pip install "graphflow[search]".',
                context=context,
            )

    def _query(self) -> LineQuery:
        text, include = self.arguments["pattern"], self.arguments.get("include")
        if include is not None:
            include = normalized(include)
            # A pattern of a name is for names in any folder, as in ripgrep.
            pattern = file_pattern("include", include if "/" in include or not include.strip() else f"**/{include}")
        check_text(text)
        most = {"files": 1, "content": MAX_LINES + 1}.get(self.mode)
        return LineQuery(
            text=text,
            literal=self.arguments.get("literal", False),
            case_sensitive=self.arguments.get("case_sensitive", False),
            looked=Looked(
                pattern=None if include is None else pattern,
                hidden=self.arguments.get("include_hidden", False),
                ignored=self.arguments.get("include_ignored", False),
            ),
            include=include,
            lines_of_a_file=most,
            most_lines=MAX_LINES + 1,
        )

    def _found(self, walk: Walk, query: LineQuery, file: str | None) -> FoundLines:
        rules = IgnoreRules(walk.read)
        # A pattern has to mean the same whichever engine runs.
        compiled_re2(query)
        try:
            return self.ripgrep.search(walk, rules, query, self.ripgrep.clock() + MAX_S, file)
        except RipgrepFailed as failure:
            self.fallback = failure.reason
            return search_lines(walk, rules, query, file)

    def _answer(self, walk: Walk, found: FoundLines, context: dict[str, Any]) -> ToolResult:
        prefix = shown_prefix(walk, self.workspace)
        data: dict[str, Any] = {"matches": []}
        files = found.files
        if self.mode == "content":
            shown = self._matches(walk, files, prefix)
            data["matches"] = shown[:MAX_LINES]
            more = len(shown) > MAX_LINES
            text = [f"{on_one_line(match['file'])}:{match['line']}: {match['text']}" for match in data["matches"]]
            context_lines = self.arguments.get("context_lines", 0)
            if context_lines:
                text = [_block(match) for match in data["matches"]]
        else:
            confirmed = [file for file in files if self._is_confirmed(walk, file)]
            more = len(confirmed) > MAX_LINES
            names = [(prefix + printable(file.path), file.count) for file in confirmed[:MAX_LINES]]
            text = [on_one_line(name) + ("" if self.mode == "files" else f": {count}") for name, count in names]
            if self.mode == "files":
                data["files"] = [name for name, _ in names]
            else:
                data["counts"] = [{"file": name, "count": count} for name, count in names]
        return self._told(found, data, text, context, more=more)

    def _told(
        self, found: FoundLines, data: dict[str, Any], lines: list[str], context: dict[str, Any], *, more: bool
    ) -> ToolResult:
        if not found.confined:
            found.matched_files = len({match["file"] for match in data["matches"]}) or len(lines)
            found.matched_lines = len(lines)
        lines_of = counted(found.matched_lines, "line fits", "lines fit")
        least = "At least " if more or found.stopped else ""
        notes = [f"{least}{lines_of} in {counted(found.matched_files, 'file', 'files')}."]
        problems = []
        if more:
            problems.append(f"Truncated: the first {MAX_LINES} are shown; use a narrower pattern, path or include.")
        if found.stopped:
            problems.append(f"Incomplete: the search was stopped after {MAX_S:g} s; name a smaller folder as path.")
        if found.too_long:
            problems.append(f"Incomplete: {counted(found.too_long, 'line is', 'lines are')} too long to be searched.")
        if found.unreadable:
            problems.append(f"Incomplete: {counted(found.unreadable, 'file', 'files')} could not be read.")
        if self.lost:
            problems.append(
                f"Incomplete: {counted(self.lost, 'line was', 'lines were')} changed meanwhile and left out."
            )
        if problems:
            data["truncated"] = True
        if self.fallback:
            data |= {"fallback_used": True, "fallback_reason": self.fallback}
            problems.append(f"Fallback: {_FALLBACKS[self.fallback]}, so a slower search was used.")
        return ToolResult(
            status="partial" if problems else "success",
            data=data,
            text="\n".join([" ".join([*notes, *problems]), *lines]),
            stats={"matched_files": found.matched_files, "matched_lines": found.matched_lines},
            context=context,
        )

    # --- what is shown

    def _matches(self, walk: Walk, files: list[FoundFile], prefix: str) -> list[dict[str, Any]]:
        """The matching lines with those around them, one more than is shown if there are more."""
        matches: list[dict[str, Any]] = []
        for file in files:
            room = MAX_LINES + 1 - len(matches)
            if room <= 0:
                break
            wanted = {line.number: line.mark for line in file.lines[:room]}
            matches += self._read_again(walk, file.path, wanted, prefix + printable(file.path))
        return matches

    def _read_again(self, walk: Walk, path: str, wanted: Mapping[int, int], name: str) -> list[dict[str, Any]]:
        around = self.arguments.get("context_lines", 0)
        opened = walk.open(path)
        texts: dict[int, str] = {}
        right: list[int] = []
        if opened is not None:
            near = {each for number in wanted for each in range(number - around, number + around + 1)}
            last = max(wanted) + around
            try:
                for number, line in lines_at(opened[0], last):
                    if number in near:
                        texts[number] = shown_line(line, MAX_LINE_CHARS)
                        if number in wanted and mark_of(line) == wanted[number]:
                            right.append(number)
            except (OSError, OverflowError):
                pass  # what was read is shown
            finally:
                os.close(opened[0])
        self.lost += len(wanted) - len(right)
        matches: list[dict[str, Any]] = []
        for number in right:
            match: dict[str, Any] = {"file": name, "line": number, "text": texts[number]}
            if around:
                match["before"] = [texts[each] for each in range(max(1, number - around), number)]
                match["after"] = [texts[each] for each in range(number + 1, number + around + 1) if each in texts]
            matches.append(match)
        return matches

    def _is_confirmed(self, walk: Walk, file: FoundFile) -> bool:
        """Whether a first line that fits is really there, in a file of the workspace."""
        line = file.lines[0]
        opened = walk.open(file.path)
        if opened is None:
            return False
        try:
            return any(
                number == line.number and mark_of(text) == line.mark
                for number, text in lines_at(opened[0], line.number)
            )
        except (OSError, OverflowError):
            return False
        finally:
            os.close(opened[0])


def _block(match: Mapping[str, Any]) -> str:
    """A match as `grep -C` shows it."""
    name, first = on_one_line(match["file"]), match["line"] - len(match["before"])
    before = [f"{name}-{first + at}- {line}" for at, line in enumerate(match["before"])]
    after = [f"{name}-{match['line'] + at}- {line}" for at, line in enumerate(match["after"], 1)]
    return "\n".join([*before, f"{name}:{match['line']}: {match['text']}", *after, "--"])
