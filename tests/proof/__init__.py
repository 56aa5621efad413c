"""The page docs/why/proof.md: what is promised, how it is checked, and what the last recorded runs found.

`promises.toml` names the promises and their invariants. Scenarios and mutants belong to a promise by their capability.
`results.json` has the recorded runs. `python -m tests.proof` writes the page.
"""
