"""The program `fabricheck`, and `python -m fabricheck`."""

import sys


def main() -> None:
    """Runs the command line; as a prolog under a guard, which begins before anything else is imported."""
    from fabricheck import prolog

    if guarded := prolog.is_prolog(sys.argv[1:]):
        prolog.guard()
    from fabricheck.cli import main as command_line

    try:
        command_line()
    except SystemExit as ended:
        sys.exit(prolog.ADDED + int(ended.code or 0) if guarded else ended.code)


if __name__ == "__main__":
    main()
