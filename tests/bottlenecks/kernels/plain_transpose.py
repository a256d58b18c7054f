from tests.bottlenecks.plants import declare

VARIANT = declare("plain-transpose")
