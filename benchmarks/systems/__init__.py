"""The systems under measurement, one module each: `CASES` maps a workload's case to what does it."""
