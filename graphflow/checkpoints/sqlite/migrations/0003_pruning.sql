-- Records that tell of a `write` effect, so that nobody looks for them among the others.
CREATE TABLE effects (record INTEGER PRIMARY KEY);

-- Ordinal of the last record of a lineage that was pruned: up to there records may be missing, beyond it none may.
ALTER TABLE lineages ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
