"""What is taken for a user's micro-kernel, what it is compiled to, and what is refused with which reason."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import cora
from cora.codegen.link import find_linker, link
from cora.codegen.target import detect
from cora.errors import UnsupportedError, UserError
from cora.tiles.given import given_code
from tests.tiles.given_kernels import any_text, any_tile, row_of_16, vector_text


def compiled(kernel: cora.MicroKernel) -> bytes:
    return given_code(kernel, "native", detect().features, "")


def test_each_library_has_its_own(tmp_path: Path) -> None:
    linker = find_linker()
    if linker is None:
        pytest.skip("no linker")
    kernel = any_tile()
    path = tmp_path / "given.so"
    path.write_bytes(link([compiled(kernel)], linker))
    with pytest.raises(AttributeError):  # each library has its own
        getattr(ctypes.CDLL(str(path)), kernel.symbol)


def test_names_do_not_meet_and_digests_follow_the_text() -> None:
    one, other = any_tile(), cora.MicroKernel("any_tile", any_text() + "\n; another text\n", 4, 24)
    assert one.digest != other.digest
    assert one.symbol != other.symbol
    assert one == any_tile()
    assert hash(one) == hash(any_tile())
    assert one.digest == any_tile(rows=2).digest  # the code is the same
    assert "phi" not in repr(one)


def test_same_text_same_code() -> None:
    assert compiled(any_tile()) == compiled(any_tile())
    assert compiled(any_tile()) != compiled(row_of_16())


def refused(message: str, ir: object, name: object = "f", rows: object = 4, columns: object = 16) -> None:
    with pytest.raises(UserError, match=message):
        cora.MicroKernel(name, ir, rows, columns)  # type: ignore[arg-type]


SIGNATURE = "i64, i64, i64, ptr, i64, i64, ptr, i64, ptr, i64, i64"


def test_texts_that_are_refused() -> None:
    refused(r"LLVM refuses the text: (.|\n)*expected type", "define void @f( {")
    refused("LLVM refuses the text", "define float @f() { ret float 1.0 }\ndefine void @f() { ret void }")
    refused("LLVM refuses the text", "define i32 @f(i32 %x) { ret i32 %y }")
    refused("defines no function of that name; it defines 'any_tile'", any_text())
    refused("defines no function of that name; it defines none", f"declare void @f({SIGNATURE})")
    refused(
        r"expected a function of type void \(i64, .*got void \(i64\)", "define void @f(i64 %n) { ret void }"
    )
    refused("got i32", f"define i32 @f({SIGNATURE}) {{ ret i32 0 }}")
    refused("calling convention of C; got fastcc", f"define fastcc void @f({SIGNATURE}) {{ ret void }}")
    body = f"define void @f({SIGNATURE}) {{ call void @puts(ptr null)\nret void }}\ndeclare void @puts(ptr)"
    refused("must define all that it uses; it does not define 'puts'", body)
    refused("does not define 'g'", f"@g = external global float\ndefine void @f({SIGNATURE}) {{ ret void }}")
    start = "@llvm.global_ctors = appending global [0 x { i32, ptr, ptr }] zeroinitializer"
    refused("nothing may run when it is loaded", f"{start}\ndefine void @f({SIGNATURE}) {{ ret void }}")


def test_sizes_and_types_that_are_refused() -> None:
    refused("rows must be an int of 1 to 4096; got 0", any_text("f"), rows=0)
    refused("columns must be an int of 1 to 4096; got 5000", any_text("f"), columns=5000)
    refused("rows must be an int of 1 to 4096; got True", any_text("f"), rows=True)
    refused("ir must be a str; got bytes", b"")
    refused("name must be a str; got int", any_text("f"), name=3)
    with pytest.raises(UserError, match="edges must be a bool; got 1"):
        cora.MicroKernel("f", any_text("f"), 1, 16, edges=1)  # type: ignore[arg-type]


def test_the_processor_that_a_text_was_made_for_does_not_count() -> None:
    """Compilers write it; code for instructions that are not here would end the process."""
    head, _, rest = any_text().partition("{")
    attributes = 'attributes #0 = { "target-cpu"="sapphirerapids" "target-features"="+amx-tile,+avx512fp16" }'
    kernel = cora.MicroKernel("any_tile", f"{head} #0 {{{rest}\n{attributes}", 4, 24)
    code = compiled(kernel)
    plain = cora.MicroKernel("any_tile", f'{head} #0 {{{rest}\nattributes #0 = {{ "made-for" }}', 4, 24)
    assert code.replace(kernel.symbol.encode(), b"") == compiled(plain).replace(plain.symbol.encode(), b"")


def test_instructions_that_the_processor_lacks_are_refused_before_llvm_sees_them() -> None:
    fma = "llvm.x86.avx512.vfmadd.ps.512"
    vectors = ", ".join(["<16 x float>"] * 3)
    text = vector_text("f").replace("@llvm.fma.v16f32(<16 x float> %xs", f"@{fma}(<16 x float> %xs")
    text = text.replace("<16 x float> %s)", "<16 x float> %s, i32 4)")
    text = text.replace(f"@llvm.fma.v16f32({vectors})", f"@{fma}({vectors}, i32)")
    kernel = cora.MicroKernel("f", text, 1, 16)
    with pytest.raises(
        UnsupportedError, match=r"calls llvm\.x86.avx512\.vfmadd\.ps\.512, which needs avx512f"
    ):
        given_code(kernel, "haswell", frozenset({"avx2", "fma"}), "")
    nothing = f"define void @f({SIGNATURE}) {{ call void @llvm.x86.sse2.pause()\nret void }}"
    other = cora.MicroKernel("f", f"{nothing}\ndeclare void @llvm.x86.sse2.pause()", 1, 16)
    with pytest.raises(UnsupportedError, match="needs another processor"):
        given_code(other, "native", detect().features, "")


def test_constants_and_helpers_of_the_text_are_its_own() -> None:
    helper = "define float @cora_tile(float %x) {\n  ret float %x\n}\n@tiles = global i32 7\n"
    kernel = cora.MicroKernel("any_tile", helper + any_text(), 4, 24)
    linker = find_linker()
    if linker is None:
        pytest.skip("no linker")
    twice = cora.MicroKernel("any_tile", helper + any_text() + "; twice", 4, 24)
    assert link([compiled(kernel), compiled(twice)], linker)
