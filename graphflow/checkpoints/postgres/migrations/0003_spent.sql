-- The ledger: what was used, by day, agent, model and thread; the thread is empty once it was deleted. Commits add to the
-- lines, of a thread only those of the process that drives it. `cost` is in 10^-12 USD.
CREATE TABLE @.spent (
  day integer NOT NULL,
  agent_key text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  thread text COLLATE "C" NOT NULL,
  model_calls bigint NOT NULL,
  tool_calls bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL,
  active_ms bigint NOT NULL,
  cost bigint NOT NULL,
  uncounted bigint NOT NULL,
  unpriced bigint NOT NULL,
  PRIMARY KEY (day, agent_key, model, thread)
);
