"""GraphWalks: answers recomputed by networkx from prompts, and OpenAI's formula of the score."""

import re

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks.graphwalks import listed, nodes_at, parents, set_f1
from lce_core.contracts.benchmark_cases import words_tokenizer
from tests.support.cells import benchmark, request

NODES = st.sampled_from("abcdef")
SETS = st.sets(NODES)


@given(st.lists(st.tuples(NODES, NODES), min_size=1), st.integers(0, 4))
def test_breadth_first_search_and_parents_agree_with_networkx(edges, depth):
    graph = nx.DiGraph(edges)
    for node in graph:
        lengths = nx.single_source_shortest_path_length(graph, node)
        assert nodes_at(edges, node, depth) == {n for n, far in lengths.items() if far == depth}
        assert parents(edges, node) == {*graph.predecessors(node)} - {node}


@given(SETS, SETS)
def test_the_score_is_the_published_f1_of_precision_and_recall(found, right):
    overlap = len(found & right)
    precision = overlap / len(found) if found else 0
    recall = overlap / len(right) if right else 0
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0
    assert set_f1(found, right) == pytest.approx(expected, abs=1e-12)


def test_the_first_complete_list_counts():
    assert listed("Final Answer: [ab\nFinal Answer:[cd,ef,]\nFinal Answer: [gh]") == ["cd", "ef"]


@pytest.mark.parametrize("length", [1500, 2300])
@pytest.mark.parametrize("task", ["bfs", "parents"])
def test_the_reference_answers_the_question_of_the_prompt(task, length):
    asked = benchmark("graphwalks", num_samples=6)
    tokenizer = words_tokenizer()
    for prompt in asked.build(request(asked, length, task=task, tokenizer=tokenizer)):
        text = tokenizer.decode(prompt.ids, skip_special_tokens=True)
        _, _, own = text.rpartition("The graph has the following edges:\n")
        graph = nx.DiGraph(re.findall(r"(\w+) -> (\w+)", own))
        assert len(prompt.ids) + asked.answer_tokens <= length < len(prompt.ids) + 250
        if task == "bfs":
            node, far = re.search(r"BFS from node (\w+) with depth (\d)\.$", own).groups()
            lengths = nx.single_source_shortest_path_length(graph, node)
            right = {name for name, steps in lengths.items() if steps == int(far)}
        else:
            right = {*graph.predecessors(re.search(r"parents of node (\w+)\.$", own)[1])}
        assert set(re.findall(r"\w+", prompt.reference.partition(":")[2])) == right
        assert 1 <= len(right) <= 8
