-- Threads, their lineages and rows, and the functions that change them in one round trip. Conventions:
-- * `@` stands for the schema, so that one database has room for several stores and nothing depends on `search_path`.
-- * Ids are text in the order of their bytes: whoever looks with psql reads what the port speaks of.
-- * Statements of one commit are sent together and are one transaction; a function that must stop it raises `GF001` to
--   `GF003` (see `postgres/checkpoint_writer.py`).
-- * Values are opaque bytes that compress badly or are compressed already, so PostgreSQL does not try (EXTERNAL), and rows
--   of a few kilobytes stay in one piece (`toast_tuple_target`).

-- A thread that was deleted while somebody drove it leaves a row with its fence and no status: a namesake goes on
-- from there, so that the old life can't write to the new thread. `token` names the request that took the thread last, so
-- that one whose answer was lost with the connection knows its own.
CREATE TABLE @.threads (
  id text COLLATE "C" PRIMARY KEY,
  status text,
  updated_at bigint NOT NULL,
  head text,
  lineage bigint,
  ordinal integer NOT NULL,
  fence bigint NOT NULL,
  lease_until bigint NOT NULL,
  owner text,
  token uuid,
  run text,
  document text,
  agent_key text,
  title text,
  created_at bigint NOT NULL
) WITH (fillfactor = 50); -- each commit makes a new version of its row, which finds room in the same page
CREATE INDEX threads_by_update ON @.threads (updated_at, id);
CREATE INDEX threads_by_owner ON @.threads (owner) WHERE owner IS NOT NULL;

-- `begun` is the order in which lineages began. Up to `pruned` records may be missing, beyond it none may.
CREATE TABLE @.lineages (
  number bigint PRIMARY KEY,
  begun bigint GENERATED ALWAYS AS IDENTITY,
  thread text COLLATE "C",
  parent bigint CONSTRAINT lineages_parent REFERENCES @.lineages,
  cut integer NOT NULL,
  pruned integer NOT NULL DEFAULT 0
);
CREATE INDEX lineages_by_thread ON @.lineages (thread);
CREATE INDEX lineages_by_parent ON @.lineages (parent) WHERE parent IS NOT NULL;

CREATE TABLE @.records (
  lineage bigint NOT NULL,
  ordinal integer NOT NULL,
  size integer NOT NULL,
  checkpoint boolean NOT NULL,
  effect boolean NOT NULL,
  id text COLLATE "C" NOT NULL,
  meta bytea NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (lineage, ordinal)
) WITH (toast_tuple_target = 8160);
CREATE INDEX records_by_id ON @.records (id);
CREATE INDEX records_with_effect ON @.records (lineage, ordinal) WHERE effect;
ALTER TABLE @.records ALTER data SET STORAGE EXTERNAL;

CREATE TABLE @.snapshots (
  lineage bigint NOT NULL,
  ordinal integer NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (lineage, ordinal)
);
ALTER TABLE @.snapshots ALTER data SET STORAGE EXTERNAL;

-- `record` is the ordinal of the record that wrote the entry.
CREATE TABLE @.items (
  lineage bigint NOT NULL,
  frame bigint NOT NULL,
  ordinal integer NOT NULL,
  record integer NOT NULL,
  channel text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (lineage, frame, channel, ordinal)
) WITH (toast_tuple_target = 8160);
ALTER TABLE @.items ALTER data SET STORAGE EXTERNAL;

