"""`python -m feat2vec`: the command line."""

from feat2vec.cli import main

if __name__ == "__main__":
    main()
