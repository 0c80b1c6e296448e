-- Inputs that were found to wait behind open questions are parked: nobody looks at them before the thread is taken again.
ALTER TABLE inputs ADD COLUMN parked INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER unpark AFTER UPDATE OF fence ON threads WHEN OLD.status IN ('waiting', 'stopped') AND NEW.fence <> OLD.fence
  BEGIN UPDATE inputs SET parked = 0 WHERE thread = NEW.id AND parked; END;

-- How often a run that lost its process was begun again at the checkpoint `attempted`.
ALTER TABLE threads ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN attempted;
CREATE INDEX threads_left ON threads (id) WHERE owner IS NULL AND status = 'running';
