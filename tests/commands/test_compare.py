from __future__ import annotations

import json

from tests.commands.conftest import Dgw

RUNGS = ("tiled", "swizzled", "--shape", "128x128x64", "--no-store")


def test_compare_says_whether_each_stage_kept_its_word(dgw: Dgw) -> None:
    ended = dgw("compare", *RUNGS, "--sass")
    assert ended.code == 0
    assert "held: cuda/tiled: conflict_ratio_ld is above 0.3" in ended.out
    assert "held: cuda/swizzled: conflict_ratio_ld is 0 (0)" in ended.out
    assert "FFMA" in ended.out


def test_findings_stand_beside_the_run_in_json(dgw: Dgw) -> None:
    content = json.loads(dgw("compare", *RUNGS, "--json").out)
    assert content["schema"] == "dgw.run/1"
    assert any(finding["verdict"].startswith("held: cuda/swizzled") for finding in content["findings"])
