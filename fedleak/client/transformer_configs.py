"""Configurations of the transformers library from the text of a recording, by closed lists of networks and keys.

One's own configuration may name code, repositories, weights and kernels to load. A stranger's gives the values alone
that say of which sizes and kinds the layers of a network are.
"""

import contextlib
import dataclasses
import logging
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fedleak.core.errors import InputError, require
from fedleak_recorder.plain_values import parse_json

_logger = logging.getLogger(__name__)

MODEL_TYPES = frozenset(
    {
        # networks of texts whose layers the library itself has, without experts and without kernels of their own
        *("llama", "mistral", "ministral", "qwen2", "qwen3", "phi", "phi3", "olmo", "olmo2", "olmo3", "stablelm"),
        *("starcoder2", "cohere", "cohere2", "gemma", "gemma2", "gemma3_text", "granite", "glm", "glm4", "helium"),
        *("smollm3", "arcee", "nemotron", "persimmon", "gpt_neox", "gpt2", "gpt_neo", "gptj", "gpt_bigcode", "codegen"),
        *("opt", "bloom", "falcon", "mpt", "xglm", "biogpt"),
        *("bert", "roberta", "camembert", "xlm-roberta", "electra", "deberta", "deberta-v2", "distilbert", "albert"),
        *("mpnet", "ernie", "megatron-bert"),
        # networks of images, without another library's network inside
        *("vit", "deit", "swin", "swinv2", "convnext", "convnextv2", "resnet", "dinov2", "mobilenet_v1"),
        *("mobilenet_v2", "mobilevit", "regnet", "efficientnet", "poolformer", "pvt"),
    }
)
"""Networks that a recording may name."""

_BY_BASE = frozenset({"architectures", "chunk_size_feed_forward", "dtype", "id2label", "label2id", "problem_type"})
"""What the base class of all configurations knows and a network reads; `architectures` tells the two of DeiT apart."""
_FORMER = frozenset(
    {
        *("num_labels", "torch_dtype", "rope_theta", "rope_scaling", "partial_rotary_factor", "rope_local_base_freq"),
        *("sliding_window_pattern", "rotary_pct", "rotary_emb_base", "n_embed", "pooler_hidden_size"),
    }
)
"""Keys of older files, which the library translates."""
_NOT_READ = frozenset(
    {
        *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "tokenizer_class"),
        *("task_specific_params", "finetuning_task", "output_attentions", "output_hidden_states", "return_dict"),
        *("torchscript", "pruned_heads", "use_bfloat16", "tie_encoder_decoder", "is_encoder_decoder", "init_device"),
        *("_attn_implementation_autoset", "gradient_checkpointing", "prefix", "bad_words_ids"),
    }
)
"""Keys that say nothing of a network's layers; they are left out, whatever their value."""
_PRIVATE = frozenset({"_remove_final_layer_norm"})
"""The only keys that begin with an underscore and are read."""
_TYPES = ("float32", "float16", "bfloat16", "float64")
"""Types in which weights are drawn or stored."""
_ROPE = frozenset(
    {
        *("rope_type", "type", "rope_theta", "factor", "partial_rotary_factor", "original_max_position_embeddings"),
        *("attention_factor", "beta_fast", "beta_slow", "short_factor", "long_factor", "low_freq_factor"),
        *("high_freq_factor", "mscale", "mscale_all_dim", "truncate", "full_attention", "sliding_attention"),
    }
)
"""Keys of `rope_parameters`, and the kinds of layers for which they may be given apart."""
_LABELS = ("id2label", "label2id")
"""Keys whose values are numbers and names of classes."""
_MOST_LABELS = 10**5
_MOST_LAYERS = 256
"""Layers of a network; the deepest published ones have about 130. Each is built before sizes can be counted."""
_COUNTS_LAYERS = re.compile(r"layers|n_layer|stages|blocks|depth")
_MOST_ENTRIES = 4096
"""Entries of a list, e.g. of factors by frequency."""
_LARGEST, _LARGEST_IN_LIST = 2**31, 2**20
"""Largest number of a key, and of an entry of a list, of which each may be the size of a layer."""
_WORD = re.compile(r"[A-Za-z0-9_.+-]{0,64}")
"""Texts: names of activations and of kinds of layers, without the slash and colon of paths, repositories and URLs."""
_LONGEST_LABEL = 1000
_WAY_OUT = "Give the folder of a network of the list in docs/audit/adapters.md, or name no learner."


