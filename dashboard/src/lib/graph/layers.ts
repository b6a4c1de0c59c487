// A layered layout for graphs of hundreds of nodes: each node in the layer after its inputs, with few crossings.

import { between, extent, type Box, type GraphNode, type Layout, type Point } from './layout';

const SWEEPS = 6;

export function layers(nodes: GraphNode[], box: Box, down: boolean, betweenLayers: number, betweenNodes: number): Layout {
  const outputs = outputsOf(nodes);
  const layerOf = ranks(nodes, outputs);
  const rows = grouped(nodes, layerOf);
  const inputs = new Map(nodes.map((node) => [node.id, node.inputs]));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) reorder(rows, sweep % 2 ? outputs : inputs, sweep % 2 === 1);
  const step = (down ? box.width : box.height) + betweenNodes;
  const offsets = align(rows, inputs, outputs, step);
  const length = (down ? box.height : box.width) + betweenLayers;
  const places = new Map<string, Point>();
  rows.forEach((row, layer) => {
    for (const id of row) {
      const [along, across] = [layer * length, offsets.get(id)!];
      places.set(id, down ? { x: across, y: along } : { x: along, y: across });
    }
  });
  const edges = nodes.flatMap((node) =>
    node.inputs.map((input) => ({
      from: input, to: node.id, points: between(places.get(input)!, places.get(node.id)!, box, down),
    })),
  );
  return { places, edges, ...extent(places, box) };
}

type Neighbours = Map<string, string[]>;

function outputsOf(nodes: GraphNode[]): Neighbours {
  const outputs: Neighbours = new Map(nodes.map((node) => [node.id, []]));
  for (const node of nodes) for (const input of node.inputs) outputs.get(input)!.push(node.id);
  return outputs;
}

/** The layer of each node: after all its inputs. A source stands next to its first reader. */
function ranks(nodes: GraphNode[], outputs: Neighbours): Map<string, number> {
  const waiting = new Map(nodes.map((node) => [node.id, node.inputs.length]));
  const rank = new Map<string, number>();
  const ready = nodes.filter((node) => !node.inputs.length).map((node) => node.id);
  ready.forEach((id) => rank.set(id, 0));
  for (let id = ready.shift(); id !== undefined; id = ready.shift()) {
    for (const next of outputs.get(id)!) {
      rank.set(next, Math.max(rank.get(next) ?? 0, rank.get(id)! + 1));
      waiting.set(next, waiting.get(next)! - 1);
      if (!waiting.get(next)) ready.push(next);
    }
  }
  for (const node of nodes) {
    const readers = outputs.get(node.id)!;
    if (!node.inputs.length && readers.length) rank.set(node.id, Math.min(...readers.map((id) => rank.get(id) ?? 1)) - 1);
  }
  return rank;
}

function grouped(nodes: GraphNode[], layerOf: Map<string, number>): string[][] {
  const rows: string[][] = [];
  for (const node of nodes) (rows[layerOf.get(node.id) ?? 0] ??= []).push(node.id);
  return Array.from(rows, (row) => row ?? []);
}

/** Sort each layer by the mean place of its neighbours in the layers before, or after. */
function reorder(rows: string[][], neighbours: Neighbours, backwards: boolean): void {
  const place = new Map<string, number>();
  const note = (row: string[]): void => row.forEach((id, at) => place.set(id, at / Math.max(row.length - 1, 1)));
  rows.forEach(note);
  for (const row of backwards ? [...rows].reverse() : rows) {
    const wanted = new Map(row.map((id) => [id, mean(neighbours.get(id)!.map((each) => place.get(each)!)) ?? place.get(id)!]));
    row.sort((a, b) => wanted.get(a)! - wanted.get(b)!);
    note(row);
  }
}

/** The place of each node across its layer: near its neighbours, `step` apart from the next one. */
function align(rows: string[][], inputs: Neighbours, outputs: Neighbours, step: number): Map<string, number> {
  const offset = new Map<string, number>();
  const longest = Math.max(...rows.map((row) => row.length));
  for (const row of rows) row.forEach((id, at) => offset.set(id, (at + (longest - row.length) / 2) * step));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const neighbours = sweep % 2 ? outputs : inputs;
      const wanted = row.map((id) => mean(neighbours.get(id)!.map((each) => offset.get(each)!)) ?? offset.get(id)!);
      spread(wanted, step).forEach((value, at) => offset.set(row[at]!, value));
    }
  }
  const least = Math.min(...offset.values());
  for (const [id, value] of offset) offset.set(id, value - least);
  return offset;
}

/** Move places apart until they are `step` from each other, as little as that needs. */
function spread(wanted: number[], step: number): number[] {
  const forwards = [...wanted];
  for (let at = 1; at < forwards.length; at += 1) forwards[at] = Math.max(forwards[at]!, forwards[at - 1]! + step);
  const backwards = [...wanted];
  for (let at = backwards.length - 2; at >= 0; at -= 1) backwards[at] = Math.min(backwards[at]!, backwards[at + 1]! - step);
  return forwards.map((value, at) => (value + backwards[at]!) / 2);
}

function mean(values: number[]): number | null {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}
