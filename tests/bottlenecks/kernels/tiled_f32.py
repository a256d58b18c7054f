from tests.bottlenecks.plants import declare

VARIANT = declare("tiled-f32")
