"""Who takes part: one module each, run in a process of its own. See `_work.py` for what each has to do."""
