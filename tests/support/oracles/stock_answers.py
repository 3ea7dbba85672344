"""What stock transformers answers, in a process that knows nothing of this project.

`answers(jobs, folder)` starts this file as a script, isolated from PYTHONPATH.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def answers(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, torch.Tensor]]:
    """Logits of each job: "text-N" (tokens, vocabulary), and "decoded" ids with their "scores"."""
    asked, told = folder / "jobs.json", folder / "answers.safetensors"
    asked.write_text(json.dumps(jobs), encoding="utf-8")
    command = [sys.executable, "-I", "-W", "error", __file__, str(asked), str(told)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    unknown = [line for line in done.stderr.splitlines() if "Unrecognized keys" in line]
    # vLLM reads a longrope's attention factor under two further names.
    assert all(
        "{'short_mscale', 'long_mscale'}" in line or "{'long_mscale', 'short_mscale'}" in line
        for line in unknown
    ), unknown
    found = load_file(told)
    return [
        {name.partition("/")[2]: t for name, t in found.items() if name.startswith(f"{index}/")}
        for index in range(len(jobs))
    ]


@torch.no_grad()
def _answer(job: dict[str, Any]) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(job["folder"], dtype="auto").eval()
    AutoTokenizer.from_pretrained(job["folder"])
    found = {}
    for index, text in enumerate(job["texts"]):
        found[f"text-{index}"] = model(torch.tensor([text]), use_cache=False).logits[0]
    prompt = torch.tensor([job["prompt"]])
    decoded = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=job["new_tokens"],
        output_scores=True,
        return_dict_in_generate=True,
    )
    found["decoded"] = decoded.sequences[0]
    found["scores"] = torch.cat(decoded.scores)
    return found


def _main(asked: str, told: str) -> None:
    jobs = json.loads(Path(asked).read_text(encoding="utf-8"))
    tensors = {}
    for index, job in enumerate(jobs):
        tensors |= {f"{index}/{name}": tensor for name, tensor in _answer(job).items()}
    ours = [name for name in sys.modules if name.partition(".")[0] == "lce_core"]
    assert not ours, ours
    save_file(tensors, told)


if __name__ == "__main__":
    _main(*sys.argv[1:])
