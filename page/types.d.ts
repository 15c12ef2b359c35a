/* What the page's scripts hand to each other. */

/** A matrix by rows: a tensor of the program, or a weight of the model. */
interface Matrix {
  rows: number;
  columns: number;
  data: Float64Array;
}

/** A variable at each position: all of its entries, [position × direction], or the one direction in which it is 1, or
    `weight` where it is divided by a norm. */
interface Activation {
  size: number;
  data?: Float64Array;
  index?: Int32Array;
  weight?: Float64Array | null;
}

/** What an edit puts, adds or leaves: one number, or an array that fits the end of the value. */
type Entries = number | Float64Array;

interface Edit {
  replaced?: Entries;
  shifted?: Entries;
  scaled?: number;
  ablation?: Entries;
}

/** By the name of a variable of the program, or a site of the model. */
type Edits = Record<string, Edit>;

/** What a heatmap draws: values row by row, names of both axes, and a text for a cell. */
interface Grid {
  name: string;
  rows: number;
  columns: number;
  values: Float64Array;
  causal?: boolean;
  rowLabels: string[];
  columnLabels: string[];
  rowTitle?: string;
  columnTitle: string;
  cell?: (row: number, column: number) => string;
  marked?: (row: number, column: number) => boolean;
}

/** An element of the page's own HTML: its scripts know which are fields, links or details. */
type PageElement = HTMLElement & Pick<HTMLInputElement, "value" | "placeholder"> & { open: boolean; href: string };

/** Red, green and blue, each from 0 to 255. */
type Channels = [number, number, number];
