"""``python -m qwendeploy`` is the console script."""

from qwendeploy.cli import main

if __name__ == "__main__":
    main()
