"""The numbers that the search goes by: what a cut and a name are held to, what they are worth, how much is tried.

A result keeps all of them. What only guards against rounding, or bounds memory, stays where it is used.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Numbers:
    """What a run goes by, as its result keeps it."""

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))


@dataclass(frozen=True)
class NamingSettings(Numbers):
    """How names are found, and what they may cost."""

    # What a name is held to. The evidence in the end asks for a little less, on other inputs.
    tolerance: float = 0.01  # of agreement, that all names together may cost
    of_each: float = 0.005  # the same, of one: what costs more says something else than the line did
    least_interchange: float = 0.92  # share alike where a line comes from another input
    least_again: float = 0.97  # the same, should the evidence in the end say otherwise
    least_of_norms: float = 0.8  # the same, of a norm that stays as it is: what is simpler may ask less of it
    least_rounded: float = 0.97  # the same, of rounded numbers: more digits cost nothing but looks
    least_overlap: float = 0.55  # of attention: a name may harden what is soft
    overlap_without: float = 0.92  # the same, where a line goes: what it leaves shall look where it did
    least_edited: float = 0.93  # of answers that edits change, if the program that has no names yet gives so many
    lost: float = 0.02  # of the answers that edits change, that all names together may cost
    fewest: int = 12  # cases that say anything
    many: int = 20  # cases that say something of one kind of edit
    negligible: float = 0.02  # of the sources: a line that changes fewer answers says nothing
    alike: float = 0.95  # overlap of attention weights of two heads that may be one line

    # What is tried.
    patience: int = 4  # failures in a row that end a pass: what is long and has no names yet will hardly get any
    close: float = 0.15  # of agreement: a candidate further off on few inputs is not tried on all
    attempts: int = 4  # tensors for a select, those that come nearest
    softened: int = 3  # of them, those that are tried with soft scores too
    looked_at: int = 6  # inputs on which it is seen where a head looks; each has many positions
    sharper: tuple[float, ...] = (1.0, 3.0)  # times the scale of what a soft one replaces: names blur what is sharp
    scales: tuple[float, ...] = (10_000.0, 300.0, 100.0, 30.0, 10.0, 3.0)  # of scores, from hard to soft
    bonus_alone: float = 0.01  # of agreement, for one tensor for ordinary and special tokens alike, which is simpler
    bonus_hard: float = 0.005  # the same, for the library's usual scale, which needs no number
    shades: int = 20  # steps of an overlap: by less, no candidate looks more where the head does
    by_loss: float = 1e-3  # of agreement, for a loss less by one: of those that agree alike, the nearer first
    most_loss: float = 100.0  # that counts there: of candidates further off, none will do
    as_near: float = 0.05  # of correlation: by so little less than the nearest, the simpler name is the better one
    nearest: int = 3  # tensors of the library that a stored one is compared with further
    offsets: int = 8  # positions, back or ahead: heads that look further by number are rare
    whole_numbers: int = 7  # from 0, as the parameters of a tensor
    least_ordered: int = 4  # tokens that can be said to have an order, as numbers or letters
    pairs: int = 5  # of one for ordinary and one for special tokens
    least_correlation: float = 0.25  # of a stored tensor with one that may take its place
    the_same: float = 0.999  # correlation of a table with the tensor that may take its place
    functions: int = 4  # for an MLP, those that come nearest
    most_residual: float = 0.5  # of the variance, that a function for an MLP may leave over
    positions: int = 6000  # on which a function is compared with an MLP
    most_dimensions: int = 1200  # of a function's result: least squares take the cube of that
    least_squares: int = 8000  # answers that tell whether an MLP is linear
    column_steps: int = 30  # that a column's largest number may have: what a sigmoid says of a token counts no further
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 10, 16, 30, 100, 300, 1000)  # counts to 150 take numbers of three digits
    accident: float = 1e-3  # of the largest number: nearer to 0, a logit's sign is an accident of rounding
    slack: float = 2e-4  # of the answers, that rounding a column may change
    most_entries: int = 40  # of a table that is written out: nobody reads more
    most_zeros: int = 200  # numbers that are tried one by one whether they can be 0; each takes a look at all answers
    means_by: int = 5  # every so-many-th batch gives means: more of them would say the same
    settled_by: int = 5  # every so-many-th batch settles the bias when a line is dropped
    settling_steps: int = 10  # of descent, on one constant

    without: tuple[str, ...] = ()  # passes that are left out, to see what they do


@dataclass(frozen=True)
class Settings(Numbers):
    """How a program is searched for; the default is one value of it, and `QUICK` another."""

    # How much is spent.
    inputs: int = 480  # on which constants are settled, and as many on which agreement decides
    patience: int = 3  # failures in a row that end a pass on the graph; settling them is dear
    brief_steps: int = 5  # of descent, where constants are settled: most of what is tried fails
    longer_steps: int = 12  # the same, where a brief one came near
    near: float = 0.05  # of agreement: so far below its target a cut is settled for longer
    unseen_inputs: int = 1000  # on which names are judged in the end
    fresh_inputs: int = 2000  # for the agreement that is reported
    probed: tuple[int, int] = (5, 20)  # every so-many-th input ranks moves, which takes few; 20, where answers are long
    tuned: tuple[int, int] = (2, 4)  # the same, for settling, which must not suit those inputs alone
    long_answers: int = 20  # positions that count in an input: from there on fewer inputs say as much
    slopes_inputs: int = 96  # whose gradients rank edges and lines
    edited: float = 0.25  # of the inputs that constants are settled on: what suits the task alone may hide what is done
    trials_from_task: int = 64  # pairs of inputs for a look at the mechanism, of inputs of middle length
    trials_of_each_edit: int = 48  # the same, of edited inputs: few of them change an answer
    middle_length: int = 60  # tokens: of shorter inputs there may be more, and more at once, and of longer ones fewer
    least_times: float = 0.5  # of the trials, for the longest inputs
    most_times: float = 3.0  # and for the shortest

    # The agreement that is kept.
    target: float = 0.95  # on the answers that decide
    lowest: float = 0.93  # the same, in the last round, for what stays long
    of_all: float = 0.93  # on all answers, mistakes among them
    fewer: float = 0.01  # than a model that has learnt its task has right: its mistakes can hardly be followed
    least_of_all: float = 0.91  # however many mistakes it makes
    mastered: float = 0.9  # accuracy of a model that has learnt its task
    nearly_all: float = 0.995  # where nothing is to be lost
    slight: float = 1e-3  # of the loss of a model that hears nothing: by so little, it is mistakes that change
    as_well: float = 0.002  # less agreement, with constants that nothing was fitted to

    # What cuts leave of the mechanism. The evidence in the end asks for a little less, on other inputs.
    least_overlap: float = 0.92  # of a head's weights with its own in the model
    least_edited: float = 0.93  # of answers that edits change, for the kind of edit where that is lowest
    fewest: int = 12  # cases: fewer say nothing
    many: int = 20  # cases that say something of one kind of edit
    nothing_lost: float = 0.98  # of answers that stay with all that is cut from another input: it hardly matters at all
    complete: float = 0.91  # the same, of a program that is complete
    sufficient: float = 0.85  # of one that is not: it may leave out what matters at times, not another way to answers
    interchange: float = 0.97  # alike with a part from another input, where a norm is constant
    interchange_after_cuts: float = 0.94  # the same, where norms are as they were
    clear_of_norms: float = 0.1  # of the median margin: of nearer answers, harmless norms cost a tenth
    more_of_near: float = 0.04  # of nearer answers, that may change besides
    by_chance: float = 0.01  # of these answers: one or two that happen to change
    seldom: float = 0.02  # of the pairs: a norm that changes fewer answers does not matter

    # What a cut is worth, in lines, and a line in agreement.
    worth_of_a_line: float = 0.01  # of agreement: ten lines fewer are worth a tenth of the answers
    worth_of_noise: float = 0.02  # of a line that does not matter: there noise decides
    worth_of_a_read: float = 1.0  # what functions and queries need not read makes them simpler
    worth_of_a_norm: float = 0.3  # layer norm is there in every model, and a number in its place is not

    # What is tried.
    hopeless: float = 0.5  # of the loss of a model that hears nothing: what comes near it is no way on
    worth_settling: float = 0.4  # of a hopeless loss: constants make up for less than that
    harmless: float = 0.01  # of a hopeless loss: what costs no answers and is refused says nothing of the others
    most_missing: float = 0.1  # of what is to spare, that settling may bring back
    hardly_better: float = 0.995  # agreement that settling would hardly add to, or bring
    looked_at: int = 10  # moves, at least, whose loss is measured anew in each round
    most_edges: int = 36  # of a graph whose lines are counted
    most_lines: int = 60  # a program that is longer is squeezed, not shortened with care
    most_written: int = 300  # lines of a program that is only squeezed
    long: int = 12  # lines: of a program that stays longer, what matters may go too

    # The frontier and the pick.
    truer: float = 0.01  # that a longer program must agree more often to be on the frontier
    much_shorter: float = 0.67  # of the lines: so short is what has lost more than it should, to be worth it
    more_lines: int = 2  # that a complete program may have more than a sufficient one
    more_of_lines: float = 0.25  # or so large a part of them
    saved_by_names: int = 3  # lines, at most, as a rule
    more_tried: int = 3  # longer programs, where the first do not do it by the model's means
    most_named: int = 12  # lines of a program that is named: each is tried by running all of it, many times
    most_numbers_named: int = 30_000_000  # in its tables, for the same reason

    naming: NamingSettings = field(default_factory=NamingSettings)
    without: tuple[str, ...] = ()  # passes that are left out, to see what they do


DEFAULT = Settings()
QUICK = Settings(inputs=240, patience=2)


@dataclass(frozen=True)
class EvidenceSettings(Numbers):
    """What the evidence for a program is held to: the same for all, or verdicts could not be compared. No option."""

    # How much is measured.
    inputs: int = 1000  # for agreement, which is reported on others
    pairs: tuple[int, int] = (120, 60)  # with sources from the task, and of each kind of edit: most change an answer
    more_pairs: tuple[int, int] = (240, 100)  # besides, where the first show too little
    quick_inputs: int = 400  # for a look at programs that are not handed out
    quick_pairs: tuple[int, int] = (50, 50)  # the same

    # When a measure passes.
    passing: float = 0.9  # the mean over its cases
    lowest_passing: float = 0.85  # the lower end of its interval
    fewest_cases: int = 50  # that say anything: the interval of fewer is too wide

    # Which answers count; shares of the median margin by which the reference prefers its answers to others.
    clear: float = 0.02  # answers by less are unclear: little, where the reference has the same parts as the program
    clear_in_model: float = 0.2  # more against the whole model, where what was cut decides what is almost a tie
    even: float = 0.05  # where the reference prefers one of two by more, a program that says both does not say the same
    vague: float = 0.2  # by less, as for a query that finds no key, a program that says many tokens says as little

    # Parts of components; shares of pairs of inputs.
    often: float = 0.1  # a part that changes answers so often says something,
    hardly: float = 0.02  # and cancels out if the whole component, taken from the same sources, changes no more

    # Attention, splicing and what is complete.
    places: int = 2  # positions drawn of each input: others say nearly the same
    least_overlap: float = 0.5  # of a replaced line with the model's heads: a name may harden what is soft, no more
    least_effect: float = 0.01  # of what taking everything from another input does: below, a component says nothing
    furthest: float = -1.0  # of a splice: without a bound a single input could outweigh all others
    untested_allowed: int = 1  # lines of a complete program, if their few cases do not speak against it
    most_variables: int = 2  # of an unnamed MLP in a complete program: of more, it could hide the whole of it


EVIDENCE = EvidenceSettings()


@dataclass(frozen=True)
class UgsSettings(Numbers):
    """How the paper's own pruning goes; by default as in the paper: minutes for the smallest models, hours or days for
    larger ones.
    """

    # How much is spent.
    runs: tuple[int, int, int, int] = (20, 20, 20, 20)  # at most, in each stage
    continued: int = 4  # runs that go on to the next stage
    patience: tuple[int, int, int, int] = (1000, 1000, 500, 500)  # steps without undecided gates
    steps: int = 5000  # at most, in each run
    inputs: int = 10  # in a step
    masks: int = 12  # samples of the gates for each input
    batches: int = 200  # that are drawn, and used again and again

    # How a run is trained, by AdamW.
    start: float = 8.0  # θ of a gate that has not been trained: it is open in all but one row of 3,000
    undecided: float = 1.0  # θ, either way: nearer to 0, a gate is open in many rows and shut in many
    shut: float = -6.0  # θ of a gate that is open, for all that is to come, in less than one row of 400
    gate_rate: float = 0.1  # gates go from open to shut within a run
    constant_rate: float = 0.002  # constants begin as means, and follow
    norm_rate: float = 0.1  # of logarithms
    mlp_rate: float = 1e-3  # parts of split MLPs, which begin as the whole
    betas: tuple[float, float] = (0.9, 0.995)  # what one mask in many shows is not forgotten at once
    clip: float = 5.0  # the largest gradient, of all gates together
    check_every: int = 50  # steps, whose mean loss is compared with that of a model that says the same everywhere
    checks: int = 3  # above it in a row, after which a run is given up

    # Which prices are tried.
    coefficient: float = 0.01  # the first
    smallest: float = 1e-5  # coefficient, in units of the loss of a unigram model for a gate: all stays open
    largest: float = 1e3  # the same: all is closed
    factor: float = 5.0  # from the known coefficients into the unknown
    alike: float = 0.01  # of the logarithm of a coefficient: one that is nearer to a known one shows nothing new
    intervals: int = 10  # of agreement, each of which shall have a run

    # What goes on.
    enough: float = 0.7  # agreement without which a model is not taken further
    splits: float = 0.9  # agreement with which MLPs can be split
    given_away: float = 0.2  # of agreement, at most, in a later stage


PAPER_SETTINGS = UgsSettings()


@dataclass(frozen=True)
class PaperNaming(Numbers):
    """How names are found in the paper's way, by its own numbers."""

    inputs_for_functions: int = 2048  # on which functions are compared
    inputs_for_tensors: int = 1200  # and tensors
    positions: int = 20_000  # for least squares
    least_linear: float = 0.92  # agreement with which a linear map is taken at once
    for_linear: float = 0.01  # of agreement, in favour of a linear map
    least_function: float = 0.9  # the same, of a function of the library
    least_tensor: float = 0.95  # of the pruned program's agreement
    least_rounded: float = 0.91  # the same, while numbers become sparse and whole
    penalties: tuple[float, ...] = (1e-1, 1e-2, 1e-4)  # of what is not 0, or not whole: all are tried
    steps: int = 2000  # towards 0, and as many towards whole numbers
    rate: float = 1e-4  # of Adam
    batch: int = 120  # inputs in a step
    batches: int = 20  # that are drawn, and used again and again
    window: int = 10  # steps whose agreement is averaged


PAPER_NAMING = PaperNaming()