def read_configuration(text: str) -> Any:
    """Configuration of a network, an object of the transformers library.

    Args:
        text: its ``config.json``, which may be a stranger's.

    Raises:
        InputError: it names another network than those of `MODEL_TYPES`, has a key that says nothing of the network's
            layers, or a value of another kind or size.
    """
    kind, content = _known(_parsed(text))
    for name, value in content.items():
        _check(name, value, kind)
    try:
        configuration = kind(**{name: value for name, value in content.items() if name != "model_type"})
    except Exception as error:  # the library checks values by a package with errors of its own
        raise _wrong("values that go together", _first_line(error)) from None
    if getattr(configuration, "pad_token_id", 0) is None:
        configuration.pad_token_id = 0
    return configuration


def plain_configuration(content: Mapping[str, Any]) -> dict[str, Any]:
    """What of a network's ``config.json`` a recording names: what its layers are, without paths, code and settings.

    Keys that its configuration does not know are left out with a warning, as the library ignores them.

    Raises:
        InputError: it names another network than those of `MODEL_TYPES`, or weights that are stored in fewer bits.
    """
    stored = content.get("quantization_config")
    require(stored is None, "a network whose weights are not quantised", "quantization_config", "Give the whole one.")
    without_quantization = {name: value for name, value in content.items() if name != "quantization_config"}
    kind, read = _known(without_quantization)
    unknown = [name for name in read if name not in _keys(kind) and not _names_code(name)]
    if unknown:
        _logger.warning("left out of the configuration, which %s does not know: %s", kind.__name__, ", ".join(unknown))
    return {name: value for name, value in read.items() if name in _keys(kind)}


def library() -> Any:
    """The package transformers.

    Raises:
        InputError: it, or peft, is not installed.
    """
    try:
        import peft  # noqa: F401 - as early as the other
        import transformers  # slow to import
    except ImportError as error:
        raise InputError(
            expected="the packages transformers and peft, for a pretrained network",
            found=str(error),
            way_out="Install the extra: in the checkout, pip install ./recorder '.[transformers]'.",
        ) from None
    return transformers


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """No request to the Hub of models, whatever a library asks for in the block."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No bars and reports of the library in the block: a class head that is new to a network is none to report."""
    logs = library().utils.logging
    level = logs.get_verbosity()
    has_bars = logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(level)
        if has_bars:
            logs.enable_progress_bar()


def _parsed(text: str) -> dict[str, Any]:
    try:
        content = parse_json(text, where="the configuration")
    except ValueError as error:
        raise _wrong("a config.json of the transformers library", str(error)) from None
    if not isinstance(content, dict):
        raise _wrong("a config.json of the transformers library, with a known model_type", "no object")
    return content


def _known(content: Mapping[str, Any]) -> tuple[type[Any], dict[str, Any]]:
    """Class of a configuration, and its content without what is not read."""
    named = content.get("model_type")
    if not isinstance(named, str) or named not in MODEL_TYPES:
        raise _wrong(f"a known model_type, one of {', '.join(sorted(MODEL_TYPES))}", repr(named)[:100])
    kind: type[Any] = library().CONFIG_MAPPING[named]
    # Older files have settings of generating texts too, which the library leaves out of a network.
    settings = {*library().GenerationConfig._get_default_generation_params()}
    left_out = (_NOT_READ | settings) - _keys(kind)
    read = {name: value for name, value in content.items() if name not in left_out}
    # A configuration inside of another one, e.g. of a vision tower, is read by the keys of its own class.
    for name in kind.sub_configs.keys() & read.keys():
        if isinstance(read[name], Mapping):
            nested = _nested_keys(kind.sub_configs[name])
            outer = (_NOT_READ | settings | _BY_BASE | {"model_type"}) - nested
            read[name] = {key: value for key, value in read[name].items() if key not in outer}
    return kind, read


def _keys(kind: type[Any]) -> frozenset[str]:
    """Keys that a configuration has for its network."""
    fields = {field.name for field in dataclasses.fields(kind)}
    keys = fields | {*getattr(kind, "attribute_map", {})}
    base = {field.name for field in dataclasses.fields(library().PreTrainedConfig)}
    # What the base class has is about the library's use of the network, not about its layers, but for `_BY_BASE`.
    keys = {name for name in keys - base if not name.startswith("_") and name not in _NOT_READ} | _PRIVATE
    return frozenset({"model_type", *keys, *_BY_BASE, *_FORMER})


