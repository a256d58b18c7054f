from tests.bottlenecks.plants import declare

VARIANT = declare("loads-down")
