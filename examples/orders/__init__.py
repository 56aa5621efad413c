"""Orders that wait for their payment: a workflow in one function."""
