#!/usr/bin/env python3
"""Writes the small random models of engine/tests/data: one per architecture and variant, f16 matrices, 0.2 MB each.

The golden logits beside them (tiny-golden.json) come from a float64 numpy reference that was written from the published
formulas and agrees with llama.cpp's logits to 2e-5 on files of this kind; `--tokens` prints the token sequence it was given.
usage: make-tiny-models.py OUTDIR | --tokens        (needs: pip install numpy gguf)
"""
import sys

import numpy as np

VOCAB, HIDDEN, LAYERS, HEADS, Q_LORA, KV_LORA = 128, 32, 4, 2, 16, 32
NOPE, ROPE, V_DIM, FF, EXPERTS, USED, EXPERT_FF = 24, 16, 24, 48, 12, 3, 16
IDX_HEADS, IDX_DIM, TOP_K, CONTEXT = 16, 32, 24, 512
TOKENS = [int(x) for x in np.random.default_rng(7).integers(0, VOCAB, 70)]


def write(path, arch, types=None, yarn=False, groups=False, legacy=False, mtp=False):
    import gguf

    rng = np.random.default_rng(11)
    w = gguf.GGUFWriter(path, arch)
    u32 = lambda k, v: w.add_uint32(f"{arch}.{k}", v)
    f32 = lambda k, v: w.add_float32(f"{arch}.{k}", v)
    w.add_name("tiny-" + arch)
    blocks = LAYERS + (1 if mtp else 0)
    for k, v in dict(vocab_size=VOCAB, context_length=CONTEXT, embedding_length=HIDDEN, block_count=blocks,
                     feed_forward_length=FF, expert_count=EXPERTS, expert_used_count=USED, expert_shared_count=1,
                     expert_feed_forward_length=EXPERT_FF, leading_dense_block_count=1, expert_gating_func=2).items():
        u32(k, v)
    for k, v in dict(head_count=HEADS, head_count_kv=1, q_lora_rank=Q_LORA, kv_lora_rank=KV_LORA).items():
        u32("attention." + k, v)
    f32("attention.layer_norm_rms_epsilon", 1e-5)
    f32("rope.freq_base", 1e4)
    u32("rope.dimension_count", ROPE)
    f32("expert_weights_scale", 2.5)
    w.add_bool(f"{arch}.expert_weights_norm", True)
    if legacy:
        u32("attention.key_length", NOPE + ROPE)
        u32("attention.value_length", V_DIM)
    else:
        u32("attention.key_length", KV_LORA + ROPE)
        u32("attention.value_length", KV_LORA)
        u32("attention.key_length_mla", NOPE + ROPE)
        u32("attention.value_length_mla", V_DIM)
    if groups:
        u32("expert_group_count", 4)
        u32("expert_group_used_count", 2)
    if mtp:
        u32("nextn_predict_layers", 1)
    if yarn:
        w.add_string(f"{arch}.rope.scaling.type", "yarn")
        f32("rope.scaling.factor", 4.0)
        u32("rope.scaling.original_context_length", CONTEXT // 4)
        f32("rope.scaling.yarn_log_multiplier", 0.1)
    indexed = arch != "deepseek2"
    if indexed:
        u32("attention.indexer.head_count", IDX_HEADS)
        u32("attention.indexer.key_length", IDX_DIM)
        u32("attention.indexer.top_k", TOP_K)
        if types:
            w.add_array(f"{arch}.attention.indexer.types", [bool(t) for t in types])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("glm4")
    w.add_token_list([f"t{i}" for i in range(VOCAB)])
    w.add_token_types([1] * VOCAB)
    w.add_token_merges(["t 0"])
    w.add_eos_token_id(VOCAB - 1)

    mat = lambda *s, gain=1.0: (rng.standard_normal(s) * gain / np.sqrt(s[-1])).astype(np.float16)
    vec = lambda n, mean=1.0: (mean + 0.1 * rng.standard_normal(n)).astype(np.float32)
    put = w.add_tensor
    put("token_embd.weight", rng.standard_normal((VOCAB, HIDDEN)).astype(np.float16))
    put("output_norm.weight", vec(HIDDEN))
    put("output.weight", mat(VOCAB, HIDDEN, gain=3.0))
    for i in range(blocks):
        p = f"blk.{i}."
        put(p + "attn_norm.weight", vec(HIDDEN))
        put(p + "attn_q_a.weight", mat(Q_LORA, HIDDEN))
        put(p + "attn_q_a_norm.weight", vec(Q_LORA))
        put(p + "attn_q_b.weight", mat(HEADS * (NOPE + ROPE), Q_LORA, gain=1.5))
        put(p + "attn_kv_a_mqa.weight", mat(KV_LORA + ROPE, HIDDEN))
        put(p + "attn_kv_a_norm.weight", vec(KV_LORA))
        k_b, v_b = mat(HEADS, KV_LORA, NOPE, gain=1.5), mat(HEADS, V_DIM, KV_LORA)
        if legacy:
            merged = np.concatenate([k_b.transpose(0, 2, 1), v_b], axis=1)
            put(p + "attn_kv_b.weight", np.ascontiguousarray(merged.reshape(HEADS * (NOPE + V_DIM), KV_LORA)))
        else:
            put(p + "attn_k_b.weight", k_b)
            put(p + "attn_v_b.weight", v_b)
        put(p + "attn_output.weight", mat(HIDDEN, HEADS * V_DIM))
        put(p + "ffn_norm.weight", vec(HIDDEN))
        if indexed:
            full = types is None or i >= LAYERS or types[i]
            # Layers that share a selection hold copies that must not be used, as some public files do.
            junk = 1.0 if full else 9.0
            put(p + "indexer.attn_q_b.weight", mat(IDX_HEADS * IDX_DIM, Q_LORA, gain=junk))
            put(p + "indexer.attn_k.weight", mat(IDX_DIM, HIDDEN, gain=junk))
            put(p + "indexer.k_norm.weight", vec(IDX_DIM))
            put(p + "indexer.k_norm.bias", vec(IDX_DIM, 0.0))
            put(p + "indexer.proj.weight", mat(IDX_HEADS, HIDDEN))
        if i == 0:
            for n, s in (("gate", (FF, HIDDEN)), ("up", (FF, HIDDEN)), ("down", (HIDDEN, FF))):
                put(p + f"ffn_{n}.weight", mat(*s))
            continue
        put(p + "ffn_gate_inp.weight", mat(EXPERTS, HIDDEN).astype(np.float32))
        put(p + "exp_probs_b.bias", vec(EXPERTS, 0.0))
        gate, up = mat(EXPERTS, EXPERT_FF, HIDDEN), mat(EXPERTS, EXPERT_FF, HIDDEN)
        if legacy:
            put(p + "ffn_gate_up_exps.weight", np.concatenate([gate, up], axis=1))
        else:
            put(p + "ffn_gate_exps.weight", gate)
            put(p + "ffn_up_exps.weight", up)
        put(p + "ffn_down_exps.weight", mat(EXPERTS, HIDDEN, EXPERT_FF))
        for n, s in (("gate", (EXPERT_FF, HIDDEN)), ("up", (EXPERT_FF, HIDDEN)), ("down", (HIDDEN, EXPERT_FF))):
            put(p + f"ffn_{n}_shexp.weight", mat(*s))
        if i >= LAYERS:
            put(p + "nextn.eh_proj.weight", mat(HIDDEN, 2 * HIDDEN))
            for n in ("enorm", "hnorm", "shared_head_norm"):
                put(p + f"nextn.{n}.weight", vec(HIDDEN))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--tokens"]:
        print(*TOKENS)
    else:
        out = sys.argv[1]
        write(f"{out}/tiny-glm-dsa.gguf", "glm-dsa", types=[1, 1, 0, 1])
        write(f"{out}/tiny-glm-dsa-mtp.gguf", "glm-dsa", mtp=True)
        write(f"{out}/tiny-deepseek32.gguf", "deepseek32", groups=True, yarn=True)
        write(f"{out}/tiny-deepseek2.gguf", "deepseek2")
        write(f"{out}/tiny-deepseek2-legacy.gguf", "deepseek2", legacy=True)
