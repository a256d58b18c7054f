from __future__ import annotations

from dgw.model import Launch, Plan, Pointer, Source, TensorMap, Workspace


def launch(entry: str, blocks: int, *operands: str, mapped: tuple[str, ...] = ()) -> Launch:
    maps = tuple(TensorMap(operand=name, box=(64, 64)) for name in mapped)
    return Launch(
        source=Source(path=f"{entry}.cu"), entry=entry, grid=(blocks, 1, 1), block=(128, 1, 1),
        arguments=(*maps, *(Pointer(operand=name) for name in operands), Workspace(name="w")),
    )  # fmt: skip


def test_the_launch_that_multiplies_stands_for_the_plan_however_many_threads_prepare_it() -> None:
    copies, multiplies = launch("copies", 900, "a", "b"), launch("multiplies", 132, "d", mapped=("a", "b"))
    finishes = launch("finishes", 4000, "d", "bias")
    assert Plan(steps=(copies, multiplies, finishes)).largest == 1


def test_where_no_launch_takes_all_three_the_one_with_the_most_threads_does() -> None:
    parts, adds = launch("parts", 500, "a", "b"), launch("adds", 40, "d")
    assert Plan(steps=(parts, adds)).largest == 0
    assert Plan(steps=(adds, parts)).largest == 1
    assert Plan().largest == 0
