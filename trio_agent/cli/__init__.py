"""The command line. `trio_agent.__main__` is its door; nothing in here is imported by the rest of the package."""
