-- Threads, their lineages and rows. Conventions:
-- * An id is 16 bytes when it is a UUID in canonical form, else text; so id columns have no type.
-- * `lineages.lineage` is this file's own small number of a lineage; `number` is the one that the port speaks of.
-- * The keys of `records`, `snapshots` and `items` are composed: the lineage (or log) in the upper 31 bits, the
--   ordinal in the lower 32. So the rows of one history lie side by side, are found without an index, and cost no key.
-- * Tables with blobs of any size keep their rowid: without it SQLite spills each row above a quarter page.

CREATE TABLE threads (
  id NOT NULL PRIMARY KEY,
  status TEXT NOT NULL,
  run,
  document TEXT,
  agent_key TEXT,
  title TEXT,
  updated_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  head,
  lineage INTEGER,
  ordinal INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX threads_by_update ON threads (updated_at, id);
CREATE INDEX threads_by_owner ON threads (owner) WHERE owner IS NOT NULL;

-- Fences of threads that were deleted while somebody drove them: a namesake goes on from there.
CREATE TABLE fences (
  thread NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE lineages (
  lineage INTEGER PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,
  thread,
  parent INTEGER,
  cut INTEGER NOT NULL
);
CREATE INDEX lineages_by_thread ON lineages (thread);
CREATE INDEX lineages_by_parent ON lineages (parent) WHERE parent IS NOT NULL;

CREATE TABLE records (
  record INTEGER PRIMARY KEY,
  id NOT NULL,
  checkpoint INTEGER NOT NULL,
  size INTEGER NOT NULL,
  meta BLOB NOT NULL,
  data BLOB NOT NULL
);
CREATE INDEX checkpoints_by_id ON records (id) WHERE checkpoint = 1;

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
);
CREATE INDEX interrupts_by_age ON interrupts (opened_at);
CREATE INDEX interrupts_by_due ON interrupts (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE runs (
  run NOT NULL PRIMARY KEY,
  thread NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_thread ON runs (thread);

CREATE TABLE documents (
  digest TEXT NOT NULL PRIMARY KEY,
  data BLOB NOT NULL
);

CREATE TABLE inputs (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  thread NOT NULL,
  at INTEGER NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX inputs_by_thread ON inputs (thread);
