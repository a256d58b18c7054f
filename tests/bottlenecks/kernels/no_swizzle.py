from tests.bottlenecks.plants import declare

VARIANT = declare("no-swizzle")
