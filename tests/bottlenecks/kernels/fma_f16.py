from tests.bottlenecks.plants import declare

VARIANT = declare("fma-f16")
