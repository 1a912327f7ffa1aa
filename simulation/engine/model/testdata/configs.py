#!/usr/bin/env python3
"""Writes configs/*.json: small models of many families, in the form that transformers saves, and counts their weights.

usage: configs.py (needs transformers and torch, no weights are made; the files here are of transformers 5.19)

counts.json has for each file the number of weights of its language model: matrices alone, which leaves out norms, biases and the one-column gate of a shared expert,
and the output projection once where it is the embedding. kv_bytes has the BF16 bytes of a token in the layers without and with
a window; null where the projections do not tell. llama, gemma3 and gemma4 are the shapes of tiny engines
that run on a CPU.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

size = dict(
    vocab_size=4096, hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
    max_position_embeddings=40960, bos_token_id=0, eos_token_id=1, pad_token_id=2)
dense = dict(num_hidden_layers=4, **size)
hybrid = dict(num_hidden_layers=6, sliding_window=512, **size)
moe = dict(moe_intermediate_size=96, num_experts_per_tok=2, **dense)
latent = dict(q_lora_rank=48, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=24, v_head_dim=40)
plain = {k: v for k, v in dense.items() if k != "head_dim"}

models = {
    "llama": ("llama", dict(num_hidden_layers=2, **size)),
    "gemma3": ("gemma3_text", hybrid),
    "gemma4": ("gemma4_text", dict(global_head_dim=128, hidden_size_per_layer_input=0, vocab_size_per_layer_input=4096, **hybrid)),
    "gemma4-shared-v": ("gemma4_text", dict(
        hybrid, global_head_dim=128, hidden_size_per_layer_input=0, vocab_size_per_layer_input=4096, attention_k_eq_v=True,
        num_global_key_value_heads=1, num_hidden_layers=12)),
    "gemma4-moe": ("gemma4_text", dict(
        hybrid, global_head_dim=128, hidden_size_per_layer_input=0, vocab_size_per_layer_input=4096, enable_moe_block=True,
        num_experts=8, top_k_experts=2, moe_intermediate_size=96)),
    "llama-tied": ("llama", dict(dense, tie_word_embeddings=True)),
    "llama-wide-heads": ("llama", dict(dense, head_dim=96)),
    "mistral": ("mistral", dict(dense, sliding_window=1024)),
    "mistral-full": ("mistral", dict(dense, sliding_window=None)),
    "ministral": ("ministral", dict(dense, sliding_window=1024)),
    "qwen2": ("qwen2", dict(plain, use_sliding_window=True, sliding_window=1024, max_window_layers=3)),
    "qwen3": ("qwen3", dense),
    "gemma": ("gemma", dense),
    "gemma2": ("gemma2", dict(dense, sliding_window=512)),
    "phi": ("phi", plain),
    "phi3": ("phi3", dict(plain, sliding_window=2047)),
    "glm": ("glm", dense),
    "glm4": ("glm4", dense),
    "olmo2": ("olmo2", plain),
    "olmo3": ("olmo3", dict(plain, sliding_window=512)),
    "stablelm": ("stablelm", plain),
    "granite": ("granite", plain),
    "starcoder2": ("starcoder2", plain),
    "nemotron": ("nemotron", dense),
    "arcee": ("arcee", dense),
    "apertus": ("apertus", plain),
    "persimmon": ("persimmon", {k: v for k, v in plain.items() if k != "num_key_value_heads"}),
    "gpt-neox": ("gpt_neox", {k: v for k, v in plain.items() if k != "num_key_value_heads"}),
    "helium": ("helium", dense),
    "seed-oss": ("seed_oss", dense),
    "exaone4": ("exaone4", dict(plain, sliding_window=512)),
    "smollm3": ("smollm3", plain),
    "cohere": ("cohere", plain),
    "cohere2": ("cohere2", dict(plain, sliding_window=512)),
    "ernie4.5": ("ernie4_5", dense),
    "bitnet": ("bitnet", plain),
    "vaultgemma": ("vaultgemma", dict(dense, sliding_window=512)),
    "qwen2-moe": ("qwen2_moe", dict(
        plain, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, shared_expert_intermediate_size=128, mlp_only_layers=[1])),
    "qwen3-moe": ("qwen3_moe", dict(moe, num_experts=8, decoder_sparse_step=2)),
    "mixtral": ("mixtral", dict(dense, num_local_experts=8, num_experts_per_tok=2)),
    "phimoe": ("phimoe", dict(plain, num_local_experts=8, num_experts_per_tok=2)),
    "olmoe": ("olmoe", dict(plain, num_experts=8, num_experts_per_tok=2)),
    "granitemoe": ("granitemoe", dict(plain, num_local_experts=8, num_experts_per_tok=2)),
    "granitemoeshared": ("granitemoeshared", dict(plain, num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=128)),
    "gpt-oss": ("gpt_oss", dict(dense, num_local_experts=8, num_experts_per_tok=2, sliding_window=128)),
    "deepseek-v2": ("deepseek_v2", dict(
        moe, n_routed_experts=8, n_shared_experts=2, first_k_dense_replace=1, **dict(latent, q_lora_rank=None))),
    "deepseek-v3": ("deepseek_v3", dict(
        moe, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=3, n_group=2, topk_group=1, **latent)),
    "glm4-moe": ("glm4_moe", dict(moe, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1)),
    "glm4-moe-lite": ("glm4_moe_lite", dict(moe, n_routed_experts=8, n_shared_experts=1, **latent)),
    "dots1": ("dots1", dict(moe, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1)),
    "minimax-m2": ("minimax_m2", dict(dense, num_local_experts=8, num_experts_per_tok=2)),
    "ernie4.5-moe": ("ernie4_5_moe", dict(
        plain, moe_num_experts=8, moe_k=2, moe_intermediate_size=96, moe_num_shared_experts=2, moe_layer_start_index=1)),
    "minicpm3": ("minicpm3", dict(dense, **latent)),
}


def tidy(value):
    """Drops what says nothing about shape or storage, so that the files stay readable."""
    return {k: v for k, v in value.items() if k not in ("transformers_version", "id2label", "label2id", "initializer_range")}


def kv_bytes(config, model):
    """BF16 bytes of one token's KV in the layers without and with a window, from the projections that were made."""
    full = window = 0
    types = getattr(config, "layer_types", None)
    for i, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        if hasattr(attention, "kv_a_proj_with_mqa"):
            size = attention.kv_a_proj_with_mqa.out_features
        elif hasattr(attention, "k_proj"):
            size = 2 * attention.k_proj.out_features
        else:
            return None  # one matrix for queries, keys and values
        if types[i] == "sliding_attention" if types else getattr(config, "sliding_window", None):
            window += 2 * size
        else:
            full += 2 * size
    return [full, window]


here = pathlib.Path(__file__).parent
(here / "configs").mkdir(exist_ok=True)
counts = {}
for name, (kind, fields) in models.items():
    try:
        config = CONFIG_MAPPING[kind](**fields)
        config.dtype = "bfloat16"
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        config.architectures = [type(model).__name__]
        weights = sum(
            p.numel() for n, p in model.named_parameters() if p.dim() > 1 and not n.endswith(("_bias", "shared_expert_gate.weight")))
        counts[name] = {"weights": weights, "kv_bytes": kv_bytes(config, model) if hasattr(model, "model") else None}
        with tempfile.TemporaryDirectory() as d:
            config.save_pretrained(d)
            saved = json.loads((pathlib.Path(d) / "config.json").read_text())
        (here / "configs" / f"{name}.json").write_text(json.dumps(tidy(saved), indent=1) + "\n")
    except Exception as e:
        print(f"{name}: {type(e).__name__}: {e}")
        raise SystemExit(1)
(here / "counts.json").write_text("{\n" + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in counts.items()) + "\n}\n")
print(transformers.__version__, len(counts))
