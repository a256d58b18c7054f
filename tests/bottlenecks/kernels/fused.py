from tests.bottlenecks.plants import declare

VARIANT = declare("fused")
