from tests.bottlenecks.plants import declare

VARIANT = declare("stores-down")
