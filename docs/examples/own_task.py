"""Two tasks of one's own: train them with `drasp train own_task.py:last_letter` and `own_task.py:no_bb`."""

from drasp.tasks import Language, answer_task, each_row, language_task

# BOS x SEP y EOS: letters drawn at random, and the answer is the last of them.
last_letter = answer_task("last_letter", "abc", each_row(lambda x: x[-1:]), about="the last letter")

# BOS x EOS: words of a language; the model says which letters may come next.
no_bb = language_task("no_bb", Language("ab", "(a|ba)*b?"), about="no two b's in a row")
