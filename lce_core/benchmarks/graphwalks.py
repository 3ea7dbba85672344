"""GraphWalks: find nodes of a directed graph that the prompt gives as a list of edges.

Tasks: `bfs`, the nodes at exactly a given distance from a node, and `parents`, the nodes with an
edge to a given node. The score is the F1 of the set of nodes in the answer's line "Final Answer:
[...]" against the right set. The graph has as many edges as fit; its nodes have two outgoing and
two incoming edges on average, so that the asked sets stay small.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from lce_core.benchmarks import (
    CellRequest,
    Examples,
    Profile,
    Prompt,
    Sampled,
    Source,
    calls,
    encode,
    encoded,
    marking,
)
from lce_core.errors import SpecError

INSTRUCTION = (
    "You will be given a graph as a list of directed edges, and an operation to perform on it."
    " Return the set of nodes that the operation results in. For a breadth-first search (BFS),"
    " return only the nodes that are reachable at that depth, without the starting node. For the"
    " parents of a node, return only the nodes that have an edge leading to it."
)
MAX_NODES = 8
"""Maximum number of nodes in a right answer."""
MAX_DEPTH = 3
"""Largest distance that `bfs` asks for."""
EDGES_PER_NODE = 2
_DIGITS = 10
"""Hexadecimal digits of a node's id, as in OpenAI's data."""
_LIST = re.compile(r"Final Answer: ?\[([^\]\n]*)\]")

Edge = tuple[str, str]


class GraphWalks(Sampled):
    """Set F1 of the nodes that an operation on a graph results in."""

    kind = "reasoning"
    task_names = ("bfs", "parents")
    profiles = {
        "clean": Profile("100 graphs per task", num_samples=100),
        "fast": Profile("20 graphs per task", num_samples=20),
    }
    answer_tokens = 128
    """Enough for `MAX_NODES` ids even if tokens are bytes."""

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        seed = int(rng.integers(2**62))

        def asked(count: int) -> tuple[str, str, list[str]]:
            own = np.random.default_rng([seed, count])
            edges = drawn_graph(MAX_NODES + count, own)
            operation, nodes = _question(request.task, edges, own)
            return prompt_text(edges, operation), prompt_text((), operation), nodes

        count = self.parts_that_fit(request, lambda count: asked(count)[0])
        text, bare, nodes = asked(count)
        ids, controls = self.fitted(request, text), encoded(request, bare)
        return Prompt(ids, final_answer(nodes), controls=controls)

    def slack_tokens(self, request: CellRequest) -> int:
        # Two edges are an upper bound of what one more edge needs.
        lines = _lines(drawn_graph(2, np.random.default_rng(0)))
        return len(encode(request, lines, special_tokens=False))

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return set_f1(listed(answer), listed(prompt.reference))

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return _LIST.search(answer) is not None


def drawn_graph(count: int, rng: np.random.Generator) -> list[Edge]:
    """Draw `count` distinct edges between count / `EDGES_PER_NODE` nodes."""
    nodes = [rng.bytes(_DIGITS // 2).hex() for _ in range(max(2, count // EDGES_PER_NODE))]
    edges: dict[Edge, None] = {}
    while len(edges) < count:
        start, step = rng.integers(len(nodes)), rng.integers(1, len(nodes))
        edges[nodes[start], nodes[(start + step) % len(nodes)]] = None
    return list(edges)


def nodes_at(edges: Iterable[Edge], start: str, depth: int) -> set[str]:
    """Return the nodes whose shortest path from `start` has exactly `depth` edges."""
    following: dict[str, set[str]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)
    seen, found = {start}, {start}
    for _ in range(depth):
        found = {target for one in found for target in following.get(one, ())} - seen
        seen |= found
    return found


def parents(edges: Iterable[Edge], node: str) -> set[str]:
    return {source for source, target in edges if target == node} - {node}


def _question(task: str, edges: Sequence[Edge], rng: np.random.Generator) -> tuple[str, list[str]]:
    names = list(dict.fromkeys(node for edge in edges for node in edge))
    for place in rng.permutation(len(names)):
        name = names[place]
        for depth in rng.permutation(MAX_DEPTH) + 1 if task == "bfs" else (1,):
            found = nodes_at(edges, name, depth) if task == "bfs" else parents(edges, name)
            if 1 <= len(found) <= MAX_NODES:
                return operation(task, name, depth), sorted(found)
    raise SpecError(
        "graphwalks",
        f"a graph of {len(edges)} edges without a set of 1 to {MAX_NODES} nodes to ask for",
        "at least one such set, as random graphs have",
        "run the study with another seed",
    )


def operation(task: str, node: str, depth: int) -> str:
    if task == "bfs":
        return f"Perform a BFS from node {node} with depth {depth}."
    return f"Find the parents of node {node}."


def prompt_text(edges: Sequence[Edge], asked: str) -> str:
    solved = "".join(
        f"\n\nExample {number}:\nOperation:\n{one}\n{final_answer(nodes)}"
        for number, (one, nodes) in enumerate(_SOLVED, start=1)
    )
    return f"{INSTRUCTION}\n\n{_lines(_EXAMPLE)}{solved}\n\n{_lines(edges)}\n\nOperation:\n{asked}"


def final_answer(nodes: Iterable[str]) -> str:
    return f"Final Answer: [{', '.join(nodes)}]"


def listed(answer: str) -> list[str]:
    found = _LIST.search(answer)
    return [node for one in found[1].split(",") if (node := one.strip())] if found else []


def set_f1(found: Iterable[str], right: Iterable[str]) -> float:
    """Return the F1 of two sets, 2 |A and B| / (|A| + |B|)."""
    one, other = {*found}, {*right}
    shared = len(one & other)
    return 2 * shared / (len(one) + len(other)) if shared else 0.0


def _lines(edges: Sequence[Edge]) -> str:
    listed_edges = "\n".join(f"{source} -> {target}" for source, target in edges)
    return f"The graph has the following edges:\n{listed_edges}"


_EXAMPLE = (("iron", "gold"), ("gold", "lead"), ("iron", "zinc"), ("zinc", "lead"))
_SOLVED = (
    ("Perform a BFS from node iron with depth 1.", ("gold", "zinc")),
    ("Perform a BFS from node iron with depth 2.", ("lead",)),
    ("Find the parents of node lead.", ("gold", "zinc")),
)

BENCHMARK = GraphWalks
SOURCE = Source(
    paper="own",
    place="the data set GraphWalks of OpenAI (2025), which has no paper",
    reference="https://huggingface.co/datasets/openai/graphwalks",
    differs="graphs, instruction and examples are made here, and graphs fit the length; right sets"
    " have one to eight nodes; the first complete list of an answer counts instead of the list in"
    " its last line, and generation stops there; nodes are what stands between the brackets, while"
    " the code on the data set's page leaves 'Final Answer: [' before the first node and so never"
    " finds it",
)
EVIDENCE = (
    *(
        calls(
            GraphWalks.score_answer,
            score,
            origin,
            **marking("bfs", "Final Answer: [a, b, d, e]", answer),
        )
        for answer, score, origin in (
            ("so\nFinal Answer: [b, a, c]", 4 / 7, "precision 2/3, recall 1/2, by hand"),
            ("Final Answer: [e,d,b,a]", 1.0, "all nodes in another order"),
            ("Final Answer: [a, a, b, d, e", 0.0, "no complete list"),
            ("a, b, d, e", 0.0, "no final answer"),
            ("Final Answer: []", 0.0, "an empty list"),
        )
    ),
    calls(operation, "Find the parents of node ab.", "by hand", task="parents", node="ab", depth=1),
)
EXAMPLES: Examples = ({"num_samples": 3},)
VERSION = 1
