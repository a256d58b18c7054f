"""`python -m dgw` is `dgw`."""

from dgw.cli import main

if __name__ == "__main__":
    main()
