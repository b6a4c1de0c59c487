// Where the nodes of a graph are. Small graphs are laid out by dagre, large ones in milliseconds by layers.

export interface GraphNode {
  id: string;
  inputs: string[];
}

export interface Point {
  x: number;
  y: number;
}

export interface Edge {
  from: string;
  to: string;
  points: Point[];
}

export interface Layout {
  /** Upper left corner of each node. */
  places: Map<string, Point>;
  edges: Edge[];
  width: number;
  height: number;
}

export interface Box {
  width: number;
  height: number;
}

/** From here on dagre takes a second or more. */
const MANY = 150;
const BETWEEN_LAYERS = 34;
const BETWEEN_NODES = 18;

/** Return a layout from left to right, or from top to bottom if `down`. */
export async function layoutOf(nodes: GraphNode[], box: Box, down: boolean): Promise<Layout> {
  const known = new Set(nodes.map((node) => node.id));
  const clean = nodes.map((node) => ({ id: node.id, inputs: node.inputs.filter((input) => known.has(input)) }));
  if (clean.length > MANY) return (await import('./layers')).layers(clean, box, down, BETWEEN_LAYERS, BETWEEN_NODES);
  return byDagre(clean, box, down);
}

async function byDagre(nodes: GraphNode[], box: Box, down: boolean): Promise<Layout> {
  const { graphlib, layout } = (await import('@dagrejs/dagre')).default;
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: down ? 'TB' : 'LR', ranksep: down ? 32 : BETWEEN_LAYERS, nodesep: BETWEEN_NODES });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { ...box });
  for (const node of nodes) for (const input of node.inputs) graph.setEdge(input, node.id);
  layout(graph);
  const places = new Map(nodes.map(({ id }) => [id, corner(graph.node(id) as unknown as Point, box)]));
  const edges = graph.edges().map((edge) => {
    const points = (graph.edge(edge) as unknown as { points: Point[] }).points.slice(1, -1);
    return { from: edge.v, to: edge.w, points: between(places.get(edge.v)!, places.get(edge.w)!, box, down, points) };
  });
  return { places, edges, ...extent(places, box) };
}

function corner(centre: Point, box: Box): Point {
  return { x: centre.x - box.width / 2, y: centre.y - box.height / 2 };
}

/** Return the points of an edge: from the end of one node to the start of the other, by way of `bends`. */
export function between(from: Point, to: Point, box: Box, down: boolean, bends: Point[] = []): Point[] {
  const start = down ? { x: from.x + box.width / 2, y: from.y + box.height } : { x: from.x + box.width, y: from.y + box.height / 2 };
  const end = down ? { x: to.x + box.width / 2, y: to.y } : { x: to.x, y: to.y + box.height / 2 };
  // A bend that is not between both ends would only make a loop.
  const kept = bends.filter((each) => (down ? each.y > start.y && each.y < end.y : each.x > start.x && each.x < end.x));
  return [start, ...(kept.length > 1 ? kept : []), end];
}

export function extent(places: Map<string, Point>, box: Box): Box {
  let width = 0;
  let height = 0;
  for (const { x, y } of places.values()) {
    width = Math.max(width, x + box.width);
    height = Math.max(height, y + box.height);
  }
  return { width, height };
}

/** Return an edge as the path of an SVG: a smooth curve through its points. */
export function pathOf(points: Point[], down: boolean): string {
  let text = `M${round(points[0]!.x)} ${round(points[0]!.y)}`;
  for (let at = 1; at < points.length; at += 1) {
    const [a, b] = [points[at - 1]!, points[at]!];
    const [middleX, middleY] = [(a.x + b.x) / 2, (a.y + b.y) / 2];
    const first = down ? `${round(a.x)} ${round(middleY)}` : `${round(middleX)} ${round(a.y)}`;
    const second = down ? `${round(b.x)} ${round(middleY)}` : `${round(middleX)} ${round(b.y)}`;
    text += `C${first} ${second} ${round(b.x)} ${round(b.y)}`;
  }
  return text;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
