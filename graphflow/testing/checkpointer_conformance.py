"""The promises of the checkpointer port as tests that every store has to pass (spec 4.1).

For a store of your own, subclass in a test file that pytest collects:

```python
class TestMyStore(CheckpointerConformance):
    def make(self, folder):
        return MyStore(folder / "data")
```

Each test gets an empty folder and a store that is set up, and needs no plugin. The letters and numbers in the docstrings are
those of docs/internals/conformance.md.
"""

from __future__ import annotations

from graphflow.testing.checkpointer.commits import Committing
from graphflow.testing.checkpointer.exports import Exports
from graphflow.testing.checkpointer.forks import Forks
from graphflow.testing.checkpointer.history import History
from graphflow.testing.checkpointer.inbox import Inbox
from graphflow.testing.checkpointer.leases import Leases
from graphflow.testing.checkpointer.ledger import Ledger
from graphflow.testing.checkpointer.pruning import Pruning
from graphflow.testing.checkpointer.records import Records
from graphflow.testing.checkpointer.rewriting import Rewriting


class CheckpointerConformance(Records, Committing, Leases, History, Forks, Pruning, Inbox, Exports, Rewriting, Ledger):
    """The whole suite: override `make`, and `durable` for a store that keeps nothing."""