CREATE TABLE @.interrupts (
  thread text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  run text,
  kind text NOT NULL,
  node text NOT NULL,
  owner text,
  role text,
  agent_key text,
  opened_at bigint NOT NULL,
  due_at bigint,
  data bytea NOT NULL,
  PRIMARY KEY (thread, id)
);
CREATE INDEX interrupts_by_age ON @.interrupts (opened_at, id);
CREATE INDEX interrupts_by_due ON @.interrupts (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE @.runs (
  run text COLLATE "C" PRIMARY KEY,
  thread text COLLATE "C" NOT NULL
);
CREATE INDEX runs_by_thread ON @.runs (thread);

CREATE TABLE @.documents (
  digest text COLLATE "C" PRIMARY KEY,
  data bytea NOT NULL
);

-- What a store says about itself.
CREATE TABLE @.notes (
  name text COLLATE "C" PRIMARY KEY,
  data bytea NOT NULL
);

CREATE TABLE @.inputs (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  thread text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  body bytea NOT NULL
);
CREATE INDEX inputs_by_thread ON @.inputs (thread, position);

-- Consecutive commits of one life: the compare-and-swap of the thread's row, then the rows of all their records.
CREATE FUNCTION @.commit_run(
  p_thread text, p_fence bigint, p_before text, p_head text, p_lineage bigint, p_ordinal integer, p_status text,
  p_updated bigint, p_run text, p_document text, p_agent text, p_title text, p_release boolean,
  r_id text[], r_checkpoint boolean[], r_effect boolean[], r_size integer[], r_meta bytea[], r_data bytea[],
  i_frame bigint[], i_channel text[], i_ordinal integer[], i_record integer[], i_data bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE @.threads SET
    head = p_head, ordinal = p_ordinal, lineage = p_lineage, status = p_status, updated_at = p_updated, run = p_run,
    document = p_document, agent_key = p_agent, title = p_title,
    owner = CASE WHEN p_release THEN NULL ELSE owner END, lease_until = CASE WHEN p_release THEN 0 ELSE lease_until END
  WHERE id = p_thread AND fence = p_fence AND head IS NOT DISTINCT FROM p_before AND owner IS NOT NULL;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the thread is no longer where this life left it' USING ERRCODE = 'GF001';
  END IF;
  IF cardinality(r_id) > 0 THEN
    INSERT INTO @.records (lineage, ordinal, size, checkpoint, effect, id, meta, data)
      SELECT p_lineage, p_ordinal - cardinality(r_id) + n, s, c, e, i, m, d
      FROM unnest(r_id, r_checkpoint, r_effect, r_size, r_meta, r_data) WITH ORDINALITY AS r (i, c, e, s, m, d, n);
  END IF;
  IF cardinality(i_frame) > 0 THEN
    INSERT INTO @.items (lineage, frame, channel, ordinal, record, data)
      SELECT p_lineage, i.* FROM unnest(i_frame, i_channel, i_ordinal, i_record, i_data) AS i;
  END IF;
END $$;

-- The same rows for an import, whose thread follows at its end; the ordinals of `r_ordinal` may have gaps.
CREATE FUNCTION @.add_rows(
  p_lineage bigint, r_ordinal integer[], r_id text[], r_checkpoint boolean[], r_effect boolean[], r_size integer[],
  r_meta bytea[], r_data bytea[], i_frame bigint[], i_channel text[], i_ordinal integer[], i_record integer[], i_data bytea[],
  s_ordinal integer[], s_data bytea[]
) RETURNS void LANGUAGE sql AS $$
  INSERT INTO @.records (lineage, ordinal, size, checkpoint, effect, id, meta, data)
    SELECT p_lineage, o, s, c, e, i, m, d
    FROM unnest(r_ordinal, r_id, r_checkpoint, r_effect, r_size, r_meta, r_data) AS r (o, i, c, e, s, m, d);
  INSERT INTO @.items (lineage, frame, channel, ordinal, record, data)
    SELECT p_lineage, i.* FROM unnest(i_frame, i_channel, i_ordinal, i_record, i_data) AS i;
  INSERT INTO @.snapshots (lineage, ordinal, data) SELECT p_lineage, s.* FROM unnest(s_ordinal, s_data) AS s;
$$;

-- A lineage goes on from a record that is there. Whoever deletes lineages or prunes them holds the lock alone.
CREATE FUNCTION @.begin_lineage(p_number bigint, p_thread text, p_parent bigint, p_cut integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_first integer;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('graphflow tree @', 0));
  INSERT INTO @.lineages (number, thread, parent, cut) VALUES (p_number, p_thread, p_parent, p_cut);
  IF p_cut > 0 AND EXISTS (SELECT 1 FROM @.lineages WHERE number = p_parent AND pruned >= p_cut) THEN
    v_first := coalesce((SELECT max(ordinal) FROM @.snapshots WHERE lineage = p_parent AND ordinal <= p_cut), 1);
    IF (SELECT count(*) FROM @.records WHERE lineage = p_parent AND ordinal BETWEEN v_first AND p_cut)
        <> p_cut - v_first + 1 THEN
      RAISE EXCEPTION 'the record was pruned' USING ERRCODE = 'GF003';
    END IF;
  END IF;
END $$;

-- A queued input goes with the commit that records it.
CREATE FUNCTION @.consume(p_position bigint, p_thread text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM @.inputs WHERE position = p_position AND thread = p_thread;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the queued input is gone' USING ERRCODE = 'GF002';
  END IF;
END $$;
