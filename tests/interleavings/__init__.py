"""A model checker that runs the real SQL on a real PostgreSQL: it decides at each statement which connection is next.

The operations of the store are generators that yield statements. `actor` runs the operations of one caller on a
connection of its own, move by move. `execution` lets the actors of a scenario move in a given order, and waits for
locks. `search` chooses the orders, `schedule_runner` runs one and checks its end, `explore` runs many. `scenarios` has
what is run.
"""
