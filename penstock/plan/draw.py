"""Plans as pictures: Graphviz and Mermaid."""

from __future__ import annotations

from penstock.plan.graph import Graph
from penstock.plan.node import Node

_SHAPES = {"read": ("cylinder", "[(", ")]"), "write": ("cylinder", "[(", ")]")}


def to_dot(name: str, graph: Graph) -> str:
    """Draw the plan for Graphviz."""
    lines = [f"digraph {_quote(name)} {{", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    ids = _ids(graph)
    for node in graph.nodes:
        shape = _SHAPES.get(node.kind, ("box", "", ""))[0]
        style = ", style=bold" if node.stateful else ""
        text = _quote(graph.label(node) + "\\n" + _short(node).replace("\\", "\\\\").replace('"', '\\"'))
        lines.append(f"  {ids[node]} [shape={shape}, label={text}{style}];")
    lines += [f"  {ids[source]} -> {ids[node]};" for node in graph.nodes for source in node.inputs]
    return "\n".join([*lines, "}"])


def to_mermaid(name: str, graph: Graph) -> str:
    """Draw the plan for Mermaid, as GitHub and most wikis show it."""
    lines = ["---", f"title: {name}", "---", "flowchart LR"]
    ids = _ids(graph)
    for node in graph.nodes:
        _, left, right = _SHAPES.get(node.kind, ("", "[[", "]]") if node.stateful else ("", "[", "]"))
        text = f"{graph.label(node)}<br/>{_mermaid(_short(node))}"
        lines.append(f'  {ids[node]}{left}"{text}"{right}')
    lines += [f"  {ids[source]} --> {ids[node]}" for node in graph.nodes for source in node.inputs]
    return "\n".join(lines)


def _ids(graph: Graph) -> dict[Node, str]:
    return {node: f"n{number}" for number, node in enumerate(graph.nodes)}


def _short(node: Node) -> str:
    return node.detail if len(node.detail) <= 90 else node.detail[:87] + "..."


def _quote(text: str) -> str:
    return f'"{text}"'


def _mermaid(text: str) -> str:
    for sign, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, code)
    return text
