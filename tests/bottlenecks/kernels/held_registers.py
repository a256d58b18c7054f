from tests.bottlenecks.plants import declare

VARIANT = declare("held-registers")
