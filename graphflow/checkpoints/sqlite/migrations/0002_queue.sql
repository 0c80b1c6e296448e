-- The queue of a thread holds more than inputs: signals, and requests to stop for the owner of a life.
ALTER TABLE inputs ADD COLUMN kind TEXT NOT NULL DEFAULT 'input';
CREATE INDEX inputs_by_thread ON inputs (thread, position);
