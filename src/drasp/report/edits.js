"use strict";
/* What can be done to a value on its way, at a site of the model or to a variable of the program: the edits of drasp.

   An edit is { replaced }, { scaled, ablation } or { shifted }, each a number or an array that fits the end of the value:
   vectors are [position × dimension], patterns, scores and products [query × key], norms [position]. */

/** A value after an edit: always a new array.
    @param {Float64Array} value @param {Edit} edit */
function edited(value, edit) {
  const entryOf = (x, i) => (typeof x === "number" ? x : x[i % x.length]);
  if (edit.replaced !== undefined) return value.map((_, i) => entryOf(edit.replaced, i));
  if (edit.shifted !== undefined) return value.map((x, i) => x + entryOf(edit.shifted, i));
  return value.map((x, i) => edit.scaled * x + (1 - edit.scaled) * entryOf(edit.ablation ?? 0, i));
}
