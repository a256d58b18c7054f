from tests.bottlenecks.plants import declare

VARIANT = declare("tall-tiles")
