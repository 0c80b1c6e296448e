"""`python -m graphflow`: the command line."""

from graphflow.cli.app import main

if __name__ == "__main__":
    main()
