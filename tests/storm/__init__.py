"""One storm in which everything works at once while processes, connections, disks and clocks fail.

Producers, handlers and the storm itself write journals: lines that are on disk before the writer continues. `judge`
reads them and the database at the end, and nothing else. `python -m tests.storm --help` shows the options of a run.
"""
