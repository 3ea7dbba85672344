"""Strategy: safetensors' own reader is the oracle of the writer; tensors are made when they are
asked for, and counted while they live."""

import weakref
from collections.abc import Iterator, Mapping

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from lce_core.training.checkpoints import write_tensors

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=5),
    dtype=st.sampled_from(DTYPES),
)
def test_what_is_written_is_what_is_read(tmp_path_factory, shapes, dtype):
    tensors = {f"a/{i}": torch.randn(shape).to(dtype) for i, shape in enumerate(shapes)}
    path = tmp_path_factory.mktemp("written") / "file"
    write_tensors(path, tensors)
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype
        assert torch.equal(found[name], tensor)


def test_rows_of_another_tensor_are_written_in_order(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    write_tensors(tmp_path / "file", {"turned": whole.T, "rows": whole[1:]})
    found = load_file(tmp_path / "file")
    assert torch.equal(found["turned"], whole.T)
    assert torch.equal(found["rows"], whole[1:])


class Made(Mapping[str, torch.Tensor]):
    """Tensors that exist from when they are asked for until they are let go."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self.most = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        made = torch.full((100,), float(name))
        self.alive.add(made)
        self.most = max(self.most, len(self.alive))
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(map(str, range(20)))

    def __len__(self) -> int:
        return 20


def test_tensors_are_fetched_one_at_a_time(tmp_path):
    made = Made()
    write_tensors(tmp_path / "file", made)
    assert made.most <= 2
    assert load_file(tmp_path / "file")["19"].tolist() == [19.0] * 100
