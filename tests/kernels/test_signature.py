from __future__ import annotations

import pytest

from dgw.kernels.signature import kernels

EXTERN = 'extern "C" __global__ '


@pytest.mark.parametrize(
    ("before", "kind", "dtype"),
    [
        ("", "int", "i32"),
        ("", "const unsigned", "u32"),
        ("", "size_t", "i64"),
        ("", "unsigned long long", "i64"),
        ("", "double", ""),
        ("", "short", ""),
        ("typedef long long ll;", "const ll", "i64"),
        ("typedef unsigned int u32;", "u32", "u32"),
        ("using index = std::int64_t;", "index", "i64"),
        ("typedef long long wide; using index = wide;", "index", "i64"),
        ("#define INDEX long long\n", "INDEX", "i64"),
        ("typedef float real;", "real", "f32"),
    ],
)
def test_a_number_has_the_type_that_its_alias_stands_for(before: str, kind: str, dtype: str) -> None:
    (kernel,) = kernels(f"{before}\n{EXTERN}void f({kind} lda) {{ }}")
    assert kernel.parameters[0].scalar == dtype
    assert (kernel.parameters[0].name, kernel.parameters[0].pointer) == ("lda", False)


def test_a_pointer_is_one_through_an_alias_too_and_knows_its_element() -> None:
    text = f"typedef __half element;\n{EXTERN}void f(const element* __restrict__ a, float *b, element c[]) {{ }}"
    (kernel,) = kernels(text)
    assert [(p.name, p.pointer, p.element) for p in kernel.parameters] == [
        ("a", True, "f16"), ("b", True, "f32"), ("c", True, "f16"),
    ]  # fmt: skip


def test_every_kernel_is_found_with_its_own_name_and_shared_memory() -> None:
    text = f"""
    // __global__ void decoy() {{ }}
    __global__ void declared_only(int x);
    template <int N> __global__ void mangled() {{ if (N) {{ }} }}
    {EXTERN}void __launch_bounds__(256, 2) one() {{ extern __shared__ float memory[]; }}
    extern "C" {{ __global__ void two(void) {{ __shared__ float fixed[4]; }} }}
    """
    found = kernels(text)
    assert [(one.entry, one.mangled, one.dynamic) for one in found] == [
        ("mangled", True, False), ("one", False, True), ("two", False, False),
    ]  # fmt: skip
    assert found[2].parameters == ()


def test_shared_memory_that_is_declared_outside_belongs_to_every_kernel() -> None:
    text = f"extern __shared__ int memory[];\n{EXTERN}void one() {{ }}\n{EXTERN}void two() {{ }}"
    assert [one.dynamic for one in kernels(text)] == [True, True]
