/* The library of tensors that a line's op= can name, as drasp.language has it: each entry from its row and column. */

const LIBRARY = {
  zeros: () => 0,
  diagonal: (i, j) => Number(j === i),
  kth_diagonal: (i, j, { arguments: [step] }) => Number(j === i + step),
  every_kth: (i, j, { arguments: [period, remainder] }) => Number((((i - j) % period) + period) % period === remainder),
  every_kth_key: (i, j, { arguments: [period, remainder] }) => Number(j % period === remainder),
  window: (i, j, { arguments: [furthest, nearest] }) => Number(j >= i - furthest && j <= i - nearest),
  decreasing: (i, j, { columns }) => (columns - j) / columns,
  increasing: (i, j, { columns }) => (j + 1) / columns,
  to_token: (i, j, { arguments: [token] }) => Number(j === token),
  next_above: (i, j, { columns }) => (j > i ? 1 - (j - i - 1) / columns : 0),
  above: (i, j) => Number(j > i),
  below: (i, j) => Number(j < i),
};

const PARAMETERS = {
  int: "(\\d{1,9})",
  offset: "([+-]\\s*\\d{1,9})",
  token: '("(?:[^"\\\\]|\\\\.)*"|[^\\s()"]+)',
};

/** `entries`: [{ name, text, vector }], the library of selects or projects with parameters as {m:int}; what the page
    has no function for (tables, which are edited cell by cell, and a user's own) is left out. */
class Library {
  constructor(entries, { scale, vocabulary }) {
    this.scale = scale;
    this.vocabulary = vocabulary;
    this.entries = entries
      .filter(({ name }) => LIBRARY[name])
      .map((entry) => ({ ...entry, pattern: this.pattern(entry.text), kinds: this.kinds(entry.text) }))
      // Those with a token come last, so that k==q is the diagonal and not a token called q.
      .sort((a, b) => a.kinds.includes("token") - b.kinds.includes("token"));
  }

  kinds(text) {
    return [...text.matchAll(/\{\w+:(\w+)\}/g)].map(([, kind]) => kind);
  }

  /** Spaces are free around operators; words stay apart. */
  pattern(text) {
    const pieces = text.split(/(\{\w+:\w+\}|\s+|\w+)/).filter(Boolean);
    const written = pieces.flatMap((piece) => {
      const kind = piece.match(/^\{\w+:(\w+)\}$/)?.[1];
      if (kind) return [PARAMETERS[kind]];
      if (/^\s+$/.test(piece)) return ["\\s+"];
      return /^\w+$/.test(piece) ? [piece] : Array.from(piece, (sign) => `\\${sign}`);
    });
    return new RegExp(`^\\(\\s*${written.join("\\s*")}\\s*\\)(?:\\*(-?[\\d.]+(?:[eE][+-]?\\d+)?))?$`);
  }

  /** How the library is written here, for messages. */
  get texts() {
    return this.entries.map(({ text }) => `(${text.replace(/\{\w+:(\w+)\}/g, "<$1>")})`);
  }

  /** Those that fit a tensor, with numbers and a token in their places, so that each can be typed. */
  samples({ rows, byToken }) {
    const [token] = this.vocabulary;
    const quoted = /^[^\s()"]+$/.test(token) ? token : JSON.stringify(token);
    const fitting = this.entries.filter(
      ({ kinds, vector }) => (rows > 1 || vector) && (byToken || !kinds.includes("token")),
    );
    return fitting.map(({ text }) => {
      const numbers = ["2", "1"];
      const value = { int: () => numbers.shift(), offset: () => "-1", token: () => quoted };
      return `(${text.replace(/\{\w+:(\w+)\}/g, (_, kind) => value[kind]())})`;
    });
  }

  /** The tensor that a text names, [rows × columns]; `byToken`: whether columns are tokens. */
  tensor(text, { rows, columns, byToken }) {
    for (const { name, pattern, kinds, vector } of this.entries) {
      const found = text.trim().match(pattern);
      if (!found) continue;
      if (rows === 1 && !vector) throw new Error("This tensor compares two variables, and there is only one here.");
      if (kinds.includes("token") && !byToken) throw new Error("Only variables of tokens have tokens to compare with.");
      const values = kinds.map((kind, i) => this.argument(found[i + 1], kind));
      const scale = Number(found[kinds.length + 1] ?? this.scale);
      if (name.startsWith("every_kth") && !(values[0] > values[1])) throw new Error("The period must be above the remainder.");
      const data = new Float64Array(rows * columns);
      for (let i = 0, at = 0; i < rows; i++)
        for (let j = 0; j < columns; j++, at++) data[at] = scale * LIBRARY[name](i, j, { columns, arguments: values });
      return { rows, columns, data };
    }
    throw new Error(
      `Not in the library. It has ${this.texts.join(", ")}, each with *scale where it is not ${this.scale}.`,
    );
  }

  argument(text, kind) {
    if (kind !== "token") return Number(text.replace(/\s/g, ""));
    const token = text.startsWith('"') ? JSON.parse(text) : text;
    const id = this.vocabulary.indexOf(token);
    if (id < 0) throw new Error(`${isolated(token)} is not one of the program's tokens.`);
    return id;
  }
}
