"""A device's training on texts is that of torch's own layers, in both engines; the loss is written out exactly."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.lstm import lstm_gradients, lstm_trace
from fedleak.client.engine.fast.text_gradients import word_loss
from fedleak.client.engine.local_hyperparameters import Engine, LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.text import TextAlgorithm, TextOptions, text_cohort
from fedleak.core.errors import InputError
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts, synthetic_posts
from fedleak.defenses.base import Defense
from fedleak.defenses.local_dp import LocalDP
from fedleak.modules.learners.text import FederatedText
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from tests.toys import quiet_trainer

NETWORKS = [TextOptions(task=task, vocabulary=50, embedding=7, hidden=6) for task in ("next-word", "rating")]
IDS = [network.task for network in NETWORKS]


def cohort(clients: int = 4) -> Cohort:
    posts = synthetic_posts(users=clients, posts=20, vocabulary=50, length=9)
    held = [(posts.owners == user).nonzero().flatten()[: 11 + user] for user in range(clients)]
    examples = nn.utils.rnn.pad_sequence(held, batch_first=True, padding_value=-1)
    return text_cohort(0, torch.arange(clients), posts.features, posts.labels, examples)


@pytest.mark.parametrize("engine", ["sequential", "vectorized"])
@pytest.mark.parametrize("network", NETWORKS, ids=IDS)
def test_a_device_trains_as_torchs_own_layers_do(network: TextOptions, engine: Engine) -> None:
    everyone = cohort()
    start = FederatedText(network=network)
    public = {name: value.clone() for name, value in start.public_parameters().items()}
    local = LocalTraining(learning_rate=0.3, epochs=3, engine=engine)
    deltas = train_clients(TextAlgorithm(network=network, local=local), public, {}, everyone, local, seed=0).deltas
    client = 2
    tokens = everyone.examples["tokens"][client][everyone.mask[client]]
    ratings = everyone.examples["label"][client][everyone.mask[client]]
    embedding = nn.Embedding(network.vocabulary, network.embedding)
    embedding.load_state_dict({"weight": public["embedding.weight"]})
    lstm = nn.LSTM(network.embedding, network.hidden)
    lstm.load_state_dict({n.removeprefix("lstm."): v for n, v in public.items() if n.startswith("lstm.")})
    output = nn.Linear(network.hidden, network.outputs)
    output.load_state_dict({n.removeprefix("output."): v for n, v in public.items() if n.startswith("output.")})
    layers = nn.ModuleDict({"embedding": embedding, "lstm": lstm, "output": output})
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        losses, words = [], 0
        for text, rating in zip(tokens, ratings, strict=True):
            words_of_text = text[text > 0]
            states, _ = lstm(embedding(words_of_text))
            if network.task == "rating":
                losses.append((output(states[-1])[0] - rating) ** 2 / len(tokens))
            else:
                losses.append(cross_entropy(output(states[:-1]), words_of_text[1:], reduction="sum"))
                words += len(words_of_text) - 1
        (torch.stack(losses).sum() / (words or 1)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    rows = everyone.rows["embedding.weight"][client]
    for name, value in layers.named_parameters():
        expected = value.detach() - public[name]
        ours = deltas[name][client]
        if name == "embedding.weight":
            untouched = torch.ones(len(expected), dtype=torch.bool)
            untouched[rows[rows >= 0]] = False
            assert not bool(expected[untouched].any())
            expected, ours = expected[rows[rows >= 0]], ours[: int((rows >= 0).sum())]
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-5)


def test_stacked_lstms_are_torchs_in_double_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    clients, times, texts, width, size = 3, 6, 4, 5, 7
    nets = [nn.LSTM(width, size).double() for _ in range(clients)]
    with torch.no_grad():
        for net in nets:
            for value in net.parameters():
                value.normal_(generator=generator)
    names = [name for name, _ in nets[0].named_parameters()]
    stacked = {f"lstm.{n}": torch.stack([net.get_parameter(n).detach() for net in nets]) for n in names}
    inputs = torch.randn(clients, times, texts, width, generator=generator, dtype=torch.float64)
    signal = torch.randn(clients, times, texts, size, generator=generator, dtype=torch.float64)
    trace = lstm_trace(stacked, inputs)
    gradients, of_inputs = lstm_gradients(stacked, trace, signal)
    for client, net in enumerate(nets):
        own = inputs[client].clone().requires_grad_()
        states, _ = net(own)
        (states * signal[client]).sum().backward()
        torch.testing.assert_close(trace.outputs[client], states.detach())
        torch.testing.assert_close(of_inputs[client], own.grad)
        for name in names:
            torch.testing.assert_close(gradients[f"lstm.{name}"][client], net.get_parameter(name).grad)


def test_the_loss_over_words_is_torchs_in_blocks_of_any_size() -> None:
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((300, 5), (11, 5), (11,))]
    targets = torch.randint(11, (300,), generator=generator)
    both = []
    for fused in (True, False):
        hidden, weight, bias = (leaf.clone().requires_grad_() for leaf in leaves)
        logits = hidden @ weight.T + bias
        loss = word_loss(hidden, weight, bias, targets) if fused else cross_entropy(logits, targets)
        both.append((loss.detach(), *torch.autograd.grad(3 * loss, [hidden, weight, bias])))
    for ours, torchs in zip(*both, strict=True):
        torch.testing.assert_close(ours, torchs)


def test_a_simulated_device_sends_what_the_real_one_does() -> None:
    data = SyntheticPosts(writers=4, posts=20, vocabulary=50)
    network = NETWORKS[0]
    model = FederatedText(network=network, local=LocalTraining(learning_rate=0.3))
    public = {name: value.clone() for name, value in model.public_parameters().items()}
    seen = model.interact(data.cohort(0), public)
    real = train_clients(model.algorithm, public, {}, seen, model.local, seed=0).deltas
    learner = learner_from(model.learner_description())
    assert isinstance(learner, TextAlgorithm)
    examples = nn.utils.rnn.pad_sequence(data.client_examples(), batch_first=True, padding_value=-1)
    simulated = learner.simulate_examples(
        public, data.examples.features, data.examples.labels, examples, generator=torch.Generator()
    )
    rows = seen.rows["embedding.weight"]
    client, place = (rows >= 0).nonzero(as_tuple=True)
    for name, delta in simulated.items():
        if name == "embedding.weight":
            torch.testing.assert_close(delta[client, rows[client, place]], real[name][client, place])
            assert float(delta.norm()) == pytest.approx(float(real[name].norm()), rel=1e-4)
        else:
            torch.testing.assert_close(delta, real[name])


@pytest.mark.parametrize("network", NETWORKS, ids=IDS)
def test_quality_is_that_of_a_plain_count(network: TextOptions) -> None:
    posts = synthetic_posts(users=3, posts=4, vocabulary=50)
    model = FederatedText(network=network)
    with torch.no_grad():
        model.update_metrics({"tokens": posts.features, "label": posts.labels})
        told = [model(text[text > 0][None])[0] for text in posts.features]
    if network.task == "rating":
        values = [abs(float(one) - float(label)) for one, label in zip(told, posts.labels, strict=True)]
    else:
        pairs = zip(told, posts.features, strict=True)
        values = [
            float(w in row.topk(5).indices) for logits, t in pairs for row, w in zip(logits, t[t > 0][1:], strict=True)
        ]
    assert float(model.quality.compute()) == pytest.approx(sum(values) / len(values), rel=1e-4)


@pytest.mark.parametrize("options", [{"task": "summary"}, {"vocabulary": 1}, {"hidden": 0}])
def test_an_impossible_network_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="vocabulary"):
        TextOptions(**options)  # type: ignore[arg-type]


def recorded(folder: Path, *defenses: Defense) -> tuple[FederatedText, Recording]:
    network = TextOptions(vocabulary=60, embedding=7, hidden=6)
    source = SyntheticPosts(users=6, posts=12, vocabulary=60, clients_per_round=1.0)
    module = FederatedText(network=network, defenses=defenses)
    quiet_trainer(1, folder, DeltaRecorder(directory=str(folder / "deltas"))).fit(module, datamodule=source)
    return module, Recording(folder / "deltas")


@pytest.mark.integration
def test_under_local_dp_a_recording_does_not_say_which_words_a_device_has(tmp_path: Path) -> None:
    defense = LocalDP(clip=0.01, epsilon=1, delta=1e-5)
    _, plain = recorded(tmp_path / "plain")
    module, noised = recorded(tmp_path / "noised", defense)
    assert plain.manifest.row_parameters == ["embedding.weight"]
    (view,) = plain.views()
    clients = plain.truth(view)["clients"].tolist()
    words = {c: set(row[row >= 0].tolist()) for c, row in zip(clients, view.served_items, strict=True)}
    assert all(0 < len(own) < 60 for own in words.values())
    assert noised.manifest.row_parameters == []
    (view,) = noised.views()
    assert view.served is None
    table = view.deltas["embedding.weight"]
    assert table.shape == (len(words), 60, 7)
    held = torch.tensor([[row in words[c] for row in range(60)] for c in noised.truth(view)["clients"].tolist()])
    for rows in (table[held], table[~held]):
        assert float(rows.std()) == pytest.approx(defense.noise_scale, rel=0.15)
    # The model learned from what was recorded: the deltas' weighted mean, noise of untouched rows included.
    shares = view.example_counts / view.example_counts.sum()
    moved = module.public_parameters()["embedding.weight"] - view.model["embedding.weight"]
    torch.testing.assert_close(moved, torch.einsum("c,crd->rd", shares, table), rtol=1e-4, atol=1e-5)


def test_without_clients_a_rank_sums_tables_of_the_same_kind() -> None:
    """What ranks sum must have one layout, also on a rank that has no client in a round."""
    for defenses in ((), (LocalDP(clip=0.01, epsilon=1, delta=1e-5),)):
        module = FederatedText(network=TextOptions(vocabulary=50, embedding=7, hidden=6), defenses=defenses)
        model = module.public_parameters()
        update, _ = module.client_updates(module.interact(cohort(), model), model)
        empty, _ = module.client_updates(cohort().select(torch.zeros(0, dtype=torch.int64)), model)
        assert update.deltas.keys() == empty.deltas.keys()
        assert update.rows.keys() == empty.rows.keys()
        assert update.background_scale == empty.background_scale


def test_examples_that_are_no_texts_are_refused() -> None:
    images = dataclasses.replace(cohort(), examples={"image": torch.zeros(4, 2, 1, 8, 8)})
    with pytest.raises(InputError, match="image"):
        FederatedText(network=NETWORKS[0]).interact(images, {})


def test_the_truth_holds_each_devices_words_and_how_often_each_comes_next() -> None:
    features = torch.tensor([[3, 5, 3, 0], [5, 2, 0, 0], [7, 7, 7, 7]])
    own = text_cohort(0, torch.arange(2), features, torch.zeros(3), torch.tensor([[0, 1], [2, -1]]))
    truth = FederatedText(network=NETWORKS[0]).client_truth(own)
    found = [
        {int(word): int(count) for word, count in zip(words, counts, strict=True) if word}
        for words, counts in zip(truth["words"], truth["next_words"], strict=True)
    ]
    assert found == [{2: 1, 3: 1, 5: 1}, {7: 3}]
    assert not FederatedText(network=NETWORKS[1]).client_truth(own)["next_words"].any()
