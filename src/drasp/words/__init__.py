"""Programs in words: a sentence for each line, and a paragraph for the whole.

The words follow from a line's numbers and not from how they are written, so that a tensor without a name and a named
one that does the same are told alike.
"""

from drasp.words.lines import paragraph, phrase, sentence, sentences, whole_sentence
from drasp.words.verdict import names_told

__all__ = ["names_told", "paragraph", "phrase", "sentence", "sentences", "whole_sentence"]
