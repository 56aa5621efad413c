"""`python -m sereno` is `sereno`."""

from sereno.cli.main import main

main()
