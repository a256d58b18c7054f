from tests.bottlenecks.plants import declare

VARIANT = declare("naive-f32")
