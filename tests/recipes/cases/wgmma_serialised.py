from __future__ import annotations

from tests.recipes.making import record

FIRES = record({"tensor_pipe_util_active": 0.3}, flags=("ptxas: (C7511) Potential Performance Loss: wgmma serialised",))

# a flag of another kind
NEAR_MISS = record({"tensor_pipe_util_active": 0.3}, flags=("SM clock 1.2 GHz below boost",))
