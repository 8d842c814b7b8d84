"""The entry point of the command `treadle`."""

from app.cli.program import main

if __name__ == "__main__":
    main()
