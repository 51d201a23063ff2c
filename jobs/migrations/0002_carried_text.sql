-- A job that goes on from another one's last token is committed with that one's text and tokens:
-- text may be added to a queued job as well.

DROP TRIGGER chunk_only_while_running;

CREATE TRIGGER chunk_only_while_live BEFORE INSERT ON chunk
WHEN coalesce((SELECT state FROM job WHERE seq = NEW.job), '') NOT IN ('queued', 'running')
BEGIN
  SELECT RAISE(ABORT, 'text is added to a live job only');
END;
