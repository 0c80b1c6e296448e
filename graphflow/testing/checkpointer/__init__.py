"""The parts of `graphflow.testing.checkpointer_conformance`, by subject."""
