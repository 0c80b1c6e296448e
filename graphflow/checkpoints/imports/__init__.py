"""What an exported thread has to be before a store takes it."""
