"""The files of tools: one port that opens them beneath a root, what is closed to every tool, and whose root is where."""

from graphflow.tools.workspace.files import FileEntry, Workspace
from graphflow.tools.workspace.protected import ProtectedFiles
from graphflow.tools.workspace.refusals import FileRefused

__all__ = ["FileEntry", "FileRefused", "ProtectedFiles", "Workspace"]
