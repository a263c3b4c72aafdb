"""`python -m fabricheck`."""

from fabricheck.cli import main

main()
