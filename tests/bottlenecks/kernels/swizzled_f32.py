from tests.bottlenecks.plants import declare

VARIANT = declare("swizzled-f32")
