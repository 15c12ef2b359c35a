"""What the paper reports, to stand beside a study's own figures: facts from its appendix."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperModel:
    """Accuracy in three bins, in per cent; whether its layer norm could be made linear, and its MLPs be split.

    Splitting was not tried (None) where the norm could not.
    """

    accuracy: tuple[float, float, float]
    linear_norm: bool
    split: bool | None = None


@dataclass(frozen=True)
class PaperSeeds:
    """What became of ten models that differ in their seed."""

    decompiled: int
    generalised: int
    graphs: int
    programs: int
    correlation: float | None


MODELS = {
    "majority-1l4h256d3lr01drop": PaperModel((100.0, 99.7, 98.4), True, True),
    "majority-4l4h256d3lr00drop": PaperModel((100.0, 100.0, 99.7), True, True),
    "bin_majority-1l1h16d3lr01drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "bin_majority_interleave-2l2h16d3lr00drop": PaperModel((100.0, 99.6, 91.7), True, True),
    "bin_majority_interleave-2l2h64d4lr00drop": PaperModel((100.0, 74.0, 19.5), False),
    "bin_majority_interleave-4l1h64d3lr01drop": PaperModel((100.0, 98.5, 97.9), True, True),
    "sort-1l1h256d3lr01drop": PaperModel((97.8, 100.0, 100.0), True, True),
    "count-1l4h256d4lr01drop": PaperModel((100.0, 100.0, 94.8), True, True),
    "count-1l4h256d3lr01drop": PaperModel((100.0, 24.0, 0.0), False),
    "count-2l4h256d4lr01drop": PaperModel((100.0, 100.0, 99.3), True, True),
    "unique_copy-2l1h64d3lr01drop": PaperModel((100.0, 100.0, 99.1), True, True),
    "unique_copy-4l4h256d4lr00drop": PaperModel((100.0, 8.3, 0.0), False),
    "unique_copy-2l1h64d3lr01drop-1100": PaperModel((26.3, 0.0, 0.0), False),
    "unique_copy-2l1h64d3lr01drop-1200": PaperModel((92.5, 44.2, 0.4), False),
    "unique_copy-2l1h64d3lr01drop-1300": PaperModel((99.4, 93.7, 50.8), False),
    "unique_copy-2l1h64d3lr01drop-1400": PaperModel((99.9, 99.2, 81.0), False),
    "unique_reverse-2l1h64d3lr01drop": PaperModel((100.0, 100.0, 99.2), True, True),
    "unique_reverse-2l4h256d4lr01drop": PaperModel((100.0, 40.7, 0.0), False),
    "unique_reverse-4l1h256d4lr01drop": PaperModel((100.0, 100.0, 99.6), True, True),
    "unique_bigram_copy-2l4h256d3lr01drop": PaperModel((100.0, 100.0, 99.7), True, False),
    "unique_bigram_copy-4l2h64d3lr00drop": PaperModel((100.0, 46.7, 0.0), False),
    "unique_bigram_copy-2l4h256d3lr01drop-500": PaperModel((34.3, 0.2, 0.0), False),
    "unique_bigram_copy-2l4h256d3lr01drop-700": PaperModel((61.0, 5.8, 0.0), False),
    "unique_bigram_copy-2l4h256d3lr01drop-1400": PaperModel((87.0, 27.4, 0.8), False),
    "unique_bigram_copy-2l4h256d3lr01drop-1900": PaperModel((91.4, 53.3, 7.8), False),
    "unique_bigram_copy-2l4h256d3lr01drop-2100": PaperModel((96.9, 85.3, 44.3), False),
    "unique_bigram_copy-2l4h256d3lr01drop-2200": PaperModel((99.2, 95.2, 74.2), False),
    "unique_bigram_copy-2l4h256d3lr01drop-3300": PaperModel((100.0, 99.9, 99.8), True, True),
    "repeat_copy-4l4h256d3lr00drop": PaperModel((100.0, 26.6, 0.0), False),
    "parity-4l4h256d4lr00drop": PaperModel((93.9, 67.5, 63.2), False),
    "addition-4l2h64d3lr00drop": PaperModel((50.0, 1.1, 0.0), False),
    "tomita1-1l1h16d3lr00drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "tomita2-1l1h16d3lr00drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "tomita3-4l4h64d3lr00drop": PaperModel((100.0, 97.6, 88.3), False),
    "tomita4-2l2h16d3lr01drop": PaperModel((100.0, 100.0, 100.0), False),
    "tomita5-2l1h64d3lr00drop": PaperModel((98.9, 70.5, 21.6), False),
    "tomita6-2l2h256d4lr00drop": PaperModel((68.1, 9.5, 2.3), False),
    "tomita7-2l1h16d3lr01drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "D2-1l1h16d3lr00drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "D3-1l1h16d4lr00drop": PaperModel((100.0, 100.0, 100.0), False),
    "D4-1l2h256d4lr00drop": PaperModel((100.0, 100.0, 98.3), True, True),
    "D12-4l2h256d3lr00drop": PaperModel((100.0, 100.0, 97.4), False, True),
    "aastar-1l2h16d3lr01drop": PaperModel((100.0, 100.0, 100.0), True, False),
    "aaaastar-2l1h64d4lr01drop": PaperModel((100.0, 100.0, 100.0), False, True),
    "ababstar-1l1h64d3lr00drop": PaperModel((100.0, 100.0, 100.0), False),
    "abcde-1l1h16d3lr00drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "ab_d_bc-1l1h16d3lr01drop": PaperModel((100.0, 100.0, 100.0), True, True),
    "012_0_2-1l1h64d4lr00drop": PaperModel((100.0, 100.0, 100.0), False),
}
SEEDS = {
    "majority-1l4h256d3lr01drop": PaperSeeds(10, 10, 7, 1, None),
    "bin_majority-1l1h16d3lr01drop": PaperSeeds(10, 10, 6, 1, 1.00),
    "bin_majority_interleave-2l2h16d3lr00drop": PaperSeeds(2, 0, 2, 2, None),
    "count-1l4h256d4lr01drop": PaperSeeds(1, 1, 1, 1, None),
    "sort-1l1h256d3lr01drop": PaperSeeds(10, 10, 1, 2, 0.96),
    "unique_bigram_copy-2l4h256d3lr01drop": PaperSeeds(7, 10, 7, 4, None),
    "unique_copy-2l1h64d3lr01drop": PaperSeeds(7, 7, 3, 3, 0.94),
    "unique_reverse-2l1h64d3lr01drop": PaperSeeds(9, 8, 5, 4, 0.67),
}
# Mean match accuracy of the decompilable models after each stage, and shares of operations with a name.
STAGES = {"components": 0.93, "paths": 0.93, "products": 0.95, "primitives": 0.95}
NAMED = {"select": 0.34, "project": 0.30, "elementwise": 0.19}
SINGLE_INPUT = 0.88  # of MLPs
STABLE, STABLE_PROGRAMS, STABLE_OF = 17, 10, 21  # models whose runs nest; whose runs give one program; of so many
SHORT, SHORT_OF = 3, 6  # models that can be decompiled on inputs up to 50, of those that do not length-generalise
