"""The graph with its counters, for Graphviz and Mermaid."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.incremental.graph.nodes import Node


def to_dot(nodes: Sequence[Node]) -> str:
    """Draw nodes for Graphviz."""
    lines = ["digraph graph_in_process {", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    ids = _ids(nodes)
    for node in nodes:
        shape = "box" if node.inputs else "cylinder"
        text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in _label(node))
        lines.append(f'  {ids[node]} [shape={shape}, label="{text}"];')
    lines += [f"  {ids[source]} -> {ids[node]};" for node in nodes for source in node.inputs]
    return "\n".join([*lines, "}"])


def to_mermaid(nodes: Sequence[Node]) -> str:
    """Draw nodes for Mermaid."""
    lines = ["flowchart LR"]
    ids = _ids(nodes)
    for node in nodes:
        left, right = ("[", "]") if node.inputs else ("[(", ")]")
        lines.append(f'  {ids[node]}{left}"{"<br/>".join(map(_escaped, _label(node)))}"{right}')
    lines += [f"  {ids[source]} --> {ids[node]}" for node in nodes for source in node.inputs]
    return "\n".join(lines)


def _label(node: Node) -> list[str]:
    counters = node.counters
    return [
        f"{node.kind} {node.name}" + (f": {node.detail}" if node.detail else ""),
        f"height {node.height}, keys {len(node):,}",
        f"recomputed {counters.recomputed:,}, cut off {counters.cut_off:,}",
    ]


def _ids(nodes: Sequence[Node]) -> dict[Node, str]:
    return {node: f"n{number}" for number, node in enumerate(nodes)}


def _escaped(text: str) -> str:
    for sign, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, code)
    return text
