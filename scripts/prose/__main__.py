"""Sentences that break the prose standard.

python -m scripts.prose                 sentences and flags of each surface
python -m scripts.prose docs errors     every flagged sentence of these surfaces
python -m scripts.prose --write         lower the counts of tests/prose_baseline.txt
python -m scripts.prose --write --raise raise them, too: only after a merge
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict

from scripts.prose import baseline, rules, surfaces


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.prose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("surface", nargs="*", choices=[[], *surfaces.SURFACES], default=[])
    parser.add_argument("--rule", help="only this rule")
    parser.add_argument("--write", action="store_true", help="write the baseline")
    parser.add_argument("--raise", dest="raised", action="store_true", help="accept new flags")
    options = parser.parse_args()
    if options.write:
        sys.exit(baseline.write(surfaces.counts(), raised=options.raised))
    flags = [flag for flag in surfaces.flags() if not options.rule or options.rule in flag.rules]
    if options.surface:
        for flag in flags:
            if flag.surface in options.surface:
                print(flag)
        return
    _print_table(flags)


def _print_table(flags: list[surfaces.Flag]) -> None:
    lengths: dict[str, list[int]] = defaultdict(list)
    for surface, _, _, sentence in surfaces.sentences():
        lengths[surface].append(rules.count_words(sentence))
    broken = Counter(flag.surface for flag in flags)
    print(f"{'surface':14}{'sentences':>10}{'mean':>7}{'flags':>7}{'share':>7}")
    for surface in surfaces.SURFACES:
        some = lengths[surface] or [0]
        share = broken[surface] / len(some)
        print(
            f"{surface:14}{len(some):10}{sum(some) / len(some):7.1f}{broken[surface]:7}{share:7.0%}"
        )


if __name__ == "__main__":
    main()
