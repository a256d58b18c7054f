from tests.bottlenecks.plants import declare

VARIANT = declare("wait-at-once-square")
