"""Expressions as text, in the syntax of the definition."""

from __future__ import annotations

from cora.ir.expr import (
    COMPARISONS,
    TRUE,
    ZERO,
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Fma,
    LaneReduce,
    Read,
    Reduce,
    Select,
    Size,
    Unary,
    Var,
)
from cora.ir.stmt import (
    Alloc,
    AwaitCopies,
    Barrier,
    Block,
    CopyAsync,
    For,
    GroupCopies,
    If,
    Let,
    LoopKind,
    Operand,
    Stmt,
    Store,
    ThreadReduce,
    Tile,
    WarpProduct,
)

_INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6),
    "mod": ("%", 6), "lt": ("<", 1), "le": ("<=", 1), "eq": ("==", 1), "ne": ("!=", 1),
    "and": ("&", 3), "or": ("|", 2),
}  # fmt: skip


def show(e: Expr, level: int = 0) -> str:
    """`e` as text; parentheses only where precedence `level` asks for them."""
    match e:
        case Const(value=v):
            return str(v)
        case Size(name=n) | Dim(name=n) | Var(name=n):
            return n
        case Binary(op=("min" | "max") as op, a=a, b=b):
            return f"{op}({show(a)}, {show(b)})"
        case Binary(op=op, a=a, b=b):
            sign, strength = _INFIX[op]
            left = strength + (op in COMPARISONS)  # a < b < c would be a chain in Python
            text = f"{show(a, left)} {sign} {show(b, strength + 1)}"
            return f"({text})" if strength < level else text
        case Unary(op="neg", a=a):
            return f"-{show(a, 7)}"
        case Unary(op="not", a=a):
            return f"~{show(a, 7)}"
        case Unary(op=op, a=a):
            return f"{op}({show(a)})"
        case Cast(type=t, a=a):
            return f"{t}({show(a)})"
        case Select(cond=c, then=a, other=b):
            return f"where({show(c)}, {show(a)}, {show(b)})"
        case Fma(a=a, b=b, c=c):
            return f"fma({show(a)}, {show(b)}, {show(c)})"
        case Call(fun=fun, args=args):
            return f"{fun.name}[{', '.join(show(a) for a in args)}]"
        case Access(tensor=tensor, indices=indices):
            return f"{tensor.name}[{', '.join(show(i) for i in indices)}]"
        case Reduce(op=op, body=body, over=over):
            return f"{op}({show(body)}, over=({', '.join(d.name for d in over)}))"
        case Read(buffer=buffer, offset=offset):
            return f"{buffer.name}[{show(offset)}]"
        case LaneReduce(op=op, buffer=buffer, offset=offset, lanes=lanes):
            return f"{op}({buffer.name}[{show(offset)} : {show(offset)} + {lanes}])"
    return f"<{type(e).__name__}>"


def show_stmt(s: Stmt, indent: int = 0) -> str:
    """A statement as indented text, one loop or assignment a line."""
    pad = "  " * indent
    match s:
        case For(var=v, begin=b, end=e, kind=kind, body=body):
            mark = "" if kind is LoopKind.SERIAL else f"  # {kind.value}"
            return f"{pad}for {v} in {b}..{e}:{mark}\n{show_stmt(body, indent + 1)}"
        case Let(var=v, value=value, body=body):
            return f"{pad}{v} = {value}\n{show_stmt(body, indent)}"
        case If(cond=c, then=t, other=o):
            text = f"{pad}if {c}:\n{show_stmt(t, indent + 1)}"
            return text if o is None else f"{text}\n{pad}else:\n{show_stmt(o, indent + 1)}"
        case Block(stmts=stmts):
            return "\n".join(show_stmt(x, indent) for x in stmts) or f"{pad}pass"
        case Alloc(buffer=buffer, body=body):
            return f"{pad}local {buffer.name}[{buffer.size}]: {buffer.dtype}\n{show_stmt(body, indent)}"
        case Store(buffer=buffer, offset=offset, value=value):
            return f"{pad}{buffer.name}[{offset}] = {value}"
        case Barrier():
            return f"{pad}barrier"
        case CopyAsync(buffer=buffer, offset=offset, source=source):
            return f"{pad}{buffer.name}[{offset}] = copy of {source}"
        case WarpProduct(rows=rows, columns=columns, out=out, slot=slot):
            size = f"{16 * rows} x {8 * columns} x 16{', in tf32' if s.a.buffer.dtype == 'float32' else ''}"
            return f"{pad}{out.name}[{slot}:] += {_operand(s.a)} @ {_operand(s.b)}  # by the warp, {size}"
        case AwaitCopies(groups=groups):
            return f"{pad}await copies" + ("" if groups is None else f" but {groups} groups")
        case GroupCopies():
            return f"{pad}group of copies"
        case ThreadReduce(op=op, buffer=buffer, threads=threads):
            return f"{pad}{buffer.name}[:] = {op} over {threads} threads"
        case Tile():
            terms = {name: _operand(operand) for name, operand in s.operands().items()}
            extra = "".join(f" + {terms[name]}" for name in ("start", "residual") if name in terms)
            depth = str(s.depth) if s.step == 0 else f"{s.depth} + row, at most {s.limit}"
            size = f"rows={s.rows}, columns={s.columns}, depth={depth}"
            if s.first != TRUE:
                size += f", adds unless {s.first}"
            if s.residual is not None and s.last != TRUE:
                size += f", residual if {s.last}"
            if s.fill is not None:
                size += f", fills {s.b.buffer.name} from {terms['source']} if {s.fill.when}"
            if s.by is not None:
                size += f", by {s.by.name}"
            return f"{pad}{terms['out']} = {terms['a']} @ {terms['b']}{extra}  # tile, {size}"


def _operand(operand: Operand) -> str:
    row = str(operand.row) if operand.bend == ZERO else f"{operand.row} bent by {operand.bend}"
    return f"{operand.buffer.name}[{operand.offset} : {row}, {operand.column}]"
