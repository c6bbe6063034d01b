"""`python -m tests.fuzz --cases 1000 --seed 7`: random programs and schedules against the interpreter.

A mismatch prints as a program that shows it when it is run from the root of the repository. The last line counts;
the exit code is 1 if there were mismatches.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.fuzz.runner import Result, run_case, run_many, serve


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz cora.")
    parser.add_argument("--cases", type=int, default=200, help="how many cases (with --minutes: at most)")
    parser.add_argument("--seed", type=int, default=0, help="the seed that all cases follow from")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="worker processes")
    parser.add_argument("--show", type=int, metavar="CASE", help="print the program of one case, run it here")
    parser.add_argument("--verbose", action="store_true", help="print a line for every case")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        serve(given.seed)
        return 0
    if given.show is not None:
        result = run_case(given.seed, given.show)
        print(result.source)
        print(f"{result.outcome} in {result.seconds:.2f} s\n{result.detail}")
        return int(result.outcome == "mismatch")

    def report(result: Result) -> None:
        if given.verbose or result.outcome == "mismatch":
            print(
                f"case {result.number} of seed {given.seed}: {result.outcome} in {result.seconds:.2f} s",
                flush=True,
            )
        if result.outcome == "mismatch":
            print(f"\n{result.source}\n{result.detail}\n", flush=True)

    deadline = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    numbers = iter(range(given.first, given.first + given.cases))
    summary = run_many(given.seed, numbers, max(given.jobs, 1), deadline, report)
    print(summary)
    return int(summary.mismatches > 0)


if __name__ == "__main__":
    sys.exit(main())
