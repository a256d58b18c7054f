from tests.bottlenecks.plants import declare

VARIANT = declare("shallow-square")
