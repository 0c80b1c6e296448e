-- Threads, their lineages and rows. Conventions:
-- * An id is 16 bytes when it is a UUID in canonical form, else text; so id columns have no type.
-- * `lineages.lineage` is this file's own small number of a lineage; `number` is the one that the port speaks of.
-- * The keys of `records`, `snapshots` and `items` are composed: the lineage (or log) in the upper 31 bits, the
--   ordinal in the lower 32. So the rows of one history lie side by side, are found without an index, and cost no key.
--   A checkpoint is found by its id because ids grow with ordinals.
-- * Tables with many blobs keep their rowid: without it SQLite spills each row above a quarter page.
-- * An index is a page of every file and work for every commit, so rare questions (deleting a thread, the inbox) scan.

-- A thread that was deleted while somebody drove it leaves a row with its fence and no status: a namesake goes on
-- from there, so that the old life can't write to the new thread.
CREATE TABLE threads (
  id NOT NULL PRIMARY KEY,
  status TEXT,
  updated_at INTEGER NOT NULL,
  head,
  lineage INTEGER,
  ordinal INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  owner TEXT,
  run,
  document TEXT,
  agent_key TEXT,
  title TEXT,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX threads_by_update ON threads (updated_at, id);
CREATE INDEX threads_by_owner ON threads (owner) WHERE owner IS NOT NULL;

CREATE TABLE lineages (
  lineage INTEGER PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,
  thread,
  parent INTEGER,
  cut INTEGER NOT NULL
);
CREATE INDEX lineages_by_thread ON lineages (thread);

CREATE TABLE records (
  record INTEGER PRIMARY KEY,
  id NOT NULL,
  checkpoint INTEGER NOT NULL,
  size INTEGER NOT NULL,
  meta BLOB NOT NULL,
  data BLOB NOT NULL
);

CREATE TABLE snapshots (
  record INTEGER PRIMARY KEY,
  data BLOB NOT NULL
);

CREATE TABLE logs (
  log INTEGER PRIMARY KEY,
  lineage INTEGER NOT NULL,
  frame INTEGER NOT NULL,
  channel TEXT NOT NULL,
  UNIQUE (lineage, frame, channel)
);

-- `record` is the ordinal of the record that wrote the entry.
CREATE TABLE items (
  item INTEGER PRIMARY KEY,
  record INTEGER NOT NULL,
  data BLOB NOT NULL
);

CREATE TABLE interrupts (
  thread NOT NULL,
  id NOT NULL,
  run,
  kind TEXT NOT NULL,
  node TEXT NOT NULL,
  owner TEXT,
  role TEXT,
  agent_key TEXT,
  opened_at INTEGER NOT NULL,
  due_at INTEGER,
  data BLOB NOT NULL,
  PRIMARY KEY (thread, id)
) WITHOUT ROWID;
CREATE INDEX interrupts_by_due ON interrupts (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE runs (
  run NOT NULL PRIMARY KEY,
  thread NOT NULL
) WITHOUT ROWID;

CREATE TABLE documents (
  digest TEXT NOT NULL PRIMARY KEY,
  data BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE inputs (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  thread NOT NULL,
  at INTEGER NOT NULL,
  body BLOB NOT NULL
);
