"""What Python says where it is given something of a wrong kind: one line, by drasp's own errors.

It runs in a process of its own: the tests' type checks, which users do not have, would speak first.
"""

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
import torch
import drasp
from drasp.language import parse
from drasp.records import Record
from drasp.results.frontier import Frontier
from drasp.results.result import Result

def draw(rng, count):
    return [("ab", None)] * count

def task(name="mine", vocabulary="ab", draw=draw, **options):
    return drasp.sequence_task(name, vocabulary, draw, **options)

text = '''vocab = [a, b]
positions = 4

1. logits1 = project(inp=token, op=t)
2. prediction = softmax(logits1)
'''
program = parse(text, {"t": torch.eye(2)})
result = Result(program, Record(method="fast", lines=2), Frontier((), {}), program)
model = drasp.compile_program(program).transformer
mine = Path(sys.argv[1], "mine.py")
mine.write_text("import drasp\\nmine = drasp.sequence_task('mine', 'ab', lambda r, n: [('ab', None)] * n)")
WRONG = [
    lambda: task(name=3),
    lambda: task(vocabulary=4),
    lambda: task(vocabulary=[0, 1]),
    lambda: task(vocabulary={"a": 1, "b": 0}),
    lambda: task(draw=[("ab", None)]),
    lambda: task(edit="reverse"),
    lambda: task(offsets=5),
    lambda: task(bins=5),
    lambda: task(bins=[1, 5]),
    lambda: task(draw=None, every=draw),
    lambda: result[1.5],
    lambda: result[None],
    lambda: result[1].on([0.5]),
    lambda: result[1].on([True]),
    lambda: result[1].on(None),
    lambda: result[1].tensor[0.5],
    lambda: result[1].tensor[:1],
    lambda: drasp.load_task(3),
    lambda: drasp.decompile(model, draw),
    lambda: drasp.decompile(model, task(), accept="all"),
    lambda: drasp.decompile(model, task(), min_match=7),
    lambda: drasp.decompile(model, task(name="sort")),
]
for wrong in WRONG:
    try:
        print("nothing was said", wrong())
    except drasp.DraspError as error:
        print(error)
assert drasp.load_task(Path(f"{mine}:mine")).name == "mine"
assert [line.name for line in result] == ["logits1", "prediction"] and len(result) == 2
assert repr(program) == str(program)
"""

SAID = [
    "a task is called 3; expected its name",
    "task mine: vocabulary=4; expected a list of the names of tokens",
    "task mine: vocabulary= holds 0; expected the names of tokens",
    "task mine: vocabulary= is a dict; expected a list of the names of tokens in the order of their ids",
    "task mine: draw= is a list; expected a function draw(rng, count) (every= takes a list of all inputs)",
    "task mine: edit='reverse'; expected a function edit(rng, tokens)",
    "task mine: offsets=5; expected positions from 0 on, such as range(100)",
    "task mine: bins=5; expected a list such as [(1, 50), (51, 100)]",
    "task mine: bins= holds 1; expected (shortest, longest)",
    "task mine: every= is a function; expected a list of all inputs",
    "line 1.5: expected a line's number, from 1 on, or the name of its variable",
    "line None: expected a line's number, from 1 on, or the name of its variable",
    "the input: token 0 is the float 0.5, expected an id or a name",
    "the input: token 0 is the bool True, expected an id or a name",
    "the input: its tokens: expected a list, found None",
    "line 1: op of logits1: 0.5 along input: token; expected a label, or a place by its number",
    "line 1: op of logits1: slice(None, 1, None) along input: token; expected a label, or a place by its number",
    "expected a task, a task's name or file.py:name, found the int 3",
    "expected a task, a task's name or file.py:name, found the function draw",
    "accept all: no such criterion; there are causal, answers",
    "min_match=7: expected a share of the inputs, from 0 to 1",
    "task sort: is one of drasp's own tasks; call yours otherwise",
]


def test_what_is_of_a_wrong_kind_is_named_in_one_line(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == SAID
