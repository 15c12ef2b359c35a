/* The tensors of a line, as heatmaps with named axes. */

function operandName([name, norm]) {
  return norm ? `${name}/${norm}` : name;
}

/** The tensors of a line: title, rows and columns with their labels. */
function tensorsOf(line) {
  const side = (operand, word) => ({
    title: `${word}: ${operandName(operand)}`,
    labels: basisLabels(program, program.bases[operand[0]]),
  });
  const tokens = { title: "out: token", labels: program.vocabulary.map(shown) };
  const counted = (title) => ({ title, labels: null });
  switch (line.kind) {
    case "select":
      return [
        { title: `op of ${line.name}`, name: line.op, rows: side(line.query, "q"), columns: side(line.key, "k") },
      ];
    case "project":
      return [{ title: `op of ${line.name}`, name: line.op, rows: side(line.input, "inp"), columns: tokens }];
    case "norm":
      return line.inputs.map((operand, i) => ({
        title: operandName(operand),
        name: `${line.op}.${i}`,
        rows: side(operand, "in"),
        columns: counted("common space"),
      }));
  }
  if (line.kind !== "element_wise_op" || !line.function.network) return [];
  const { network } = line.function;
  const out = {
    title: `${line.name}: ${basisName(program.bases[line.name])}`,
    labels: basisLabels(program, program.bases[line.name]),
  };
  return [
    ...line.inputs.map((operand, i) => ({
      title: `from ${operandName(operand)}`,
      name: `${network}.${i}`,
      rows: side(operand, "in"),
      columns: counted("common space"),
    })),
    { title: "hidden", name: `${network}.hidden`, rows: counted("common space"), columns: counted("unit") },
    { title: "bias of the units", name: `${network}.hidden_bias`, rows: counted(""), columns: counted("unit") },
    { title: "out", name: `${network}.out`, rows: counted("unit"), columns: out },
    { title: "bias of the result", name: `${network}.out_bias`, rows: counted(""), columns: out },
  ];
}

function tensorGrid(tensor, matrix) {
  const labels = (axis, count) => axis.labels ?? Array.from({ length: count }, (_, i) => String(i));
  const [rowLabels, columnLabels] = [labels(tensor.rows, matrix.rows), labels(tensor.columns, matrix.columns)];
  return {
    name: tensor.title,
    rows: matrix.rows,
    columns: matrix.columns,
    values: matrix.data,
    rowLabels: matrix.rows === 1 ? [""] : rowLabels,
    columnLabels,
    rowTitle: matrix.rows === 1 ? "" : tensor.rows.title,
    columnTitle: tensor.columns.title,
    cell: (r, c) =>
      matrix.rows === 1 ? isolated(columnLabels[c]) : `${isolated(rowLabels[r])} → ${isolated(columnLabels[c])}`,
  };
}

class TensorPanel {
  /** `onCell` is told which cell is clicked. */
  constructor(tensors, onCell) {
    this.tensors = tensors;
    this.heatmap = new Heatmap(byId("tensor-map"), { square: true, maxHeight: 520, onCell });
  }

  show(line, number_) {
    const found = tensorsOf(line);
    byId("tensor-title").replaceChildren(`Line ${number_}: `, el("code", {}, line.name));
    byId("tensor-map").hidden = !found.length;
    const choice = byId("tensor-choice");
    choice.hidden = found.length < 2;
    byId("tensor-about").textContent = found.length ? this.about(line) : `${line.kind} has no tensor of its own.`;
    if (!found.length) return;
    const options = found.map(({ title, name }, i) => {
      const { rows, columns } = this.tensors.get(name);
      return el("option", { value: i }, `${title} (${rows} × ${columns})`);
    });
    const select = el("select", { onchange: () => this.draw(found[Number(select.value)]) }, options);
    choice.replaceChildren(el("label", {}, "tensor ", select));
    this.draw(found[0]);
  }

  draw(tensor) {
    this.heatmap.zoom = 1;
    this.heatmap.show(tensorGrid(tensor, this.tensors.get(tensor.name)));
  }

  about(line) {
    if (line.kind === "select")
      return "Rows are directions of the query, columns of the key. A score is the entry where the two meet.";
    if (line.kind === "project")
      return "Rows are directions of the input, columns the tokens whose logits they raise or lower.";
    return "The matrices that the line multiplies by, one after the other.";
  }
}
