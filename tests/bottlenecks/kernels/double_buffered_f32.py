from tests.bottlenecks.plants import declare

VARIANT = declare("double-buffered-f32")
