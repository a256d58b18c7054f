from __future__ import annotations

from tests.recipes.making import record

FIRES = record({"sm_clock": 1.5e9, "throttle": "SwPowerCap", "power": 700.0})

# one step of the clock below its highest
NEAR_MISS = record({"sm_clock": 1.95e9, "throttle": "SwPowerCap"})
