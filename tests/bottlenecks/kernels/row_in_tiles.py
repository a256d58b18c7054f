from tests.bottlenecks.plants import declare

VARIANT = declare("row-in-tiles")
