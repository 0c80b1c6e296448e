-- The ledger: what was used, by day, agent, model and thread; the thread is empty once it was deleted. Commits add to the
-- lines, of a thread only those of the process that drives it. `cost` is in 10^-12 USD.
CREATE TABLE spent (
  day INTEGER NOT NULL,
  agent_key TEXT NOT NULL,
  model TEXT NOT NULL,
  thread NOT NULL,
  model_calls INTEGER NOT NULL,
  tool_calls INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL,
  active_ms INTEGER NOT NULL,
  cost INTEGER NOT NULL,
  uncounted INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,
  PRIMARY KEY (day, agent_key, model, thread)
) WITHOUT ROWID;
