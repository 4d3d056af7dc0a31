"""
Audit a LoRA fine-tuning
========================

Clients fine-tune a language model with adapters of rank 4 and send these matrices alone, some thousand numbers of a
network that may have billions. Which words of their texts does the server learn from them? See
:doc:`/docs/audit/adapters`.
"""

# %%
# The federation
# --------------
# A small Llama with random weights, written as ``save_pretrained`` does, and ``peft``. Nothing here uses fedleak. Take
# the folder of your own network instead, and texts in its tokens.

import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

work = Path(tempfile.mkdtemp())
torch.manual_seed(0)
sizes = {"vocab_size": 2000, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2}
LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4)).save_pretrained(work / "base")
options = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = get_peft_model(LlamaForCausalLM.from_pretrained(work / "base"), options)

frequent = 1 / torch.arange(1.0, 2000)  # Zipf's law of words, which are numbers from 1
texts = {f"clinic-{n}": 1 + torch.multinomial(frequent, 64, replacement=True).reshape(4, 16) for n in range(6)}


def train(before: dict[str, torch.Tensor], own: torch.Tensor) -> dict[str, torch.Tensor]:
    """The adapters after five steps of SGD on four texts of 16 words."""
    set_peft_model_state_dict(model, before)
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        model(input_ids=own, labels=own).loss.backward()
        optimizer.step()
    return {name: value.clone() for name, value in get_peft_model_state_dict(model).items()}


# %%
# Record
# ------
# The recorder takes the adapters by the names that peft gives them. The truth is only for the scores: the words of each
# client, and those after which a text goes on.

from fedleak_recorder import Recorder  # noqa: E402 - where the tutorial needs it

state = {name: value.clone() for name, value in get_peft_model_state_dict(model).items()}
truth = {
    name: {"words": own.unique().tolist(), "read_words": own[:, :-1].unique().tolist()} for name, own in texts.items()
}
for client, known in truth.items():
    print(client, "has", len(known["read_words"]), "words after which a text goes on")
longest = max(len(words) for known in truth.values() for words in known.values())
padded = {
    name: {kind: words + [0] * (longest - len(words)) for kind, words in known.items()} for name, known in truth.items()
}
with Recorder(work / "deltas", parameters=state, data="texts") as recorder:
    updates = {name: (train(state, own), len(own)) for name, own in texts.items()}
    recorder.round(0, state, updates, truth=padded)

# %%
# Audit
# -----
# The recording has no weights of the network. The auditor names its folder and the options of the adapters, on the
# command line by ``fedleak audit DIR --learner Pretrained --learner.path my-network --learner.adapter.rank 4
# --learner.adapter.targets "[q_proj, v_proj]"``.

from fedleak import audit, show  # noqa: E402
from fedleak.commands.shared.open_recording import open_recording  # noqa: E402

arguments = {"path": str(work / "base"), "adapter": {"rank": 4, "targets": ["q_proj", "v_proj"]}}
recording = open_recording(work / "deltas", "Pretrained", arguments)
found = audit(recording, ["adapter-words", "adapter-span"], progress=False)
rows = found.results.query("metric == 'read-f1'")
print(rows[["attack", "mean", "low", "high", "n"]].to_string(index=False))

# %%
# Eight rows, two layers of rank 4, tell some forty words: few vectors of a table of 2,000 explain the rows, and only
# one choice does. The published check of the row space, ``adapter-span``, finds none above eight words. The baseline
# ``popular-words`` needs texts of other people, which nobody has recorded here.

show(found)

# %%
# What would help
# ---------------
# ``FFA-LoRA`` freezes A, so that the server sees B alone, and no more words than the rank. Secure aggregation hides
# whose words they are, not which: the words of a sum are found as those of a client. See :doc:`/docs/audit/adapters`.
