"""How long a test waits before it says that something hangs.

Nobody judges by it: what is waited for takes a moment, and on a machine that is loaded as much as it likes some moments more.
"""

from typing import Final

PATIENCE_S: Final = 120
