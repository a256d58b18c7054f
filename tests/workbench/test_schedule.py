"""Who is left, and who is to blame, after a child ended."""

from __future__ import annotations

from typing import Literal

from dgw.model import Case, gemm
from dgw.workbench.children import End
from dgw.workbench.protocol import Begin, Done, Group, Member
from dgw.workbench.schedule import MOST_CHECKED, MOST_IN_GROUP, Request, Schedule, group


def member(name: str, n: int = 64, against: tuple[str, ...] = ()) -> Member:
    return Member(case=Case(problem=gemm(64, n, 64), variant=f"t/{name}"), against=against)


def ended(how: Literal["exited", "timed-out"] = "exited", status: int = -11) -> End:
    return End(how=how, status=status, said_bye=False, context_lost=False, output="")


def names(groups: list[Group]) -> list[list[str]]:
    return [[m.case.variant[2:] + ("" if m.reported else "*") for m in one.members] for one in groups]


def test_one_problem_makes_one_group_and_baselines_join_unreported() -> None:
    base = member("base")
    requests = [Request(member("a"), ("check",), (base,)), Request(member("b"), ("check",), (base,))]
    assert names(group([*requests, Request(member("c", 8), ("check",))])) == [["base*", "a", "b"], ["c"]]
    assert names(group([Request(base, ("check",)), *requests])) == [["base", "a", "b"]]


def test_a_group_has_a_largest_size_and_every_group_its_baseline() -> None:
    base = member("base")
    made = group(Request(member(f"v{i}"), ("check", "time"), (base,)) for i in range(MOST_IN_GROUP + 1))
    assert [len(one.members) for one in made] == [MOST_IN_GROUP + 1, 2]


def test_what_is_only_checked_shares_inputs_and_reference_in_larger_groups() -> None:
    made = group(Request(member(f"v{i}"), ("check",)) for i in range(MOST_CHECKED + 1))
    assert [len(one.members) for one in made] == [MOST_CHECKED, 1]


def test_different_lanes_do_not_share_a_group() -> None:
    made = group([Request(member("a"), ("check",)), Request(member("b"), ("check", "time"))])
    assert len(made) == 2


def test_the_case_announced_last_is_to_blame() -> None:
    schedule = Schedule([Group(members=(member("a"), member("b"), member("c")))], 5.0)
    schedule.begin()
    schedule.hear(Begin(key=member("a").case.key, phase="check"))
    schedule.hear(Begin(key=member("b").case.key, phase="turn 3"))
    verdicts = schedule.end(ended())
    assert [(v.key, v.outcome) for v in verdicts] == [(member("b").case.key, "crashed")]
    assert verdicts[0].reason == "turn 3: killed by SIGSEGV"
    assert names(schedule.left) == [["a", "c"]]


def test_silence_is_timed_out_with_the_deadline() -> None:
    schedule = Schedule([Group(members=(member("a"),))], 5.0)
    schedule.begin()
    schedule.hear(Begin(key=member("a").case.key, phase="check"))
    assert schedule.end(ended("timed-out"))[0].reason == "check: no sign of life for 5 s; killed"
    assert schedule.left == []


def test_a_finished_baseline_stays_for_those_that_are_compared_with_it() -> None:
    key = member("base").case.key
    schedule = Schedule([Group(members=(member("base"), member("a", against=(key,)), member("b")))], 5.0)
    schedule.begin()
    schedule.hear(Done(key=key, outcome="ok"))
    assert names(schedule.left) == [["base*", "a", "b"]]
    schedule.hear(Done(key=member("a").case.key, outcome="ok"))
    assert names(schedule.left) == [["b"]]
    schedule.hear(Done(key=member("b").case.key, outcome="wrong"))
    assert schedule.left == []


def test_a_failed_baseline_is_not_run_again() -> None:
    base = member("base")
    groups = group([Request(member("a", against=(base.case.key,)), ("check",), (base,))])
    schedule = Schedule(groups, 5.0)
    schedule.begin()
    schedule.hear(Begin(key=base.case.key, phase="check"))
    assert [v.key for v in schedule.end(ended())] == [base.case.key]
    assert names(schedule.left) == [["a"]]


def test_an_end_between_cases_blames_nobody() -> None:
    schedule = Schedule([Group(members=(member("a"), member("b")))], 5.0)
    schedule.begin()
    schedule.hear(Begin(key=member("a").case.key, phase="check"))
    schedule.hear(Done(key=member("a").case.key, outcome="crashed"))
    assert schedule.end(ended()) == []
    assert names(schedule.left) == [["b"]]


def test_a_child_that_never_begins_blames_a_case_at_the_second_time_and_all_in_the_end() -> None:
    schedule = Schedule([Group(members=tuple(member(x) for x in "abcdef"))], 5.0)
    closed = []
    while schedule.left:
        schedule.begin()
        closed.append(len(schedule.end(ended())))
    assert closed == [0, 1, 1, 4]
