"""A month of work in less than an hour: sereno's clock is moved hour by hour, and nothing may grow.

`python -m tests.soak` runs real processes on a PostgreSQL of its own. `judge` decides from the figures of each day.
"""
