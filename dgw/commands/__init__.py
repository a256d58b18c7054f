"""One thin file per command: parse, compose, print."""