def _nested_keys(kind: type[Any]) -> frozenset[str]:
    """Keys of a configuration inside of another one."""
    return _keys(kind) - {*_BY_BASE, *_FORMER, *_PRIVATE, "model_type"}


def _names_code(name: str) -> bool:
    """Whether a key names what the library would load, and not what it ignores."""
    return name == "auto_map" or name.endswith("_implementation")


def _check(name: str, value: Any, kind: type[Any]) -> None:
    keys = _keys(kind)
    if name not in keys:
        raise _wrong(f"keys of the layers of a {kind.__name__} alone", repr(name)[:100])
    if name in _LABELS:
        valid = value is None
        if isinstance(value, Mapping):
            valid = len(value) <= _MOST_LABELS and _are_labels(value)
        _require(valid, f"at most {_MOST_LABELS} names of classes", name, value)
    elif name in ("dtype", "torch_dtype"):
        _require(value is None or value in _TYPES, f"one of {', '.join(_TYPES)}", name, value)
    elif name == "num_labels":
        _require(type(value) is int and 1 <= value <= _MOST_LABELS, f"1 to {_MOST_LABELS} classes", name, value)
    elif isinstance(value, Mapping):
        _check_nested(name, value, kind)
    else:
        _check_value(name, value)


def _check_nested(name: str, value: Mapping[str, Any], kind: type[Any]) -> None:
    """Checks the mappings that a configuration may hold: rotary positions, and settings of attention of its own."""
    sub = kind.sub_configs.get(name)
    if name not in ("rope_parameters", "rope_scaling") and sub is None:
        raise _wrong(f"no mapping as {name}", repr(value)[:100])
    allowed = _ROPE if sub is None else _nested_keys(sub)
    for key, part in value.items():
        if key not in allowed:
            raise _wrong(f"keys of {name} among {', '.join(sorted(allowed))}", repr(key)[:100])
        if isinstance(part, Mapping) and sub is None:
            # Rotary positions may be given for each kind of layers apart; nothing is nested deeper.
            nested = all(kind in _ROPE and not isinstance(setting, Mapping) for kind, setting in part.items())
            _require(nested, "numbers by the kind of layers", f"{name}.{key}", part)
            for kind_of_layer, setting in part.items():
                _check_value(f"{name}.{key}.{kind_of_layer}", setting)
        else:
            _check_value(f"{name}.{key}", part)


def _check_value(name: str, value: Any, depth: int = 0) -> None:
    """Checks a number, a word, or a list of them."""
    if isinstance(value, list):
        _require(depth < 3 and len(value) <= _MOST_ENTRIES, f"at most {_MOST_ENTRIES} entries", name, value)
        for part in value:
            _check_value(name, part, depth + 1)
        integers = [part for part in value if type(part) is int]
        if _COUNTS_LAYERS.search(name):
            _require(sum(integers) <= _MOST_LAYERS, f"at most {_MOST_LAYERS} layers", name, value)
    elif isinstance(value, str):
        _require(_WORD.fullmatch(value), "a word", name, value)
    elif type(value) is int:
        largest = _LARGEST
        if depth:
            largest = _LARGEST_IN_LIST
        elif _COUNTS_LAYERS.search(name):
            largest = _MOST_LAYERS
        _require(abs(value) <= largest, f"a number up to {largest}", name, value)
    elif type(value) is float:
        _require(math.isfinite(value), "a finite number", name, value)
    else:
        _require(value is None or type(value) is bool, "a number, a word or a list of them", name, value)


def _are_labels(value: Mapping[Any, Any]) -> bool:
    """Whether a mapping has numbers and names of classes, which nothing reads as more than a text."""
    for pair in value.items():
        for part in pair:
            if isinstance(part, str) and len(part) > _LONGEST_LABEL:
                return False
            if not isinstance(part, str) and type(part) is not int:
                return False
    return True


def _require(valid: object, expected: str, name: str, value: Any) -> None:
    if not valid:
        raise _wrong(f"{name}: {expected}", repr(value)[:100])


def _wrong(expected: str, content: str) -> InputError:
    return InputError(expected=f"{expected}, in the configuration of a network", found=content, way_out=_WAY_OUT)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
