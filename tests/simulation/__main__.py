"""python -m tests.simulation --seeds 10000, or --seed N to repeat one."""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

import quorate_compiled
from tests.simulation.run import Run


def main() -> int:
    """Run the seeds; print what failed and how to repeat it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--nodes", type=int, help="1, 3 or 5; otherwise each seed draws it")
    parser.add_argument("--shards", type=int, default=1, help="1 to 4; 0: each seed draws 2 to 4")
    parser.add_argument("--traces", action="store_true", help="print a number for all that each seed did")
    arguments = parser.parse_args()
    more = "" if arguments.shards == 1 else f" --shards {arguments.shards}"
    reached: Counter[str] = Counter()
    logging.disable(logging.CRITICAL)
    seeds = (
        [arguments.seed] if arguments.seed is not None else range(arguments.first, arguments.first + arguments.seeds)
    )
    begun = time.monotonic()
    virtual_s, requests, crashes, torn, failed, elections = 0.0, 0, 0, 0, 0, 0
    for seed in seeds:
        try:
            outcome = Run(seed, arguments.nodes, arguments.shards).go()
        except Exception:
            failed += 1
            print(f"seed {seed} FAILED; repeat with: python -m tests.simulation --seed {seed}{more}")
            traceback.print_exc(file=sys.stdout)
            continue
        if arguments.traces:
            print(f"trace {seed} {outcome.trace}")
        virtual_s += outcome.virtual_s
        requests += outcome.requests
        crashes += outcome.crashes
        torn += outcome.torn
        elections += outcome.elections
        reached.update(outcome.reached)
        if outcome.problems:
            failed += 1
            print(f"seed {seed} FAILED; repeat with: python -m tests.simulation --seed {seed}{more}")
            for problem in outcome.problems[:10]:
                print(f"  {problem}")
    took_s = time.monotonic() - begun
    print(
        f"{quorate_compiled.running()}: {len(seeds)} seeds, {failed} failed; {requests} requests, {crashes} crashes, "
        f"{torn} torn writes, {elections} elections, {virtual_s:.0f} virtual seconds in {took_s:.1f} s: "
        f"{virtual_s / took_s:.0f} a second"
    )
    print("reached: " + ", ".join(f"{count} {what}" for what, count in sorted(reached.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
