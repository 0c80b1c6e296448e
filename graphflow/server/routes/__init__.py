"""One router per edge; each is a thin adapter over `graphflow.service`."""
