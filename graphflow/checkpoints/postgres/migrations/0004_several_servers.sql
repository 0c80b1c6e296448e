-- Inputs that were found to wait behind open questions are parked: nobody looks at them before the thread is taken again.
ALTER TABLE @.inputs ADD COLUMN parked boolean NOT NULL DEFAULT false;
CREATE INDEX inputs_to_begin ON @.inputs (thread, position) WHERE NOT parked AND kind <> 'stop';

CREATE FUNCTION @.unpark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE @.inputs SET parked = false WHERE thread = NEW.id AND parked;
  RETURN NULL;
END $$;
CREATE TRIGGER unpark AFTER UPDATE OF fence ON @.threads FOR EACH ROW
  WHEN (OLD.status IN ('waiting', 'stopped') AND NEW.fence <> OLD.fence) EXECUTE FUNCTION @.unpark();

-- How often a run that lost its process was begun again at the checkpoint `attempted`.
ALTER TABLE @.threads ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE @.threads ADD COLUMN attempted text;
CREATE INDEX threads_left ON @.threads (id) WHERE owner IS NULL AND status = 'running';
